"""Does Slurm run a job again when its Prolog fails? Asked of slurmctld, and only when a refusal is about to be made.

Slurm requeues a batch job that may be requeued, and cancels every other: srun, salloc, `--no-requeue`. The Prolog's
environment does not say which a job is, nor whether it asks for the very node that refuses it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import errors, hostlist, processes, settings, vocabulary

DEADLINE_S = 2.0
"""Longest slurmctld is waited for: a Prolog is waiting."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SLURM_CONF")
_FLAGS = re.compile(r"^   Requeue=(\d+) Restarts=\d+ BatchFlag=(\d+) Reboot=\d+ ExitCode=\d+:\d+$", re.ASCII | re.MULTILINE)  # fmt: skip
_NODES = re.compile(r"^   ReqNodeList=(\S+) ExcNodeList=\S+$", re.ASCII | re.MULTILINE)
_RESERVATION = re.compile(r"^   Reservation=\S+$", re.ASCII | re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class NextStart:
    """Where Slurm may start a job again whose Prolog failed."""

    node_lists: tuple[str, ...] = ()
    """What it asks for by name (--nodelist), as Slurm shows it; of an array each task's."""
    reserved: bool = False
    """It runs in a reservation."""

    def bound_by(self, node: str) -> str:
        """What binds it to the node: `nodelist`; `reservation`, which may hold other nodes; empty for nothing."""
        try:
            named = [node in hostlist.expand(text) for text in self.node_lists]
        except errors.MalformedInput:
            named = []
        return vocabulary.BY_NODE_LIST if named and all(named) else "reservation" if self.reserved else ""


Requeues = Callable[[int], NextStart | None]
"""The next start of the job of this id; None unless Slurm is known to requeue it."""


def asking(slurm: settings.SlurmSettings, deadline_s: float = DEADLINE_S) -> Requeues:
    """Asks `scontrol show job`; whatever cannot be learnt means None."""
    command = str(Path(slurm.bin_directory) / "scontrol") if slurm.bin_directory else "scontrol"

    stuck = processes.StuckChildren()

    def ask(job_id: int) -> NextStart | None:
        environment = {k: os.environ[k] for k in _KEPT if k in os.environ} | {"LC_ALL": "C"}
        if slurm.conf:
            environment["SLURM_CONF"] = slurm.conf
        argv = [command, "show", "job", str(job_id)]
        try:
            output = stuck.run("scontrol", argv, deadline_s=deadline_s, env=environment)
        except (OSError, processes.ChildStuck):
            return None
        return next_start(output.out) if output.code == 0 else None

    return ask


def next_start(shown: str) -> NextStart | None:
    """The next start of a job by `scontrol show job`; None for one that is not a batch job that may be requeued."""
    if not is_requeued(shown):
        return None
    return NextStart(node_lists=tuple(_NODES.findall(shown)), reserved=_RESERVATION.search(shown) is not None)


def is_requeued(shown: str) -> bool:
    """Whether every line of `scontrol show job` that looks like Slurm's says that the job is a batch job that may be requeued.

    Slurm's own line is one of them, whatever lines a name holds. An array or heterogeneous job shows all its parts.
    """
    flags = [flag for found in _FLAGS.finditer(shown) for flag in found.groups()]
    return bool(flags) and all(int(flag) > 0 for flag in flags)
