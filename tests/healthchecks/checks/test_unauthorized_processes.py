"""Users' processes outside Slurm."""

from __future__ import annotations

import os
from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview

USER = "0::/user.slice/user-1000.slice/session-3.scope"
SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope/cgroup.procs"
ME: dict[str, Any] = {"uid_min": os.getuid()}


def test_inside_jobs(node: Any) -> None:
    """Processes in Slurm cgroups of any version are where they belong."""
    node.put(SCOPE, "")
    node.process(10, "python", cgroup="0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")
    node.process(11, "python", cgroup="11:memory:/slurm/uid_1000/job_43/step_batch")
    node.process(12, "python", cgroup="0::/system.slice/slurmstepd.scope/s2Y4K9GSTA3B0/step_0")
    assert node.check("unauthorized_processes", **ME).outcome is Outcome.OK


def test_outside(node: Any) -> None:
    """A user's process outside warns with uid, number and name; the site may allow user or name."""
    node.put(SCOPE, "")
    node.process(10, "miner", cgroup=USER)
    node.process(11, "miner", cgroup=USER)
    finding = node.check("unauthorized_processes", **ME)
    assert (finding.outcome, finding.measured) == (Outcome.WARN, 2)
    assert "miner" in finding.message
    assert node.check("unauthorized_processes", allow_names=["miner"], **ME).outcome is Outcome.OK
    assert node.check("unauthorized_processes", allow_users=[str(os.getuid())], **ME).outcome is Outcome.OK


def test_system_users(node: Any) -> None:
    """Processes of system users are not judged."""
    node.put(SCOPE, "")
    node.process(10, "daemon", cgroup=USER)
    assert node.check("unauthorized_processes", uid_min=os.getuid() + 1).outcome is Outcome.OK


def test_no_proc(node: Any) -> None:
    """Without processes there is nothing to judge."""
    assert node.check("unauthorized_processes").outcome is Outcome.ABSENT


def test_without_cgroups(node: Any) -> None:
    """Where Slurm uses no cgroups the owners of jobs decide; without them nobody can judge."""
    node.process(10, "python", cgroup=USER)
    assert node.check("unauthorized_processes", **ME).outcome is Outcome.ABSENT
    node.expected = nodeview.Expectations(uids=frozenset({os.getuid()}))
    assert node.check("unauthorized_processes", **ME).outcome is Outcome.OK
    node.expected = nodeview.Expectations(uids=frozenset())
    assert node.check("unauthorized_processes", **ME).outcome is Outcome.WARN
