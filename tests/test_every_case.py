"""A test of many texts in one item (tests/every_case.py)."""

from __future__ import annotations

import pytest

from tests.every_case import every


def test_every_wrong_case_is_named_and_no_right_one() -> None:
    """A wrong one does not end the others; an error is as wrong as an assertion."""
    tried = []

    @every("text, length", [("a", 1), ("bb", 1), ("ccc", "x"), ("d", 1)])
    def check(text: str, length: int) -> None:
        tried.append(text)
        assert len(text) <= length

    with pytest.raises(AssertionError) as caught:
        check()
    first, *named = str(caught.value).splitlines()
    assert tried == ["a", "bb", "ccc", "d"]
    assert first.startswith("2 of 4 cases")
    assert any(line.startswith("'bb', 1: AssertionError") for line in named)
    assert any(line.startswith("'ccc', 'x': TypeError") for line in named)
    assert "'d'" not in str(caught.value)


def test_no_case_is_refused() -> None:
    """A list that became empty would prove nothing and pass."""
    with pytest.raises(AssertionError, match="no case"):
        every("text", [])
