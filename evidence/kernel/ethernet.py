"""Ethernet NICs and bonds whose link went down or whose queues stopped."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import INFO, LOW, KernelContext, KernelFinding, fact, make

_CHECK = "Check cable, transceiver and switch port of this interface."
FACTS = {
    ("eth_link", "link_down"): fact(LOW, "hardware", "An Ethernet link went down.", _CHECK),
    ("eth_link", "bond_slave_down"): fact(LOW, "hardware", "A bond lost one of its links.", _CHECK),
    # Whoever has a network namespace of their own can write these two. The agent looks at the node's own bonds
    # and makes bond_down high, or both of them `unconfirmed`; a log by itself cannot tell.
    ("eth_link", "bond_down"): fact(LOW, "hardware", "A bond has no working link left.", _CHECK),
    ("eth_link", "unconfirmed"): fact(
        INFO,
        "user_program",
        "A bond or link went down that the node itself does not have, or that is up there: a program's own network namespace, or a link that came back at once.",
        "Nothing, unless the node's own links flap.",
    ),
    ("eth_link", "netdev_watchdog"): fact(
        LOW, "hardware system_software", "A transmit queue of an Ethernet NIC stood still.", _CHECK
    ),
    ("eth_link", "tx_timeout"): fact(
        LOW, "hardware system_software", "An Ethernet NIC stopped sending.", _CHECK
    ),
}
_DOWN = re.compile(
    rf"(?:(?P<driver>[a-z][\w-]{{1,20}})\s+(?P<pci>{grammar.FULL_PCI})(?:\s+(?P<unnamed>\(unnamed net_device\)[^:]*))?:?\s+)?"
    r"(?:[a-z][\w-]{1,30}\s+(?:[\w.-]{1,40}:[0-9a-f]{2}|[0-9a-f]{4,16}\.[\w-]{1,32})\s+(?=[\w.-]{1,32}: ))?"  # on a bus that is not PCI: MDIO, a SoC's own
    r"(?:[a-z]\w{1,20}: (?=\S{1,32} NIC |[A-Za-z][\w.-]{0,31}: ))?(?:(?P<device>[A-Za-z][\w.-]{0,31})(?::\s+|\s+(?=NIC )))?(?:NIC (?:\w+ )?)?[Ll]ink (?:is )?[Dd]own\b"
)
_SLAVE = re.compile(
    r"(?:bonding: )?(?P<bond>\w+): (?:(?:\(slave (?P<slave>[\w.-]+)\): )?link status (?:definitely )?down(?: for (?:active )?interface (?P<interface>[\w.-]+))?|Port device (?P<port>[\w.-]+) link down\b)"
)
_BOND = re.compile(r"(?:bonding: )?(?P<device>\w+): now running without any active interface")
_WATCHDOG = re.compile(
    r"NETDEV WATCHDOG: (?:(?P<device>[\w.-]+)(?: \((?P<driver>[\w-]+)\)|(?=: transmit))|CPU)"
)
_HANG = re.compile(
    r"(?:Detected (?:Tx|Hardware) Unit Hang|Tx Unit Hang\b|Tx timeout\. Index \d|Keep alive watchdog timeout|[Tt](?:X|x|ransmit)(?: queue \d{1,4})?[ _][Tt]ime(?:d[ _])?[ _]?out\b|Tx Timeout triggered\b|Found a Tx that wasn't completed on time|TX hasn't completed, qid \d|TX q \d{1,4} is paused for too long|napi handler hasn't been called for a long time|HWC: Request timed out|Transaction timed-out \(op:\d|Detected Tx timeout\b|(?:atlantic|nfp): TX time|[Pp]otential MSIX issue on Tx side|(?:The )?number of lost tx completions is above the threshold|initiating reset due to (?:lost link with pending Tx work|tx timeout)|tx hang(?: detected| \d|$)|TX stuck with port_enabled|\[qede_tx_timeout:\d{1,6}\([^()]{0,40}\)\]|Rebuild failed, unload and reload driver|Timeout on tx queue|Reset adapter unexpectedly)"
)
_PHY = re.compile(
    r"[^:\n]{1,80}:[\w:.-]{0,40}: attached PHY driver\b.{0,80}mii_bus:phy_addr=(?P<driver>[A-Za-z]\w{1,20})"
)
"""A message of an interface during its setup; a link that it then reports as down has not been up yet."""
_VIRTUAL = re.compile(
    r"(?:veth|vnet|docker|br-|virbr|tap|tun|cali|cilium|lxc|flannel|cni|dummy|ata\d|usb\d)", re.ASCII
)


def _begins(device: str, message: str, context: KernelContext) -> bool:
    """Whether a link is called down by an interface that has just been set up, once for each time it was."""
    name = message.partition(" ")[0]
    expected = context.get("phy", name) or 0
    if expected:
        context.put("phy", name, expected - 1)
    return bool(expected) and not _VIRTUAL.match(device)


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """A line about an Ethernet link; fabric NICs, virtual interfaces and SATA or PCIe links are not ours."""
    if (
        "mlx" in message
        or "pcieport" in message
        or "pciehp" in message
        or "SATA" in message
        or "NVLink" in message
        or message.startswith("AirPort: ")  # macOS: a laptop's log among the nodes'
    ):
        return None
    if phy := _PHY.match(message):
        context.put("phy", phy["driver"], (context.get("phy", phy["driver"]) or 0) + 1)
        return None
    if slave := message_start.match(_SLAVE, message):
        device = slave["slave"] or slave["interface"] or slave["port"] or slave["bond"]
        if _VIRTUAL.match(device):
            return None
        detail = {"bond": slave["bond"]}
        return make(FACTS, "eth_link", "bond_slave_down", message, device=device, detail=detail)
    if bond := message_start.match(_BOND, message):
        return make(FACTS, "eth_link", "bond_down", message, device=bond["device"])
    driver = message_start.addressed(message)
    address = grammar.pci(driver["pci"]) if driver else None
    named = (driver["device"] or driver["usb"]) if driver else None
    if watchdog := message_start.match(_WATCHDOG, message):
        device = watchdog["device"] or named
        return (
            None
            if (device or "").startswith("ib")
            else make(FACTS, "eth_link", "netdev_watchdog", message, device=device, pci_bus_id=address)
        )
    if message_start.match(_HANG, message):
        return make(FACTS, "eth_link", "tx_timeout", message, device=named, pci_bus_id=address)
    if (down := message_start.match(_DOWN, message)) and (device := down["device"] or named):
        return (
            None
            if _VIRTUAL.match(device) or _begins(device, message, context)
            else make(FACTS, "eth_link", "link_down", message, device=device, pci_bus_id=address)
        )
    return None


FAMILY = grammar.LineFamily(
    name="ethernet",
    triggers=(
        "ink is Down",
        "ink is down",
        "ink down",
        "ink Down",
        "WATCHDOG",
        "link status down",
        "definitely down",
        "any active interface",
        "Unit Hang",
        "TX timeout",
        "tx timeout",
        "tx_timeout",
        "Tx timeout",
        "Keep alive watchdog",
        "lost tx completions",
        "ransmit time",
        "ransmit queue",
        "reset due to",
        "tx hang",
        "TX stuck",
        "on tx queue",
        "Reset adapter",
        "completed on time",
        "hasn't completed, qid",
        "paused for too long",
        "napi handler hasn't",
        "HWC: Request timed",
        "Transaction timed-out",
        "Tx Timeout",
        "TX timed out",
        "link down",
        "MSIX issue",
        "qede_tx_timeout",
        "Rebuild failed",
        "attached PHY driver",
    ),
    read=read,
    facts=FACTS,
)
