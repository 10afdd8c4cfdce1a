"""The store's attempts, run accounts and what is said of gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from probing_cluster.core import records
from probing_cluster.db import engines, plain, rows, tables
from probing_cluster.db.store import attempt_merge, base

_A = tables.job_attempt.c
RUN_PARTS = ("queued", "productive", "lost_to_replay", "restart", "checkpoint", "suspended", "idle")
"""The parts of a run's wall time, each a column of seconds (`queued_s` …) of its account."""

Key = tuple[str, int, datetime]
"""Cluster, job id and submit time: what makes an attempt this attempt."""


class ArrivedEvents(NamedTuple):
    """One delivery's new events: about which node, from when to when."""

    cluster: str
    node: str
    first_at: datetime
    last_at: datetime


_CLUSTERS = """
WITH RECURSIVE found AS (
    SELECT min(cluster) AS name FROM probing.job_attempt
    UNION ALL
    SELECT (SELECT min(a.cluster) FROM probing.job_attempt a WHERE a.cluster > f.name) FROM found f WHERE f.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL
"""
_BATCH = 1000
_OF_KEYS = """
SELECT a.*
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]))
     WITH ORDINALITY AS g(cluster, job_id, submit_at, n)
JOIN probing.job_attempt a USING (cluster, job_id, submit_at)
ORDER BY g.n
"""
_KNOWN = sa.text("""
SELECT g.n
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
     WITH ORDINALITY AS g(cluster, job_id, submit_at, start_at, n)
JOIN probing.job_attempt a USING (cluster, job_id, submit_at)
WHERE a.start_at = g.start_at AND a.nodes <> '{}'
""")
_SAME_START = sa.text("""
SELECT g.n, a.submit_at
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
     WITH ORDINALITY AS g(cluster, job_id, submit_at, start_at, n)
JOIN probing.job_attempt a ON (a.cluster, a.job_id, a.start_at) = (g.cluster, g.job_id, g.start_at)
WHERE a.submit_at <> g.submit_at AND (a.submit_at = a.start_at OR g.submit_at = g.start_at)
""")
_SHIFTED = (Path(__file__).parent / "shifted_starts.sql").read_text(encoding="utf-8")
_COUNT = sa.text((Path(__file__).parent / "count_starts.sql").read_text(encoding="utf-8"))
LATE_STARTS = sa.text((Path(__file__).parent / "late_starts.sql").read_text(encoding="utf-8"))
_ARRIVAL = tables.arrival.c
_WAITING = (
    sa.select(
        _ARRIVAL.arrival_id,
        _ARRIVAL.job_id,
        _ARRIVAL.cluster,
        _ARRIVAL.node,
        _ARRIVAL.first_at,
        _ARRIVAL.last_at,
    )
    .order_by(_ARRIVAL.arrival_id)
    .limit(_BATCH)
)
_LIVED_ON = sa.text((Path(__file__).parent / "lived_on.sql").read_text(encoding="utf-8"))
REOPEN = sa.text((Path(__file__).parent / "reopen.sql").read_text(encoding="utf-8"))


