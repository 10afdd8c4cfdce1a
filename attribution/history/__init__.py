"""Recent records in Postgres and exported months in Parquet, read as one."""
