"""Free TCP ports."""

from __future__ import annotations

from probing_cluster.sandbox.machine import ports


def test_chosen_ports_are_free_distinct_and_never_standard() -> None:
    """Ports lie above the standard ones and below those of outgoing connections."""
    chosen = ports.choose(66)
    assert len(set(chosen)) == 66
    assert all(18_000 <= port < 32_000 for port in chosen)
    assert not any(ports.answers(port) for port in chosen[:5])
