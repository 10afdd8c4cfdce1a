"""The embedded Postgres: its programs, its directory, starting and stopping it."""
