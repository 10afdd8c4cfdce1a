from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import lemon_fleet as fleet
import pytest

from probing_cluster.core import errors, records
from probing_cluster.db import store as db_store
from probing_cluster.lemon import gather, model, nightly
from probing_cluster.reports.lemon import lemon_view

DAY, CONFIG, BAD = fleet.DAY, fleet.CONFIG, fleet.BAD
NEXT = timedelta(days=1)


def of(night: nightly.Night, node: str) -> records.LemonScore:
    (one,) = [s for s in night.scores if s.node == node]
    return one


def test_the_node_that_keeps_killing_jobs_is_named_and_no_other(store: db_store.Store) -> None:
    """Six lost GPUs on six days name n07 with its reasons and cost; one failure on n20 names no node."""
    fleet.story(store)
    night = nightly.score(store, CONFIG, DAY)
    assert [s.node for s in night.new] == [BAD]
    assert len(night.scores) == len(fleet.NODES)
    bad = of(night, BAD)
    assert (bad.verdict, bad.multi_node_node_fails, bad.single_node_node_fails, bad.xid_cnt) == (
        "lemon",
        5,
        1,
        1,
    )
    assert bad.score >= model.LEMON_FROM
    assert bad.reasons[0].startswith("6 attempts failed because of it on 6 days (gpu_lost 6×)")
    assert bad.reasons[1] == "6 of them were the same part again: gpu3 (gpu_lost)."
    gpus = sum(8 * (1 + n) for n in range(6))
    assert bad.signals["cost"] == {"gpu_h": gpus * 0.5, "jobs": 6, "users": 3, "unknown_gpus": 0}
    assert [f["job_id"] for f in bad.signals["failures"]] == [6, 5, 4, 3, 2, 1]
    assert of(night, "n20").verdict != "lemon"
    assert of(night, "n30").verdict == "ok"
    assert of(night, "n30").reasons == ()


def test_failures_count_together_within_the_window_they_are_told_of(store: db_store.Store) -> None:
    """Three of this month on two days; the model also weighs three of the months before, which the report does not list."""
    store.upsert_attempts(fleet.use(days=112))
    for job_id, days_ago in enumerate((90, 70, 50, 10, 9.5, 9), start=1):
        fleet.fail(store, job_id, days_ago, "n20")
    score = of(nightly.score(store, CONFIG, DAY), "n20")
    assert score.single_node_node_fails == 3
    assert score.signals["episodes"] == 1
    assert "3 failures that count as 1 (within two days they count once)" in lemon_view.why_not(
        dataclasses.replace(score, score=0.1), 28
    )


def test_a_failure_has_the_name_that_its_owner_knows(store: db_store.Store) -> None:
    """A task of an array is 11_2, whatever raw id Slurm gave it."""
    fleet.story(store)
    (task,) = store.attempts(job_ids=[6])
    store.upsert_attempts([dataclasses.replace(task, array_job_id=11, array_task_id=2)])
    bad = of(nightly.score(store, CONFIG, DAY), BAD)
    assert [f["ref"] for f in bad.signals["failures"]] == ["11_2", "5", "4", "3", "2", "1"]


def test_a_night_told_twice_is_the_same_rows(store: db_store.Store) -> None:
    """Scoring again replaces and changes nothing but the time it was made; what is stored is what is loaded."""
    fleet.story(store)
    first = nightly.score(store, CONFIG, DAY)
    second = nightly.score(store, CONFIG, DAY)
    plain = [dataclasses.replace(s, made_at=DAY) for s in first.scores]
    assert [dataclasses.replace(s, made_at=DAY) for s in second.scores] == plain
    assert [s.node for s in second.new] == [BAD]
    loaded = nightly.load(store, CONFIG, DAY)
    assert loaded == second
    assert nightly.load(store, CONFIG) == second
    with pytest.raises(errors.NotFound, match="2026-11-01 has no scores"):
        nightly.load(store, CONFIG, DAY.replace(day=1))


def test_a_night_without_a_node_is_no_circle(store: db_store.Store) -> None:
    """Scored and empty: what asks for a night says what is missing, not to score what was scored."""
    assert nightly.score(store, CONFIG, DAY).scores == ()
    with pytest.raises(errors.NotFound, match="once jobs on it are stored") as found:
        nightly.load(store, CONFIG)
    assert "scores the last one" not in str(found.value)


def test_another_clusters_nights_are_its_own(store: db_store.Store) -> None:
    """Two clusters in one database, scored on different days, with a node of the same name."""
    fleet.story(store)
    nightly.score(store, CONFIG, DAY)
    other = records.LemonScore(
        cluster="d", node=BAD, day=DAY + NEXT, score=0.1, verdict="ok", made_at=fleet.END
    )
    store.save_lemon_scores([other])
    night = nightly.load(store, CONFIG)
    assert (night.day, [s.node for s in night.new], len(night.scores)) == (DAY, [BAD], len(fleet.NODES))


def test_new_then_still_then_recovered_after_its_repair(store: db_store.Store) -> None:
    """A lemon is new once, still there the next night since the same day, and gone after `lemon repaired`."""
    fleet.story(store)
    nightly.score(store, CONFIG, DAY)
    second = nightly.score(store, CONFIG, DAY + NEXT)
    assert ([s.node for s in second.new], [s.node for s in second.still]) == ([], [BAD])
    assert second.previous_day == DAY
    assert of(second, BAD).signals["since"] == "2026-11-20T00:00:00Z"
    fleet.note(store, "repaired", BAD, DAY + 1.5 * NEXT, lemon=True)
    third = nightly.score(store, CONFIG, DAY + 2 * NEXT)
    # The word fell on the second day's end already: the third night sees a node without a past.
    assert [s.node for s in third.gone] == [BAD]
    assert of(third, BAD).verdict == "recovered"
    assert of(third, BAD).reasons[0].startswith("Repaired, says eve")
    assert nightly.score(store, CONFIG, DAY + 3 * NEXT).uneventful


