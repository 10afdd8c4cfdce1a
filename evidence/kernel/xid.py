"""NVRM Xid lines in every form the driver has printed since 2008."""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.core.catalogue import nvlink5, xid
from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding

_LINE = re.compile(
    r"(?:NVRM:\s{0,4})?Xid\s{0,2}\((?P<where>(?:PCI:)?[^()]{0,64})\):\s{0,4}(?P<code>\d{1,5})(?![\w.])(?P<rest>.*)",
    re.DOTALL,
)
_SHORT = re.compile(r"NVRM:\s{0,4}(?P<where>)Xid\s{1,2}(?P<code>\d{1,4})(?=[,:])(?P<rest>.*)", re.DOTALL)
"""The driver's internal wording, and how people shorten the long one."""
_WHERE = re.compile(
    rf"(?:PCI:)?(?P<pci>{grammar.PCI})(?:\s+GPU-I:(?P<gi>\d{{1,18}}))?(?:\s+GPU-CI:(?P<ci>\d{{1,18}}))?$"
)
_PROCESS = re.compile(
    r",?\s*(?:pid=(?P<pid>[^,\s]{1,32})|(?=name=))(?:,?\s*name=(?P<name>[^,]{0,64}?)(?=,|$|\s{2,}))?,?\s*(?P<text>.*)$",
    re.DOTALL,
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{2,32}(?:/[A-Z0-9_]+)?)\s+(?P<fatal>Non-?fatal|Fatal|Link\s+Fatal)\s+XC(?P<xc>\d)\s+i(?P<injected>\d{1,18})\s+"
    r"Link\s+(?P<link>-?\d{1,3})\s+\((?P<words>0x[0-9a-fA-F]{1,8}(?:\s+0x[0-9a-fA-F]{1,8}){1,5})\)?",
    re.IGNORECASE,
)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-f]+ \((?P<old>[^)]*)\) to 0x[0-9a-f]+ \((?P<new>[^)]*)\)"
)
_CAUSED = re.compile(r"caused by previous Xid (\d{1,4})")
_SM = re.compile(r"\(GPC (?P<gpc>\d{1,18}), TPC (?P<tpc>\d{1,18}), SM (?P<sm>\d{1,18})\)")
_FAULT = re.compile(
    r"faulted @ (?P<address>0x[0-9a-fA-F_]++).{0,400}?Fault is of type (?P<type>\w+) (?P<access>\w+)"
)
_RPC = re.compile(
    r"from (?:GPU(?P<gpu>\d{1,18}) GSP|GSP(?P<gsp>\d{1,18}))!? Expected function (?P<function>\d{1,18}) \((?P<name>\w+)\)"
)
_RESET = re.compile(r"RST: (?P<reset>Yes|No), D-RST: (?P<drain>Yes|No)")
_LINK = re.compile(r"\blink (?P<link>\d{1,2})\b", re.IGNORECASE)
_ROW = re.compile(r"\((?P<row>0x[0-9a-fA-F]{6,18})\)")
_ACTIONS = {
    "None": ("No recovery is needed any more.", INFO),
    "GPU Reset Required": ("The GPU must be reset.", LOW),
    "PF FLR": ("The GPU must be reset (its PCIe function is enough).", LOW),
    "Node Reboot Required": ("The node must be rebooted.", LOW),
    "Drain P2P": ("Peer-to-peer jobs must leave this GPU; then reset it.", LOW),
    "Drain and Reset": ("Let the running jobs end, then reset the GPU.", LOW),
    "Recover IMEX Domain": ("The IMEX domain of this NVLink fabric must be recovered.", LOW),
}


