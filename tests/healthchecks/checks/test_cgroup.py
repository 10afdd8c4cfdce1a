"""cgroups for jobs."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview

SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"


def test_controllers(node: Any) -> None:
    """The controllers Slurm needs are ok; a missing one warns."""
    node.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
    assert node.check("cgroup").outcome is Outcome.OK
    node.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids")
    assert (node.check("cgroup").outcome, node.check("cgroup").device) == (Outcome.WARN, "memory")


def test_left_over(node: Any) -> None:
    """The cgroup of a job that is gone warns at the second look: the first may have been a job just ending."""
    node.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    node.put(f"{SCOPE}/job_42/cgroup.procs", "")
    node.put(f"{SCOPE}/job_43/cgroup.procs", "")
    assert node.check("cgroup").outcome is Outcome.OK
    node.expected = nodeview.Expectations(running=frozenset({43}), allocated={})
    assert node.check("cgroup").outcome is Outcome.OK
    finding = node.check("cgroup")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "job_42")


def test_jobs_named_by_sluid(node: Any) -> None:
    """From Slurm 26.05 on: counted as jobs; one that ended warns, one that nobody told us of does not."""
    node.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    for name in ("s5K1KKYAYG5D00", "sEKNKTV3WPV500", "s5K1KKYAYG5D01", "system"):
        node.put(f"{SCOPE}/{name}/cgroup.procs", "")
    node.expected = nodeview.Expectations(
        running=frozenset({43}), sluids={"s5K1KKYAYG5D00": 42, "sEKNKTV3WPV500": 43}
    )
    first = node.check("cgroup")
    assert (first.outcome, first.message) == (Outcome.OK, "controllers on, 3 jobs")
    finding = node.check("cgroup")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "s5K1KKYAYG5D00")


def test_no_cgroups(node: Any) -> None:
    """Without cgroups there is nothing to judge."""
    assert node.check("cgroup").outcome is Outcome.ABSENT
