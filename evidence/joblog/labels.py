"""Removes what stands in front of a line's own text: labels of launchers and `pdsh`, dates of loggers and `ts`, the margin of an indented log.

Some labels can be recognised in a single line. `n1: text` cannot, since a message may begin so: such a label counts once several
lines of the log had it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from probing_cluster.evidence import dates, prefixes
from probing_cluster.evidence.joblog import grammar

_LEVEL = r"\[?(?:DEBUG|INFO|NOTE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_LABEL = re.compile(
    r"(?P<host>(?!\d{1,6}:)(?=[\w.-]{0,252}\d|localhost)[A-Za-z0-9][\w.-]{0,252})(?::\d{1,5}| (?P<of>\d{1,6}))?: "
    r"|\[(?P<rank>\d{1,6})\](?: |:\s?)|(?P<task>\s{0,5}\d{1,6}):(?!\d) ?"
    r"|(?P<time>\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?|\[\s{0,8}\d{1,7}(?:\.\d{1,6})?s\]|\d{10}\.\d{3,6}) "
    r"|(?P<other><<[\w.-]{2,80}>> |\[(?=[^\]]{0,80}\d)(?!\d{4}-\d\d|"
    + _LEVEL
    + r")[^\[\]\n]{2,80}\](?::? |:(?=[^\s\]]))|\((?=[^()]{0,80}\d)(?=[^()]{0,80}[A-Za-z])[^()\n]{3,80}\):? {1,2}(?=\S)|(?=\S{0,120}\d)[^\s|]{1,120}(?: {0,20}\| |\t))"
)
_OF_LOGGER = re.compile(r"[\[{]|" + _LEVEL + r"\b")
"""The date in front of this is the logger's own."""
_NUMBERED = re.compile(r"\s{0,8}(?P<number>\d{1,7})(?:\t| {1,2}|[:|] ?|$)")
"""A line's number, as `cat -n`, `grep -n` and pages show it."""
_MIN_NUMBERED = 8
"""Numbers are removed after so many numbered lines: the rows of a short table may be numbered, too."""
_CUT_OUT = re.compile(r"\W{0,12}$")
"""A line that stands for lines that were left out: blanks or dots."""
_MIN_LINES = 4
"""From so many lines with the same beginning on, that beginning is a label."""
_MAX_LABELS = 4_096
_TASK = re.compile(r"\s{0,5}(?P<task>\d{1,6}): ")
_RANK_CHARS = 400
_ERROR_WORD = re.compile(r"(?:error|exception|failure|fault|warning|interrupt|exit)$", re.IGNORECASE)

TORCH_RANK = re.compile(r"\[rank(?P<rank>\d{1,8})\](?=:|\s)")


class _Prefix(NamedTuple):
    """A prefix that can be recognised in a single line."""

    written_by: str
    pattern: re.Pattern[str]
    marks_task: bool = False
    """True if the launcher writes it in front of every line of a task."""


