"""A GPU lost earlier, beside jobs that may not have needed it; a daemon that the kernel killed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from probing_cluster.core import records

C = records.Confidence


def _lost(make, before_end_s):
    """A lost GPU that only its address names, as an imported log has it."""
    event = make.xid(79, None, before_end_s, node="n1", pci_bus_id="0000:5d:00", source="import")
    return dataclasses.replace(event, job_id=None)


def _judge(make, before_end_s, **over):
    values = {"nodes": ("n1",), "gpus": None, "n_gpus": 8, **over}
    return make.judge(active_faults=(_lost(make, before_end_s),), attempt=make.attempt(**values))


@pytest.mark.parametrize("minutes", [25, 60, 600])
def test_a_job_not_known_to_have_wanted_gpus_did_not_die_of_one_lost_before(make, minutes):
    """It exited with a code of its own; with all the GPUs of its node it is the GPU's."""
    before_end_s = (make.end - make.start + timedelta(minutes=minutes)).total_seconds()
    assert _judge(make, before_end_s, n_gpus=None, exit_code=3).cause == "user_error"
    assert _judge(make, before_end_s).cause == "gpu_lost"


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
@pytest.mark.parametrize(("n_gpus", "lost"), [(1, False), (2, False), (4, True), (8, True)])
def test_who_has_a_few_of_the_nodes_gpus_may_have_reached_its_end_without_the_lost_one(
    make, state, n_gpus, lost
):
    """With the whole node it could not have gone on; neither is ever certain."""
    verdict = _judge(make, 1000.0, n_gpus=n_gpus, state=state, exit_code=0)
    assert (verdict.cause == "gpu_lost") is lost
    assert verdict.confidence is not C.CERTAIN


@pytest.mark.parametrize(("process", "cause"), [("slurmd", "system_services"), ("munged", "system_services"), ("python", "node_lost")])  # fmt: skip
def test_slurms_own_daemon_killed_for_want_of_memory_is_why_the_node_was_given_up(make, process, cause):
    """Any other process leaves open why the node stopped answering."""
    killed = make.event(
        240.0, kind="oom", code="global", severity=records.Severity.INFO, process=process, node="n1"
    )
    attempt = make.attempt(nodes=("n1",), state="NODE_FAIL", exit_code=0)
    verdict = make.judge(killed, attempt=attempt, watched={}, by_log=frozenset())
    assert (verdict.cause, verdict.node) == (cause, "n1")
    assert verdict.confidence is not C.CERTAIN
