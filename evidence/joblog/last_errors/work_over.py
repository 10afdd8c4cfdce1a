"""Whether a program's whole work is over, as it reports itself, or as a command's code 0 does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice

from probing_cluster.evidence.joblog import labels, progress, units
from probing_cluster.evidence.joblog.last_errors import lines_behind

_MAX_CHARS, _SUM_LINES = 600, 3
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
_CODE = r"(?:^|.{0,200}[\s,;:.(])(?:exit(?:ed|s|ing)?,?(?: with)?(?: exit)?(?:[ _-]?code| status)?|rc)(?: ?[=:] ?| )"
_ZERO = re.compile(rf"{_CODE}0\W{{0,3}}$", re.IGNORECASE)
"""A program, or the script, reports that it ends with code 0."""
_BAD_CODE = re.compile(rf"{_CODE}-?[1-9]\d{{0,2}}\W{{0,3}}$", re.IGNORECASE)
_FAREWELL = re.compile(
    r"\W{0,4}(?:total|overall) (?:wall|elapsed|run|execution)[ -]?(?:clock )?time\W{1,4}\d(?!.*\b(?:so far|per|remain\w*|left|estimat\w*)\b)|WallClock: +[\d.]+ +CPUTime: |(?:\[[^\]\n]{1,40}\]){0,3} ?End of program$",
    re.IGNORECASE,
)
"""What a program prints last of all, as how long the whole work took."""
_TESTS, _RAN = re.compile(r"OK(?: \(skipped=\d{1,6}\))?$"), re.compile(r"Ran \d{1,7} tests? in \d")
_ENDED = re.compile(
    r"\W{0,6}(?:all )?(?:done|finished|completed?)(?=\W{0,6}$|[.!,;:]{1,3} | (?:in|at|on) )|.{0,80}?\b(?:training|run|job|program|simulation|optimi[sz]ation|fine-?tuning|pre-?training|everything|work)\b.{0,20}?\b(?:(?:done|finished|completed?|ended)\b|over(?=\W{0,6}$|[.!,;]))",
    re.IGNORECASE,
)
"""The program's own report that its work is over, as far as the word of the end."""
_KILLS = re.compile(r"\+{1,4} (?:/\S{1,80}/)?(?:kill (?!-0\b)|pkill |ray stop\b)")
"""The script ends its own helpers, as its shell traces: they lose each other. It says nothing of the work."""
_BAR = re.compile(r"\[#{0,80} {0,80}\] \| {0,3}(?P<pc>\d{1,3})% Completed \|")
"""Dask's bar, which has no counters."""
_BEGINS = re.compile(r"\b(?:start|begin|launch|load|comput|submit|runn|next|second|then)", re.IGNORECASE)
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


_OVER, COMPLETE, _GOES_ON, _TESTED, _ZERO_CODE = "over", "complete", "goes on", "tested", "code 0"
_COMPUTED = "computed"
"""A computation of Dask is over: the whole work, if nothing else begins."""


def is_over(before: Sequence[str]) -> bool:
    """Whether the last of the lines `before` that report on the work reports that it is over."""
    return state(before)[0]


def last_report(before: Sequence[str]) -> str:
    """What the last of the lines `before` that report on the work reports; empty without one."""
    return next(filter(None, map(_report, reversed(before))), "")


def goes_on(lines: Iterable[str]) -> bool:
    """Whether one of the `lines` reports progress."""
    return any(_report(line) == _GOES_ON for line in lines)


def state(before: Sequence[str]) -> tuple[bool, int]:
    """Whether the work is over by the lines `before`, and how many of them stand below the line that reports it.

    A command's code and a short `OK` need more: lines above that report on the work or a result, or a sum of tests.
    """
    reports = ((behind, report) for behind, line in enumerate(reversed(before)) if (report := _report(line)))
    behind, last = next(reports, (0, ""))
    if last == _TESTED:
        above = islice(reversed(before), behind + 1, behind + 1 + _SUM_LINES)
        return any(map(_RAN.match, above)), behind
    if last == _COMPUTED:
        return not any(map(_BEGINS.search, islice(reversed(before), behind))), behind
    if last != _ZERO_CODE:
        return last == _OVER, behind
    above = islice(reversed(before), behind + 1, None)
    return any(_report(line) or units.is_result(line) for line in above), behind


@lru_cache(maxsize=4 * progress.LOOK_BACK_LINES)
def _report(line: str) -> str:
    """What the line reports of the work; empty for nothing. Each of many losses asks for the same lines above it."""
    text = labels.bare(0, line).text
    bar = _BAR.match(text)
    if _KILLS.match(line):
        return ""
    if bar and bar["pc"] == "100":
        return _COMPUTED
    if _is_over(text):
        return _OVER
    if _TESTS.match(text):
        return _TESTED
    succeeded = progress.reports_success(text) and not units.succeeded(text)
    zero = _ZERO.match(text) is not None
    if _FAREWELL.match(text) or ((succeeded or zero) and not (_NOT_OVER.search(text) or _OTHER.search(text))):
        return _ZERO_CODE if zero else _OVER
    if bar or lines_behind.traces_work(line):
        return _GOES_ON
    if progress.is_progress(text):
        return COMPLETE if _is_complete(text) else _GOES_ON
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


def _is_complete(text: str) -> bool:
    """Whether the line has counters with a total and all have reached it."""
    pairs = [(int(found["n"]), int(found["of"])) for found in _OF_TOTAL.finditer(text[:_MAX_CHARS])]
    return bool(pairs) and all(n == of for n, of in pairs)


def ended_well(lines: Sequence[str]) -> bool:
    """Whether the last of the `lines` at the log's end reports an end with code 0."""
    return _ZERO.match(_last_words(lines)) is not None


def ended_badly(lines: Sequence[str]) -> bool:
    """Whether it reports an end with another code."""
    return _BAD_CODE.match(_last_words(lines)) is not None


def _last_words(lines: Sequence[str]) -> str:
    last = next((line for line in reversed(lines) if line.strip()), "")
    return labels.bare(0, last[:_MAX_CHARS]).text
