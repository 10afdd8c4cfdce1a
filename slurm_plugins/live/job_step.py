"""A short step on the nodes of a running job (`srun --overlap`): Slurm admits nobody but the job's owner into it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.live import live_records

IMMEDIATE_S = 3
"""srun gives up where the step cannot start by then: of a suspended job it would wait for ever."""


def run_on_nodes(
    run: commands.Runner,
    job: live_records.LiveJob,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> list[bytes]:
    """What each of the job's nodes that has an answer wrote as lines of base64; raises SlurmUnavailable.

    One task a node, without GPUs and memory of its own, beside what runs there.
    """
    count = str(len(job.nodes))
    het = [] if job.het_offset is None else [f"--het-group={job.het_offset}"]
    output = run(
        "srun", "--quiet", "--label", "--kill-on-bad-exit=0", f"--immediate={IMMEDIATE_S}",
        f"--jobid={job.job_id if job.het_job_id is None else job.het_job_id}", *het, "--overlap", "--gres=none", "--mem=0",
        "--mpi=none", "--chdir=/", f"--nodelist={','.join(job.nodes)}", "-N", count, "-n", count, "--ntasks-per-node=1",
        "--job-name=probing-eval", *command, environment=environment,
    )  # fmt: skip
    parts: dict[bytes, list[bytes]] = {}
    for line in output.splitlines():
        label, _, text = line.partition(b": ")
        parts.setdefault(label.strip(), []).append(text)
    try:
        return [base64.b64decode(b"".join(lines), validate=True) for lines in parts.values()]
    except binascii.Error as exc:
        raise errors.SlurmUnavailable(
            "srun passed on something else than the answer: a TaskProlog that prints?"
        ) from exc
