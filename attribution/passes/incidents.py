"""One fault with many victims: a switch, a file server or a power feed strikes many nodes at once."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

from probing_cluster.attribution.places import layout, scan
from probing_cluster.attribution.verdict import findings, signatures
from probing_cluster.core import records

GAP = timedelta(seconds=120)
"""Events of one incident follow each other closer than this."""
MARGIN = timedelta(minutes=4)
"""How much is read about an event at least, more than GAP: of the whole cluster, and about an old fault by every part of a backlog."""
STEP, REACH = timedelta(minutes=20), timedelta(days=1)
"""By how much a span is widened first to hold whole chains, and how far at most; nobody looks further from an event than REACH."""
MIN_NODES = 3
"""From so many nodes on, one cause at one time is one incident."""

WIDE = frozenset({"ib_link", "eth_link", "filesystem_mount", "thermal_power", "node_lost", "node_reboot", "kernel_panic"})  # fmt: skip
"""Causes that a part shared by many nodes can have."""
_FAULTY = (records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE)
_SERVED = frozenset({"filesystem_mount"})
"""Causes whose events name what is shared: a file server, a mount."""
_NEARLY_ALL = 0.8
"""From so many of an incident's nodes on, what they name is what they share."""


CauseOf = Callable[[records.HealthEvent], str | None]


class Chains:
    """One cluster's chains: events of one cause that follow each other closely, on whatever nodes.

    What incident an event belongs to depends on nothing but the events within REACH of it, so it is the same whoever
    is judged together.
    """

    def __init__(
        self,
        events: Iterable[records.HealthEvent],
        places: Callable[[], layout.Places] = layout.Places,
        cause_of: CauseOf | None = None,
    ) -> None:
        """`places`: where nodes are; asked for once, and only if there is a wide incident. `cause_of`: None for what makes none."""
        self._places = functools.cache(places)
        by_cause: dict[str, list[records.HealthEvent]] = {}
        for event in {e.event_id: e for e in events}.values():
            if (cause := (cause_of or shared_cause)(event)) is not None:
                by_cause.setdefault(cause, []).append(event)
        self._place: dict[uuid.UUID, tuple[_Chain, int]] = {}
        for cause, of_cause in by_cause.items():
            for chain in _chains(cause, sorted(of_cause, key=lambda e: (e.at, e.event_id))):
                self._place.update({e.event_id: (chain, i) for i, e in enumerate(chain.events)})

    def incident(self, event_id: uuid.UUID) -> uuid.UUID | None:
        """The wide incident an event belongs to; None for an event that belongs to none."""
        chain, i = self._place.get(event_id, (None, 0))
        return None if chain is None else chain.incident_near(i)

    def first(self, evidence: Iterable[uuid.UUID]) -> uuid.UUID | None:
        """The wide incident of the first of these events that belongs to one."""
        return next((i for e in evidence if (i := self.incident(e)) is not None), None)

    def place(self, evidence: Iterable[uuid.UUID], job_nodes: Collection[str] = ()) -> str:
        """What the nodes of that incident share, in words; empty where it is nothing that chance does not explain.

        `job_nodes`: of the attempt concerned, since its own load may be what they share.
        """
        member = next((e for e in evidence if self.incident(e) is not None), None)
        if member is None:
            return ""
        chain, i = self._place[member]
        return chain.shared(i, self._places()).words(job_nodes)

    def beside(self, event_id: uuid.UUID) -> Sequence[records.HealthEvent]:
        """The chain an event is in, oldest first; empty for an event of no chain."""
        chain, _ = self._place.get(event_id, (None, 0))
        return () if chain is None else chain.events


