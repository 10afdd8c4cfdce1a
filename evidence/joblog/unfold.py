"""Splits a physical line that holds several (an overwritten progress bar, a traceback in a JSON value), and joins a message that a terminal cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, Record
from probing_cluster.evidence.joblog.messages import slurm
from probing_cluster.evidence.joblog.messages.communication import hccl, torch_nccl

_HEADS = (grammar.TRACEBACK, "\\n\\tat ")
_MAX_DEPTH = 3
_NAMES_CHARS, _ALL_NAMES_CHARS = 60, 600
_MAX_LINES = 400


def typed_over(text: str) -> str:
    """The text as a terminal shows it: a backspace takes the character before it away (MATLAB marks its errors so)."""
    if "\x08" not in text:
        return text
    first, *others = text.split("\x08")
    shown = list(first)
    for part in others:
        if shown:
            shown.pop()
        shown += part
    return "".join(shown)


_WORKER = re.compile(r"\([\w.:]{1,64} pid=\d{1,10}(?:, ip=[\w.:-]{1,64})?\)\s")


_NO_LETTERS = re.compile(r"[\W\d_]+")
_FIRST_PARTS, _LAST_PARTS = 8, 32
"""So many parts in the same words show as well as thousands that a bar moved, and where it ended."""


def _thinned(parts: list[str]) -> list[str]:
    """The parts without most of those that differ in numbers alone: of each words the first and the last ones."""
    if len(parts) <= _FIRST_PARTS + _LAST_PARTS:
        return parts
    words = [_NO_LETTERS.sub("", part) for part in parts]
    left, kept = Counter(words), []
    of_words = Counter(left)
    for part, word in zip(parts, words, strict=True):
        if of_words[word] - left[word] < _FIRST_PARTS or left[word] <= _LAST_PARTS:
            kept.append(part)
        left[word] -= 1
    return kept


def overwritten(text: str) -> list[str]:
    """The parts of a line that overwrote itself, oldest first, of a long progress bar the first and the last; each gets the label of the worker that Ray names before the first."""
    parts = _thinned(text.split("\r"))
    worker = _WORKER.match(text) if len(parts) > 1 else None
    return [parts[0], *(worker[0] + part if part else part for part in parts[1:])] if worker else parts


_LOGGER = re.compile(r"(?<=.)\[rank\d{1,8}\]:\[[EWFI]\d{0,4} ")
_EXCEPTION = re.compile(r"\b[A-Z]\w{0,60}(?:Error|Exception): \S")


_GLUED_NAME = re.compile(
    r"(?:Runtime|Value|Type|Key|Index|Assertion|Attribute|OS|IO|FileNotFound|NotImplemented)Error(?=[A-Z]\w{0,20} [a-z]\w{0,20} )"
)
"""The name of an exception directly before a sentence: other ranks wrote between it and its colon."""


_BAR = re.compile(r"(?:s/it|it/s)[^\]\n]{0,60}\](?=\[rank\d)")
"""A progress bar with a rank's message in the same line."""


_GLUED = re.compile(
    r"(?:(?<=[^\s\"'`(\[{=/:\])>|])|(?<=\.{3} ))(?:forrtl: (?:severe|error) \(\d|Fortran runtime error: |terminate called (?:after throwing|without)|MPICH ERROR \[Rank \d|Abort\(-?\d{1,12}\) on node \d)"
    r"|(?<=\.{3})(?: (?<=\.{3} ))?(?:Segmentation fault|Bus error)(?: \(core dumped\))?\s*$|(?:(?<=[\d%])|(?<=[st]\]))(?:Segmentation fault|Bus error|Aborted|Killed|Illegal instruction|Floating point exception)(?: \(core dumped\))?\s*$"
    r"|(?:(?<=[\s.,\d]\d)|(?<=[%|\]]))(?!assert:)[A-Za-z][\w.+-]{0,60}: \S{1,300}\.(?:c|cc|cpp|cxx|h|hpp|cu|cuh):\d{1,7}: .{0,400}?Assertion `.{1,300}' failed\.?\s*$"
    r"|(?<=\.{3})(?: (?<=\.{3} ))?[A-Za-z][\w+-]{1,40}: (?:fatal )?(?:[Ee]rror|ERROR)(?=: | [A-Za-z])"
    r"|(?:(?<=\.{3})|(?<=[%|])|(?<=[%|.] )|(?<=ing ))Error in [\w.:$`]{1,80}\(.{0,200}\) :\s*$"
)
"""Words with which a runtime or a shell begins its message, behind text that another stream left without a newline."""


