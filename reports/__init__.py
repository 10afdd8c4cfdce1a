"""What people read: `probing-report`, its text, JSON and HTML. Reads, never writes."""