class _Chain:
    """Events of one cause, oldest first, each at most GAP after the one before."""

    def __init__(self, cause: str, events: Sequence[records.HealthEvent]) -> None:
        self.events = events
        self._cause, self._times = cause, [e.at for e in events]
        self._named: dict[tuple[int, int], uuid.UUID | None] = {}
        self._shared: dict[tuple[int, int], _Shared] = {}

    def shared(self, i: int, places: layout.Places) -> _Shared:
        """What the nodes of its events within REACH of the event number `i` share.

        Once for all victims of one fault: each asks, and there are as many of them as the fault is wide.
        """
        first, last = within = self._within(i)
        if within not in self._shared:
            self._shared[within] = _Shared.of(self.events[first:last], places)
        return self._shared[within]

    def _within(self, i: int) -> tuple[int, int]:
        at = self._times[i]
        return bisect.bisect_left(self._times, at - REACH), bisect.bisect_right(self._times, at + REACH)

    def incident_near(self, i: int) -> uuid.UUID | None:
        """Its incident as far as it lies within REACH of the event number `i`."""
        part = self._within(i)
        if part not in self._named:
            first, last = part
            nodes: set[str] = set()
            for event in itertools.islice(self.events, first, last):
                nodes.add(event.node)
                if len(nodes) == MIN_NODES:
                    break
            wide = len(nodes) == MIN_NODES
            self._named[part] = incident_id(self._cause, self.events[first]) if wide else None
        return self._named[part]


class SharedIncidents:
    """The times in a span at which wide incidents may lie, found from nodes and times of events alone.

    `events` are time and node of every event of one cluster that counts, between `since` and `until`. Causes are not
    distinguished, so it answers "may be" too often and never too seldom, also for a time outside the span.
    """

    def __init__(self, events: Iterable[tuple[datetime, str]], since: datetime, until: datetime) -> None:
        in_span = sorted((at, node) for at, node in events if since <= at <= until)
        # What lies before and after is not known.
        self._firsts, self._lasts, self._wide = [since], [since], [True]
        nodes: set[str] = set()
        for at, node in in_span:
            if at - self._lasts[-1] > GAP:
                self._firsts.append(at)
                self._lasts.append(at)
                self._wide.append(False)
                nodes = set()
            self._lasts[-1] = at
            nodes.add(node)
            self._wide[-1] |= len(nodes) >= MIN_NODES
        self._wide[-1] |= until - self._lasts[-1] <= GAP

    def at(self, at: datetime) -> bool:
        """Whether an event that counts, at this time, may belong to a wide incident."""
        i = bisect.bisect_right(self._firsts, at) - 1
        return i < 0 or at > self._lasts[i] or self._wide[i]


def counts(event: records.HealthEvent) -> bool:
    """True for an event that can be part of an incident: a node's own word that by itself points at a cause of WIDE."""
    return is_shared(signatures.of(event)) and not findings.is_finding(event)


def shared_cause(event: records.HealthEvent) -> str | None:
    """The cause of WIDE that such an event points at."""
    return signatures.of(event).cause if counts(event) else None


def is_shared(signature: signatures.Signature) -> bool:
    """True for what by itself points at a cause that a part shared by many nodes can have."""
    return signature.cause in WIDE and signature.role is signatures.Role.ROOT


def _chains(cause: str, events: Sequence[records.HealthEvent]) -> Iterator[_Chain]:
    begin = 0
    for i in range(1, len(events) + 1):
        if i == len(events) or events[i].at - events[i - 1].at > GAP:
            yield _Chain(cause, events[begin:i])
            begin = i


