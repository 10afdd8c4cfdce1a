"""HPE Slingshot's NIC (Cassini, driver cxi): links that go down and errors that its driver calls critical.

What each severity means for the NIC: HPE Slingshot 200Gbps NIC documentation, "Kernel Severity" and "Common CXI core error messages".
"""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import fabric, grammar
from probing_cluster.evidence.kernel.grammar import KernelContext, KernelFinding, make

FACTS = {
    key: fabric.FACTS[key]
    for key in (
        ("ib_link", "port_down"),
        ("ib_link", "health_fatal"),
        ("ib_link", "cable_error"),
        ("ib_link", "high_temp"),
        ("ib_link", "init_failed"),
    )
}
_OURS = re.compile(
    rf"cxi_(?:core|ss1|sbl)\s+(?P<pci>{grammar.FULL_PCI}):\s+(?:(?P<device>cxi\d{{1,3}})(?:\[\w{{0,16}}\])?:?\s+)?(?P<text>\S.*)"
)
_DOWN = re.compile(r"CXI_EVENT_LINK_DOWN\b")
_FATAL = re.compile(
    r"C_EC_(?:CRIT|UNCOR)\w{0,4}: \w{1,40} error: (?!pri_rbyp_abort\b|llr_\w)\w|\(sbl\): \d{1,3}: serdes fw corruption alert"
)
"""The driver closes such a NIC. A bypass that PCIe aborted is no fault of it, whatever class it is printed with."""
_INIT = re.compile(r"(?:init_hw|hw_init|probe|init) failed:? -\d")
_CABLE = re.compile(r"C_EC_\w{3,12}: \w{1,40} error: (?:llr_\w|mac_rx_frame_err\b)")
"""Many uncorrected codewords: a poor link, not yet a lost one."""
_SENSOR = re.compile(
    r"uC: ATT1_SENSOR_ALERT: sensor '[^']{1,60}' \(\d{1,6}\) in (?P<state>fatal|critical) state"
)


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of the driver about its link or its health; what it calls transient, corrected or the software's is none."""
    if not (found := _OURS.match(message)):
        return None
    text, code = found["text"], None
    if _DOWN.match(text):
        code = "port_down"
    elif _FATAL.match(text):
        code = "health_fatal"
    elif _INIT.match(text):
        code = "init_failed"
    elif _CABLE.match(text):
        code = "cable_error"
    elif sensor := _SENSOR.match(text):
        code = "health_fatal" if sensor["state"] == "fatal" else "high_temp"
    if code is None:
        return None
    return make(FACTS, "ib_link", code, message, pci_bus_id=grammar.pci(found["pci"]), device=found["device"])


FAMILY = grammar.LineFamily(name="slingshot", triggers=("cxi_",), read=read, facts=FACTS)
