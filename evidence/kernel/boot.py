"""The kernel's and the NVIDIA driver's first lines: the node restarted, or its GPUs were set up anew.

Only offline logs are read so: on a live node the agent knows the boot by its id.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from probing_cluster.core import vocabulary
from probing_cluster.evidence import prefixes
from probing_cluster.evidence.kernel.grammar import INFO, SOFTWARE, Facts, KernelFinding, fact, make

TRIGGERS: tuple[str, ...] = ("Linux version ", "NVRM: loading NVIDIA UNIX")
FACTS: Facts = {
    ("node_boot", "kernel"): fact(
        INFO, SOFTWARE, "The node's kernel started.", "Nothing, unless nobody restarted it."
    ),
    ("node_boot", vocabulary.AFTER_SHUTDOWN): fact(
        INFO,
        SOFTWARE,
        "The node's kernel started after the system had been shut down in order.",
        "Nothing, unless nobody restarted it.",
    ),
    ("driver_load", "nvidia"): fact(
        INFO, SOFTWARE, "The NVIDIA driver was loaded and set up the node's GPUs.", "Nothing."
    ),
}
_BOOT = re.compile(r"Linux version \d{1,4}\.\d\S* \(", re.ASCII)
_LOAD = re.compile(r"NVRM: loading NVIDIA UNIX (?:Open )?\S+ Kernel Module\b", re.ASCII)
_DOWN_TRIGGERS = ("reboot: ", "Starting new kernel", "systemd")
_BY_KERNEL = re.compile(
    r"(?:reboot: (?:Restarting system|Power down|System halted)\b|kexec(?:_core)?: Starting new kernel|systemd-shutdown\[1\]: )"
)
_BY_SYSTEMD = re.compile(
    r"Shutting down\.|(?:Reached target|Starting) (?:\S+ - )?(?:System )?(?:Reboot|Power[ -]?Off|Shutdown|Halt)\b"
)
_SHUTS_DOWN = timedelta(hours=1)
"""From the first sign of a shutdown until the next kernel's first line; firmware may test a machine for long."""


class BootReader:
    """Reads one log in order; remembers only that the system was being shut down."""

    def __init__(self) -> None:
        self._down: prefixes.PrefixedLine | None = None

    def read_line(
        self, text: str, reference: datetime | None = None
    ) -> tuple[prefixes.PrefixedLine, KernelFinding] | None:
        """The prefix fields and the boot or driver load of a line that the kernel itself wrote."""
        if any(trigger in text for trigger in _DOWN_TRIGGERS):
            self._note_shutdown(prefixes.parse(text, reference), first="systemd[1]: " in text)
        if not any(trigger in text for trigger in TRIGGERS):
            return None
        line = prefixes.parse(text, reference)
        if line.tag is not None and line.tag not in prefixes.KERNEL_TAGS:
            return None
        if _BOOT.match(line.message):
            return line, self._boot(line)
        if _LOAD.match(line.message):
            return line, make(FACTS, "driver_load", "nvidia", line.message)
        return None

    def _note_shutdown(self, line: prefixes.PrefixedLine, *, first: bool) -> None:
        # Every user has a systemd of their own, which reaches the same targets as they log out: `first` is the system's.
        # Only the kernel and the first process can shut a system down. A forged line can only lessen an accusation.
        kernel = line.is_kernel is not False and _BY_KERNEL.match(line.message)
        tag = line.tag or ""
        systemd = tag == "systemd-shutdown" or (
            first and tag == "systemd" and _BY_SYSTEMD.match(line.message)
        )
        if (kernel or systemd) and (self._down is None or not _near(self._down, line)):
            self._down = line

    def _boot(self, line: prefixes.PrefixedLine) -> KernelFinding:
        down, self._down = self._down, None
        if down is None or not _near(down, line):
            return make(FACTS, "node_boot", "kernel", line.message)
        detail = (
            {} if down.at is None or line.at is None else {"shut_down_s": (line.at - down.at).total_seconds()}
        )
        return make(FACTS, "node_boot", vocabulary.AFTER_SHUTDOWN, line.message, detail=detail)


def _near(down: prefixes.PrefixedLine, line: prefixes.PrefixedLine) -> bool:
    """Whether the later line follows so soon that it belongs to the same shutdown; true without dates."""
    return down.at is None or line.at is None or timedelta() <= line.at - down.at <= _SHUTS_DOWN
