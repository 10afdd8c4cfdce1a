"""The tests: one file and one `TEST = registry.Test(...)` each."""
