"""Errors that no family of messages recognises: lines that call themselves one, and sentences that report one. They count only at the end of a log."""
