"""Processes that lose each other when the work is over: each ends in its own time, and nothing failed. What is reported late of an end that was bad, and which earlier finding that explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile

from probing_cluster.evidence.joblog import grammar, labels, precedence, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import levels, lines_behind

_MAX_CHARS = 600
LOSSES = frozenset(
    {"nccl_system_error", "nccl_remote_error", "peer_lost", "python_consequence", "store_lost"}
)
"""How processes lose each other, also when one after the other ends as it should."""
_OTHER = re.compile(
    r"\b(?:not|never|without|before|until|when|after|cannot|fail\w{0,4}|errors?|epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|checkpoints?|validation|evaluation|stages?|phases?|tasks?|workers?|ranks?|data|dataset|warm-?up|setup|(?:load|download|build|compil|tokeni[sz]|prepar|preprocess|initiali[sz]|install|import|cach)\w{0,5})\b|n't",
    re.IGNORECASE,
)
"""What is over is less than the whole work, or is not over."""
_ENDED = re.compile(
    r"\W{0,6}(?:all )?(?:done|finished|completed?)(?=\W{0,6}$|[.!,;:]{1,3} | (?:in|at|on) )|.{0,80}?\b(?:training|run|job|program|simulation|optimi[sz]ation|fine-?tuning|pre-?training|everything|work)\b.{0,20}?\b(?:(?:done|finished|completed?|ended)\b|over(?=\W{0,6}$|[.!,;]))",
    re.IGNORECASE,
)
"""The program's own report that its work is over, as far as the word of the end."""
_KILLS = re.compile(r"\+{1,4} (?:/\S{1,80}/)?(?:kill (?!-0\b)|pkill |ray stop\b)")
"""The script ends its own helpers, as its shell traces: they lose each other."""
_BAR = re.compile(r"\[#{0,80} {0,80}\] \| {0,3}(?P<pc>\d{1,3})% Completed \|")
"""Dask's bar, which has no counters."""
_PER_CENT = r"\d{1,2}(?:\.\d{1,4})?\s?%"
_OF_PART = re.compile(
    rf"\b(?:be|half|part(?:ial|ly)\w{{0,2}}|nearly|almost|first|second|third|next|each|every|another)\b|\bjob ?[#:]? ?\d{{1,3}}\b(?! ?%)|\b(?:run|program|simulation|work) ?[#:]? ?\d{{1,4}}\b(?! ?%)|\b{_PER_CENT} ?\w{{1,9}}$",
    re.IGNORECASE,
)
"""Before the word of the end: a part of the work, or a unit with a number."""
_SO_FAR = re.compile(
    rf"\W{{0,3}}{_PER_CENT}(?:\W{{0,6}}$| ?(?:done|finished|completed?)\b)| \w{{2,20}}ing\b| (?:for|of|with) (?:the )?(?:first|second|third|next|each|every|another|half|part)\b",
    re.IGNORECASE,
)
"""Behind it: how far the work is, or which part of it is over."""
_COUNTED = r"(?P<n>\d{1,12})\s{0,2}(?:/|of)\s{0,8}(?P<of>\d{1,12})(?![\w/.-])"
_OF_TOTAL = re.compile(rf"(?<![\w./-]){_COUNTED}")
"""A counter and its total."""
_ONLY_TOTAL = re.compile(rf"(?: |\W{{0,4}}(?=[\d /of]{{3,40}}\W{{0,6}}$)){_COUNTED}")
"""Behind the word of the end: how much of the work is over. A sentence behind a colon is a result."""


_OVER, _COMPLETE, _GOES_ON = "over", "complete", "goes on"


def after_work(finding: JobFinding, before: Sequence[str]) -> JobFinding:
    """`finding`, marked if processes lose each other in it after the work: the last of the lines `before` report no progress, and one that it is over.

    A thread's loss needs no report if the last progress is complete.
    """
    if finding.kind not in LOSSES:
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
    bar = _BAR.match(text)
    if _is_over(text) or _KILLS.match(line) or (bar and bar["pc"] == "100"):
        return _OVER
    if bar or lines_behind.traces_work(line):
        return _GOES_ON
    if progress.is_progress(text):
        return _COMPLETE if _is_complete(text) else _GOES_ON
    return ""


def _is_over(text: str) -> bool:
    """Whether the program reports in the line that its whole work is over."""
    ended = _ENDED.match(text)
    if ended is None or _OTHER.search(text) or _OF_PART.search(ended[0]):
        return False
    if _SO_FAR.match(text, ended.end()):
        return False
    counted = _OF_TOTAL.search(ended[0]) or _ONLY_TOTAL.match(text, ended.end())
    return counted is None or _is_complete(text)


def _noted(before: Sequence[str]) -> bool:
    """Whether the traceback, of which the lines `before` are the beginning, stands below a logger's note that a connection is closed."""
    above = dropwhile(lambda line: line[:1].isspace() or not line, reversed(before))
    head = next(above, "")
    return head.startswith(grammar.TRACEBACK) and levels.reports_closing(next(above, ""))


def _is_complete(text: str) -> bool:
    """Whether the line has counters with a total and all have reached it."""
    pairs = [(int(found["n"]), int(found["of"])) for found in _OF_TOTAL.finditer(text[:_MAX_CHARS])]
    return bool(pairs) and all(n == of for n, of in pairs)


def is_teardown(best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether `best` came after the work, and nothing but such losses followed it."""
    later = (f for f in held if f.line >= best.line and f.role is not LineRole.OBSERVATION)
    return all(f.detail.get("after_work") for f in later)


def replaces(new: JobFinding, best: JobFinding | None, held: Sequence[JobFinding]) -> bool:
    """Whether `new`, printed after `best` and all of `held`, is the cause."""
    if best is None:
        return precedence.outranks(new, best)
    if _killed_before(new, best, held):
        return True
    return precedence.outranks(new, best) and not _timed_out_before(new, best, held)


def confirmed(new: JobFinding, held: Sequence[JobFinding]) -> JobFinding:
    """`new`; as the reason if it notes that memory may have run out, and a process had been killed."""
    if new.detail.get("perhaps") is not True or not any(map(_is_killed, held)):
        return new
    detail = {k: v for k, v in new.detail.items() if k != "survived"}
    return replace(new, role=LineRole.ROOT, detail=detail)


def _is_killed(finding: JobFinding) -> bool:
    return finding.kind == "oom_kill_suspected" and not finding.detail.get("survived")


def _killed_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether Slurm's late report of a kill for memory explains a process that was killed before `best`: the next command lacked its output."""
    if new.kind != "slurm_oom" or best.kind == new.kind or best.role is not LineRole.ROOT:
        return False
    return any(f.line < best.line for f in held if _is_killed(f))


def _timed_out_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether the rank that failed in `new` had itself timed out after `best`, the network's own error: it waited, and its failure came of that."""
    if best.kind not in precedence.PEER_NOISE or new.rank is None:
        return False
    waited = (f for f in held if f.kind in grammar.TIMEOUT_KINDS and f.rank == new.rank)
    return any(best.line < f.line < new.line for f in waited)
