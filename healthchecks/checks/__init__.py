"""The checks: one file each, named as the check; `registry.load` finds them."""
