"""What was seen becomes durable: intake, storms made small, the spool, and its delivery to Postgres."""