_PREFIXES = (
    _Prefix(
        "mpirun's job and rank",
        re.compile(
            r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?:[\w.-]{1,253}@)?\d+,(?P<rank>\d{1,8})\]<std(?:out|err)>:\s?"
        ),
        marks_task=True,
    ),
    _Prefix(
        "mpirun's rank",
        re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?P<rank>\d{1,6})\]<std(?:out|err)>:\s?"),
        marks_task=True,
    ),
    _Prefix(
        "mpirun's host and rank",
        re.compile(r"\[\d+,mpirank:(?P<rank>\d{1,8}),(?P<host>[\w.-]{1,253})\]<std(?:out|err)>:\s?"),
        marks_task=True,
    ),
    _Prefix(
        "stream",
        re.compile(r"std(?:out|err): "),
    ),
    _Prefix(
        "srun --label",
        re.compile(r"\s*(?P<rank>\d{1,6}): (?=\S|$| [A-Za-z=*-])"),
        marks_task=True,
    ),
    _Prefix(
        "PALS's host and rank",
        re.compile(
            r"(?P<host>[a-z][\w-]{0,62}(?:\.[a-z][\w-]{0,62}){2,6}) (?P<rank>\d{1,6}): ?(?=\S|\s{2}|$)"
        ),
        marks_task=True,
    ),
    _Prefix(
        "rank in brackets",
        re.compile(r"\[(?:rank|Rank|RANK):?\s?(?P<rank>\d{1,8})\]:?\s?"),
    ),
    _Prefix(
        "host and local rank",
        re.compile(r"\[(?P<host>[\w.-]{1,253}):(?P<local>\d{1,5})\]:?\s"),
    ),
    _Prefix(
        "torchrun",
        re.compile(r"\[[a-z][a-z_]{1,30}(?P<local>\d{1,5})(?:\|\d{1,5})?\]:\s?"),
    ),
    _Prefix(
        "Ray Train",
        re.compile(
            r"\((?:[\w.-]{1,64},? )?rank=(?P<rank>\d{1,8}),? pid=\d{1,10}(?:, ip=(?P<host>[\w.:-]{1,64}))?\)\s"
        ),
    ),
    _Prefix(
        "pod and index",
        re.compile(r"(?:trainer|worker|replica|node|role|actor)/(?P<rank>\d{1,6}) "),
    ),
    _Prefix(
        "docker compose",
        re.compile(r"[A-Za-z][\w.-]{0,200}[-_]\d{1,6}\s{1,30}\| "),
    ),
    _Prefix(
        "rank in brackets before an error",
        re.compile(
            r"\[(?P<rank>\d{1,6})\] (?=-->|\s*$|Error|ERROR|FATAL|Fatal|Traceback \(|terminate called|forrtl:|\s{2,8}(?![\d+-])\S|(?:\w{1,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)\b)"
        ),
    ),
    _Prefix(
        "a Python source's log head",
        re.compile(
            r"(?:[EF]|[IW](?!.{20,200}\] \[\d{1,6}/\d{1,6}\] ))\d{4} \d\d:\d\d:\d\d\.\d{3,6}\s{1,8}\d{1,18} [\w./-]{1,120}\.py:\d{1,6}\] (?=.*(?:Traceback \(|File \"|\w(?:Error|Exception)\b|\] ))"
        ),
    ),
    _Prefix(
        "message margin",
        re.compile(
            r"(?:>> ){1,40}(?=Error|\{?Error|Unrecognized|Undefined|Out of memory|Index|Not enough|Invalid)"
        ),
    ),
    _Prefix(
        "Ray actor",
        re.compile(r"\((?P<actor>[\w.:]{1,64}) pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[\w.:-]{1,64}))?\)\s"),
    ),
    _Prefix(
        "miniwdl's task",
        re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} )?wdl\.[tw]:\S{1,300}\.stderr (?=\S)"),
    ),
    _Prefix(
        "SkyPilot task",
        re.compile(
            r"\((?:[\w.-]{1,64}, )(?:rank=(?P<rank>\d{1,6}), )?pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[\w.:-]{1,64}))?\) ?"
        ),
    ),
    _Prefix(
        "pdsh's host",
        re.compile(
            r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):\s(?=\[(?:rank|default)\d|\[E\d{0,4}\s|\[\d{4}-|Traceback \(|\s+File|slurmstepd|srun:)"
            r"|(?P<node>[A-Za-z][\w.-]{0,200}\d[\w.-]{0,50}):\s(?=\w+(?:\.\w+)*Error:)"
        ),
    ),
    _Prefix(
        "vLLM's logger",
        re.compile(
            r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,120}\.py:\d{1,6}\] ?"
        ),
    ),
    _Prefix(
        "message of a JSON record",
        re.compile(r"\s{2,16}\"message\": \"(?=(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{2,60}(?:Error|Exception): )"),
    ),
    _Prefix(
        "tags and an arrow",
        re.compile(r"(?:\[[^\]\n]{1,80}\] ){2,5}>>> (?=\S|\s{2,}\S)"),
    ),
    _Prefix(
        "benchmark and stream",
        re.compile(r"(?P<bench>[\w.-]{1,200}) \[std(?:out|err)\] "),
    ),
    _Prefix(
        "columns of a CI log",
        re.compile(r"[^\t\n]{1,80}\t[^\t\n]{1,80}\t(?=\d{4}-\d\d-\d\dT\d)"),
    ),
    _Prefix(
        "Java's logger",
        re.compile(
            r"(?:[A-Z][a-z]{2}-\d\d |\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d[.,]\d{3} \[[^\]]{1,80}\] (?=(?:ERROR|FATAL|SEVERE|CRITICAL)\b)"
        ),
    ),
    _Prefix(
        "Livy's and Spark's launchers, of a child's traceback",
        re.compile(
            r"INFO (?:[\w.$]{1,80}\.)?(?:LineBufferedStream|launcher\.app\.[\w.-]{1,80}): (?:std(?:out|err): )?(?=\s|Exception in thread |Caused by: |Traceback \(|[\w.]{1,200}(?:Error|Exception)(?::|$))"
        ),
    ),
    _Prefix(
        "clock, logger and level",
        re.compile(r"\d\d:\d\d:\d\d:(?:\w{1,20}:){1,5}(?:ERROR|FATAL|CRITICAL):(?=\S)"),
    ),
    _Prefix(
        "Airflow's logger",
        re.compile(
            r"(?:\[\d{4}-\d\d-\d\d[T, ]{1,2}\d\d:\d\d:\d\d[^\]]{0,16}\] )?\{[\w./]{1,80}\.py:\d{1,6}\} (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - (?=\S)"
        ),
    ),
)
_PATTERNS = tuple(prefix.pattern for prefix in _PREFIXES)
_TASK_PATTERNS = tuple(prefix.pattern for prefix in _PREFIXES if prefix.marks_task)
_MAX_LAYERS = 4