def incident_id(cause: str, first: records.HealthEvent) -> uuid.UUID:
    """The same incident has the same id in every run: it is named by its cause and first event."""
    return records.make_event_id(first.cluster, "", "incident", f"{cause}:{first.event_id}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shared:
    """What the nodes of one incident's events share: what they name, and where they are."""

    named: str
    place: scan.SharedPlace | None
    failed: frozenset[str]
    where: layout.NodeLayout

    @classmethod
    def of(cls, events: Sequence[records.HealthEvent], places: layout.Places) -> Self:
        where = places.at(events[0].cluster, events[0].at)
        failed = frozenset(e.node for e in events)
        served = signatures.of(events[0]).cause in _SERVED
        return cls(
            named=_named(events) if served else "",
            place=scan.shared(failed, where),
            failed=failed,
            where=where,
        )

    def words(self, job_nodes: Collection[str]) -> str:
        """Both as a sentence, empty for nothing; and whether an attempt's own nodes fit the place as well."""
        shared = [self.named]
        if self.place is not None:
            shared.append(self.place.sentence)
            if job_nodes and scan.job_explains(self.place, self.failed, job_nodes, self.where):
                shared.append(JOB_TOO)
        return "; ".join(s for s in shared if s)


JOB_TOO = "the job's own nodes fit as well, so its load may be what they share"


def _named(events: Sequence[records.HealthEvent]) -> str:
    """`all 12 nodes name fs1`: what nearly all nodes of these events name."""
    by_device: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.device:
            by_device[event.device].add(event.node)
    nodes = {e.node for e in events}
    device, naming = max(by_device.items(), key=lambda d: (len(d[1]), d[0]), default=("", set()))
    if len(naming) < max(MIN_NODES, _NEARLY_ALL * len(nodes)):
        return ""
    return f"{'all' if naming == nodes else f'{len(naming)} of'} {len(nodes)} nodes name {device}"


def assign(
    verdicts: Sequence[records.Verdict],
    chains: Mapping[str, Chains],
    events: Mapping[uuid.UUID, records.HealthEvent],
    job_nodes: Mapping[tuple[str, int, datetime], Collection[str]] | None = None,
) -> list[records.Verdict]:
    """The verdicts with their incident and what its nodes share, whoever else is judged with them; `chains` by cluster.

    `job_nodes`: the nodes of each verdict's attempt, by cluster, job id and submit time.

    A wide incident has an id of its own; any other fault that a node showed is named by its event, the verdict's
    first evidence, so that all whom it ended share it. What only the job's side says is nobody else's fault.
    """
    made = []
    for verdict in verdicts:
        near = chains.get(verdict.cluster) if verdict.cause in WIDE else None
        chosen = None if near is None else near.first(verdict.evidence)
        place = None
        if near is not None and chosen is not None:
            own = (job_nodes or {}).get((verdict.cluster, verdict.job_id, verdict.submit_at), ())
            place = near.place(verdict.evidence, own) or None
        if chosen is None and verdict.domain in _FAULTY:
            first = events.get(verdict.evidence[0]) if verdict.evidence else None
            chosen = None if first is None or findings.is_finding(first) else first.event_id
        same = (chosen, place) == (verdict.incident_id, verdict.place)
        made.append(
            verdict
            if same
            else records.of_checked(records.Verdict, {**vars(verdict), "incident_id": chosen, "place": place})
        )
    return made


Span = tuple[datetime, datetime]
"""From, to; both ends belong to it."""


def around(
    events: Callable[[Sequence[Span]], Iterable[records.HealthEvent]],
    instants: Iterable[datetime],
    places: Callable[[], layout.Places] = layout.Places,
    cause_of: CauseOf | None = None,
) -> Chains:
    """The chains about some instants, whole; `events` reads spans of one cluster, all at once.

    Each is widened until no chain can begin before or end after it, by REACH at most.
    """
    found: dict[uuid.UUID, records.HealthEvent] = {}
    wanted = [(span, span) for span in _spans(sorted(instants))]
    missing = [span for span, _ in wanted]
    step = STEP
    while missing:
        found.update((e.event_id, e) for e in events(missing) if (cause_of or shared_cause)(e) is not None)
        times = sorted(e.at for e in found.values())
        missing, wider = [], []
        for wanted_span, (first, last) in wanted:
            inside = times[bisect.bisect_left(times, first) : bisect.bisect_right(times, last)]
            begin, end = wanted_span[0] - REACH, wanted_span[1] + REACH
            early = bool(inside) and inside[0] - first <= GAP and first > begin
            late = bool(inside) and last - inside[-1] <= GAP and last < end
            since, until = (
                max(first - step, begin) if early else first,
                min(last + step, end) if late else last,
            )
            missing += [(since, first)] * early + [(last, until)] * late
            if early or late:
                wider.append((wanted_span, (since, until)))
        wanted = wider
        step *= 2  # a chain that reaches far is read in a few questions
    return Chains(found.values(), places, cause_of)


def _spans(instants: Sequence[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """Spans to look for incidents in, joined where they touch."""
    begin = 0
    for i in range(1, len(instants) + 1):
        if i == len(instants) or instants[i] - instants[i - 1] > 2 * MARGIN:
            yield instants[begin] - MARGIN, instants[i - 1] + MARGIN
            begin = i
