"""Addresses that the IOMMU refused: a device, its driver or the mapping is wrong."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, head
from probing_cluster.evidence.kernel.grammar import LOW, KernelContext, KernelFinding, fact, make

_NEXT = "See which device it is and what its driver says; a GPU or NIC that does so again needs a reset or a firmware update."
FACTS = {
    ("iommu", "page_fault"): fact(
        LOW,
        "system_software hardware",
        "The IOMMU refused a device's access to memory that is not mapped for it.",
        _NEXT,
    ),
    ("iommu", "event"): fact(
        LOW, "hardware system_software", "The IOMMU reports a hardware error or a timeout.", _NEXT
    ),
}
_AT = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_AMD = re.compile(rf"Event logged \[(?P<event>[A-Z_]{{4,32}})(?: device=(?P<pci>{_AT}))?")
_INTEL = re.compile(
    rf"(?:DMAR:)?\s?\[(?:DMA (?:Read|Write)(?: NO_PASID)?|INTR-REMAP)\] Request device \[(?P<pci>{_AT})\]"
)
_STATUS = re.compile(
    r"AMD-Vi: Completion-Wait loop timed out|(?:AMD-Vi: )?(?:Completion-Wait|IOTLB_INV_TIMEOUT)"
)


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A fault that AMD-Vi or Intel's DMAR reports."""
    if found := head.match(_AMD, message):
        code = "page_fault" if found["event"] == "IO_PAGE_FAULT" else "event"
    elif found := head.match(_INTEL, message):
        code = "page_fault"
    elif head.match(_STATUS, message):
        return make(FACTS, "iommu", "event", message)
    else:
        return None
    where = head.addressed(message)
    address = grammar.pci(where["pci"] if where else found["pci"])
    return make(FACTS, "iommu", code, message, pci_bus_id=address)


FAMILY = grammar.LineFamily(
    name="iommu", triggers=("Event logged [", "DMAR", "Request device [", "AMD-Vi"), read=read, facts=FACTS
)
