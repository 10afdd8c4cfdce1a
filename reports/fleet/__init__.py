"""The fleet page: its words and its drawing."""
