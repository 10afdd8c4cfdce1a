"""Many words looked for at once: the same lines as one by one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core.sanitize import literals
from probing_cluster.evidence.joblog import families
from probing_cluster.evidence.kernel import reader as kernel

WORD = st.text(alphabet="ab.[|\\é ", min_size=1, max_size=5)


@given(st.lists(WORD, min_size=1, max_size=8), st.text(alphabet="ab.[|\\é \n", max_size=30))
def test_it_finds_what_each_word_alone_would_find(words: list[str], text: str) -> None:
    """Also where a word begins another, holds what a pattern gives a meaning, or is not ASCII."""
    pattern = literals.any_of(words)
    wanted = any(word in text for word in words)
    assert (re.search(pattern, text) is not None) == wanted
    assert (re.search(pattern.encode(), text.encode()) is not None) == wanted


def test_every_trigger_is_found_in_a_line() -> None:
    """No trigger of a family is lost among the others."""
    for triggers in (kernel.TRIGGERS, families.TRIGGERS):
        search = re.compile(literals.any_of(triggers)).search
        assert [t for t in triggers if not search(f"<< {t} >>")] == []
        assert search("nothing of that kind") is None