def _is_labelled(text: str) -> bool:
    """Whether the line begins with a prefix that can be recognised in a single line."""
    return any(pattern.match(text) for pattern in _PATTERNS)


def strip(line: int, text: str) -> grammar.Record:
    """The line without launcher prefixes; the rank and host they name."""
    found: dict[str, str] = {}
    labelled = any(label.match(text) for label in _TASK_PATTERNS)
    for _ in range(_MAX_LAYERS):
        match = next((m for pattern in _PATTERNS if (m := pattern.match(text))), None)
        if match is None:
            break
        found.update({k: v for k, v in match.groupdict().items() if v is not None})
        text = text[match.end() :]
    if inner := TORCH_RANK.search(text[:400]):
        found["rank"] = inner["rank"]
    return grammar.Record(
        line=line,
        text=text,
        rank=grammar.number(found.get("rank"), grammar.MAX_RANK),
        host=found.get("host") or found.get("node"),
        pid=grammar.number(found.get("pid")),
        labelled=labelled,
        of_worker="actor" in found,
    )


class LineLabels:
    """Removes the labels from one log's lines, read in order; remembers at most _MAX_LABELS of them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._margin: str | None = None
        self._number: int | None = None
        """The number of the last numbered line; None before the first."""
        self._numbered = 0
        """How many lines were numbered; -1 after a line without a number."""
        self._host: str | None = None
        self._rank: int | None = None
        self._labelled = self._of_launchers = False

    @property
    def of_task(self) -> bool:
        """Whether the line that `plain` returned last had the label of a task."""
        return self._labelled or self._rank is not None

    def plain(self, text: str) -> str:
        """The line without its margin and its label. `record` gives the host and rank that the label names."""
        self._host, self._rank, self._labelled = None, None, False
        text = self._without_margin(self._without_number(text))
        found = _LABEL.match(text)
        if found is None:
            return text
        rest = text[found.end() :]
        if found["time"]:
            if _OF_LOGGER.match(rest):
                # Its own date, unless lines of all kinds have one.
                return rest if self._counts.get("time", 0) >= _MIN_LINES else text
            self._count("time", 1)
            return rest
        if found["other"] and _is_labelled(text):
            return text  # `record` removes it, and reads what it names
        label = found[0].strip()
        if self._count(label, 1) < _MIN_LINES:
            return text
        self._host = found["host"]
        task = found["task"] or found["of"]
        self._labelled = task is not None
        self._rank = grammar.number(found["rank"] or (task or "").strip(), grammar.MAX_RANK)
        return rest

    def _count(self, label: str, by: int) -> int:
        """Count the label `by` times more; how often it has been counted."""
        count = self._counts.get(label, 0) + by
        if label in self._counts or len(self._counts) < _MAX_LABELS:
            self._counts[label] = count
        return count

    def _without_number(self, text: str) -> str:
        """The line without its number, if all lines so far are numbered, the first _MIN_LINES without a gap."""
        if self._numbered < 0 or _CUT_OUT.match(text):
            return text
        found = _NUMBERED.match(text)
        number = int(found["number"]) if found else -1
        first = self._number is None and found is not None
        row = self._number is not None and number == self._number + 1
        cut_out = self._number is not None and number > self._number and self._numbered >= _MIN_LINES
        if found is None or not (first or row or cut_out):
            self._numbered = -1
            return text
        self._number, self._numbered = number, self._numbered + 1
        return text[found.end() :] if self._numbered >= _MIN_NUMBERED else text

    def _without_margin(self, text: str) -> str:
        """The line without the blanks that every line so far begins with."""
        if not text.strip():
            return text
        if self._margin is None:
            self._margin = text[: len(text) - len(text.lstrip(" "))]
        if not text.startswith(self._margin):
            self._margin = ""
        return text[len(self._margin) :]

    def record(self, line: int, text: str) -> grammar.Record:
        """The record of the line that `plain` returned last, or of a part of it, without the prefixes that `bare` removes."""
        record = bare(line, text)
        rank = record.rank if record.rank is not None else self._rank
        task = _TASK.match(text)
        label = int(task["task"]) if task else self._rank
        named = TORCH_RANK.search(text[:_RANK_CHARS])
        if named and label is not None:
            # srun's tasks are launchers here, one a node: their number is no rank.
            self._of_launchers |= int(named["rank"]) != label
        if self._of_launchers and not named and rank == label:
            rank = None
        labelled = record.labelled or self._labelled
        return replace(record, rank=rank, host=record.host or self._host, labelled=labelled)


def bare(line: int, text: str) -> grammar.Record:
    """The line without the prefixes that can be recognised in a single line: launchers', loggers', syslog's."""
    record = strip(line, text)
    dated = record.text.startswith(("{", "<")) or dates.match_length(record.text)
    return _undated(record) if dated else record


