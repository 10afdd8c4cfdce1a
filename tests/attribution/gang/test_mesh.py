"""The mesh of a gang: its axes by name or by ranks, who waits for whom, and no axis without a pattern."""

from __future__ import annotations

import random
import time

import pytest

from probing_cluster.attribution.gang import mesh, views

TP, DP, PP = 4, 2, 2


def call(
    group: str, seq: int, size: int, *, left: bool = True, p2p: bool = False, role: str = ""
) -> views.Call:
    """One call of a rank."""
    op = "isend" if p2p else "all_reduce"
    return views.Call(
        group=group, seq=seq, op=op, numel=8, dtype_code=1, group_size=size, left=left, is_p2p=p2p, role=role
    )  # fmt: skip


def gang(tp: int, dp: int, pp: int, *, roles: tuple[str, str, str] = ("", "", "")) -> list[views.RankView]:
    """Ranks that have just reduced on their tensor and data groups and sent along their pipeline."""
    ranks = []
    for rank in range(tp * dp * pp):
        t, d, p = rank % tp, rank // tp % dp, rank // (tp * dp)
        calls = [
            call(f"t{d + dp * p}", 10, tp, role=roles[0]),
            call(f"d{t + tp * p}", 5, dp, role=roles[1]),
        ]
        calls += [call(f"p{t + tp * d}", 3, pp, p2p=True, role=roles[2])] if pp > 1 else []
        ranks.append(views.RankView(rank=rank, node=f"n{rank // 8}", pid=1, alive=True, calls=tuple(calls)))
    return ranks


def with_call(view: views.RankView, more: views.Call) -> views.RankView:
    return views.RankView(rank=view.rank, node=view.node, pid=1, alive=view.alive, calls=(*view.calls, more))


def test_axes_are_named_by_torch_or_guessed_and_say_so() -> None:
    """DeviceMesh's and Megatron's names are taken; without names, the place of the ranks suggests one with a ?."""
    bare = mesh.of(gang(TP, DP, PP), 16)
    assert [(a.name, a.size, a.stride, a.named) for a in bare.axes] == [
        ("TP?", 4, 1, False), ("DP?", 2, 4, False), ("PP?", 2, 8, False),
    ]  # fmt: skip
    named = mesh.of(gang(TP, DP, PP, roles=("tp", "shard", "pp")), 16)
    assert [(a.name, a.named) for a in named.axes] == [("TP", True), ("SHARD", True), ("PP", True)]
    assert named.place(13) == (1, 1, 1)


def test_what_nobody_called_on_is_filled_in() -> None:
    """Only tensor groups are known of 16 ranks: the rest is one axis more, and the product is the world."""
    ranks = [
        views.RankView(rank=r.rank, node=r.node, pid=1, alive=True, calls=r.calls[:1])
        for r in gang(TP, DP, PP)
    ]
    found = mesh.of(ranks, 16)
    assert [(a.size, a.stride, a.n_groups) for a in found.axes] == [(4, 1, 4), (4, 4, 0)]


def test_the_chain_of_waiting_ends_at_one_rank() -> None:
    """Rank 5 loops: its tensor group waits for it, their data peers wait for these, and all of that is told with its axis."""
    ranks = gang(TP, DP, 1)
    for rank in (4, 6, 7):  # its tensor group
        ranks[rank] = with_call(ranks[rank], call("t1", 11, TP, left=False))
    for rank in (0, 2, 3):  # data peers of those
        ranks[rank] = with_call(ranks[rank], call(f"d{rank}", 6, DP, left=False))
    found = mesh.of(ranks, 8)
    assert found.roots == (5,)
    assert found.cycle == ()
    first = {w.group: w for w in found.waits}
    assert (first["t1"].waiting, first["t1"].awaited, first["t1"].axis) == ((4, 6, 7), (5,), "TP?")
    assert first["d0"].awaited == (4,)
    states = found.states
    assert (states[5], states[4], states[0], states[1]) == ("awaited", "waiting", "waiting", "runs")


def test_uneven_groups_make_no_mesh() -> None:
    """Groups whose ranks lie at odd distances, and a group of everybody: no axis, and no crash."""
    odd = [
        views.RankView(rank=r, node="n", pid=1, alive=True, calls=(call("9" if r in (0, 1, 5) else "0", 1, 3 if r in (0, 1, 5) else 8),))
        for r in range(8)
    ]  # fmt: skip
    assert mesh.of(odd, 8).axes == ()
    assert mesh.of([], None).world_size == 0


@pytest.mark.parametrize("seed", range(3))
def test_forged_calls_do_not_break_it(seed: int) -> None:
    """Whatever pages say: an answer whose axes number every rank, or none."""
    rng = random.Random(seed)
    for _ in range(200):
        ranks = [
            views.RankView(
                rank=rng.randrange(40), node="n", pid=1, alive=rng.random() < 0.9,
                calls=tuple(
                    call(str(rng.randrange(6)), rng.randrange(4), rng.choice((0, 2, 3, 4, 8, 2**23)), left=rng.random() < 0.5,
                         p2p=rng.random() < 0.2)
                    for _ in range(rng.randrange(5))
                ),
            )
            for _ in range(rng.randrange(20))
        ]  # fmt: skip
        found = mesh.of(ranks, rng.choice((None, 8, 16, 24, 2**40)))
        product = 1
        for axis in found.axes:
            product *= axis.size
        assert not found.axes or product == found.world_size


@pytest.mark.soak
def test_sixteen_thousand_ranks_take_seconds_at_most() -> None:
    """2,000 tensor groups, all open: what the page of a large job waits for."""
    ranks = [with_call(r, call(f"t{r.rank // 8}", 11, 8, left=False)) for r in gang(8, 250, 8)]
    began_s = time.process_time()
    found = mesh.of(ranks, 16_000)
    print(f"{time.process_time() - began_s:.2f} s of CPU")
    assert [a.size for a in found.axes] == [8, 250, 8]
