"""AMD's GPUs: RAS errors, bad pages, resets, rings that stand still, page faults, firmware and links.

Forms are those of the driver's own messages (drivers/gpu/drm/amd); it writes them behind its name and the
address, and behind `[drm]` in older releases.
"""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_RESET = "Drain the node and reset the GPU; have it replaced if the error returns."
_BOOT = "Drain the node and power-cycle it; have the GPU replaced if it does not come back."
_LOOK = "Look at the program that used the GPU and at what the driver says before and after."
_HW, _BOTH, _ALL = "hardware", "hardware system_software", "user_program system_software hardware"
FACTS = {
    ("amdgpu", "ras_uncorrectable"): fact(
        HIGH, _HW, "An AMD GPU met hardware errors that it could not correct.", _RESET
    ),
    ("amdgpu", "ras_deferred"): fact(
        LOW, _HW, "An AMD GPU put off an uncorrectable error: the data is poisoned until it is used.", _RESET
    ),
    ("amdgpu", "ras_correctable"): fact(
        INFO,
        _HW,
        "An AMD GPU corrected hardware errors.",
        "Count them per GPU; replace one whose rate rises.",
    ),
    ("amdgpu", "ras_total"): fact(
        INFO, _HW, "An AMD GPU's count of uncorrectable hardware errors since it was started.", _RESET
    ),
    ("amdgpu", "poison"): fact(LOW, _HW, "A program used poisoned data of an AMD GPU's memory.", _RESET),
    ("amdgpu", "bad_page_threshold"): fact(
        HIGH, _HW, "An AMD GPU has as many bad memory pages as it may have.", "Have the GPU replaced."
    ),
    ("amdgpu", "bad_page"): fact(
        LOW,
        _HW,
        "An AMD GPU gave up pages of its memory.",
        "Reset the GPU between jobs; count its bad pages.",
    ),
    ("amdgpu", "reset_begin"): fact(
        LOW, _BOTH, "The driver resets an AMD GPU; what runs on it is lost.", _LOOK
    ),
    ("amdgpu", "reset_done"): fact(INFO, _BOTH, "The reset of an AMD GPU succeeded.", _LOOK),
    ("amdgpu", "reset_failed"): fact(
        HIGH, _BOTH, "The reset of an AMD GPU failed; the GPU cannot be used.", _BOOT
    ),
    ("amdgpu", "ring_timeout"): fact(LOW, _ALL, "Work on an AMD GPU did not end in time.", _LOOK),
    ("amdgpu", "ring_recovered"): fact(
        INFO, _ALL, "Work on an AMD GPU did not end in time and was ended without a reset.", _LOOK
    ),
    ("amdgpu", "fence_timeout"): fact(
        LOW, _BOTH, "An AMD GPU did not answer the driver's own test or wait in time.", _RESET
    ),
    ("amdgpu", "page_fault"): fact(
        INFO, _ALL, "A program on an AMD GPU touched memory that is not mapped.", _LOOK
    ),
    ("amdgpu", "init_failed"): fact(
        HIGH, _BOTH, "The driver could not initialise an AMD GPU: no program can use it.", _BOOT
    ),
    ("amdgpu", "smu"): fact(
        LOW, _BOTH, "The power controller (SMU) of an AMD GPU does not answer the driver.", _RESET
    ),
    ("amdgpu", "over_temperature"): fact(
        HIGH,
        _HW,
        "An AMD GPU passed the temperature at which it or the node is switched off.",
        "Check fans, air flow and the cooling of the GPU before the node runs jobs again.",
    ),
    ("amdgpu", "xgmi"): fact(
        LOW,
        _HW,
        "The driver reports a failure of an AMD GPU's links to its peers (XGMI).",
        "Check the links of this node's GPUs; reset them.",
    ),
    ("gpu_lost", "amdgpu_lost"): fact(HIGH, _HW, "An AMD GPU no longer answers on PCIe.", _BOOT),
}
_COUNT = r"(?:\{\d{1,20}\} ?)?(?:socket: \d{1,3},? )?(?:die: \d{1,3},? )?(?P<count>[1-9]\d{0,18}) (?:new )?"
_DETECTED = r"hardware errors detected in (?P<total>total in )?(?P<block>\w{1,24}) block"
_INTERRUPT = re.compile(
    r"(?:\{\d{1,20}\} ?)?(?P<grade>uncorrectable|deferred|correctable) hardware error ?\((?P<event>\w{1,64})\) detected"
)
"""An error that comes as an interrupt of the whole device; it has no count and names no block."""
_PROCESS = (
    r"(?:.* for process (?P<process>.{1,32}?) pid (?P<pid>\d{1,10}) thread|.*\bpasid:? ?(?P<pasid>\d{1,10}))?"
)
_PRODUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("ras_uncorrectable", re.compile(rf"{_COUNT}uncorrectable {_DETECTED}")),
    ("ras_deferred", re.compile(rf"{_COUNT}deferred {_DETECTED}")),
    ("ras_correctable", re.compile(rf"{_COUNT}correctable {_DETECTED}")),
    (
        "poison",
        re.compile(
            r"(?:\{\d{1,20}\} ?)?(?:RAS )?[Pp]oison (?:is consumed|consumption)|GPU poison|(?:RAS )?[Pp]oison is (?:created|consumed)"
        ),
    ),
    (
        "bad_page_threshold",
        re.compile(
            r"Saved bad pages \d{1,9} reaches threshold value \d|RAS records:\d{1,9} exceed(?:s)? threshold:\d|GPU (?:\S+ )?(?:is )?under bad page threshold|Bad page threshold (?:reached|exceeded)"
        ),
    ),
    (
        "bad_page",
        re.compile(
            r"Reserving \d{1,9} bad pages|Failed to (?:reserve|retire) bad page|Saved \d{1,9} pages to EEPROM"
        ),
    ),
    ("reset_begin", re.compile(r"GPU reset begin!?")),
    ("reset_done", re.compile(r"GPU reset(?:\(\d{1,9}\))? succeeded|GPU reset end with ret = 0\b")),
    (
        "reset_failed",
        re.compile(
            r"GPU reset(?:\(\d{1,9}\))? failed|GPU reset end with ret = -?[1-9]|GPU Recovery Failed|ASIC reset failed with error|(?:MODE|Mode|BACO)[12]? reset failed"
        ),
    ),
    (
        "ring_recovered",
        re.compile(r"[Rr]ing \S{1,40} timeout, but soft recovered|Ring \S{1,40} reset succe(?:eded|ss)"),
    ),
    (
        "ring_timeout",
        re.compile(
            r"[Rr]ing (?P<ring>\S{1,40}) timeout, signaled seq=|Starting (?P<queue>\S{1,40}) ring reset|Ring \S{1,40} reset failed"
        ),
    ),
    (
        "fence_timeout",
        re.compile(
            r"Waiting for fences timed out|IB test failed on|ib ring test failed|ring \S{1,40} test failed|Fence fallback timer expired|MES(?: ?\(\d{1,3}(?:, ?\d{1,3})?\))? (?:failed to respond to|might be in unrecoverable state)|(?:qcm|queue) fence wait loop timeout|Failed to (?:evict process queues|evict queue \d|quiesce KFD|suspend process 0x)|(?:The cp might be|HIQ MQD|cp queue|Resetting wave fronts)\b.*(?:hang|unrecoverable|preempt)",
        ),
    ),
    ("page_fault", re.compile(rf"(?:retry |no-retry )?page fault \((?:address|src_id):?{_PROCESS}")),
    ("page_fault", re.compile(r"GPU fault detected: \d{1,5} 0x[0-9A-Fa-f]{1,16}\b")),
    ("page_fault", re.compile(r"(?:GC|MM)?VM_L2_PROTECTION_FAULT_STATUS(?:_LO32)?: ?0x[0-9A-Fa-f]{1,16}")),
    (
        "init_failed",
        re.compile(
            r"PSP (?:create ring|load \w{1,24}|firmware loading) failed|Fatal error during GPU init|amdgpu_device_ip_(?:early_)?init failed|resume of IP block <\w{1,32}> failed|amdgpu_device_ip_resume failed|(?:hw|sw)_init of IP block <\w{1,32}> failed|probe with driver amdgpu failed with error"
        ),
    ),
    (
        "smu",
        re.compile(
            r"SMU: (?:I'm not done with your previous command|No response msg_reg: |response:0xFFFFFFFF)|SMU is (?:not responding|unresponsive)|Msg issuing pre-check failed and SMU may be not in the right state|[Ff]ailed to setup smc hw|failed send message:|(?:\[powerplay\]\s{0,40})?failed to send message \S{1,10} ret is 65535"
        ),
    ),
    (
        "over_temperature",
        re.compile(
            r"ERROR: (?:GPU over temperature range|GPU HW Critical Temperature Fault|System is going to shutdown due to GPU \w{1,8} CTF)"
        ),
    ),
    (
        "xgmi",
        re.compile(
            r"XGMI: [^'\"]{0,80}(?:[Ff]ail|[Ee]rror)|\S{1,24} XGMI(?: \w{1,8})? PCS error|Failed to add (?:entry to )?xgmi hive",
            re.IGNORECASE,
        ),
    ),
)
_LOST = re.compile(r"device lost from bus!?")
_PROBE = re.compile(rf"amdgpu: probe of (?P<pci>{grammar.FULL_PCI}) failed with error")
_OURS = re.compile(r"amdgpu\b|\[drm")


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of AMD's GPU driver; what it says is fine is none."""
    if not _OURS.match(message):
        return None
    where = message_start.addressed(message)
    address = grammar.pci(where["pci"]) if where else None
    if probed := _PROBE.match(message):
        return make(FACTS, "amdgpu", "init_failed", message, pci_bus_id=grammar.pci(probed["pci"]))
    if message_start.match(_LOST, message):
        return make(FACTS, "gpu_lost", "amdgpu_lost", message, pci_bus_id=address)
    if found := message_start.match(_INTERRUPT, message):
        return _finding(f"ras_{found['grade']}", found, address, message)
    for code, pattern in _PRODUCTIONS:
        if found := message_start.match(pattern, message):
            return _finding(code, found, address, message)
    return None


def _finding(code: str, found: re.Match[str], address: str | None, message: str) -> KernelFinding:
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    if code == "ras_uncorrectable" and "total" in groups:
        code = "ras_total"
    detail: dict[str, Any] = {
        name: groups[name] for name in ("block", "event", "ring", "pasid") if name in groups
    }
    if "count" in groups:
        detail["count"] = int(groups["count"])
    return make(
        FACTS,
        "amdgpu",
        code,
        message,
        pci_bus_id=address,
        pid=grammar.number(groups.get("pid")),
        process=grammar.name(groups.get("process")),
        detail=detail,
    )


FAMILY = grammar.LineFamily(name="amdgpu", triggers=("amdgpu", "[drm"), read=read, facts=FACTS)
