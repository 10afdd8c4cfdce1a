"""How what is new of attempts is merged into the stored rows."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records
from probing_cluster.db import rows, tables

_A = tables.job_attempt.c
_KEY = ("cluster", "job_id", "submit_at")
COMPARED = (
    "state",
    "start_at",
    "end_at",
    "exit_code",
    "exit_signal",
    "gpus",
    "nodes",
    "failed_node",
    "cancelled_by",
)
"""Columns whose change means that the attempt must be judged again."""

FINGERPRINT = f"hash_record_extended(ROW({', '.join(f'a.{name}' for name in COMPARED)}), 0)"
"""SQL: a number that changes with the columns `COMPARED` of the row `a` of probing.job_attempt."""

_TRUE_END = ("state", "end_at", "exit_code", "exit_signal", "derived_exit_code", "reason", "suspended_s")
"""Columns that keep what was recorded of an attempt's own end when accounting later shows the end of the time until its requeue, or an
older export shows it while it ran."""


def given() -> sa.Select[Any]:
    """The rows of the parameter `attempts`, JSON. In one statement: the merge of a single row takes longer to plan than to run."""
    names = rows.names(records.JobAttempt)
    text = sa.cast(sa.bindparam("attempts", type_=sa.Text()), pg.JSON)
    like: sa.ColumnElement[Any] = sa.literal_column("NULL::probing.job_attempt")
    return sa.select(*sa.func.json_populate_recordset(like, text).table_valued(*names).c)


def statement(source: sa.Select[Any]) -> pg.Insert:
    """The upsert of attempts from a query's rows; a row that says nothing new is not written."""
    names = rows.names(records.JobAttempt)
    insert = pg.insert(tables.job_attempt).from_select(list(names), source)
    new: dict[str, Any] = {}
    for name in names:
        if name in _KEY:
            continue
        value: sa.ColumnElement[Any] = insert.excluded[name]
        known = _A[name]
        if _A[name].nullable and name != "time_limit_s":  # there null is a value: unlimited
            value = sa.func.coalesce(value, known)
        elif name in ("run_key", "user", "account", "name"):
            value = sa.func.coalesce(sa.func.nullif(value, ""), known)
        new[name] = value
    # Slurm up to 25.11.2 rewrites the first start when a job that has ended is requeued: state REQUEUED, end = the requeue.
    rewritten = sa.and_(
        _A.end_at.is_not(None),
        _A.state != "REQUEUED",
        insert.excluded.state == "REQUEUED",
        insert.excluded.end_at > _A.end_at,
    )
    # A start that has ended runs no more: a row without an end is of an export made before, or of a poll that was overtaken.
    older = sa.and_(
        _A.end_at.is_not(None),
        insert.excluded.end_at.is_(None),
        sa.func.coalesce(insert.excluded.start_at <= _A.start_at, sa.true()),
    )
    for name in _TRUE_END:
        new[name] = sa.case((sa.or_(rewritten, older), _A[name]), else_=new[name])
    differs = {name: value.is_distinct_from(_A[name]) for name, value in new.items()}
    judged_again = sa.or_(*(differs[name] for name in COMPARED))
    new["judged_at"] = sa.case((judged_again, sa.null()), else_=_A.judged_at)
    return insert.on_conflict_do_update(index_elements=list(_KEY), set_=new, where=sa.or_(*differs.values()))