class AttemptRows(base.StoreBase):
    """Reads and writes of what jobs did."""

    def upsert_attempts(self, attempts: Iterable[records.JobAttempt]) -> None:
        """Store attempts; what an older row knew and the new one does not is kept.

        Who shared a node with an attempt, or took its place, is evidence: a start that was not known has those judged again.
        """
        latest = {(a.cluster, a.job_id, a.submit_at): a for a in attempts}
        if not latest:
            return
        with engines.translated(), self.engine.begin() as connection:
            started = [a for a in latest.values() if a.start_at is not None and a.nodes]
            known = set(connection.execute(_KNOWN, _key_columns(started)).scalars())
            new = [a for i, a in enumerate(started, start=1) if i not in known]
            # In order of the key: two writers of the same attempts then wait instead of deadlocking.
            keys, merge = sorted(latest), attempt_merge.statement(attempt_merge.given())
            for low in range(0, len(keys), _BATCH):
                given = [rows.to_row(latest[key]) for key in keys[low : low + _BATCH]]
                connection.execute(merge, {"attempts": plain.dumps(given)})
            if new:
                connection.execute(LATE_STARTS, _key_columns(new))

    def clusters(self) -> list[str]:
        """The names of the clusters whose attempts are stored, read from the key's index."""
        return [row["name"] for row in self.rows(_CLUSTERS, {})]

    def known_submits(self, attempts: Sequence[records.JobAttempt]) -> dict[int, datetime]:
        """The submit time, by place in `attempts`, under which a start is stored already that either side lacks the submit time of.

        Where accounting gives no submit time, the start time stands in for it.
        """
        with engines.translated(), self.engine.connect() as connection:
            found = connection.execute(_SAME_START, _key_columns(attempts))
            return {n - 1: submit_at for n, submit_at in found}

    def shifted_start(
        self, attempts: Sequence[records.JobAttempt]
    ) -> tuple[records.JobAttempt, timedelta] | None:
        """One of the attempts, if most of known jobs are stored with all times moved by whole quarters of an hour, and by how much; else None."""
        given = {**_key_columns(attempts), "ends": [a.end_at for a in attempts]}
        found = self.rows(_SHIFTED, given)
        return (attempts[found[0]["n"] - 1], timedelta(seconds=found[0]["ahead_s"])) if found else None

    def count_starts(self, attempts: Sequence[records.JobAttempt]) -> None:
        """Number the starts of these attempts' jobs in order of submission, those that were stored before among them."""
        keys = {"clusters": [a.cluster for a in attempts], "jobs": [a.job_id for a in attempts]}
        with engines.translated(), self.engine.begin() as connection:
            connection.execute(_COUNT, keys)

    def attempts(
        self,
        job_ids: Iterable[int] | None = None,
        run_key: str | None = None,
        user: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: Iterable[str] | None = None,
        ended: bool | None = None,
        node: str | None = None,
        cluster: str | None = None,
        limit: int | None = None,
    ) -> list[records.JobAttempt]:
        """Attempts by submit time; `since`/`until` keep those that ran (or waited) in that span. Without a cluster, of the store's.

        A job id also finds the tasks of that array and the components of that het job.
        """
        query = sa.select(tables.job_attempt).where(self._of(_A.cluster, cluster))
        query = query.order_by(_A.submit_at, _A.job_id).limit(limit)
        if job_ids is not None:
            wanted = list(job_ids)
            query = query.where(
                sa.or_(*(base.some(c, wanted) for c in (_A.job_id, _A.array_job_id, _A.het_job_id)))
            )
        for column, value in ((_A.run_key, run_key), (_A.user, user)):
            if value is not None:
                query = query.where(column == value)
        if node is not None:
            query = query.where(_A.nodes.contains([node]))
        if states is not None:
            query = query.where(base.some(_A.state, states))
        if since is not None:
            query = query.where(sa.or_(_A.end_at.is_(None), _A.end_at >= since))
        if until is not None:
            query = query.where(_A.submit_at < until)
        if ended is not None:
            query = query.where(_A.end_at.is_not(None) if ended else _A.end_at.is_(None))
        return self._select(records.JobAttempt, query)

    def any_started(self, cluster: str, until: datetime) -> bool:
        """Whether any job of the cluster is on record that started before then."""
        query = sa.select(sa.exists().where(_A.cluster == cluster, _A.start_at < until))
        with engines.translated(), self.engine.connect() as connection:
            return bool(connection.scalar(query))

    def attempts_of(self, keys: Sequence[tuple[str, int, datetime]]) -> list[records.JobAttempt]:
        """The attempts of these keys (cluster, job id, submit time), in their order; what is not there is left out."""
        if not keys:
            return []
        clusters, jobs, submits = (list(column) for column in zip(*keys, strict=True))
        found = self.rows(_OF_KEYS, {"clusters": clusters, "jobs": jobs, "submits": submits})
        return self.readable(records.JobAttempt, found)

    def reopen_for_arrivals(
        self, grown: Callable[[Sequence[ArrivedEvents]], Iterable[Key]] | None = None
    ) -> int:
        """Have attempts judged again for which evidence has arrived since; how many.

        `grown` may name more of them, for some deliveries: whom they concern although they are about other nodes.
        Deliveries count as looked at only together with what they re-opened. Heartbeats are no deliveries of evidence; that a
        node is heard which Slurm had given up is looked at by itself.
        """
        with engines.translated(), self.engine.begin() as connection:
            reopened: int = connection.execute(_LIVED_ON).scalar_one()
        while True:
            with engines.translated(), self.engine.connect() as connection:
                waiting = connection.execute(_WAITING).fetchall()
            if not waiting:
                return reopened
            of_nodes = [ArrivedEvents(*row) for _, job_id, *row in waiting if job_id is None]
            more = _bound(grown(of_nodes)) if grown is not None and of_nodes else []
            with engines.translated(), self.engine.begin() as connection:
                given = {"arrivals": [arrival_id for arrival_id, *_ in waiting]}
                reopened += connection.execute(REOPEN, given).scalar_one() + len(more)
                if more:
                    connection.execute(_judged(None), more)
            if len(waiting) < _BATCH:
                return reopened

    def save_gang_verdicts(self, verdicts: Iterable[records.GangVerdict]) -> None:
        """Store what is said of stalled or slow gangs; an equal gang_id replaces it."""
        self._upsert(records.GangVerdict, verdicts)

    def gang_verdicts(
        self,
        job_ids: Iterable[int] | None = None,
        since: datetime | None = None,
        open_only: bool = False,
        *,
        open_since: datetime | None = None,
        cluster: str | None = None,
    ) -> list[records.GangVerdict]:
        """What was found of gangs since made_at >= `since`, oldest first; without a cluster, of the store's.

        `open_only` = has not ended; `open_since` = had not ended by then.
        """
        g = tables.gang_verdict.c
        query = (
            sa.select(tables.gang_verdict).where(self._of(g.cluster, cluster)).order_by(g.made_at, g.gang_id)
        )
        if job_ids is not None:
            query = query.where(base.some(g.job_id, job_ids))
        if open_only:
            query = query.where(g.ended_at.is_(None))
        if open_since is not None:
            query = query.where(sa.or_(g.ended_at.is_(None), g.ended_at >= open_since))
        return self._select(
            records.GangVerdict, query.where(g.made_at >= since) if since is not None else query
        )

    def run_account(self, run_key: str, user: str | None = None) -> records.RunAccount | None:
        """The account of a run; of several users' runs with that key, the one that ended last."""
        r = tables.run_account.c
        query = sa.select(tables.run_account).where(self._of(r.cluster), r.run_key == run_key)
        query = query.order_by(r.end_at.desc()).limit(1)
        found = self._select(records.RunAccount, query.where(r.user == user) if user is not None else query)
        return found[0] if found else None

    def run_accounts(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        partition: str | None = None,
        users: Sequence[str] | None = None,
        *,
        min_gpus: int = 0,
        most: int | None = None,
    ) -> list[records.RunAccount]:
        """Accounts of the runs that ended in a span, at most `most`: first those that held the most GPU time without training."""
        r = tables.run_account.c
        held = (r.lost_to_replay_s + r.restart_s + r.checkpoint_s) * sa.func.coalesce(r.n_gpus, 0)
        query = sa.select(tables.run_account).where(self._of(r.cluster))
        query = query.where(*_of_runs(since, until, partition, users, min_gpus))
        return self._select(records.RunAccount, query.order_by(held.desc(), r.end_at, r.run_key).limit(most))

    def first_start(self) -> datetime | None:
        """The earliest start on record, of the store's cluster; None without any."""
        query = sa.select(sa.func.min(_A.start_at)).where(self._of(_A.cluster))
        with engines.translated(), self.engine.connect() as connection:
            found: datetime | None = connection.execute(query).scalar()
        return found

    def run_totals(
        self,
        since: datetime,
        until: datetime,
        partition: str | None = None,
        users: Sequence[str] | None = None,
        *,
        min_gpus: int = 0,
    ) -> Mapping[str, Any]:
        """Sums over the runs that ended in a span: n_runs, n_with_gpus, n_unknown_gpus, measured_frac, and each part of the wall time in GPU-hours.

        measured_frac is of the runs with GPUs, None without any; a run whose GPU count is not known adds nothing to the hours.
        """
        r = tables.run_account.c
        hours = [
            sa.func.coalesce(sa.func.sum(r[f"{part}_s"] * r.n_gpus) / 3600.0, 0.0).label(part)
            for part in RUN_PARTS
        ]
        measured = sa.func.avg(sa.cast(sa.cast(r.measured, sa.Integer), sa.Float))
        query = sa.select(
            sa.func.count().label("n_runs"),
            sa.func.count().filter(r.n_gpus > 0).label("n_with_gpus"),
            sa.func.count().filter(r.n_gpus.is_(None)).label("n_unknown_gpus"),
            measured.filter(r.n_gpus > 0).label("measured_frac"),
            *hours,
        ).where(self._of(r.cluster))
        with engines.translated(), self.engine.connect() as connection:
            found = connection.execute(query.where(*_of_runs(since, until, partition, users, min_gpus)))
            return dict(found.mappings().one())

    def ettr_by_size(
        self,
        since: datetime,
        until: datetime,
        least_s: float,
        partition: str | None = None,
        users: Sequence[str] | None = None,
    ) -> list[Mapping[str, Any]]:
        """ETTR of runs that ended in a span and trained for `least_s` or more, by GPUs rounded up to a power of two.

        n_gpus, n_runs, measured (mean), deviation (of a run), expected (mean); a partition keeps runs with an attempt in it.
        """
        r = tables.run_account.c
        # log() of doubles is not exact: 8 GPUs are not to become 16.
        size = sa.cast(sa.func.power(2, sa.func.ceil(sa.func.log(2, r.n_gpus) - 1e-9)), sa.BigInteger)
        query = (
            sa.select(
                size.label("n_gpus"),
                sa.func.count().label("n_runs"),
                sa.func.avg(r.ettr_measured).label("measured"),
                sa.func.stddev_samp(r.ettr_measured).label("deviation"),
                sa.func.avg(r.ettr_expected).label("expected"),
            )
            .where(self._of(r.cluster), *_of_runs(since, until, partition, users, min_gpus=1))
            .where(r.ettr_measured.is_not(None), r.productive_s + r.lost_to_replay_s >= least_s)
            .group_by(sa.literal_column("1"))
            .order_by(sa.literal_column("1"))
        )
        with engines.translated(), self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def _of_runs(
    since: datetime | None,
    until: datetime | None,
    partition: str | None,
    users: Sequence[str] | None,
    min_gpus: int,
) -> list[sa.ColumnElement[bool]]:
    """The runs that ended in a span, of these users, of so many GPUs; a partition keeps runs with an attempt in it."""
    r = tables.run_account.c
    wanted = [base.some(r.user, users)]
    if since is not None:
        wanted.append(r.end_at >= since)
    if until is not None:
        wanted.append(r.end_at < until)
    if min_gpus > 0:
        wanted.append(r.n_gpus >= min_gpus)
    if partition is not None:
        its = (_A.run_key == r.run_key, _A.user == r.user, _A.cluster == r.cluster)
        wanted.append(sa.exists().where(*its, _A.partition == partition))
    return wanted


def _key_columns(attempts: Sequence[records.JobAttempt]) -> dict[str, list[Any]]:
    return {
        "clusters": [a.cluster for a in attempts],
        "jobs": [a.job_id for a in attempts],
        "submits": [a.submit_at for a in attempts],
        "starts": [a.start_at for a in attempts],
    }


def _bound(keys: Iterable[Key]) -> list[dict[str, Any]]:
    return [{"k_cluster": cluster, "k_job": job, "k_submit": submit} for cluster, job, submit in keys]


def _judged(when: Any) -> sa.Update:
    return (
        sa.update(tables.job_attempt)
        .where(
            _A.cluster == sa.bindparam("k_cluster"),
            _A.job_id == sa.bindparam("k_job"),
            _A.submit_at == sa.bindparam("k_submit"),
        )
        .values(judged_at=when)
    )
