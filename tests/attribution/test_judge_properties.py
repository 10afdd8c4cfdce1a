"""Properties of every verdict, for any case."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.attribution.verdict import (
    claims,
    findings,
    judge,
    phrases,
    rules,
    signatures,
    taxonomy,
    view_builder,
)
from probing_cluster.core import records, vocabulary
from tests.attribution.conftest import Maker

MANY = 3 * settings.default.max_examples

KINDS = sorted(signatures.kinds())
CODES = [
    "79",
    "48",
    "94",
    "95",
    "64",
    "31",
    "13",
    "45",
    "74",
    "119",
    "63",
    "149",
    "port_down",
    "up",
    "fatal",
    "corrected",
    "UE",
    "CE",
    "memcg",
    None,
]
FINDINGS = sorted(findings.kinds())
STATES = sorted(judge.JUDGED_STATES)
DEVICES = [None, "gpu0", "gpu3", "mlx5_0", "/scratch", "nvme0n1"]


@st.composite
def scenes(draw):
    """A maker, an attempt, events and the other fields of a case."""
    make = Maker()
    attempt = make.attempt(
        state=draw(st.sampled_from(STATES)),
        exit_code=draw(st.sampled_from([0, 1, 137, 134])),
        exit_signal=draw(st.sampled_from([0, 9, 6])),
        nodes=draw(st.sampled_from([("n1",), ("n1", "n2"), ("n1", "n2", "n3")])),
        start_at=make.end - timedelta(seconds=draw(st.sampled_from([20, 300, 1100, 30_000]))),
        failed_node=draw(st.sampled_from([None, "n1", "n2"])),
    )
    if draw(st.booleans()):
        attempt = dataclasses.replace(
            attempt, gpus=draw(st.sampled_from([None, make.gpus("n1", indices=(3,)), {}]))
        )
    events = [_event(draw, make) for _ in range(draw(st.integers(0, 6)))]
    # Of two alike, which comes first must not matter either.
    events += [_twin(draw, make, e) for e in events if draw(st.booleans())]
    actions = tuple(
        make.action(
            draw(st.sampled_from(["drain", "requeue", "refuse"])),
            draw(st.sampled_from([-30, -2, 10])),
            job_id=draw(st.sampled_from([None, 4242, 7])),
            node=draw(st.sampled_from(["n1", "n2"])),
            reason=draw(st.sampled_from(["probing: xid 79 gpu3", "probing: mount"])),
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    more = {"actions": actions}
    if draw(st.booleans()):
        more["watched"] = draw(st.sampled_from([{}, {"n1": make.end}]))
    if draw(st.booleans()):
        more["shared"] = {"n1": ((make.start, None),)}
    return make, attempt, events, more


def _event(draw, make):
    before = draw(st.sampled_from([-400, -200, -20, -1, 0, 1, 4, 30, 200, 590, 700, 1900, 20_000]))
    if draw(st.integers(0, 3)) == 0:
        detail = (
            {"timeout_ms": draw(st.sampled_from([600_000, 1_800_000]))}
            if draw(st.booleans())
            else {"at_from_log": True}
        )
        return make.finding(
            draw(st.sampled_from(FINDINGS)), before, detail=detail, node=draw(st.sampled_from(["n1", "n2"]))
        )
    device = draw(st.sampled_from(DEVICES))
    node = draw(st.sampled_from(["n1", "n2", "n3"]))
    gpu = (
        make.uuid(node, int(device[3:]))
        if device and device.startswith("gpu") and draw(st.booleans())
        else None
    )
    return make.event(
        before,
        node=node,
        kind=draw(st.sampled_from(KINDS)),
        code=draw(st.sampled_from(CODES)),
        severity=draw(st.sampled_from(list(records.Severity))),
        device=device,
        gpu_uuid=gpu,
        source=draw(st.sampled_from(["kernel", "nvml", "sysfs", "check"])),
        detail=draw(st.sampled_from([{}, {"recovered": True}])),
    )


def _twin(draw, make, event):
    """The same a little later or at once, maybe on another device."""
    at = event.at + timedelta(seconds=draw(st.sampled_from([0, 1, 20])))
    other = make.event(at=at, node=event.node)
    device = draw(st.sampled_from([event.device, "gpu5"]))
    gpu = event.gpu_uuid if device == event.device else None
    return dataclasses.replace(event, event_id=other.event_id, at=at, device=device, gpu_uuid=gpu)


def verdict(make, attempt, events, more):
    made = judge.judge(make.case(*events, attempt=attempt, **more), made_at=make.end)
    assert made is not None
    return made


@settings(max_examples=MANY)
@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(found, random):
    """Shuffled events and actions give the same verdict, word for word."""
    make, attempt, events, more = found
    first = verdict(make, attempt, events, more)
    mixed = [*events, *events[:2]]
    random.shuffle(mixed)
    acts = list(more["actions"])
    random.shuffle(acts)
    assert verdict(make, attempt, mixed, {**more, "actions": tuple(acts)}) == first


@settings(max_examples=MANY)
@given(scenes())
def test_every_piece_of_evidence_exists_and_lies_in_the_window(found):
    """Evidence ids are events of the case, inside the window the verdict names, on nodes of the attempt."""
    make, attempt, events, more = found
    made = verdict(make, attempt, events, more)
    known = {e.event_id: e for e in events}
    assert len(set(made.evidence)) == len(made.evidence)
    for event_id in made.evidence:
        event = known[event_id]
        assert made.window_start_at <= event.at <= made.window_end_at
        assert event.node in attempt.nodes or event.job_id == attempt.job_id
    assert made.window_start_at <= made.onset_at <= attempt.end_at or made.onset_at <= made.window_end_at
    assert made.confidence is not records.Confidence.UNKNOWN or made.cause == taxonomy.UNKNOWN
    assert (
        made.node is None
        or made.node in attempt.nodes
        or made.node in {attempt.failed_node, *(a.node for a in more["actions"])}
    )


@settings(max_examples=MANY)
@given(scenes(), st.data())
def test_more_evidence_is_never_less_specific_without_saying_why(found, data):
    """When a further event makes the answer vaguer or less sure, the verdict names that event or the other answer."""
    make, attempt, events, more = found
    extra = _event(data.draw, make)
    before = verdict(make, attempt, events, more)
    after = verdict(make, attempt, [*events, extra], more)
    vaguer = taxonomy.cause(after.cause).specificity < taxonomy.cause(before.cause).specificity
    doubt = claims.rank_of(after.confidence) < claims.rank_of(before.confidence)
    if vaguer or doubt:
        text = " ".join([after.summary, *after.ruled_out])
        named = extra.event_id in after.evidence or before.cause in text or phrases.what(extra) in text
        named |= extra.source == "joblog" and "as a consequence" in text
        rival = bool(after.less_likely)
        assert named or rival, (before, after, extra)


@settings(max_examples=MANY)
@given(scenes())
def test_hardware_is_never_certain_from_the_jobs_side_alone(found):
    """Without a node event and without Slurm's word no hardware verdict is certain."""
    make, attempt, events, more = found
    own = [e for e in events if e.source in vocabulary.JOB_SIDE_SOURCES]
    made = verdict(make, attempt, own, more)
    if made.domain is records.Domain.HARDWARE and made.cause not in ("node_lost", "node_refused"):
        assert made.confidence is not records.Confidence.CERTAIN


@settings(deadline=None)
@given(found=scenes())
def test_a_rule_that_is_not_asked_had_nothing_to_say(found):
    """Asking only the rules whose causes something points at leaves out no claim."""
    make, attempt, events, more = found
    view = view_builder.build(make.case(*events, attempt=attempt, **more))
    assert view is not None
    every = [c for rule in rules.registered().values() for c in rule(view)]
    assert rules.claims_of(view) == every
