"""Compares what the prefilter assumes about events with the judge: random cases, full verdicts."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probing_cluster.attribution.passes import assign_rows, event_weight, no_evidence_verdict
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    judge,
    signatures,
)
from probing_cluster.attribution.verdict.rules import user_error
from probing_cluster.core import records
from tests.attribution.conftest import Maker

MANY = 3 * settings.default.max_examples

SORTS = sorted(
    {*signatures.exact_sorts(), *((kind, "") for kind in signatures.kinds()), ("no such kind", "x")}
)
STATES = sorted(judge.JUDGED_STATES - {"NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
SOURCES = ["kernel", "import", "nvml", "sysfs", "check", "ipmi", "mount", "service"]


@st.composite
def events(draw, make, node=None):
    """A node event of any sort, often near the end."""
    kind, code = draw(st.sampled_from(SORTS))
    device = draw(st.sampled_from([None, "gpu0", "gpu3", "mlx5_0", "/scratch"]))
    where = node or draw(st.sampled_from(["n1", "n2", "n3"]))
    return make.event(
        draw(st.sampled_from([-200, -20, -3, -2, -1, 0, 1, 4, 30, 59, 61, 200, 590])),
        node=where,
        kind=kind,
        code=code or None,
        severity=draw(st.sampled_from(list(records.Severity))),
        device=device,
        gpu_uuid=make.uuid(where, 3) if device == "gpu3" and draw(st.booleans()) else None,
        source=draw(st.sampled_from(SOURCES)),
        detail=draw(st.sampled_from([{}, {"recovered": True}])),
    )


@st.composite
def attempts(draw, make):
    """An attempt of one to three nodes, ended in any way that is not a node's."""
    limit_s = draw(st.sampled_from([None, 0.0, 1102.0, 1103.0, 1125.0, 86_400.0, 300_000.0]))
    return make.attempt(
        state=draw(st.sampled_from(STATES)),
        exit_code=draw(st.sampled_from([None, 0, 1, 2, 134, 137, 139])),
        exit_signal=draw(st.sampled_from([None, 0, 6, 9, 11, 15])),
        reason=draw(st.sampled_from(["", "JobLaunchFailure", "NonZeroExitCode"])),
        nodes=draw(st.sampled_from([("n1",), ("n1", "n2"), ("n2", "n1", "n3"), ("a[b", "node")])),
        n_gpus=draw(st.sampled_from([None, 0, 8, 24])),
        gpus=None,
        user=draw(st.sampled_from(["", "alice", "bo{b}"])),
        cancelled_by=draw(st.sampled_from([None, "0", "root", "eve", "alice", "1001"])),
        time_limit_s=limit_s,
        suspended_s=draw(st.sampled_from([0.0, 60.5])),
        start_at=make.end - timedelta(seconds=draw(st.sampled_from([1, 20, 1102, 30_000, 700_000]))),
    )


def weight_of(event):
    return event_weight.weight(
        event.kind, event.code, event.severity, recovered=event.detail.get("recovered") is True
    )


def judged(make, attempt, drawn, **more):
    return judge.judge(make.case(*drawn, attempt=attempt, **more), made_at=make.end)


@settings(max_examples=MANY)
@given(st.data())
def test_what_is_taken_for_quiet_is(data):
    """Inert events, faint ones of one channel, and the program's own GPU errors away from the end change no word."""
    make = Maker()
    attempt = data.draw(attempts(make))
    drawn = data.draw(st.lists(events(make), max_size=8))
    channels = {claims.channel(e.source) for e in drawn if weight_of(e) is event_weight.Weight.FAINT}

    def may(event):
        weight = weight_of(event)
        if weight is event_weight.Weight.FAINT:
            return claims.channel(event.source) == min(channels)
        if weight is event_weight.Weight.USER:
            return not attempt.end_at - user_error.NEAR <= event.at <= attempt.end_at + evidence_view.SLACK
        return weight is event_weight.Weight.INERT

    kept = [e for e in drawn if may(e)]
    assume(kept)
    assert judged(make, attempt, kept) == judged(make, attempt, [])


def test_every_sort_that_is_taken_for_quiet_is(make):
    """One by one: every kind and code at every severity, gone or not, beside three ways to end."""
    endings = [make.attempt(), make.attempt(state="CANCELLED"), make.attempt(exit_code=137, gpus=None)]
    alone = {a: judged(make, ending, []) for a, ending in enumerate(endings)}
    for kind, code in SORTS:
        for severity in records.Severity:
            for recovered in (False, True):
                weight = event_weight.weight(kind, code or None, severity, recovered=recovered)
                if weight not in (event_weight.Weight.INERT, event_weight.Weight.FAINT):
                    continue
                detail = {"recovered": True} if recovered else {}
                event = make.event(
                    20, kind=kind, code=code or None, severity=severity, detail=detail, device="gpu3"
                )
                for a, ending in enumerate(endings):
                    assert judged(make, ending, [event]) == alone[a], (kind, code, severity, recovered)


