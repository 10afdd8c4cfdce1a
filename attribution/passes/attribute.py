"""`attribute`: judges ended attempts without a verdict, or a whole span again, and stores what changed."""

from __future__ import annotations

import functools
import gc
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from probing_cluster.attribution.passes import (
    columnar_prefilter,
    fetch,
    incident_growth,
    incidents,
    isolation,
    job_output,
    no_evidence_verdict,
    node_clocks,
    node_losses,
    pending,
)
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge
from probing_cluster.core import clock, records, settings
from probing_cluster.db import store

MANY = 200
"""From this number of ended attempts on, the columnar prefilter runs first."""
_Before = Mapping[cases.Key, records.Verdict]


@dataclass(frozen=True, kw_only=True)
class Change:
    """The stored verdict and the new one."""

    before: records.Verdict | None
    after: records.Verdict


@dataclass(frozen=True, kw_only=True)
class AttributionRun:
    """The result of one run; with dry_run, nothing was stored."""

    n_attempts: int
    verdicts: tuple[records.Verdict, ...]
    """Every new verdict, in the order of the attempts' ends."""
    changed: tuple[Change, ...]
    """Verdicts that differ from the stored ones in anything but `made_at` and `rules_version`."""
    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    """Verdicts per cause."""
    until: datetime | None = None
    """For a time slice: every attempt that ended before this has been judged."""


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

    Without a span or job ids: attempts that ended at least `settle_s` ago and have no verdict or a re-opened one.
    With them: every ended attempt of the span or jobs, again. A person's verdict is never replaced. The jobs are those of
    the store's cluster; else the attempts of every cluster are judged, each by what its own recorded.
    """
    source = source if job_ids is not None else source.of(None)
    now = at.now()
    settled = now - timedelta(seconds=settle_s)
    with _Pass(source, policy_of(config), now, dry_run=dry_run) as work:
        return _attribute(work, source, since, until, job_ids, settled, limit)


def _attribute(
    work: _Pass,
    source: store.Store,
    since: datetime | None,
    until: datetime | None,
    job_ids: Iterable[int] | None,
    settled: datetime,
    limit: int | None,
) -> AttributionRun:
    if job_ids is not None:
        chosen = pending.of_jobs(source, since, until, job_ids, settled)
        keys = work.judge(work.attempts_of([cases.key(a) for a in chosen]))
    elif since is not None or until is not None:
        parts = work.slices(
            since or clock.EPOCH, min(until or settled + clock.ONE_US, settled + clock.ONE_US), unjudged=False
        )
        return _merge(list(parts), dry_run=work.dry_run)
    else:
        node_clocks.correct(source)
        source.reopen_for_arrivals(work.grown)
        waiting = pending.read(source, clock.EPOCH, settled + clock.ONE_US, limit, unjudged=True)
        many = waiting.num_rows >= MANY
        keys = work.judge_many(waiting) if many else work.judge(work.attempts_of(pending.keys(waiting)))
    return work.done(keys)


def in_slices(
    source: store.Store,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    dry_run: bool = False,
    config: settings.AttributionSettings | None = None,
    at: clock.Clock = clock.SYSTEM,
) -> Iterator[AttributionRun]:
    """`attribute` for a span, or for all open attempts, by time slice: about pending.SLICE attempts are held at once.

    Slicing does not change any verdict. A preempted attempt is judged once all attempts that ended within NEAR after it
    have been judged, possibly one slice later.
    """
    source = source.of(None)
    now = at.now()
    is_open = since is None and until is None
    last = min(until or now + clock.ONE_US, now + clock.ONE_US)
    with _Pass(source, policy_of(config), now, dry_run=dry_run) as work:
        if is_open:
            node_clocks.correct(source)
            source.reopen_for_arrivals(work.grown)
        for _, done in work.slices(since or clock.EPOCH, last, unjudged=is_open):
            yield done


def seldom_collected() -> None:
    """Runs Python's cycle collector every 200,000 new objects instead of 700: a pass makes many records and no cycles."""
    gc.set_threshold(200_000, 10, 10)


def policy_of(config: settings.AttributionSettings | None) -> cases.WindowPolicy:
    """The window that the settings ask for; the default without settings."""
    wanted = config or settings.AttributionSettings()
    return cases.WindowPolicy(before_s=wanted.before_s, after_s=wanted.after_s)


def _merge(parts: Sequence[tuple[Sequence[cases.Key], AttributionRun]], *, dry_run: bool) -> AttributionRun:
    """The result of all slices as one run."""
    made = {_key(v): v for _, done in parts for v in done.verdicts}
    return AttributionRun(
        n_attempts=sum(done.n_attempts for _, done in parts),
        verdicts=tuple(made[k] for keys, _ in parts for k in keys if k in made),
        changed=tuple(c for _, done in parts for c in done.changed),
        dry_run=dry_run,
        counts=dict(Counter(v.cause for v in made.values())),
        until=parts[-1][1].until if parts else None,
    )


