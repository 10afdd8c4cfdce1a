from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import conftest_story as example
import pytest

from probing_cluster.core import records, vocabulary
from probing_cluster.reports import job_ref, model, node_state, phrase, rows, text

NOW = example.at("15:00:00")
RUNNING = example.attempt(1, start_at=example.at("14:02:14"), state="RUNNING", nodes=("n1", "n2"))


def beat(node: str, ago_s: float = 1.0, **changes: object) -> records.AgentHeartbeat:
    values = {
        "cluster": "c",
        "node": node,
        "at": NOW - timedelta(seconds=ago_s),
        "beat_s": 10.0,
        "jobs": (4242,),
    }
    return records.AgentHeartbeat(**(values | changes))


def test_nodes_with_nothing_to_say_are_one_sentence() -> None:
    """All is well: one line for all nodes, and no word about what we do not see."""
    lines = node_state.sentences(RUNNING, [beat("n1"), beat("n2")], [], NOW)
    assert lines == ("n[1-2]: the agent reports no active fault; not drained by Probing Cluster.",)


def test_a_dead_node_of_a_running_job_is_named() -> None:
    """Slurm says RUNNING until its timeout has passed; the report says which node no longer answers."""
    lines = node_state.sentences(RUNNING, [beat("n1"), beat("n2", ago_s=42)], [], NOW)
    assert lines[0].startswith("n2 has not been heard for 42 s")
    assert "NODE_FAIL" in lines[0]
    assert lines[1].startswith("n1: the agent reports no active fault")


def test_nodes_that_nobody_could_hear_are_not_called_dead() -> None:
    """The database was away for ten minutes until five seconds ago."""
    since = NOW - timedelta(seconds=5)
    lines = node_state.sentences(RUNNING, [beat("n1", 612), beat("n2", 612)], [], NOW, since)
    assert not any("not been heard" in line for line in lines)


@pytest.mark.parametrize("ago_s", [15, 20])
def test_a_late_beat_is_not_yet_silence(ago_s: float) -> None:
    """Two beats, and at least what clocks of two hosts may differ by."""
    lines = node_state.sentences(RUNNING, [beat("n1", ago_s=ago_s), beat("n2", 15, beat_s=2.0)], [], NOW)
    assert lines == ("n[1-2]: the agent reports no active fault; not drained by Probing Cluster.",)


def test_by_one_clock_two_missed_beats_are_silence_however_short() -> None:
    """As `probing-ctl nodes` says it; the reader's own clock does not count then."""
    beats = [beat("n1", 6, beat_s=3.0), beat("n2", 7, beat_s=3.0)]
    lines = node_state.sentences(RUNNING, beats, [], NOW + timedelta(hours=1), read_at=NOW)
    assert lines[0].startswith("n2 has not been heard for 7 s")
    assert lines[1].startswith("n1: the agent reports no active fault")


def test_faults_and_our_drain_are_named() -> None:
    """What is broken under a job that still runs, and that no other starts there."""
    faults = {"xid:gpu3": {"severity": "high"}, "odd\x1b[31m": "boo", "x" * 500: {"severity": ["high"]}}
    drained = example.drain("drain", example.at("14:30:00"))
    lines = node_state.sentences(RUNNING, [beat("n1"), beat("n2", faults=faults)], [drained], NOW)
    assert "Xid gpu3 (high)" in lines[0]
    assert "\x1b" not in lines[0]
    assert len(lines[0]) < 300
    assert lines[1].startswith("n2 is drained since 2026-11-21 14:30:00Z (probing: xid 79 gpu3)")
    lifted = dataclasses.replace(drained, state="resumed", ended_at=example.at("14:40:00"))
    assert not any(
        "drained since" in line for line in node_state.sentences(RUNNING, [beat("n2")], [lifted], NOW)
    )


