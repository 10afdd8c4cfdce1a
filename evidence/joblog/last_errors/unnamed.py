"""What follows from an earlier failure whose line does not name it: right below a command that failed, another one lacks a file or data.

Such a link is weaker than a common name. Hardly anything but complaints may stand between the two lines, the missing file is one of the
script's own directory (a command that died may have had to write it elsewhere), and nothing but its absence is its reason.
"""

from __future__ import annotations

import re
from collections.abc import Reversible
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from probing_cluster.core import vocabulary
from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import grammar, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import error_line, lines_behind

_FILE, _ELSEWHERE, _SCRIPT, _MODULE, _PACKAGE, _DATA, _WHOLE = (
    "a file here",
    "a file elsewhere",
    "the script",
    "a module here",
    "a package",
    "data",
    "the rest of a file",
)
_LINES, _OTHERS = 40, 3
_KINDS = frozenset({"program_error", "python_exception", "import_error", "command_not_found"})
NO_FILE = r"no such file|does ?n[o']t exist|(?<!executable )\b(?:data\w{0,8}|files?|director(?:y|ies)|folder|checkpoint|weights|inputs?|archive|mesh|grid|density) (?:\S{1,40} )?(?:was |were |is |are )?not found\b|\b(?:cannot|can't|could not|failed to|unable to) open\b|error on open\b"
NO_DATA = r"no columns to parse|expecting value: line 1 column 1 \(|no objects to concatenate|\(standard_in\) \d|unexpected end of (?:file|input)|not in gzip format|invalid load key, 'v'"
"""Words of a command that does not find a file, or finds no data in one."""
_NO_FILE, _NO_DATA = re.compile(NO_FILE, re.IGNORECASE), re.compile(NO_DATA, re.IGNORECASE)
_OTHER_REASON = re.compile(
    r"Input/output error|[Ss]tale (?:NFS )?file|Transport endpoint|Read-only file system|No space left|quota exceeded|Permission denied|Too many open|shared object file|[\s'\"`:=(](?:/dev|/proc|/sys|/etc|/usr|/opt)/|\bcontainer\b"
)
"""Why a file could not be opened although it may exist; parts of the node, which no command of a job brings."""
_OPENED = re.compile(r"can't open file ['\"]/")
"""Python names the script that it does not find with the directory in which it is."""
_NOT_HERE = re.compile(r"\bexecve\(\): (?:/\S{0,300}/)?\.{1,2}/\S{1,300}: No such file")
"""Slurm's step daemon looked for a program in the directory of the script, by a relative path."""
_ABSOLUTE = re.compile(r"(?:^|[\s'\"‘`:=(])/\w")
_OF_SHELL = re.compile(r"^\S{1,300}: (?:line )?\d{1,6}: ")
_NO_MODULE = re.compile(r"No module named ['\"]?\w{1,80}(?![\w.])")
_CD = re.compile(r"(?:\S{1,300}: (?:line )?\d{1,6}: )?cd: \S|.{0,60}couldn't chdir to ")
"""The script, or its step, is not in the directory in which it should be."""
AT = r"(?:/\S{0,80}/)?"
"""The directory in front of a command."""
_DOWNLOAD = re.compile(
    rf"(?:[\d.kMGTP:\s-]{{40,400}})?{AT}(?:wget|curl|scp|rsync|aws|gsutil|gdown): |fatal error: An error occurred \(|download failed: "
)
_ASIDE = re.compile(
    r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0)\b|hooks?\.|\bhooks?\b|ntfy|slack|discord|telegram|metric|telemetry|gateway|grafana|prometheus|influx|\.local\b",
    re.IGNORECASE,
)
"""Servers to which a job reports, or that it started itself; they bring no input."""
_CLONE = re.compile(
    r"fatal: (?:unable to access|could not read|repository ['‘]|clone of |early EOF|the remote end|protocol error|Remote branch|unable to (?:connect|look up))"
)
_LARGE_FILES = re.compile(r"(?:fatal|error): .{0,300}(?:smudge filter|git-lfs|info/lfs)|batch response: ")
"""git's extension for large files, which leaves a pointer in a file's place."""
_UNPACK = re.compile(rf"{AT}(?:tar(?: \(child\))?|unzip|gunzip|gzip|bsdtar): ")
_NO_STORAGE = re.compile(
    rf"{AT}(?:cp|mv|ln|tar(?: \(child\))?|unzip|gunzip|gzip|mkdir|install|touch|tee|dd): .{{0,600}}(?:Read-only file system|No space left on device|[Dd]isk quota exceeded|Input/output error|Stale file handle|Transport endpoint is not connected)"
)
_STOPS = re.compile(
    r"(?!.{0,400}\b(?:using|instead|temporary|skip\w{0,4}|restart\w{0,3}|not configured|ignor\w{0,3})\b)(?:\W{0,4}fatal\b(?!:? (?:could not|cannot|unable|not a|no |detected|ambiguous|bad|your))|error\b.{0,200}\b(?:halted|abort(?:ed|ing)?|stopp(?:ed|ing)|terminat(?:ed|ing)|exiting|giving up)\b)",
    re.IGNORECASE,
)
"""A program reports why it stops by itself."""
_MAKE = re.compile(
    r"(?:g|bs|n|p)?make(?:\[\d{1,3}\])?: \*\*\* \[(?!.{0,200}\b(?:clean\w{0,10}|distclean|docs?|tests?|check|lint|help)\])"
)
SHELL_DEATH = rf".{{0,300}}: {slurm_lines.SHELLS_CHILD}"
"""The head of a shell's report that a signal ended a command of its script."""
_BY_SHELL = re.compile(SHELL_DEATH)
_AT_LIMIT = re.compile(
    rf"(?:{SHELL_DEATH}|(?:srun|mpirun|mpiexec)\b.{{0,300}}: )?(?:File size|CPU time) limit exceeded"
)
"""A limit ended the command, which was still writing."""
_CUT_SHORT = re.compile(
    r"(?:\w{1,60}\.){0,8}AssertionError\b|.{0,400}\b(?:truncated|incomplete|too (?:short|small))\b",
    re.IGNORECASE,
)
"""A check fails on a file that is not whole, or says so."""
_DIED = re.compile(
    rf"(?:{SHELL_DEATH}|(?:srun|mpirun|mpiexec)\b|forrtl: |Program received signal |Segmentation fault)(?!.{{0,600}}(?:monitor|watch|logger|prob(?:e|ing)|check|smi\b|top\b|prefetch|warm-?up|heartbeat|\btail\b|\bsleep\b))"
)
"""The shell, a launcher or a runtime reports the death of a command that is no helper by its name."""
SERVES = r"serv(?:e|er|ing|ice)(?![a-z])|postgres|redis|mongod|ollama"
"""Names of services."""
_ENDED_BY_SCRIPT = re.compile(
    rf"{SERVES}|daemon|jupyter|ssh|tunnel|proxy|broker|worker|agent|\btimeout\b",
    re.IGNORECASE,
)
"""What a script itself starts beside its work, and ends when that is done."""
_HEADING = re.compile(
    r"\s{0,4}(?:(?:[=#*>~+-]{2,20}|[=#*>]) ?)?(?:(?:[Ss]tage|[Ss]tep|[Pp]hase|[Pp]art|STAGE|STEP|PHASE|PART) )?[\[(]?[1-9]\d? ?(?:/|of) ?[1-9]\d?[\])]?[ :.-]{0,4}[A-Za-z]\D{0,60}$"
    r"|\s{0,4}[=#*>~+-]{2,20} ?[A-Za-z]\D{0,60}$"
)
"""A script's heading of a stage; it names no other number, as a program's progress does."""
_REST = re.compile(
    r"Calls: |In addition: |Image {4,}PC|\S{1,60}\s{2,}[\dA-F]{8,16}\s|Warning message|In .{1,200}:\s*$|Error in |Traceback \(|At line \d"
)
"""Further lines of R's, Python's and Fortran's messages."""
_INSTALLS = re.compile(
    r"\S{1,300}: (?:line )?\d{1,6}: (?:\S{0,200}/)?(?:pip[\d.]{0,5}|uv|pixi|poetry|pipenv): (?:[Cc]ommand )?not found$|error: externally-managed-environment"
    r"|ERROR: (?:Could not (?:install packages|open requirements file))"
)
"""What installs packages could not begin, and names none of them."""
_BRINGS = (
    (_INSTALLS, {_PACKAGE}),
    (_CD, {_FILE, _SCRIPT, _MODULE}),
    (_CLONE, {_FILE, _SCRIPT}),
    (_LARGE_FILES, {_FILE, _DATA}),
    (_UNPACK, {_FILE, _DATA}),
    (_NO_STORAGE, {_FILE, _DATA}),
    (_STOPS, {_FILE, _DATA}),
    (_MAKE, {_FILE}),
)


