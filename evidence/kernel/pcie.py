"""PCI Express: AER reports with all their detail lines, containment, hot-plug, lost and degraded links; addresses that the IOMMU refused its devices."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_CHECK = "Count them per slot: a rising rate means reseating or replacing the card or riser."
_LOST = "Look for a GPU or NIC lost at the same moment; drain the node and power-cycle it."
FACTS = {
    ("pcie_aer", "corrected"): fact(INFO, "hardware", "A PCIe error that the link corrected itself.", _CHECK),
    ("pcie_aer", "nonfatal"): fact(
        LOW, "hardware", "An uncorrected PCIe error; the link survived, a transaction was lost.", _CHECK
    ),
    ("pcie_aer", "fatal"): fact(
        HIGH, "hardware", "A fatal PCIe error: the link or the device behind it failed.", _LOST
    ),
    ("pcie_aer", "uncorrected"): fact(LOW, "hardware", "An uncorrected PCIe error of unknown grade.", _CHECK),
    ("pcie_aer", "unknown"): fact(
        INFO, "hardware", "A part of a PCIe error report whose first line is missing.", _CHECK
    ),
    ("pcie_aer", "dpc"): fact(
        HIGH, "hardware", "The port cut off the device behind it after an uncorrected error.", _LOST
    ),
    ("pcie_aer", "recovery_failed"): fact(
        HIGH, "hardware system_software", "The kernel could not recover a device after a PCIe error.", _LOST
    ),
    ("pcie_aer", "link_degraded"): fact(
        LOW,
        "hardware",
        "A fast device runs on a PCIe link slower or narrower than it can.",
        "Compare with a healthy node; reseat the card, check riser and BIOS.",
    ),
    ("pcie_link", "link_down"): fact(HIGH, "hardware", "The PCIe link of a slot went down.", _LOST),
    ("pcie_link", "card_removed"): fact(HIGH, "hardware", "The card in a slot is no longer seen.", _LOST),
    ("pcie_link", "power_fault"): fact(
        HIGH,
        "hardware",
        "A slot reported a power fault.",
        "Check the power cabling of the card; drain the node.",
    ),
    ("pcie_link", "train_failed"): fact(HIGH, "hardware", "The PCIe link of a slot did not train.", _LOST),
    ("pcie_link", "inaccessible"): fact(HIGH, "hardware", "A device no longer answers on PCIe.", _LOST),
}
_UNMARKED = re.compile(rf"[A-Za-z][\w-]{{0,30}}\s+(?P<pci>{grammar.FULL_PCI})\s")
_HOTPLUG = re.compile(r"pciehp\b")
_NO_LINK = re.compile(r"DPC: Data Link Layer Link Active not set")
_RECEIVED = re.compile(
    r"(?:AER: )?(?:Multiple )?(?P<grade>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)) error (?:message )?received"
)
_BUS = re.compile(
    r"PCIe Bus Error: severity=(?P<grade>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))"
)
_TYPE = re.compile(r"type=(?P<type>[^,]{1,40}),.{0,80}\((?P<agent>[^()]{1,40})\)")
_STATUS = re.compile(
    r"(?:device \[[0-9a-f:]{9}\] )?error status/mask=(?P<status>[0-9a-f]{8})/(?P<mask>[0-9a-f]{8})|aer_status: 0x(?P<aer>[0-9a-f]{8})"
)
_BIT = re.compile(
    r"(?<=\s)\[\s?(?P<bit>\d{1,2})\]\s(?P<name>[A-Za-z][\w/ -]{2,40}?)\s*(?P<first>\(First\))?\s*$"
)
_REST = re.compile(r"TLP Header:|aer_(?:layer|uncor_severity|agent)\b|Error of this Agent")
_DPC = re.compile(r"DPC: (?:containment event|unmasked uncorrectable error|ERR_(?:NON)?FATAL|RP PIO error)")
_RECOVERY = re.compile(
    r"AER: (?:[Dd]evice recovery failed|subordinate device reset failed|can't recover \(no error_detected callback\))"
)
_SLOT = re.compile(r"pciehp\b.{0,80}?\b[Ss]lot ?\(?(?P<slot>[\w-]{1,40})\)?")
_SLOT_IGNORED = re.compile(r"Link Down/Up ignored|Link Down event (?:ignored|queued)")
_SLOT_CODES = (
    ("link_down", re.compile(r"Link Down\b|: No link\b")),
    ("card_removed", re.compile(r"Card not present")),
    ("power_fault", re.compile(r"Power fault (?:on|detected)|: Power fault")),
    (
        "train_failed",
        re.compile(r"Cannot train link|[Ll]ink [Tt]raining [Ee]rror|Failed to check link status"),
    ),
)
_GONE = re.compile(
    r"[Uu]nable to change power state from \w{1,9} to \w{1,9}, device inaccessible|[Cc]an't change power state from \w{1,9} to \w{1,9} \(config space inaccessible\)|[^'\"]{0,80}\(config space inaccessible\)|not ready \d+ms after (?:FLR|bus reset|resume|DPC|\w+ reset); giving up|PCIe [Ll]ink lost\b|Adapter removed\b"
)
_SPEED = re.compile(
    rf"(?P<now>\d{{1,9}}(?:\.\d{{1,9}})?) Gb/s available PCIe bandwidth, limited by (?P<limit>[\d.]{{1,9}} GT/s (?:PCIe )?x\d+) link at (?P<at>{grammar.PCI}) "
    r"\(capable of (?P<can>\d{1,9}(?:\.\d{1,9})?) Gb/s with (?P<full>[\d.]{1,9} GT/s (?:PCIe )?x\d+) link\)"
)
_ASLEEP = re.compile(
    r"\bpci \S{1,40}: .{0,80} limited by 2\.5 GT/s (?:PCIe )?(?P<lanes>x\d+) link .{0,80} \(capable of .{0,80} GT/s (?:PCIe )?(?P=lanes) link\)"
)
"""While the bus is searched graphics cards still stand at the first speed, with all lanes; they speed up when used."""
_RETRAINED = re.compile(r"broken device, retraining non-functional downstream link at 2\.5GT/s")
_DRIVE = re.compile(
    r"GT/s PCIe x(?P<lanes>[124]) link .{0,80} \(capable of .{0,80} GT/s PCIe x(?P=lanes) link\)"
)
"""A drive with all its lanes is in a slot of an earlier generation, which is no fault."""
_BIG_DEVICE_GBPS = 100.0
"""Links that could carry this much belong to GPUs, fabric NICs and NVMe, where a narrower one costs jobs."""
_CORRECTABLE: tuple[str, ...] = (
    "RxErr",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
)
_CORRECTABLE += (
    "Receiver Error",
    "Bad TLP",
    "Bad DLLP",
    "RELAY_NUM Rollover",
    "Replay Timer Timeout",
    "Advisory Non-Fatal",
)
_CORRECTABLE += ("Corrected Internal Error", "Header Log Overflow")
_FATAL_BY_DEFAULT: tuple[str, ...] = (
    "DLP",
    "SDES",
    "FCP",
    "RxOF",
    "MalfTLP",
    "UncorrIntErr",
    "Data Link Protocol",
    "Surprise Down Error",
)
_FATAL_BY_DEFAULT += (
    "Flow Control Protocol",
    "Receiver Overflow",
    "Malformed TLP",
    "Uncorrectable Internal Error",
)
_CORRECTABLE_BITS = 0x0000F1C1


def _code(grade: str) -> str:
    if grade.startswith("Correct"):
        return "corrected"
    return "nonfatal" if "Non-Fatal" in grade else "fatal"


def _bit_code(name: str) -> str:
    """The grade of a bit by its name, as PCI Express sets it by default."""
    if name.startswith(_CORRECTABLE):
        return "corrected"
    return "fatal" if name.startswith(_FATAL_BY_DEFAULT) else "nonfatal"


def _aer(message: str, address: str | None, context: KernelContext) -> KernelFinding | None:
    """A line of an AER report; detail lines take their grade from the report's first line."""
    key = grammar.bus_address(address) if address else "?"
    if first := message_start.match(_RECEIVED, message) or message_start.match(_BUS, message):
        code, detail = _code(first["grade"]), {}
        context.put("aer", key, code)
        if where := _TYPE.search(message):
            detail = {"layer": where["type"].strip(), "agent": where["agent"]}
        return make(FACTS, "pcie_aer", code, message, pci_bus_id=address, detail=detail)
    graded = context.get("aer", key)
    if status := message_start.match(_STATUS, message):
        bits = int(status["status"] or status["aer"], 16)
        code = graded or ("corrected" if bits and not bits & ~_CORRECTABLE_BITS else "uncorrected")
        return make(FACTS, "pcie_aer", code, message, pci_bus_id=address, detail={"status": bits})
    if bit := message_start.match(_BIT, message):
        detail = {"bit": int(bit["bit"]), "name": bit["name"].strip()}
        return make(
            FACTS, "pcie_aer", graded or _bit_code(detail["name"]), message, pci_bus_id=address, detail=detail
        )
    if message_start.match(_REST, message):
        return make(FACTS, "pcie_aer", graded or "unknown", message, pci_bus_id=address)
    return None


