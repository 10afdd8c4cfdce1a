"""Main memory and processor: EDAC, machine checks, poisoned pages."""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.evidence.kernel import grammar, message_start, pcie
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_DIMM = "Count them per DIMM; replace a DIMM whose rate rises."
_CPU = "Decode it with rasdaemon; if it returns on this socket, replace the part it names."
FACTS = {
    ("edac", "CE"): fact(INFO, "hardware", "Main memory corrected an error.", _DIMM),
    ("edac", "UE"): fact(
        HIGH,
        "hardware",
        "Main memory could not correct an error.",
        "Drain the node and replace the DIMM it names.",
    ),
    ("edac", "detail"): fact(INFO, "hardware", "Part of a memory error report.", _DIMM),
    ("mce", "bank"): fact(INFO, "hardware", "A processor reported a machine check.", _CPU),
    ("mce", "detail"): fact(INFO, "hardware", "Part of a machine-check or firmware error report.", _CPU),
    ("mce", "cmci_storm"): fact(
        LOW, "hardware", "So many corrected errors that the kernel stopped taking interrupts for them.", _DIMM
    ),
    ("mce", "memory_failure"): fact(
        LOW, "hardware", "A page of main memory is bad and was taken out of use.", _DIMM
    ),
    ("mce", "soft_offline"): fact(
        INFO, "hardware", "A page of main memory with too many corrected errors was given up in time.", _DIMM
    ),
    ("mce", "uncorrected"): fact(HIGH, "hardware", "A processor reported an uncorrected error.", _CPU),
    ("mce", "nmi"): fact(
        LOW, "hardware", "The chipset reported a parity or system error by a non-maskable interrupt.", _CPU
    ),
}
_EDAC = re.compile(
    r"EDAC (?:\w+ )?(?P<mc>MC\d{1,3}|DEVICE\d{1,3}):? ?(?:(?P<count>\d{1,9}) )?(?P<type>CE|UE)\b(?P<text>.*)"
)
_EDAC_NAMES = ("EDAC", "sbridge:")
_ON = re.compile(r"\bon (?P<label>\S+(?: \S*#\S*)*)|label \"(?P<old>[^\"]{1,64})\"")
_EDAC_PART = re.compile(
    r"(?:EDAC \w+ ?(?:MC\d+)?|sbridge): (?:HANDLING MCE MEMORY ERROR|CPU \d+: Machine Check|TSC |ADDR |MISC |PROCESSOR )"
)
_BANK = re.compile(
    r"(?:CPU[: ] ?\d{1,5}: )?Machine Check(?: Exception| Event)?: *(?P<mcg>[0-9a-fx]{1,16}) Bank (?P<bank>\d{1,3}): (?P<status>[0-9a-f]{8,16})"
)
_AMD = re.compile(
    r"\[Hardware Error\]:.*MC(?P<bank>\d{1,2})_STATUS\[(?P<flags>[^\]]{0,80})\]: ?(?:0x)?(?P<status>[0-9a-f]{8,16})"
)
_CPU_NO = re.compile(r"CPU[ :]? ?(?P<cpu>\d{1,5})\b")
_STORM = re.compile(r"CMCI storm detected")
_FAILURE = re.compile(r"Memory failure: 0x[0-9a-f]+:|MCE 0x[0-9a-f]+:|Uncorrected hardware memory error")
_SOFT = re.compile(r"[Ss]oft[ _-]offlin(?:e|ing)\b")
_KILLED = re.compile(
    r"(?:(?:Memory failure: 0x[0-9a-f]+:|MCE(?: 0x[0-9a-f]+)?:) )?(?:[Kk]illing|Sending SIGBUS to) (?P<name>.{1,32}?):(?P<pid>\d{1,18})(?: early)? due to hardware memory corruption"
)
_FATAL = re.compile(
    r"event severity: (?P<sev>fatal|recoverable|corrected|info)|System Fatal error|Uncorrected(?:, |\b.*error)|Deferred error"
)
_CPER = re.compile(
    r"\{(?P<record>\d{1,9})\}\[Hardware Error\]:\s+(?:event severity: (?P<severity>\w+)|section_type: (?P<section>[\w ]{1,40})|device_id: )"
)
"""The lines of one firmware report (UEFI's CPER) carry its number."""
_CPER_DEVICE = re.compile(rf"\bdevice_id: (?P<pci>{grammar.FULL_PCI})")
"""Firmware's report of a PCIe error names the device on a line of its own."""
_PANIC = re.compile(
    r"Kernel panic - not syncing: (?:Fatal (?:local )?[Mm]achine check|.*[Hh]ardware [Ee]rror|Timeout: Not all CPUs entered broadcast exception|Timeout synchronizing machine check)"
    r"|CPUs not responding to MCE broadcast|GHES: Fatal hardware error"
)
_NMI = re.compile(r"NMI: (?:PCI system error \(SERR\)|IOCK error|memory parity error)")
_REPORT = re.compile(r"(?:\{\d{1,9}\}|\w{2,12}: )?\[Hardware Error\]")
_LOGGED = re.compile(
    r"Machine check events logged|BERT: (?:\[Hardware Error\]: )?Error records from previous boot"
)
_UNCORRECTED_BIT, _CONTEXT_CORRUPT_BIT = 61, 57


