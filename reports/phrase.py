"""Instants, amounts and events as people read them, the same in text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from probing_cluster.core import clock, records, sanitize

_NAMES = {"xid": "Xid", "sxid": "SXid"}


NOT_JUDGED = {
    "LAUNCH_FAILED": "Slurm could not start its batch script: slurmd's log of its first node says why.",
    "RECONFIG_FAIL": "Slurm could not change its node to what the job needs: slurmctld's log says why.",
}
"""States of which accounting alone does not show a cause, and where it is found."""
NOT_YET_JUDGED = "Not judged yet: the service does so seconds after accounting shows the end."


def clock_z(at: datetime, *, with_day: bool = False) -> str:
    """`14:02:11Z`, or `11-21 14:02:11Z` where a report spans several days."""
    return at.astimezone(UTC).strftime("%m-%d %H:%M:%SZ" if with_day else "%H:%M:%SZ")


def stamp_z(at: datetime) -> str:
    """`2026-11-21 14:02:11Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


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
    """`0.3`, `12.5`, `1,204`; an amount that is there but rounds to nothing is `<0.1`."""
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
    """The source's own words, shortened, with how often when it repeated."""
    text = sanitize.clean(event.message, limit + 1)
    text = text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
    if event.count > 1:
        until = f" until {clock_z(event.last_at)}" if event.last_at else ""
        text += f" ({event.count} times{until})"
    return text


_WAS = {"RUNNING": "was running", "SUSPENDED": "was suspended"}


def open_end(
    state: str, exported_until: datetime | None, last_seen_at: datetime | None
) -> tuple[str, datetime | None]:
    """What is known of the end of an attempt that has none, and the instant the words end with."""
    if exported_until is not None:
        was = f"{_WAS[state]} when the file was made" if state in _WAS else "its end is not in the file"
        return f"{was}, which reaches to", exported_until
    if last_seen_at is None:
        return "still running by the last accounting; no agent reports it", None
    return "still running, last seen", last_seen_at


def reuse(ref: str, submit_at: datetime, others: Sequence[datetime]) -> str:
    """That other jobs had the id of the one submitted at `submit_at`, and how to ask for the latest of them; empty for none."""
    if not others:
        return ""
    latest = others[-1].astimezone(UTC)
    when = "before" if latest < submit_at else "again since"
    same_day = latest.date() == submit_at.astimezone(UTC).date()
    day_or_instant = clock.iso_z(latest) if same_day else latest.date().isoformat()
    return f"Slurm used this id {when}, for a job submitted {stamp_z(latest)}: probing-report {ref}@{day_or_instant}"


def status(code: int) -> str:
    """`exit code 1`, `exit code 139 (signal 11)`: above 128 it is a shell's word for a signal."""
    return f"exit code {code} (signal {code - 128})" if 128 < code < 160 else f"exit code {code}"


def ending(attempt: records.JobAttempt) -> str:
    """`exit code 1`, `signal 9`, or nothing when it ended well or accounting does not say."""
    if attempt.exit_signal:
        return f"signal {attempt.exit_signal}"
    return f"exit code {attempt.exit_code}" if attempt.exit_code else ""
