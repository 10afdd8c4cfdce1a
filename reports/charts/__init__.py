"""Drawings: SVG charts, timelines and the mail's pictures."""