def _undated(record: grammar.Record) -> grammar.Record:
    """The record without its logger's or syslog's prefix, and without a launcher's behind it."""
    peeled = prefixes.parse(record.text)
    message, host = peeled.message.removeprefix(": "), peeled.host
    if _is_no_tag(record.text, peeled):
        at = record.text.find(f"{peeled.tag}:")
        message, host = record.text[record.text.rfind(peeled.host or "", 0, at) :], None
    elif message and record.text.endswith(message):
        # The blanks of a traceback's lines; one of them belongs to the prefix.
        before = record.text[: len(record.text) - len(message)]
        message = before[len(before.rstrip(" ")) + 1 :] + message
    inner = strip(record.line, message)
    return replace(
        inner,
        labelled=record.labelled or inner.labelled,
        rank=inner.rank if inner.rank is not None else record.rank,
        host=inner.host or record.host or host,
        pid=inner.pid or record.pid,
        is_error=_ERROR_LEVEL.search(record.text) is not None,
        dated=True,
    )


_ERROR_LEVEL = re.compile(
    r"^\{.{0,4000}?\"(?:level|lvl|severity|levelname|log\.level)\"\s?:\s?\"(?i:error|fatal|critical|panic|alert|emergency)\""
)


def _is_no_tag(text: str, peeled: prefixes.PrefixedLine) -> bool:
    """Whether what was taken for syslog's host and program is the beginning of the message (`CUDA error: …`)."""
    if not peeled.tag or not peeled.host or text.startswith(("{", "<")):
        return False
    if peeled.tag in prefixes.KERNEL_TAGS or f"{peeled.tag}[" in text:
        return False
    return not re.search(r"\d", peeled.host) or _ERROR_WORD.search(peeled.tag) is not None


_SOURCE_WARNS = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: )?\[?W(?:\d{4} [\d:.]{8,18}\s{1,8}\d{1,10})? ?[\w./-]{1,200}\.(?:cc|cpp|cu|cuh|h):\d{1,6}\] "
)


def is_source_warning(text: str) -> bool:
    """Whether a source file warns: the error itself, where the program did not survive it, comes after it."""
    return _SOURCE_WARNS.match(text) is not None
