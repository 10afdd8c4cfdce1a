"""Messages of the node's services in syslog: NVIDIA's fabric manager and persistence daemon, watchers of hardware, lookups of
accounts and hosts, and slurmd when it refuses a job.

They are programs, not the kernel: anyone can log under their names (`logger -t smartd`), so these are kinds of their own.
The fabric manager's severity is low at most; the kernel's own SXid line has the catalogue's severity. Messages of watchers of BMC,
memory, drives and arrays are information only: they stand beside a verdict, and cause no verdict and no drain. A node's agent reads
the same hardware itself.
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
    r"(?P<tag>(?:nv|nvidia)-fabricmanager: )?(?:\[(?P<level>ERROR|CRITICAL|WARNING|INFO)\] )?(?:\[tid \d{1,18}\] )?"
)
_SWITCH = re.compile(
    rf"detected NVSwitch (?P<grade>fatal|non-?fatal) error (?P<code>\d{{1,6}}) on .*?pci bus id (?P<pci>{grammar.PCI})(?:.*? port (?P<link>\d{{1,3}}))?",
    re.IGNORECASE,
)
_START = re.compile(
    r"(?:.{0,60}don't match with any supported system topology|(?:fabric manager )?NVIDIA GPU driver interface version \S{1,40} don't match with driver version|failed to (?:initialize|register|configure|start|find any|open|enable)|.{0,80}aborting fabric manager)",
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
    triggers=(
        "[tid ",
        "nv-fabricmanager",
        "nvidia-fabricmanager",
        "nvidia-persistenced",
        "detected NVSwitch",
    ),
    read=read,
    facts=FACTS,
)

HARDWARE = "hardware_report"
WATCHERS = ("ipmiseld", "ipmievd", "mcelog", "rasdaemon", "smartd", "mdadm")
HARDWARE_FACTS = {
    (HARDWARE, "memory"): fact(
        INFO,
        "hardware",
        "A daemon reports a memory error that was not corrected.",
        "Compare with `ipmitool sel elist` and the kernel's EDAC counts; test the module.",
    ),
    (HARDWARE, "processor"): fact(
        INFO,
        "hardware",
        "A daemon reports a processor error that was not corrected.",
        "Compare with `ipmitool sel elist` and the kernel's machine checks.",
    ),
    (HARDWARE, "bmc"): fact(
        INFO,
        "hardware",
        "The BMC's event log, as a daemon copied it, has a critical entry.",
        "Read it with `ipmitool sel elist`.",
    ),
    (HARDWARE, "power"): fact(
        INFO,
        "hardware",
        "The BMC reports that a power supply failed or lost its input.",
        "Read `ipmitool sel elist`; look at the supplies, their cables and the PDU.",
    ),
    (HARDWARE, "drive"): fact(
        INFO, "hardware", "A drive reports that it fails or has lost sectors.", "Run `smartctl -a` on it."
    ),
    (HARDWARE, "array"): fact(
        INFO, "hardware", "An array of drives lost one.", "Look at /proc/mdstat; replace the drive."
    ),
}
_WAY = r"/dev/[\w/.-]{1,60}"
_FRONT = re.compile(rf"(?P<daemon>{'|'.join(WATCHERS)}): (?:rasdaemon: )?")
_BMC = re.compile(
    r"(?:SEL (?:System|OEM) Event[^:]{0,20}:|IPMI event:|.{1,80} sensor )(?=.{0,300}(?P<uncorrected>\buncorrect(?:able|ed)\b)"
    r"|.{0,200}(?P<power>\b(?:power (?:supply|unit)|PSU?\d?)\b.{0,120}\b(?:AC lost|input lost|failure(?: detected)?)\b)(?!.{0,80}\bdeasserted\b)"
    r"|.{0,300}\b(?:critical|non-recoverable|IERR|thermal trip|failure detected)\b)",
    re.IGNORECASE,
)
_BMC_POWER = re.compile(
    r"(?:power (?:supply|unit)|PSU?\d?)\b.{0,40} sensor .{0,80}\b(?:AC lost|input lost|failure)\b.{0,40}\basserted\b|.{0,60}\bleak\w{0,12}\b.{0,60}\basserted\b",
    re.IGNORECASE,
)
"""As ipmievd writes it, the sensor's kind first; a leak of the cooling ends in the power being cut."""
_PROCESSOR = re.compile(r"\b(?:cpu|processor)\b", re.IGNORECASE)
_MEMORY = re.compile(r"\b(?:memory|DIMM\w{0,12}|ECC)\b", re.IGNORECASE)
_RAS = re.compile(
    r"(?:<\.\.\.>-\d{1,8}|\S{1,40}-\d{1,8}) {1,40}\[\d{1,5}\] .{0,60}?(?P<event>mc_event|mce_record|aer_event|extlog_mem_event): (?=.{0,400}\b(?:Uncorrected|Fatal|Uncorrectable)\b)"
)
_MCELOG = re.compile(r"(?:Uncorrected error\b|.{0,60}\buncorrected (?:memory )?errors? )", re.IGNORECASE)
_DRIVE = re.compile(
    rf"Device: (?P<device>{_WAY})(?: \[[^\]]{{1,40}}\])?, (?:FAILED SMART self-check|SMART Failure|[1-9]\d{{0,18}} (?:Currently unreadable \(pending\)|Offline uncorrectable) sectors|Critical Warning \(0x(?!0+\))[0-9a-fA-F]{{1,4}}\)|Failed SMART usage Attribute)"
)
_ARRAY = re.compile(rf"(?:Fail|FailSpare|DegradedArray) event detected on md device (?P<device>{_WAY})")