class _Pass:
    """One run: the verdicts made, and their differences from the stored ones."""

    def __init__(
        self, source: store.Store, policy: cases.WindowPolicy, now: datetime, *, dry_run: bool
    ) -> None:
        self._source, self._policy, self._now, self.dry_run = source, policy, now, dry_run
        self._without_evidence = no_evidence_verdict.NoEvidenceVerdicts(policy, now)
        self._later: list[_WaitingForPreemptor] = []
        self._saver = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="verdicts")
        self._saving: list[tuple[Sequence[records.Verdict], futures.Future[_Before]]] = []
        self._read: dict[cases.Key, int] = {}
        """Fingerprint of each attempt's row when it was read."""
        self._made: dict[cases.Key, records.Verdict] = {}
        self._changed: list[Change] = []
        self.grown = functools.partial(incident_growth.touched, source, policy)
        """Given to the store: finds attempts whose verdicts late events of other nodes change."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Wait for the writer thread after an error too: another process may hold the advisory lock by then.
        self._saver.shutdown()

    def attempts_of(self, keys: Sequence[cases.Key]) -> list[records.JobAttempt]:
        """Reads attempts; one that changes until its verdict is stored remains to be judged again."""
        self._read.update(self._source.fingerprints(keys))
        return self._source.attempts_of(keys)

    def judge(
        self,
        attempts: Sequence[records.JobAttempt],
        cache: fetch.PassCache | None = None,
        before: frozenset[cases.Key] = frozenset(),
    ) -> list[cases.Key]:
        """Judges attempts in batches, then those whose stored verdicts these change. Returns all keys. `before`: keys judged earlier."""
        waits = functools.partial(_depends_on_preemptor, cache)
        others: node_losses.Others = {}
        for batch in pending.batches(sorted(attempts, key=waits), waits):
            if waits(batch[0]):
                self._settle()
            judge_some = functools.partial(
                judge_batch, self._source, policy=self._policy, made_at=self._now, cache=cache, others=others
            )
            self._keep(isolation.verdicts(batch, judge_some, self._now))
        keys = [cases.key(a) for a in attempts]
        if others:
            self._settle()
            if grown := node_losses.stale(self._source, others, done := before.union(keys)):
                return [*keys, *self.judge(self.attempts_of(grown), before=done)]
        return keys

    def judge_many(self, attempts: pa.Table) -> list[cases.Key]:
        """Judges attempts given as columns (`sql/open_attempts.sql`). Returns their keys."""
        self._judge_days(attempts)
        self._judge_later()
        return pending.keys(attempts)

    def slices(
        self, since: datetime, until: datetime, *, unjudged: bool
    ) -> Iterator[tuple[list[cases.Key], AttributionRun]]:
        """Judges a span in slices of at most one day and about pending.SLICE attempts. Yields each slice's keys and result."""
        while (first := pending.first_end(self._source, since, until, unjudged=unjudged)) is not None:
            part, since = pending.read_slice(self._source, first, until, unjudged=unjudged)
            self._judge_days(part)
            keys = pending.keys(part)
            yield keys, self.done(keys, since)
        self._judge_later()
        self._settle()
        if self._made:
            yield [], self.done([], until)

    def done(self, keys: Sequence[cases.Key], until: datetime | None = None) -> AttributionRun:
        """The result since the last call. `keys`: the attempts to report, in their order."""
        self._settle()
        made, changed = self._made, self._changed
        self._made, self._changed = {}, []
        known = {k: made.pop(k) for k in keys if k in made}
        return AttributionRun(
            n_attempts=len(keys),
            verdicts=(*made.values(), *known.values()),
            changed=tuple(changed),
            dry_run=self.dry_run,
            counts=dict(Counter(v.cause for v in (*made.values(), *known.values()))),
            until=until,
        )

    def _judge_days(self, attempts_ended: pa.Table) -> None:
        """Judges attempts by cluster and day; preempted ones that depend on their preemptor's verdict wait."""
        for part in pending.by_day(attempts_ended):
            attempts, cache = self._one_by_one(part)
            self.judge([a for a in attempts if not _depends_on_preemptor(cache, a)], cache)
            # The attempts they depend on may be judged a day later.
            cluster, last = part["cluster"][0].as_py(), pending.last_end(part)
            self._judge_later(cluster, last)
            waiting = [a for a in attempts if _depends_on_preemptor(cache, a)]
            if waiting:
                self._later.append(_WaitingForPreemptor(cluster, last + fetch.NEAR, waiting, cache))

    def _judge_later(self, cluster: str | None = None, until: datetime | None = None) -> None:
        """Judges a cluster's waiting attempts once all that ended by `until` are judged; without arguments, all waiting ones."""
        due = [w for w in self._later if until is None or (w.cluster == cluster and w.needs_ends_by <= until)]
        self._later = [w for w in self._later if w not in due]
        for waiting in due:
            self.judge(waiting.attempts, waiting.cache)

    def _one_by_one(self, part: pa.Table) -> tuple[list[records.JobAttempt], fetch.PassCache | None]:
        """Stores the verdicts without evidence. Returns the other attempts and the columns read so far."""
        if part.num_rows < MANY:
            return self.attempts_of(pending.keys(part)), None
        found = columnar_prefilter.prefilter(self._source, part, self._policy)
        answered = self._answer(part, found)
        rest = part.filter(pa.array(~answered))
        return self.attempts_of(pending.keys(rest)), found.cache

    def _answer(self, part: pa.Table, found: columnar_prefilter.PrefilterResult) -> npt.NDArray[np.bool_]:
        """Stores verdicts without evidence. Returns a flag for each attempt that got one."""
        answered = found.without_evidence.copy()
        chosen = np.flatnonzero(found.without_evidence)
        self._read.update(zip(pending.keys(part), part["fingerprint"].to_pylist(), strict=True))
        made = []
        for i, row in zip(
            chosen.tolist(), no_evidence_verdict.rows(part.take(pa.array(chosen))), strict=True
        ):
            verdict = self._without_evidence.verdict(
                row, found.preemptors.get(i), found.outside.get(i, ()), found.struck.get(i, ())
            )
            if verdict is None:
                answered[i] = False
            else:
                made.append(verdict)
        self._keep(job_output.complete(self._source, made, {}))
        return answered

    def _keep(self, made: Sequence[records.Verdict]) -> None:
        """Stores verdicts in the writer thread while others are judged."""
        self._saving.append((made, self._saver.submit(self._stored, made)))

    def _stored(self, made: Sequence[records.Verdict]) -> _Before:
        """Stores verdicts (unless dry_run). Returns the ones that were current before."""
        if self.dry_run:
            return {_key(v): v for v in self._source.verdicts(job_ids=sorted({v.job_id for v in made}))}
        read = {k: self._read.pop(k) for v in made if (k := _key(v)) in self._read}
        return self._source.save_verdicts(made, read)

    def _settle(self) -> None:
        """Waits until all new verdicts are stored, and records the changes."""
        for made, stored in self._saving:
            before = stored.result()
            keyed = {_key(v): v for v in made}
            for key, verdict in keyed.items():
                old = before.get(key)
                if _differs(old, verdict):
                    self._changed.append(Change(before=old, after=verdict))
            self._made.update(keyed)
        self._saving = []


