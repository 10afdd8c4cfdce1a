"""One attempt of a job with everything that its report shows of it."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Sequence
from datetime import datetime

from probing_cluster.attribution.verdict import findings
from probing_cluster.core import digits, hostlist, records, sanitize, vocabulary
from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.reports import phrase, rows

FAILED_STATES = frozenset(
    {
        "FAILED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "DEADLINE",
        "REQUEUED",
        "PREEMPTED",
        "CANCELLED",
    }
)
"""States in which an attempt ended without finishing its work."""

STOPPED_STATES = frozenset({"CANCELLED", "PREEMPTED"})
"""States of attempts that a person or Slurm stopped; reports do not say that these died."""

_LIMIT_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL})
"""How Slurm ends a step at its limit."""
_MOST_MOVED = 100
"""`sql/report.sql` reads no more hosts on which Slurm ran a job in /tmp."""
_NEAR_THE_END = 3
"""Lines that a batch script's last commands print after the program that failed: `echo done`, `date`."""

_WENT_WELL = re.compile(
    r"(?<![\d./-])([1-9]\d{0,11}) ?(?:/|(?:out )?of) ?\1(?![\d./])|\b(?<!not )(?:recovered|succeeded|success(?:ful(?:ly)?)?)\b"
    r"|^(?!.*\b(?:rest|remaining|all|every|following|later|dependent)\b).*\b(?:continuing|going on|carrying on) without\b",
    re.IGNORECASE,
)
"""All of a number of steps, words of success, or of what a script does without: it got over the error that stands above. `skipped` may be what the error made impossible; `done` and `finished` alone are
what batch scripts print behind whatever failed."""

_STOPPED = re.compile(rf"\S: {slurm_lines.SHELLS_CHILD}(?P<how>Killed|Terminated)\b")
"""The shell's message about a command of the batch script that a signal ended, most often the script's own `kill` of a helper at its end."""

_STEP = re.compile(r"\b(?:StepId=|[Ss]tep )(\d{1,12}\.\d{1,9})\b")
_CANCELLED_STEP = re.compile(
    r"\*{3} (?:STEP |StepId=)(?P<step>(?P<job>\d{1,12})\.\d{1,9}) ON \S{1,300} CANCELLED AT [^\s*]{1,40} \*{3}"
)
"""slurmstepd's line on a step that ended by no limit."""
_FAILED_TASK = re.compile(r"\btasks? \d[\d,-]{0,200}: Exited with exit code ")

_PARTLY_READ = re.compile(r"\d of \d+ bytes")
"""Words of a note on a log of which the node read only a part (`probe_agent.jobs.log_parts.words`)."""


