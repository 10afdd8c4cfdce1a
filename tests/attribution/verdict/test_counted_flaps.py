"""A count of flaps over many hours has no instant of its own: it convicts no port beside one that failed under the job."""

from __future__ import annotations

import pytest

from probing_cluster.core import records

C = records.Confidence
LOW, INFO = records.Severity.LOW, records.Severity.INFO


def swept(make, before_s, device="mlx5_0", **over):
    """The sweep that finds that a port lost its link within the last twelve hours."""
    values = {"kind": "check", "code": "ib_flap", "source": "check", "severity": LOW, "device": device}
    return make.event(before_s, message=f"{device} lost its link 1 time in 12 h", **{**values, **over})


def down(make, before_s, device="mlx5_1", **over):
    """The reading that finds another port down."""
    values = {"kind": "ib_link", "code": "down", "source": "sysfs", "device": device}
    return make.event(before_s, **{**values, **over})


def error(make, kind="nccl_remote_error", role="remote"):
    """The gang lost a peer."""
    return make.finding(kind, message="NCCL error", detail={"first_cause": True, "role": role, "rank": 0})


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize("up_s", [None, -5, 2, 9])
def test_the_port_with_an_event_of_its_own_goes_before_one_with_a_count(make, node, up_s):
    """Whether it came back or not, the sweep's port did not fail then."""
    back = [] if up_s is None else [down(make, up_s, severity=INFO, detail={"recovered": True})]
    found = make.judge(swept(make, 7, node=node), down(make, 12), error(make), *back)
    assert "mlx5_0" not in found.summary
    if up_s != 9:
        assert (found.cause, found.node, found.device) == ("ib_link", "n2", "mlx5_1")
        assert "12 s before the job ended" in found.summary


@pytest.mark.parametrize(
    "count",
    [{}, {"kind": "ib_link", "code": "flapping", "source": "sysfs"}],
    ids=["check", "agent"],
)
def test_a_count_alone_convicts_nobody(make, count):
    """The agent's other readings would date a flap under the job."""
    assert make.judge(swept(make, 7, **count)).cause == "user_error"
    before = down(make, (make.end - make.start).total_seconds() + 20, device="mlx5_0")
    over = down(
        make,
        (make.end - make.start).total_seconds() + 10,
        "mlx5_0",
        severity=INFO,
        detail={"recovered": True},
    )
    found = make.judge(swept(make, 7, **count), before, over, error(make))
    assert found.cause != "ib_link"


def test_a_count_beside_an_error_of_the_network_is_possible_and_names_no_instant(make):
    """It tells where to look, not when."""
    found = make.judge(swept(make, 7), error(make, "net_ib_completion_error", "root"))
    assert (found.cause, found.device, found.confidence) == ("ib_link", "mlx5_0", C.POSSIBLE)
    assert "before the job ended" not in found.summary
    assert "by its own counter" in found.summary


def test_a_count_adds_to_an_event_of_the_same_port(make):
    """It went down under the job, and is known to."""
    found = make.judge(swept(make, 7, "mlx5_1"), down(make, 12), error(make))
    alone = make.judge(down(make, 12), error(make))
    assert (found.device, found.confidence) == ("mlx5_1", alone.confidence)
    assert "12 s before the job ended" in found.summary
