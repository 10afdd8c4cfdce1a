"""Lines of a kernel log that a text only shows: in source code, changes, pages, manuals, lists of patterns.

A log has a time or a program's name in front of its lines, and journalctl indents the rest of a message: neither begins a listing, so
that no program can hide the lines below its own. Lines with a log's stamp are hidden only where the listing has a mark of its end, or is
git's own form: people copy logs below headings, into records and pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from probing_cluster.evidence import listings, prefixes

SENTENCE_LINES = 6
"""So many lines above an example hold the sentence that announces it."""
_MOST_LINES = 1000
_LOOK_AT_BYTES = 2000
_MOST_OPEN = 64
"""So many openings without an end are followed in one part of a log; each costs a look at the lines below it."""
_SIGNS = (
    b'"""', b"\'\'\'", b'"\\\n', b'#"', b'@"\n', b"[[\n", b'R"(', b"`", b"<<", b": |", b": >", b"\ncommit ", b"\n@@ -", b"\nFrom ", b"<html", b"<HTML", b"<!",
    b"\n----", b"\n....", b"\n====", b"\n~~~", b"::\n", b".. ",
)  # fmt: skip
"""Lines without any of these begin no listing. Most logs have none: a look at all lines at once costs little."""
_HERE = re.compile(
    r".*<<(?:[-~<]|[-~]?\s)?(?P<quote>['\"]?)\\?(?P<word>[A-Z_]{2,32})(?P=quote)\s*(?:[|>&;)}\].,].{0,200})?$"
)
_SCALAR = re.compile(r"(?P<margin>\s*)(?:- )?[\"']?(?P<key>[\w.-]{1,60})[\"']?:\s*[|>][+-]?\d?\s*$")
_LOGS = re.compile(
    r"(?:^|[\W_])(?:[kd]?logs?|sys-?log|dmesg|journal|kern(?:el)?|messages?|std(?:out|err)|output|console|body|errors?|details?|description)(?:$|[\W_])",
    re.IGNORECASE,
)
"""Keys of a record that holds what was logged."""
_BLOCK = re.compile(r"-{4,80}$|~{3,80}$|\.{4,80}$|={4,80}$|\.\. [a-z-]{4,20}::|\S.*::$")
"""Begins what AsciiDoc, reStructuredText and Markdown set as a listing."""
_OPENING = re.compile(r"\"{3}|'{3}|`|\"\\|#\"|@\"|R\"\(|\[\[|<<")
_OWN_WORDS = re.compile(
    r"NVRM:|\b(?:pid|PID|uid|UID)[=: ]{1,2}\d|\b[Cc]omm(?:: |=(?! )| (?!=))|Killed process \d|INFO: task |\b(?:BUG|EDAC|CPU): ?\S"
)
"""The kernel's, in front of a process name that it prints: a user may call a process like the beginning of a string."""
_NAME_FIRST = re.compile(
    r".{1,15}(?:[\[(]\d{1,10}[\])](?::| )| invoked oom-killer|: (?:page allocation|segfault))"
)
_COMMIT = re.compile(r"commit [0-9a-f]{40}\b")
_COMMIT_LINE = re.compile(r"(?:Author|Commit|Merge|\w{0,6}Date): |\s{4}|\s*$")
_PATCH = re.compile(r"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001$")
"""The date is git's mark of a change that it wrote as a mail."""
_PATCH_ENDS = re.compile(r"---$|diff --git ")
_PAGE, _PAGE_ENDS = (
    re.compile(r"\s*<(?:!doctype )?html\b[^>]*>\s*(?:<.*)?$", re.IGNORECASE),
    re.compile(r"</html>", re.IGNORECASE),
)


def shown(lines: Sequence[bytes]) -> set[int]:
    """Indices of those of `lines` that belong to a listing."""
    found: set[int] = set()
    text = b"\n".join([b"", *lines, b""])
    signs = [sign for sign in _SIGNS if sign in text]
    margins = _Margins(lines)
    at, n_open = 0, 0 if signs else _MOST_OPEN
    while at < len(lines) and n_open < _MOST_OPEN:
        line = b"\n%b\n" % lines[at][:_LOOK_AT_BYTES].rstrip()
        is_sign = any(sign in line for sign in signs) and not margins.is_of_log(at)
        end, whole = _end(lines, at) if is_sign else (None, True)
        n_open += end == at
        found.update(n for n in range(at, end or at) if whole or not _is_stamped(_text(lines[n])))
        at = max(end or 0, at + 1)
    return found


def _text(line: bytes) -> str:
    return line[:_LOOK_AT_BYTES].decode("utf-8", "replace").rstrip()


def _end(lines: Sequence[bytes], at: int) -> tuple[int | None, bool]:
    """Index behind the listing that begins in the line `at`, and whether it may hide lines with a log's stamp.

    The index is `at` itself if the listing has no end, None if nothing begins there.
    """
    text, last = _text(lines[at]), min(len(lines), at + 1 + _MOST_LINES)
    below = enumerate(map(_text, lines[at + 1 : last]), at + 1)
    opening = _OPENING.search(text)
    if opening and (_OWN_WORDS.search(text, 0, opening.start()) or _NAME_FIRST.match(text.lstrip())):
        return None, True
    above = [_text(line) for line in lines[max(at - SENTENCE_LINES, 0) : at]]
    if mark := listings.opened(text, reversed(above)):
        return _end_of_string(mark, below, at), True
    if listings.Hunk().begins(text, below_head=at > 0 and above[-1].startswith("+++ ")):
        return _end_of_changes(lines, at, last), True
    if here := _HERE.match(text):
        return _end_of_here(here["word"], below, at), True
    if (scalar := _SCALAR.match(text)) and not _LOGS.search(scalar["key"]):
        margin = f"{scalar['margin']} "
        return next((n for n, line in below if line and not line.startswith(margin)), last), False
    if _BLOCK.match(text) and foretells(above, text):
        if text[-1] in "-.=~":
            return next((n + 1 for n, line in below if line == text), at), True
        return next((n for n, line in below if line and not line[0].isspace()), last), False
    if _COMMIT.match(text):
        return next((n for n, line in below if _COMMIT_LINE.match(line) is None), last), True
    if _PATCH.match(text):
        return next((n for n, line in below if _PATCH_ENDS.match(line)), at), True
    if _PAGE.match(text):
        return next((n + 1 for n, line in below if _PAGE_ENDS.search(line)), at), False
    return None, True


def _end_of_string(mark: str, below: Iterable[tuple[int, str]], at: int) -> int:
    above = ""
    for n, line in below:
        if (is_over := listings.closes(mark, line, above)) is not False:
            return n + 1 if is_over else at
        above = line
    return at


def _end_of_changes(lines: Sequence[bytes], at: int, last: int) -> int:
    hunk = listings.Hunk()
    while at < last and hunk.begins(_text(lines[at]), below_head=True):
        end = next((n for n in range(at + 1, last) if not hunk.read(_text(lines[n]))), last)
        if hunk.inside():
            break
        at = end
    return at


def _end_of_here(word: str, below: Iterable[tuple[int, str]], at: int) -> int:
    """A shell that is typed into has its mark in front of the lines."""
    for n, line in below:
        if line.strip().removeprefix("> ").rstrip(";,)") == word:
            return n + 1
        if (again := _HERE.match(line)) and again["word"] == word:
            break
    return at


class _Margins:
    """Which lines are a log's, or the rest of a message below one. Each line is looked at once."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines, self._n_read = lines, 0
        self._outer: list[tuple[int, int, bool | None]] = []
        """The last line and those that it is indented below: the margin, the index, and whether the line is a log's, once that is known."""

    def is_of_log(self, at: int) -> bool:
        """Whether the line `at` is one; asked in order, of lines that are not empty."""
        for n in range(self._n_read, at + 1):
            line = self._lines[n]
            if line.strip():
                margin = len(line) - len(line.lstrip())
                while self._outer and self._outer[-1][0] >= margin:
                    self._outer.pop()
                self._outer.append((margin, n, None))
        self._n_read = at + 1
        first = len(self._outer)
        while first and self._outer[first - 1][2] is None:
            first -= 1
        of_log = bool(first and self._outer[first - 1][2])
        for position in range(first, len(self._outer)):
            margin, n, _ = self._outer[position]
            of_log = of_log or _is_stamped(_text(self._lines[n]))
            self._outer[position] = (margin, n, of_log)
        return of_log


def _is_stamped(text: str) -> bool:
    line = prefixes.parse(text)
    return line.stamped or line.tag in prefixes.KERNEL_TAGS


_MODAL = r"(?:may|might|could|would|should)"
_FORETELLS = re.compile(
    rf"(?!.*\b(?-i:I|[Ww]e|[Tt]hey|[Mm]y|[Oo]ur|broken|failing|(?:[Tt]his|[Tt]hese) (?:log|node|host|machine|server|job)s?|[a-z][a-z-]*(?<!ipv)\d+[\w.-]*)\b)(?:(?:look|search|watch|check) for (?!yourself).*"
    rf"|.*\b{_MODAL}(?: \w+)? (?:be (?:\w+ )?(?:seen|found|observed|printed|logged|reported|displayed|visible|shown)|appear|show|see|find|contain|include|print|log|report|look)\b.*"
    r"|.*\b(?:if|when(?:ever)?)\b.{1,200}\b(?:can|will) (?:\w+ )?(?:appear|show|be (?:seen|found|logged|printed|shown)|contain|look|see|find|print|log)\b.*):$",
    re.IGNORECASE,
)
"""Whoever reports a fault speaks of what they saw, and names the node."""


def foretells(above: Sequence[str], heading: str = "") -> bool:
    """Whether the sentence at the end of the lines `above` says what a log may hold, as a manual does; `heading`: it may end there."""
    lines = [*above, heading.replace("::", ":")] if heading.endswith("::") and heading[0] != "." else above
    sentence = ""
    for line in reversed(lines):
        if line.strip():
            sentence = f"{line.strip()} {sentence}".strip()
        elif sentence:
            break
    return _FORETELLS.match(re.split(r"(?<=[.!?])\s", sentence)[-1].replace("*", "").strip()) is not None


_NEAR = 8
_PATTERN = re.compile(
    r"\.[*+](?!\w)|\\[dwsS.()\[\]{}+*?|]|\[(?:0-9|a-f|a-z|A-Z|\^)|\(\?:|<\*>|%\{[A-Z]|%[-#0-9.]{0,6}(?:l{1,2}|z|h)?[dsuxXpc]\b|%p[A-Za-z]\b"
)
"""What only a regular expression, the form of a log's line or a text of `printf` holds."""
_VALUE = re.compile(
    r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}|\bpid[=:]? ?\d|0x[0-9a-f]{4}|[:\[(]\d{1,10}[\])]|\btask \S.{0,15}:\d|\bprocess \d|\bCPU[#:]? ?\d|\b(?:sd[a-z]|nvme\d)\d?\b",
    re.ASCII,
)
"""What a log has in their place: the name of a process may look like a pattern."""


def _is_form(text: str) -> bool:
    return _PATTERN.search(text) is not None and _VALUE.search(text) is None


def of_patterns(lines: Sequence[bytes], at: int) -> bool:
    """Whether the line `at` is one of a list of patterns: a list has no times and no numbers of its own."""
    if not _is_form(_text(lines[at])):
        return False
    near = [_text(line) for line in lines[max(at - _NEAR, 0) : at + _NEAR + 1] if line.strip()]
    return sum(map(_is_form, near)) > 1 and not any(map(_is_stamped, near))
