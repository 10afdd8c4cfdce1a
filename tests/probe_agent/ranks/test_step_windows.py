"""Steps folded to windows that are the same on every rank."""

from __future__ import annotations

import pytest

from probing_cluster.probe_agent.ranks import pages, step_windows


def test_windows_are_of_the_same_steps_on_every_rank() -> None:
    """Ranks that are read at different moments tell of the same steps; the first window does without its first step."""
    steps = [
        pages.PageStep(
            step=n,
            end_ns=n * 10**6,
            input_ns=10_000,
            collective_ns=200_000,
            backward_ns=300_000,
            checkpoint_ns=0,
        )
        for n in range(1, 60)
    ]
    early, late = step_windows.latest(steps[:50]), step_windows.latest(steps[:59])
    assert early == late
    assert early is not None
    assert (early["index"], early["steps"]) == (2, 16)
    assert early["compute_s"] == pytest.approx(790e-6)
    assert early["host_s"] == pytest.approx(490e-6)
    assert step_windows.latest(steps[:15]) is None
    assert step_windows.latest([]) is None
    first = step_windows.latest(steps[:16])
    assert first is not None
    assert (first["index"], first["steps"]) == (0, 15)
    torn = [s for s in steps if s.step not in {36, 37, 38}]
    assert step_windows.latest(torn[:45]) is None
