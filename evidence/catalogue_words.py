"""Our words for the vendor's: meanings, next steps and severities the catalogue generator writes."""

from __future__ import annotations

from probing_cluster.core.errors import MalformedInput

DRIVER_DATES = {"595.45.04": "2026-03"}
"""Release month of the driver sources the facts were read from."""

STEPS = {
    "": "No advice is published; keep the line as evidence and look at the events around it.",
    "IGNORE": "Nothing to do for this line alone; look at the events around it.",
    "IGNORE (sympathetic)": "Follow the error that came with it.",
    "N/A Informational only regarding another Xid": "Follow the Xid that came just before.",
    "RESTART_APP": "Restart the job; if other programs show it on the same GPU, test that GPU.",
    "RESTART_BM": "Drain the node and power-cycle it; if the GPU does not come back or it happens again, have it replaced.",
    "RESTART_VM": "Restart the virtual machine.",
    "RESET_GPU": "Drain the node and reset the GPU; if it returns, run the vendor's diagnostics.",
    "RESET_FABRIC": "Drain the nodes on this NVSwitch fabric and reset it with its GPUs.",
    "CONTACT_SUPPORT": "If it returns, collect nvidia-bug-report and open a case with the vendor.",
    "CHECK_MECHANICALS": "Check seating and auxiliary power of the GPU board.",
    "CHECK_LINK_MECHANICAL_CONNECTIONS": "Check the seating of both ends of the link.",
    "CHECK_THERMALS": "Check fans, air flow and coolant of the chassis.",
    "CHECK_FM_CONFIG": "Check the Fabric Manager's configuration and version.",
    "CHECK_APP/CUDA": "Run the program under compute-sanitizer.",
    "CHECK_UVM": "Look for memory errors on the CPU side and for other Xids.",
    "CHECK_NVLINK_FAILURE_FLOW": "Check both ends of the NVLink named for errors.",
    "RUN_FIELDDIAG": "Drain the node and run the vendor's field diagnostics.",
    "UPDATE_SWFW": "Bring driver and firmware to matching versions.",
    "WORKFLOW_XID_13": "Run the program under compute-sanitizer; test the GPU if other programs fail on it too.",
    "WORKFLOW_XID_31": "Run the program under compute-sanitizer; test the GPU if other programs fail on it too.",
    "WORKFLOW_XID_45": "Find the error before it: this one only cleans up.",
    "WORKFLOW_XID_48": "Drain the node, reset the GPU and check its row-remap state.",
    "WORKFLOW_NVLINK_ERR": "Drain the node, reset the GPU, and check the link and its peer if it returns.",
    "WORKFLOW_NVLINK5_ERR": "Read the sub-code; if it is fatal, drain the node and reset the GPU.",
    "WORKFLOW_NVLINK_POTENTIALLY_FATAL_ERR": "Check the GPUs behind this link for Xid 74 or 45; if there, reset GPUs and switch.",
    "XID_154": "Do the recovery action it names.",
    "XID_154_EVAL": "Look for Xid 154 and do the recovery action it names.",
    "XID_137_FLOW": "Look at the peer GPU: the fault lies at the other end.",
    "INVESTIGATE_SW": "Compare driver and firmware versions with healthy nodes.",
    "INVESTIGATE_SW_USER": "Find out which software brought the link down on purpose.",
    "INVESTIGATE_SW/USER": "Find out which software brought the link down on purpose.",
    "INVESTIGATE_SW_USER_LINK_SI": "Find out whether software took the link down; else check the link's signal quality.",
    "INVESTIGATE_LINK_SI": "Check the link's error counters and signal quality.",
    "INVESTIGATE_LINK_SI_AND_CABLES": "Check the link's error counters, signal quality and cables.",
    "INVESTIGATE_PEER_DEVICE": "Look at the device at the other end of the link: the fault started there.",
    "INVESTIGATE_HOST": "Look at the host for what stopped the link.",
    "REPORT_ISSUE": "Open a case with the vendor.",
    "REPORT_ISSUE (if seen >1 per day)": "Open a case with the vendor if it is seen more than once a day.",
    "UNEXPECTED_ERR_REPORT_ISSUE": "This should not be seen in production: open a case with the vendor.",
    "SYMPATHETIC_REPORT_SOLO": "If no other error came with it, open a case with the vendor.",
}
"""The vendor's action words, in sentences."""

