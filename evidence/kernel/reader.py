"""Kernel lines to findings: prefixes off, then the one family whose words are in the message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from probing_cluster.core import sanitize
from probing_cluster.core.sanitize import literals
from probing_cluster.evidence import prefixes
from probing_cluster.evidence.kernel import (
    block,
    daemons,
    ethernet,
    fabric,
    hung,
    memory,
    message_start,
    netfs,
    nvrm,
    oom,
    pcie,
    slingshot,
    sxid,
    thermal,
    xid,
)
from probing_cluster.evidence.kernel.accelerators import amdgpu, habanalabs, intel_gpu, nouveau
from probing_cluster.evidence.kernel.grammar import (
    INFO,
    Facts,
    KernelContext,
    KernelFinding,
    LineFamily,
    fact,
)

FAMILIES: tuple[LineFamily, ...] = (
    sxid.FAMILY,
    xid.FAMILY,
    daemons.FAMILY,
    daemons.HARDWARE_FAMILY,
    daemons.NAMES_FAMILY,
    daemons.SLURMD_FAMILY,
    nvrm.FAMILY,
    amdgpu.FAMILY,
    nouveau.FAMILY,
    intel_gpu.FAMILY,
    habanalabs.FAMILY,
    pcie.IOMMU_FAMILY,
    memory.FAMILY,
    pcie.FAMILY,
    oom.FAMILY,
    hung.FAMILY,
    netfs.FAMILY,
    fabric.FAMILY,
    slingshot.FAMILY,
    ethernet.FAMILY,
    block.FAMILY,
    thermal.FAMILY,
)
"""The registration: order decides only where two families could claim one line."""

_UP = "link_up"
_UP_FACTS: Facts = {
    ("ib_link", _UP): fact(INFO, "hardware", "A fabric port that had gone down came up again.", "Nothing."),
    ("eth_link", _UP): fact(
        INFO, "hardware", "An Ethernet link that had gone down came up again.", "Nothing."
    ),
}
_DOWN = frozenset(
    {
        ("ib_link", "port_down"),
        ("ib_link", "link_down"),
        ("eth_link", "link_down"),
        ("eth_link", "bond_slave_down"),
    }
)
_WENT_DOWN = "links that went down"
_OPPOSITES = (
    (re.compile(r"\b([Ll]ink (?:is )?)[Uu]p\b"), r"\1down"),
    (re.compile(r"\blink status (definitely )?up\b"), r"link status \1down"),
    (re.compile(r"\bLink ACTIVE\b"), "Link DOWN"),
    (re.compile(r"\bchanged to PORT_ACTIVE\b"), "changed to PORT_DOWN"),
    (re.compile(r"\bCXI_EVENT_LINK_UP\b"), "CXI_EVENT_LINK_DOWN"),
)
"""A driver's line about a link that came up is its line about a link that goes down with another last word, so the same family
reads it. It counts only for a port that went down before: every port comes up at boot."""
_UP_TRIGGERS = ("ink up", "ink Up", "ink is up", "ink is Up", "link status up", "definitely up", "Link ACTIVE", "PORT_ACTIVE", "LINK_UP")  # fmt: skip
_BYTES = '"MESSAGE":['
"""The beginning of a message with an escape or invalid UTF-8 in `journalctl -o json`: a list of numbers, in which no trigger can be found."""
TRIGGERS: tuple[str, ...] = tuple(
    dict.fromkeys([*(t for family in FAMILIES for t in family.triggers), *_UP_TRIGGERS, _BYTES])
)
_DAEMONS: Mapping[str, frozenset[tuple[str, str | None]]] = {
    "mmfs": frozenset({("gpfs", None)}),
    "nv-fabricmanager": frozenset({("fabric_manager", None)}),
    "nvidia-fabricmanager": frozenset({("fabric_manager", None)}),
    "nvidia-persistenced": frozenset({("fabric_manager", "persistence")}),
    **dict.fromkeys(daemons.WATCHERS, frozenset({(daemons.HARDWARE, None)})),
    **dict.fromkeys(daemons.LOOKUPS, frozenset({(daemons.NAMES, None)})),
    daemons.SLURMD: frozenset({(daemons.SLURMD, "prolog_failed")}),
    "systemd-networkd": frozenset({("ib_link", "lost_carrier")}),
    "NetworkManager": frozenset({("ib_link", "lost_carrier")}),
}
"""Programs of the node whose syslog lines count, and for which (kind, code; None = any). Anyone can log under their names,
so none of these kinds may be one that only the kernel can report."""
_NAMED = frozenset(
    {
        "mmfs",
        "nv-fabricmanager",
        "nvidia-fabricmanager",
        "nvidia-persistenced",
        *daemons.WATCHERS,
        *daemons.LOOKUPS,
        daemons.SLURMD,
    }
)
"""Those whose name is a part of their messages' form."""
MAX_MESSAGE_CHARS = 2048
"""No family sees more of a message: the kernel writes half as much, and a form's time may grow with the square of it."""
_ANY = re.compile(literals.any_of(TRIGGERS))


