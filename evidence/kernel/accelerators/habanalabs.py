"""Habana's accelerators (Gaudi): heartbeats, resets, memory errors, commands that did not end, overheating.

Forms are those of the driver's own messages (drivers/accel/habanalabs); it writes them behind the device (`hl0`, `accel0`) or its address.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_KIND = "habanalabs"
_RESET = "Drain the node, reset the accelerator or reboot; have it replaced if the error returns."
_BOOT = "Drain the node and power-cycle it; have the accelerator replaced if it does not come back."
_LOOK = "Look at the program that used the accelerator and at what the driver says before and after."
_HW, _BOTH, _ALL = "hardware", "hardware system_software", "user_program system_software hardware"
FACTS = {
    (_KIND, "heartbeat"): fact(
        HIGH, _BOTH, "A Habana accelerator no longer answers the driver; the driver resets it.", _RESET
    ),
    (_KIND, "unusable"): fact(
        HIGH, _BOTH, "The driver could not start or reset a Habana accelerator: no program can use it.", _BOOT
    ),
    (_KIND, "reset_begin"): fact(
        LOW, _BOTH, "The driver resets a Habana accelerator; what runs on it is lost.", _LOOK
    ),
    (_KIND, "reset_done"): fact(INFO, _BOTH, "The reset of a Habana accelerator succeeded.", _LOOK),
    (_KIND, "ecc_uncorrectable"): fact(
        HIGH, _HW, "A Habana accelerator met a memory error that it could not correct.", _RESET
    ),
    (_KIND, "ecc"): fact(
        LOW,
        _HW,
        "A Habana accelerator met a memory error; the line does not say whether it corrected it.",
        _RESET,
    ),
    (_KIND, "ecc_correctable"): fact(
        INFO,
        _HW,
        "A Habana accelerator corrected a memory error.",
        "Count them per accelerator; replace one whose rate rises.",
    ),
    (_KIND, "hbm"): fact(LOW, _HW, "The memory controller of a Habana accelerator reports an error.", _RESET),
    (_KIND, "hbm_critical"): fact(
        HIGH, _HW, "The memory controller of a Habana accelerator reports a critical error.", _RESET
    ),
    (_KIND, "firmware"): fact(
        LOW, _BOTH, "The event queue of a Habana accelerator's firmware failed; the driver resets it.", _RESET
    ),
    (_KIND, "command_timeout"): fact(LOW, _ALL, "Work on a Habana accelerator did not end in time.", _LOOK),
    (_KIND, "overheating"): fact(
        LOW,
        _HW,
        "A Habana accelerator slows down because it is too hot.",
        "Check fans, air flow and the cooling of the accelerator.",
    ),
}
_OURS = re.compile(
    rf"(?:habanalabs\s+(?:(?P<pci>{grammar.FULL_PCI})|(?P<device>hl\d{{1,3}}))|accel\s+(?P<accel>accel\d{{1,3}})|habanalabs):\s+(?:{grammar.FULL_PCI} )?(?P<text>\S.*)"
)
_EVENT = r"(?:(?P<event>[A-Z][A-Z\d_]{2,63}|N/A Event): )?"
_ECC = re.compile(rf"{_EVENT}ECC error detected\. address: (?:.{{0,200}}\bcritical (?P<critical>\d))?")
_HBM = re.compile(
    rf"{_EVENT}System Error Interrupt - HBM\(\d{{1,3}}\)(?:.{{0,80}}\bCritical\((?P<critical>\d)\))?"
)
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("heartbeat", re.compile(r"Device heartbeat failed!")),
    (
        "unusable",
        re.compile(
            r"Failed to reset! Device is NOT usable|Failed to initialize \S{1,24}\. Device(?: \S{1,20})? is NOT usable|Consecutive FW fatal errors received, stopping hard reset"
        ),
    ),
    ("reset_begin", re.compile(r"Going to reset device\s*$")),
    ("reset_done", re.compile(r"Successfully finished resetting the \S")),
    ("firmware", re.compile(r"EQ error interrupt received")),
    (
        "command_timeout",
        re.compile(r"(?:[A-Z][a-z]{2,16} ){0,2}[Cc]ommand submission \d{1,20} has not finished in "),
    ),
    ("overheating", re.compile(r"Clock throttling due to overheating")),
)


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of Habana's driver; what it says of firmware versions, users' queues and power is none."""
    ours = _OURS.match(message)
    if ours is None:
        return None
    where = {"pci_bus_id": grammar.pci(ours["pci"]), "device": ours["device"] or ours["accel"]}
    text = ours["text"]
    if found := _ECC.match(text):
        return make(FACTS, _KIND, _grade(found), message, **where)
    if found := _HBM.match(text):
        code = "hbm_critical" if found["critical"] == "1" else "hbm"
        return make(FACTS, _KIND, code, message, **where)
    code = next((code for code, pattern in _FORMS if pattern.match(text)), "")
    return make(FACTS, _KIND, code, message, **where) if code else None


def _grade(found: re.Match[str]) -> str:
    """The code of a memory error, by the event's name and its own mark."""
    event = found["event"] or ""
    if "DERR" in event or found["critical"] == "1":
        return "ecc_uncorrectable"
    return "ecc_correctable" if "SERR" in event or found["critical"] == "0" else "ecc"


FAMILY = grammar.LineFamily(name=_KIND, triggers=("habanalabs", "accel accel"), read=read, facts=FACTS)
