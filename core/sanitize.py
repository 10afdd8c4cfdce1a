"""Foreign text made safe to store and print: nothing a kernel, a job or a user wrote is trusted."""

from __future__ import annotations

import unicodedata

MAX_MESSAGE_CHARS = 4096
"""Longest message kept; Postgres and people both stop reading long before."""


def clean(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """`text` without control, format and surrogate characters, at most `limit` characters.

    Tabs and newlines become spaces; NUL (which Postgres refuses), terminal escapes,
    bidirectional overrides and lone surrogates are dropped.
    """
    if text.isascii() and text.isprintable():
        return text[:limit]
    kept = (
        " " if ch in "\t\n\r" else ch
        for ch in text[: limit * 2]
        if ch in "\t\n\r" or unicodedata.category(ch) not in {"Cc", "Cf", "Cs", "Co", "Cn"}
    )
    return "".join(kept)[:limit]
