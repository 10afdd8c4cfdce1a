"""What jobs print when they die: one file per family of messages, one registration each in `families.FAMILIES`."""
