"""Processes that lose each other when the work is over: each ends in its own time, and nothing failed. What is reported late of an end that was bad, and which earlier finding that explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile, islice

from probing_cluster.evidence.joblog import grammar, labels, precedence, progress, units
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import levels, lines_behind

_MAX_CHARS = 600
LOSSES = frozenset(
    {"nccl_system_error", "nccl_remote_error", "peer_lost", "python_consequence", "store_lost"}
)
"""How processes lose each other, also when one after the other ends as it should."""
_NOT_OVER = re.compile(
    r"\b(?:not|never|without|before|until|when|after|cannot|fail\w{0,4}|errors?)\b|n't", re.IGNORECASE
)
_OTHER = re.compile(
    r"\b(?:epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|checkpoints?|validation|evaluation|stages?|phases?|tasks?|workers?|ranks?|data|dataset|warm-?up|setup|(?:load|download|build|compil|tokeni[sz]|prepar|preprocess|initiali[sz]|install|import|cach)\w{0,5})\b",
    re.IGNORECASE,
)
"""What is over is less than the whole work."""
_RESULT = re.compile(r"[.,;:] {1,2}(?:\w{1,20} ){0,2}(?:best|final|total)\b", re.IGNORECASE)
"""Behind the word of the end: a result, whatever it names."""
_ZERO = re.compile(
    r"(?:^|.{0,200}[\s,;:.(])(?:exit(?:ed|s|ing)?,?(?: with)?(?: exit)?(?:[ _-]?code| status)?|rc)(?: ?[=:] ?| )0\W{0,3}$",
    re.IGNORECASE,
)
"""A program, or the script, reports that it ends with code 0."""
_FAREWELL = re.compile(
    r"\W{0,4}(?:total|overall) (?:wall|elapsed|run|execution)[ -]?(?:clock )?time\W{1,4}\d(?!.*\b(?:so far|per|remain\w*|left|estimat\w*)\b)|WallClock: +[\d.]+ +CPUTime: |(?:\[[^\]\n]{1,40}\]){0,3} ?End of program$",
    re.IGNORECASE,
)
"""What a program prints last of all, as how long the whole work took."""
_TESTS, _RAN = re.compile(r"OK(?: \(skipped=\d{1,6}\))?$"), re.compile(r"Ran \d{1,7} tests? in \d")
_SUM_LINES, _CLEAN_LINES, _WORDS_CHARS = 3, 20, 120
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
_STATED = frozenset({"program_error", "slurm_launch_failed"})
"""What a program states about itself or a command; a traceback is not the end of work that went well."""
_COUNTED = r"(?P<n>\d{1,12})\s{0,2}(?:/|of)\s{0,8}(?P<of>\d{1,12})(?![\w/.-])"
_OF_TOTAL = re.compile(rf"(?<![\w./-]){_COUNTED}")
"""A counter and its total."""
_ONLY_TOTAL = re.compile(rf"(?: |\W{{0,4}}(?=[\d /of]{{3,40}}\W{{0,6}}$)){_COUNTED}")
"""Behind the word of the end: how much of the work is over. A sentence behind a colon is a result."""


_OVER, _COMPLETE, _GOES_ON, _TESTED, _ZERO_CODE = "over", "complete", "goes on", "tested", "code 0"


def after_work(finding: JobFinding, before: Sequence[str]) -> JobFinding:
    """`finding`, marked if processes lose each other in it after the work: the last of the lines `before` report no progress, and one that it is over.

    A thread's loss needs no report if the last progress is complete.
    """
    if units.ends_main(finding.message):
        return finding
    lost = finding.kind in LOSSES or (finding.kind in _STATED and _ENDS.match(finding.message) is not None)
    if not lost and finding.kind not in _STATED:
        return finding
    if lost and _noted(before):
        return replace(finding, detail={**finding.detail, "after_work": True})
    before = _above(finding, before)
    over, behind = _over(before)
    if lost and (over or (finding.detail.get("thread") is True and _last(before) == _COMPLETE)):
        return replace(finding, detail={**finding.detail, "after_work": True})
    if lost and _last(before) == _COMPLETE:
        return replace(finding, detail={**finding.detail, "at_end": "lost"})
    if over and not _OF_NEXT.search(finding.message):
        cleans = any(map(_CLEANS.search, islice(reversed(before), min(behind, _CLEAN_LINES))))
        return replace(finding, detail={**finding.detail, "at_end": "cleans" if cleans else "over"})
    return finding


def _above(finding: JobFinding, before: Sequence[str]) -> Sequence[str]:
    """The lines `before` without the finding's own and those below it: an error from the end of the log is found late."""
    words = finding.message[:_WORDS_CHARS]
    own = next((behind for behind, line in enumerate(reversed(before), 1) if words in line), 0)
    return list(islice(before, len(before) - own))


