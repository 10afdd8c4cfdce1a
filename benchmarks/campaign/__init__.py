"""The attribution campaign: faults of known cause, injected or replayed, and how often the verdict is right."""
