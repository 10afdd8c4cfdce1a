"""A node's kernel log file as events of source `import`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from probing_cluster.control_plane.imports import coverage, line_hosts, named_zones, rejected_input, when
from probing_cluster.core import errors, records, sanitize, storable
from probing_cluster.evidence import prefixes
from probing_cluster.evidence.kernel import boot, grammar, reader

_DMESG_T = re.compile(r"\s*\[[^\[\]]{1,40}\s\d\d:\d\d:\d\d\s\d{4}\]", re.ASCII)
"""The shape of `dmesg -T` in any language: weekday and month are words of the locale."""
UNREAD_LANGUAGE = (
    "dates in a language that is not read; use `dmesg --time-format=iso`, or `LC_ALL=C dmesg -T`"
)


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """What a file itself does not say."""

    file: str
    node: str
    """Empty: each line is of the node its host names."""
    cluster: str
    """Of the place's node."""
    read_at: datetime
    reference: datetime
    """Year-less dates lie before this."""
    zone: tzinfo | None = None
    """Zone of dates without one; None = UTC."""
    boots: Mapping[str, datetime] = field(default_factory=dict)
    """When nodes booted, for lines that only say the seconds since then."""
    nodes: frozenset[str] | None = None
    """Every node the import knows; None: of a file of many hosts, each is a node."""
    cluster_of: Callable[[str], str] | None = None
    """The cluster of a node that a line names; None: all are of `cluster`."""

    def of(self, node: str) -> FilePlace:
        """The place of a node's lines; raises MalformedInput where several clusters have such a node."""
        return replace(self, node=node, cluster=self.cluster_of(node) if self.cluster_of else self.cluster)


@dataclass(kw_only=True)
class Read:
    """What a file held."""

    events: list[records.HealthEvent] = field(default_factory=list)
    bad: list[rejected_input.RejectedInput] = field(default_factory=list)
    n_lines: int = 0
    is_empty: bool = True
    """It holds nothing: a ring buffer that was just cleared, a journal without entries."""
    covers: list[records.HealthEvent] = field(default_factory=list)
    """Of each node, from the log's first date to its last; none where nothing of it could be dated."""
    names_hosts: bool = False
    """Some line names a host, a node's or another."""
    nodes: list[str] = field(default_factory=list)
    """Whose lines these are, in order of name."""
    notes: list[str] = field(default_factory=list)
    """What a person should know about how the lines were read."""
    is_log: bool = False
    """Some line has a date or a time since boot, or a finding; of other lists of events always false."""
    is_naive: bool = False
    """Some date names no zone, and neither the file nor the person names one: read as UTC."""
    n_unsure: int = 0
    """Findings in an hour that the clocks repeated of which nothing tells the pass: read as of the first."""
    foreign_dates: bool = False
    """Some line has a date of `dmesg -T` whose words are not known."""


_EMPTY = re.compile(r"\s*(?:-- (?:No entries|Journal begins at .*|Logs begin at .*) --)?\s*")
"""A blank line, or what journalctl prints where there is nothing to show."""