def read_watcher(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of one of these daemons, known by its tag in front."""
    front = _FRONT.match(message)
    if front is None:
        return None
    text = message[front.end() :]
    match front["daemon"]:
        case "smartd":
            found, code = _DRIVE.match(text), "drive"
        case "mdadm":
            found, code = _ARRAY.match(text), "array"
        case "mcelog":
            found, code = _MCELOG.match(text), _part(text, "processor")
        case "rasdaemon":
            found = _RAS.match(text)
            code = _part(text, "processor") if found and found["event"] == "mce_record" else "memory"
            found = None if found and found["event"] == "aer_event" else found
        case _:
            found = _BMC.match(text)
            code = _part(text, "bmc") if found and found["uncorrected"] else "bmc"
            code = "power" if found and found["power"] else code
            if found is None and (found := _BMC_POWER.match(text)):
                code = "power"
    if found is None:
        return None
    return make(HARDWARE_FACTS, HARDWARE, code, message, device=found.groupdict().get("device"))


def _part(text: str, other: str) -> str:
    """The part that an uncorrected error is of."""
    if _MEMORY.search(text):
        return "memory"
    return "processor" if _PROCESSOR.search(text) else other


HARDWARE_FAMILY = grammar.LineFamily(
    name=HARDWARE, triggers=WATCHERS, read=read_watcher, facts=HARDWARE_FACTS
)

NAMES = "name_service"
LOOKUPS = ("sssd", "sssd_be", "nslcd", "nscd", "ypbind")
NAME_FACTS = {
    (NAMES, "offline"): fact(
        INFO,
        "system_software",
        "What looks up accounts and hosts on this node cannot reach its server.",
        "Ask on the node: `getent passwd USER`, `getent hosts NAME`; then look at the directory server and the way to it.",
    ),
}
_OFFLINE = re.compile(
    r"(?:sssd(?:_be)?: Backend is (?:marked )?offline|nslcd: (?:\[[0-9a-f]{1,8}\] )?(?:<[^>]{1,200}> )?(?:no available LDAP server found|failed to bind to LDAP server .{1,200}: Can't contact LDAP server)"
    r"|nscd: nss_ldap: (?:failed to bind to LDAP server|could not search LDAP server - Server is unavailable)|ypbind: NIS server .{0,200}not responding)"
)


def read_lookup(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of one of these daemons that says that its server is away, known by its tag in front."""
    return make(NAME_FACTS, NAMES, "offline", message) if _OFFLINE.match(message) else None


NAMES_FAMILY = grammar.LineFamily(name=NAMES, triggers=LOOKUPS, read=read_lookup, facts=NAME_FACTS)

SLURMD = "slurmd"
SLURMD_FACTS = {
    (SLURMD, "prolog_failed"): fact(
        INFO,
        _BOTH,
        "slurmd did not start a job on this node: its Prolog failed.",
        "Run the site's Prolog by hand on the node as root; look at what the node's own log says just before.",
    ),
    (SLURMD, "crashed"): fact(
        INFO,
        "system_software",
        "The kernel ended slurmd on this node: Slurm gives the node up unless something starts it again.",
        "Look at slurmd's log and core file on the node, and start it again: `systemctl status slurmd`.",
    ),
}
_CRASH = re.compile(r"slurmd\[\d{1,10}\]: segfault at [0-9a-f]{1,16} ip ")
"""Whoever runs a program of that name makes the kernel write so: it names no cause by itself."""
_PROLOG = re.compile(r"slurmd: (?:slurmd: )?(?:error: )?\[job (?P<job>\d{1,10})\] prolog failed status=\d")


def read_slurmd(message: str, _context: KernelContext) -> KernelFinding | None:
    """The line of slurmd that says whose Prolog failed, known by its tag in front, and the kernel's that it died."""
    if _CRASH.match(message):
        return make(SLURMD_FACTS, SLURMD, "crashed", message)
    found = _PROLOG.match(message)
    if found is None:
        return None
    return make(SLURMD_FACTS, SLURMD, "prolog_failed", message, detail={"job": int(found["job"])})


SLURMD_FAMILY = grammar.LineFamily(
    name=SLURMD,
    triggers=("prolog failed status=", "slurmd["),
    read=read_slurmd,
    facts=SLURMD_FACTS,
)
