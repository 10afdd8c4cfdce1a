"""Judging many attempts: reading their records, the incremental pass, re-attribution, Dask."""
