"""A fault that was repaired before an attempt began is not named in its verdict."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.core import records

C = records.Confidence
HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
PORT = {"node": "n2", "device": "mlx5_0", "source": "sysfs"}
FAULTS = {
    "flapping": {"kind": "ib_link", "code": "flapping", "severity": LOW, **PORT},
    "down": {"kind": "eth_link", "code": "link_down", "severity": HIGH, **PORT, "device": "eth0"},
}


def _before_start(make, seconds, **event):
    return make.event(at=make.start - timedelta(seconds=seconds), **event)


def _over(make, seconds, **event):
    """Its part is well again, by a reading or by a person's word."""
    return _before_start(make, seconds, **{**event, "severity": INFO, "detail": {"recovered": True}})


def _lost(make, *events, **over):
    """The verdict on a job whose node crashed 9 s after its start."""
    end_at = make.start + timedelta(seconds=50)
    gone_at = make.start + timedelta(seconds=9)
    attempt = make.attempt(nodes=("n2",), n_gpus=1, gpus=None, state="NODE_FAIL", exit_code=0, end_at=end_at, failed_node="n2")  # fmt: skip
    silent = make.event(at=gone_at, kind="agent_silent", source="agent", severity=INFO)
    return make.judge(*events, silent, attempt=attempt, watched={"n2": gone_at}, **over)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_lost_node_did_not_show_a_fault_that_was_over_before_the_job(make, fault):
    """Neither the fault nor the report of its end is what the node showed before it went away."""
    alone = _lost(make)
    assert "nothing was seen on it before" in alone.summary
    repaired = _lost(make, _before_start(make, 300, **fault), _over(make, 20, **fault))
    assert repaired.summary == alone.summary
    assert "before that it showed" in _lost(make, make.event(at=make.start + timedelta(seconds=5), **fault)).summary  # fmt: skip


def test_that_a_fault_is_over_is_nothing_that_a_lost_node_showed(make):
    """The fault itself came days before."""
    over = make.event(at=make.start + timedelta(seconds=5), **FAULTS["down"] | {"severity": INFO}, detail={"recovered": True})  # fmt: skip
    assert _lost(make, over).summary == _lost(make).summary


def test_a_lost_node_did_not_show_an_old_error_that_its_kernel_repeats_daily(make):
    """ext4 names what it recorded, maybe years ago, until somebody checks the file system."""
    old = make.event(at=make.start + timedelta(seconds=5), kind="block_io", code="fs_recorded", severity=INFO, node="n2")  # fmt: skip
    assert _lost(make, old).summary == _lost(make).summary


def test_a_lost_node_shows_a_fault_from_before_only_if_it_lasts(make):
    """A corrected error has passed; a link that nobody repaired is still down."""
    corrected = _before_start(make, 100, kind="edac", code="CE", severity=LOW, node="n2")
    assert "showed" not in _lost(make, corrected).summary
    down = _before_start(make, 100, **FAULTS["down"])
    assert "before that it showed Ethernet link link_down" in _lost(make, down).summary


@pytest.mark.parametrize("held", [None, ()])
def test_a_small_job_after_a_repair_is_not_told_of_the_repaired_gpu(make, held):
    """Neither as a GPU that it did not hold, nor as a fault beside its exit."""
    gpus, n_gpus = (None, None) if held is None else ({"n2": held}, 0)
    end_at = make.start + timedelta(seconds=30)
    attempt = make.attempt(nodes=("n2",), n_gpus=n_gpus, n_cpus=1, gpus=gpus, exit_code=17, end_at=end_at)
    gpu = {"device": "gpu5", "gpu_uuid": make.uuid("n2", 5)}
    error = make.xid(48, 5, at=make.start - timedelta(seconds=120))
    repaired = _over(make, 30, kind="xid", code="48", node="n2", source="agent", **gpu)
    v = make.judge(error, repaired, attempt=attempt)
    assert not [s for s in v.ruled_out if "GPU 5" in s]
    assert "with no fault beside it." in v.summary
    unrepaired = make.judge(error, attempt=attempt)
    shown = " ".join((unrepaired.summary, *unrepaired.ruled_out))
    assert ("that explains this" if held is None else "GPU 5 of n2 (Xid 48") in shown


def test_a_node_that_booted_before_the_job_is_well(make):
    """What it showed before the boot was over."""
    boot = _before_start(make, 20, kind="node_boot", source="agent", severity=INFO, node="n2")
    v = _lost(make, _before_start(make, 300, **FAULTS["down"]), boot)
    assert "showed" not in v.summary
