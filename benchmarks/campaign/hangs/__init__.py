"""Real gangs that hang, end, or are healthy, again and again: what is said of them, and how soon."""