def test_a_repair_that_did_not_help_is_named_again(store: db_store.Store) -> None:
    """New failures after the repair name it anew, and the reasons say that it came back."""
    fleet.story(store)
    nightly.score(store, CONFIG, DAY)
    fleet.note(store, "repaired", BAD, fleet.END, lemon=True)
    for n, day in enumerate((1.5, 4.5, 7.5, 10.5)):
        fleet.fail(store, 200 + n, -day, BAD)
    store.upsert_attempts([fleet.attempt(300, 0, -12, BAD)])
    night = nightly.score(store, CONFIG, DAY + 12 * NEXT)
    assert of(night, BAD).verdict == "lemon"
    assert "It failed again after 1 repair." in of(night, BAD).reasons


def test_a_denied_lemon_is_none_until_new_evidence(store: db_store.Store) -> None:
    """A person's denial cancels everything known by then."""
    fleet.story(store)
    nightly.score(store, CONFIG, DAY)
    fleet.note(store, "deny", BAD, fleet.END + NEXT / 2)
    night = nightly.score(store, CONFIG, DAY + NEXT)
    assert (of(night, BAD).verdict, [s.node for s in night.gone]) == ("ok", [BAD])
    assert of(night, BAD).reasons[0] == "Denied by eve on 2026-11-21."


def test_a_confirmed_node_is_a_lemon_until_it_is_repaired(store: db_store.Store) -> None:
    """Confirmed on one failure: named by the person's word, also on a day without any job on it."""
    fleet.story(store)
    fleet.note(store, "confirm", "n20", DAY)
    night = nightly.score(store, CONFIG, DAY)
    assert {s.node for s in night.new} == {BAD, "n20"}
    assert of(night, "n20").reasons[0] == "Confirmed by eve on 2026-11-20: seen on site"
    later = nightly.score(store, CONFIG, DAY + 40 * NEXT)
    assert of(later, "n20").verdict == "lemon"


def test_a_forged_log_line_names_nobody(store: db_store.Store) -> None:
    """The same six failures, from jobs' own output only: no node is named and no failure is the node's."""
    store.upsert_attempts(fleet.use())
    for n, days_ago in enumerate(fleet.LEMON_DAYS):
        fleet.fail(store, 1 + n, days_ago, BAD, "n01", source="joblog")
    night = nightly.score(store, CONFIG, DAY)
    bad = of(night, BAD)
    assert (bad.verdict != "lemon", bad.multi_node_node_fails) == (True, 0)
    assert night.new == ()


def test_slurms_outages_are_counted_and_their_absence_said(store: db_store.Store) -> None:
    """With Slurm's record the stretches count; without it the report says that only our drains do."""
    fleet.story(store)
    out = [
        gather.SlurmOutage(node=BAD, start_at=fleet.at(d), end_at=fleet.at(d - 0.2), reason="Not responding")
        for d in (3, 9, 40)
    ]
    night = nightly.score(store, CONFIG, DAY, slurm_facts=gather.SlurmFacts(outages=out))
    assert of(night, BAD).out_count == 2
    assert not any("outages" in r for r in night.remarks)
    again = nightly.score(store, CONFIG, DAY)
    assert of(again, BAD).out_count == 0
    assert any("only our own drains" in r for r in again.remarks)


def test_our_drains_and_users_exclusions_are_read(store: db_store.Store) -> None:
    """The store's own rows reach the paper's counts; a simulated drain does not."""
    fleet.story(store)
    for n, state in enumerate(("done", "resumed", "simulated")):
        store.save_drain(
            records.Drain(
                drain_id=uuid.UUID(int=n), cluster="c", node=BAD, at=fleet.at(2 + n), action="drain",
                reason="probing: xid 79", owner="probing", state=state, ended_at=fleet.at(1.5 + n),
            )
        )  # fmt: skip
    store.save_exclusions([records.JobExclusion(cluster="c", node=BAD, job_id=9, at=fleet.at(1))])
    bad = of(nightly.score(store, CONFIG, DAY), BAD)
    assert (bad.out_count, bad.excl_jobid_count) == (2, 1)


@pytest.mark.parametrize(
    ("probability", "was", "word", "expected"),
    [
        (0.95, None, None, ("lemon", "new")),
        (0.95, "lemon", None, ("lemon", "still")),
        (0.6, "lemon", None, ("lemon", "still")),
        (0.6, "suspect", None, ("suspect", "suspect")),
        (0.4, "lemon", None, ("recovered", "recovered")),
        (0.4, "recovered", None, ("suspect", "suspect")),
        (0.1, "ok", None, ("ok", "")),
        (0.1, "lemon", "deny", ("ok", "denied")),
        (0.1, "ok", "confirm", ("lemon", "new")),
        (0.1, "lemon", "repaired", ("recovered", "recovered")),
    ],
)
def test_states(probability: float, was: str | None, word: str | None, expected: tuple[str, str]) -> None:
    """Named from 0.75 on, a lemon until below 0.5, and people's words above the number."""
    before = None
    if was:
        before = records.LemonScore(cluster="c", node="n", day=DAY, score=0.5, verdict=was, made_at=DAY)
    note = None
    if word:
        note = records.OperatorNote(
            note_id=uuid.UUID(int=1), cluster="c", at=DAY, author="eve", subject="node:n", action=word
        )
    assert nightly.state(probability, before, note, 3.0) == expected
    if expected[0] == "suspect":
        assert nightly.state(probability, before, note, 1.0) == ("ok", "")
