"""NVLinks down or repeating themselves."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks.readers import nvml

SWITCH = "pci:v000010DEd000022A3sv000010DEsd000016C1bc06sc80i00"


def links(up: int, of: int = 18, **errors: int) -> tuple[nvml.NvLink, ...]:
    fine = {"replay_errors_total": 0, "recovery_errors_total": 0, "crc_errors_total": 0}
    return tuple(nvml.NvLink(link=i, active=i < up, **fine | errors) for i in range(of))


def test_all_up(node: Any) -> None:
    """All links up on all GPUs is ok."""
    node.have_gpus(8, links=links(18))
    finding = node.check("gpu_nvlink")
    assert finding.outcome is Outcome.OK
    assert "144 NVLinks" in finding.message


def test_one_down(node: Any) -> None:
    """A GPU with fewer links up than its twins fails high, naming the link."""
    node.have_gpus(8, links=links(18))
    node.gpu(4, links=links(17))
    finding = node.check("gpu_nvlink")
    assert (finding.outcome, finding.device, finding.measured, finding.threshold) == (
        Outcome.FAIL,
        "gpu4",
        17,
        18,
    )
    assert "down: 17" in finding.message


def test_all_down_behind_a_switch(node: Any) -> None:
    """With NVSwitches, all links down on all GPUs is a fault; without them it is a board without bridges."""
    node.have_gpus(8, links=links(0), fabric_state=0)
    assert node.check("gpu_nvlink").outcome is Outcome.ABSENT
    node.pci("0000:07:00.0", SWITCH)
    assert node.check("gpu_nvlink").outcome is Outcome.FAIL


def test_a_single_gpu_without_links(node: Any) -> None:
    """A virtual machine with one GPU of a board of eight has none to talk to; links that it had and lost are missed."""
    node.have_gpus(1, links=links(0), fabric_state=3)
    assert node.check("gpu_nvlink").outcome is Outcome.ABSENT
    node.gpu(0, links=links(18))
    node.check("gpu_nvlink")
    node.gpu(0, links=links(0))
    assert node.check("gpu_nvlink").outcome is Outcome.FAIL


def test_unbridged_gpus_are_no_fault(node: Any) -> None:
    """Without NVSwitches, a GPU that never had links is fine beside a bridged pair; one that loses them is not."""
    node.have_gpus(3, links=links(12, 12), fabric_state=0)
    node.gpu(2, links=links(0, 12))
    assert node.check("gpu_nvlink").outcome is Outcome.OK
    node.gpu(1, links=links(4, 12))
    finding = node.check("gpu_nvlink")
    assert (finding.outcome, finding.device, finding.threshold) == (Outcome.FAIL, "gpu1", 12)


def test_the_sites_number(node: Any) -> None:
    """The site's number stands against twins that all lost the same link."""
    node.have_gpus(8, links=links(17))
    assert node.check("gpu_nvlink").outcome is Outcome.OK
    assert node.check("gpu_nvlink", links=18).outcome is Outcome.FAIL


def test_errors_are_judged_by_growth(node: Any) -> None:
    """Old errors of a long life are no finding; new ones fast enough warn, whatever the total."""
    node.have_gpus(1, links=links(18, replay_errors_total=100))
    assert node.check("gpu_nvlink").outcome is Outcome.OK
    node.later(300)
    assert node.check("gpu_nvlink").outcome is Outcome.OK
    node.have_gpus(1, links=links(18, replay_errors_total=200))
    node.later(300)
    finding = node.check("gpu_nvlink")
    assert finding.outcome is Outcome.WARN
    assert "1800 NVLink replay errors since the last look" in finding.message


def test_mig_has_no_nvlink(node: Any) -> None:
    """A GPU in MIG mode has its links off on purpose."""
    node.have_gpus(1, links=links(0), mig=True)
    assert node.check("gpu_nvlink", links=18).outcome is Outcome.ABSENT


def test_unreadable(node: Any) -> None:
    """Links whose state cannot be read are an error, not down."""
    node.have_gpus(2, links=links(18))
    node.gpu(1, links=(), unread={"nvlink": "UNKNOWN"})
    finding = node.check("gpu_nvlink")
    assert (finding.outcome, finding.device) == (Outcome.ERROR, "gpu1")


def test_no_nvlink(node: Any) -> None:
    """GPUs without NVLink have nothing to judge."""
    node.have_gpus(4)
    assert node.check("gpu_nvlink").outcome is Outcome.ABSENT
