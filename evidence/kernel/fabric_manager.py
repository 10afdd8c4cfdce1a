"""NVIDIA's services on the node: the fabric manager (NVSwitch and NVLink) and the persistence daemon.

They are programs, not the kernel: whoever may log under their names could say it, so it is a kind of its own and
never more than low. The kernel's own SXid line has the catalogue's severity.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar
from probing_cluster.evidence.kernel.grammar import INFO, LOW, KernelContext, KernelFinding, fact, make

_CHECK = (
    "Check `nvidia-smi -q` for the fabric's state; drain the node and restart the fabric manager or reboot."
)
_BOTH = "system_software hardware"
FACTS = {
    ("fabric_manager", "start_failed"): fact(
        LOW,
        _BOTH,
        "The NVIDIA fabric manager could not set up the NVLink fabric; multi-GPU jobs cannot start.",
        _CHECK,
    ),
    ("fabric_manager", "nvlink"): fact(
        LOW, "hardware system_software", "The NVIDIA fabric manager reports an NVLink failure.", _CHECK
    ),
    ("fabric_manager", "nvswitch_fatal"): fact(
        LOW,
        "hardware system_software",
        "The NVIDIA fabric manager reports a fatal error of an NVSwitch.",
        "Look for the kernel's SXid line of the same moment; drain the node and reset GPUs and switches.",
    ),
    ("fabric_manager", "nvswitch_nonfatal"): fact(
        INFO, "hardware", "The NVIDIA fabric manager reports an NVSwitch error that is not fatal.", _CHECK
    ),
    ("fabric_manager", "error"): fact(LOW, _BOTH, "The NVIDIA fabric manager reports an error.", _CHECK),
    ("fabric_manager", "persistence"): fact(
        INFO, _BOTH, "The NVIDIA persistence daemon could not keep a GPU open.", _CHECK
    ),
}
_LOG = re.compile(
    r"(?P<tag>nv-fabricmanager: )?(?:\[(?P<level>ERROR|CRITICAL|WARNING|INFO)\] )?(?:\[tid \d{1,18}\] )?"
)
_SWITCH = re.compile(
    rf"detected NVSwitch (?P<grade>fatal|non-?fatal) error (?P<code>\d{{1,6}}) on .*?pci bus id (?P<pci>{grammar.PCI})(?:.*? port (?P<link>\d{{1,3}}))?",
    re.IGNORECASE,
)
_START = re.compile(
    r"(?:.{0,60}don't match with any supported system topology|failed to (?:initialize|register|configure|start|find any|open|enable)|.{0,80}aborting fabric manager)",
    re.IGNORECASE,
)
_NVLINK = re.compile(r"(?=.{0,200}nvlink).{0,200}(?:fail|error|down|not trained|contain)", re.IGNORECASE)
_DAEMON = re.compile(r"nvidia-persistenced: .{0,200}?(?:[Ff]ailed|[Uu]nable)")


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of one of these services, known by its tag in front or by the form of the fabric manager's own log."""
    if _DAEMON.match(message):
        return make(FACTS, "fabric_manager", "persistence", message)
    front = _LOG.match(message)
    assert front is not None
    text = message[front.end() :]
    if found := _SWITCH.match(text):
        detail = {"sxid": int(found["code"])} | ({"link": int(found["link"])} if found["link"] else {})
        code = "nvswitch_fatal" if found["grade"].lower() == "fatal" else "nvswitch_nonfatal"
        return make(
            FACTS, "fabric_manager", code, message, pci_bus_id=grammar.pci(found["pci"]), detail=detail
        )
    if not (front["tag"] or "[tid " in front[0]) or front["level"] in ("INFO", "WARNING"):
        return None
    if _START.match(text):
        return make(FACTS, "fabric_manager", "start_failed", message)
    if _NVLINK.match(text):
        return make(FACTS, "fabric_manager", "nvlink", message)
    return make(FACTS, "fabric_manager", "error", message) if front["level"] else None


FAMILY = grammar.LineFamily(
    name="fabric_manager",
    triggers=("[tid ", "nv-fabricmanager", "nvidia-persistenced", "detected NVSwitch"),
    read=read,
    facts=FACTS,
)