_LONG_CHARS = 8192
"""Of a longer line the reader judges only the beginning."""
_END_CHARS = 1000
_END_ERROR = re.compile(
    r"(?<=\s)(?:[A-Z]\w{0,60}(?:Error|Exception)|ERROR|FATAL|CRITICAL|(?i:fatal )?[Ee]rror): [^\W\d_]"
)


def _with_end(text: str) -> list[str]:
    """The line and, where it is very long, the error that its end holds: it stands behind dots or numbers printed without a newline."""
    if len(text) <= _LONG_CHARS:
        return [text]
    error = _END_ERROR.search(text, len(text) - _END_CHARS)
    return [text] if error is None else [text, text[error.start() :]]


def _unglued(text: str) -> list[str]:
    """The two parts of a line in which a rank's logger, a runtime or a shell interrupted other text; else the text, and an error at the end of a long one.

    Of exceptions' names that ranks wrote into each other the last one stays.
    """
    if "Error" in text[:_NAMES_CHARS] and (glued := _GLUED_NAME.search(text, 0, _ALL_NAMES_CHARS)):
        others = text[: glued.start()].replace(":", " ").split()
        if all(other.endswith("Error") for other in others):
            text = f"{glued[0]}: {text[glued.end() :]}"
    if "][rank" in text and (bar := _BAR.search(text)):
        return [text[: bar.end()], text[bar.end() :]]
    if (glued := _GLUED.search(text)) and not mention.is_quoted(text[: glued.start()]):
        return [text[: glued.start()], text[glued.start() :]]
    found = _LOGGER.search(text) if "]:[" in text else None
    if found is None or not _EXCEPTION.search(text, 0, found.start()):
        return _with_end(text)
    return [text[: found.start()], text[found.start() :]]


def lines(text: str) -> list[str]:
    """The lines of a traceback in a JSON record, or the two parts of an interrupted line; else the text alone.

    Only keys that loggers use count: data that a job prints may hold other programs' tracebacks.
    """
    if text.lstrip()[:1] != "{" or not any(head in text for head in _HEADS):
        return _unglued(text)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    found = next(_traces(record, 0), None)
    return found.split("\n")[:_MAX_LINES] if found else [text]


def _traces(value: Any, depth: int) -> Iterator[str]:
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _traces(inner, depth + 1)
        elif isinstance(inner, str) and mention.is_log_key(str(key)) and _is_trace(inner):
            yield inner


def _is_trace(text: str) -> bool:
    return "\n" in text and (_HEADS[0] in text or "\n\tat " in text)


NEW_RECORD = re.compile(
    r"^\s*(?:\[\d{1,9}\] )?(?:\[rank\d|\[[EWFI]\d*\s|\[E ProcessGroup|\d{4}-\d\d-\d\d|\[\d{4}-|Traceback|File \"|[\w.]{1,200}(?:Error|Exception): |frame #|terminate called|srun:|slurmstepd:|\S+:\d+:\d+ \[\d+\]|Exception raised|$)"
)
"""A line that begins a message of its own."""