@settings(max_examples=MANY)
@given(st.data())
def test_inert_events_matter_only_beside_others_of_their_node(data):
    """Of an attempt that is judged in full, nodes with nothing but inert events need not be read."""
    make = Maker()
    attempt = data.draw(attempts(make))
    drawn = data.draw(st.lists(events(make), min_size=1, max_size=8))
    informative = {e.node for e in drawn if weight_of(e) is not event_weight.Weight.INERT}
    read = [e for e in drawn if e.node in informative]
    assert judged(make, attempt, read) == judged(make, attempt, drawn)


@settings(max_examples=MANY)
@given(st.data())
def test_a_quiet_verdict_is_the_judges_own_word_for_word(data):
    """However it ended, whatever its nodes, user and limits are called."""
    make = Maker()
    attempt = data.draw(attempts(make))
    policy = cases.WindowPolicy(before_s=data.draw(st.sampled_from([600.0, 60.0])), after_s=300.0)
    row = tuple(getattr(attempt, name) for name in no_evidence_verdict.COLUMNS)
    assert no_evidence_verdict.NoEvidenceVerdicts(policy, make.end).verdict(row) == judged(
        make, attempt, [], policy=policy
    )


def test_who_took_its_place_is_told_in_the_judges_words(new_maker):
    """With and without a name."""
    for name, user in (("pretrain", "bob"), ("", "bob")):
        make = new_maker()
        attempt = make.attempt(state="PREEMPTED", exit_code=0)
        by = make.attempt(job_id=99, name=name, user=user)
        row = tuple(getattr(attempt, n) for n in no_evidence_verdict.COLUMNS)
        verdict = no_evidence_verdict.NoEvidenceVerdicts(cases.WindowPolicy(), make.end).verdict(
            row, dataclasses.asdict(by)
        )
        assert verdict == judged(make, attempt, [], preemptor=by)


def test_a_next_step_names_the_job_as_its_owner_does(make):
    """The command that shows what it used takes its number."""
    answers = no_evidence_verdict.NoEvidenceVerdicts(cases.WindowPolicy(), make.end)
    for named in ({}, {"array_job_id": 4200, "array_task_id": 7}):
        killed = make.attempt(exit_code=137, **named)
        found = answers.verdict(tuple(getattr(killed, n) for n in no_evidence_verdict.COLUMNS))
        assert found == judged(make, killed, [])
        assert f"sacct -j {killed.ref} " in found.next_step


def test_a_name_that_begins_a_sentence_is_left_to_the_judge(make):
    """Such a sentence depends on the looks of the name, so no template can be used."""
    answers = no_evidence_verdict.NoEvidenceVerdicts(cases.WindowPolicy(), make.end)
    lost = make.attempt(state="NODE_FAIL", nodes=("n1",))
    assert answers.verdict(tuple(getattr(lost, n) for n in no_evidence_verdict.COLUMNS)) is None


def test_a_sort_with_a_row_of_its_own_that_never_argues_is_not_even_read():
    """Corrected errors and consequences are; what may name a cause is not; severity does not matter."""
    inert = event_weight.inert_sorts()
    assert {("xid", "43"), ("xid", "63")} <= set(inert)
    assert not {("xid", "79"), ("xid", "31"), ("xid", "94")} & set(inert)


def test_only_a_log_around_the_whole_run_is_whole(make):
    """One that begins in it, ends in it, or has a gap in it is not; an agent's node has no log of its own."""
    attempt, minute = make.attempt(nodes=("n1",)), timedelta(minutes=1)
    before, after = make.start - minute, make.end + minute
    logs = {
        "whole": assign_rows.AgentWatch(after, ((None, before),), beats=False),
        "begins in it": assign_rows.AgentWatch(after, ((None, make.start + minute),), beats=False),
        "ends in it": assign_rows.AgentWatch(make.end - minute, ((None, before),), beats=False),
        "a gap in it": assign_rows.AgentWatch(
            after, ((None, before), (before, make.end - minute)), beats=False
        ),
        "another file later": assign_rows.AgentWatch(
            after + 9 * minute, ((None, before), (after, after + minute)), beats=False
        ),
        "begin unknown": assign_rows.AgentWatch(after, beats=False),
        "an agent": assign_rows.AgentWatch(after, ((None, before),)),
    }
    whole = [name for name, log in logs.items() if assign_rows.by_whole_log(attempt, {"n1": log})]
    assert whole == ["whole", "another file later"]