def facts() -> Facts:
    """Every (kind, code) that can be found and what it means."""
    return {key: value for family in FAMILIES for key, value in family.facts.items()} | dict(_UP_FACTS)


class KernelReader:
    """Reads one log in order; remembers only what later lines of the same report leave out."""

    def __init__(self) -> None:
        self._context = KernelContext()

    def read_message(self, message: str) -> KernelFinding | None:
        """The finding in a message that has no prefixes left (a /dev/kmsg record's text)."""
        message = message[:MAX_MESSAGE_CHARS]
        finding = self._read(message)
        if finding is not None:
            _note_down(finding, self._context)
        elif any(trigger in message for trigger in _UP_TRIGGERS):
            finding = _read_up(message, self._context, self._read)
        return finding

    def _read(self, message: str) -> KernelFinding | None:
        """What the first family that knows the message says."""
        only = message_start.quoting(message)
        for family in FAMILIES:
            if only is not None and family.name != only:
                continue
            for trigger in family.triggers:
                if trigger in message:
                    break
            else:
                continue
            if finding := family.read(message, self._context):
                return finding
        return None

    def read_line(
        self, line: str, reference: datetime | None = None
    ) -> tuple[prefixes.PrefixedLine, KernelFinding] | None:
        """The prefix fields and the finding of a whole log line; None when it says nothing."""
        if not _ANY.search(line):
            return None
        parsed = prefixes.parse(line, reference)
        finding = self._believed(parsed)
        if finding is None:
            return None
        return parsed, finding if parsed.repeat == 1 else replace(finding, repeat=parsed.repeat)

    def _believed(self, line: prefixes.PrefixedLine) -> KernelFinding | None:
        """What the line says, if whoever wrote it may say so: the kernel anything, a known program its own kinds."""
        if line.indented and not nvrm.continues(line.message, self._context):
            return None
        message = line.message.lstrip()
        if line.is_kernel is not False:
            return self.read_message(message)
        program = next((name for name in _DAEMONS if (line.tag or "").startswith(name)), None)
        if program is None:
            return None
        finding = self.read_message(f"{line.tag}: {message}" if program in _NAMED else message)
        if finding is None or _DAEMONS[program].isdisjoint(
            {(finding.kind, finding.code), (finding.kind, None)}
        ):
            return None
        return finding


def _note_down(finding: KernelFinding, context: KernelContext) -> None:
    """Remembers a port that went down."""
    if (finding.kind, finding.code or "") in _DOWN:
        for name in _ports(finding):
            context.put(_WENT_DOWN, name, True)


def _read_up(
    message: str, context: KernelContext, read_down: Callable[[str], KernelFinding | None]
) -> KernelFinding | None:
    """The recovery of a port that went down before; `read_down` is asked what the line with the opposite word would say."""
    if not context.tables.get(_WENT_DOWN):
        return None
    text = next(
        (new for form, word in _OPPOSITES if (new := form.sub(word, message, count=1)) != message), None
    )
    down = None if text is None else read_down(text)
    if down is None or (down.kind, down.code or "") not in _DOWN:
        return None
    # It stays remembered: the live log reads a line again only when it has not been read for seconds.
    if not any(context.get(_WENT_DOWN, name) for name in _ports(down)):
        return None
    known = _UP_FACTS[down.kind, _UP]
    return replace(
        down,
        code=_UP,
        severity=known.severity,
        domains=known.domains,
        meaning=known.meaning,
        next_step=known.next_step,
        message=sanitize.clean(message),
    )


def _ports(finding: KernelFinding) -> Iterable[str]:
    return (f"{finding.kind} {name}" for name in (finding.device, finding.pci_bus_id) if name)
