"""How the NVIDIA driver words the Xids that the sandbox injects."""

from __future__ import annotations

BODIES: dict[int, str] = {
    13: "Graphics SM Warp Exception on (GPC 0, TPC 3, SM 0): Out Of Range Address",
    31: "Ch 00000007, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f3a_00000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000008, engmask 00000101, intr 10000000",
    45: "Ch 00000008",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, subpartition 1.",
    61: "Internal micro-controller breakpoint/warning",
    62: "2027 0f9e 0000 0000 0000 0000 0000 0000",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Remapping of row failed, no spare rows left in the bank.",
    74: "NVLink: fatal error detected on link 4(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x3c046",
    119: "Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
    120: "GSP task exception: watchdog timeout (task 6)",
    140: "An uncorrectable ECC error detected (possible action is to reset) DRAM:1, LTC:0, MMU:0, PCIE:0",
    143: "GPU initialization failure",
    145: "RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 0x00000000 0x00000000 0x00000000 0x00000000)",
    149: "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
}
"""Xid to what follows the process in the line."""


def line(code: int, pci: str, pid: int | None, process: str | None, text: str | None = None) -> str:
    """The line as NVRM logs it: the bus address without its function, the process when one is known."""
    process_text = (
        f"pid={pid}, name={process or 'python3'}" if pid is not None else "pid='<unknown>', name=<unknown>"
    )
    body = BODIES.get(code) if text is None else text
    return f"NVRM: Xid (PCI:{pci.rpartition('.')[0]}): {code}, {process_text}{f', {body}' if body else ''}"
