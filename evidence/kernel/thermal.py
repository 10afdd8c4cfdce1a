"""Heat and power of the node itself."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_COOL = "Check fans, air flow and room temperature; compare with the neighbours in the rack."
FACTS = {
    ("thermal", "cpu_throttle"): fact(INFO, "hardware", "A processor was too hot and slowed down.", _COOL),
    ("thermal", "critical"): fact(HIGH, "hardware", "A sensor reached its critical temperature.", _COOL),
    ("thermal", "device_hot"): fact(LOW, "hardware", "A device reports that it is too hot.", _COOL),
    ("power", "cpu_power_limit"): fact(
        INFO,
        "hardware",
        "A processor reached its power limit and slowed down.",
        "Check the node's power settings and supplies.",
    ),
    ("power", "supply_failure"): fact(
        LOW,
        "hardware",
        "A power supply failed or lost its input.",
        "Replace the supply, or restore its feed.",
    ),
}
_CPU = re.compile(
    r"\b(?P<cpu>CPU ?\d+): (?:Package|Core|[Tt]emperature) ?(?:temperature )?(?:is )?above threshold"
)
_CRITICAL = re.compile(
    r"(?:(?:thermal_zone\d{1,3}|[\w-]{1,32}): )?(?:critical|emergency) temperature (?:\S{1,16} )?reached|(?:ACPI: )?(?:[\w\[\] -]{1,40}: )?Critical trip point$|"
    r"temperature [^'\"]{0,60}exceed\w* [^'\"]{0,40}critical|thermal (?:trip|shutdown)|(?:reboot: )?HARDWARE PROTECTION shutdown \(temperature",
    re.IGNORECASE,
)
_HOT = re.compile(
    r"(?P<device>nvme\d+|ast\d*|i40e|ice|bnxt_en)\b.*(?:temperature (?:above|exceeds)|[Oo]ver ?heat|over temp|thermal (?:alarm|threshold))|temperature .*exceeds the (?:warning|maximum)",
    re.IGNORECASE,
)
_POWER = re.compile(r"\b(?P<cpu>CPU ?\d+): (?:Package|Core) power limit notification")
_SUPPLY = re.compile(
    r"power supply.{0,40}\b(?:fail\w*|lost|absent)|\bPSU.{0,40}\b(?:fail\w*|lost)", re.IGNORECASE
)
_NORMAL = re.compile(r"/speed normal|power limit normal|below threshold")


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line about heat or power; going back to normal is none."""
    if _NORMAL.search(message):
        return None
    if found := message_start.match(_CPU, message):
        return make(FACTS, "thermal", "cpu_throttle", message, device=found["cpu"].lower().replace(" ", ""))
    if found := message_start.match(_POWER, message):
        return make(FACTS, "power", "cpu_power_limit", message, device=found["cpu"].lower().replace(" ", ""))
    if message_start.match(_CRITICAL, message):
        return make(FACTS, "thermal", "critical", message)
    if (found := message_start.match(_HOT, message)) and "mlx" not in message:
        return make(FACTS, "thermal", "device_hot", message, device=found["device"])
    return make(FACTS, "power", "supply_failure", message) if message_start.match(_SUPPLY, message) else None


FAMILY = grammar.LineFamily(
    name="thermal",
    triggers=(
        "emperature",
        "ritical trip point",
        "ower limit",
        "hermal",
        "verheat",
        "ower supply",
        "ower Supply",
        "PSU",
    ),
    read=read,
    facts=FACTS,
)
