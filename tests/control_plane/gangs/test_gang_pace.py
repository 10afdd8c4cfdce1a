"""The pace of a gang, window by window: who is slow twice running, and against what beginning."""

from __future__ import annotations

import os
import random

import gang_rows
import pytest

from probing_cluster.attribution.gang import slow
from probing_cluster.control_plane.gangs import gang_pace, rank_rows
from probing_cluster.core import records


def ranks(rows: dict[int, dict[str, object]]) -> list[rank_rows.RankNow]:
    """The rows as the service reads them from one node's heartbeat."""
    beat = records.AgentHeartbeat(
        cluster="c", node="n1", at=gang_rows.fakes.NOW, ranks={f"7:{r}": row for r, row in rows.items()}
    )
    return rank_rows.of_heartbeats([beat])


@pytest.mark.longer
def test_a_slow_rank_is_found_every_time_and_noise_never() -> None:
    """Gangs over ten windows, 200 in the soak: the 1.2x slow rank and nobody else; in the healthy twin nobody at all."""
    for seed in range(int(os.environ.get("PROBING_EXAMPLES", "40"))):
        sick, healthy = gang_pace.GangPace(), gang_pace.GangPace()
        for index in range(10):
            sick.take(ranks(gang_rows.gang(index, seed, slow={seed % 8: 1.2})))
            healthy.take(ranks(gang_rows.gang(index, seed)))
            assert healthy.slow_now == [], seed
        assert [(s.rank, s.component) for s in sick.slow_now] == [(seed % 8, "compute")], seed
        assert healthy.drifts() == [], seed


def test_one_slow_window_is_a_hiccup() -> None:
    """A rank that was slow once is not told; twice running it is."""
    pace = gang_pace.GangPace()
    for index, factor in enumerate((1.0, 1.3, 1.0, 1.3, 1.3)):
        pace.take(ranks(gang_rows.gang(index, slow={2: factor})))
        assert [s.rank for s in pace.slow_now] == ([2] if index == 4 else [])


def test_nodes_that_tell_at_different_moments_are_held_against_each_other_by_step() -> None:
    """While half of the gang is a window ahead nothing is judged; when the rest follows the same steps are."""
    slow_steps = [
        {
            r: {**row, "window": {**row["window"], "total_s": 2.0}}
            for r, row in gang_rows.gang(i, slow={5: 1.2}).items()
        }
        for i in range(4)
    ]  # 32 s a window: no two windows are the same moment
    pace = gang_pace.GangPace()
    assert pace.take(ranks(slow_steps[0]))
    ahead = {r: slow_steps[1 if r < 4 else 0][r] for r in range(8)}
    assert not pace.take(ranks(ahead))
    behind = {r: slow_steps[2 if r < 4 else 1][r] for r in range(8)}
    assert pace.take(ranks(behind))
    assert pace.judged == 1


def test_fast_steps_are_compared_at_the_same_moment() -> None:
    """At 100 steps a second no two nodes tell of the same steps; near ones will do."""
    pace = gang_pace.GangPace()
    rng = random.Random(3)
    for at in range(0, 4000, 100):
        rows = {}
        for rank in range(8):
            index = at + rng.randrange(20)
            own_s = 0.01 * (1.2 if rank == 6 else 1.0)
            rows[rank] = gang_rows.row(rank, window=gang_rows.window(index, own_s, 0.0125))
        pace.take(ranks(rows))
    assert [s.rank for s in pace.slow_now] == [6]


def test_another_attempt_begins_anew() -> None:
    """After a requeue the steps are counted from one: nothing of the attempt before is held against it."""
    pace = gang_pace.GangPace()
    for index in range(20):
        pace.take(ranks(gang_rows.gang(index, slow={2: 1.3})))
    assert pace.settled
    assert pace.slow_now
    pace.take(ranks(gang_rows.gang(0, slow={3: 1.3})))
    assert (pace.settled, pace.slow_now, pace.judged) == (False, [], 0)


def test_a_gang_that_slows_down_as_a_whole_has_drifted() -> None:
    """Nobody stands out, and yet each step takes half as long again: compute has drifted."""
    pace = gang_pace.GangPace()
    for index in range(30):
        everybody = dict.fromkeys(range(8), 1.5 if index >= 12 else 1.0)
        pace.take(ranks(gang_rows.gang(index, slow=everybody)))
        assert pace.slow_now == []
    assert [d.component for d in pace.drifts()] == ["compute"]


def test_what_is_remembered_is_bounded() -> None:
    """Ten thousand windows and ranks that come and go leave a few windows of those that are there."""
    pace = gang_pace.GangPace()
    for index in range(0, 10_000, 100):
        rows = gang_rows.gang(index, ranks=4)
        pace.take(ranks({r + index: row for r, row in rows.items()}))
    assert len(pace.windows) == 4
    assert max(len(known) for known in pace.windows.values()) <= gang_pace.KEEP
    assert len(pace.first) + len(pace.last) <= gang_pace.FIRST + gang_pace.LAST


@pytest.mark.parametrize(
    ("key", "row"),
    [
        ("x:1", gang_rows.row(1)),
        ("7", gang_rows.row(1)),
        ("7:1", 5),
        ("7:1", None),
        ("7:1", gang_rows.row(1, steps="many")),
        ("7:1", gang_rows.row(1, steps=float("inf"))),
        ("7:1", gang_rows.row(1, step_age_s=[])),
    ],
)
def test_rows_that_are_none_are_left_out(key: str, row: object) -> None:
    """Whatever stands in a heartbeat, the service goes on."""
    beat = records.AgentHeartbeat(
        cluster="c", node="n1", at=gang_rows.fakes.NOW, ranks={key: row, "7:2": gang_rows.row(2)}
    )
    assert [r.rank for r in rank_rows.of_heartbeats([beat])] == [2]


def test_words_of_a_page_cannot_write_on_a_terminal() -> None:
    """Escapes and endless words of a user are cleaned and cut."""
    hostile = gang_rows.row(1, inside="\x1b[2J" + "x" * 1000, phase="\x07train")
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=gang_rows.fakes.NOW, ranks={"7:1": hostile})
    (found,) = rank_rows.of_heartbeats([beat])
    assert (found.phase, len(found.inside)) == ("train", rank_rows.MAX_WORDS)
    assert "\x1b" not in found.inside
    assert rank_rows.from_json(7, rank_rows.to_json(found)) == found


def test_the_rows_of_a_later_service_are_read() -> None:
    """A command on a login node may be older than the service that answers it."""
    times = dict.fromkeys(slow.PaceWindow.__dataclass_fields__, 1.0)
    plain = {"rank": 1, "node": "n1", "pid": 5, "alive": True, "window": {**times, "of_a_later_release": 1}}
    found = rank_rows.from_json(7, {**plain, "of_a_later_release": 1})
    assert (found.job_id, found.node, found.window) == (7, "n1", slow.PaceWindow(**times))  # type: ignore[arg-type]
