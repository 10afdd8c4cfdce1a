from __future__ import annotations

import lemon_nights as nights

from probing_cluster.reports import lemon_text, lemon_view


def test_a_quiet_night_is_one_line() -> None:
    """Nothing to do is said in one line."""
    text = lemon_text.render(lemon_view.of(nights.night()))
    assert text == "c, 2026-11-20: quiet night, no lemon (2 nodes scored)\n"


def test_every_section_in_the_order_of_need() -> None:
    """New lemons first, suspects last; commands stand on their own line, unbroken."""
    text = lemon_text.render(lemon_view.of(nights.busy()))
    heads = ["NEW LEMONS", "STILL LEMONS", "NO LONGER LEMONS", "SUSPECTS", "Not recalibrated"]
    assert sorted(heads, key=text.index) == heads
    assert "  > probing-ctl drain n7 --reason 'lemon, 6 failures'    # take it out after its jobs\n" in text
    assert "  - It failed again after 1 repair.\n" in text
    assert all(len(line) <= lemon_text.WIDTH for line in text.splitlines() if "probing-" not in line)


def test_a_terminals_escape_never_gets_through() -> None:
    """What a foreign string brings is stripped."""
    evil = nights.score("n7", "new", reasons=("\x1b[2Jgone\u202e",))
    assert "\x1b" not in lemon_text.render(lemon_view.of(nights.night(evil)))
