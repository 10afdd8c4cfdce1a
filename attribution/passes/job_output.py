"""What a verdict has from the job's output beside its findings: whether it was read, and the program's last line."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.attribution.verdict import eliminate, findings, next_steps, phrases
from probing_cluster.attribution.verdict.rules.user_error import bare_exit
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.db import store

_READ = (Path(__file__).parent / "sql" / "case_outputs.sql").read_text("utf-8")
_EXIT = "task_exit"
"""The kind of srun's line on how a task ended, which gives no reason."""
_LINE_CHARS = 240
_WORD = re.compile(r"[^\W\d_]{2,}")
_SENTENCE_WORDS = 3
"""A line of fewer words (`done`, `exiting`) states nothing."""
_OF_WORK = re.compile(
    r"\+|.*(?:\b(?:epoch|step|iter(?:ation)?|batch|loss)\W{0,3}\d|\d ?%|\bit/s\b|\b(?:done|finished|completed|success(?:ful(?:ly)?)?|succeeded|saved)\b|(?:\.\.\.|…)$)",
    re.IGNORECASE,
)
"""A row of progress, an act that began or ended well, a command that `set -x` prints: none says why the program failed."""

_NAME = r"(?:SIG)?(?:USR[12]|TERM|ALRM|HUP|XCPU)\b|\bsignal(?: number)?[ :=#]{1,3}(?:1|10|12|14|15|24)\b"
_CAUGHT = re.compile(
    rf"\b(?i:got|received?|receiving|caught|handling|trapped)\b.{{0,40}}\b(?:{_NAME})|\b(?:{_NAME}).{{0,20}} (?i:received|caught|arrived)\b"
)
_ANNOUNCED = re.compile(
    r"^\s*\+|\b(?:if|when(?:ever)?|once|until|will|would|waiting|not|install\w*|regist\w+|handlers? for|sent|sending)\b",
    re.IGNORECASE,
)
"""A line on a signal that has not come, or that went to another process."""
_SIGNAL = " Its log reports a signal: "
_AFTER_SIGNAL = (
    "Find who sent that signal: `sbatch --signal` lets Slurm send one shortly before the time limit, and `scancel --signal` a person. "
    "If it was the warning and the job saved its work, submit it again, or ask for more time (--time)."
)

_ENDED = re.compile(
    rf"Terminated\.?$|\S{{1,200}}: {slurm_lines.SHELLS_CHILD}Terminated\b(?:\.?$| {{2,}}\S)"
    r"|(?:[\w./-]{1,40}:? )?(?:rc|exit(?:ed)?(?: with)?(?: code| status)?|return code)\W{1,4}143\W*$"
)
"""A shell's line on a command that SIGTERM ended, and a script's on the code that this one ended with."""
_END_LINES = 3
_BY_SIGNAL = "was ended by signal "
"""Words of a verdict on an exit code that stands for a signal."""
_AFTER_TERM = f"{findings.advice('was ended by signal 15 (SIGTERM)')}. If the script stops that command itself, as it does with a helper, look at the program's other output."


