"""The agent watches itself: what it costs, how far behind it is, and when each source was last read."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from probing_cluster.core import clock

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(kw_only=True)
class SourceWatch:
    """How one source is doing."""

    state: str = "starting"
    read_at: datetime | None = None
    error: str | None = None
    reads_total: int = 0
    failures_total: int = 0
    duration_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        fields = {
            "state": self.state,
            "last_read": None if self.read_at is None else clock.iso_z(self.read_at),
            "error": self.error,
            "reads_total": self.reads_total,
            "failures_total": self.failures_total,
            "duration_s": round(self.duration_s, 4),
            **self.facts,
        }
        return {k: v for k, v in fields.items() if v is not None}


@dataclass(kw_only=True)
class SelfWatch:
    """Every source of one agent, by name."""

    sources: dict[str, SourceWatch] = field(default_factory=dict)

    def of(self, name: str) -> SourceWatch:
        return self.sources.setdefault(name, SourceWatch())

    def read(
        self, name: str, at: datetime, *, state: str = "ok", duration_s: float = 0.0, **facts: Any
    ) -> None:
        """A source was read."""
        watch = self.of(name)
        watch.state, watch.read_at, watch.error, watch.duration_s = state, at, None, duration_s
        watch.reads_total += 1
        watch.facts.update(facts)

    def failed(self, name: str, error: str, *, state: str = "error") -> None:
        """A source could not be read; what it said before is no longer the present."""
        watch = self.of(name)
        watch.state, watch.error = state, error[:300]
        watch.failures_total += 1

    def rows(self) -> Mapping[str, dict[str, Any]]:
        return {name: watch.row() for name, watch in sorted(self.sources.items())}


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES


def cpu_s() -> float:
    """CPU seconds of this process and of the children it has reaped."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@functools.cache
def version() -> str:
    """The installed version; `unknown` in a tree that is not installed."""
    try:
        return metadata.version("probing-cluster")
    except metadata.PackageNotFoundError:
        return "unknown"