@pytest.mark.parametrize(
    ("severity", "ago_s", "owner", "goes_on"),
    [("high", 5, "probing", False), ("high", 3600, "probing", True), ("high", 5, "alice", True), ("low", 5, "probing", True)],
)  # fmt: skip
def test_a_job_that_we_may_requeue_is_not_said_to_continue(
    severity: str, ago_s: float, owner: str, goes_on: bool
) -> None:
    """A fault that may end by itself is waited for before the jobs of the drained node are requeued."""
    drained = dataclasses.replace(
        example.drain("drain", NOW - timedelta(seconds=ago_s)), severity=records.Severity.HIGH, owner=owner
    )
    faults = {"mount:/scratch": {"severity": severity}}
    line = node_state.sentences(RUNNING, [beat("n2", faults=faults)], [drained], NOW)[1]
    assert ("this job continues" in line) is goes_on
    assert ("put this job back in the queue" in line) is not goes_on
    assert "no new job starts there" in line


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "this job continues (it does not hold the GPU), and no new job starts there"),
        ({"at": NOW - timedelta(seconds=6)}, "this job continues (it does not hold the GPU)"),
        ({"why_state": vocabulary.GPUS_UNKNOWN}, "we may put this job back"),
        ({"why_state": vocabulary.DECIDED_ANEW}, "we may put this job back"),
        ({"state": "denied", "why_state": "requeue budget"}, "we may put this job back"),
        ({"job_id": 7}, "we may put this job back"),
        ({"node": "n1"}, "we may put this job back"),
        ({"at": NOW - timedelta(seconds=90), "event_ids": ()}, "we may put this job back"),
    ],
)
def test_a_job_that_was_left_where_it_is_is_said_to_continue(changes: dict[str, object], why: str) -> None:
    """It does not hold the GPU that failed: nobody puts it back. What is not decided for good may still be done."""
    drained = dataclasses.replace(
        example.drain("drain", NOW - timedelta(seconds=5)), severity=records.Severity.HIGH
    )
    values: dict[str, object] = {
        "at": NOW - timedelta(seconds=4), "node": "n2", "job_id": RUNNING.job_id, "state": "skipped",
        "why_state": "it does not hold the GPU", "event_ids": drained.event_ids,
    }  # fmt: skip
    left = dataclasses.replace(example.drain("requeue", NOW), **(values | changes))  # type: ignore[arg-type]
    faults = {"xid:gpu3": {"severity": "high"}}
    for decisions in ([drained, left], [left, drained]):
        assert why in node_state.sentences(RUNNING, [beat("n2", faults=faults)], decisions, NOW)[1]


def test_one_broken_part_is_one_fault() -> None:
    """Kernel, NVML and a check tell of the same GPU: it is counted once, as `probing-ctl nodes` does."""
    gpu = {"severity": "high", "device": "gpu2", "pci_bus_id": "0000:61:00"}
    faults = {
        "check:0000:61:00": {"severity": "high"},
        "check:gpu2": gpu,
        "xid:gpu2": gpu | {"kind": "xid", "code": "79"},
    }
    lines = node_state.sentences(RUNNING, [beat("n2", faults=faults)], [], NOW)
    assert lines[0] == "n2 has an active fault: Xid 79 gpu2 (high, 3 signs)."


def test_a_node_without_an_agent_is_not_called_well() -> None:
    """Not seeing is not health."""
    lines = node_state.sentences(RUNNING, [beat("n1")], [], NOW)
    assert "n2: no agent has ever reported; the state is not known." in lines


def test_the_report_of_a_running_job_has_them_and_that_of_an_ended_one_not() -> None:
    """In text, before any verdict."""
    found = rows.ReportRows(attempts=(RUNNING,), heartbeats=(beat("n1"), beat("n2", ago_s=42)))
    page = text.render(model.build(job_ref.parse("4242"), found, now=NOW))
    assert "Its nodes now\n  n2 has not been heard" in page
    ended = dataclasses.replace(RUNNING, end_at=NOW, state="COMPLETED")
    page = text.render(
        model.build(job_ref.parse("4242"), dataclasses.replace(found, attempts=(ended,)), now=NOW)
    )
    assert "Its nodes now" not in page


@pytest.mark.parametrize("confidence", list(records.Confidence))
def test_a_drain_for_a_fault_of_after_the_end_is_none_of_a_settled_jobs(
    story: rows.ReportRows, confidence: records.Confidence
) -> None:
    """A job that exited with 1 had nothing of the GPU that failed nine minutes later."""
    (verdict,) = story.verdicts
    attempt = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    assert attempt.end_at is not None
    alone = dataclasses.replace(verdict, evidence=(), confidence=confidence)
    later = dataclasses.replace(
        example.drain("drain", attempt.end_at + timedelta(minutes=9)), event_ids=verdict.evidence, job_id=None
    )
    settled = confidence in (records.Confidence.CERTAIN, records.Confidence.LIKELY)
    assert node_state.concerns(attempt, later, alone) is not settled
    assert node_state.concerns(attempt, later, verdict)


