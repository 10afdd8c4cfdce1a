"""The page of lemons: any scored night, all nodes or those of a partition, and what a choice says that there is nothing for."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import fakes
import pytest
from web_world import OPERATOR, World

from probing_cluster.core import clock, records
from probing_cluster.web.live import now

DAY = datetime(2026, 11, 20, tzinfo=UTC)


def score(node: str, day: datetime, status: str, chance: float = 0.97) -> records.LemonScore:
    """A node that a task of an array died on."""
    failure = {
        "job_id": 13, "ref": "11_2", "attempt": 1, "at": clock.iso_z(day), "n_nodes": 1, "n_gpus": 8, "user": "ann",
        "cause": "gpu_lost", "device": "gpu3", "confidence": "certain", "summary": "", "counts": True,
    }  # fmt: skip
    detail: dict[str, Any] = {"model": chance, "usual": 0.2}
    if status:
        cost = {"gpu_h": 8.0, "jobs": 1, "users": 1, "unknown_gpus": 0}
        detail |= {"status": status, "since": clock.iso_z(day), "cost": cost, "failures": [failure]}
    return records.LemonScore(
        cluster="c", node=node, day=day, score=chance, verdict="lemon" if status in ("new", "still") else "ok",
        reasons=("1 attempt failed because of it.",) if status else (), signals=detail, made_at=day,
        single_node_node_fails=1 if status else 0,
    )  # fmt: skip


@pytest.fixture
def nights(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """n1 is a lemon on the 20th and none on the 21st; n2, in another partition, is one on the 21st."""
    monkeypatch.setattr(now, "SLURM", now.SlurmNodes())
    other = world.slurm.state["n2"]
    world.slurm.state["n2"] = dataclasses.replace(other, partitions=("big",))
    later = DAY + timedelta(days=1)
    world.store.save_lemon_scores([score("n1", DAY, "new"), score("n2", DAY, "", 0.01)])
    world.store.save_lemon_scores([score("n1", later, "recovered", 0.2), score("n2", later, "new")])
    return world


def test_a_night_is_chosen(nights: World) -> None:
    """Those that were scored, with how many lemons each had; a past one says that it is past."""
    browser = nights.as_user(OPERATOR)
    text = browser.get("/lemons").text
    assert '<option value="2026-11-21">2026-11-21: 1 lemon</option><option value="2026-11-20">' in text
    assert "1 new lemon: n2; 1 gone: n1 (2 nodes scored)" in text
    assert "a night of the past" not in text
    past = browser.get("/lemons?night=2026-11-20").text
    assert '<option value="2026-11-20" selected>' in past
    assert "1 new lemon: n1 (2 nodes scored)" in past
    assert "a night of the past" in past
    assert "2026-11-19 has no scores" in browser.get("/lemons?night=2026-11-19").text
    assert browser.get("/lemons?night=2026-13-45").status_code == 400


def test_the_nodes_of_a_partition_are_chosen(nights: World) -> None:
    """By where they are now; a partition without nodes, and a Slurm that is away, are said."""
    browser = nights.as_user(OPERATOR)
    text = browser.get("/lemons?partition=gpu").text
    assert "1 gone: n1 (1 node scored)" in text
    assert "/nodes/n2" not in text
    assert "those that are in gpu now" in text
    assert "no node is in tiny now" in browser.get("/lemons?partition=tiny").text
    nights.slurm.down = True
    now.SLURM._at_s = float("-inf")
    assert "Slurm does not answer" in browser.get("/lemons?partition=gpu").text
    assert "n2" in browser.get("/lemons").text


def test_a_failure_is_named_as_its_owner_names_the_job(nights: World) -> None:
    """A task of an array is 11_2 here too; the link is by Slurm's own id."""
    text = nights.as_user(OPERATOR).get("/lemons").text
    assert '<a href="/jobs/13">job 11_2</a>' in text


def test_a_chance_is_never_certain(nights: World) -> None:
    """Now and the node's page say over 99 %, as the page of lemons does: 100 % would be a proof."""
    nights.store.save_lemon_scores([score("n1", DAY + timedelta(days=1), "", 0.999)])
    fakes.deliver(nights.store, "n1")
    assert "over 99 %" in nights.as_user(OPERATOR).get("/nodes/n1").text
