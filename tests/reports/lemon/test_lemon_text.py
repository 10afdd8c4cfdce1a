from __future__ import annotations

import lemon_nights as nights

from probing_cluster.reports.lemon import lemon_text, lemon_view


def test_a_quiet_night_says_why_none_is_a_lemon() -> None:
    """Never blank: the sentence, and the likeliest nodes with what speaks for each."""
    lines = lemon_text.render(lemon_view.of(nights.night())).splitlines()
    assert lines[0] == "c, 2026-11-20: quiet night, no lemon (2 nodes scored)"
    assert " ".join(lines[2:4]).startswith("No node is a lemon: none failed often enough")
    assert lines[-2:] == [
        "  n90  under 1 %  one failure, which is no pattern",
        "  n91  under 1 %  no failure in 28 days",
    ]


def test_a_night_without_nodes_is_not_blank_either() -> None:
    """Nothing in use is said, not shown as an empty page."""
    text = lemon_text.render(lemon_view.of(nights.night(scores=())))
    assert "No node is a lemon: none was in use in the 28 days looked at." in text


def test_a_night_with_a_lemon_ranks_nobody_else() -> None:
    """Who is guilty comes first; the innocent are not listed under it."""
    assert "None is a lemon" not in lemon_text.render(lemon_view.of(nights.busy()))


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
