"""Nodes that Slurm gave up at the same time are one incident, even without any event on them."""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.places import layout
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import phrases
from probing_cluster.core import records
from probing_cluster.db import store

CAUSE = "node_lost"
_STATE = "NODE_FAIL"
_READ = (Path(__file__).parent / "sql" / "node_losses.sql").read_text("utf-8")


class SharedLoss(NamedTuple):
    """The incident of an attempt, as its verdict states it."""

    incident: uuid.UUID
    words: str
    """Phrase for the summary."""
    next_step: str
    """Sentence before the verdict's own next step."""
    place: str | None


Others = dict[cases.Key, SharedLoss]
"""Attempt to its shared loss."""
_WORDS = "nodes that Slurm gave up within"


class NodeLosses:
    """One cluster's lost nodes around some attempts, as chains."""

    def __init__(
        self,
        source: store.Store,
        cluster: str,
        attempts: Iterable[records.JobAttempt],
        places: Callable[[], layout.Places],
    ) -> None:
        self._source, self._cluster = source, cluster
        self._keys: dict[uuid.UUID, cases.Key] = {}
        self._known_words: dict[tuple[uuid.UUID, uuid.UUID], tuple[str, str]] = {}
        instants = [a.end_at for a in attempts if a.end_at is not None]
        self._chains = incidents.around(self._read, instants, places, cause_of=lambda _: CAUSE)

    def of(self, attempt: cases.Key, job_nodes: Sequence[str] = ()) -> SharedLoss | None:
        """The attempt's shared loss; None if too few nodes were given up at that time."""
        mine = _loss_id(attempt)
        incident = self._chains.incident(mine)
        if incident is None:
            return None
        summary, step = self._words(self._together(mine))
        place = self._chains.place([mine], job_nodes) or None
        return SharedLoss(incident, summary, step, place)

    def beside(self, attempt: cases.Key) -> list[cases.Key]:
        """The attempts of its chain, itself included."""
        return [self._keys[e.event_id] for e in self._together(_loss_id(attempt))]

    def _together(self, mine: uuid.UUID) -> Sequence[records.HealthEvent]:
        chain = self._chains.beside(mine)
        if not chain or chain[-1].at - chain[0].at <= incidents.REACH:
            return chain
        at = next(e.at for e in chain if e.event_id == mine)
        return [e for e in chain if abs(e.at - at) <= incidents.REACH]

    def _words(self, together: Sequence[records.HealthEvent]) -> tuple[str, str]:
        """Phrase for the summary and sentence for the next step, made once for all attempts of the chain."""
        ends = (together[0].event_id, together[-1].event_id)
        if ends not in self._known_words:
            n_nodes, n_jobs = len({e.node for e in together}), len({e.job_id for e in together})
            within = phrases.duration(max(1.0, (together[-1].at - together[0].at).total_seconds()))
            self._known_words[ends] = (
                f"one of {n_jobs} jobs on {n_nodes} {_WORDS} {within}",
                f"Look for what the {n_nodes} nodes share: a switch, power, or the network to Slurm's controller.",
            )
        return self._known_words[ends]

    def _read(self, spans: Sequence[incidents.Span]) -> list[records.HealthEvent]:
        """The losses in some spans, as events of their nodes at the times at which Slurm gave these up."""
        sinces, untils = (list(column) for column in zip(*spans, strict=True))
        given = {"cluster": self._cluster, "sinces": sinces, "untils": untils}
        found = []
        for row in self._source.rows(_READ, given):
            key = (self._cluster, row["job_id"], row["submit_at"])
            found.append(_loss(key, row["end_at"], row["node"]))
            self._keys[found[-1].event_id] = key
        return found


def may_be_shared(verdict: records.Verdict, attempt: records.JobAttempt) -> bool:
    """True if a verdict rests on Slurm's report alone and is in no incident of node events."""
    own = verdict.incident_id is None or verdict.incident_id in verdict.evidence
    return verdict.cause == CAUSE and own and attempt.state == _STATE


def assign(
    source: store.Store,
    verdicts: Sequence[records.Verdict],
    attempts: Mapping[cases.Key, records.JobAttempt],
    places: Callable[[str], layout.Places],
    others: Others,
) -> list[records.Verdict]:
    """The verdicts with shared losses added. Fills `others` with the shared losses of attempts outside this batch."""
    lost: dict[str, list[records.JobAttempt]] = defaultdict(list)
    for verdict in verdicts:
        if may_be_shared(verdict, attempts[_key(verdict)]):
            lost[verdict.cluster].append(attempts[_key(verdict)])
    losses = {c: NodeLosses(source, c, mine, functools.partial(places, c)) for c, mine in lost.items()}
    made: list[records.Verdict] = []
    for verdict in verdicts:
        key = _key(verdict)
        shared: SharedLoss | None = None
        if may_be_shared(verdict, attempts[key]):
            of_cluster = losses[verdict.cluster]
            shared = of_cluster.of(key, attempts[key].nodes)
            if shared is not None and key not in others:
                others.update({k: of_cluster.of(k) or shared for k in of_cluster.beside(key)})
        made.append(verdict if shared is None else _named(verdict, shared))
    return made


def stale(source: store.Store, others: Others, judged: Iterable[cases.Key]) -> list[cases.Key]:
    """Attempts outside the batch whose stored verdicts lack their shared loss, since fewer losses were known then."""
    left = others.keys() - set(judged)
    stored = source.verdicts(job_ids=sorted({job_id for _, job_id, _ in left})) if left else ()
    return [
        _key(v)
        for v in stored
        if _key(v) in left and v.cause == CAUSE and v.author == "rules" and _differs(v, others[_key(v)])
    ]


def _differs(verdict: records.Verdict, shared: SharedLoss) -> bool:
    by_events = verdict.incident_id is not None and verdict.incident_id not in verdict.evidence
    if by_events and shared.words not in verdict.summary and _WORDS not in verdict.summary:
        return False  # node events made it part of another incident
    return (verdict.incident_id, shared.words in verdict.summary) != (shared.incident, True)


def _named(verdict: records.Verdict, shared: SharedLoss) -> records.Verdict:
    return records.of_checked(
        records.Verdict,
        {
            **vars(verdict),
            "incident_id": shared.incident,
            "place": shared.place,
            "summary": f"{verdict.summary.rstrip('.')}; the job is {shared.words}.",
            "next_step": f"{shared.next_step} {verdict.next_step}",
        },
    )


def _loss(key: cases.Key, at: datetime, node: str) -> records.HealthEvent:
    return records.HealthEvent(
        event_id=_loss_id(key),
        cluster=key[0],
        node=node,
        at=at,
        observed_at=at,
        kind="node_fail",
        message="",
        severity=records.Severity.HIGH,
        source="slurm",
        job_id=key[1],
    )


def _loss_id(key: cases.Key) -> uuid.UUID:
    cluster, job_id, submit_at = key
    return records.make_event_id(cluster, "", "slurm", f"{job_id}:{submit_at.isoformat()}:{_STATE}")


def _key(verdict: records.Verdict) -> cases.Key:
    return (verdict.cluster, verdict.job_id, verdict.submit_at)
