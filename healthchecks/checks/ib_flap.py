"""Links that go down and come back: each time once is a job lost."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records, vocabulary
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import ib

STUCK_AT = 255
"""link_downed has 8 bits and sticks."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Link losses within the window and since boot, by port; ports whose counter says nothing any more."""

    recent: dict[str, int]
    since_boot: dict[str, int]
    blind: tuple[str, ...]
    young: bool
    """Within the grace after a boot, when drivers and switches take links down by themselves."""


def read(node: nodeview.NodeView) -> Reading:
    values: dict[str, int | None] = {}
    for port in ib.ports(node):
        if not port.virtual and not {port.hca, port.name} & set(node.limits["ignore"]):
            values[port.name] = _losses(node, port)
    up_s = node.uptime_s
    young = up_s is not None and up_s < node.limits["boot_grace_s"]
    grown = counters.growth(node, values)
    recent = {} if young else counters.within(node, grown, node.limits["window_s"])
    blind = tuple(k for k, v in values.items() if v is None or v == STUCK_AT)
    return Reading(
        recent=recent, since_boot={k: v for k, v in values.items() if v is not None}, blind=blind, young=young
    )


def _losses(node: nodeview.NodeView, port: ib.IbPort) -> int | None:
    if port.link_layer == "Ethernet":  # IB counters stay 0 on RoCE: its network interface counts
        for interface in node.names(f"{ib.CLASS}/{port.hca}/device/net"):
            return node.number(f"/sys/class/net/{interface}/carrier_down_count")
        return None
    return node.number(f"{ib.CLASS}/{port.hca}/ports/{port.port}/counters/link_downed")


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    most, hours = limits["flaps_fail"], limits["window_s"] / 3600
    parts = [findings.ok("")]
    for name, count in reading.recent.items():
        facts = {
            "device": name.partition(":")[0],
            "measured": float(count),
            "threshold": float(most),
            "unit": "count",
        }
        if count >= most:
            parts.append(
                findings.fail(
                    f"{name} lost its link {vocabulary.plural(count, 'time')} in {hours:g} h", **facts
                )
            )
        elif count:
            parts.append(
                findings.warn(
                    f"{name} lost its link {vocabulary.plural(count, 'time')} in {hours:g} h", **facts
                )
            )
    parts += [
        findings.warn(
            f"{name}: link_downed is stuck at {STUCK_AT} and blind until reset", device=name.partition(":")[0]
        )
        for name in reading.blind
        if reading.since_boot.get(name) == STUCK_AT
    ]
    seeing = len(reading.since_boot)
    if not seeing:
        return findings.absent("no port counts its link losses")
    note = " (young boot: not judged yet)" if reading.young else ""
    return findings.merge(parts, healthy=f"{seeing} ports kept their links{note}")


CHECK = registry.Check(
    proves="No RDMA link has kept going down and coming back.",
    component="ib",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="fabric",
    fails="a port lost its link flaps_fail times within window_s, as the port itself counts",
    warns="it lost it at all within window_s, or its counter is stuck",
    needs="an RDMA port that counts its link losses",
    next_step="Replace cable or transceiver; when several nodes flap at the same second, look at their switch instead.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "flaps_fail",
            3,
            "count",
            "link losses within the window that fail",
            "gpud: 3 in 12 h (AzNHC: 5 in 24 h)",
        ),
        registry.Threshold("window_s", 43200.0, "s", "length of the window", "gpud: 12 h"),
        registry.Threshold(
            "boot_grace_s", 1800.0, "s", "time after boot in which losses do not count", "OCI: 30 min"
        ),
        registry.Threshold("ignore", [], "", "HCAs or ports never judged", "site"),
    ),
)
