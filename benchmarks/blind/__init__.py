"""Cases by strangers, labelled before they were run: how often the verdict is right on inputs that nobody here wrote."""
