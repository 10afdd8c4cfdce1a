"""Splits a physical line that holds several (an overwritten progress bar, a traceback in a JSON value), and joins a message that a terminal cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
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
    r"|(?:(?<=[\s.,\d]\d)|(?<=[%|\]]))[A-Za-z][\w.+-]{0,60}: \S{1,300}\.(?:c|cc|cpp|cxx|h|hpp|cu|cuh):\d{1,7}: .{0,400}?Assertion `.{1,300}' failed\.?\s*$"
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
