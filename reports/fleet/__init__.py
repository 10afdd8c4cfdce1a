"""The fleet page: sentences and drawings."""
