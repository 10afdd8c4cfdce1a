"""Foreign text is made harmless."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import sanitize


@given(st.text())
def test_nothing_dangerous_survives(text: str) -> None:
    """No control, format or surrogate character reaches a terminal or Postgres."""
    cleaned = sanitize.clean(text)
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs"} for c in cleaned)
    assert len(cleaned) <= sanitize.MAX_MESSAGE_CHARS


def test_terminal_escapes_and_overrides_are_dropped() -> None:
    """An escape sequence goes whole; a right-to-left override disappears; layout becomes spaces."""
    assert sanitize.clean("a\x1b[31mb\u202ec\td\n\x00e") == "abc d e"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[1;31mERROR\x1b[0m bad", "ERROR bad"),
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b[2K\x1b[1A\rstep 3", " step 3"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext\x1b7", "text"),
        ("\x1b]no end of it [31m", "]no end of it [31m"),
        ("array[31m] stays", "array[31m] stays"),
        ("cut \x1b[3", "cut "),
    ],
)
def test_what_a_terminal_would_not_show_is_not_left_as_text(text: str, left: str) -> None:
    """Colours of a user's log leave no `[31m`; what only looks like one stays."""
    assert sanitize.clean(text) == left


def test_every_string_in_a_detail_is_cleaned() -> None:
    """Keys, too: groups and files are named by users."""
    detail = {"a\x1b[2J": ["\x00b", ("c\u202e", 1)], "n": None, "x": {"y": 1.5, "long": "z" * 9000}}
    cleaned = {"a": ["b", ("c", 1)], "n": None, "x": {"y": 1.5, "long": "z" * 9000}}
    assert sanitize.clean_all(detail) == cleaned


def test_secrets_are_taken_out_of_every_string_of_a_detail() -> None:
    """What is no string stays what it is."""
    detail = {"last_words": "password=abc", "n": 1, "lines": ["token=abc", ("hf_" + "a1" * 17,)]}
    left = {"last_words": "password=***", "n": 1, "lines": ["token=***", ("hf_***",)]}
    assert sanitize.without_secrets_in(detail) == left
