from __future__ import annotations

import dataclasses
import uuid

import lemon_nights as nights
import pytest

from probing_cluster.core import records
from probing_cluster.reports.lemon import lemon_view


def test_every_node_is_in_its_place_with_reason_price_and_evidence() -> None:
    """New, still, gone, suspect; what it cost; the failures with the command that tells all about each."""
    view = lemon_view.of(nights.busy())
    assert [[c.node for c in cards] for cards in (view.new, view.still, view.gone, view.suspects)] == [
        ["n7"], ["n8"], ["n9"], ["n10"],
    ]  # fmt: skip
    (new,) = view.new
    assert (new.chance, new.cost) == ("over 99 %", "56.5 GPU-hours of lost work, 6 jobs, 2 users in 28 days")
    assert [f.command for f in new.failures] == [
        f"probing-report {n}" for n in (4245, 4244, 4243, 4242, 4241)
    ]
    assert (new.failures[0].what, new.failures[0].size) == ("gpu_lost gpu3, certain", "2 nodes, 16 GPUs")
    assert new.n_more == 1
    assert view.headline == "1 new lemon: n7; 1 still: n8; 1 gone: n9 (6 nodes scored, 1 suspect)"
    assert view.subject == "1 new lemon: n7; 1 still: n8; 1 gone: n9"
    assert view.total_cost == "Together 113 GPU-hours of lost work and 9 jobs in 28 days."


def test_a_failure_is_named_as_its_owner_names_the_job() -> None:
    """A task of an array as 11_2, also in the command; of a night stored before that was known, by Slurm's raw id."""
    score = nights.score("n7", "new", n=2)
    score.signals["failures"][1]["ref"] = "11_2"
    view = lemon_view.of(nights.night(score), report_url="https://probing.example/jobs/{job_id}")
    first, second = view.new[0].failures
    assert (first.ref, first.command, first.url) == (
        "11_2",
        "probing-report 11_2",
        "https://probing.example/jobs/4241",
    )
    assert (second.ref, second.command) == ("4240", "probing-report 4240")


def test_the_exact_commands_for_each_state() -> None:
    """A lemon is drained, confirmed, denied or repaired; a drained one is not drained again; a suspect is looked at."""
    drain = records.Drain(
        drain_id=uuid.UUID(int=1), cluster="c", node="n8", at=nights.DAY, action="drain", reason="probing: lemon",
        owner="probing", state="done",
    )  # fmt: skip
    view = lemon_view.of(nights.busy(), drains=[drain])
    assert [c.text for c in view.new[0].commands] == [
        "probing-ctl drain n7 --reason 'lemon, 6 failures'",
        "probing-ctl lemon confirm n7 --note 'what you found'",
        "probing-ctl lemon deny n7 --note 'why not'",
        "probing-ctl lemon repaired n7 --note 'what was done'",
    ]
    assert not any("probing-ctl drain" in c.text for c in view.still[0].commands)
    assert view.still[0].drained == "drained since 2026-11-20 00:00Z (probing: lemon)"
    assert view.suspects[0].commands[0].text == "probing-ctl lemon list n10"
    ended = dataclasses.replace(drain, ended_at=nights.NOW)
    assert lemon_view.of(nights.busy(), drains=[ended]).still[0].drained == ""


def test_a_link_where_the_site_has_reports_on_the_web() -> None:
    """The address of the settings with the job's id; nothing that is no web address becomes a link."""
    view = lemon_view.of(nights.busy(), report_url="https://probing.example/jobs/{job_id}?a=b")
    assert view.new[0].failures[0].url == "https://probing.example/jobs/4245?a=b"
    assert lemon_view.of(nights.busy(), report_url="javascript:{job_id}").new[0].failures[0].url == ""


def test_many_suspects_are_cut_and_counted() -> None:
    """A mail stays short."""
    view = lemon_view.of(nights.night(*(nights.score(f"n{i}", "suspect", 0.4) for i in range(14))))
    assert (len(view.suspects), view.n_more_suspects) == (10, 4)


@pytest.mark.parametrize(
    ("probability", "words"), [(1.0, "over 99 %"), (0.99, "99 %"), (0.934, "93 %"), (0.0, "under 1 %")]
)
def test_nothing_is_certain(probability: float, words: str) -> None:
    """Neither 100 % nor 0 % is ever said."""
    assert lemon_view.chance(probability) == words


def test_names_are_cut() -> None:
    """A bad night's subject stays readable."""
    headline = lemon_view.headline(nights.night(*(nights.score(f"n{i}", "new") for i in range(7))))
    assert headline.startswith("7 new lemons: n0, n1, n2, n3 and 3 more")


def test_a_quiet_night() -> None:
    """One line, which counts what was looked at; unknown sizes are said, not counted."""
    assert lemon_view.headline(nights.night()) == "quiet night, no lemon (2 nodes scored)"
    cost = {"gpu_h": 1.0, "jobs": 1, "users": 1, "unknown_gpus": 2}
    odd = nights.score("n7", "new")
    odd = dataclasses.replace(odd, signals={**odd.signals, "cost": cost})
    assert "2 attempts of unknown size not counted" in lemon_view.of(nights.night(odd)).new[0].cost


def test_a_night_with_a_suspect_says_what_it_lacks() -> None:
    """It is not quiet, and its failures are not explained by its load."""
    suspect = nights.score("z01", "suspect", 0.39, 9)
    suspect = dataclasses.replace(suspect, signals={**suspect.signals, "episodes": 3})
    found = nights.night(suspect, *(nights.score(f"n{i}", "", 0.001, 0) for i in range(2)))
    assert lemon_view.headline(found) == "no lemon, 1 suspect: z01 (5 nodes scored)"
    assert lemon_view.none_because(found) == (
        "No node is a lemon: none is proven to be one. z01 comes nearest, with 9 failures that count as 3 (within two days they count once)"
        " in 28 days, 39 % likely, where 75 % are needed; 5 nodes in use are few to compare."
    )
    many = nights.night(
        nights.score("z01", "suspect", 0.49, 2), *(nights.score(f"n{i}", "", 0.001, 0) for i in range(20))
    )
    assert lemon_view.none_because(many).endswith(
        "with 2 failures in 28 days, but no third sign, or too close together."
    )


def test_of_nodes_that_nobody_suspects_the_one_with_most_failures_comes_first() -> None:
    """Below one percent the model's order says little; its failures are not stored, so none are called earlier ones."""
    few, none = nights.score("n1", "", 0.001, n=0), nights.score("n2", "", 0.002, n=0)
    few = dataclasses.replace(few, single_node_node_fails=20, multi_node_node_fails=0, reasons=())
    none = dataclasses.replace(none, single_node_node_fails=0, multi_node_node_fails=0, reasons=())
    night = nights.night(none, few)
    assert [r.node for r in lemon_view.of(night).ranked] == ["n1", "n90", "n2", "n91"]
    shown = lemon_view.card(few, night)
    assert (shown.n_more, shown.failures) == (0, ())
    assert shown.reasons[0].startswith("20 failures")