def brings(text: str, *, named: bool) -> set[str]:
    """What may be missing after the complaint `text`; `named`: it names what its command loads."""
    found: set[str] = set()
    for form, what in _BRINGS:
        found |= what if form.match(text) else set()
    if not named and _DOWNLOAD.match(text) and not _ASIDE.search(text):
        found |= {_FILE, _DATA}
    return found


def of_death(found: JobFinding) -> set[str]:
    """What may be missing after a command of the script died of a signal. A launcher may report an abort before the rank's own error."""
    died = found.kind in grammar.SIGNAL_DEATH_KINDS and found.role is LineRole.EXIT
    message = locales.english(found.message)
    if died and _AT_LIMIT.match(message):
        return {_FILE, _ELSEWHERE, _SCRIPT, _DATA, _WHOLE}
    if not (died or found.kind == "process_terminated") or not _DIED.match(message):
        return set()
    if found.kind == "process_aborted" and not _BY_SHELL.match(message):
        return set()
    ended = found.kind == "process_terminated" and _ENDED_BY_SCRIPT.search(message)
    return set() if ended else {_FILE, _ELSEWHERE, _SCRIPT, _DATA}


def lacks(found: JobFinding, message: str) -> set[str]:
    """What the program that printed `message` lacks, as far as no other reason than its absence is known."""
    if found.kind == "slurm_launch_failed" and _NOT_HERE.search(message):
        return {_FILE}
    if found.kind not in _KINDS or "user_program" not in found.domains or _OTHER_REASON.search(message):
        return set()
    if found.rank is not None or found.labelled:
        return set()
    what = {_DATA} if _NO_DATA.search(message) else set()
    what |= {_WHOLE} if _CUT_SHORT.match(message) else set()
    if _NO_FILE.search(message):
        absolute = _SCRIPT if _OPENED.search(message) else _ELSEWHERE
        what.add(absolute if _ABSOLUTE.search(_OF_SHELL.sub("", message)) else _FILE)
    return what | ({_MODULE, _PACKAGE} if _NO_MODULE.search(message) else set())


def marked(found: JobFinding) -> JobFinding:
    """`found`, marked if its command misses a file that another one may have had to write; its own script is none."""
    files = {_FILE, _ELSEWHERE} & lacks(found, locales.english(found.message))
    return replace(found, detail={**found.detail, vocabulary.LACKS_FILE: True}) if files else found


def beside_from(recent: Reversible[str], line: int) -> int:
    """The first line from which on hardly anything but complaints, their frames and traced commands stands above `line`."""
    others = 0
    for above, text in enumerate(islice(reversed(recent), _LINES), 1):
        if _is_other(text):
            others += 1
            # The line that begins the failure may itself be no complaint in form.
            if others > _OTHERS + 1 or (others > 1 and progress.is_progress(text)):
                return line - above + 1
    return line - _LINES


def is_heading(text: str) -> bool:
    """Whether the line only announces the next stage of a script."""
    return _HEADING.match(text) is not None


@lru_cache(maxsize=4 * _LINES)
def _is_other(text: str) -> bool:
    silent = lines_behind.is_silent(text) or is_heading(text)
    return not (silent or _REST.match(text) or error_line.is_error(text))
