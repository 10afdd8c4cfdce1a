"""Lines that call themselves an error, in the forms of tools, loggers and shells; they count only at the end of a log.

`trailing_errors` follows such a line and drops it if lines of work follow.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.core import sanitize
from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import mention, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.last_errors import (
    lines_behind,
    no_errors,
    own_errors,
    own_errors_of_tools,
    sentences,
)
from probing_cluster.evidence.joblog.messages import languages

_FORMS = re.compile(own_errors.either((*own_errors.LOGGERS, *own_errors_of_tools.TOOLS)))
_WORDED = re.compile(own_errors.either(own_errors.WORDED))
_NAMED = re.compile(own_errors.either((*own_errors_of_tools.NAMED_TOOLS, *own_errors.NAMED_LOGGERS)))
_WORST = r"(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG(?:ENCY)?|ALERT|CRIT)"
_STAMP = re.compile(
    r"\W{0,2}(?:(?:[A-Z][a-z]{2}|\d[\d/.-]{0,9}),?[ T_-]{1,2}){0,4}\d\d[:-]\d\d[:-]\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[AP]M|[+-]\d\d:?\d\d))?(?: (?:[A-Z]{3,4} )?\d{4})?(?=[\s\]|:,)])"
)
"""The time with which a logger's line begins."""
_NO_LEVEL = r"(?!(?i:info|debug|notice|note|trace|verbose|warn(?:ing)?)\b)"
_OF_LOGGER = re.compile(
    rf"(?:[\s|:,\])-]{{1,4}}{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?=[\s|:,\])-]))?"
    rf"(?:[\s|:,\])-]{{1,4}}(?:\[{_NO_LEVEL}[^\[\]\n]{{1,60}}\]|\({_NO_LEVEL}[^()\n]{{1,40}}\)|<{_NO_LEVEL}[^<>\n]{{1,40}}>|{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?:[.$/#@:-]{{1,2}}\w{{1,60}}){{1,8}}|{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?=\s?[|:\]-])|\d{{1,10}})){{0,4}}?"
    rf"[\s|:,\])-]{{0,4}}(?:{_WORST}|[\[(<] ?(?:{_WORST}|(?:emerg|alert|crit|error|fatal))) ?[\])>]?(?=[\s:|/-])[\s:|/-]{{1,12}}(?![\d.e+%-]{{1,24}}(?:\s|$))(?=\S)"
)
"""Behind the time: the logger's names, none of which is a level, the level of an error, and a message that is no number."""
_BETTER = re.compile(r"[\s|:,\])\[(<-]{0,6}(?:INFO|DEBUG|NOTICE|NOTE|TRACE|VERBOSE|WARN(?:ING)?)\b")
"""Behind the time: the level of a note."""
_OTHER_SIGNALS = r"Hangup|Alarm clock|Quit|User defined signal [12]|(?:File size|CPU time) limit exceeded|(?:Profiling|Virtual) timer expired"
_DUMPED = r"(?: ?\(core dumped\))?"
"""bash fills up a signal's text with blanks to the length of the longest, which has none behind it."""
_ENDED_BY_SIGNAL = re.compile(rf"(?:Terminated|(?P<other>{_OTHER_SIGNALS})){_DUMPED}\.?$")
"""A shell's message that a signal ended its child, alone on the line or after a progress bar that it cut."""
_CHILD_ENDED = re.compile(
    rf"\S{{1,200}}: line \d{{1,9}}: {{1,4}}\d{{1,10}} (?:Terminated|(?P<other>{_OTHER_SIGNALS})){_DUMPED}(?!\S)"
)
"""The same for a child of the shell's script."""
_BAR_CUT = re.compile(r".{1,4000}[\])%\\|/0-9-]\s{0,4}(?=Terminated$)")
_RACE = "ThreadSanitizer: "
_SIGNAL_WORD = re.compile(r"Terminated|Hangup|Alarm clock|Quit|User defined|limit exceeded|timer expired")
_NO_ERROR = re.compile(own_errors.either(no_errors.HARMLESS), re.IGNORECASE)


