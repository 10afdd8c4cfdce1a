"""`nic.ports`: InfiniBand and RoCE ports of the node, with their error counters."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table

_COUNTERS = {
    "symbol_error": "symbol errors",
    "link_error_recovery": "recoveries of the link",
    "link_downed": "times the link went down",
    "port_rcv_errors": "packets received with errors",
    "local_link_integrity_errors": "link integrity errors",
    "excessive_buffer_overrun_errors": "buffer overruns",
    "rnr_nak_retry_err": "receiver-not-ready retries exceeded",
    "out_of_sequence": "packets out of sequence",
    "packet_seq_err": "packet sequence errors",
    "rx_icrc_encapsulated": "RoCE packets with a bad checksum",
    "roce_slow_restart": "slow restarts of RoCE",
}


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per port."""
    for port in view.agent.ask("nics", view.left_s())["ports"]:
        counters = port.get("counters") or {}
        yield {
            **view.node_place(),
            "device": port.get("device"),
            "up": port.get("up"),
            "rate_gbps": port.get("rate_gbps"),
            "link_layer": port.get("link_layer"),
            "interfaces": ",".join(map(str, port.get("netdevs") or ())) or None,
            **{f"{name}_total": counters.get(name) for name in _COUNTERS},
        }


TABLE = Table(
    schema="nic",
    name="ports",
    meaning="InfiniBand and RoCE ports of the node, as the agent read them last.",
    source="the node's agent, from sysfs",
    rows=rows,
    columns=(
        *NODE_PLACE,
        Column(name="device", kind="text", meaning="the adapter, with `:port` beyond the first"),
        Column(name="up", kind="bool", meaning="the port is active"),
        Column(name="rate_gbps", kind="float", meaning="its rate, Gbit/s"),
        Column(name="link_layer", kind="text", meaning="InfiniBand or Ethernet"),
        Column(name="interfaces", kind="text", meaning="its network interfaces"),
        *(
            Column(name=f"{n}_total", kind="int", meaning=f"{m}; null where not counted")
            for n, m in _COUNTERS.items()
        ),
    ),
)
