"""Slurm's daemons."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_running(node: Any) -> None:
    """Both daemons there is ok; a missing one fails; one in D state warns."""
    node.process(500, "slurmd")
    node.process(501, "munged")
    assert node.check("slurmd").outcome is Outcome.OK
    node.process(500, "slurmd", "D")
    assert node.check("slurmd").outcome is Outcome.WARN
    node.process(500, "other")
    node.put("etc/slurm/slurm.conf", "")
    finding = node.check("slurmd")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "slurmd")


def test_munge_only_where_it_is_used(node: Any) -> None:
    """munged is missed only where MUNGE is installed: Slurm can do without it."""
    node.process(500, "slurmd")
    assert node.check("slurmd").outcome is Outcome.OK
    node.put("etc/munge/munge.key", "x")
    finding = node.check("slurmd")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "munged")
    node.put("etc/slurm/slurm.conf", "ClusterName=c\nAuthType=auth/munge\n#AuthType=auth/slurm")
    assert node.check("slurmd").outcome is Outcome.FAIL
    node.put("etc/slurm/slurm.conf", "ClusterName=c\nAuthType=auth/slurm")
    assert node.check("slurmd").outcome is Outcome.OK


def test_in_another_namespace(node: Any) -> None:
    """A daemon whose process we cannot see but whose unit is populated runs."""
    node.put("etc/slurm/slurm.conf", "")
    node.process(1, "systemd")
    node.put("sys/fs/cgroup/system.slice/slurmd.service/cgroup.events", "populated 1")
    node.put("sys/fs/cgroup/system.slice/munge.service/cgroup.procs", "12")
    assert node.check("slurmd").outcome is Outcome.OK


def test_no_slurm(node: Any) -> None:
    """A node without Slurm has nothing to judge."""
    node.process(1, "systemd")
    assert node.check("slurmd").outcome is Outcome.ABSENT