def is_over(before: Sequence[str]) -> bool:
    """Whether the last of the lines `before` that report on the work reports that it is over."""
    return _over(before)[0]


def _last(before: Sequence[str]) -> str:
    return next(filter(None, map(_report, reversed(before))), "")


def _over(before: Sequence[str]) -> tuple[bool, int]:
    """Whether the work is over by the lines `before`, and how many of them stand below the line that reports it.

    A command's code and a short `OK` need more: lines above that report on the work or a result, or a sum of tests.
    """
    reports = ((behind, report) for behind, line in enumerate(reversed(before)) if (report := _report(line)))
    behind, last = next(reports, (0, ""))
    if last == _TESTED:
        above = islice(reversed(before), behind + 1, behind + 1 + _SUM_LINES)
        return any(map(_RAN.match, above)), behind
    if last != _ZERO_CODE:
        return last == _OVER, behind
    above = islice(reversed(before), behind + 1, None)
    return any(_report(line) or units.is_result(line) for line in above), behind


@lru_cache(maxsize=4 * progress.LOOK_BACK_LINES)
def _report(line: str) -> str:
    """What the line reports of the work; empty for nothing. Each of many losses asks for the same lines above it."""
    text = labels.bare(0, line).text
    bar = _BAR.match(text)
    if _is_over(text) or _KILLS.match(line) or (bar and bar["pc"] == "100"):
        return _OVER
    if _TESTS.match(text):
        return _TESTED
    succeeded = progress.reports_success(text) and not progress.succeeded(text)
    zero = _ZERO.match(text) is not None
    if _FAREWELL.match(text) or ((succeeded or zero) and not (_NOT_OVER.search(text) or _OTHER.search(text))):
        return _ZERO_CODE if zero else _OVER
    if bar or lines_behind.traces_work(line):
        return _GOES_ON
    if progress.is_progress(text):
        return _COMPLETE if _is_complete(text) else _GOES_ON
    return ""


def _is_over(text: str) -> bool:
    """Whether the program reports in the line that its whole work is over."""
    ended = _ENDED.match(text)
    if ended is None or _NOT_OVER.search(text) or _OF_PART.search(ended[0]):
        return False
    if _OTHER.search(text, 0, ended.end() if _RESULT.match(text, ended.end()) else len(text)):
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


def ended_well(lines: Sequence[str]) -> bool:
    """Whether the last of the `lines` at the log's end reports an end with code 0."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    return _ZERO.match(labels.bare(0, last[:_MAX_CHARS]).text) is not None


def _at_end(finding: JobFinding) -> str | None:
    """How near the end of the work it came, if that alone proves nothing. A signal may come whenever the work is to end."""
    at_end = finding.detail.get("at_end")
    return at_end or ("ended" if finding.kind == "process_terminated" else None)


def is_teardown(best: JobFinding, held: Sequence[JobFinding], lines: Sequence[str] = ()) -> bool:
    """Whether `best` came after the work, and nothing but such losses followed it; `lines`: those behind it at the log's end.

    What is no loss needs a better proof: the end with code 0, or a script that clears away and goes on.
    """
    at_end = _at_end(best)
    if at_end is not None:
        cleans = at_end == "cleans" or (at_end == "over" and any(map(_CLEANS.search, lines)))
        well = ended_well(lines) or (cleans and bool(lines))
        if not well or any(map(_WRONG.search, lines)):
            return False
    later = (f for f in held if f.line >= best.line and f.role is not LineRole.OBSERVATION)
    return all(f.detail.get("after_work") or (at_end and _at_end(f)) for f in later)


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
