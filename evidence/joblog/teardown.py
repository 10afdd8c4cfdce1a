"""Processes that lose each other when the work is over: each ends in its own time, and nothing failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile, islice

from probing_cluster.evidence.joblog import grammar, units
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import levels, work_over

LOSSES = frozenset(
    {"nccl_system_error", "nccl_remote_error", "peer_lost", "python_consequence", "store_lost"}
)
"""How processes lose each other, also when one after the other ends as it should."""
_CLEAN_LINES, _WORDS_CHARS = 20, 120
_OF_NEXT = re.compile(
    r"\b(?:srun|slurmstepd\S*): |^\W{0,4}(?!(?i:error)\b)[\w./-]{1,80}: (?:fatal )?error: |\b(?:unrecogni[sz]ed|usage|arguments?|no such file|cannot open|can't open|not found|missing)\b",
    re.IGNORECASE,
)
"""The complaint of a further program of the script, which may be work, too."""
_ENDS = re.compile(
    r"(?!.*\b(?:(?:up|down)load\w*|cop(?:y|ied|ying)|sav(?:ed?|ing)|writ\w+|stor(?:ed?|ing)|send(?:ing)?|sent|submit\w*|not|push\w*|export\w*|cannot|could not|unable)\b).*\b(?:shut(?:ting)?[ -]?down|closed|closing|disconnect\w{0,3}|unreachable|lost[ -]connection|connection[ -](?:lost|reset)|died unexpectedly|requests outstanding|unaware of this worker)\b",
    re.IGNORECASE,
)
"""How processes lose each other in words that no kind has; not what one of them still had to do."""
_CLEANS = re.compile(
    r"\b(?:clean(?:ing|ed)?[ -]?up|delet(?:ed|ing)|remov(?:ed|ing)|tear(?:ing)? ?down|prun(?:ed|ing))\b",
    re.IGNORECASE,
)
"""A script clears away what it had set up for the work."""
_WRONG = re.compile(
    r"(?<!no )(?<!\b0 )\b(?:fail\w{0,4}|exceptions?|abort\w{0,3}|killed|traceback|cannot|could not|unable)\b|(?:^|[\s:])(?:srun|slurmstepd\S*): ",
    re.IGNORECASE,
)
_HANDLER = re.compile(r".{0,120}\*{3} SIGTERM received at time=\d")
"""Ray ends the processes of its actors by this signal, and they say so."""
_RESOLVED = re.compile(r"\b(?:resolved|resuming|synced|succeeded|recovered)\b", re.IGNORECASE)
"""What reported an error says that it is over."""
_STATED = frozenset({"program_error", "slurm_launch_failed"})
"""What a program states about itself or a command; a traceback is not the end of work that went well."""


def after_work(finding: JobFinding, before: Sequence[str]) -> JobFinding:
    """`finding`, marked if processes lose each other in it after the work: the last of the lines `before` report no progress, and one that it is over.

    A thread's loss needs no report if the last progress is complete. Another complaint then, and a loss behind complete progress, only
    came near the end (`at_end`): the lines behind it decide.
    """
    if units.ends_main(finding.message):
        return finding
    stated = finding.kind in _STATED
    lost = finding.kind in LOSSES or (stated and _ENDS.match(finding.message) is not None)
    lost = lost or (finding.pid is not None and _HANDLER.match(finding.message) is not None)
    if not lost and not stated:
        return finding
    if lost and _noted(before):
        return replace(finding, detail={**finding.detail, "after_work": True})
    before = _above(finding, before)
    over, behind = work_over.state(before)
    complete = work_over.last_report(before) == work_over.COMPLETE
    if lost and (over or (finding.detail.get("thread") is True and complete)):
        return replace(finding, detail={**finding.detail, "after_work": True})
    if lost and complete:
        return replace(finding, detail={**finding.detail, "at_end": "lost"})
    if over and not _OF_NEXT.search(finding.message):
        cleans = any(map(_CLEANS.search, islice(reversed(before), min(behind, _CLEAN_LINES))))
        return replace(finding, detail={**finding.detail, "at_end": "cleans" if cleans else "over"})
    return finding


def _above(finding: JobFinding, before: Sequence[str]) -> Sequence[str]:
    """The lines `before` without the finding's own and those below it: an error from the end of the log is found late. If work went on below, another process had printed the same."""
    words = finding.message[:_WORDS_CHARS]
    own = next((behind for behind, line in enumerate(reversed(before), 1) if words in line), 0)
    if own and work_over.goes_on(islice(reversed(before), own)):
        return before
    return list(islice(before, len(before) - own))


def _noted(before: Sequence[str]) -> bool:
    """Whether the traceback, of which the lines `before` are the beginning, stands below a logger's note that a connection is closed."""
    above = dropwhile(lambda line: line[:1].isspace() or not line, reversed(before))
    head = next(above, "")
    return head.startswith(grammar.TRACEBACK) and levels.reports_closing(next(above, ""))


def _at_end(finding: JobFinding) -> str | None:
    """How near the end of the work it came, if that alone proves nothing. A signal may come whenever the work is to end."""
    if finding.detail.get("after_work"):
        return None
    at_end = finding.detail.get("at_end")
    return at_end or ("ended" if finding.kind == "process_terminated" else None)


def is_teardown(best: JobFinding, held: Sequence[JobFinding], lines: Sequence[str] = ()) -> bool:
    """Whether `best` came after the work, and nothing but such losses followed it; `lines`: those behind it at the log's end.

    What is no loss needs a better proof: the end with code 0, or a script that clears away and goes on.
    """
    if work_over.ended_badly(lines):
        return False
    at_end = _at_end(best)
    if at_end is not None:
        cleans = at_end == "cleans" or (at_end == "over" and any(map(_CLEANS.search, lines)))
        speaker = best.message.split(" ", 1)[0]
        own = [line for line in lines if speaker.endswith(":") and line.startswith(speaker)]
        well = work_over.ended_well(lines) or (cleans and bool(lines)) or any(map(_RESOLVED.search, own))
        if not well or any(map(_WRONG.search, lines)):
            return False
    later = (f for f in held if f.line >= best.line and f.role is not LineRole.OBSERVATION)
    return all(f.detail.get("after_work") or (at_end and _at_end(f)) for f in later)
