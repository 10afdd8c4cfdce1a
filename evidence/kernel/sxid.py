"""NVSwitch SXid lines: the line's own Fatal or Non-fatal decides, else the catalogue."""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.core.catalogue import sxid
from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, KernelContext, KernelFinding

_LINE = re.compile(
    rf"(?:nvidia-)?(?P<device>nvswitch\d{{1,3}}):\s+SXid\s*\((?:PCI:)?(?P<pci>{grammar.PCI})\):\s*(?P<code>\d{{1,6}})(?![\w.])(?P<rest>.*)",
    re.DOTALL,
)
_GRADE = re.compile(r",?\s*(?P<grade>Fatal|Non-?[Ff]atal|Correctable)\b,?\s*(?P<text>.*)", re.DOTALL)
_ENGINE = re.compile(
    r"Severity (?P<severity>\d) Engine instance (?P<engine>\d{1,18}) Sub-engine instance (?P<sub>\d{1,18})"
)
_LINK = re.compile(r"\bLink (?P<link>\d{1,3})\b")
_MULTICAST = re.compile(r"\bMC (?:TS )?(?:tag|crumb)")
_HANDLED = (
    "Nothing now: the driver calls it non-fatal. If it comes again and again, test this NVSwitch fabric."
)
_DATA = re.compile(r",?\s*Data\s*\{")


def _entry(code: int, text: str) -> sxid.SXidEntry:
    """The catalogue's entry; drivers up to R5xx number the multicast block 28xxx, which is 29xxx now."""
    if 28001 <= code <= 28099 and _MULTICAST.search(text):
        return sxid.lookup(code + 1000)
    return sxid.lookup(code)


def _finding(code: int, device: str | None, address: str, rest: str, message: str) -> KernelFinding:
    """The finding of error `code`; `rest` is what the line says behind the number."""
    entry, detail = _entry(code, rest), dict[str, Any]()
    severity, meaning = entry.severity, entry.meaning
    if grade := _GRADE.match(rest):
        word = grade["grade"].lower().replace("nonfatal", "non-fatal")
        detail["grade"] = word
        severity = HIGH if word == "fatal" else INFO
        if entry.meaning == "unknown":
            meaning = f"NVSwitch error {code}, {word}, not in the tables we know."
    elif engine := _ENGINE.search(rest):
        fatal = engine["severity"] == "1"
        detail.update(grade="fatal" if fatal else "non-fatal", engine=int(engine["engine"]))
        severity = HIGH if fatal else INFO
    elif _DATA.match(rest):
        detail["part"], severity = "data", INFO
    if link := _LINK.search(rest):
        detail["link"] = int(link["link"])
    next_step = entry.next_step
    if detail.get("grade") == "non-fatal" and next_step.startswith("Drain "):
        next_step = _HANDLED
    if entry.name:
        detail["name"] = entry.name
    return KernelFinding(
        kind="sxid",
        code=str(code),
        severity=severity,
        domains=entry.domains,
        meaning=meaning,
        next_step=next_step,
        message=sanitize.clean(message),
        device=device,
        pci_bus_id=grammar.pci(address),
        detail=detail,
    )


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """One SXid line, its data and engine lines too, as parts of the same error."""
    if found := message_start.match(_LINE, message):
        return _finding(
            int(found["code"]), found["device"], found["pci"], found["rest"], message[found.start() :]
        )
    return None


_TABLE = grammar.fact(INFO, "unknown", "see the SXid catalogue", "see the SXid catalogue")
FAMILY = grammar.LineFamily(name="sxid", triggers=("SXid",), read=read, facts={("sxid", "*"): _TABLE})