class _NodeLines:
    """The lines of one node in a file: what their findings are, and how they are dated."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._engine, self._boots = reader.KernelReader(), boot.BootReader()
        self._occurrences = Counter[tuple[datetime, str]]()
        boot_at = place.boots.get(place.node)
        self._clock = when.LogClock(place.zone, boot_at, place.reference)
        self._span = coverage.LogSpan(place.zone, boot_at, place.reference)
        self._turns = when.YearTurns()
        self.found = Read()

    def feed(self, number: int, text: str) -> None:
        """The node's next line; a finding without an instant is kept aside."""
        place, found = self._place, self.found
        self._span.note(text)
        self._turns.note(text)
        parsed = self._engine.read_line(text, place.reference) or self._boots.read_line(text, place.reference)
        foreign = _foreign_date(text, place.reference)
        found.foreign_dates = found.foreign_dates or foreign
        found.is_log = found.is_log or parsed is not None or prefixes.parse(text, place.reference).stamped
        if parsed is None:
            self._clock.skip(text)
            return
        line, finding = parsed
        at = self._clock.instant(line, text)
        if at is None:
            boot_hint = f"no date in the line; say when the node booted: --boot {place.node}=WHEN"
            self._keep_aside(number, text, UNREAD_LANGUAGE if foreign else boot_hint)
            return
        self._occurrences[at, finding.message] += 1
        event = event_of(finding, at, self._occurrences[at, finding.message], place)
        why_not = storable.why_not(event)
        if why_not is not None:
            self._keep_aside(number, text, why_not)
            return
        found.events.append(event)

    def close(self) -> Read:
        """All that was found, once the last line was fed; raises MalformedInput where a boot instant or a year is to date lines of several."""
        if self._clock.restarted and self._clock.n_since_boot:
            raise errors.MalformedInput(
                f"{self._place.file}: {self._place.node} started again within it, and its lines only say the seconds since boot;"
                " split it, and import the part of each boot by itself with its own --boot"
            )
        if self._turns.is_longer_than_a_year and self.found.events:
            raise errors.MalformedInput(
                f"{self._place.file}: its dates of {self._place.node} name no year, and it is longer than one: which year a line is of is not known;"
                " give it with years (`journalctl -k -o short-iso`), or cut it at the turns of the year and import each part with its time's accounting"
            )
        covered = self._span.span()
        self.found.n_unsure = self._clock.n_unsure
        self.found.is_naive = self._span.is_naive or self._clock.n_naive > 0
        if covered is not None:
            place = self._place
            self.found.covers = [coverage.event_of(covered, place.cluster, place.node, place.read_at)]
        return self.found

    def _keep_aside(self, number: int, text: str, why: str) -> None:
        self.found.bad.append(
            rejected_input.RejectedInput(file=self._place.file, line_no=number, text=text, why=why)
        )


def read(lines: Iterable[bytes], place: FilePlace) -> Read:
    """Every finding of a kernel log that is of the place's node, or of any node where the place names none."""
    whole, parts = Read(), dict[str, _NodeLines]()
    hosts = line_hosts.LineHosts(place.node, place.nodes)
    for number, raw in enumerate(lines, 1):
        whole.n_lines = number
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        whole.is_empty = whole.is_empty and _EMPTY.fullmatch(text) is not None
        if place.zone is None and (named := named_zones.of_header(text)):
            zone_name, zone = named
            place = replace(place, zone=zone)
            whole.notes.append(f"its times are read as {zone_name}, which its first line names")
        key = hosts.key(text, place.reference)
        if key is None:
            continue
        if key not in parts:
            parts[key] = _NodeLines(place.of(hosts.node(key)))
        parts[key].feed(number, text)
    used = hosts.parts()
    whole.nodes = sorted(set(used.values()))
    for key in sorted(used.keys() & parts.keys()):
        part = parts[key].close()
        whole.events += part.events
        whole.bad += part.bad
        whole.covers += part.covers
        whole.n_unsure += part.n_unsure
        whole.is_naive = whole.is_naive or part.is_naive
    whole.names_hosts = hosts.names_hosts
    # A line whose host was made out is a log's, whoever it is of.
    whole.is_log = hosts.names_hosts or any(part.found.is_log for part in parts.values())
    whole.foreign_dates = any(part.found.foreign_dates for part in parts.values())
    whole.bad.sort(key=lambda one: one.line_no)
    whole.notes += hosts.notes()
    if whole.is_naive:
        whole.notes.append("its times name no zone: read as UTC (--timezone TZ names another)")
    return whole


def _foreign_date(text: str, reference: datetime) -> bool:
    return _DMESG_T.match(text) is not None and prefixes.parse(text, reference).at is None


def event_of(finding: grammar.KernelFinding, at: datetime, nth: int, place: FilePlace) -> records.HealthEvent:
    """The event of one finding; the same line in two overlapping files is one event."""
    # A file has no boot id; instant, words and how many alike came before are where the line stood.
    position = f"{at.isoformat()}:{nth}:{finding.message}"
    return records.HealthEvent(
        event_id=records.make_event_id(place.cluster, place.node, "import", position),
        cluster=place.cluster,
        node=place.node,
        at=at,
        observed_at=place.read_at,
        kind=finding.kind,
        code=finding.code,
        severity=finding.severity,
        device=finding.device,
        pci_bus_id=finding.pci_bus_id,
        pid=finding.pid,
        process=finding.process,
        job_id=finding.job_id,
        count=finding.repeat,
        source="import",
        message=sanitize.clean(finding.message),
        detail={**finding.detail, "from": "kernel"},
    )
