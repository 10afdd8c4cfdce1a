"""Foreign text is made harmless."""

import unicodedata

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
    """An escape sequence loses its escape; a right-to-left override disappears; layout becomes spaces."""
    assert sanitize.clean("a\x1b[31mb\u202ec\td\n\x00e") == "a[31mbc d e"
