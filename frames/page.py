"""docs/frames.md, generated from the columns: `python -m probing_cluster.frames.page`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pyarrow as pa

from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records
from probing_cluster.frames import columns

_HEAD = """\
# Notebooks

`probing_cluster.frames` gives verdicts, attempts, events, lemon scores and the fleet figures as pandas DataFrames and Arrow
tables: `pip install 'probing-cluster[frames]'`. This page is generated: `python -m probing_cluster.frames.page`.

```python
from datetime import UTC, datetime
from probing_cluster import frames

with frames.connect(
    "postgresql://board@db/probing?sslmode=verify-full"
) as cluster:  # or a probing.toml, or nothing
    march = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 4, 1, tzinfo=UTC)}
    verdicts = cluster.verdicts(**march)
    per_cause = verdicts.groupby("cause").size().sort_values()
    rates = cluster.fleet("failure_rates", **march)  # rates.attrs has what holds for the whole figure
    events = cluster.events(**march, arrow=True)  # a pyarrow.Table
```

A database may hold several clusters: `connect(…, cluster="a")` gives one's. Without it a URL gives the rows of all, each with its
`cluster`, and a probing.toml those of its own cluster.

Spans are [since, until), in times with a zone; without `until` it is now, and the figures of `fleet` reach no further than that, or than
imported accounting. A login role sees what its scope allows ([roles](database.md#roles)); `probing_reader` is enough, and nothing here writes. Columns have Arrow's types in pandas too, so that
whole numbers with gaps stay whole. Ids are text. `json` columns are dictionaries in pandas and text in Arrow. Each column of
a table carries its meaning (`table.schema.field("cause").metadata[b"doc"]`). Rows come from Postgres; the fleet figures also
read the months that were exported as Parquet. A table is held in memory: about 1 kB an event.
"""
_TABLES = (
    ("verdicts", "the current verdict of each attempt that ended in the span", records.Verdict),
    ("attempts", "each attempt that ended in the span", records.JobAttempt),
    ("events", "each event about the span", records.HealthEvent),
    ("lemon_scores", "each node's score of each night in the span", records.LemonScore),
)


def page() -> str:
    """The whole page as Markdown."""
    lines = [_HEAD]
    for name, meaning, record in _TABLES:
        lines += [f"## {name}", "", f"A row is {meaning}.", "", *_table(columns.of_record(record)), ""]
    lines += [
        "## fleet",
        "",
        "`cluster.fleet(figure, since=…, until=…, partition=…, users=…)`, and each figure's own options.",
        "",
    ]
    for name, schema in columns.figures().items():
        lines += [f"### {name}", "", inspect.getdoc(getattr(fleet, name)) or "", "", *_table(schema), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(schema: pa.Schema) -> Iterator[str]:
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    json = columns.json_columns(schema)
    for field in schema:
        kind = "json" if field.name in json else _word(field.type)
        doc = field.metadata[b"doc"].decode().replace("|", "\\|")
        yield f"| `{field.name}` | {kind}{' or null' if field.nullable else ''} | {doc} |"


def _word(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_word(kind.value_type)}"
    return (
        "time"
        if pa.types.is_timestamp(kind)
        else {"string": "text", "int64": "integer", "double": "number"}.get(str(kind), str(kind))
    )


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
