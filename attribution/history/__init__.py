"""The recent past in Postgres and the months in Parquet, read as one."""
