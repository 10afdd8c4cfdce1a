"""The one reader of the BMC's event log."""

from datetime import UTC, datetime

import pytest

from probing_cluster.healthchecks.readers import sel


@pytest.mark.parametrize("bar", [" | ", ","])
def test_both_forms_are_one_log(bar):
    """The check asks for the form for people, the agent for CSV; an entry is the same entry in both."""
    line = bar.join(("1a", "01/31/2026", "14:02:11", "Fan 3", "Lower Critical going low ", "Deasserted"))
    (entry,) = sel.parse(f"  {line}\n")
    assert entry.identity == "1a:01/31/2026 14:02:11:Fan 3"
    assert (entry.sensor, entry.event) == ("Fan 3", "Lower Critical going low")
    assert (entry.at, entry.asserted) == (datetime(2026, 1, 31, 14, 2, 11, tzinfo=UTC), False)
    assert entry.text == "Fan 3 Lower Critical going low Deasserted"


def test_a_bar_inside_a_csv_event_and_a_comma_inside_a_row_of_bars():
    """Vendors put both into an event's words."""
    (by_comma,) = sel.parse("3,01/31/2026,14:00:00,Memory #0x87,Uncorrectable ECC (ECC | DIMM A1),Asserted")
    assert by_comma.event == "Uncorrectable ECC (ECC | DIMM A1)"
    (by_bar,) = sel.parse("3 | 01/31/2026 | 14:00:00 | Memory #0x87 | ECC, DIMM A1 | Asserted")
    assert (by_bar.event, by_bar.asserted) == ("ECC, DIMM A1", True)


def test_before_the_clock_was_set_and_what_is_no_entry():
    """An entry without a date stays an entry; a line without a hexadecimal number is none."""
    (entry,) = sel.parse(
        "SEL has no entries\n 2 | Pre-Init  |0000000037| PS2 | AC lost | Asserted\nx|1|2|3|4"
    )
    assert (entry.at, entry.identity) == (None, "2:Pre-Init 0000000037:PS2")
