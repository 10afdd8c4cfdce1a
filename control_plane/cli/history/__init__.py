"""Commands about what the database holds: files imported, SQL, the figures of the fleet."""
