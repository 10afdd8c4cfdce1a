"""Instants, amounts and events in words, the same in text and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime

from probing_cluster.core import clock, digits, records, sanitize, vocabulary

_NAMES = {"xid": "Xid", "sxid": "SXid", "oom_kill_suspected": "process_killed"}
"""Kinds by other names: the line says that something was killed, and the verdict whether for memory."""


NOT_JUDGED = {
    "LAUNCH_FAILED": "Slurm could not start its batch script; see slurmd's log on its first node.",
    "RECONFIG_FAIL": "Slurm could not reconfigure a node for the job; see slurmctld's log.",
}
"""States whose cause accounting does not show, with the place to look."""
NOT_YET_JUDGED = "Not judged yet. The service judges an attempt seconds after accounting shows its end."


def clock_z(at: datetime, *, with_day: bool = False) -> str:
    """`14:02:11Z`, or `11-21 14:02:11Z` where a report spans several days."""
    return at.astimezone(UTC).strftime("%m-%d %H:%M:%SZ" if with_day else "%H:%M:%SZ")


def stamp_z(at: datetime) -> str:
    """`2026-11-21 14:02:11Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def day(at: datetime) -> date:
    """The calendar day in UTC."""
    return at.astimezone(UTC).date()


def span(seconds: float) -> str:
    """`45 s`, `18 min 22 s`, `3 h 5 min`, `2 d 4 h`: two units at most."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    for size, unit, small, small_unit in (
        (60, "min", 1, "s"),
        (3600, "h", 60, "min"),
        (86400, "d", 3600, "h"),
    ):
        if total < size * (60 if size == 60 else 24 if size == 3600 else 1 << 40):
            whole, rest = divmod(total, size)
            tail = rest // small
            return f"{whole} {unit} {tail} {small_unit}" if tail else f"{whole} {unit}"
    raise AssertionError(seconds)


def gpu_hours(amount: float) -> str:
    """`0.3`, `12.5`, `1,204`; an amount that rounds to 0 but is more is `<0.1`."""
    if 0 < amount < 0.05:
        return "<0.1"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}"


def ratio(value: float | None) -> str:
    """`0.71`, or `unknown`."""
    return "unknown" if value is None else f"{value:.2f}"


def label(event: records.HealthEvent) -> str:
    """`Xid 79`, `SXid 12028`, `pcie_aer fatal`, `ib_link`."""
    name = _NAMES.get(event.kind, event.kind)
    return sanitize.clean(f"{name} {event.code}" if event.code and event.code != event.kind else name, 60)


def device(event: records.HealthEvent) -> str:
    """The part as the source names it: `gpu3 0000:5e:00`, `mlx5_0`, `/scratch`."""
    parts = [p for p in (event.device, event.pci_bus_id) if p]
    return sanitize.clean(" ".join(parts) or (event.gpu_uuid or ""), 100)


def message(event: records.HealthEvent, limit: int = 200) -> str:
    """The source's own text, shortened, with the count of a repeated event."""
    text = sanitize.clean(event.message, limit + 1)
    text = text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
    if event.count > 1:
        until = f" until {clock_z(event.last_at)}" if event.last_at else ""
        text += f" ({event.count} times{until})"
    return text


_DATED = frozenset({vocabulary.LOG_STALL, vocabulary.LOG_PROGRESS, vocabulary.OUTPUT_STALL})
"""Kinds of findings in a job's output whose time is the output's own."""


def undated(event: records.HealthEvent) -> str:
    """The place of a finding that was read when the job had ended, such as `line 12` of its output, or `byte 4096` where its lines could not be counted; empty for an event with a time of its own.

    Its stored time is that of the job's end.
    """
    if event.source == "dump":
        return "at end"
    if event.source != "joblog" or event.kind in _DATED:
        return ""
    line, byte = (digits.index(event.detail.get(at)) for at in ("line", "at_byte"))
    return f"byte {byte}" if byte else f"line {line}" if line else ""


def when(event: records.HealthEvent, *, with_day: bool = False) -> str:
    """The event's time, or the place of a finding that has none."""
    return undated(event) or clock_z(event.at, with_day=with_day)


def in_order(events: Iterable[records.HealthEvent]) -> tuple[records.HealthEvent, ...]:
    """The events as a section lists them: by their times, then those without one by their lines of the output."""
    return tuple(sorted(events, key=_place))


def _place(event: records.HealthEvent) -> tuple[bool, datetime, int]:
    if undated(event):
        return True, datetime.max.replace(tzinfo=UTC), digits.index(event.detail.get("line")) or 0
    return False, event.at, 0


def event_words(event: records.HealthEvent) -> str:
    """`Xid 79  gpu3 0000:5e:00  GPU has fallen off the bus.`: label, part and message."""
    return "  ".join(part for part in (label(event), device(event), message(event)) if part)


_STILL = {"RUNNING": "still running", "SUSPENDED": "still suspended"}


def open_end(
    state: str, exported_until: datetime | None, last_seen_at: datetime | None
) -> tuple[str, datetime | None]:
    """The last known state of an attempt without an end, and the instant that follows these words."""
    if exported_until is not None:
        if state in _STILL:
            return f"{_STILL[state]} when the imported accounting ends, at", exported_until
        return "its end is not in the imported accounting, which ends at", exported_until
    if last_seen_at is None:
        return "still running according to accounting; no agent reports it", None
    return "still running, last seen", last_seen_at


def reuse(ref: str, submit_at: datetime, others: Sequence[datetime]) -> str:
    """A sentence on other jobs with the id of the one submitted at `submit_at`, and how to ask for the latest; empty for none."""
    if not others:
        return ""
    latest = others[-1].astimezone(UTC)
    when = "before" if latest < submit_at else "again since"
    day_or_instant = clock.iso_z(latest) if day(latest) == day(submit_at) else day(latest).isoformat()
    return f"Slurm used this id {when}, for a job submitted {stamp_z(latest)}: probing-report {ref}@{day_or_instant}"


def status(code: int) -> str:
    """`exit code 1`, `exit code 139 (signal 11)`: a shell reports a signal as 128 and its number."""
    return f"exit code {code} (signal {code - 128})" if 128 < code < 160 else _exit_code(code)


def ending(attempt: records.JobAttempt) -> str:
    """`exit code 1`, `exit code 15 (or 143)`, `exit code 72 (or 200)`, `signal 9`, or nothing when it ended well or accounting does not say."""
    if attempt.exit_signal:
        return f"signal {attempt.exit_signal}"
    code = attempt.exit_code
    if code in _OF_SIGNALS:
        return f"exit code {code} (or {vocabulary.BY_SIGNAL + code})"
    return _exit_code(code) if code else ""


def _exit_code(code: int) -> str:
    larger = vocabulary.may_be_larger(code)
    return f"exit code {code} (or {larger})" if larger else f"exit code {code}"


_OF_SIGNALS = frozenset({6, 9, 11, 13, 15})
"""Exit codes that accounting records for a script's 128 and a signal's number, which Slurm's own mail and the shell give."""


_VERBS = {
    "drain": "drained",
    "requeue": "requeued",
    "resume": "resumed",
    "refuse": "allowed to refuse jobs",
    "restart": "restarted after its end",
    "exclude": "left out of the job",
}
_OF_THE_JOB = frozenset({"requeue", "restart"})


def action(drain: records.Drain, reason: str, *, with_day: bool) -> str:
    """An action of ours, or why it was left undone: `n2 drained 14:20:34Z (probing: xid 79 gpu3)`."""
    what = "job" if drain.action in _OF_THE_JOB else drain.node
    verb = _VERBS.get(drain.action, drain.action)
    at = clock_z(drain.at, with_day=with_day)
    by = "" if drain.owner == "probing" else f" by {sanitize.clean(drain.owner, 40)}"
    if drain.state in {"done", "resumed"}:
        until = _given_back(drain, with_day=with_day)
        return f"{what} {verb}{by} {at}{until}" + (f" ({reason})" if reason else "")
    if drain.state == "simulated":
        return f"{what} would have been {verb} {at} ({reason}{'; ' if reason else ''}observe-only)"
    if drain.state == vocabulary.UNDER_WAY:
        why = "; ".join(filter(None, (reason, sanitize.clean(drain.why_state, 200))))
        return f"{what} is being {verb}{by} since {at}" + (f" ({why})" if why else "")
    return f"{what} not {verb} {at} ({drain.state}: {sanitize.clean(drain.why_state, 200)})"


def _given_back(drain: records.Drain, *, with_day: bool) -> str:
    """`until 14:02:11Z` for a node that was excluded from the job and given back; else empty."""
    if drain.action != "exclude" or drain.ended_at is None:
        return ""
    return f" until {clock_z(drain.ended_at, with_day=with_day)}"
