"""A step of Slurm's on the job's own nodes (`srun --overlap`): Slurm admits nobody but the job's owner, and is all it needs.

What each option is for is in docs/live.md. The deadline is ours, since srun itself waits 20 s and more for a hung slurmd.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import sys
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import errors, processes, settings
from probing_cluster.live import plugins
from probing_cluster.live.ways import collectors, jobs, local, step_count, streams
from probing_cluster.slurm_plugins import commands

IMMEDIATE_S = 3
"""srun gives up where the step cannot start by then: of a suspended job it would wait for ever."""


def open_streams(
    config: settings.Settings, job: jobs.RunningJob, *, idle_s: float = 3600.0
) -> streams.Streams:
    """One step on every group of nodes; raises NotPermitted, UsageError where the job has made too many steps."""
    limits = jobs.limits(config.slurm)
    become = _account(job)
    counter = step_count.StepCount(config.cluster.name, job.job_id)
    counter.require(limits.max_steps)

    def command(part: jobs.Part, nodes: tuple[str, ...]) -> collectors.Command:
        return collectors.Command(
            argv=argv(config, job, part, nodes, idle_s),
            nodes=nodes,
            environment=environment(config),
            become=become,
            narrower=functools.partial(command, part),
            may_evaluate=job.uid == os.geteuid(),
            ends_itself=True,
        )

    found = [command(part, nodes) for part in job.parts for nodes in groups(part.nodes, limits.tree_width)]
    return streams.Streams(
        found,
        on_close=lambda steps: _cancel(config, job, steps),
        may_add=lambda steps, more: counter.allows(steps, more, limits.max_steps),
    )


def groups(nodes: tuple[str, ...], width: int) -> Iterable[tuple[str, ...]]:
    """The nodes in groups that Slurm reaches directly: in a tree, a hung node hides those behind it."""
    return (nodes[i : i + width] for i in range(0, len(nodes), width))


def argv(
    config: settings.Settings, job: jobs.RunningJob, part: jobs.Part, nodes: tuple[str, ...], idle_s: float
) -> list[str]:
    """The srun of one group."""
    directory = config.slurm.bin_directory
    count = str(len(nodes))
    het = [] if part.offset is None else [f"--het-group={part.offset}"]
    return [
        str(Path(directory) / "srun") if directory else "srun",
        "--quiet",
        "--label",
        "--kill-on-bad-exit=0",
        f"--immediate={IMMEDIATE_S}",
        f"--jobid={job.job_id}",
        "--overlap",
        "--gres=none",
        "--mem=0",
        "--mpi=none",
        "--chdir=/",
        *het,
        f"--nodelist={','.join(nodes)}",
        "-N",
        count,
        "-n",
        count,
        "--ntasks-per-node=1",
        "--job-name=probing-sql",
        *collector(config),
        "--idle",
        f"{idle_s:g}",
        *(() if job.uid == os.geteuid() else ("--tables-only",)),
    ]


def collector(config: settings.Settings) -> list[str]:
    """The collector's command on the nodes."""
    return [config.live.python or sys.executable, "-I", "-m", local.COLLECTOR]


def environment(config: settings.Settings) -> dict[str, str]:
    """The environment of srun without the caller's: SLURM_LABELIO, SLURM_EXCLUSIVE and the like would change what it does."""
    kept = {
        n: os.environ[n]
        for n in ("PATH", "SLURM_CONF", "KRB5CCNAME", plugins.PATH_VARIABLE)
        if n in os.environ
    }
    if config.slurm.conf:
        kept["SLURM_CONF"] = config.slurm.conf
    # The probe's own switch: with it Slurm tells the step where the job's pages are, whatever the site's default.
    return {"PATH": "/usr/bin:/bin", **kept, "LC_ALL": "C", "PROBING": "on"}


def _account(job: jobs.RunningJob) -> processes.Account | None:
    """The account to become. Only root may become another; Slurm would refuse others with less explanation."""
    if job.uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise errors.NotPermitted(
            f"job {job.job_id} belongs to {job.user or job.uid}: Slurm lets nobody else into it; "
            f"operators and coordinators ask with probing-ctl ranks {job.job_id} and stacks {job.job_id}"
        )
    try:
        group = pwd.getpwuid(job.uid).pw_gid
    except KeyError as exc:
        raise errors.NotPermitted(
            f"uid {job.uid}, whose job it is, has no account on this host: ask from one where it has"
        ) from exc
    return local.account(job.uid, group)


def _cancel(config: settings.Settings, job: jobs.RunningJob, steps: set[str]) -> None:
    """Ends what a killed srun left behind: such a step would stay listed until the job ends."""
    run = commands.SlurmCommands(settings=config.slurm)
    with contextlib.suppress(errors.SlurmUnavailable):  # it ends with the job
        run("scancel", *(f"{job.job_id}.{step}" for step in sorted(steps)))
