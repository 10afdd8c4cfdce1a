"""Reports for people: `probing-report`, its text, JSON and HTML, pages and mails. This room reads the database and never writes."""
