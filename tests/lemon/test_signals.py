from __future__ import annotations

import dataclasses
from datetime import timedelta

import datafusion
import lemon_facts as f
import numpy as np
import pyarrow as pa
import pytest

from probing_cluster.attribution.reliability.fleet import base as fleet_base
from probing_cluster.lemon import baseline, signals


def of(found: signals.Signals, node: str) -> signals.LemonNode:
    (one,) = [n for n in found.nodes if n.node == node]
    return one


def test_the_papers_seven_on_a_fleet_counted_by_hand() -> None:
    """n1: two gang failures, one alone of four single-node attempts, two Xids, two stretches out, a ticket, two excluders."""
    found = signals.compute(
        f.facts(
            [
                f.failed(1, 1, 2, "n1", "n2", by="n1"),
                f.failed(2, 3, 4, "n1", "n2", "n3", by="n1"),
                f.failed(3, 5, 6, "n1", by="n1"),
                f.attempt(4, 6, 7, "n1"),
                f.attempt(5, 7, 8, "n1"),
                f.attempt(6, 8, 9, "n1"),
                f.attempt(7, 8, None, "n1"),
            ],
            events=[
                f.event("n1", 2, "xid", code="79", n=3),
                f.event("n1", 4, "xid", code="79"),
                f.event("n1", 6, "xid", code="48"),
                f.event("n1", 6, "xid", code="13", source="joblog"),
            ],
            outages=[
                {"node": "n1", "start_us": f.us(2), "end_us": f.us(3)},
                {"node": "n1", "start_us": f.us(3), "end_us": f.us(3.5)},  # a changed reason, no pause
                {"node": "n1", "start_us": f.us(10), "end_us": None},
            ],
            notes=[f.note("n1", 5, "ticket"), f.note("n1", -30, "ticket"), f.note("n1", 6, "ack")],
            exclusions=[
                {"node": "n1", "job_id": 8, "at_us": f.us(9)},
                {"node": "n1", "job_id": 9, "at_us": f.us(9)},
                {"node": "n1", "job_id": 9, "at_us": f.us(10)},
            ],
        )
    )
    n1 = of(found, "n1")
    assert (n1.multi_node_node_fails, n1.single_node_node_fails) == (2, 1)
    assert n1.single_node_node_failure_rate == pytest.approx(1 / 4)
    assert (n1.xid_cnt, dict(n1.xids)) == (2, {"48": 1, "79": 4})
    assert (n1.out_count, n1.tickets, n1.excl_jobid_count) == (2, 1, 2)
    assert of(found, "n2").single_node_node_failure_rate is None
    assert (of(found, "n2").multi_node_node_fails, of(found, "n3").multi_node_node_fails) == (0, 0)


def test_eight_jobs_at_once_are_one_use() -> None:
    """Exposure is the time in use: overlapping attempts count once, a running one until the end, gaps not at all."""
    found = signals.compute(
        f.facts(
            [
                f.attempt(1, 1, 3, "n1"),
                f.attempt(2, 2, 4, "n1", "n2"),
                f.attempt(3, 2, 2.5, "n1"),
                f.attempt(4, 26, None, "n1"),
                f.attempt(5, -5, 0.5, "n1"),
            ]
        )
    )
    assert of(found, "n1").exposure_days == pytest.approx(3 + 2 + 0.5)
    assert of(found, "n2").exposure_days == pytest.approx(2)
    daily = found.window.daily_exposure_days
    assert daily is not None
    assert daily.shape == (2, 28)
    assert daily.sum(axis=1) == pytest.approx([5.5, 2])
    # Newest first: the running attempt fills the two last days, day 2-4 is 24 to 26 days old.
    assert np.flatnonzero(daily[0]).tolist() == [0, 1, 24, 25, 26, 27]
    assert daily[0, 27] == pytest.approx(0.5)
    assert daily.max() == pytest.approx(1.0)


def test_a_job_alone_convicts_nobody() -> None:
    """A verdict that only the job's own output supports is no failure of the node, for the paper's signals or ours."""
    found = signals.compute(f.facts([f.failed(n, n, n + 0.5, "n1", "n2", by="n1", attested=False) for n in range(5)]))  # fmt: skip
    n1 = of(found, "n1")
    assert (n1.multi_node_node_fails, n1.failures) == (0, ())
    assert found.window.episodes.tolist() == [0, 0]
    assert {w for _, w in found.window.gangs} == {signals.UNNAMED["only the job says so"][0]}


