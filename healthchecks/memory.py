"""What checks remember from one run to the next in the same boot: counters, first sightings."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LATCHES = ("seen", "grown")
"""Keys under which a check keeps what once happened; a person's clearing forgets them."""

MAX_BYTES = 4 << 20
"""A memory file larger than this is not ours; it is not read."""


class Memory:
    """Per check a small JSON object, kept in one file that is replaced as a whole.

    Everything is forgotten at a reboot: counters start again, and so do we.
    """

    def __init__(self, path: Path | None, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self.problem: str | None = None
        """Why it could not be kept; None when it is."""
        self.runner: dict[str, Any] = {}
        """What the runner itself must know in the next process."""
        self._by_check: dict[str, dict[str, Any]] = self._load()
        self._saved = self._text()

    def of(self, name: str) -> dict[str, Any]:
        """What check `name` remembers."""
        return self._by_check.get(name, {})

    def put(self, name: str, memory: Mapping[str, Any]) -> None:
        """Replace what check `name` remembers."""
        self._by_check[name] = dict(memory)

    def save(self) -> None:
        """Write it down if it changed; a full disk is a problem to show, never an exception."""
        if self.path is None:
            return
        text = self._text()
        if text == self._saved and self.problem is None:
            return
        fresh = self.path.with_name(f"{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh, "w", encoding="utf-8", opener=_private) as out:
                out.write(text)
            fresh.replace(self.path)
        except OSError as exc:
            self.problem = f"{self.path}: {exc.strerror}"
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            return
        self._saved, self.problem = text, None

    def _text(self) -> str:
        return json.dumps(
            {"boot_id": self.boot_id, "checks": self._by_check, "runner": self.runner}, sort_keys=True
        )

    def _load(self) -> dict[str, dict[str, Any]]:
        if self.path is None:
            return {}
        try:
            if not stat.S_ISREG(
                self.path.stat().st_mode
            ):  # a device may never end, and is not ours to replace
                self.problem, self.path = f"{self.path} is no regular file; nothing is remembered there", None
                return {}
            raw = self.path.read_bytes() if self.path.stat().st_size <= MAX_BYTES else b""
            kept = json.loads(raw)
            same_boot = kept["boot_id"] == self.boot_id
            checks = {str(name): dict(memory) for name, memory in kept["checks"].items()} if same_boot else {}
            self.runner = dict(kept.get("runner", {})) if same_boot else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
            self.problem = f"{self.path} is unreadable and was started anew ({type(exc).__name__})"
            return {}
        return checks


def latches(memory: Mapping[str, Any]) -> bool:
    """Whether a check with this memory goes by what happened once, not only by what it reads now."""
    return "last" in memory or any(key in memory for key in _LATCHES)


def cleared(memory: Mapping[str, Any]) -> dict[str, Any]:
    """A check's memory after a person declared the part repaired.

    What happened is forgotten, and the counts of the last look (`last`) become the new zero (`cleared`). The
    cursor of a log stays. No time is compared: the kernel's and the BMC's clocks drift from ours.
    """
    kept = {key: value for key, value in memory.items() if key not in _LATCHES}
    return {**kept, "cleared": kept.get("last", {})}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
