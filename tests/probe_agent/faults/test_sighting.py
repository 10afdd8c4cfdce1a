"""From what a source saw to an event."""

from __future__ import annotations

from datetime import UTC, datetime

from probing_cluster.core import records
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import gpus, sighting

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


def test_no_control_character_is_in_an_event(node_identity: identity.Identity) -> None:
    """A user chooses what a log's last line is, in the detail as in the message."""
    line = "a\x1b[2Jb"
    sight = sighting.Sighting(
        source="joblog",
        position="1",
        at=NOW,
        kind="output_stall",
        severity=records.Severity.INFO,
        message=line,
        detail={"last_line": line, "lines": [line]},
    )
    event = sighting.to_event(sight, identity=node_identity, inventory=gpus.Inventory(), observed_at=NOW)
    assert (event.message, event.detail) == ("ab", {"last_line": "ab", "lines": ["ab"]})