def _edac(message: str) -> KernelFinding | None:
    if found := message_start.match(_EDAC, message):
        label = _ON.search(found["text"])
        detail = {"count": int(found["count"] or 1), "controller": found["mc"]}
        device = (label["label"] or label["old"]) if label else found["mc"]
        return make(FACTS, "edac", found["type"], message, device=device, detail=detail)
    return make(FACTS, "edac", "detail", message) if message_start.match(_EDAC_PART, message) else None


def _bank(message: str) -> KernelFinding | None:
    """A bank's status; bits 61 and 57 say that it was not corrected."""
    if not (found := message_start.match(_BANK, message) or message_start.match(_AMD, message)):
        return None
    status = int(found["status"], 16)
    uncorrected = bool(status >> _UNCORRECTED_BIT & 1)
    detail: dict[str, Any] = {
        "bank": int(found["bank"]),
        "status": f"{status:016x}",
        "uncorrected": uncorrected,
    }
    detail["context_corrupt"] = bool(status >> _CONTEXT_CORRUPT_BIT & 1)
    if cpu := _CPU_NO.search(message):
        detail["cpu"] = int(cpu["cpu"])
    device = f"cpu{detail['cpu']}" if cpu else None
    if uncorrected:
        fact_of_kind = FACTS["mce", "uncorrected"]
        return make(
            FACTS,
            "mce",
            "bank",
            message,
            device=device,
            detail=detail,
            severity=fact_of_kind.severity,
            meaning=fact_of_kind.meaning,
        )
    return make(FACTS, "mce", "bank", message, device=device, detail=detail)


def _of_fatal_pcie(message: str, context: KernelContext) -> bool:
    """Whether the line belongs to a firmware report of a fatal PCIe error; remembers what its earlier lines say."""
    part = _CPER.match(message)
    if part is None:
        return False
    record = part["record"]
    if part["severity"]:
        context.put("cper", record, part["severity"])
    elif part["section"] and context.get("cper", record) == "fatal":
        context.put("cper", record, f"fatal {part['section']}".strip())
    return bool(context.get("cper", record) == "fatal PCIe error")


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """A line about main memory or the processor's own checks."""
    if message.startswith(_EDAC_NAMES):
        return _edac(message)
    if finding := _bank(message):
        return finding
    if message_start.match(_STORM, message):
        return make(FACTS, "mce", "cmci_storm", message)
    if killed := message_start.match(_KILLED, message):
        return make(
            FACTS,
            "mce",
            "memory_failure",
            message,
            pid=grammar.number(killed["pid"]),
            process=grammar.name(killed["name"]),
        )
    if message_start.match(_FAILURE, message):
        return make(FACTS, "mce", "memory_failure", message)
    if message_start.match(_SOFT, message):
        return make(FACTS, "mce", "soft_offline", message)
    if message_start.match(_PANIC, message):
        return make(FACTS, "mce", "uncorrected", message)
    if message_start.match(_NMI, message):
        return make(FACTS, "mce", "nmi", message)
    if "[Hardware Error]" in message and message_start.match(_REPORT, message):
        graded = _FATAL.search(message)
        bad = graded and graded["sev"] in ("fatal", "recoverable", None)
        device = _CPER_DEVICE.search(message)
        address = grammar.pci(device["pci"]) if device else None
        if _of_fatal_pcie(message, context) and address is not None:
            return make(pcie.FACTS, "pcie_aer", "fatal", message, pci_bus_id=address)
        return make(FACTS, "mce", "detail", message, severity=HIGH if bad else INFO, pci_bus_id=address)
    return make(FACTS, "mce", "detail", message) if message_start.match(_LOGGED, message) else None


FAMILY = grammar.LineFamily(
    name="memory",
    triggers=(
        "EDAC",
        "[Hardware Error]",
        "achine Check",
        "achine check",
        "CMCI storm",
        "emory failure",
        "hardware memory",
        "HANDLING MCE",
        "oft offlin",
        "oft-offlin",
        "entered broadcast exception",
        "MCE broadcast",
        "GHES: Fatal",
        "NMI: ",
        "BERT: Error",
    ),
    read=read,
    facts=FACTS,
)
