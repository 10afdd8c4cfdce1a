"""The job that is asked about, as Slurm has it now: raw id, owner, nodes, heterogeneous parts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, job_ids
from probing_cluster.slurm_plugins.live import job_texts, live_records, live_text


@dataclass(frozen=True, kw_only=True)
class Part:
    """A job, or one component of a heterogeneous one."""

    job_id: int
    """Raw."""
    nodes: tuple[str, ...]
    offset: int | None = None
    """Component of a heterogeneous job."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """A job that can be asked."""

    job_id: int
    """Raw; of a heterogeneous job its leader's."""
    uid: int
    user: str
    state: str
    parts: tuple[Part, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All its nodes."""
        return tuple(dict.fromkeys(n for part in self.parts for n in part.nodes))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the controller allows."""

    tree_width: int = 16
    max_steps: int = 40_000


def find(text: str, slurm: settings.SlurmSettings, run: commands.Runner | None = None) -> RunningJob:
    """The job that `text` names (123, 123_4, 123+1); raises NotFound, SlurmUnavailable, UsageError."""
    try:
        ref = job_ids.parse(text)
    except errors.MalformedInput as exc:
        raise errors.UsageError(
            f"{exc.args[0]}; write 123, 123_4 (array task) or 123+1 (het component)"
        ) from exc
    job_name = f"{ref.job}_{ref.task}" if ref.task is not None else str(ref.job)
    run = run or commands.SlurmCommands(settings=slurm)
    shown = job_texts.named(run, job_name)
    for job_id in shown.unclear:
        job_texts.require(shown, job_id)
    found = [live_text.job(text) for text in shown.texts.values()]
    found = [j for j in found if ref.offset is None or j.het_offset == ref.offset]
    if ref.task is None and ref.offset is None:
        found = (
            [j for j in found if j.het_job_id is not None]
            or [j for j in found if j.job_id == ref.job]
            or found
        )
    if not found:
        raise errors.NotFound(
            f"Slurm does not know job {text}; of one that is over, probing-report {text} tells"
        )
    return _job(text, found)


def _job(text: str, found: list[live_records.LiveJob]) -> RunningJob:
    first = found[0]
    running = [j for j in found if j.nodes and j.state in ("RUNNING", "SUSPENDED", "COMPLETING")]
    if len(running) > 1 and any(j.het_offset is None for j in running):
        tasks = ", ".join(
            f"{j.array_job_id}_{j.array_task_id}" for j in running[:4] if j.array_task_id is not None
        )
        raise errors.UsageError(f"{text} is an array of {len(running)} running jobs; name one: {tasks}")
    if not running:
        raise errors.NotFound(
            f"job {text} does not run (Slurm says {first.state}), so that nothing of it can be asked; probing-report {text} shows what is known"
        )
    if running[0].uid is None:
        raise errors.SlurmUnavailable(f"Slurm does not say whose job {text} is")
    parts = tuple(Part(job_id=j.job_id, nodes=j.nodes, offset=j.het_offset) for j in running)
    leader = running[0].het_job_id
    return RunningJob(
        job_id=leader if leader is not None else running[0].job_id,
        uid=running[0].uid,
        user=running[0].user,
        state=running[0].state,
        parts=parts,
    )


def limits(slurm: settings.SlurmSettings, run: commands.Runner | None = None) -> Limits:
    """TreeWidth and MaxStepCount; Slurm's own defaults where it does not say."""
    run = run or commands.SlurmCommands(settings=slurm)
    text = run("scontrol", "show", "config").decode("utf-8", "replace")
    found = dict(re.findall(r"^(TreeWidth|MaxStepCount)\s*=\s*(\d+)\s*$", text, re.MULTILINE))
    # 65533 and more is Slurm's way to write "no tree".
    width = int(found.get("TreeWidth", Limits.tree_width))
    return Limits(
        tree_width=min(max(width, 1), 64), max_steps=int(found.get("MaxStepCount", Limits.max_steps))
    )
