"""`probing-ctl serve`: scheduled tasks and metrics."""
