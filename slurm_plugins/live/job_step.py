"""A short step on the nodes of a running job (`srun --overlap`): Slurm admits nobody but the job's owner into it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands, job_ids
from probing_cluster.slurm_plugins.live import live_records, live_text

IMMEDIATE_S = 3
"""srun gives up where the step cannot start by then: of a suspended job it would wait for ever."""


def running(run: commands.Runner, text: str) -> list[live_records.LiveJob]:
    """The job that `text` names (123, 123_4, 123+1), its components if it is heterogeneous; all of them run.

    Raises NotFound where none runs, MalformedInput for no job id, SlurmUnavailable.
    """
    ref = job_ids.parse(text)
    asked = f"{ref.job}_{ref.task}" if ref.task is not None else str(ref.job)
    try:
        output = run("scontrol", "-o", "-d", "show", "job", asked, environment={"SLURM_TIME_FORMAT": "%s"})
    except errors.SlurmUnavailable as exc:
        if "Invalid job id" in str(exc):
            raise errors.NotFound(f"Slurm does not know job {text}") from exc
        raise
    found = [
        job
        for job in live_text.trusted_jobs(output)
        if job.state == "RUNNING" and job.nodes and ref.offset in (None, job.het_offset)
    ]
    if not found:
        raise errors.NotFound(f"job {text} does not run: there is no process that could be asked")
    if len({job.het_job_id or job.job_id for job in found}) > 1:
        raise errors.UsageError(
            f"{text} is an array of {len(found)} running jobs; name one, as in {ref.job}_1"
        )
    return found


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
