"""The words of what is reported of a rank."""

from __future__ import annotations

from probing_cluster.probe_agent.ranks import pages, rank_events
from tests.probe_agent.ranks import test_stall


def test_a_rank_without_counted_steps_is_gone_after_its_collectives() -> None:
    """A loop of all_reduce without an optimizer: thirty of them are not `after step 0`."""
    call = pages.Collective(
        seq=30, group="0", group_size=2, op="all_reduce", numel=1, dtype_code=0, enter_ns=1, leave_ns=2,
        is_async=False, is_p2p=False, raised=False,
    )  # fmt: skip
    calling = test_stall.page(0, phase="loading", recent_collectives=(call,))
    assert rank_events._how_far(calling) == "after at least 30 collectives and no counted step "
    assert rank_events._how_far(test_stall.page(0)) == "after step 0 "
    assert rank_events._how_far(test_stall.page(7, recent_collectives=(call,))) == "after step 7 "
