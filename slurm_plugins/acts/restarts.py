"""What bringing back a job that has ended takes of Slurm: requeue it held, leave nodes out, set stuck dependents again, release it.

Each act reads the job just before and does nothing to another start of it. Each may be repeated: what is done already is "done".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from probing_cluster.core import digits, errors, hostlist, sanitize, vocabulary
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import outcome
from probing_cluster.slurm_plugins.live import live, live_records

MAX_NODES = 64
"""More nodes are not left out of one job: that would be a list that somebody made up."""
STUCK = "DependencyNeverSatisfied"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_STATUS = re.compile(r"\(\w+\)", re.ASCII)
_DEPENDENCY = re.compile(r"[A-Za-z0-9_:+,?*]{1,4096}", re.ASCII)


class RestartActs:
    """The acts over one way to run Slurm's commands and one way to read its jobs."""

    def __init__(self, run: commands.Runner, look: live.Live) -> None:
        self._run = run
        self._look = look

    def requeue_held(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, *, running: bool = False
    ) -> outcome.ActOutcome:
        """Put a batch job that has ended, or that is `running`, back into the queue, held; a het job by its leader's id.

        One that was running ends first, which may take it minutes: "done" says that Slurm is at it.
        """
        job = self._job(job_id)
        if job.held_by_requeue and job.restart_count == expect_restart + 1:
            return outcome.ActOutcome(state="done")
        why = why_not_requeued(job, expect_start_at, expect_restart, running=running)
        if why:
            return outcome.skipped(f"job {job_id} {why}")
        self._run("scontrol", "requeuehold", job.name_for_slurm)
        after = self._job(job_id)
        if not (after.held_by_requeue or (running and not _runs(after))):
            return outcome.failed(f"Slurm accepted the requeue of job {job_id}, yet it is {after.state}")
        return outcome.ActOutcome(state="done")

    def exclude(
        self, job_id: int, expect_restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> outcome.ActOutcome:
        """Leave nodes out of a job that waits (`add`: only while our requeue holds it), or give them back to it."""
        more, less = frozenset(add), frozenset(remove)
        _require_nodes(more | less)
        job = self._job(job_id)
        wanted = (set(job.excluded_nodes) | more) - less
        if wanted == set(job.excluded_nodes):
            return outcome.ActOutcome(state="done")
        if job.state != "PENDING" or job.restart_count != expect_restart:
            return outcome.skipped(
                f"job {job_id} is {job.state}, restart {job.restart_count}: no longer that wait"
            )
        if more and not job.held_by_requeue:
            return outcome.skipped(f"job {job_id} is not held by our requeue")
        self._run(
            "scontrol",
            "update",
            f"JobId={job.name_for_slurm}",
            f"ExcNodeList={hostlist.compress(sorted(wanted))}",
        )
        if set(self._job(job_id).excluded_nodes) != wanted:
            return outcome.failed(
                f"Slurm accepted the list of excluded nodes of job {job_id}, yet shows another"
            )
        return outcome.ActOutcome(state="done")

    def depend(self, job_id: int, on: int) -> outcome.ActOutcome:
        """Set the dependency of a waiting job again that can never be satisfied since job `on` failed."""
        job = self._job(job_id)
        if job.state != "PENDING":
            return outcome.skipped(f"job {job_id} is {job.state}")
        if job.reason != STUCK and "failed" not in job.dependency:
            return outcome.ActOutcome(state="done")
        if on not in (names := depends_on(job.dependency)):
            return outcome.skipped(f"job {job_id} depends on {sorted(names)}, not on {on}")
        wanted = _STATUS.sub("", job.dependency)
        if _DEPENDENCY.fullmatch(wanted) is None:
            return outcome.failed(
                f"the dependency of job {job_id} is not one: {sanitize.clean(wanted, 60)!r}"
            )
        self._run("scontrol", "update", f"JobId={job.name_for_slurm}", f"Dependency={wanted}")
        return outcome.ActOutcome(state="done")

    def release(self, job_id: int, expect_restart: int) -> outcome.ActOutcome:
        """Release what `requeue_held` holds, and no other hold; a het job by its leader's id."""
        job = self._job(job_id)
        if job.restart_count != expect_restart:
            return outcome.skipped(f"job {job_id} is at restart {job.restart_count}, not {expect_restart}")
        if job.state != "PENDING":
            return outcome.ActOutcome(state="done")
        if not job.held_by_requeue:
            held = job.priority == 0
            return (
                outcome.skipped(f"a person holds job {job_id}") if held else outcome.ActOutcome(state="done")
            )
        self._run("scontrol", "release", job.name_for_slurm)
        after = self._look.job(job_id)
        if after is not None and after.held_by_requeue:
            return outcome.failed(f"Slurm accepted the release of job {job_id}, yet it is held")
        return outcome.ActOutcome(state="done")

    def _job(self, job_id: int) -> live_records.LiveJob:
        found = self._look.job(job_id)
        if found is None:
            raise errors.NotFound(f"Slurm knows no job {job_id}")
        return found


def why_not_requeued(
    job: live_records.LiveJob, start_at: datetime, restart: int, *, running: bool = False
) -> str:
    """Why this job must not be brought back as that start; empty when it may."""
    state = f"is {job.state}{''.join(f'+{f}' for f in sorted(job.flags))}"
    reasons = (
        (running and not _runs(job), f"{state}: it does not run"),
        (not running and not job.ended, f"{state}: {vocabulary.NOT_ENDED}"),
        (job.state in {"COMPLETED", "CANCELLED"}, f"is {job.state}"),
        (not job.batch, "is interactive"),
        (not job.requeue, "was submitted with --no-requeue"),
        (job.expedite, "was submitted with --requeue=expedite: Slurm brings it back itself"),
        (job.start_at != start_at, f"has started anew ({job.start_at})"),
        (job.restart_count != restart, f"is at restart {job.restart_count}, not {restart}"),
    )
    return next((why for applies, why in reasons if applies), "")


def _runs(job: live_records.LiveJob) -> bool:
    return job.state == "RUNNING" and not job.completing


def depends_on(dependency: str) -> frozenset[int]:
    """The jobs, by the number before any task, that a dependency names: `afterok:12(failed):13_*,singleton` is 12 and 13."""
    found: set[int] = set()
    for part in re.split(r"[,?]", _STATUS.sub("", dependency)):
        for word in part.split(":")[1:]:
            number = re.split(r"[_+]", word, maxsplit=1)[0]  # `13_*` a task, `13+5` minutes after its start
            if digits.is_number(number):
                found.add(int(number))
    return frozenset(found)


def _require_nodes(nodes: Iterable[str]) -> None:
    listed = list(nodes)
    if len(listed) > MAX_NODES:
        raise errors.UsageError(f"at most {MAX_NODES} nodes are left out of a job, not {len(listed)}")
    for node in listed:
        if NODE_NAME.fullmatch(node) is None:
            raise errors.UsageError(f"{sanitize.clean(node, 60)!r} is not one node's name")
