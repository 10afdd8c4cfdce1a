"""Words of others in a drawing."""

from __future__ import annotations

from probing_cluster.reports.charts import svg


def test_words_of_others_neither_break_out_nor_turn_the_text_around() -> None:
    """A job's name is its owner's; on an operator's page it is a mark's title, as clean as in the table below."""
    drawn = svg.titled(
        "starts: <b>\u202egnp.exe\u2066\x1b[31m" + "x" * 9000, svg.element("text", text="n\u200f1")
    )
    assert "<b>" not in drawn
    assert "&lt;b&gt;gnp.exe" in drawn
    assert not {"\u202e", "\u2066", "\u200f", "\x1b"} & set(drawn)
    assert len(drawn) < 5000