@records.record
class AttemptView:
    """One attempt with everything known about it."""

    attempt: records.JobAttempt = records.doc("as accounting has it")
    verdict: records.Verdict | None = records.doc("why it ended, once judged", default=None)
    evidence: tuple[records.HealthEvent, ...] = records.doc("the verdict's events, oldest first", default=())
    others: tuple[records.HealthEvent, ...] = records.doc(
        "other events of its nodes during the attempt", default=()
    )
    others_left_out: int = records.doc(
        "how many further ones are not listed, less severe or older", default=0
    )
    pace: tuple[records.HealthEvent, ...] = records.doc(
        "slow ranks and slow-downs of the whole job, oldest first", default=()
    )
    own_errors: tuple[records.HealthEvent, ...] = records.doc(
        "errors in the output of an attempt that completed, oldest first", default=()
    )
    moved: tuple[records.HealthEvent, ...] = records.doc(
        "what Slurm wrote of nodes on which it ran the job in /tmp, oldest first", default=()
    )
    gangs: tuple[records.GangVerdict, ...] = records.doc(
        "stalls of its ranks while it ran, oldest first", default=()
    )
    logs: tuple[rows.JobLog, ...] = records.doc("its output files, as its nodes read them", default=())
    log_awaited: bool = records.doc(
        "whether it ended lately, and its verdict was made before its node's agent reported its output files",
        default=False,
    )
    actions: tuple[records.Drain, ...] = records.doc("actions taken because of it, oldest first", default=())
    lost_s: float | None = records.doc("work of it that was lost, seconds; null when not known", default=None)
    nodes_without_faults: tuple[str, ...] = records.doc(
        "its nodes that were watched, with no fault recorded during it", default=()
    )
    unwatched_nodes: tuple[str, ...] = records.doc("its nodes that nobody watched", default=())
    last_seen_at: datetime | None = records.doc("when an agent last reported that it runs", default=None)

    @property
    def running(self) -> bool:
        """True while accounting knows no end."""
        return self.attempt.end_at is None

    @property
    def ended_unfinished(self) -> bool:
        """True if it ended without finishing its work, whether it failed or was stopped."""
        return not self.running and self.attempt.state in FAILED_STATES | phrase.NOT_JUDGED.keys()

    @property
    def sighted(self) -> tuple[records.HealthEvent, ...]:
        """What was seen on its nodes, of an attempt that runs, or that completed although something grave was; of a completed one without
        its own output, which `doubt` is about."""
        if self.running:
            return self.others
        on_nodes = tuple(e for e in self.others if e.source not in vocabulary.JOB_SIDE_SOURCES)
        grave = any(e.severity is records.Severity.HIGH for e in on_nodes)
        return on_nodes if grave and self.attempt.state == "COMPLETED" else ()

    @property
    def sighted_title(self) -> str:
        """The title of the section that `sighted` is in."""
        words = "so far" if self.running else "although it completed"
        return f"Seen on the nodes of attempt {self.attempt.attempt} {words}"

    @property
    def doubt(self) -> str:
        """What failed in a COMPLETED attempt, or that it ran in another directory; empty if neither, and for all other states."""
        if failed := self.failed_part:
            failed = f"Slurm calls it COMPLETED because its batch script ended with 0, but {failed}."
            return f"{failed} {self.elsewhere}".rstrip()
        if self.attempt.state == "COMPLETED" and self.moved:
            return f"{self.elsewhere} What it wrote without a full path is there."
        return ""

    @property
    def failed_part(self) -> str:
        """Clause on what failed in a COMPLETED attempt; empty if nothing did, and for all other states."""
        if self.attempt.state != "COMPLETED":
            return ""
        how = phrase.status(self._failed_code or 0)
        if step := self.step_without_memory:
            return f"{step} ran out of memory and ended with {how}"
        if step := self.cancelled_step:
            return f"its step {step} was cancelled and ended with {how}"
        if step := self.step_at_its_limit:
            return f"its step {step} reached its own time limit (srun --time) and ended with {how}"
        if self._failed_code:
            return f"one of its steps ended with {phrase.status(self._failed_code)}"
        if (behind := self._lines_behind_error) is None:
            return ""
        if self.was_killed:
            return "its output reports that SIGKILL ended a command of the script"
        if behind == 0:
            return "its output ends with an error"
        return f"its output has an error {vocabulary.plural(behind, 'line')} before its end"

    @property
    def step_without_memory(self) -> str:
        """The step of a COMPLETED attempt that was killed for lack of memory, as `its step 40.0`, or `one of its steps`; empty for none."""
        if not self._failed_code:
            return ""
        # A kill without a reason may be the script's own: a watcher that it ends at its end.
        kills = [e for e in self.own_errors if findings.is_for_memory(e) and e.source == "joblog"]
        named = (found[1] for e in kills if (found := _STEP.search(e.message)))
        step = next(named, "")
        return f"its step {step}" if step else "one of its steps" if kills else ""

    @property
    def cancelled_step(self) -> str:
        """The step of a COMPLETED attempt that `scancel` ended, by its last lines; empty for none, and where a task failed before, for which srun ends the others."""
        ended = vocabulary.signal_of(self._failed_code or 0) in _LIMIT_SIGNALS and not self.own_errors
        lines = [line for log in self.logs for line in log.tail] if ended else []
        if any(_FAILED_TASK.search(line) for line in lines):
            return ""
        found = (_CANCELLED_STEP.search(line) for line in lines)
        return next((f["step"] for f in found if f and f["job"] == str(self.attempt.job_id)), "")

    @property
    def step_at_its_limit(self) -> str:
        """The step of a COMPLETED attempt that ended badly at a time limit of its own; empty for none."""
        if vocabulary.signal_of(self._failed_code or 0) not in _LIMIT_SIGNALS:
            return ""
        found = (findings.step_at_its_limit(e, self.attempt.job_id) for e in self.own_errors)
        return next((step for step in found if step), "")

    @property
    def elsewhere(self) -> str:
        """One sentence on the directory that Slurm could not enter and so ran the job in /tmp; empty if it entered it."""
        if not self.moved:
            return ""
        directory, why = (
            sanitize.clean(str(self.moved[0].detail.get(key) or ""), 200) for key in ("directory", "why")
        )
        nodes = hostlist.compress(sorted({str(e.detail.get("host") or e.node) for e in self.moved}))
        nodes += " and more" if len(self.moved) >= _MOST_MOVED else ""
        reason = f" ({why[:1].lower()}{why[1:]})" if why else ""
        return (
            f"Slurm could not enter its working directory {directory}{reason} and ran it in /tmp of {nodes}."
        )

    @property
    def doubt_title(self) -> str:
        """The title of the section that `doubt` is in."""
        failed = "part of it may have failed" if self.may_have_failed else "part of it failed"
        return f"Attempt {self.attempt.attempt} completed, but {failed if self.failed_part else 'in /tmp'}"

    @property
    def may_have_failed(self) -> bool:
        """Whether only a killed command, a cancelled step, or an error that the program goes on after, puts a COMPLETED attempt in doubt: it may be as intended."""
        goes_on = all(e.detail.get("goes_on") for e in self._errors)
        hedged = goes_on or self.was_killed or bool(self._lines_behind_error)
        return bool(self.failed_part) and (bool(self.cancelled_step) or (not self._failed_code and hedged))

    @property
    def was_killed(self) -> bool:
        """Whether the only error in the output of a COMPLETED attempt is the SIGKILL of a command, which its script outlived."""
        return bool(self._errors) and all(_STOPPED.search(e.message) for e in self._errors)

    @property
    def _errors(self) -> list[records.HealthEvent]:
        """The errors in its output, without those that it handled and went on after, and helpers that SIGTERM ended: that is how scripts stop them."""
        ends = (e for e in self.own_errors if not findings.step_at_its_limit(e, self.attempt.job_id))
        went_on = (e for e in ends if not (e.detail.get("handled") and e.detail.get("behind")))
        return [
            e for e in went_on if not ((how := _STOPPED.search(e.message)) and how["how"] == "Terminated")
        ]

    @property
    def _failed_code(self) -> int | None:
        # Slurm keeps this code over a requeue, so a later start may carry the code of the first, whose steps the requeue killed.
        return self.attempt.derived_exit_code if self.attempt.attempt == 1 else None

    @property
    def _lines_behind_error(self) -> int | None:
        """Lines that the job printed after the last error in its output; None without one, or where the program got over it."""
        errors = self._errors
        behind = min((digits.index(e.detail.get("behind")) or 0 for e in errors), default=_NEAR_THE_END + 1)
        # An error after which the job still printed much was often expected: a trial, a retry.
        if behind > _NEAR_THE_END:
            return None
        printed = [str(e.detail.get("last_words", "")) for e in errors if e.detail.get("behind")]
        printed += [line for log in self.logs for line in log.tail[max(0, len(log.tail) - behind) :]]
        return None if behind and any(_WENT_WELL.search(line) for line in printed) else behind

    @property
    def explanation(self) -> str:
        """The verdict's sentence; of a program that failed for a reason that nothing names, it ends with the last line that it printed."""
        return "" if self.verdict is None else sanitize.clean(self.verdict.summary)

    @property
    def why_not_judged(self) -> str:
        """Why an attempt that ended unfinished has no verdict."""
        return phrase.NOT_JUDGED.get(self.attempt.state, phrase.NOT_YET_JUDGED)

    @property
    def hung_s(self) -> float:
        """Seconds without progress before its end; 0 if no evidence shows a hang."""
        since = self.verdict.stalled_at if self.verdict is not None else None
        start, end = self.attempt.start_at, self.attempt.end_at
        if since is None or start is None or end is None or not self.ended_unfinished:
            return 0.0
        return max(0.0, (end - max(since, start)).total_seconds())

    @property
    def refused(self) -> bool:
        """True when its node was refused before it began."""
        return self.verdict is not None and self.verdict.cause == "node_refused"

    @property
    def how_it_ended(self) -> str:
        """The end of the title `Why attempt 1 …`: `died`, `was cancelled`, `was requeued`, `did not begin`."""
        if self.refused:
            return "did not begin"
        if self.ended_unfinished and self.attempt.state in STOPPED_STATES:
            return f"was {self.attempt.state.lower()}"
        if self.attempt.state == "REQUEUED" and any(map(self._requeued_it, self.actions)):
            return "was requeued"  # by us: it may have run on, whatever the fault was
        return "died" if self.ended_unfinished else "is flagged"

    def _requeued_it(self, drain: records.Drain) -> bool:
        of_it = drain.action == "requeue" and drain.job_id == self.attempt.job_id
        return of_it and drain.state == "done"

    @property
    def has_empty_log(self) -> bool:
        """True if all of its output files were read and hold no line."""
        return bool(self.logs) and not any(log.why or any(log.tail) for log in self.logs)

    @property
    def partly_read_files(self) -> str:
        """Its output files of which only a part was read, each with how much; empty for none."""
        return " and ".join(f"{log.path} ({log.note})" for log in self.logs if _PARTLY_READ.search(log.note))

    @property
    def unopened_files(self) -> str:
        """One sentence on the files that Slurm could not open, each with the reason; empty for an attempt that began."""
        if self.attempt.exit_signal != vocabulary.OUTPUT_NOT_OPENED:
            return ""
        missing = [log for log in self.logs if log.path and log.why]
        closed = [log for log in missing if not log.open_directory]
        # A batch job's file has no terminal in its place.
        whys = (log.why.removesuffix(f"; {vocabulary.ON_A_TERMINAL}") for log in closed)
        if files := " and ".join(f"{log.path} ({why})" for log, why in zip(closed, whys, strict=True)):
            return f"Slurm could not open {files}."
        if not missing:
            return ""
        # Slurm opens the input first, and makes no output where that fails.
        files = " and ".join(log.path for log in missing)
        return f"Slurm did not make {files}, though the job's owner may write there: the file of --input may be missing or closed to the owner."

    @property
    def unusable_directory(self) -> str:
        """The working directory, if a file that Slurm could not open lies in it: named without a directory, or not at all; empty for none."""
        directory = (self.attempt.work_dir or "").rstrip("/")
        there = (log.path.rpartition("/")[0] for log in self.logs if log.why and not log.open_directory)
        return directory if self.unopened_files and directory in there else ""

    @property
    def unread_files(self) -> str:
        """Its output files with the reason why none could be read; empty if one was read, or was only empty."""
        not_begun = self.attempt.exit_signal == vocabulary.OUTPUT_NOT_OPENED
        if not self.logs or not_begun or self.attempt.het_offset:
            return ""
        if any(any(log.tail) or not log.why for log in self.logs):
            return ""
        return " and ".join(f"{log.path} ({log.why})" if log.path else f"{log.why}" for log in self.logs)


def stalls_of(
    attempt: records.JobAttempt, gangs: Iterable[records.GangVerdict]
) -> tuple[records.GangVerdict, ...]:
    """The attempt's own stalls, until its end at most: the service hears of that seconds later."""
    own = tuple(g for g in gangs if g.submit_at == attempt.submit_at)
    end_at = attempt.end_at
    return tuple(
        g if end_at is None else dataclasses.replace(g, ended_at=min(g.ended_at or end_at, end_at))
        for g in own
    )


def explained_together(views: Sequence[AttemptView]) -> list[tuple[AttemptView, ...]]:
    """Groups of attempts that share a section: starts in a row whose nodes were refused; every other attempt alone."""
    grouped: list[tuple[AttemptView, ...]] = []
    for view in views:
        if grouped and view.refused and grouped[-1][-1].refused:
            grouped[-1] = (*grouped[-1], view)
        else:
            grouped.append((view,))
    return grouped