def test_what_jobs_tell_of_ranks_is_shown_and_never_counts() -> None:
    """Stalled ranks are listed for the node; the model does not use them."""
    attempts = [f.attempt(1, 1, 9, "n1", "n2")]
    events = [
        f.event("n1", 2, "rank_finding", code="slow", source="probe"),
        f.event("n1", 3, "ib_link", source="joblog"),
    ]
    found, without = signals.compute(f.facts(attempts, events)), signals.compute(f.facts(attempts))
    assert of(found, "n1").rank_findings == 1
    assert of(found, "n1").minor_link == 0
    assert found.window.auxiliary is not None
    assert without.window.auxiliary is not None
    assert found.window.auxiliary.tolist() == without.window.auxiliary.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"incident": "i"},
        {"component": "filesystem", "cause": "filesystem_mount", "domain": "system_software"},
        {"cause": "node_refused"},
        {"cause": "node_set_down", "domain": "unknown", "state": "NODE_FAIL"},
        {"domain": "user_program"},
        {"state": "COMPLETED"},
        {"confidence": "unknown"},
        {"domain": "system_software", "confidence": "possible"},
    ],
)
def test_faults_that_are_not_the_nodes_own(changes: dict[str, str]) -> None:
    """A switch's incident, a file server, our own refusal, a user's fault: no failure of the node."""
    found = signals.compute(f.facts([f.failed(1, 1, 2, "n1", by="n1", **changes)]))
    assert of(found, "n1").failures == ()


@pytest.mark.parametrize("confidence", ["certain", "likely", "possible"])
@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "NODE_FAIL"])
@pytest.mark.parametrize("domain", ["hardware", "system_software"])
def test_a_nodes_failures_are_those_of_the_rates(domain: str, state: str, confidence: str) -> None:
    """The same attempt counts in the fleet's failure rate and against its node, or in neither."""
    row = f.failed(1, 1, 2, "n1", by="n1", domain=domain, state=state, confidence=confidence)
    context = datafusion.SessionContext()
    names = (
        "cluster",
        "submit_us",
        "partition",
        "suspended_s",
        "evidence",
        "incident_id",
        "stalled_us",
        "ran_until_us",
    )
    columns = row | dict.fromkeys(names)
    schema = pa.schema(
        [
            (
                n,
                pa.int64()
                if n.endswith(("_us", "_s"))
                else pa.infer_type([v])
                if v is not None
                else pa.string(),
            )
            for n, v in columns.items()
        ]
    )
    context.register_record_batches("attempt", [[pa.RecordBatch.from_pylist([columns], schema=schema)]])
    bounds = {"since_us": f.us(0), "until_us": f.us(28)}
    (base,) = context.sql(fleet_base.text("fleet_base"), param_values=bounds).to_pylist()
    counts = bool(of(signals.compute(f.facts([row])), "n1").failures)
    assert counts is base["infra"]
    assert counts is (domain == "hardware" or confidence != "possible" or state == "NODE_FAIL")


def test_system_software_that_is_only_possible_explains_no_more_than_unknown() -> None:
    """Without a node it counts as an unexplained failure does, on one node as in a gang."""
    words = {"domain": "system_software", "cause": "slurm_error", "confidence": "possible"}
    rows = [f.unexplained(1, 8, 9, "n1", **words), f.unexplained(2, 9, 10, "n1", "n2", **words)]
    found = signals.compute(f.facts([*rows, f.unexplained(3, 9, 10, "n1", state="TIMEOUT", **words)]))
    assert [hardware for _, hardware in found.window.gangs] == [*reversed(signals.UNNAMED["unexplained"])]


def test_a_node_that_slurm_lost_and_nobody_watched_counts_once() -> None:
    """Why it was lost is unknown; that it was this node is not. It is no unnamed failure as well."""
    lost = {
        "state": "NODE_FAIL",
        "cause": "node_lost",
        "domain": "unknown",
        "confidence": "likely",
        "device": None,
    }
    found = signals.compute(f.facts([f.failed(1, 1, 2, "n1", by="n1", component="node", **lost)]))
    assert [one.cause for one in of(found, "n1").failures] == ["node_lost"]
    assert not found.window.gangs


