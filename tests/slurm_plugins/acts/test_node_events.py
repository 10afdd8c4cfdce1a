from __future__ import annotations

from collections.abc import Mapping

from probing_cluster.slurm_plugins.acts import node_events

OUTPUT = b"""n1|1000|1500|Not responding
n2|1600|Unknown|eve: a|b
|1700|1800|cluster down
n3|900|1000|before the span
n4|soon|1800|unreadable
"""


def test_outages_of_the_span_with_their_whole_reason() -> None:
    """Only what began in the span; a reason may hold the delimiter; the cluster's own events are nobody's."""
    calls: list[tuple[str, ...]] = []

    def run(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        calls.append((program, *arguments))
        assert environment == {"SLURM_TIME_FORMAT": "%s"}
        return OUTPUT

    assert node_events.outages(run, 1000, 2000) == [
        node_events.NodeOutage(node="n1", start_s=1000, end_s=1500, reason="Not responding"),
        node_events.NodeOutage(node="n2", start_s=1600, end_s=None, reason="eve: a|b"),
    ]
    assert "start=1970-01-01T00:16:40" in calls[0]
    assert "format=NodeName,TimeStart,TimeEnd,Reason" in calls[0]
