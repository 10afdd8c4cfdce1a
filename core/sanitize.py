"""Foreign text made safe to store and print: nothing a kernel, a job or a user wrote is trusted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

MAX_MESSAGE_CHARS = 4096
"""Longest message kept; Postgres and people both stop reading long before."""

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,8}(?:[@-~]|$)"  # colours, moves of the cursor; also one that is cut
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)"  # titles and links, to their end
    r"|\x1b[ -/]{0,8}[0-OQ-WYZ\\`-~]"
)
"""A terminal's escape sequence with its parameters, which would be left as text without their escape."""


def _named(words: str) -> str:
    """An assignment (also one of JSON) to a name with one of `words` in it, or an option, up to the value; `KeyError: x` is none."""
    return rf"""(?<![\w.-])(?![\w.-]*(?:Error|Exception)\b)(?:[\w.-]*(?:{words})[\w.-]*\\?["']?\s*[=:]+\s*|--[\w-]*(?:{words})[\w-]*\s+)"""


_SECRET = re.compile(
    rf"({_named('SECRET|PASSW|CREDENTIAL')}|{_named('KEY(?!board|word)|TOKEN(?!iz)')}(?![\d.,_]{{1,12}}[kMGT%]?(?:[\s,;)\]}}]|$)))"
    r"""(?:"[^"]*"?|'[^']*'?|[^\s"']\S*)""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+@")
_IN_HEADER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)

_BREAKS = "\t\n\r\u2028\u2029"
"""The last two are breaks to `str.splitlines`, and so to a mail's header."""


def clean(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """`text` without control, format and surrogate characters, at most `limit` characters.

    Tabs and line breaks become spaces; NUL (which Postgres refuses), whole escape sequences,
    bidirectional overrides and lone surrogates are dropped.
    """
    if text.isascii() and text.isprintable():
        return text[:limit]
    text = text[: limit * 2]
    text = without_sequences(text)
    kept = (
        " " if ch in _BREAKS else ch
        for ch in text
        if ch in _BREAKS or unicodedata.category(ch) not in {"Cc", "Cf", "Cs", "Co", "Cn"}
    )
    return "".join(kept)[:limit]


def without_sequences(text: str) -> str:
    """`text` without the escape sequences of a terminal: colours, character sets, titles of windows."""
    return _SEQUENCE.sub("", text) if "\x1b" in text or "\x9b" in text else text


def without_secrets(text: str) -> str:
    """`text` with `***` for what follows words such as KEY, TOKEN, SECRET and PASSWORD, and for credentials in headers and URLs.

    A plain number after KEY or TOKEN is a count (`max_tokens=4096`) and stays.
    """
    text = _IN_HEADER.sub(r"\1 ***", _IN_URL.sub("***@", text))
    return _SECRET.sub(r"\1***", text)


def clean_all(value: Any) -> Any:
    """`value` with every string in it so cleaned, also in mappings (their keys, too), lists and tuples; none is shortened."""
    if isinstance(value, str):
        return clean(value, len(value))
    if isinstance(value, Mapping):
        return {clean_all(key): clean_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        cleaned = [clean_all(item) for item in value]
        return cleaned if isinstance(value, list) else tuple(cleaned)
    return value
