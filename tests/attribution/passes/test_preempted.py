"""The columnar verdict on a preempted attempt beside old conditions equals the judge's."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.attribution.passes import no_evidence_verdict, preempted
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge
from tests.attribution.conftest import Maker
from tests.attribution.passes.test_columnar_prefilter import attempts, events


@settings(max_examples=5 * settings.default.max_examples)
@given(st.data())
def test_conditions_strike_the_sentences_that_the_judge_leaves_out(data):
    """Any high events of days before, on GPUs, links, mounts or nodes, with and without GPUs of its own: word for word."""
    make = Maker()
    attempt = dataclasses.replace(data.draw(attempts(make)), state="PREEMPTED")
    drawn = data.draw(
        st.lists(st.sampled_from(attempt.nodes).flatmap(lambda n: events(make, n)), min_size=1, max_size=4)
    )
    long_ago = attempt.start_at - timedelta(days=data.draw(st.sampled_from([1, 5])))
    conditions = tuple(dataclasses.replace(e, at=long_ago, observed_at=long_ago) for e in drawn)
    words = preempted.struck(conditions, attempt.n_gpus, gpus_known=False)
    if words is None:
        return
    row = tuple(getattr(attempt, name) for name in no_evidence_verdict.COLUMNS)
    made = no_evidence_verdict.NoEvidenceVerdicts(cases.WindowPolicy(), make.end).verdict(row, struck=words)
    case = make.case(attempt=attempt, active_faults=conditions)
    assert made == judge.judge(case, made_at=make.end)


def test_what_a_gpu_strikes_depends_on_whose_it_is(make):
    """A lost GPU that may be none of its own, and an event of another job, are the judge's; a silent agent is, too."""
    lost = make.event(kind="xid", code="79", device="gpu3")
    assert preempted.struck([lost], 8, gpus_known=False) == {"GPUs"}
    assert preempted.struck([lost], 8, gpus_known=True) is None
    assert preempted.struck([lost], 0, gpus_known=False) is None
    assert preempted.struck([dataclasses.replace(lost, job_id=7)], 8, gpus_known=False) is None
    assert preempted.struck([make.event(kind="agent_silent")], 8, gpus_known=False) is None
