"""Incidents: one fault of a shared part (a switch, a file server, a power feed) on many nodes."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from probing_cluster.attribution.places import layout, scan
from probing_cluster.attribution.verdict import findings, signatures
from probing_cluster.core import records

GAP = timedelta(seconds=120)
"""Successive events of one incident are at most this far apart."""
MARGIN = timedelta(minutes=4)
"""Time read on either side of an event, over the whole cluster. Must exceed GAP."""
STEP, REACH = timedelta(minutes=20), timedelta(days=1)
"""STEP: first widening of a span that does not hold whole chains. REACH: furthest distance from an event."""
MIN_NODES = 3
"""Least number of nodes of a wide incident."""

WIDE = frozenset({"ib_link", "eth_link", "filesystem_mount", "thermal_power", "node_lost", "node_reboot", "kernel_panic"})  # fmt: skip
"""Causes that a part shared by many nodes can have."""
_FAULTY = (records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE)
_SERVED = frozenset({"filesystem_mount"})
"""Causes whose events name the shared part: a file server, a mount."""
_NEARLY_ALL = 0.8
"""Share of an incident's nodes that must name a part, so that it counts as shared."""


CauseOf = Callable[[records.HealthEvent], str | None]


class Chains:
    """One cluster's chains: events of one cause, on any nodes, each close to the one before.

    An event's incident depends only on the events within REACH of it, so it is the same in every batch.
    """

    def __init__(
        self,
        events: Iterable[records.HealthEvent],
        places: Callable[[], layout.Places] = layout.Places,
        cause_of: CauseOf | None = None,
    ) -> None:
        """`places`: returns the nodes' places; called once, for a wide incident only. `cause_of`: None for an event of no chain."""
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
        """The event's wide incident; None if it belongs to none."""
        chain, i = self._place.get(event_id, (None, 0))
        return None if chain is None else chain.incident_near(i)

    def first(self, evidence: Iterable[uuid.UUID]) -> uuid.UUID | None:
        """The first wide incident of these events."""
        return next((i for e in evidence if (i := self.incident(e)) is not None), None)

    def place(self, evidence: Iterable[uuid.UUID], job_nodes: Collection[str] = ()) -> str:
        """Phrase that says what the incident's nodes share; empty if chance explains it.

        `job_nodes`: the attempt's nodes, since its own load may be what they share.
        """
        member = next((e for e in evidence if self.incident(e) is not None), None)
        if member is None:
            return ""
        chain, i = self._place[member]
        return chain.shared(i, self._places()).words(job_nodes)

    def beside(self, event_id: uuid.UUID) -> Sequence[records.HealthEvent]:
        """The events of the event's chain, oldest first; empty if it is in none."""
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
        """What the nodes of the events within REACH of event `i` share.

        Computed once: a wide fault has many victims, and each asks.
        """
        first, last = within = self._within(i)
        if within not in self._shared:
            self._shared[within] = _Shared.of(self.events[first:last], places)
        return self._shared[within]

    def _within(self, i: int) -> tuple[int, int]:
        at = self._times[i]
        return bisect.bisect_left(self._times, at - REACH), bisect.bisect_right(self._times, at + REACH)

    def incident_near(self, i: int) -> uuid.UUID | None:
        """The incident id from the events within REACH of event `i`; None if they are on too few nodes."""
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
    """The times in a span at which a wide incident may lie, from the nodes and times of events alone.

    `events`: time and node of every event of one cluster, from `since` to `until`, that can be part of an incident. Causes
    are not distinguished and times outside the span are unknown, so the answer may be yes too often, never too seldom.
    """

    def __init__(self, events: Iterable[tuple[datetime, str]], since: datetime, until: datetime) -> None:
        in_span = sorted((at, node) for at, node in events if since <= at <= until)
        # Times before and after are unknown.
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
        """True if an event at this time may belong to a wide incident."""
        i = bisect.bisect_right(self._firsts, at) - 1
        return i < 0 or at > self._lasts[i] or self._wide[i]