def test_failures_reach_the_model_with_age_weight_part_and_cause() -> None:
    """One row per failure; the same part of two nodes has the same number, a whole node has none."""
    found = signals.compute(
        f.facts(
            [
                f.failed(1, 1, 2, "n1", by="n1"),
                f.failed(2, 1, 20, "n2", by="n2", confidence="possible"),
                f.failed(3, 21, 22, "n2", by="n2", cause="node_lost", component="node", device=None),
            ]
        )
    )
    given = found.window.failures
    assert given is not None
    assert given.node.tolist() == [0, 1, 1]
    assert given.age_days == pytest.approx([26, 8, 6])
    assert given.weight == pytest.approx([0.99, 0.6, 0.99])
    assert given.part[0] == given.part[1] >= 0 > given.part[2]
    assert given.cause[0] == given.cause[1] != given.cause[2]
    assert found.window.span_days == 27, "the first day on which a node was in use"


def test_a_run_that_fails_again_and_again_unexplained_speaks_once() -> None:
    """Its own bug would otherwise convict the nodes it keeps getting; users' own faults say nothing at all."""
    found = signals.compute(
        f.facts(
            [f.unexplained(1, n, n + 0.5, "n1", "n2") for n in range(6)]
            + [f.unexplained(2, 9, 10, "n1")]
            + [f.unexplained(3, 9, 10, "n3", "n4", domain="user_program", cause="user_error")]
        )
    )
    assert [(nodes.tolist(), hardware) for nodes, hardware in found.window.gangs] == [
        ([0, 1], signals.UNNAMED["unexplained"][0]),
        ([0], signals.UNNAMED["unexplained"][1]),
    ]
    assert found.window.gang_ages_days == pytest.approx([27.5, 18])


@pytest.mark.parametrize(("action", "about_lemon"), [("deny", False), ("repaired", True)])
def test_what_a_person_dealt_with_no_longer_counts(action: str, about_lemon: bool) -> None:
    """After a denial or a lemon's repair the node starts afresh; the paper's counts still show everything."""
    attempts = [f.failed(n, n, n + 0.5, "n1", by="n1") for n in range(1, 6)] + [
        f.unexplained(9, 3, 4, "n1", "n2"),
        f.failed(7, 20, 21, "n1", by="n1"),
    ]
    found = signals.compute(f.facts(attempts, notes=[f.note("n1", 10, action, about_lemon=about_lemon)]))
    n1 = of(found, "n1")
    assert n1.single_node_node_fails == 6
    assert [x.counts for x in n1.failures] == [False] * 5 + [True]
    assert found.window.failures is not None
    assert found.window.failures.node.size == 1
    assert found.window.exposure_days[0] == pytest.approx(1.0)
    assert [nodes.tolist() for nodes, _ in found.window.gangs] == [[1]]


def test_the_papers_rate_is_of_all_attempts_also_after_a_denial() -> None:
    """Two of ten failed before the answer, and none of the two since: two of twelve, not two of two."""
    before = [f.failed(n, n, n + 0.5, "n1", by="n1") for n in (1, 2)] + [
        f.attempt(n, n, n + 0.5, "n1") for n in range(3, 11)
    ]
    since = [f.attempt(n, n, n + 0.5, "n1") for n in (21, 22)]
    n1 = of(signals.compute(f.facts(before + since, notes=[f.note("n1", 20, "deny")])), "n1")
    assert n1.single_node_node_fails == 2
    assert n1.single_node_node_failure_rate == pytest.approx(2 / 12)
    assert n1.n_attempts == 12
    assert n1.exposure_days == pytest.approx(1.0)


def test_setting_a_node_healthy_is_no_acquittal() -> None:
    """Lemons are reset and set healthy again and again: that is recurrence, and it is counted."""
    attempts = [f.failed(n, n, n + 0.5, "n1", by="n1") for n in (1, 5, 9)] + [f.attempt(7, 1, 2, "n2")]
    notes = [f.note("n1", day, "repaired") for day in (3, 7, 20)]
    found = signals.compute(f.facts(attempts, notes=notes))
    assert of(found, "n1").recurrences == 2
    assert found.window.failures is not None
    assert found.window.failures.node.size == 3
    assert found.window.auxiliary is not None
    assert found.window.auxiliary[0] - found.window.auxiliary[1] == pytest.approx(2 * signals.RECURRENCE)


