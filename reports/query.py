"""One job's rows out of Postgres in one round trip, over any psycopg connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from probing_cluster.core import errors
from probing_cluster.reports import job_ref

SQL = (Path(__file__).parent / "sql" / "report.sql").read_text(encoding="utf-8")


class Connection(Protocol):
    """The little of a psycopg connection that is used here."""

    def execute(self, query: Any, params: Any = None) -> Any:
        """Runs one statement and gives its cursor."""
        ...


def fetch(connection: Connection, cluster: str, ref: job_ref.JobRef) -> Mapping[str, Any]:
    """The JSON document of `ref`'s rows; raises NotFound when no such attempt is stored."""
    row = connection.execute(SQL, parameters(cluster, ref)).fetchone()
    if row is None or row[0] is None:
        msg = f"job {ref} is not known: no start of it is in the accounting read so far; where it still waits, squeue says why (jobs that test nodes for us have no report)"
        raise errors.NotFound(msg)
    document: Mapping[str, Any] = row[0]
    return document


def parameters(cluster: str, ref: job_ref.JobRef) -> dict[str, Any]:
    """The inputs of report.sql for one reference."""
    return {
        "cluster": cluster,
        "job_id": ref.base if ref.plain else None,
        "array_id": None if ref.offset is not None else ref.base,
        "task": ref.task,
        "het_id": None if ref.offset is None else ref.base,
        "component": ref.offset,
    }
