"""`attribute`: judge what ended and has no verdict, or a whole span again, and store what changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from probing_cluster.attribution import case as cases
from probing_cluster.attribution import fetch, incidents, judge, signatures
from probing_cluster.core import clock, records, settings
from probing_cluster.db import store

BATCH = 2000
"""Attempts judged at once; bounds memory."""


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
    attempts = _chosen(source, since, until, job_ids) if again else source.unattributed(limit)
    settled = at.now() - timedelta(seconds=settle_s)
    attempts = [a for a in attempts if a.end_at is not None and a.end_at <= settled]
    verdicts: list[records.Verdict] = []
    changed: list[Change] = []
    # Why the preemptor had to start again is told by its own verdict: that comes first.
    for batch in _batches(sorted(attempts, key=lambda a: a.state == "PREEMPTED")):
        made = judge_batch(source, batch, policy, made_at=at.now())
        known = {_key(v): v for v in source.verdicts(job_ids=sorted({v.job_id for v in made}))}
        changed += [
            Change(before=known.get(_key(v)), after=v) for v in made if _differs(known.get(_key(v)), v)
        ]
        if not dry_run:
            source.save_verdicts(made)
        verdicts += made
    place = {fetch.key(a): i for i, a in enumerate(attempts)}
    return AttributionRun(
        n_attempts=len(attempts),
        verdicts=tuple(sorted(verdicts, key=lambda v: place[_key(v)])),
        changed=tuple(changed),
        dry_run=dry_run,
        counts=dict(Counter(v.cause for v in verdicts)),
    )


def judge_batch(
    source: store.Store,
    attempts: Sequence[records.JobAttempt],
    policy: cases.WindowPolicy,
    *,
    made_at: datetime,
) -> list[records.Verdict]:
    """The verdicts of some attempts, their incidents found; attempts that need none are left out."""
    fetcher = fetch.Fetcher(source, policy)
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
        for incident in incidents.find(fetcher.incident_events(cluster, sorts, since, until)):
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


def _chosen(
    source: store.Store, since: datetime | None, until: datetime | None, job_ids: Iterable[int] | None
) -> list[records.JobAttempt]:
    found = source.attempts(
        job_ids=job_ids, since=since, until=until, ended=True, states=sorted(judge.JUDGED_STATES)
    )
    mine = [
        a
        for a in found
        if a.end_at is not None
        and (since is None or a.end_at >= since)
        and (until is None or a.end_at < until)
    ]
    return sorted(mine, key=lambda a: (a.end_at, a.job_id, a.submit_at))


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
