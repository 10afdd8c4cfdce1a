"""Lines of a kernel log that a text only shows: in source code, changes, pages, manuals, lists of patterns.

A log has a time or a program's name in front of its lines, and journalctl indents the rest of a message: neither begins a listing, so
that no program can hide the lines below its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

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
    at, n_open = 0, 0 if signs else _MOST_OPEN
    while at < len(lines) and n_open < _MOST_OPEN:
        line = b"\n%b\n" % lines[at][:_LOOK_AT_BYTES].rstrip()
        end = _end(lines, at) if any(sign in line for sign in signs) else None
        n_open += end == at
        found.update(range(at, end or at))
        at = max(end or 0, at + 1)
    return found


def _text(line: bytes) -> str:
    return line[:_LOOK_AT_BYTES].decode("utf-8", "replace").rstrip()


def _end(lines: Sequence[bytes], at: int) -> int | None:
    """Index behind the listing that begins in the line `at`; `at` itself if it has no end, None if nothing begins there."""
    text, last = _text(lines[at]), min(len(lines), at + 1 + _MOST_LINES)
    below = enumerate(map(_text, lines[at + 1 : last]), at + 1)
    if _of_log(lines, at, text):
        return None
    if mark := listings.opened(text, _text(lines[at - 1]) if at else ""):
        return next((n + 1 for n, line in below if listings.closes(mark, line)), at)
    if (hunk := listings.Hunk()).read(text):
        return next((n for n, line in below if not hunk.read(line)), last)
    if here := _HERE.match(text):
        return next((n + 1 for n, line in below if line.strip().rstrip(";,)") == here["word"]), at)
    if (scalar := _SCALAR.match(text)) and not _LOGS.search(scalar["key"]):
        margin = f"{scalar['margin']} "
        return next((n for n, line in below if line and not line.startswith(margin)), last)
    above = [_text(line) for line in lines[max(at - SENTENCE_LINES, 0) : at]]
    if _BLOCK.match(text) and foretells(above, text):
        if text[-1] in "-.=~":
            return next((n + 1 for n, line in below if line == text), at)
        return next((n for n, line in below if line and not line[0].isspace()), last)
    for begins, ends, past in _WHOLE:
        if begins.match(text):
            return next((n + past for n, line in below if ends(line)), last)
    return None


_WHOLE: Sequence[tuple[re.Pattern[str], Callable[[str], object], int]] = (
    (_COMMIT, lambda line: _COMMIT_LINE.match(line) is None, 0),
    (_PATCH, _PATCH_ENDS.match, 0),
    (_PAGE, _PAGE_ENDS.search, 1),
)
"""What begins a listing, what ends it, and whether that line is of it."""


def _of_log(lines: Sequence[bytes], at: int, text: str) -> bool:
    """Whether the line `at` is a log's, or the rest of a message."""
    margin = len(text) - len(text.lstrip())
    for n in range(at - 1, max(at - _MOST_LINES, 0) - 1, -1) if margin else ():
        above = _text(lines[n])
        if above and len(above) - len(above.lstrip()) < margin:
            margin = len(above) - len(above.lstrip())
            if _is_stamped(above):
                return True
            if not margin:
                break
    return _is_stamped(text)


def _is_stamped(text: str) -> bool:
    line = prefixes.parse(text)
    return line.stamped or line.tag in prefixes.KERNEL_TAGS


_MODAL = r"(?:may|might|could|would|should)"
_FORETELLS = re.compile(
    rf"(?!.*\b(?-i:I|[Ww]e|[Tt]hey|[Mm]y|[Oo]ur)\b)(?:(?:look|search|watch|check) for (?!yourself).*"
    rf"|.*\b{_MODAL}(?: \w+)? (?:be (?:\w+ )?(?:seen|found|observed|printed|logged|reported|displayed|visible|shown)|appear|show|see|find|contain|include|print|log|report|look)\b.*"
    r"|.*\b(?:if|when(?:ever)?)\b.{1,200}\b(?:can|will) (?:\w+ )?(?:appear|show|be (?:seen|found|logged|printed|shown)|contain|look|see|find|print|log)\b.*):$",
    re.IGNORECASE,
)
"""Whoever reports a fault speaks of what they saw."""


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


_NEAR, _LEAST_FORMS, _MOST_FRAC = 8, 3, 0.75
_NO_DIGIT = re.compile(r"\D*$")
_PATTERN = re.compile(
    r"\.[*+](?!\w)|\\[dwsS.()\[\]{}+*?|]|\[(?:0-9|a-f|a-z|A-Z|\^)|\(\?:|<\*>|%\{[A-Z]|%[-#0-9.]{0,6}(?:l{1,2}|z|h)?[dsuxXpc]\b|%p[A-Za-z]\b"
)
"""What only a regular expression, the form of a log's line or a text of `printf` holds."""
_VALUE = re.compile(
    r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}|\bpid[=:]? ?\d|0x[0-9a-f]{4}|:\d{1,10}\]|\bCPU[#:]? ?\d|\b(?:sd[a-z]|nvme\d)\d?\b",
    re.ASCII,
)
"""What a log has in their place: the name of a process may look like a pattern."""
_CUT = re.compile(r"[A-Za-z_]\)?[:,]$|(?: at| for| in| on| of| pointer| handle)$")
"""The end of a form without its variable part."""


def _is_form(text: str) -> bool:
    return _PATTERN.search(text) is not None and _VALUE.search(text) is None


def of_patterns(lines: Sequence[bytes], at: int) -> bool:
    """Whether the line `at` is one of a list of patterns: a list has no times and no numbers of its own."""
    near = [_text(line).strip() for line in lines[max(at - _NEAR, 0) : at + _NEAR + 1] if line.strip()]
    text = _text(lines[at]).strip()
    signs = [_is_form(line) for line in near]
    has_sign = _is_form(text)
    if not (has_sign or _NO_DIGIT.match(text)) or any(map(_is_stamped, near)):
        return False
    if has_sign:
        return sum(signs) > 1
    forms = sum(sign or _CUT.search(line) is not None for line, sign in zip(near, signs, strict=True))
    of_list = sum(sign or _NO_DIGIT.match(line) is not None for line, sign in zip(near, signs, strict=True))
    return forms >= _LEAST_FORMS and of_list > len(near) * _MOST_FRAC
