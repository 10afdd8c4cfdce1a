"""Finds the site's alarm words in a job's output, and leaves out those that are only quoted or named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

MAX_WORDS = 32
MAX_WORD_CHARS = 80
MAX_LINE_CHARS = 200
_QUOTED = re.compile(r"""(?<!\w)(?:"[^"\n]*"|'[^'\n]*'|`[^`\n]*`)""")
_ECHO = re.compile(r"^\+{1,9} |^\s*(?:#|//|>>>|\d+\s*\|)")
"""A command echoed by a shell, a comment, a line of a listing: program text, not output of the program."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def usable(words: Iterable[str]) -> tuple[str, ...]:
    """The words of the setting that are long and short enough to be looked for, without duplicates."""
    found = dict.fromkeys(w.strip() for w in words)
    return tuple(w for w in found if 3 <= len(w) <= MAX_WORD_CHARS)[:MAX_WORDS]


def matches(text: str, words: Sequence[str]) -> Mapping[str, str]:
    """Word to the first line that has it.

    A word does not count in quotes, as part of a longer name (`nccl_error_mode`, `--cuda-error`), as a setting
    (`nan loss = skip`), or in a shell's echo, a comment or a listing.
    """
    text = _ESCAPE.sub("", text) if "\x1b" in text else text
    patterns = {word: _pattern(word) for word in words}
    if not any(p.search(text) for p in patterns.values()):  # the common case, at the speed of one search each
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        if _ECHO.match(line):
            continue
        bare = _QUOTED.sub(" ", line)
        for word, pattern in patterns.items():
            if word not in found and pattern.search(bare):
                found[word] = line.strip()[:MAX_LINE_CHARS]
    return found


def _pattern(word: str) -> re.Pattern[str]:
    """Matches the whole word in any case, with any blanks between its parts, but no longer name, option or key that contains it."""
    body = r"\s+".join(re.escape(part) for part in word.split())
    return re.compile(rf"(?<![\w./-]){body}(?![\w/-])(?!\.\w)(?!\s*=)", re.IGNORECASE)
