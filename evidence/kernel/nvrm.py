"""Messages of the NVIDIA driver without an Xid: GPUs lost, the GSP silent, NVLink start-up, initialisation, assertions."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

FACTS = {
    ("gpu_lost", "gpu_fallen_no_xid"): fact(
        HIGH,
        "hardware",
        "A GPU no longer answers on PCIe and the driver could not even start it; no Xid is printed for this.",
        "Drain the node and power-cycle it; have the GPU replaced if it does not come back.",
    ),
    ("gpu_lost", "gpu_fallen"): fact(
        HIGH,
        "hardware system_software",
        "The GPU has fallen off the bus, without an Xid 79 before it in this log.",
        "Drain the node and power-cycle it; have the GPU replaced if it does not come back.",
    ),
    ("gsp", "rpc_timeout"): fact(
        LOW,
        "system_software hardware",
        "The GPU's system processor (GSP) did not answer a request of the driver.",
        "Look for Xid 119 or 120 on this GPU; drain the node and reset the GPU.",
    ),
    ("gsp", "unresponsive"): fact(
        LOW,
        "system_software hardware",
        "The GPU's system processor (GSP) has stopped.",
        "Look for Xid 119 or 120 on this GPU; drain the node and reset the GPU.",
    ),
    ("gsp", "crash"): fact(
        LOW,
        "system_software hardware",
        "The firmware of the GPU's system processor (GSP) crashed.",
        "Keep the report below it; drain the node and reset the GPU.",
    ),
    ("gsp", "boot_failed"): fact(
        HIGH,
        "system_software hardware",
        "The firmware of the GPU's system processor (GSP) did not start; the GPU cannot be used.",
        "Drain the node and power-cycle it; check that driver and firmware files are of one release if it returns.",
    ),
    ("nvlink", "rx_detect"): fact(
        LOW,
        "hardware system_software",
        "The driver could not see the receiver at the other end of an NVLink.",
        "Compare the NVLink state of this node's GPUs with a healthy node; reset GPUs and switches if links are missing.",
    ),
    ("nvlink", "training"): fact(
        LOW,
        "hardware system_software",
        "An NVLink did not train.",
        "Check the NVLink state of this node's GPUs; reset them, and inspect the link if it stays down.",
    ),
    ("nvlink", "error"): fact(
        LOW,
        "hardware system_software",
        "The driver reports an NVLink failure outside the Xid numbers.",
        "Check the NVLink state of this node's GPUs.",
    ),
    ("driver", "init_failed"): fact(
        HIGH,
        "hardware system_software",
        "The driver could not initialise the GPU: no program can use it.",
        "Drain the node and reboot it; check seating and power of the GPU if it returns.",
    ),
    ("driver", "version_mismatch"): fact(
        LOW,
        "system_software",
        "The driver's library and its kernel module are of different versions.",
        "Reload the module or reboot, so that both sides are of one release.",
    ),
    ("driver", "assertion"): fact(
        INFO,
        "system_software",
        "The NVIDIA driver met a state that it did not expect.",
        "Look for Xids around it; report it to the vendor if it comes with failures.",
    ),
    ("driver", "bar_invalid"): fact(
        LOW,
        "system_software hardware",
        "Firmware gave the GPU no usable PCIe memory window.",
        "Check the BIOS settings for large PCIe windows (Above 4G decoding).",
    ),
}
_WHERE = r"(?:NVRM:\s+|NVRM (?=\w{1,96}: ))(?:GPU\d{1,3}[ :]+)?(?:\w{1,96}: )?(?:GPU\d{1,3} )?"
"""The driver names itself, then newer releases the GPU, then the function."""
_GPU = rf"(?:GPU\s*(?P<pci>{grammar.PCI}):\s*)?"
_PROBED = re.compile(rf"NVRM:\s+The NVIDIA GPU (?P<pci>{grammar.PCI})")
_LOST = re.compile(r"NVRM:.*fallen off the bus and is not responding to commands", re.DOTALL)
_FALLEN = re.compile(rf"NVRM:\s+(?:{_GPU}GPU|GPU at (?P<at>{grammar.FULL_PCI})) has fallen off the bus")
_UUID = re.compile(rf"NVRM:\s+GPU at PCI:(?P<pci>{grammar.PCI}): (?P<uuid>GPU-[0-9a-f-]{{36}})")
_GSP = (
    ("rpc_timeout", re.compile(rf"{_WHERE}rpcRecvPoll timed\s?out")),
    (
        "unresponsive",
        re.compile(
            rf"{_WHERE}(?:Rate limiting GSP RPC error prints for GPU |GSP core unresponsive|GSP-RM unresponsive|(?:GSP RM )?[Hh]eartbeat timed out)|NVRM:\s+(?:GPU\d{{1,3}} )?_kgsp\w+: (?:GPU\d{{1,3}} )?sanity check failed"
        ),
    ),
    (
        "boot_failed",
        re.compile(
            rf"{_WHERE}(?:Cannot initialize GSP firmware RM|failed to execute FWSEC|[Ff]ailed to wait for GFW[_ ](?:BOOT|boot)|[^'\"]{{0,60}}cannot (?:proceed with booting GSP|initialize GSP-RM))"
        ),
    ),
    (
        "crash",
        re.compile(
            rf"{_WHERE}[*\s]{{0,40}}GSP-CrashCat Report|NVRM:\s+(?:GPU\d{{1,3}} )?kflcnCoreDump\w{{0,40}}: TRACE"
        ),
    ),
)
_NVLINK = re.compile(
    r"(?:NVRM:\s+(?:GPU\d{1,3} )?)?knvlink\w*:|nvidia-nvlink:|NVRM:\s++(?!API mismatch|Xid)[^'\"]*?\bNVLink\b"
)
_FAILED = re.compile(r"[Ff]ail(?:ed|ure)|\b[Ee]rror\b|timed out")
_INIT = re.compile(
    rf"NVRM:\s+{_GPU}(?:RmInitAdapter failed|rm_init_adapter(?:\(\d+\))? failed)|nvidia\s+(?P<probe>{grammar.PCI}):[^'\"]{{0,40}}probe [^'\"]{{0,40}}failed|NVRM:\s+pci_enable_device failed"
)
_PROBE = re.compile(rf"\bnvidia: probe of (?P<pci>{grammar.PCI}) failed with error")
_MISMATCH = re.compile(
    r"NVRM: API mismatch: the client (?:'(?P<name>[^']{1,64})' \(pid (?P<pid>\d{1,18})\))?|\bnvidia-nvswitch: Version mismatch, kernel version"
)
_ASSERT = re.compile(
    r"(?:NVRM:|nvidia-[a-z]+:|NVSwitch:) (?:GPU\d{1,3} )?(?:[^\s'\"]{1,96} ){0,3}Assertion failed|NVRM: (?:GPU\d{1,3} )?nv(?:Assert|Check)\w*"
)
_BAR = re.compile(
    rf"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M(?: @ \w{{1,20}} \(PCI:(?P<pci>{grammar.PCI})\))?)"
)


def _lost(message: str, context: KernelContext) -> KernelFinding | None:
    """The two forms without an Xid: one message over three lines, and one that repeats an Xid 79."""
    if probed := message_start.match(_PROBED, message):
        context.put("nvrm", "probed", grammar.pci(probed["pci"]))
    if message_start.match(_LOST, message):
        address = context.pop("nvrm", "probed")
        return make(FACTS, "gpu_lost", "gpu_fallen_no_xid", message, pci_bus_id=address)
    if (found := message_start.match(_FALLEN, message)) and "Xid" not in message:
        address = grammar.pci(found["pci"] or found["at"])
        if address is not None and context.pop("xid79", grammar.bus_address(address)):
            return None
        return make(FACTS, "gpu_lost", "gpu_fallen", message, pci_bus_id=address)
    return None


def continues(text: str, context: KernelContext) -> bool:
    """Whether an indented line is the rest of the driver's message of several lines about a lost GPU.

    Any other indented line may be the rest of a name that a user chose.
    """
    return context.get("nvrm", "probed") is not None and _LOST.match(text.lstrip()) is not None


def _nvlink(message: str) -> KernelFinding | None:
    if not message_start.match(_NVLINK, message) or not _FAILED.search(message):
        return None
    low = message.lower()
    code = "rx_detect" if "rxdet" in low or "rx detect" in low else "training" if "train" in low else "error"
    return make(FACTS, "nvlink", code, message)


def _driver(message: str) -> KernelFinding | None:
    if found := message_start.match(_INIT, message):
        return make(
            FACTS, "driver", "init_failed", message, pci_bus_id=grammar.pci(found["pci"] or found["probe"])
        )
    if found := message_start.match(_PROBE, message):
        return make(FACTS, "driver", "init_failed", message, pci_bus_id=grammar.pci(found["pci"]))
    if found := message_start.match(_MISMATCH, message):
        return make(
            FACTS,
            "driver",
            "version_mismatch",
            message,
            pid=grammar.number(found["pid"]),
            process=grammar.name(found["name"]),
        )
    if message_start.match(_ASSERT, message):
        return make(FACTS, "driver", "assertion", message)
    if found := message_start.match(_BAR, message):
        return make(FACTS, "driver", "bar_invalid", message, pci_bus_id=grammar.pci(found["pci"]))
    return None


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """A line of the driver that carries no Xid."""
    if uuid := message_start.match(_UUID, message):
        context.put("gpu_uuid", grammar.bus_address(grammar.pci(uuid["pci"]) or ""), uuid["uuid"])
        return None
    if finding := _lost(message, context):
        return finding
    for code, pattern in _GSP:
        if message_start.match(pattern, message):
            return make(FACTS, "gsp", code, message)
    return _nvlink(message) or _driver(message)


FAMILY = grammar.LineFamily(
    name="nvrm", triggers=("NVRM", "nvidia", "knvlink", "NVSwitch"), read=read, facts=FACTS
)
