"""`probing-ctl`: one file per group of commands."""
