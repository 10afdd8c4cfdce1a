"""The campaign of hanging gangs: what counts as right, what is still to be run, and that its page is only counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.campaign.hangs import noise, outcome, page

LOOP = outcome.Outcome(
    case="python_loop", named="python_loop", ranks=(5,), node="n3", domain="user_program", after_s=12.5, commit="abc",
    at="2026-11-21T17:00:00Z", noise={"compute_frac": 0.012, "step_frac": 0.05, "step_s": 0.11},
)  # fmt: skip
KILLED = outcome.Outcome(case="rank_dead", named="rank_killed", node="n3", domain="unknown")
SHAPE = outcome.Outcome(case="other_shape", named="collective_mismatch", domain="user_program")
SLOW = outcome.Outcome(case="slow", named="slow", ranks=(5,), node="n3")
LINK = outcome.Outcome(
    case="link_down", named="inside_collective", ranks=(4, 5), node="n3", domain="hardware"
)
LONG = outcome.Outcome(case="compile_long", named=outcome.NOTHING)


@pytest.mark.parametrize("right", [LOOP, KILLED, SHAPE, SLOW, LINK, LONG], ids=lambda o: o.case)
def test_what_was_injected_is_right_and_nothing_else(right: outcome.Outcome) -> None:
    """Kind, node, and what else the case says."""
    assert right.right()
    assert not replace(right, named="dataloader").right()
    if right.case != "compile_long":
        assert not replace(right, node="n1").right()
    if right.ranks:
        assert not replace(right, ranks=(2, 5)).right()
    if right.case in outcome.EXPECTED:
        assert not replace(right, domain="system_software").right()


def test_a_campaign_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """Runs are kept a line each; the case with the fewest comes first."""
    kept = tmp_path / "runs.jsonl"
    assert outcome.load(kept) == []
    for one in (LOOP, LOOP, KILLED):
        outcome.add(kept, one)
    assert outcome.load(kept) == [LOOP, LOOP, KILLED]
    assert '"said": "python_loop"' in kept.read_text(), "files of earlier runs are read as well"
    cases = ["python_loop", "rank_dead", "slow"]
    left = outcome.missing(outcome.load(kept), cases, 3)
    assert left == ["slow", "rank_dead", "slow", "python_loop", "rank_dead", "slow"]
    assert outcome.missing(outcome.load(kept), ["python_loop"], 2) == []


def test_the_page_counts_what_was_gathered() -> None:
    """Right and wrong runs, seconds, noise and healthy minutes; without any it says so."""
    wrong = replace(LOOP, named="user_code", after_s=14.5)
    watched = outcome.Outcome(
        case="healthy", named="deadlock", minutes=30.0, false={"verdict deadlock": 1, "rank_stall": 2}
    )
    text = page.render([LOOP, LOOP, wrong, KILLED, watched])
    assert "4 runs, 3 right" in text
    assert "| python_loop | 2 |  | 1 | 2 of 3 | 12.5 (12.5 to 14.5) |" in text
    assert "30 minutes of training with checkpoints in 1 gangs: 1 stalls named" in text
    assert "| python_loop | 0.110 | 1.2% (1.2%) | 5.0% (5.0%) |" in text
    assert "(to be named: python_loop)" in text
    assert "Not measured yet." in page.render([])


def test_noise_is_that_of_the_ranks_that_did_nothing_wrong(tmp_path: Path) -> None:
    """The culprit's steps, the first ones, those after it went wrong and half a line are left out."""
    even = "".join(f"{0.1 + 0.001 * (i % 2):.3f} 0.2\n" for i in range(20))
    for rank in (0, 1):
        (tmp_path / f"steps.{rank}").write_text("9 9\n9 9\n9 9\n" + even + "9 9\n0.1")
    (tmp_path / "steps.5").write_text("5 5\n" * 40)
    measured = noise.measure(tmp_path, [5], 23)
    assert measured["step_s"] == pytest.approx(0.2)
    assert measured["step_frac"] == 0
    assert 0.004 < measured["compute_frac"] < 0.006
    assert noise.measure(tmp_path / "nowhere", []) == {}
