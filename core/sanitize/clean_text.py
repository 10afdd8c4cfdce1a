"""Foreign text made safe to store and print: nothing a kernel, a job or a user wrote is trusted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from probing_cluster.core.sanitize import secrets_in_text

MAX_MESSAGE_CHARS = 4096
"""Longest message kept; Postgres and people both stop reading long before."""

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,32}[ -/]{0,8}(?:[@-~]|$)"  # colours, moves of the cursor; also one that is cut
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)"  # titles and links, to their end
    r"|\x1b[ -/]{0,8}[0-OQ-WYZ\\`-~]"
)
"""A terminal's escape sequence with its parameters, which would be left as text without their escape."""


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
    """`text` with `***` for what looks like a password, a key or a token (`secrets_in_text`)."""
    return secrets_in_text.masked(text)


def clean_all(value: Any) -> Any:
    """`value` with every string in it so cleaned, also in mappings (their keys, too), lists and tuples; none is shortened."""
    return _in_all(value, lambda text: clean(text, len(text)))


def without_secrets_in(value: Any) -> Any:
    """`value` without what looks like a secret in any string of it, as `clean_all` goes through it."""
    return _in_all(value, without_secrets)


def _in_all(value: Any, changed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, Mapping):
        return {_in_all(key, changed): _in_all(item, changed) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_in_all(item, changed) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value
