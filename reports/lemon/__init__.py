"""A night's lemons as a view, text and JSON."""
