"""`attribute`: judge what ended and has no verdict, or a whole span again, and store what changed."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution import case as cases
from probing_cluster.attribution import crowd, fetch, incidents, judge, quiet, signatures, triage
from probing_cluster.core import clock, records, settings
from probing_cluster.db import store

BATCH = 2000
"""Attempts judged one by one at once; bounds memory."""
MANY = 200
"""From so many ended attempts on they are sorted out column by column first."""
_MOST = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_SQL = Path(__file__).parent / "sql"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What judging again would say instead."""

    before: records.Verdict | None
    after: records.Verdict


@dataclass(frozen=True, kw_only=True)
class AttributionRun:
    """What one run of attribution did, or with dry_run would do."""

    n_attempts: int
    verdicts: tuple[records.Verdict, ...]
    """Every verdict made, in the order the attempts ended."""
    changed: tuple[Change, ...]
    """Those that differ from what was stored: another cause, node, device, confidence or evidence."""
    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    """Verdicts per cause."""

    @property
    def unknown_rate(self) -> float | None:
        """Share of verdicts that are an honest unknown; None without any."""
        total = sum(self.counts.values())
        return self.counts.get("unknown", 0) / total if total else None


def attribute(
    source: store.Store,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    job_ids: Iterable[int] | None = None,
    dry_run: bool = False,
    config: settings.AttributionSettings | None = None,
    at: clock.Clock = clock.SYSTEM,
    settle_s: float = 0.0,
    limit: int | None = None,
) -> AttributionRun:
    """Judge attempts and store the verdicts that are new or different.

    Without a span or job ids: what ended at least `settle_s` ago and is unjudged or re-opened. With them:
    every ended attempt of the span or jobs, again. A verdict a person set is never replaced.
    """
    wanted = config or settings.AttributionSettings()
    policy = cases.WindowPolicy(before_s=wanted.before_s, after_s=wanted.after_s)
    again = since is not None or until is not None or job_ids is not None
    now = at.now()
    work = _Pass(source, policy, now, dry_run=dry_run)
    settled = now - timedelta(seconds=settle_s)
    if job_ids is not None:
        keys = work.judge(_of_jobs(source, since, until, job_ids, settled))
    elif again:
        keys = work.judge_many(_ended(source, since or _EPOCH, min(until or settled + _ONE, settled + _ONE)))
    else:
        first = source.unattributed(min(limit or MANY, MANY))
        if len(first) < MANY or limit == MANY:
            keys = work.judge([a for a in first if a.end_at is not None and a.end_at <= settled])
        else:
            keys = work.judge_many(_ended(source, _EPOCH, settled + _ONE, limit, unjudged=True))
    return AttributionRun(
        n_attempts=len(keys),
        verdicts=tuple(work.made[k] for k in keys if k in work.made),
        changed=tuple(work.changed),
        dry_run=dry_run,
        counts=dict(Counter(v.cause for v in work.made.values())),
    )


class _Pass:
    """One run: what it judged, and what differs from what was stored."""

    def __init__(
        self, source: store.Store, policy: cases.WindowPolicy, now: datetime, *, dry_run: bool
    ) -> None:
        self._source, self._policy, self._now, self._dry_run = source, policy, now, dry_run
        self._quiet = quiet.Quiet(policy, now)
        self.made: dict[cases.Key, records.Verdict] = {}
        self.changed: list[Change] = []

    def judge(
        self, attempts: Sequence[records.JobAttempt], known: fetch.Known | None = None
    ) -> list[cases.Key]:
        """Judge attempts one by one, a batch at a time; which they are."""
        # Why the preemptor had to start again is told by its own verdict: that comes first.
        for batch in _batches(sorted(attempts, key=lambda a: a.state == "PREEMPTED")):
            self._keep(judge_batch(self._source, batch, self._policy, made_at=self._now, known=known))
        return [cases.key(a) for a in attempts]

    def judge_many(self, ended: pa.Table) -> list[cases.Key]:
        """Judge attempts (the columns of `sql/open_attempts.sql`) a day of ends of one cluster at a time; which they are."""
        later: tuple[list[records.JobAttempt], fetch.Known | None] = ([], None)
        for part in _days(ended):
            attempts, known = self._one_by_one(part)
            self.judge([a for a in attempts if a.state != "PREEMPTED"], known)
            # Why a preemptor had to start again is told by its own verdict: that comes first, maybe a day later.
            self.judge(*later)
            later = [a for a in attempts if a.state == "PREEMPTED"], known
        self.judge(*later)
        return _keys(ended)

    def _one_by_one(self, part: pa.Table) -> tuple[list[records.JobAttempt], fetch.Known | None]:
        """Answer those of a day about which nothing was seen; the others, and what was read of them already."""
        if part.num_rows < MANY:
            return self._source.attempts_of(_keys(part)), None
        found = triage.sort_out(self._source, part, self._policy)
        answered = self._answer(part, found)
        rest = part.filter(pa.array(~answered))
        return self._source.attempts_of(_keys(rest)), found.known

    def _answer(self, part: pa.Table, found: triage.Triage) -> npt.NDArray[np.bool_]:
        """Answer those nothing was seen about; who was answered."""
        answered = found.quiet.copy()
        chosen = np.flatnonzero(found.quiet)
        made = []
        for i, row in zip(chosen, quiet.rows(part.take(pa.array(chosen))), strict=True):
            verdict = self._quiet.verdict(row, found.preemptors.get(int(i)))
            if verdict is None:
                answered[i] = False
            else:
                made.append(verdict)
        self._keep(made)
        return answered

    def _keep(self, made: Sequence[records.Verdict]) -> None:
        if self._dry_run:
            before = {_key(v): v for v in self._source.verdicts(job_ids=sorted({v.job_id for v in made}))}
        else:
            before = self._source.save_verdicts(made)
        self.changed += [
            Change(before=before.get(_key(v)), after=v) for v in made if _differs(before.get(_key(v)), v)
        ]
        self.made.update({_key(v): v for v in made})


