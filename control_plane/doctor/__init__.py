"""`probing-ctl doctor`: every assumption about the site, checked, with the fix."""