def _nvlink5(code: int, text: str, fields: dict[str, Any], detail: dict[str, Any]) -> None:
    """Decode the two words of Xid 144 to 150; the line's own Fatal decides where the table is silent."""
    if not (found := _NVLINK5.search(text)):
        return
    words = [int(w, 16) for w in found["words"].split()]
    fatal = not found["fatal"].lower().startswith("non")
    unit, sub = found["unit"].upper(), nvlink5.sub_code(words[0])
    detail.update(unit=unit, fatal=fatal, link=int(found["link"]), sub_code=sub, words=words)
    detail.update(cross_contained=found["xc"] == "1", injected=found["injected"] != "0")
    fields["severity"] = HIGH if fatal else INFO
    place = (
        f"NVLink unit {unit}, link {int(found['link'])}, sub-code {sub}: {'fatal' if fatal else 'not fatal'}."
    )
    if rule := nvlink5.decode(code, unit, words[0], words[1]):
        fields.update(domains=rule.domains, next_step=rule.next_step)
        if nvlink5.needs_reset(rule, words[0]):
            fields["severity"] = HIGH
        detail["decoded"] = True
    fields["meaning"] = f"{xid.lookup(code).meaning} {place}"
    if detail["injected"]:
        fields.update(severity=INFO, meaning=f"{fields['meaning']} It was injected by a test.")


def _decode(code: int, text: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Decode this code's free text into `fields` (overrides) and the returned detail."""
    detail: dict[str, Any] = {}
    if 144 <= code <= 150:
        _nvlink5(code, text, fields, detail)
    elif code == 154 and (found := _RECOVERY.search(text)):
        next_step, severity = _ACTIONS.get(found["new"], ("The driver names an action we do not know.", INFO))
        detail.update(recovery_from=found["old"], recovery_to=found["new"])
        fields.update(severity=severity, next_step=next_step)
        fields["meaning"] = f"{xid.lookup(code).meaning} Now: {found['new']}."
    elif code == 45 and (found := _CAUSED.search(text)):
        detail["caused_by_xid"] = int(found[1])
        fields["meaning"] = f"Channels were removed after Xid {found[1]}; that one is the cause."
    for pattern in (_SM, _FAULT, _RPC, _RESET):
        if found := pattern.search(text):
            detail.update({k: v for k, v in found.groupdict().items() if v is not None})
    if code in (74, 137) and (found := _LINK.search(text)):
        detail["link"] = int(found["link"])
    if code in (63, 64) and (found := _ROW.search(text)):
        detail["row"] = found["row"]
    return detail


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """An Xid line; a code that is not a number is none."""
    if not (found := message_start.match(_LINE, message) or message_start.match(_SHORT, message)):
        return None
    code, rest = int(found["code"]), found["rest"].strip()
    where = _WHERE.match((found["where"] or "").strip())
    address = grammar.pci(where["pci"]) if where else None
    entry = xid.lookup(code)
    fields: dict[str, Any] = {
        "severity": entry.severity,
        "domains": entry.domains,
        "meaning": entry.meaning,
        "next_step": entry.next_step,
    }
    process = _PROCESS.match(rest)
    text = process["text"] if process else rest.lstrip(", ")
    detail = _decode(code, text, fields)
    if where:
        detail.update(
            {k: int(where[g]) for k, g in (("gpu_instance", "gi"), ("compute_instance", "ci")) if where[g]}
        )
    if entry.name:
        detail["name"] = entry.name
    if address and (uuid := context.get("gpu_uuid", grammar.bus_address(address))):
        detail["gpu_uuid"] = uuid
    if code == 79 and address:
        context.put("xid79", grammar.bus_address(address), True)
    return KernelFinding(
        kind="xid",
        code=str(code),
        message=sanitize.clean(message[found.start() :]),
        pci_bus_id=address,
        pid=grammar.number(process["pid"].strip("'\"`")) if process and process["pid"] else None,
        process=grammar.name(process["name"]) if process else None,
        detail=detail,
        **fields,
    )


_TABLE = grammar.fact(INFO, "unknown", "see the Xid catalogue", "see the Xid catalogue")
FAMILY = grammar.LineFamily(name="xid", triggers=("Xid",), read=read, facts={("xid", "*"): _TABLE})
