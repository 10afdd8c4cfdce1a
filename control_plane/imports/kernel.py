"""A node's kernel log file as events of source `import`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo

from probing_cluster.control_plane.imports import coverage, rejected_input, when
from probing_cluster.core import records, sanitize, storable
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
    cluster: str
    read_at: datetime
    reference: datetime
    """Year-less dates lie before this."""
    zone: tzinfo | None = None
    """Zone of dates without one; None = UTC."""
    boot_at: datetime | None = None
    """For lines that only say the seconds since boot."""


@dataclass(kw_only=True)
class Read:
    """What a file held."""

    events: list[records.HealthEvent] = field(default_factory=list)
    bad: list[rejected_input.RejectedInput] = field(default_factory=list)
    n_lines: int = 0
    is_empty: bool = True
    """It holds nothing: a ring buffer that was just cleared, a journal without entries."""
    covers: records.HealthEvent | None = None
    """From the log's first date to its last; None where nothing of it could be dated."""
    is_log: bool = False
    """Some line has a date or a time since boot, or a finding; of other lists of events always false."""
    n_unsure: int = 0
    """Findings in an hour that the clocks repeated of which nothing tells the pass: read as of the first."""
    foreign_dates: bool = False
    """Some line has a date of `dmesg -T` whose words are not known."""


_EMPTY = re.compile(r"\s*(?:-- (?:No entries|Journal begins at .*|Logs begin at .*) --)?\s*")
"""A blank line, or what journalctl prints where there is nothing to show."""


def read(lines: Iterable[bytes], place: FilePlace) -> Read:
    """Every finding of a kernel log; a finding without an instant is kept aside."""
    engine, boots, found = reader.KernelReader(), boot.BootReader(), Read()
    occurrences = Counter[tuple[datetime, str]]()
    clock = when.LogClock(place.zone, place.boot_at, place.reference)
    span = coverage.LogSpan(place.zone, place.boot_at, place.reference)
    for number, raw in enumerate(lines, 1):
        found.n_lines = number
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        found.is_empty = found.is_empty and _EMPTY.fullmatch(text) is not None
        span.note(text)
        parsed = engine.read_line(text, place.reference) or boots.read_line(text, place.reference)
        foreign = _foreign_date(text, place.reference)
        found.foreign_dates = found.foreign_dates or foreign
        found.is_log = found.is_log or parsed is not None or prefixes.parse(text, place.reference).stamped
        if parsed is None:
            clock.skip(text)
            continue
        line, finding = parsed
        at = clock.instant(line, text)
        if at is None:
            boot_hint = f"no date in the line; say when the node booted: --boot {place.node}=WHEN"
            why = UNREAD_LANGUAGE if foreign else boot_hint
            found.bad.append(
                rejected_input.RejectedInput(file=place.file, line_no=number, text=text, why=why)
            )
            continue
        occurrences[at, finding.message] += 1
        event = event_of(finding, at, occurrences[at, finding.message], place)
        why_not = storable.why_not(event)
        if why_not is not None:
            found.bad.append(
                rejected_input.RejectedInput(file=place.file, line_no=number, text=text, why=why_not)
            )
            continue
        found.events.append(event)
    found.n_unsure = clock.n_unsure
    if (covered := span.span()) is not None:
        found.covers = coverage.event_of(covered, place.cluster, place.node, place.read_at)
    return found


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
