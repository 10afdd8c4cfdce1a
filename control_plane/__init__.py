"""probing-ctl, the scheduled service, and the drain policy with its budget."""
