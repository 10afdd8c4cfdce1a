"""SQL over an ended attempt's kept tables, with the table names of a running job."""

from __future__ import annotations

import datafusion as df
import pyarrow.dataset as ds
from datafusion.catalog import Catalog, Schema, Table

from probing_cluster.attribution.history import kept
from probing_cluster.core.ending import thread_limit


def context(found: kept.Tables) -> df.SessionContext:
    """A DataFusion session with these tables under their schemas, as in `probing-ctl sql` of a running job."""
    thread_limit.require()
    made = df.SessionContext(
        df.SessionConfig()
        .with_information_schema(True)
        .with_default_catalog_and_schema("kept", "python")
        .set("datafusion.sql_parser.default_null_ordering", "nulls_last")  # as in a running job
    )
    catalog = Catalog.memory_catalog()
    made.register_catalog_provider("kept", catalog)
    for schema in ("python", "torch"):
        catalog.register_schema(schema, Schema.memory_schema())
    for (schema, name), table in found.items():
        if schema in ("python", "torch"):
            catalog.schema(schema).register_table(name, Table(ds.dataset(table)))
    return made
