"""Requests of a user's command to the service, over its door, with a MUNGE credential."""
