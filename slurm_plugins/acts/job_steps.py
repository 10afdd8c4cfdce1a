"""Jobs that hold nodes for a test, and the steps in them: ordinary jobs of our own user inside a reservation of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.core import clock, digits, errors, records, sanitize, settings
from probing_cluster.slurm_plugins import commands

_GRANTED = re.compile(rb"Granted job allocation (\d+)")
_STEP_GRACE_S = 30.0
"""srun waits so long for a node that does not answer, before it goes without it."""


MOST_BYTES = 1 << 20
"""Bytes of one node's output in a step that are kept: one that floods takes neither our memory nor the others' answers."""


class OfEachTask:
    """Keeps the first MOST_BYTES of each task's labelled lines as they come."""

    def __init__(self) -> None:
        self._left: dict[bytes, int] = {}
        self._rest = b""

    def __call__(self, piece: bytes) -> bytes:
        """What of the next piece is kept; a line that is not whole yet waits for its end."""
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[:MOST_BYTES]
        return b"".join(self._kept(line) for line in lines)

    def _kept(self, line: bytes) -> bytes:
        label = line.partition(b":")[0][-20:]
        left = self._left.get(label, MOST_BYTES)
        self._left[label] = left - len(line) - 1
        return line + b"\n" if len(line) < left else b""


@records.record
class StepWanted:
    """What a test's job asks for."""

    name: str = records.doc("job name, by which leftovers are found")
    reservation: str = records.doc(
        "reservation it runs in; empty for idle nodes of a person's choice", default=""
    )
    nodes: tuple[str, ...] = records.doc("exactly these nodes")
    partition: str = records.doc("a partition that has them all", default="")
    account: str = records.doc("Slurm account; empty for the user's own", default="")
    gpus: int = records.doc("GPUs per node", default=0)
    limit_s: float = records.doc("time limit, seconds")


@records.record
class SubmittedJob:
    """A job that this process submitted to hold nodes for tests."""

    job_id: int = records.doc("Slurm's id")
    submit_at: datetime = records.doc("just before it was submitted, UTC")
    granted_at: datetime = records.doc("when it had its nodes, UTC")


_REMEMBERED = timedelta(days=1)
SUBMITTED: dict[int, SubmittedJob] = {}
"""Jobs that this process submitted, by id: accounting may show them under another name at first. Kept for a day."""


class JobSteps:
    """Allocations without a script (`salloc --no-shell`) and steps in them; raises SlurmUnavailable."""

    def __init__(self, slurm: settings.SlurmSettings) -> None:
        self._run = commands.SlurmCommands(settings=slurm)

    def allocate(self, wanted: StepWanted, wait_s: float) -> int:
        """The job id, once the nodes are ours; what has not started within `wait_s` is cancelled."""
        arguments = [
            "--no-shell",
            "--exclusive",
            "--no-kill",
            f"--job-name={wanted.name}",
            f"--nodelist={','.join(wanted.nodes)}",
            f"--nodes={len(wanted.nodes)}",
            "--ntasks-per-node=1",
            f"--time={max(1, round(wanted.limit_s / 60) + 1)}",
        ]
        optional = (
            ("reservation", wanted.reservation),
            ("partition", wanted.partition),
            ("account", wanted.account),
            ("gres", f"gpu:{wanted.gpus}" if wanted.gpus else ""),
        )
        arguments += [f"--{option}={value}" for option, value in optional if value]
        submit_at = clock.SYSTEM.now()
        done = self._run.collect("salloc", *arguments, stdin=b"", deadline_s=wait_s)
        match = _GRANTED.search(done.stderr)
        if match is not None:
            job_id = int(match[1])
            now = clock.SYSTEM.now()
            for old in [j for j, job in list(SUBMITTED.items()) if now - job.granted_at > _REMEMBERED]:
                SUBMITTED.pop(old, None)
            SUBMITTED[job_id] = SubmittedJob(job_id=job_id, submit_at=submit_at, granted_at=now)
        if match is None or done.code != 0:
            self.cancel_named(wanted.name)
            words = sanitize.clean(done.stderr.decode("utf-8", "replace").strip(), 300)
            raise errors.SlurmUnavailable(
                f"the test's job did not start within {wait_s:g} s: {words or 'no word from salloc'}"
            )
        return int(match[1])

    def step(self, job_id: int, nodes: Sequence[str], command: str, stdin: bytes, deadline_s: float) -> bytes:
        """What `command` printed on every node by the deadline, at most MOST_BYTES each; nodes that did not answer are missing.

        Labelled with the node's place in `nodes`: task n runs on the n-th.
        """
        done = self._run.collect(
            "srun",
            "-Q",
            "-l",
            "-K0",
            f"--jobid={job_id}",
            "--overlap",
            f"--nodelist={','.join(nodes)}",
            "--distribution=arbitrary",  # in the order of the list, not of slurm.conf
            f"--nodes={len(nodes)}",
            f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1",
            "--mem=0",
            command,
            stdin=stdin,
            deadline_s=deadline_s + _STEP_GRACE_S,
            keep=OfEachTask(),
        )
        return done.stdout

    def cancel(self, job_id: int) -> None:
        """Ends a test's job."""
        self._run("scancel", str(job_id))

    def named(self, name: str) -> list[int]:
        """Jobs of that name that have not ended, also those of a service that was killed."""
        output = self._run("squeue", "-h", "-n", name, "-o", "%A").decode("ascii", "replace")
        return sorted({int(word) for word in output.split() if digits.is_number(word)})

    def cancel_named(self, name: str) -> None:
        """Ends every job of that name."""
        for job_id in self.named(name):
            self.cancel(job_id)
