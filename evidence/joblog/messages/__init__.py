"""The messages of a job's output, one file a family; `families` registers them."""