def complete(
    source: store.Store, verdicts: Sequence[records.Verdict], events: Mapping[uuid.UUID, records.HealthEvent]
) -> list[records.Verdict]:
    """The verdicts with `log_read`; that on a program that failed for a reason that nothing names ends with its last line, too.

    That line often says why, in words that no reader of logs can know. It is quoted and not called the cause. Others than its owner
    may read a verdict: what looks like a secret is taken out.
    `events`: the evidence of these verdicts.
    """
    by_cluster: dict[str, list[records.Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_cluster[verdict.cluster].append(verdict)
    found: dict[Any, Mapping[Any, Any]] = {}
    for cluster, mine in by_cluster.items():
        given = {
            "cluster": cluster,
            "job_ids": [v.job_id for v in mine],
            "submits": [v.submit_at for v in mine],
            "by_exit": [_is_by_exit(v, events) for v in mine],
        }
        for row in source.rows(_READ, given):
            found[cluster, row["job_id"], row["submit_at"]] = row
    rows = (found.get((v.cluster, v.job_id, v.submit_at)) for v in verdicts)
    return [v if row is None else _with(v, row) for v, row in zip(verdicts, rows, strict=True)]


def _is_by_exit(verdict: records.Verdict, events: Mapping[uuid.UUID, records.HealthEvent]) -> bool:
    """Whether it rests on how the program ended alone."""
    return verdict.cause in (bare_exit.CAUSE, bare_exit.KILLED) and all(
        i in events and events[i].kind == _EXIT for i in verdict.evidence
    )


def _with(verdict: records.Verdict, row: Mapping[Any, Any]) -> records.Verdict:
    logs = row["logs"] if isinstance(row["logs"], list) else []
    (last, error), caught = _last_lines(logs), _reported_signal(logs)
    quoted = f"{vocabulary.LAST_LINE}{last}{error}" if last and last not in verdict.summary else ""
    summary = phrases.without_signal(verdict.summary, [line for log in logs for line in _tail(log)])
    step = next_steps.behind_statement(verdict) if quoted and _is_statement(last) else verdict.next_step
    ruled_out, confidence = verdict.ruled_out, verdict.confidence
    # A job that another signal ended, or that says why below, did not end by what one command of its script was sent.
    alone = verdict.cause == bare_exit.CAUSE and not caught and _BY_SIGNAL not in verdict.summary
    ended = _ended_by_term(logs) if alone else ""
    if ended and (ended == phrases.clean(last) or not _is_statement(last)):
        # Who sent it is not known. That the program failed by itself is a guess then.
        confidence = records.Confidence.POSSIBLE
        quoted = f"{_SIGNAL}{ended.rstrip('.')}.{quoted if last != ended else ''}"
        step = _AFTER_TERM
    if caught:
        # `sbatch --signal` warns a job of its time limit, which then is why it ended.
        ruled_out = tuple(s for s in ruled_out if not s.startswith(eliminate.TIME_LIMIT))
        quoted = f"{_SIGNAL}{caught.rstrip('.')}.{quoted if last != caught else ''}"
        step = _AFTER_SIGNAL
    # A copy of a judged verdict needs no second check.
    return records.of_checked(
        records.Verdict,
        {
            **vars(verdict),
            "log_read": row["is_read"],
            "summary": f"{summary if last else verdict.summary}{quoted}",
            "next_step": step,
            "confidence": confidence,
            "ruled_out": ruled_out,
        },
    )


def _is_statement(line: str) -> bool:
    """Whether the line may say why the program failed."""
    return _OF_WORK.match(line) is None and len(_WORD.findall(line)) >= _SENTENCE_WORDS


def _reported_signal(logs: list[Any]) -> str:
    """The last line in which the program reports a signal that it caught; empty for none."""
    lines = (line for log in logs if isinstance(log, Mapping) for line in reversed(_tail(log)))
    line = next((line for line in lines if _CAUGHT.search(line) and not _ANNOUNCED.search(line)), "")
    return _shown(line)


def _ended_by_term(logs: list[Any]) -> str:
    """The line at the end of the output that reports that SIGTERM ended a command; empty for none."""
    ends = (line for log in logs for line in [line for line in _tail(log) if line.strip()][-_END_LINES:])
    return phrases.clean(_shown(next((line for line in ends if _ENDED.match(line.strip())), "")))


def _last_lines(logs: list[Any]) -> tuple[str, str]:
    """The program's last line and, if that states nothing, a clause with the last line shortly above that ends in the system's words for an error."""
    files = sorted(logs, key=lambda log: not isinstance(log, Mapping) or log.get("stream") != "stderr")
    tails = ((_tail(file), slurm_lines.last_of_program(_tail(file))) for file in files)
    tail, last = next(((tail, line) for tail, line in tails if line), ([], ""))
    near = () if _is_statement(last) else reversed(tail[-_NEAR_LINES:])
    error = next((line for line in near if _OF_SYSTEM.search(line)), "")
    return _shown(last), f"; above it: {_shown(error)}" if error and error != last else ""


_NEAR_LINES = 10
_OF_SYSTEM = re.compile(
    r": (?:No such file or directory|Permission denied|Is a directory|Not a directory|Input/output error|Connection (?:refused|reset by peer|timed out)"
    r"|No space left on device|Disk quota exceeded|Read-only file system|Stale file handle|Cannot allocate memory)\.?\s*$",
    re.IGNORECASE,
)


def _shown(line: str) -> str:
    return sanitize.without_secrets(sanitize.clean(line.strip()))[:_LINE_CHARS]


def _tail(file: Any) -> list[str]:
    """The last lines of one file; an agent's report is untrusted like a user's text."""
    tail = file.get("tail") if isinstance(file, Mapping) else None
    return [str(line)[:500] for line in tail[:50]] if isinstance(tail, list) else []
