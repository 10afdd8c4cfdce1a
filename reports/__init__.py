"""Reports read, never write: probing-report, HTML, mail."""