def _ended(
    source: store.Store, since: datetime, until: datetime, limit: int | None = None, *, unjudged: bool = False
) -> pa.Table:
    """Attempts that began, ended in a span and get a verdict, by end."""
    query = (_SQL / "open_attempts.sql").read_text("utf-8")
    return source.arrow(query, unjudged, since, until, limit or _MOST, sorted(judge.JUDGED_STATES))


def _keys(ended: pa.Table) -> list[cases.Key]:
    submits = [at for at in crowd.instants(ended["submit_at"]) if at is not None]
    return list(zip(ended["cluster"].to_pylist(), ended["job_id"].to_pylist(), submits, strict=True))


def _days(ended: pa.Table) -> Iterator[pa.Table]:
    """The rows cluster by cluster and day (UTC) of their end by day."""
    day = crowd.microseconds(ended["end_at"]) // _DAY_US
    for cluster in sorted(set(ended["cluster"].to_pylist())):
        mine = np.asarray(pc.equal(ended["cluster"], cluster), np.bool_)
        for one in np.unique(day[mine]):
            yield ended.filter(pa.array(mine & (day == one)))


def judge_batch(
    source: store.Store,
    attempts: Sequence[records.JobAttempt],
    policy: cases.WindowPolicy,
    *,
    made_at: datetime,
    known: fetch.Known | None = None,
) -> list[records.Verdict]:
    """The verdicts of some attempts, their incidents found; attempts that need none are left out."""
    fetcher = fetch.Fetcher(source, policy, known)
    found = fetcher.build(attempts)
    verdicts = [v for c in found if (v := judge.judge(c, made_at=made_at)) is not None]
    events = {e.event_id: e for c in found for e in (*c.events, *c.standing)}
    return incidents.assign(verdicts, _incidents(fetcher, verdicts), events)


def _incidents(fetcher: fetch.Fetcher, verdicts: Sequence[records.Verdict]) -> list[incidents.Incident]:
    """Wide incidents around the verdicts that could belong to one."""
    wide = [v for v in verdicts if v.cause in incidents.WIDE and v.onset_at and v.window_end_at]
    if not wide:
        return []
    sorts = signatures.roots_of(incidents.WIDE)
    found: dict[object, incidents.Incident] = {}
    for cluster, since, until in _spans(wide):
        read = functools.partial(fetcher.incident_events, cluster, sorts)
        for incident in incidents.find(incidents.whole(read, since, until)):
            found[incident.incident_id] = incident
    return list(found.values())


def _spans(wide: Sequence[records.Verdict]) -> Iterator[tuple[str, datetime, datetime]]:
    """Spans to look for incidents in, joined where they touch."""
    margin = timedelta(minutes=10)
    pieces = sorted(
        (v.cluster, (v.onset_at or v.made_at) - margin, (v.window_end_at or v.made_at) + margin) for v in wide
    )
    current: tuple[str, datetime, datetime] | None = None
    for piece in pieces:
        if current and piece[0] == current[0] and piece[1] <= current[2]:
            current = (current[0], current[1], max(current[2], piece[2]))
            continue
        if current:
            yield current
        current = piece
    if current:
        yield current


def _of_jobs(
    source: store.Store,
    since: datetime | None,
    until: datetime | None,
    job_ids: Iterable[int],
    settled: datetime,
) -> list[records.JobAttempt]:
    found = source.attempts(
        job_ids=job_ids, since=since, until=until, ended=True, states=sorted(judge.JUDGED_STATES)
    )
    mine = [
        (a.end_at, a.job_id, a.submit_at, a)
        for a in found
        if a.end_at is not None
        and a.end_at <= settled
        and (since is None or a.end_at >= since)
        and (until is None or a.end_at < until)
    ]
    return [a for *_, a in sorted(mine, key=lambda m: m[:3])]


def _batches(attempts: Sequence[records.JobAttempt]) -> Iterator[Sequence[records.JobAttempt]]:
    """At most BATCH at a time, attempts of one kind (preempted or not) together."""
    for _, same in itertools.groupby(attempts, key=lambda a: a.state == "PREEMPTED"):
        mine = list(same)
        for at in range(0, len(mine), BATCH):
            yield mine[at : at + BATCH]


def _key(verdict: records.Verdict) -> tuple[str, int, datetime]:
    return (verdict.cluster, verdict.job_id, verdict.submit_at)


def _differs(before: records.Verdict | None, after: records.Verdict) -> bool:
    if before is None:
        return True
    if before.author != "rules":
        return False
    return replace(before, made_at=after.made_at, rules_version=after.rules_version) != after