XID_MEANINGS = {
    13: "A kernel on the GPU raised an exception (bad address, illegal instruction, misaligned access); mostly the program's own bug.",
    31: "A kernel touched memory that is not mapped or not allowed; mostly the program's own bug.",
    43: "The driver tore down a channel after a fault of the program (assert, abort); the GPU itself is well.",
    45: "Channels were removed because something failed earlier or the process was killed; a consequence, not a cause.",
    48: "An uncorrectable (double-bit) ECC error in GPU memory.",
    61: "The GPU's power-management unit stopped at a breakpoint.",
    62: "The GPU's power-management unit halted.",
    63: "A bad memory row or page was marked for replacement; it takes effect at the next GPU reset.",
    64: "Replacing a bad memory row or page failed: the GPU has no working spare for it.",
    74: "An NVLink of this GPU failed.",
    79: "The GPU has fallen off the bus: the driver cannot reach it over PCIe any more.",
    92: "The rate of corrected single-bit ECC errors is high.",
    94: "An uncorrectable memory error was contained to the program that met it; other programs are not affected.",
    95: "An uncorrectable memory error could not be contained: every program on the GPU is affected.",
    109: "Switching to another program's context on the GPU did not finish in time.",
    119: "The GPU's system processor (GSP) did not answer the driver in time.",
    120: "The GPU's system processor (GSP) firmware failed.",
    140: "Uncorrectable ECC errors escaped the handling that would have retired the memory.",
    143: "The GPU failed to initialise.",
    149: "An NVLink went down or reported link trouble; the sub-code says why.",
    154: "The driver changed the recovery action that this GPU needs.",
}
"""Sentences for the codes people meet; the rest take the facts' description."""

XID_STEPS = {
    43: "Fix the program; nothing to do on the node.",
    48: "Drain the node, reset the GPU and check its row-remap state; replace it if remapping fails.",
    63: "Reset the GPU when its jobs have ended, so that the replacement takes effect.",
    64: "Drain the node and have the GPU replaced.",
    92: "Watch this GPU's ECC counters; open a case if uncorrectable errors follow.",
    94: "Restart the job; reset the GPU when it is free, and check its row-remap state.",
    95: "Drain the node and reset the GPU; replace it if it returns.",
    119: "Drain the node and reset the GPU or reboot; if several nodes show it, look for a known bug of this driver.",
    120: "Drain the node and reset the GPU or reboot; if several nodes show it, look for a known bug of this driver.",
}

_XID_HIGH = frozenset({48, 64, 74, 79, 95, 119, 120, 136, 140, 143, 158, 167, 171, 172, 173})
"""GPU unreachable, uncorrectable ECC, failed remap, NVLink or PCIe down: nothing can run there."""
_XID_LOW = frozenset(
    {61, 62, 63, 92, 94, 144, 145, 146, 147, 148, 149, 150, 154, 155, 156, 157, 160, 161, 168, 169, 175}
)
"""Look at it once the running jobs have ended."""


def xid_severity(code: int, domains: str, immediate_action: str) -> str:
    """High and low by list; a reset that no user program can provoke is low; all else is info."""
    if code in _XID_HIGH:
        return "high"
    if code in _XID_LOW or (immediate_action == "RESET_GPU" and "user_program" not in domains):
        return "low"
    return "info"


_FATAL_SWITCH = "fatal(whole switch)"
_SXID_CLASSES = {
    "": None,
    "always_fatal": "high",
    "potentially_fatal": "low",
    "nonfatal": "info",
    "other_notable": "info",
}


def sxid_severity(by_arch: str, manual_class: str, what: str) -> str:
    """What to think of an SXid whose line does not itself say fatal or not."""
    words = {part.split(":", 1)[1].strip() for part in by_arch.split(";") if part}
    known = {
        _FATAL_SWITCH,
        "fatal",
        "non-fatal",
        "fatal/non-fatal",
        "fatal if contained else non-fatal",
        "unspecified",
    }
    if words - known or manual_class not in _SXID_CLASSES:
        msg = f"{what}: severity {by_arch!r}, class {manual_class!r}"
        raise MalformedInput(msg)
    if _FATAL_SWITCH in words:
        return "high"
    if graded := _SXID_CLASSES[manual_class]:
        return graded
    return "low" if "fatal" in words else "info"


NVLINK5_SEVERITY = {"Fatal": "high", "Link Fatal": "high", "Non-fatal": "info"}
NVLINK5_SOURCE = ("NVIDIA Xid-Catalog.xlsx", "2025-10")
"""Where the decode table was published; the table itself carries no source column."""
NVLINK5_DOMAINS = {
    "HW": "hardware",
    "SW": "system_software",
    "FW": "system_software",
    "HW/SW": "hardware|system_software",
    "NA": "hardware|system_software",
}


def sentence(text: str) -> str:
    """`text` with a capital and a full stop."""
    text = " ".join(text.split()).rstrip(" .;:")
    return text[:1].upper() + text[1:] + "."
