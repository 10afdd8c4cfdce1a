"""Rounds of one service: what is kept of them, and for how long."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Iterator
from typing import Any, cast

import pytest

from probing_cluster.control_plane.repair import round_findings, rounds
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.slurm_plugins.acts import job_steps

WANTED = job_steps.StepWanted(
    name="probing-n1-00000000", reservation="", nodes=("n1",), partition="", account="", gpus=0, limit_s=1.0
)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[rounds.Rounds, threading.Event]]:
    """Rounds that find nothing once the event is set, and cancel no job."""
    go_on = threading.Event()

    def found(*_: object) -> round_findings.Findings:
        go_on.wait(20)
        return round_findings.Findings(results=())

    monkeypatch.setattr(rounds.Rounds, "_found", found)
    monkeypatch.setattr(job_steps.JobSteps, "cancel_named", lambda *_: None)
    yield rounds.Rounds(settings.Settings(), cast("Any", None)), go_on
    go_on.set()


def end(go_on: threading.Event) -> None:
    """Lets it end."""
    threads = [t for t in threading.enumerate() if t.name == WANTED.name]
    go_on.set()
    for thread in threads:
        thread.join(20)


def test_a_round_is_kept_until_it_is_judged(ours: tuple[rounds.Rounds, threading.Event]) -> None:
    of, go_on = ours
    round_id = uuid.uuid4()
    with pytest.raises(errors.NotFound):
        of.state(round_id)
    of.start(WANTED, cast("Any", None), round_id)
    assert of.state(round_id) is None
    end(go_on)
    for _ in range(2):
        ended = of.state(round_id)
        assert ended is not None
        assert ended.found is not None
    of.forget(round_id)
    with pytest.raises(errors.NotFound):
        of.state(round_id)


@pytest.mark.parametrize("over", [False, True])
def test_of_a_round_that_was_stopped_nothing_is_left(
    ours: tuple[rounds.Rounds, threading.Event], over: bool
) -> None:
    """Whether it ran or was over: nobody will judge it. One of another service leaves nothing, either."""
    of, go_on = ours
    round_id, others = uuid.uuid4(), uuid.uuid4()
    of.start(WANTED, cast("Any", None), round_id)
    if over:
        end(go_on)
    of.stop(WANTED.name, round_id)
    of.stop(WANTED.name, others)
    end(go_on)
    with pytest.raises(errors.NotFound):
        of.state(round_id)
    assert (of._ends, of._stopped) == ({}, set())


def pairs(*results: tuple[str, str, str]) -> list[records.DiagnosticResult]:
    """Rows of tests in pairs, `+` for one that passed, `-` for one that failed."""
    ends = {"+": records.Outcome.OK, "-": records.Outcome.FAIL}
    return [
        records.DiagnosticResult(
            result_id=uuid.uuid4(), cluster="c", round_id=uuid.UUID(int=1), node=a, peer=b, test="pair",
            outcome=ends[end], message=f"{a}: no answer", at=clock.SYSTEM.now(),
        )
        for a, b, all_ends in results
        for end in all_ends
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("void", "bad"), [([], True), (["r1"], True), (["r1", "r2"], False), (["r1", "r2", "r3"], False)]
)
def test_without_a_partner_s_tests_a_node_is_bad_only_by_those_of_others(void: list[str], bad: bool) -> None:
    """Two sound partners convict it; a test of the node alone needs none."""
    rows = pairs(
        *(("n", r, "----") for r in ("r1", "r2", "r3")),
        *((a, b, "+++++") for a, b in (("r1", "r2"), ("r2", "r3"), ("r1", "r3"))),
    )
    conclusion = dataclasses.replace(
        rows[0], peer="", message=round_findings.ALONE, detail={"conclusion": "node"}
    )
    alone = dataclasses.replace(rows[0], peer="", test="gemm", message="3 wrong results")
    found = round_findings.Findings(results=(*rows, conclusion), bad_nodes=("n",), bad_links=(("n", "r1"),))
    words = round_findings.against(found, "n", void)
    assert (f"pair: {round_findings.ALONE}" in words) == bad
    assert ("pair: the link between n and r1 is bad" in words) == (not void)
    with_own = dataclasses.replace(found, results=(*found.results, alone))
    assert "gemm: 3 wrong results" in round_findings.against(with_own, "n", void)
