"""Processes that lose each other when the work is over: each ends in its own time, and nothing failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile, islice

from probing_cluster.evidence.joblog import grammar, labels, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole

_MAX_CHARS = 600
_LOSSES = frozenset(
    {"nccl_system_error", "nccl_remote_error", "peer_lost", "python_consequence", "store_lost"}
)
"""How processes lose each other, also when one after the other ends as it should."""
_WORK_DONE = re.compile(
    r"(?!.*(?:\b(?:not|never|without|before|until|when|after|cannot|fail\w{0,4}|errors?|be|half|part(?:ial|ly)\w{0,2}|nearly|almost|first|second|third|next|each|every|another|reading|epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|checkpoints?|validation|evaluation|stages?|phases?|tasks?|workers?|ranks?|data|dataset|warm-?up|setup|(?:load|download|build|compil|tokeni[sz]|prepar|preprocess|initiali[sz]|install|import|cach)\w{0,5})\b|n't|\b(?:job|run|program|simulation|work) ?[#:]? ?\d{1,4}\b(?! ?%)|\b\d{1,2}(?:\.\d{1,4})?\s?% ?(?:done|finished|completed?)\b))"
    r"(?:\W{0,6}(?:all )?(?:done|finished|completed?)(?:\W{0,6}$|[.!,;:]{1,3} | (?:in|at|on) )|.{0,80}\b(?:training|run|job|program|simulation|optimi[sz]ation|fine-?tuning|pre-?training|everything|work)\b.{0,20}\b(?:(?:done|finished|completed?|ended)\b(?!\W{0,3}\d{1,2}(?:\.\d{1,4})? ?%)|over(?=\W{0,6}$|[.!,;])))",
    re.IGNORECASE,
)
"""The program's own report that its work is over; the end of a job or a run with a number is that of a unit."""
_CLOSED = re.compile(r"\d - [\w.]{1,80} - (?:INFO|DEBUG) - .{0,200}\b[Cc]los(?:ed|ing)\b")
_OF_TOTAL = re.compile(r"(?<![\w./-])(?P<n>\d{1,12})\s{0,2}(?:/|of)\s{0,8}(?P<of>\d{1,12})(?![\w/.-])")
"""A counter and its total."""


_OVER, _COMPLETE, _GOES_ON = "over", "complete", "goes on"


def after_work(finding: JobFinding, before: Sequence[str]) -> JobFinding:
    """`finding`, marked if processes lose each other in it after the work: the last of the lines `before` report no progress, and one that it is over.

    A thread's loss needs no report if the last progress is complete.
    """
    if finding.kind not in _LOSSES:
        return finding
    if _noted(before):
        return replace(finding, detail={**finding.detail, "after_work": True})
    last = next(filter(None, map(_report, reversed(before))), "")
    over = last == _OVER or (last == _COMPLETE and finding.detail.get("thread") is True)
    return replace(finding, detail={**finding.detail, "after_work": True}) if over else finding


@lru_cache(maxsize=4 * progress.LOOK_BACK_LINES)
def _report(line: str) -> str:
    """What the line reports of the work; empty for nothing. Each of many losses asks for the same lines above it."""
    text = labels.bare(0, line).text
    if _WORK_DONE.match(text) and (_is_complete(text) or not _OF_TOTAL.search(text)):
        return _OVER
    if progress.is_progress(text):
        return _COMPLETE if _is_complete(text) else _GOES_ON
    return ""


def _noted(before: Sequence[str]) -> bool:
    """Whether the traceback, of which the lines `before` are the beginning, stands below a logger's note that a connection is closed."""
    above = dropwhile(lambda line: line[:1].isspace() or not line, reversed(before))
    head = next(above, "")
    return head.startswith(grammar.TRACEBACK) and _CLOSED.search(next(above, "")) is not None


_KILLS = re.compile(r"\bkill(?:ing)?\b(?! process).{0,60}?\b(?P<pid>\d{2,10})\b", re.IGNORECASE)
_NEAR_LINES = 5


def on_purpose(finding: JobFinding, before: Sequence[str]) -> JobFinding:
    """`finding`, the death of a process by a signal; no failure if one of the last lines `before` says that the script kills it."""
    if finding.pid is None or finding.role is not LineRole.EXIT:
        return finding
    pids = {found["pid"] for line in islice(reversed(before), _NEAR_LINES) for found in _KILLS.finditer(line)}
    return replace(finding, role=LineRole.OBSERVATION) if str(finding.pid) in pids else finding


def _is_complete(text: str) -> bool:
    """Whether the line has counters with a total and all have reached it."""
    pairs = [(int(found["n"]), int(found["of"])) for found in _OF_TOTAL.finditer(text[:_MAX_CHARS])]
    return bool(pairs) and all(n == of for n, of in pairs)


def is_teardown(best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether `best` came after the work, and nothing but such losses followed it."""
    later = (f for f in held if f.line >= best.line and f.role is not LineRole.OBSERVATION)
    return all(f.detail.get("after_work") for f in later)
