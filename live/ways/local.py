"""The way on the node itself: a collector as a child, without Slurm, service, database or agent."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from probing_cluster.core import errors, processes, settings
from probing_cluster.live import plugins
from probing_cluster.live.ways import collectors

COLLECTOR = "probing_cluster.live.collecting.collector"


def directory_here(config: settings.Settings, job_id: int) -> Path | None:
    """The job's page directory on this node; None where it has none."""
    found = (Path(config.agent.job_directory) / str(job_id)).absolute()
    return found if found.is_dir() else None


def command(config: settings.Settings, directory: Path) -> collectors.Command:
    """A collector as the directory's owner; raises NotPermitted where that is somebody else."""
    owner = directory.stat()
    node = config.agent.node or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    argv = [sys.executable, "-I", "-m", COLLECTOR, "--directory", str(directory), "--node", node]
    environment = {"PATH": "/usr/bin:/bin"}
    if os.environ.get(plugins.PATH_VARIABLE):
        environment[plugins.PATH_VARIABLE] = os.environ[plugins.PATH_VARIABLE]
    if owner.st_uid == os.geteuid():
        return collectors.Command(argv=argv, nodes=(node,), environment=environment)
    if os.geteuid() != 0:
        raise errors.NotPermitted(
            f"job {directory.name} belongs to uid {owner.st_uid}: only its owner may ask its processes; "
            f"operators ask with probing-ctl ranks {directory.name} and stacks {directory.name}"
        )
    # It becomes the owner itself, once it is loaded: our Python need not be theirs to run.
    argv += ["--tables-only", "--become", str(owner.st_uid), str(owner.st_gid)]
    return collectors.Command(argv=argv, nodes=(node,), environment=environment, may_evaluate=False)


def account(uid: int, gid: int) -> processes.Account:
    """An account with its groups; with its own alone where it has no name here."""
    try:
        groups = tuple(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        groups = (gid,)
    return processes.Account(uid=uid, gid=gid, groups=groups)
