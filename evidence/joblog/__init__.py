"""The output of jobs that fail: one file per family of messages, each registered in `families.FAMILIES`."""
