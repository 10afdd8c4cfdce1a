"""The kernel's own words: one file per family of messages, each with one registration in `reader.FAMILIES`."""
