"""The ranks of a job over time take memory for the ranks there are, whatever numbers their pages forge."""

from __future__ import annotations

import tracemalloc

from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.web.live import rank_history


def rows(*ranks: int, still_s: float) -> list[rank_rows.RankNow]:
    """Ranks that stand still for so long."""
    return [
        rank_rows.RankNow(job_id=7, rank=r, node="n1", pid=r, alive=True, step_age_s=still_s * (n + 1))
        for n, r in enumerate(ranks)
    ]


def test_a_forged_number_costs_no_memory() -> None:
    """Ten minutes of three ranks, one of which says that it is the last of 65,536."""
    history = rank_history.History()
    tracemalloc.start()
    for at_s in range(rank_history.LOOKS):
        history.look(float(at_s), rows(0, 3, rank_history.MOST_RANKS - 1, still_s=1.0))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20
    picture = history.picture("still")
    assert (picture.n_ranks, picture.n_looks, picture.most) == (65536, 120, 3.0)
    assert [picture.cells[r * 120] for r in (0, 1, 3, 65535)] == [85, 0, 170, 255]
    assert set(history.picture("own").cells) == {0}


def test_ranks_that_come_and_go_keep_their_rows() -> None:
    """Each look has its own ranks; one that says nothing at a look is empty there."""
    history = rank_history.History()
    for at_s, ranks in enumerate([(0, 1), (1,), (2, 0)]):
        history.look(float(at_s), rows(*ranks, still_s=0.0))
    assert history.picture("still").cells == bytes([1, 0, 1, 1, 1, 0, 0, 0, 1])
    assert rank_history.History().picture("own").cells == b""
