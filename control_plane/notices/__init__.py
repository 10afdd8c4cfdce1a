"""What operators are told at once: facts, grouped into messages, on their routes."""
