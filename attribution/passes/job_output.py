"""What a verdict has from the job's output beside its findings: whether it was read, and the program's last line."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.attribution.verdict import next_steps, phrases
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
    last, error = _last_lines(logs)
    quoted = f"{vocabulary.LAST_LINE}{last}{error}" if last and last not in verdict.summary else ""
    summary = phrases.without_signal(verdict.summary, [line for log in logs for line in _tail(log)])
    step = next_steps.behind_statement(verdict) if quoted and _is_statement(last) else verdict.next_step
    # A copy of a judged verdict needs no second check.
    return records.of_checked(
        records.Verdict,
        {
            **vars(verdict),
            "log_read": row["is_read"],
            "summary": f"{summary if last else verdict.summary}{quoted}",
            "next_step": step,
        },
    )


def _is_statement(line: str) -> bool:
    """Whether the line may say why the program failed."""
    return _OF_WORK.match(line) is None and len(_WORD.findall(line)) >= _SENTENCE_WORDS


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