def _link(message: str, address: str | None) -> KernelFinding | None:
    """Slots, links and devices that went away or run slow."""
    if "pciehp" in message:
        if not message_start.match(_HOTPLUG, message):
            return None
        if _SLOT_IGNORED.search(message):
            return None
        slot = _SLOT.search(message)
        device = f"slot {slot['slot']}" if slot else None
        code = next((c for c, pattern in _SLOT_CODES if pattern.search(message)), None)
        return make(FACTS, "pcie_link", code, message, pci_bus_id=address, device=device) if code else None
    if (speed := message_start.match(_SPEED, message)) and float(speed["can"]) >= _BIG_DEVICE_GBPS:
        if _ASLEEP.search(message) or _DRIVE.search(message):
            return None
        detail = {
            "now_gbps": float(speed["now"]),
            "capable_gbps": float(speed["can"]),
            "limited_at": grammar.pci(speed["at"]),
        }
        detail.update(link=speed["limit"], capable_link=speed["full"])
        return make(FACTS, "pcie_aer", "link_degraded", message, pci_bus_id=address, detail=detail)
    if address and message_start.match(_RETRAINED, message):
        return make(FACTS, "pcie_aer", "link_degraded", message, pci_bus_id=address)
    if address and message_start.match(_GONE, message):
        return make(FACTS, "pcie_link", "inaccessible", message, pci_bus_id=address)
    return None


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """A line about a PCIe device; what a test injected is none."""
    if "aer_inject" in message:
        return None
    device = message_start.addressed(message) or _UNMARKED.match(message)
    address = grammar.pci(device["pci"]) if device else None
    if message_start.match(_NO_LINK, message):
        return make(FACTS, "pcie_link", "train_failed", message, pci_bus_id=address)
    if message_start.match(_DPC, message):
        return make(FACTS, "pcie_aer", "dpc", message, pci_bus_id=address)
    if message_start.match(_RECOVERY, message):
        return make(FACTS, "pcie_aer", "recovery_failed", message, pci_bus_id=address)
    if address or "AER:" in message:
        return _aer(message, address, context) or _link(message, address)
    return _link(message, address)


