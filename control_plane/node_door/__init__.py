"""The agents' door: takes deliveries of many nodes over TLS and hands them to the database by the batch."""
