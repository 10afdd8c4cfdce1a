"""Intel's GPUs (i915, xe): hangs, resets, wedged devices, hardware errors, firmware that does not answer.

Forms are those of the drivers' own messages (drivers/gpu/drm/i915, drivers/gpu/drm/xe), behind the name and the address, `[drm]`, the level, and the tile and
GT that newer releases name.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_KIND = "intel_gpu"
_RESET = "Drain the node, reset the GPU or reboot; have the GPU replaced if the error returns."
_BOOT = "Drain the node and power-cycle it; have the GPU replaced if it does not come back."
_LOOK = "Look at the program that used the GPU and at what the driver says before and after."
_HW, _BOTH, _ALL = "hardware", "hardware system_software", "user_program system_software hardware"
FACTS = {
    (_KIND, "hang"): fact(LOW, _ALL, "Work on an Intel GPU did not end in time or was stopped.", _LOOK),
    (_KIND, "reset_begin"): fact(
        LOW, _BOTH, "The driver resets an Intel GPU; what runs on it is lost.", _LOOK
    ),
    (_KIND, "reset_done"): fact(INFO, _BOTH, "The reset of an Intel GPU succeeded.", _LOOK),
    (_KIND, "reset_failed"): fact(
        HIGH, _BOTH, "The reset of an Intel GPU failed; the GPU cannot be used.", _BOOT
    ),
    (_KIND, "wedged"): fact(
        HIGH, _BOTH, "The driver gave up an Intel GPU (wedged): no program can use it.", _BOOT
    ),
    (_KIND, "fatal"): fact(HIGH, _HW, "An Intel GPU reports a fatal hardware error.", _RESET),
    (_KIND, "nonfatal"): fact(
        LOW, _HW, "An Intel GPU reports a hardware error that it did not correct.", _RESET
    ),
    (_KIND, "correctable"): fact(
        INFO,
        _HW,
        "An Intel GPU corrected a hardware error.",
        "Count them per GPU; replace one whose rate rises.",
    ),
    (_KIND, "firmware"): fact(
        LOW, _BOTH, "The firmware of an Intel GPU (GuC) does not start or does not answer the driver.", _RESET
    ),
    (_KIND, "survivability"): fact(
        HIGH,
        _BOTH,
        "An Intel GPU's firmware is damaged: only new firmware can be written to it.",
        "Drain the node and write the GPU's firmware anew; have the GPU replaced if that fails.",
    ),
    (_KIND, "page_fault"): fact(
        INFO, _ALL, "A program on an Intel GPU touched memory that is not mapped.", _LOOK
    ),
    ("gpu_lost", "intel_lost"): fact(HIGH, _HW, "An Intel GPU no longer answers on PCIe.", _BOOT),
}
_GT = r"(?:Tile ?\d{1,2}: ?)?(?:GT ?\d{1,3}: ?)?(?:GUC: ?)?"
_ENGINE = r"(?:rcs|bcs|vcs|vecs|ccs|other|gsc)'?\d{1,2}"
_TASK = rf"(?P<process>{message_start.NAME}) ?\[(?P<pid>\d{{1,10}})\]"
_HANG = re.compile(rf"GPU HANG: ecode [\da-f:x]{{1,40}}(?:, in {_TASK}(?=,|\s*$))?")
"""Only i915 prints it, in older releases behind `[drm]` alone."""
_CONTEXT_RESET = re.compile(rf"(?:\[drm\] )?(?:\*ERROR\* )?{_TASK} context reset due to GPU hang")
"""It begins with a name that a user chose: it is read before any form that the name could begin, and only directly behind the driver's own names."""
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("hang", _HANG),
    ("hang", re.compile(rf"{_GT}Timedout job: seqno=\d.{{0,160}}? in {_TASK}$")),
    (
        "hang",
        re.compile(
            rf"{_GT}(?:Timedout job: seqno=\d|Kernel-submitted job timed out|Engine memory (?:CAT|cat) error\b|Engine reset: engine_class=|Resetting {_ENGINE} for \S)"
        ),
    ),
    ("reset_begin", re.compile(rf"{_GT}(?:Resetting chip for \S|trying reset from \S|reset started$)")),
    ("reset_done", re.compile(rf"{_GT}(?:reset done$|device wedged, but recovered through reset)")),
    (
        "reset_failed",
        re.compile(
            rf"{_GT}(?:Failed to reset chip|Failed to initialise HW following reset \(|reset failed (?:\(|-\d))"
        ),
    ),
    (
        "wedged",
        re.compile(
            rf"{_GT}(?:CRITICAL: Xe has declared device \S{{7,20}} as wedged|device wedged, needs recovery|Failed to (?:re-)?initialize GPU, declaring it wedged"
            r"|Failed to idle engines, declaring wedged|[\w ]{3,40} timed out, cancelling all in-flight rendering)"
        ),
    ),
    (
        "fatal",
        re.compile(
            rf"{_GT}(?:Tile ?\d{{1,2}} reported FATAL error 0x[0-9a-f]|FATAL: \S.{{1,120}} reported\b)"
        ),
    ),
    (
        "nonfatal",
        re.compile(
            rf"{_GT}(?:Tile ?\d{{1,2}} reported NONFATAL error 0x[0-9a-f]|NONFATAL: \S.{{1,120}} reported\b)"
        ),
    ),
    (
        "correctable",
        re.compile(
            rf"{_GT}(?:Tile ?\d{{1,2}} reported CORRECTABLE error 0x[0-9a-f]|CORRECTABLE: \S.{{1,120}} reported\b)"
        ),
    ),
    (
        "firmware",
        re.compile(
            rf"{_GT}(?:load failed: status = 0x|GuC (?:initialization|load) failed|GuC mmio request 0x[0-9a-f]{{1,8}}: no reply|(?:TLB|Global) invalidation (?:fence )?timeout)"
        ),
    ),
    ("survivability", re.compile(r"(?:Runtime |Boot )?[Ss]urvivability [Mm]ode enabled")),
    ("page_fault", re.compile(rf"{_GT}Fault response: Unsuccessful\b")),
)
_LOST = re.compile(rf"{_GT}(?:Force wake domain )?[\w-]{{1,24}}: MMIO unreliable \(")
_DRIVERS = frozenset({"i915", "xe"})


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of Intel's GPU drivers; what it says of displays, firmware versions and power is none."""
    where = message_start.addressed(message)
    if where is None or where["driver"] not in _DRIVERS:
        found = message_start.match(_HANG, message) if message.startswith("[drm") else None
        return _finding("hang", found, None, message) if found else None
    address = grammar.pci(where["pci"])
    if found := _CONTEXT_RESET.match(message, where.end()):
        return _finding("hang", found, address, message)
    for code, pattern in _FORMS:
        if found := message_start.match(pattern, message):
            return _finding(code, found, address, message)
    if message_start.match(_LOST, message):
        return make(FACTS, "gpu_lost", "intel_lost", message, pci_bus_id=address)
    return None


def _finding(code: str, found: re.Match[str], address: str | None, message: str) -> KernelFinding:
    groups = found.groupdict()
    return make(
        FACTS,
        _KIND,
        code,
        message,
        pci_bus_id=address,
        pid=grammar.number(groups.get("pid")),
        process=grammar.name(groups.get("process")),
    )


FAMILY = grammar.LineFamily(
    name=_KIND,
    triggers=("[drm", "GPU HANG", "context reset due to", "wedged", "urvivability ", "cancelling all in-flight", "reset chip", "Resetting ", "following reset"),
    read=read,
    facts=FACTS,
)  # fmt: skip
