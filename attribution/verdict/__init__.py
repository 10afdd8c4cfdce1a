"""One attempt's records in, one verdict out: rules, tables and wording; pure functions."""
