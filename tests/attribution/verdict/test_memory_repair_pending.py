"""A memory row whose repair waits for a reset is no failed repair."""

from __future__ import annotations

import pytest

from probing_cluster.core import records

C = records.Confidence
HIGH, LOW = records.Severity.HIGH, records.Severity.LOW


def _check(make, name, severity, before_end_s=13.0):
    """What the sweep reports of GPU 3 of n2."""
    return make.event(
        before_end_s,
        kind="check",
        code=name,
        source="check",
        severity=severity,
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
    )


def _reading(make, kind, code, severity, before_end_s=16.0):
    """What NVML shows of the same GPU."""
    return make.event(
        before_end_s,
        kind=kind,
        code=code,
        source="nvml",
        severity=severity,
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
    )


def _after_an_error(make):
    """All that an uncorrectable error leaves: the driver's line, the counters, and a row that waits for its repair."""
    return (
        make.xid(48, 3, 19.0),
        _reading(make, "ecc", "uncorrectable", HIGH),
        _reading(make, "row_remap", "pending", LOW),
        _check(make, "gpu_ecc", HIGH),
        _check(make, "gpu_row_remap", LOW),
    )


@pytest.mark.parametrize(("n_errors", "confidence"), [(1, C.CERTAIN), (0, C.LIKELY)])
def test_an_uncorrectable_error_whose_repair_waits_for_a_reset_is_no_failed_repair(
    make, n_errors, confidence
):
    """The spare row is there: the GPU is reset, not replaced. A program that says nothing may have ended by itself."""
    own = [make.finding("cuda_ecc", 0.5, node="n2", message="CUDA error: uncorrectable ECC error")] * n_errors
    v = make.judge(*_after_an_error(make), *own)
    assert (v.cause, v.node, v.device) == ("gpu_memory_uncorrectable", "n2", "gpu3")
    assert v.confidence is confidence
    assert v.next_step.startswith("Reset GPU 3 of n2")
    assert not [s for s in v.ruled_out if "remap" in s]


def test_a_waiting_repair_alone_blames_the_memory_as_possible(make):
    """It says that a row failed at some time, not that no spare is left."""
    v = make.judge(_check(make, "gpu_row_remap", LOW), make.finding("cuda_ecc", 0.5, node="n2"))
    assert (v.cause, v.confidence) == ("gpu_memory_uncorrectable", C.POSSIBLE)


def test_a_failed_repair_that_only_the_check_shows_is_one(make):
    """Its severity is the check's own."""
    v = make.judge(make.xid(48, 3, 19.0), _check(make, "gpu_row_remap", HIGH))
    assert (v.cause, v.device) == ("gpu_row_remap_failure", "gpu3")


def test_a_weak_sign_does_not_explain_a_surer_fault_of_the_same_part(make):
    """Whatever a row remap's reading of low severity means: the driver's own error is the verdict."""
    v = make.judge(make.xid(48, 3, 4.0), _reading(make, "row_remap", "unheard_of", LOW, 4.0))
    assert (v.cause, v.confidence) == ("gpu_memory_uncorrectable", C.CERTAIN)
