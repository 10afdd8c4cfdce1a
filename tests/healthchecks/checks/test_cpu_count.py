"""CPUs online."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks.checks import cpu_count


def cpus(node: Any, online: str, present: str = "0-63") -> None:
    node.put("sys/devices/system/cpu/online", online)
    node.put("sys/devices/system/cpu/present", present)


def test_all_online(node: Any) -> None:
    """All CPUs online is ok."""
    cpus(node, "0-63")
    node.expected = nodeview.Expectations(cpu_count=64)
    assert node.check("cpu_count").outcome is Outcome.OK


def test_fewer(node: Any) -> None:
    """Fewer than the site or Slurm says fail; one merely offline warns."""
    cpus(node, "0-31,33-63")
    assert node.check("cpu_count").outcome is Outcome.WARN
    finding = node.check("cpu_count", expected=64)
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 63, 64)


def test_switched_off_by_the_site(node: Any) -> None:
    """Second threads that the kernel keeps offline, and CPUs that Slurm does not want, are no warning; a core less is."""
    cpus(node, "0-63", present="0-127")
    assert node.check("cpu_count").outcome is Outcome.WARN
    node.expected = nodeview.Expectations(cpu_count=64)
    assert node.check("cpu_count").outcome is Outcome.OK
    cpus(node, "0-126", present="0-127")
    assert node.check("cpu_count").outcome is Outcome.WARN
    cpus(node, "0-62", present="0-127")
    node.put("sys/devices/system/cpu/smt/control", "off")
    assert node.check("cpu_count").outcome is Outcome.FAIL
    node.expected = nodeview.Expectations()
    assert node.check("cpu_count").outcome is Outcome.OK


def test_from_cpuinfo(node: Any) -> None:
    """Without sysfs /proc/cpuinfo is counted; without both nothing can be told."""
    assert node.check("cpu_count").outcome is Outcome.ERROR
    node.put("proc/cpuinfo", "processor\t: 0\n\nprocessor\t: 1")
    assert node.check("cpu_count").message == "2 CPUs online"


@pytest.mark.parametrize(("text", "count"), [("0-63,66", 65), ("0", 1), ("", 0), (None, None), ("x", None)])
def test_lists(text: str | None, count: int | None) -> None:
    """The kernel's CPU lists."""
    assert cpu_count.parse_list(text) == count
