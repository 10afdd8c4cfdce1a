"""Tasks about nodes: drains, returns to service, repairs, silence, places and lemons."""
