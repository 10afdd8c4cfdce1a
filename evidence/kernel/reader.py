"""Kernel lines to findings: prefixes off, then the one family whose words are in the message."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from probing_cluster.evidence import literals, prefixes
from probing_cluster.evidence.kernel import (
    block,
    ethernet,
    fabric,
    hung,
    memory,
    netfs,
    nvrm,
    oom,
    pcie,
    sxid,
    thermal,
    xid,
)
from probing_cluster.evidence.kernel.grammar import Context, Facts, Family, KernelFinding

FAMILIES: tuple[Family, ...] = (
    sxid.FAMILY,
    xid.FAMILY,
    nvrm.FAMILY,
    memory.FAMILY,
    pcie.FAMILY,
    oom.FAMILY,
    hung.FAMILY,
    netfs.FAMILY,
    fabric.FAMILY,
    ethernet.FAMILY,
    block.FAMILY,
    thermal.FAMILY,
)
"""The registration: order decides only where two families could claim one line."""

TRIGGERS: tuple[str, ...] = tuple(dict.fromkeys(t for family in FAMILIES for t in family.triggers))
_DAEMONS = ("mmfs",)
"""Programs whose name in syslog is part of what they say (GPFS's client is a daemon, not the kernel)."""
_ANY = re.compile(literals.any_of(TRIGGERS))


def facts() -> Facts:
    """Every (kind, code) that can be found and what it means."""
    return {key: value for family in FAMILIES for key, value in family.facts.items()}


class KernelReader:
    """Reads one log in order; remembers only what later lines of the same report leave out."""

    def __init__(self) -> None:
        self._context = Context()

    def read_message(self, message: str) -> KernelFinding | None:
        """The finding in a message that has no prefixes left (a /dev/kmsg record's text)."""
        for family in FAMILIES:
            if any(t in message for t in family.triggers) and (
                finding := family.read(message, self._context)
            ):
                return finding
        return None

    def read_line(
        self, line: str, reference: datetime | None = None
    ) -> tuple[prefixes.Line, KernelFinding] | None:
        """The prefix fields and the finding of a whole log line; None when it says nothing."""
        if not _ANY.search(line):
            return None
        parsed = prefixes.parse(line, reference)
        daemon = parsed.tag if parsed.tag and parsed.tag.startswith(_DAEMONS) else None
        finding = self.read_message(f"{daemon}: {parsed.message}" if daemon else parsed.message)
        if finding is None:
            return None
        return parsed, finding if parsed.repeat == 1 else replace(finding, repeat=parsed.repeat)
