"""The drain policy: what it looks at, what it decides, its budget, and carrying decisions out."""
