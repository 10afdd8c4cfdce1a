"""The store's verdicts: the current one of each attempt, and every older one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records
from probing_cluster.db import binary_arrays, engines, plain, rows, tables
from probing_cluster.db.store import attempt_merge, base

_T = TypeVar("_T")
_A = tables.job_attempt.c
_V = tables.verdict.c

Key = tuple[str, int, datetime]
"""Cluster, job id and submit time: what makes an attempt this attempt."""

_BATCH = 5000
_KEY = ("cluster", "job_id", "submit_at")
_NAMES = rows.names(records.Verdict)
_FIELDS = operator.attrgetter(*_NAMES)
_compared = operator.attrgetter(*(name for name in _NAMES if name != "made_at"))


class VerdictRows(base.StoreBase):
    """Reads and writes of why attempts ended."""

    def fingerprints(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Attempt to a number that changes with what a verdict rests on in its row; unknown attempts are left out.

        Read before the attempts themselves and handed to `save_verdicts`, it shows which rows changed in between.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        with engines.translated(), self.engine.connect() as connection:
            found = _call(connection.connection.cursor(), _FINGERPRINTS, _key_arrays(wanted))
            return {wanted[n - 1]: fingerprint for n, fingerprint in found}

    def save_verdicts(
        self, verdicts: Iterable[records.Verdict], read: Mapping[Key, int] | None = None
    ) -> dict[Key, records.Verdict]:
        """Store verdicts as current, keeping the older ones; a person's verdict is not replaced by the rules'.

        `read`: the fingerprint of each attempt's row that its verdict rests on. An attempt whose row has another one by now
        remains to be judged again; without a fingerprint the row counts as unchanged.

        Gives the verdicts that were current before, of those attempts that had one. One equal to the current one
        but for the time it was made is not stored again.
        """
        rounds: list[dict[Key, records.Verdict]] = []
        for given in verdicts:
            key = key_of(given)
            waiting = next((r for r in rounds if key not in r), None)
            if waiting is None:
                rounds.append(waiting := {})
            waiting[key] = given
        before: dict[Key, records.Verdict] = {}
        for one_each in rounds:
            # In order of the key: two writers of the same attempts then wait instead of deadlocking.
            for batch in _batched(sorted(one_each.items(), key=lambda item: item[0])):
                before = {**self._save_batch(dict(batch), read or {}), **before}
        return before

    def _save_batch(
        self, given: Mapping[Key, records.Verdict], read: Mapping[Key, int]
    ) -> dict[Key, records.Verdict]:
        with engines.translated(), self.engine.begin() as connection:
            cursor = connection.connection.cursor()
            given_keys = list(given)
            given_arrays = _key_arrays(given_keys)
            locked = {given_keys[n - 1]: row for n, *row in _call(cursor, _LOCK, given_arrays)}
            unjudged = {k for k, (judged, _) in locked.items() if not judged}
            changed = {k for k, (_, fingerprint) in locked.items() if read.get(k, fingerprint) != fingerprint}
            jobs = binary_arrays.ARRAYS["bigint"]([k[1] for k in given_keys])
            stored = (dict(zip(_NAMES, row, strict=True)) for row in _call(cursor, _CURRENT, {"jobs": jobs}))
            current = {key_of(v): v for v in (rows.from_row(records.Verdict, row) for row in stored)}
            fresh = {k: v for k, v in given.items() if k not in current or not _same(current[k], v)}
            kept = {k for k, v in fresh.items() if k in current and v.author == "rules" != current[k].author}
            replaced = [k for k in fresh if k in current and k not in kept]
            if replaced:
                _call(cursor, _SUPERSEDE, _key_arrays(replaced))
            for statement, keys in ((_INSERT, fresh.keys() - kept), (_INSERT_OLD, kept)):
                if keys:
                    _call(cursor, statement, _verdict_arrays([fresh[k] for k in fresh if k in keys]))
            if judged := [k for k in given if (k in fresh or k in unjudged) and k not in changed]:
                same = len(judged) == len(given)
                _call(cursor, _JUDGED, given_arrays if same else _key_arrays(judged))
            return {k: v for k, v in current.items() if k in given}

    def verdicts(
        self,
        job_ids: Iterable[int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        node: str | None = None,
        limit: int | None = None,
        confidences: Iterable[records.Confidence] | None = None,
        cluster: str | None = None,
    ) -> list[records.Verdict]:
        """Current verdicts; `since`/`until` bound the end of the attempt judged. Without a cluster, of the store's."""
        query = (
            sa.select(tables.verdict)
            .where(_V.superseded_at.is_(None), self._of(_V.cluster, cluster))
            .order_by(_V.submit_at, _V.job_id)
            .limit(limit)
        )
        if job_ids is not None:
            query = query.where(base.some(_V.job_id, job_ids))
        if confidences is not None:
            query = query.where(base.some(_V.confidence, confidences))
        if node is not None:
            query = query.where(_V.node == node)
        if since is not None or until is not None:
            query = query.join(tables.job_attempt, sa.and_(*(_V[k] == _A[k] for k in _KEY)))
            query = query.where(_A.end_at >= since) if since is not None else query
            query = query.where(_A.end_at < until) if until is not None else query
        return self._select(records.Verdict, query)

    def verdict_histories(self, job_ids: Iterable[int]) -> list[records.Verdict]:
        """Every verdict ever given on these jobs' attempts, by job and time."""
        query = (
            sa.select(tables.verdict)
            .where(base.some(_V.job_id, job_ids), self._of(_V.cluster))
            .order_by(_V.job_id, _V.submit_at, _V.made_at, _V.verdict_id)
        )
        return self._select(records.Verdict, query)