def is_error(text: str) -> bool:
    """Whether a line calls itself an error, even if it does not count as one."""
    text = text.strip()
    return _has_form(text) or _of_logger(text)


def _has_form(text: str) -> bool:
    named = _NAMED.match(text)
    if _FORMS.match(text) or (named and sentences.names_error(text)):
        return True
    return _WORDED.match(text) is not None and not sentences.is_harmless(text)


def _of_logger(text: str, *, dated: bool = False) -> bool:
    """Whether a logger gives the line the level of an error; `dated`: the time in front of it is already gone."""
    stamp = _STAMP.match(text)
    if stamp is None and not dated:
        return False
    rest = text[stamp.end() :] if stamp else f" {text}"
    return _OF_LOGGER.match(rest) is not None and not _BETTER.match(rest)


def is_known(text: str) -> bool:
    """Whether this module already judges such a line, as an error or as none."""
    return _has_form(text) or _NO_ERROR.search(text) is not None


def is_race(finding: JobFinding) -> bool:
    """Whether ThreadSanitizer reports a data race, after which the program goes on: any other error is worse."""
    return finding.kind == "program_error" and _RACE in finding.message


def kills_nothing(found: JobFinding, death: str) -> bool:
    """Whether `found` is no reason for the death by a signal in the line `death`."""
    missing = found.kind == "command_not_found" or lines_behind.only_read(found.message, death)
    return missing or is_race(found)


def find(record: Record) -> JobFinding | None:
    """The finding of a line that calls itself an error; it ended the program only if hardly anything follows."""
    text = record.text.strip()
    calls_itself_one = _has_form(text) or record.is_error or _of_logger(text, dated=record.dated)
    if not calls_itself_one and not _SIGNAL_WORD.search(text):
        return None
    if mention.is_speech(record.text) or mention.begins_with_speaker(text) or _NO_ERROR.search(text):
        return None
    if (
        sentences.points_elsewhere(text)
        or sentences.is_compound(text)
        or sentences.is_resolved(text, is_error=record.is_error)
    ):
        return None
    if calls_itself_one:
        role = LineRole.EXIT if text.startswith("Execution halted") else None
        # HDF5 prints the reason below. A program goes on after a race; only its code at its end may be bad for it.
        detail = {"wrapper": True} if text.endswith("NetCDF: HDF error") else {}
        detail = {"handled": True, "goes_on": True} if _RACE in text else detail
        return make(languages.FACTS, "program_error", record, role=role, detail=detail)
    bar = _BAR_CUT.match(text)
    child = _CHILD_ENDED.match(text)
    if (bar and progress.is_progress(text)) or _ENDED_BY_SIGNAL.match(text) or child:
        ended = child or _ENDED_BY_SIGNAL.match(text, bar.end() if bar else 0)
        kind = "process_crashed" if ended and ended["other"] else "process_terminated"
        return make(languages.FACTS, kind, record, role=LineRole.EXIT)
    return None


def in_any_language(record: Record) -> JobFinding | None:
    """The same of a line in whatever language."""
    word = find(replace(record, text=locales.english(record.text)))
    return replace(word, message=sanitize.clean(record.text, 1024)) if word else None


FORMS = (
    *own_errors.LOGGERS,
    *own_errors_of_tools.TOOLS,
    *own_errors.WORDED,
    *own_errors_of_tools.NAMED_TOOLS,
    *own_errors.NAMED_LOGGERS,
)
TRIGGERS = (
    *dict.fromkeys(trigger for form in FORMS for trigger in form.triggers),
    *(
        f"{level}{close}"
        for level in ("emerg", "alert", "crit", "error", "fatal")
        for close in ("]", ")", ">", " ]", " )", " >")
    ),
    *(
        "Terminated",
        "Hangup",
        "Quit",
        "Alarm clock",
        "User defined signal",
        "size limit exceeded",
        "CPU time limit exceeded",
        "timer expired",
    ),
    *locales.TRIGGERS,
)
"""A line without any of these calls itself no error; of the forms, of loggers that write a date, of shells about signals, and in other languages."""
