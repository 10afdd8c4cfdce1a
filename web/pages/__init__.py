"""The same handlers as pages."""