def key_of(verdict: records.Verdict) -> Key:
    """The attempt a verdict is about."""
    return (verdict.cluster, verdict.job_id, verdict.submit_at)


def _batched(items: list[_T]) -> Iterator[list[_T]]:
    return (items[at : at + _BATCH] for at in range(0, len(items), _BATCH))


def _same(old: records.Verdict, new: records.Verdict) -> bool:
    return bool(_compared(old) == _compared(new))


def _call(cursor: Any, statement: str, arrays: Mapping[str, Any]) -> Sequence[Any]:
    cursor.execute(statement, arrays, binary=True)
    return cursor.fetchall() if cursor.description else ()


def _key_arrays(keys: Iterable[Key]) -> dict[str, Any]:
    clusters, jobs, submits = zip(*keys, strict=True)
    kinds = binary_arrays.ARRAYS
    return {
        "cluster": kinds["text"](clusters),
        "job_id": kinds["bigint"](jobs),
        "submit_at": kinds["timestamptz"](submits),
    }


def _verdict_arrays(verdicts: Sequence[records.Verdict]) -> dict[str, Any]:
    """A column of an array is sent as the text of each: `unnest` would flatten an array of arrays."""
    columns = zip(*map(_FIELDS, verdicts), strict=True)
    return {
        name: binary_arrays.ARRAYS[_KINDS[name][0]](column, _FORMS[name])
        for name, column in zip(_NAMES, columns, strict=True)
    }


def _array_literal(values: Sequence[Any]) -> str:
    """An array as Postgres writes it."""
    words = [str(v) for v in values]
    plainly = plain.text('","'.join(words))
    if "\\" not in plainly and plainly.count('"') == 2 * len(words) - 2:
        return f'{{"{plainly}"}}' if words else "{}"
    quoted = (plain.text(word).replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def _kind(kind: sa.types.TypeEngine[Any]) -> tuple[str, str]:
    """The type a column's values are sent as and the one they are cast to."""
    if isinstance(kind, pg.ARRAY):
        return "text", f"{_kind(kind.item_type)[1]}[]"
    if isinstance(kind, sa.Boolean):
        return "text", "boolean"
    names = {sa.Uuid: "uuid", sa.BigInteger: "bigint", sa.DateTime: "timestamptz", sa.Text: "text"}
    name = next(text for cls, text in names.items() if isinstance(kind, cls))
    return name, name


def _text(value: str) -> str:
    return plain.text(str(value))


_KINDS = {name: _kind(_V[name].type) for name in _NAMES}
_FORMS: dict[str, Callable[[Any], Any] | None] = {
    name: _array_literal if cast.endswith("[]") else _text if kind == "text" else None
    for name, (kind, cast) in _KINDS.items()
}

_ROWS = """
FROM unnest(%(cluster)b::text[], %(job_id)b::bigint[], %(submit_at)b::timestamptz[]) WITH ORDINALITY
     AS g(cluster, job_id, submit_at, n)
JOIN probing.job_attempt a USING (cluster, job_id, submit_at)
"""
_FINGERPRINTS = f"SELECT g.n, {attempt_merge.FINGERPRINT} {_ROWS}"
_LOCK = f"""
SELECT g.n, a.judged_at IS NOT NULL, {attempt_merge.FINGERPRINT} {_ROWS}
ORDER BY a.cluster, a.job_id, a.submit_at
FOR NO KEY UPDATE OF a
"""
"""Savers of the same attempts take turns. Output: number (from 1), whether it has a current verdict, fingerprint of its row."""
_JUDGED = """
UPDATE probing.job_attempt a SET judged_at = now()
FROM unnest(%(cluster)b::text[], %(job_id)b::bigint[], %(submit_at)b::timestamptz[]) AS g(cluster, job_id, submit_at)
WHERE a.cluster = g.cluster AND a.job_id = g.job_id AND a.submit_at = g.submit_at
"""
_SUPERSEDE = """
UPDATE probing.verdict v SET superseded_at = now()
FROM unnest(%(cluster)b::text[], %(job_id)b::bigint[], %(submit_at)b::timestamptz[]) AS g(cluster, job_id, submit_at)
WHERE v.cluster = g.cluster AND v.job_id = g.job_id AND v.submit_at = g.submit_at AND v.superseded_at IS NULL
"""
_COLUMNS = ", ".join(f'"{name}"' for name in _NAMES)
_CURRENT = f"""
SELECT {_COLUMNS} FROM probing.verdict WHERE superseded_at IS NULL AND job_id = ANY(%(jobs)b::bigint[])
"""  # noqa: S608 - our own names


def _insert(superseded: str) -> str:
    values = ", ".join(f'g."{name}"::{cast}' for name, (_, cast) in _KINDS.items())
    arrays = ", ".join(f"%({name})b::{kind}[]" for name, (kind, _) in _KINDS.items())
    return f"""
INSERT INTO probing.verdict ({_COLUMNS}, superseded_at)
SELECT {values}, {superseded} FROM unnest({arrays}) AS g({_COLUMNS})"""  # noqa: S608 - our own names


_INSERT, _INSERT_OLD = _insert("NULL"), _insert("now()")
