"""The shared words: records, settings, errors, clock, hostlists. Standard library only."""
