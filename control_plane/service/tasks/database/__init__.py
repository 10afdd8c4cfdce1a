"""Tasks that keep the database: partitions, exports, sessions that last too long."""
