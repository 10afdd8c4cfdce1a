"""Which columns of a question's rows are drawn."""

from __future__ import annotations

import pytest

from probing_cluster.web import documents
from probing_cluster.web.pages import charting


@pytest.mark.parametrize(
    ("heads", "row", "drawn"),
    [
        (["rank", "node", "step", "inside"], [5, "n4", 20, "all_reduce"], "step by rank"),
        (["cause", "domain", "n"], ["gpu_lost", "hardware", 3], "n by cause"),
        (["n", "word"], [3, "x"], "n by word"),
        (["word", "yes"], ["x", True], ""),
        (["n"], [3], ""),
    ],
)
def test_a_figure_is_drawn_and_not_what_it_is_of(heads: list[str], row: list[object], drawn: str) -> None:
    """The last numbers over the first column: a rank or a job's number is a name."""
    found = str(charting.of_rows(documents.Rows(heads=heads, rows=[row], more=False)))
    assert (drawn in found) if drawn else not found


def test_a_bar_without_a_word_is_named_as_in_the_table() -> None:
    """Null is a dash, not Python's None."""
    rows = documents.Rows(heads=["cause", "n"], rows=[[None, 3], ["gpu_lost", 5]], more=False)
    drawn = str(charting.of_rows(rows))
    assert "–" in drawn
    assert "None" not in drawn
