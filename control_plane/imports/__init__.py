"""History from files into rows: accounting dumps, kernel logs, job output, event lists."""