_NAME = r"(?:[a-z_]\w{0,40}\.){0,6}(?:[A-Z]\w{0,50}?(?:Error|Exception)|KeyboardInterrupt)"
_HEAD_GLUED = re.compile(
    rf"(?:\s{{2}}.{{0,2000}}?(?:[A-Za-z)]|<module>)|{_NAME}(?:: .{{0,2000}}?\S)?|{re.escape(grammar.TRACEBACK)}:)(?=Traceback \(most recent call last\))"
)
"""A line of a traceback, or its end, right before another one's head."""
_FRAME_GLUED = re.compile(r"\S {2}File \"[^\"\n]{1,400}\", line \d{1,7}(?:, in \S|$)")
_BUILT_IN = r"(?:Runtime|Value|Type|Key|Index|Assertion|Attribute|OS|IO|EOF|Memory|Import|ModuleNotFound|FileNotFound|NotImplemented|Permission|Connection|ConnectionReset|ConnectionRefused|Timeout|BrokenPipe|ZeroDivision|Name|Unicode\w{2,6})Error"
_BEHIND_CODE = re.compile(
    rf"(?P<code>\s{{2,}}\S.{{0,2000}}?(?<=[)\]^~\"'>])(?<!->)(?={_NAME}(?:: |:?$|Traceback|(?:: ?)?{_BUILT_IN}))| {{2}}File \"[^\"\n]{{1,400}}\", line \d{{1,7}}, in \w{{1,60}}?(?={_BUILT_IN}: \S))"
)
"""A frame, a line of source or its marks, and an exception that another process wrote behind it: nothing stands behind a frame's name, which may itself end as an exception's does."""
_BEFORE_TEXT = re.compile(
    r"\s{2,}File \"[^\"\n]{1,400}\", line \d{1,7}, in (?=\w{1,80} \S)|\s{4,}\S.{0,400}?[)\]](?=[A-Z][\w']{0,30} \w)"
)
"""A frame or a line of source with an exception's text right behind the function's name or a bracket."""
_ADVICE = re.compile(
    r"\w{0,80}?(?:(?:CUDA|HIP) kernel errors might|For debugging consider|Compile with|Device-side assertion)"
)
_MARKS = re.compile(
    r"\s{4,}[\^~]{2,200}(?=[^\s^~])|\s{2,}\[Previous line repeated \d{1,6} more times?\](?=\S)"
)
_BEHIND_TEXT = re.compile(rf"(?: {{2}}File \"|(?<=[a-z\d)\]'\".])(?:{_BUILT_IN}){{1,8}}(?::? ?$| {{2}})).*")
"""What another process wrote behind an exception's text: its frame, or its exception's name."""
_NAMES = re.compile(rf"(?P<name>{_NAME})(?P<more>(?:(?:: ?)*(?P=name))*)(?P<colon>(?:: ?)*)(?P<rest>.*)$")
_CODE = re.compile(
    rf" {{2}}|[\^~]{{2}}|{re.escape(grammar.TRACEBACK)}|(?:return|raise|self\.|for|if|with|yield|await|assert|else|try)\b|[\w.]{{1,80}}(?:\(| = )"
)
"""How a frame, a line of source or a traceback's head begins."""
_IN_WORD = re.compile(r"s\b| \S|_|\w{0,40}=|Handler\b")
"""What follows a name that is only the beginning of a word, or a word among others: a plural, a counter, a handler."""
_MIXED_LINES, _TEXT_LINES = 60, 6
"""The last sign that processes write into each other stands at most so many lines above; the colon of an exception above its text."""