FAMILY = grammar.LineFamily(
    name="pcie",
    triggers=(
        "AER:",
        "PCIe",
        "pcie",
        "DPC: ",
        "error status/mask",
        "TLP",
        "DLLP",
        "DLP",
        "SDES",
        "FCP",
        "RxErr",
        "RxOF",
        "Rollover",
        "NonFatalErr",
        "IntErr",
        "HeaderOF",
        "Cmplt",
        "ECRC",
        "UnsupReq",
        "ACSViol",
        "ACS Viol",
        "Surprise Down",
        "Flow Control",
        "Internal Error",
        "Error of this Agent",
        "aer_",
        "AtomicOp",
        "Blocked",
        "Receiver ",
        "Replay Timer",
        "Completion ",
        "Unsupported Request",
        "Data Link Protocol",
        "Advisory",
        "(First)",
        "] Timeout",
        "Unknown Error Bit",
        "inaccessible",
        "; giving up",
        "dapter removed",
        "non-functional downstream link",
    ),
    read=read,
    facts=FACTS,
)


_REFUSED = "See which device it is and what its driver says; a GPU or NIC that does so again needs a reset or a firmware update."
IOMMU_FACTS = {
    ("iommu", "page_fault"): fact(
        LOW,
        "system_software hardware",
        "The IOMMU refused a device's access to memory that is not mapped for it.",
        _REFUSED,
    ),
    ("iommu", "event"): fact(
        LOW, "hardware system_software", "The IOMMU reports a hardware error or a timeout.", _REFUSED
    ),
}
_AT = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_EVENTS = "IO_PAGE_FAULT|ILLEGAL_DEV_TABLE_ENTRY|INVALID_DEVICE_REQUEST|(?:DEV_TAB|PAGE_TAB|COMMAND)_HARDWARE_ERROR|ILLEGAL_COMMAND_ERROR|IOTLB_INV_TIMEOUT"
_IOMMU_AMD = re.compile(
    rf"(?:Event logged \[|(?=(?:{_EVENTS})(?: device={_AT})?(?: \w{{2,12}}=0x[0-9a-f]{{1,16}})? address=0x))(?P<event>[A-Z_]{{4,32}})(?: device=(?P<pci>{_AT}))?"
)
"""Kernels before 4.20 print the event as a line of its own. Anybody may name a process, with which the kernel begins other lines, but with 15 characters at most."""
_IOMMU_INTEL = re.compile(
    rf"(?:DMAR:)?\s?\[(?:DMA (?:Read|Write)(?: NO_PASID)?|INTR-REMAP)\] Request device \[(?P<pci>{_AT})\]"
)
_IOMMU_ARM = re.compile(
    r"arm-smmu(?:-v3)?\s\S{1,64}: (?:Unhandled context fault: fsr=0x|event 0x[0-9a-f]{1,4} received:|Blocked unknown Stream ID 0x|TLB sync timed out)"
)
"""The first two report a device's access that is not mapped; version 3 prints the event's number."""
_IOMMU_STATUS = re.compile(
    r"(?:DMAR: )?VT-d detected Invalidation (?:Queue|Time-?out|Completion) Error|AMD-Vi: Completion-Wait loop timed out|(?:AMD-Vi: )?(?:Completion-Wait|IOTLB_INV_TIMEOUT)"
)