@dataclass(frozen=True, eq=False)
class _WaitingForPreemptor:
    """Preempted attempts that wait for the verdicts on their preemptors' previous starts."""

    cluster: str
    needs_ends_by: datetime
    attempts: Sequence[records.JobAttempt]
    cache: fetch.PassCache | None


def judge_batch(
    source: store.Store,
    attempts: Sequence[records.JobAttempt],
    policy: cases.WindowPolicy,
    *,
    made_at: datetime,
    cache: fetch.PassCache | None = None,
    others: node_losses.Others | None = None,
) -> list[records.Verdict]:
    """The verdicts of some attempts, with incidents assigned; attempts that get no verdict are left out.

    Fills `others` with the shared incident of attempts outside this batch (`node_losses.assign`).
    """
    fetcher = fetch.Fetcher(source, policy, cache)
    found = fetcher.build(attempts)
    verdicts = [v for c in found if (v := judge.judge(c, made_at=made_at)) is not None]
    events = {e.event_id: e for c in found for e in (*c.events, *c.active_faults, *c.stalls)}
    job_nodes = {cases.key(c.attempt): c.attempt.nodes for c in found}
    made = incidents.assign(verdicts, _chains(fetcher, verdicts, events, cache), events, job_nodes)
    by_key = {cases.key(c.attempt): c.attempt for c in found}
    assigned = node_losses.assign(source, made, by_key, fetcher.places, {} if others is None else others)
    return job_output.complete(source, assigned, events)


def _chains(
    fetcher: fetch.Fetcher,
    verdicts: Sequence[records.Verdict],
    events: Mapping[uuid.UUID, records.HealthEvent],
    cache: fetch.PassCache | None,
) -> dict[str, incidents.Chains]:
    """Cluster to the chains around its verdicts' evidence, for verdicts that may belong to a wide incident."""
    met: dict[str, list[datetime]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.cause in incidents.WIDE:
            evidence = [events[i] for i in verdict.evidence if i in events]
            met[verdict.cluster] += [
                e.at for e in evidence if incidents.counts(e) and (cache is None or cache.shared.at(e.at))
            ]
    return {
        cluster: incidents.around(
            functools.partial(fetcher.incident_events, cluster),
            instants,
            functools.partial(fetcher.places, cluster),
        )
        for cluster, instants in met.items()
        if instants
    }


def _depends_on_preemptor(cache: fetch.PassCache | None, attempt: records.JobAttempt) -> bool:
    """True if the verdict on the preemptor's previous start must be made first."""
    return attempt.state == "PREEMPTED" and (
        cache is None or cases.key(attempt) in cache.depends_on_preemptor
    )


def _key(verdict: records.Verdict) -> tuple[str, int, datetime]:
    return (verdict.cluster, verdict.job_id, verdict.submit_at)


def _differs(before: records.Verdict | None, after: records.Verdict) -> bool:
    if before is None:
        return True
    if before.author != "rules":
        return False
    return replace(before, made_at=after.made_at, rules_version=after.rules_version) != after
