"""When the job of a gang that hangs is requeued, and everything that leaves it running."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.policy import budget, hang, restart, restart_loop, view
from probing_cluster.core import errors, records, settings

START = fakes.NOW - timedelta(minutes=10)
POLICY = settings.PolicySettings(
    observe_only=False, budget_frac=1.0, budget_partition_frac=1.0, on_hang="requeue", hang_grace_s=60.0
)


def verdict(**changes: Any) -> records.GangVerdict:
    values: dict[str, Any] = {
        "gang_id": uuid.UUID(int=1), "cluster": "c", "job_id": 7, "submit_at": START, "kind": "rank_stopped", "ranks": (1,),
        "nodes": ("n2",), "domain": records.Domain.SYSTEM_SOFTWARE, "confidence": records.Confidence.LIKELY,
        "summary": "rank 1 was stopped", "onset_at": fakes.NOW - timedelta(seconds=120),
        "made_at": fakes.NOW - timedelta(seconds=61), "detail": {"steps": 20, "ranks_seen": 2},
    }  # fmt: skip
    return records.GangVerdict(**(values | changes))


def case(**changes: Any) -> hang.Hang:
    attempt = records.JobAttempt(
        cluster="c",
        job_id=7,
        submit_at=START,
        start_at=START,
        state="RUNNING",
        nodes=("n1", "n2"),
        user="alice",
    )
    found = changes.get("verdict", verdict())
    death = restart_loop.Death(cause=found.kind, step=20)
    values: dict[str, Any] = {"attempt": attempt, "verdict": found, "on_hang": "requeue", "deaths": (death,)}
    return hang.Hang(**(values | changes))


def rank(number: int, **changes: Any) -> rank_rows.RankNow:
    values: dict[str, Any] = {
        "job_id": 7, "rank": number, "node": f"n{number + 1}", "pid": 100 + number, "alive": True, "steps": 20,
        "stalled": True, "phase": "forward",
    }  # fmt: skip
    return rank_rows.RankNow(**(values | changes))


RANKS = (rank(0), rank(1, stalled=False))


def decide(
    of: hang.Hang | None = None,
    ranks: tuple[rank_rows.RankNow, ...] = RANKS,
    answered: frozenset[str] = frozenset({"n1", "n2"}),
    policy: settings.PolicySettings = POLICY,
    **own: Any,
) -> tuple[str, str, tuple[str, ...]]:
    live = fakes.live_job(7, **({"state": "RUNNING", "start_at": START} | own))
    nodes = {
        n: view.Node(name=n, states=frozenset({"ALLOCATED"}), partitions=("gpu",)) for n in ("n1", "n2", "n3")
    }
    queue = restart.Queue(now=fakes.NOW, jobs={7: live}, nodes=nodes)
    ledger = budget.Ledger(view.View(now=fakes.NOW, nodes=nodes), policy)
    state, why, _, exclude = hang.decide(of or case(), ranks, set(answered), queue, policy, ledger)
    return state, why, exclude


def test_a_settled_hang_is_requeued() -> None:
    """All ranks stand where they stood; the node of a program that stopped is as good as any."""
    assert decide() == ("", "", ())


def test_patience_ends() -> None:
    """A checkpoint that takes longer than its own history allows is a hang like any other."""
    assert decide(ranks=(rank(0, phase="checkpointing"), rank(1)))[0] == ""


def test_a_broken_node_is_left_out() -> None:
    """Where the fault is the node's."""
    broken = case(verdict=verdict(kind="gpu_lost", domain=records.Domain.HARDWARE))
    assert decide(broken) == ("", "", ("n2",))
    state, why, _ = decide(broken, required_nodes=("n2",))
    assert (state, "by name" in why) == ("skipped", True)
    assert decide(required_nodes=("n2",))[0] == ""  # the program hangs, and may begin on its node again
    tight = dataclasses.replace(POLICY, budget_nodes=0)
    assert decide(broken, policy=tight)[0] == "denied"


@pytest.mark.parametrize(
    ("changes", "ripe"),
    [
        ({}, True),
        ({"kind": "unknown"}, False),
        ({"kind": "busy"}, False),
        ({"confidence": records.Confidence.POSSIBLE}, False),
        ({"made_at": fakes.NOW - timedelta(seconds=59)}, False),
    ],
)
def test_what_has_settled(changes: dict[str, Any], *, ripe: bool) -> None:
    """It names something, is likely, and has stood for the grace."""
    assert hang.is_ripe(case(verdict=verdict(**changes)), fakes.NOW, POLICY) is ripe


@pytest.mark.parametrize(
    ("ranks", "answered", "words"),
    [
        (RANKS, {"n1"}, "n2 did not answer"),
        ((rank(0, steps=21), rank(1)), {"n1", "n2"}, "have got on"),
        ((rank(0), rank(1, stalled=False))[:1], {"n1", "n2"}, "not all of its ranks"),
        ((rank(0, phase="checkpointing", stalled=False), rank(1)), {"n1", "n2"}, "rank 0 is checkpointing"),
        ((rank(0, phase="compiling", stalled=False), rank(1)), {"n1", "n2"}, "time left"),
        ((rank(0, stalled=False), rank(1, stalled=False)), {"n1", "n2"}, "counts as stalled"),
        ((rank(0, alive=False), rank(1, alive=False)), {"n1", "n2"}, "not all of its ranks"),
    ],
)
def test_looked_at_again_it_must_still_stand(
    ranks: tuple[rank_rows.RankNow, ...], answered: set[str], words: str
) -> None:
    """Every rank, just before: a gang that got on, or may take its time, is left alone."""
    state, why, _ = decide(ranks=ranks, answered=frozenset(answered))
    assert state == "skipped"
    assert words in why


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"state": "FAILED"}, "no longer runs"),
        ({"flags": frozenset({"COMPLETING"})}, "no longer runs"),
        ({"start_at": fakes.NOW}, "another start"),
        ({"batch": False}, "interactive"),
        ({"requeue": False}, "--no-requeue"),
    ],
)
def test_jobs_that_are_not_requeued(own: dict[str, Any], words: str) -> None:
    """As for every requeue."""
    state, why, _ = decide(**own)
    assert state == "skipped"
    assert words in why


def test_hangs_at_one_step_are_a_loop() -> None:
    """The third time it is the program."""
    again = restart_loop.Death(cause="rank_stopped", step=20)
    state, why, _ = decide(case(deaths=(again, again, again)))
    assert state == "skipped"
    assert "three starts in a row" in why


def test_a_run_is_requeued_so_often() -> None:
    """The budget of a run counts hangs and deaths alike."""
    assert decide(case(n_restarts=3))[0] == "denied"


@pytest.mark.parametrize(
    ("word", "wish"), [("requeue", "requeue"), ("tell", "tell"), ("kill", "tell"), (None, "tell")]
)
def test_the_owners_word_goes_first(word: str | None, wish: str) -> None:
    """What the Prolog passed on, if it is one of the two words."""
    attempt = case().attempt
    allocation = records.JobAllocation(
        cluster="c", node="n1", job_id=7, at=START, detail={"on_hang": word} if word else {}
    )
    assert hang.on_hang_of([allocation], attempt, "tell") == wish


def test_another_word_is_refused() -> None:
    """A setting that nobody knows stops the pass, with the valid ones."""
    with pytest.raises(errors.SettingsError, match="tell, requeue"):
        hang.check(dataclasses.replace(POLICY, on_hang="kill"))