def counts(event: records.HealthEvent) -> bool:
    """True for an event that can be part of an incident: a node's own root event with a cause of WIDE."""
    return is_shared(signatures.of(event)) and not findings.is_finding(event)


def shared_cause(event: records.HealthEvent) -> str | None:
    """The event's cause, if it can be part of an incident."""
    return signatures.of(event).cause if counts(event) else None


def is_shared(signature: signatures.Signature) -> bool:
    """True for a root signature with a cause of WIDE."""
    return signature.cause in WIDE and signature.role is signatures.Role.ROOT


def _chains(cause: str, events: Sequence[records.HealthEvent]) -> Iterator[_Chain]:
    begin = 0
    for i in range(1, len(events) + 1):
        if i == len(events) or events[i].at - events[i - 1].at > GAP:
            yield _Chain(cause, events[begin:i])
            begin = i


def incident_id(cause: str, first: records.HealthEvent) -> uuid.UUID:
    """An id made of the cause and the first event, so that an incident has the same id in every run."""
    return records.make_event_id(first.cluster, "", "incident", f"{cause}:{first.event_id}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shared:
    """What the nodes of one incident's events share: the part they name, and their place."""

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
        """Both as a phrase, empty if neither is known; a note follows if the attempt's own nodes fit the place as well."""
        shared = [self.named]
        if self.place is not None:
            shared.append(self.place.sentence)
            if job_nodes and scan.job_explains(self.place, self.failed, job_nodes, self.where):
                shared.append(JOB_TOO)
        return "; ".join(s for s in shared if s)


JOB_TOO = "the job's own nodes fit as well, so its load may be what they share"


def _named(events: Sequence[records.HealthEvent]) -> str:
    """`all 12 nodes name fs1`: the device that nearly all nodes of these events name; empty without one."""
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
    """The verdicts with incident and shared place; the rest of the batch has no influence. `chains`: by cluster.

    `job_nodes`: each attempt's nodes, by cluster, job id and submit time.

    A wide incident has an id of its own. Any other fault of a node is named by its event (the verdict's first evidence), so
    all attempts that it ended share the id. A fault that only the job's side reports has none.
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
"""Begin and end; both belong to it."""


def around(
    events: Callable[[Sequence[Span]], Iterable[records.HealthEvent]],
    instants: Iterable[datetime],
    places: Callable[[], layout.Places] = layout.Places,
    cause_of: CauseOf | None = None,
) -> Chains:
    """The whole chains around some instants; `events` reads several spans of one cluster at once.

    Each span is widened, by at most REACH, until no chain crosses its bounds.
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
        step *= 2  # so that a long chain takes few queries
    return Chains(found.values(), places, cause_of)


def _spans(instants: Sequence[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """The spans to read around these instants; spans that touch are joined."""
    begin = 0
    for i in range(1, len(instants) + 1):
        if i == len(instants) or instants[i] - instants[i - 1] > 2 * MARGIN:
            yield instants[begin] - MARGIN, instants[i - 1] + MARGIN
            begin = i


@functools.cache
def sorts() -> dict[str, list[Any]]:
    """The sorts of events that may be part of an incident, as `incident_events.sql` takes them: kinds, codes, xids, others."""
    found = signatures.roots_of(WIDE)
    any_code = {kind for kind, code in found if code is None}
    return {
        "kinds": [kind for kind, _ in found],
        "codes": [code for _, code in found],
        "xids": [code for kind, code in found if kind == "xid"],
        "others": [
            f"{kind} {code}"
            for kind, code in sorted(signatures.exact_sorts() - set(found))
            if kind in any_code and not _can_be_shared(kind, code)
        ],
    }


def _can_be_shared(kind: str, code: str) -> bool:
    return any(is_shared(signatures.find(kind, code, severity)) for severity in records.Severity)
