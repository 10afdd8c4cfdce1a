"""Messages that wait until they are delivered."""
