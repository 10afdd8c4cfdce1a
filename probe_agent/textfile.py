"""The agent's state as a file for node_exporter's textfile collector: what the node says while the database is away."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from probing_cluster.core import certificates, errors, records

_log = logging.getLogger(__name__)

NAMES: tuple[tuple[str, str, str], ...] = (
    ("beat_timestamp_seconds", "gauge", "when the agent wrote this, Unix time"),
    ("faults", "gauge", "faults the agent confirms now, by severity"),
    ("jobs", "gauge", "jobs on the node"),
    ("spool_depth", "gauge", "events waiting in the spool"),
    ("spool_bytes", "gauge", "bytes waiting in the spool"),
    ("lag_seconds", "gauge", "age of the oldest undelivered event"),
    ("dropped_total", "counter", "events dropped by spool policy since installation"),
    ("coalesced_total", "counter", "events folded into others since installation"),
    ("rejected_total", "counter", "inputs refused as malformed since installation"),
    ("hung_children", "gauge", "children in D state past their deadline"),
    ("resident_memory_bytes", "gauge", "memory of the agent"),
    ("cpu_seconds_total", "counter", "CPU time of the agent since it started"),
    ("source_up", "gauge", "1 while the source is read without error"),
    (
        "certificate_end_timestamp_seconds",
        "gauge",
        "when a certificate the agent uses ends, Unix time; 0 = unreadable",
    ),
)
"""Every metric, after the prefix `probing_local_`: name, type, meaning."""


class Textfile:
    """Writes the file whole, beside itself first; a disk that refuses is said once and is no failure of the agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def write(self, beat: records.AgentHeartbeat, used: Iterable[certificates.CertificateFile] = ()) -> bool:
        """Write one heartbeat and the ends of the certificates `used`; False when the disk refused."""
        fresh = self._path.with_name(
            f".{self._path.name}.{os.getpid()}"
        )  # no .prom: not collected half-written
        try:
            fresh.write_text(render(beat, _ends(used)), encoding="ascii")
            fresh.chmod(0o644)
            fresh.replace(self._path)
        except OSError as exc:
            if not self._failed:
                _log.warning("the textfile cannot be written: %s", exc)
            self._failed = True
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)  # another agent has another number: halves would pile up
            return False
        self._failed = False
        return True


def render(beat: records.AgentHeartbeat, ends: Mapping[str, float] | None = None) -> str:
    """A heartbeat in Prometheus's text format, with when each certificate file ends (Unix time)."""
    values: dict[str, list[tuple[str, float]]] = {name: [("", value)] for name, value in _plain(beat)}
    severities = [fault.get("severity") for fault in beat.faults.values()]
    values["faults"] = [(f'{{severity="{word}"}}', severities.count(word)) for word in ("high", "low")]
    values["source_up"] = [
        (f'{{source="{_label(name)}"}}', float(state.get("state") != "error" and not state.get("error")))
        for name, state in sorted(beat.sources.items())
    ]
    values["certificate_end_timestamp_seconds"] = [
        (f'{{file="{_label(path)}"}}', at) for path, at in (ends or {}).items()
    ]
    return "".join(_family(name, kind, meaning, values[name]) for name, kind, meaning in NAMES)


def _ends(used: Iterable[certificates.CertificateFile]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in used:
        try:
            found[str(one.path)] = certificates.ends(one.path, authority=one.authority).timestamp()
        except (errors.MalformedInput, OSError):
            found[str(one.path)] = 0.0
    return found


def _plain(beat: records.AgentHeartbeat) -> Iterator[tuple[str, float]]:
    yield "beat_timestamp_seconds", beat.at.timestamp()
    yield "jobs", len(beat.jobs)
    yield "lag_seconds", beat.lag_s
    yield "resident_memory_bytes", beat.rss_bytes
    yield "cpu_seconds_total", beat.cpu_s
    for name in (
        "spool_depth",
        "spool_bytes",
        "dropped_total",
        "coalesced_total",
        "rejected_total",
        "hung_children",
    ):
        yield name, getattr(beat, name)


def _family(name: str, kind: str, meaning: str, samples: list[tuple[str, float]]) -> str:
    full = f"probing_local_{name}"
    lines = [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
    return "\n".join([*lines, *(f"{full}{labels} {value!r}" for labels, value in samples)]) + "\n"


def _label(text: str) -> str:
    """A label's value: sources' names are ours, but nothing is taken on trust."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.:/") else "_" for c in text)[:100]