def test_a_card_that_takes_its_faults_along() -> None:
    """The same GPU UUID faulty in two nodes names both places and the order."""
    events = [
        f.event("n1", 2, "xid", code="79", gpu_uuid="GPU-a"),
        f.event("n1", 3, "xid", code="79", gpu_uuid="GPU-a"),
        f.event("n2", 9, "xid", code="79", gpu_uuid="GPU-a"),
        f.event("n2", 9, "xid", code="79", gpu_uuid="GPU-b"),
        f.event("n1", 9, "ecc", code="corrected", gpu_uuid="GPU-b", severity="info"),
    ]
    found = signals.compute(f.facts([f.attempt(1, 1, 9, "n1", "n2")], events))
    assert of(found, "n1").cards == (
        signals.MovedGpu(gpu_uuid="GPU-a", other="n2", n_here=2, n_there=1, moved_here=False),
    )
    assert of(found, "n2").cards == (
        signals.MovedGpu(gpu_uuid="GPU-a", other="n1", n_here=1, n_there=2, moved_here=True),
    )


def test_minor_signs_by_part() -> None:
    """Corrected memory errors, link flaps and PCIe replays are counted each for itself."""
    events = [f.event("n1", 2, "ecc", code="corrected"), f.event("n1", 2, "ecc", code="uncorrectable"),
            f.event("n1", 2, "edac", code="CE"), f.event("n1", 2, "ib_link", code="flapping"),
            f.event("n1", 2, "pcie_replay", code="replays"), f.event("n1", 2, "gpu_test", code="gemm"),
            f.event("n1", 2, "link_test", code="pair")]  # fmt: skip
    n1 = of(signals.compute(f.facts([f.attempt(1, 1, 9, "n1")], events)), "n1")
    assert (n1.minor_memory, n1.minor_link, n1.minor_pcie, n1.minor_test) == (2, 1, 1, 2)


def test_what_failures_cost() -> None:
    """GPU-hours at most half a checkpoint interval an attempt, distinct jobs and users; unknown GPUs are said."""
    found = signals.compute(
        f.facts(
            [
                f.failed(1, 1, 2, "n1", "n2", by="n1"),
                f.failed(1, 2, 2 + 0.25 / 24, "n1", "n2", by="n1", attempt=2),
                f.failed(2, 3, 4, "n1", by="n1", user="bob", n_gpus=None),
            ]
        ),
        cap_s=1800.0,
    )
    n1 = of(found, "n1")
    assert n1.gpu_h == pytest.approx(16 * 0.5 + 16 * 0.25)
    assert (n1.n_jobs, n1.n_users, n1.n_unknown_gpus) == (2, 2, 1)


def test_the_signals_window_may_be_shorter_than_the_models() -> None:
    """Old failures age in the model and leave the paper's counts."""
    attempts = [f.failed(1, 1, 2, "n1", by="n1"), f.failed(2, 20, 21, "n1", by="n1")]
    found = signals.compute(f.facts(attempts), recent=f.UNTIL - timedelta(days=10))
    assert of(found, "n1").single_node_node_fails == 1
    assert of(found, "n1").exposure_days == pytest.approx(1)
    assert found.window.exposure_days[0] == pytest.approx(2)
    assert found.window.episodes[0] == 2


def test_the_papers_rule_takes_these_arrays() -> None:
    """The seven as lemon.baseline wants them; a node without single-node jobs has no rate."""
    arrays = signals.compute(f.facts([f.failed(1, 1, 2, "n1", "n2", by="n1")])).arrays()
    assert set(arrays) == set(baseline.SIGNALS)
    assert arrays["multi_node_node_fails"].tolist() == [1, 0]
    assert np.isnan(arrays["single_node_node_failure_rate"]).all()


def test_an_empty_fleet() -> None:
    """No attempt at all is no error."""
    found = signals.compute(f.facts([]))
    assert found.nodes == ()
    assert found.window.exposure_days.size == 0


def test_nodes_on_one_switch_share_a_place() -> None:
    """From Slurm; a node without a place is alone, and without any places there are none."""
    facts = f.facts([f.attempt(i, i, i + 1, f"n{i}") for i in range(1, 5)])
    known = dataclasses.replace(facts, places={"n1": "leaf1", "n2": "leaf1", "n3": "n4"})
    found = signals.compute(known)
    place = dict(zip([n.node for n in found.nodes], found.window.place, strict=True))
    assert place["n1"] == place["n2"]
    assert len({place["n1"], place["n3"], place["n4"]}) == 3
    assert signals.compute(facts).window.place is None