def read_iommu(message: str, _context: KernelContext) -> KernelFinding | None:
    """A fault that AMD-Vi, Intel's DMAR or Arm's SMMU reports."""
    if found := message_start.match(_IOMMU_AMD, message):
        code = "page_fault" if found["event"] == "IO_PAGE_FAULT" else "event"
    elif found := message_start.match(_IOMMU_INTEL, message):
        code = "page_fault"
    elif found := _IOMMU_ARM.match(message):
        code = "event" if "TLB sync" in found[0] else "page_fault"
        return make(IOMMU_FACTS, "iommu", code, message)
    elif message_start.match(_IOMMU_STATUS, message):
        return make(IOMMU_FACTS, "iommu", "event", message)
    else:
        return None
    where = message_start.addressed(message)
    address = grammar.pci(where["pci"] if where else found["pci"])
    return make(IOMMU_FACTS, "iommu", code, message, pci_bus_id=address)


IOMMU_FAMILY = grammar.LineFamily(
    name="iommu",
    triggers=(
        "Event logged [",
        "FAULT device=",
        "ERROR device=",
        "REQUEST device=",
        "ENTRY device=",
        "TIMEOUT device=",
        "_ERROR address=",
        "DMAR",
        "Request device [",
        "VT-d detected",
        "AMD-Vi",
        "arm-smmu",
    ),
    read=read_iommu,
    facts=IOMMU_FACTS,
)