class GluedRanks:
    """Takes apart what processes that end together write into each other: each writes its lines, the name of its exception and the text in parts."""

    def __init__(self) -> None:
        self._mixed_until = self._traceback_until = 0
        self._name, self._colon_at = "", 0
        """The last exception whose text another process cut off, and the line of its colon; 0 before it."""
        self._read: set[str] = set()
        """Exceptions that were read with their texts since the last whole head of a traceback."""

    def inside(self, line: int) -> bool:
        """Whether `line`, the next one, may hold the text that was cut off."""
        return line <= self._mixed_until

    def marked(self, found: JobFinding) -> JobFinding:
        """`found`; if it is only an exception's name, with the note that its text may stand elsewhere."""
        bare = self.inside(found.line) and found.message == found.detail.get("exception")
        return replace(found, detail={**found.detail, "glued": True}) if bare else found

    def lines(self, line: int, text: str) -> list[str]:
        """The lines that a line of the log, or a part of it, stands for."""
        return [part for piece in lines(text) for part in self._parts(line, piece)]

    def _parts(self, line: int, text: str) -> list[str]:
        if grammar.TRACEBACK in text or text.startswith('  File "'):
            self._traceback_until = line + _MIXED_LINES
        if text.rstrip() == f"{grammar.TRACEBACK}:":
            self._read.clear()  # what begins here has an end of its own
        head = _HEAD_GLUED.match(text) if grammar.TRACEBACK in text else None
        if head or ('  File "' in text and _FRAME_GLUED.search(text)):
            self._mixed_until = line + _MIXED_LINES
        elif text[:1].strip() and grammar.TRACEBACK not in text and not self.inside(line):
            self._traceback_until = 0  # an unmixed traceback is over
        if line > max(self._traceback_until, self._mixed_until):
            self._name = ""
            self._read.clear()
            return [text]
        parts = []
        behind = _BEHIND_CODE.match(text) if text[:2] == "  " else None
        if behind and not mention.is_quoted(behind["code"]):
            self._mixed_until = line + _MIXED_LINES
            parts, text = [behind["code"]], text[behind.end() :]
        if not self.inside(line):
            return [text]
        if (marks := _MARKS.match(text)) or (self._colon_at and (marks := _BEFORE_TEXT.match(text))):
            parts, text = [*parts, marks[0]], text[marks.end() :]
        if head := _HEAD_GLUED.match(text):
            return [*parts, *self._ended(line, head[0]), text[head.end() :]]
        return parts + self._ended(line, text)

    def _ended(self, line: int, text: str) -> list[str]:
        """The parts of a line with which one of the processes ends, perhaps."""
        if text[:1] == ":" and self._name:
            self._colon_at, text = line, text.lstrip(": ").removeprefix(self._name).lstrip(": ")
        found = _NAMES.match(text)
        if found is None:
            return self._restored(line, text)
        name, rest = found["name"], found["rest"]
        known = found["more"] or name == self._name or (re.fullmatch(_BUILT_IN, name) and _CODE.match(rest))
        if not found["colon"] and rest and (not known or _IN_WORD.match(rest)) and rest[:2] != "  ":
            return [text]
        if rest and not _CODE.match(rest):
            return self._whole(name, rest)
        code = [f"    {rest.strip()}"] if rest else []
        if name in self._read:
            return code
        self._name, self._colon_at = name, line if found["colon"] else 0
        return [name, *code]

    def _restored(self, line: int, text: str) -> list[str]:
        """The exception of which the line is the text, if it can be one."""
        awaited = self._name and 0 < self._colon_at >= line - _TEXT_LINES and text.strip()
        if not awaited or any(other.match(text) for other in (_CODE, _ADVICE, NEW_RECORD)):
            return [text]
        return self._whole(self._name, text.rstrip(": "))

    def _whole(self, name: str, text: str) -> list[str]:
        """An exception with its text. Where its name stood alone above, that was its traceback's end."""
        head = [f"{grammar.TRACEBACK}:"] if name == self._name else []
        self._name = "" if head else self._name
        self._read.add(name)
        return [*head, f"{name}: {_BEHIND_TEXT.sub('', text)}"]


_MIN_WRAP_CHARS = 60
_CUT = re.compile(
    r"ProcessGroup(?:NCCL|Gloo)|NCCL WARN|Watchdog caught|WorkNCCL\(|what\(\):.{1,600}\b(?:cuda|hip)[A-Z]\w{2,30}(?: f\w{0,5}:?)?\s?$"
)
_UNNAMED = "cuda_error"
"""A CUDA error without a kind of its own: a wrapped line may have cut its name."""
_CHATTER = re.compile(
    r"\[?\b[IW]\d{0,4}(?: \d\d:\d\d:\d\d\S{0,12})?(?: \d{1,9})? (?:ProcessGroup|TCPStore|socket)\w*\.cpp"
)
"""PyTorch's messages about a working group: whole lines, whatever follows."""


def may_be_cut(text: str) -> bool:
    """Whether the line begins a message that a terminal may have cut: PyTorch's, NCCL's, or a C++ exception's."""
    long = len(text.rstrip()) >= _MIN_WRAP_CHARS
    return long and _CUT.search(text) is not None and not _CHATTER.search(text)


def is_cut(text: str) -> bool:
    """Whether the message goes on in the next line."""
    return torch_nccl.is_cut(text) or hccl.is_cut(text) or slurm.is_cut(text)


def may_continue(finding: JobFinding) -> bool:
    """Whether the rest of the message, on the next line, may name the error."""
    return finding.kind == _UNNAMED or finding.detail.get("thrown") is True


@dataclass(slots=True)
class WrappedLine:
    """A line that began a message and did not end it: terminals wrap hard, in the middle of words."""

    record: Record
    joined: int = 0
    found: JobFinding | None = None
    """The finding so far; the next lines may add to it."""