def test_what_befalls_the_nodes_of_an_ended_job_is_not_its_own(story: rows.ReportRows) -> None:
    """A person's drain a minute later, a decision that was skipped, or anything after a completed attempt is another story."""
    (verdict,) = story.verdicts
    failed = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    completed = dataclasses.replace(failed, state="COMPLETED")
    assert failed.end_at is not None
    unjudged = dataclasses.replace(verdict, evidence=(), confidence=records.Confidence.UNKNOWN)

    def drain(after_s: float, **changes: object) -> records.Drain:
        at = failed.end_at + timedelta(seconds=after_s)
        return dataclasses.replace(example.drain("drain", at, event_ids=(), job_id=None), **changes)

    persons, ours = drain(90, owner="root", reason="probing: me too (root)"), (uuid.UUID(int=7),)
    for attempt, given, concerned in (
        (failed, drain(30), True),
        (failed, persons, False),
        (failed, drain(90, event_ids=ours), True),
        (failed, drain(90, event_ids=ours, state="skipped", why_state="DRAIN by another"), False),
        (completed, drain(30), False),
        (completed, drain(57, event_ids=ours), False),
        (completed, drain(-5, event_ids=ours), True),
        (completed, drain(57, job_id=completed.job_id), True),
    ):
        assert node_state.concerns(attempt, given, unjudged) is concerned
        assert node_state.concerns(attempt, given, None) is concerned


@pytest.mark.parametrize(
    ("age_s", "why", "words"),
    [
        (5, vocabulary.BEGUN, "n2 is being drained since 14:20:34Z (probing: xid 79 gpu3)"),
        (5, f"{vocabulary.BEGUN}: Slurm did not answer", "n2 is being drained since 14:20:34Z (probing: xid 79 gpu3; Slurm did not answer)"),
        (400, vocabulary.BEGUN, f"n2 not drained 14:20:34Z (failed: {vocabulary.BEGUN})"),
        (5, "no such node", "n2 not drained 14:20:34Z (failed: no such node)"),
    ],
)  # fmt: skip
def test_a_drain_that_was_begun_a_moment_ago_has_not_failed(
    story: rows.ReportRows, age_s: float, why: str, words: str
) -> None:
    drain = example.drain("drain", example.at("14:20:34"), state="failed", why_state=why)
    found, now = dataclasses.replace(story, drains=(drain,)), drain.at + timedelta(seconds=age_s)
    page = text.render(model.build(job_ref.parse("4242"), found, now=now), width=110)
    assert words in " ".join(page.split())


def test_a_persons_drain_under_way_is_theirs_and_nothing_contradicts_it(story: rows.ReportRows) -> None:
    at = example.at("14:20:34")
    drain = example.drain("drain", at, state="failed", why_state=vocabulary.BEGUN)
    (under_way,) = node_state.as_shown([dataclasses.replace(drain, owner="alice")], at)
    assert phrase.action(under_way, "", with_day=False) == "n2 is being drained by alice since 14:20:34Z"
    skipped = example.drain("drain", at, state="skipped", why_state="n2 is DRAIN (x)")
    assert node_state.worth_a_line([under_way, skipped]) == (under_way,)


def test_what_befell_a_node_after_its_repair_is_no_act_for_the_job(story: rows.ReportRows) -> None:
    """A fault two minutes after the end, of a node that had come back in between."""
    (verdict,) = story.verdicts
    attempt = next(a for a in story.attempts if a.submit_at == verdict.submit_at)
    assert attempt.end_at is not None
    again = dataclasses.replace(
        example.drain("drain", attempt.end_at + timedelta(minutes=2)), event_ids=(uuid.UUID(int=99),), job_id=None
    )  # fmt: skip
    back = attempt.end_at + timedelta(minutes=1)
    assert node_state.concerns(attempt, again, verdict)
    assert not node_state.concerns(attempt, again, verdict, back)
    assert node_state.concerns(attempt, again, verdict, back + timedelta(minutes=2))
    own = dataclasses.replace(again, event_ids=verdict.evidence)
    assert node_state.concerns(attempt, own, verdict, back), "it is of the fault of the verdict"
