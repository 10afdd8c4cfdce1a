"""Fabric NICs: Mellanox/NVIDIA mlx5 and mlx4, IPoIB, Omni-Path, and carriers that were lost."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_PORT = "Check cable, transceiver and switch port of this HCA; look for the link counters around this time."
_FIRMWARE = "Drain the node and reset it; update the HCA's firmware, replace the HCA if it returns."
_HW = "hardware"
_BOTH = "hardware system_software"
FACTS = {
    ("ib_link", "port_down"): fact(HIGH, _HW, "A fabric port went down.", _PORT),
    ("ib_link", "link_down"): fact(HIGH, _HW, "The network link of a fabric NIC went down.", _PORT),
    ("ib_link", "lost_carrier"): fact(LOW, _HW, "A network interface lost its carrier.", _PORT),
    ("ib_link", "cable_unplugged"): fact(LOW, _HW, "No cable or transceiver in a fabric port.", _PORT),
    ("ib_link", "cable_error"): fact(
        LOW, _HW, "A cable or transceiver of a fabric port reports an error.", _PORT
    ),
    ("ib_link", "port_module_high_temp"): fact(
        LOW, _HW, "A transceiver is too hot.", "Check air flow at the port; replace the transceiver."
    ),
    ("ib_link", "high_temp"): fact(
        LOW, _HW, "The HCA's temperature sensor is over its limit.", "Check fans and air flow of the node."
    ),
    ("ib_link", "pcie_power_insufficient"): fact(
        INFO,
        _HW,
        "The slot offers the HCA less power than it wants; common at boot.",
        "Check slot and BIOS power settings if links fail too.",
    ),
    ("ib_link", "cmd_timeout"): fact(
        LOW, _BOTH, "The HCA's firmware did not answer a command of the driver.", _FIRMWARE
    ),
    ("ib_link", "health_compromised"): fact(
        HIGH, _BOTH, "The HCA's firmware stopped its heartbeat.", _FIRMWARE
    ),
    ("ib_link", "health_fatal"): fact(
        HIGH, _BOTH, "The HCA reports a fatal hardware or firmware error.", _FIRMWARE
    ),
    ("ib_link", "init_failed"): fact(HIGH, _BOTH, "The HCA could not be initialised.", _FIRMWARE),
    ("ib_link", "netdev_watchdog"): fact(
        LOW, _BOTH, "A transmit queue of a fabric NIC stood still.", _FIRMWARE
    ),
    ("ib_link", "tx_timeout"): fact(LOW, _BOTH, "A fabric NIC stopped sending.", _FIRMWARE),
    ("ib_link", "rx_timeout"): fact(LOW, _BOTH, "A fabric NIC's receive channel stopped.", _FIRMWARE),
    ("ib_link", "cqe_error"): fact(
        INFO,
        _BOTH,
        "An operation on the fabric ended with an error; often the peer's fault.",
        "Look at the peer node for the same moment.",
    ),
}
_DRIVERS = frozenset({"mlx4_core", "mlx5_core", "hfi1", "ib_qib", "efa", "irdma", "bnxt_re", "bnxt_en"})
_PROBE = re.compile(
    rf"(?:mlx[45]_core|hfi1|efa|irdma|bnxt_re): probe of (?P<pci>{grammar.FULL_PCI}) failed with error"
)
_OURS = re.compile(
    r"infiniband (?P<device>(?:efa_|rdmap|bnxt_re|irdma|rocep|mlx|hfi1)\w{0,24}):|mlx|efa\b|hfi1\b|bnxt_re\b|bnxt_en\b.*(?:: QPLIB:| (?:bnxt_re|rocep|rdmap)\w{0,24}:)|bnxt_en\b.*[Ff]irmware |bnxt_en\b.*: Error \(timeout|bnxt_en\b.* bnxt_re\d{1,3}:|irdma\b"
)
_CALL = re.compile(r"\w{1,64}:\d{1,6}:\((?P<who>pid)\s(?P<pid>\d{1,18})\):")
_MODULE = re.compile(r"Port module event(?:\[\w+\])?:\s*(?:module (?P<module>\d{1,18}),\s*)?(?P<text>.*)")
_PORT_STATE = re.compile(r"(?:(?P<device>[a-z]\w{0,24}_\d{1,4}):\s+)?Port:?\s\d{1,3}\s+Link DOWN\b")
_WATCHDOG = re.compile(
    r"NETDEV WATCHDOG: (?:(?P<device>[\w.-]+)(?: \((?P<driver>[\w-]+)\)|(?=: transmit))|CPU)"
)
_NETDEV = re.compile(
    rf"mlx[45]\w{{0,8}}(?::|\s+{grammar.FULL_PCI}:?)\s+(?P<device>[A-Za-z][\w.-]{{0,31}}):\s+Link [Dd]own\b"
)
_CARRIER = re.compile(r"(?P<device>[A-Za-z][\w.@-]{0,31}): Lost carrier\b")
_MANAGER = re.compile(
    r"(?:(?:<\w{1,8}>\s+)?(?:\[[\d.]{1,20}\] )?)(?:device )?\((?P<device>[A-Za-z][\w.-]{0,31})\): (?:carrier (?:is|now) OFF|(?:carrier: )?link disconnected|.*(?:-> unavailable|deactivating device) \(reason 'carrier-changed')"
)
"""NetworkManager gives the same reason when a carrier comes: then the device goes from unavailable to disconnected."""
_IPOIB = re.compile(r"(?P<device>ib\d[\w.]{0,12}): transmit timeout: latency")
_OPA = re.compile(
    r"(?P<device>hfi1_\d+):.*(?:logical state changed to PORT_DOWN|[Ll]ink down\b|physical state changed to PHYS_OFFLINE|set_link_state: current ACTIVE, new OFFLINE)"
)
_VIRTUAL = re.compile(
    r"(?:veth|vnet|docker|br-?|virbr|tap|tun|cali|cilium|lxc|flannel|cni|dummy|bond|team|lo|vlan|wlan|wl|wg)(?![A-Za-z]{4})",
    re.ASCII,
)
_PHRASES = (
    (
        "cmd_timeout",
        re.compile(
            r"(?:cmd\[-?\d+\]: )?\w+\(0x[0-9a-f]+\) (?:timeout\. Will cause a leak of a command resource|No done completion)|(?:The device )?didn't send any completion for admin cmd|Wait for completion \(polling\) timeout|FW did not return all pages|failed to allocate command entry|(?:QPLIB: )?cmdq\[0x[0-9a-f]+\]=0x[0-9a-f]+ timed ?out|Firmware stall detected|FW STALL Detected|(?:QPLIB: )?\w{1,40}: FW STALL Detected|Error \(timeout: \d{1,12}\) msg \{|command 0x[0-9a-f]+ timed out"
        ),
    ),
    ("health_compromised", re.compile(r"device's health compromised")),
    (
        "health_fatal",
        re.compile(
            r"Critical temperature reached! Forcing device into freeze mode|synd 0x0*[1-9a-f][0-9a-f]*: |Fatal error (?:\d+ )?detected|PCI slot (?:\d+ )?is unavailable|starting health recovery flow|[Dd]evice is in fatal|health recovery (?:flow aborted|failed)|Health issue observed.*severity\([0-3]\)|Fatal firmware reset event|Firmware reset (?:timeout|aborted)|Internal error detected|handling bad device here|mlx5_error_sw_reset:\d+:\(pid \d+\): start"
        ),
    ),
    (
        "init_failed",
        re.compile(
            r"8051 start timeout, current state|mlx[45]_(?:init_one|load_one) failed|probe_one[^'\"]{0,80} failed with error|Firmware over \d+ MS in (?:pre-)?initializing state, aborting|probe with driver mlx[45]_core failed|Failed to create HW CQ\b|Couldn't (?:create ib_mad (?:CQ|PD|QP\d?)|open port \d{1,3})\b"
        ),
    ),
    ("tx_timeout", re.compile(r"TX timeout (?:detected|on queue)")),
    ("rx_timeout", re.compile(r"RX timeout on channel")),
    ("high_temp", re.compile(r"High temperature on sensors")),
    ("pcie_power_insufficient", re.compile(r"Detected insufficient power on the PCIe slot")),
    (
        "cqe_error",
        re.compile(
            r"(?:\[QP\d{1,8}\] hfi1_tid_timeout \d|dump error cqe|ERR CQE on|Error cqe on cqn|error CQE|WC error: \d+, Message|CQ error on CQN|\w{1,40}: CQ error)",
            re.IGNORECASE,
        ),
    ),
)


def _module(message: str) -> str | None:
    """The code of a transceiver event; None for plugging in and cooling down."""
    if not (found := message_start.match(_MODULE, message)):
        return None
    text = found["text"]
    if "High Temperature" in text:
        return "port_module_high_temp"
    if "Cable unplugged" in text:
        return "cable_unplugged"
    return "cable_error" if "error" in text.lower() else None


def _interface(message: str) -> tuple[str, str | None] | None:
    """Code and interface of a line that names a port or netdev."""
    for code, pattern in (
        ("port_down", _PORT_STATE),
        ("port_down", _OPA),
        ("tx_timeout", _IPOIB),
        ("link_down", _NETDEV),
    ):
        if found := message_start.match(pattern, message):
            return code, found["device"]
    if (found := message_start.match(_WATCHDOG, message)) and (
        message.startswith("mlx") or "(mlx" in message or (found["device"] or "").startswith("ib")
    ):
        return "netdev_watchdog", found["device"]
    if (
        found := message_start.match(_CARRIER, message) or message_start.match(_MANAGER, message)
    ) and not _VIRTUAL.match(found["device"]):
        return "lost_carrier", found["device"]
    return None


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of a fabric NIC; commands refused to a monitor (ACCESS_REG) are none."""
    where, call = message_start.addressed(message), message_start.match(_CALL, message)
    if where and where["driver"] not in _DRIVERS:
        where = None
    device = where["device"] if where else None
    code = _module(message)
    if code is None:
        code = next((name for name, pattern in _PHRASES if message_start.match(pattern, message)), None)
        if code is not None and not call:
            ours = _OURS.match(message)
            code, device = (code, device or ours["device"]) if ours else (None, device)
    probed = _PROBE.match(message)
    if probed:
        code = "init_failed"
    if code is None and (named := _interface(message)):
        code, device = named[0], named[1] or device
    if code is None:
        return None
    return make(
        FACTS,
        "ib_link",
        code,
        message,
        pci_bus_id=grammar.pci(found["pci"]) if (found := where or probed) else None,
        device=device,
        pid=grammar.number(call["pid"]) if call else None,
    )


FAMILY = grammar.LineFamily(
    name="fabric",
    triggers=(
        "mlx",
        "Link DOWN",
        "arrier",
        "Port module event",
        "hfi",
        "transmit timeout",
        "WATCHDOG",
        "efa: probe",
        "admin cmd ",
        "(polling) timeout",
        "irdma: probe",
        "bnxt_",
    ),
    read=read,
    facts=FACTS,
)
