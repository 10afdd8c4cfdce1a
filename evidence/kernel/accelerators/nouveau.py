"""nouveau, the open driver: a node's NVIDIA GPU that it holds can run no CUDA, and its faults carry no Xid."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import LOW, KernelContext, KernelFinding, fact, make

_DOMAINS = "user_program system_software hardware"
_NEXT = "See why nouveau and not NVIDIA's driver holds the GPU (blacklist nouveau, rebuild the initramfs); reboot the node."
FACTS = {
    ("nouveau", "lockup"): fact(LOW, _DOMAINS, "The open driver says that a GPU hangs.", _NEXT),
    ("nouveau", "engine_fault"): fact(
        LOW, _DOMAINS, "The open driver reports a fault of a GPU's engine or stopped a program on it.", _NEXT
    ),
}
_OURS = re.compile(
    rf"nouveau(?:\s+(?:(?P<pci>{grammar.FULL_PCI})|[0-9a-f]{{4,16}}\.[\w-]{{1,32}}))?:\s+(?P<text>\S.*)"
)
_LOCKUP = re.compile(r"(?:[A-Za-z]\w{0,15}: )?GPU lockup\b(?![^\[\n]{0,5}\[\d{1,10}\]: )")
_FAULT = re.compile(
    r"(?:fifo: (?:fault [0-9a-f]{2} \[|SCHED_ERROR \d|.{0,40}\bchannel \d{1,6}:? killed|.{0,60}scheduled for recovery)"
    r"|gr: (?:TRAP\b|.{0,60}\bTRAP\b|DATA_ERROR\b|ILLEGAL_|intr )|fb: trapped (?:read|write)|PGRAPH TLB flush idle timeout fail|timer: stalled)"
)


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A fault that nouveau reports; what it says of clocks, displays and firmware is none."""
    if not (found := message_start.match(_OURS, message)):
        return None
    text = found["text"]
    code = "lockup" if _LOCKUP.match(text) else "engine_fault" if _FAULT.match(text) else None
    if code is None:
        return None
    return make(FACTS, "nouveau", code, message, pci_bus_id=grammar.pci(found["pci"]))


FAMILY = grammar.LineFamily(name="nouveau", triggers=("nouveau",), read=read, facts=FACTS)
