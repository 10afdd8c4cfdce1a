"""Health checks: one file and one registration each, run by one runner."""
