"""Errors of GPUs that no vendor's table lists: nobody knows whether they are faults, so no verdict denies or proves one."""

from __future__ import annotations

import pytest

from probing_cluster.core import records

INFO = {"severity": records.Severity.INFO}
ADDRESS = {"device": "gpu2", "pci_bus_id": "0000:52:00"}


def errors(make, **over):
    """One of each kind, on GPU 2 of n2 or its switch."""
    return {
        "xid": make.xid(999, 2, **INFO, **over),
        "sxid": make.event(kind="sxid", code="99999", device="nvswitch0", **INFO, **over),
        "aer": make.event(
            kind="pcie_aer", code="unknown", gpu_uuid=make.uuid("n2", 2), **ADDRESS, **INFO, **over
        ),
    }


NAMES = {
    "xid": "GPU 2 of n2 reported Xid 999",
    "sxid": "nvswitch0 of n2 reported SXid 99999",
    "aer": "GPU 2 of n2 reported PCIe error unknown",
}


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_beside_a_bare_exit_it_is_named_and_the_program_only_possible(make, kind):
    """The GPU is not ruled out, and is not accused."""
    v = make.judge(errors(make)[kind])
    assert (v.cause, v.confidence) == ("user_error", records.Confidence.POSSIBLE)
    assert f"with no known fault beside it that explains this, but {NAMES[kind]}, which no table" in v.summary
    assert f"less likely: GPUs ({NAMES[kind]}, which no table we know lists)" in v.ruled_out
    assert not any(s.startswith("GPUs (") for s in v.ruled_out)


def test_beside_a_cuda_error_the_program_is_only_possible(make):
    """Nobody knows whether the GPU made it."""
    found = make.finding("cuda_illegal_access", message="CUDA error: an illegal memory access", detail={"first_cause": True})  # fmt: skip
    assert make.judge(found).confidence is records.Confidence.LIKELY
    assert make.judge(found, errors(make)["xid"]).confidence is records.Confidence.POSSIBLE
    user = make.xid(31, 2)
    assert make.judge(user).confidence is records.Confidence.LIKELY
    assert make.judge(user, errors(make)["xid"]).confidence is records.Confidence.POSSIBLE


def test_an_error_of_the_programs_own_stays_certain(make):
    """No GPU causes a KeyError; its clause still does not deny the event."""
    found = make.finding("python_exception", message="KeyError: 'lr'", detail={"first_cause": True, "exception": "KeyError"})  # fmt: skip
    v = make.judge(found, errors(make)["xid"])
    assert (v.cause, v.confidence) == ("user_error", records.Confidence.CERTAIN)
    assert not any(s.startswith("GPUs (") for s in v.ruled_out)


def test_beside_it_a_time_limit_is_not_certain(make):
    """A GPU that stands still makes a job reach its limit."""
    attempt = make.attempt(state="TIMEOUT", exit_code=0, exit_signal=15, time_limit_s=(make.end - make.start).total_seconds())  # fmt: skip
    assert make.judge(attempt=attempt).confidence is records.Confidence.CERTAIN
    assert make.judge(errors(make)["xid"], attempt=attempt).confidence is records.Confidence.LIKELY


def test_what_is_listed_or_not_the_jobs_changes_nothing(make):
    """Only an error on what it held, in its time, leaves it open; a line that grades itself is known."""
    graded = make.event(kind="sxid", code="99999", detail={"grade": "non-fatal"}, **INFO)
    late = make.xid(999, 2, before_end_s=-20.0, **INFO)
    neighbours = make.attempt(gpus=make.gpus("n1", "n2", indices=(3,)), n_gpus=2)
    without = make.attempt(gpus=None, n_gpus=0)
    for event, attempt in (
        (make.xid(43, 2, **INFO), None),
        (graded, None),
        (late, None),
        (errors(make)["xid"], neighbours),
        (errors(make)["xid"], without),
    ):
        v = make.judge(event, attempt=attempt)
        assert v.confidence is records.Confidence.LIKELY
        assert "with no fault beside it" in v.summary
