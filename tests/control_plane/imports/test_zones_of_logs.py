"""Times without a zone: read as UTC and noted, in the zone a header names, and hinted at where whole hours are off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.control_plane.imports import load, named_zones

NOW = datetime(2026, 11, 27, tzinfo=UTC)
XID = "kernel: NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
NOTE = "its times name no zone: read as UTC (--timezone TZ names another)"


def read(tmp_path: Path, text: str, timezone: str | None = None, end: str = "11:00:00") -> load.ImportFiles:
    """A job on n1 that failed at `end` UTC, and the node's log."""
    (tmp_path / "sacct").write_text(
        "JobID|State|Submit|Start|End|NodeList\n"
        f"7|FAILED|2026-11-24T08:00:00+00:00|2026-11-24T08:00:00+00:00|2026-11-24T{end}+00:00|n1\n"
    )
    (tmp_path / "n1").write_text(text)
    return load.read(
        load.LoadOrder(
            sacct=[tmp_path / "sacct"],
            kernel=[("n1", tmp_path / "n1")],
            timezone=timezone,
            cluster="c",
            now=NOW,
        )
    )


@pytest.mark.parametrize(
    ("stamp", "timezone", "is_noted"),
    [
        ("Nov 24 10:59:30 n1", None, True),
        ("2026-11-24T10:59:30 n1", None, True),
        ("[Tue Nov 24 10:59:30 2026]", None, True),
        ("Nov 24 10:59:30 n1", "UTC", False),
        ("2026-11-24T10:59:30+00:00 n1", None, False),
        ("2026-11-24T10:59:30Z n1", None, False),
        ("Tue 2026-11-24 11:59:30 CET n1", None, False),
    ],
)
@pytest.mark.parametrize("words", [XID, "kernel: usb 1-1: new device"])
def test_a_log_without_a_zone_is_noted(
    tmp_path: Path, stamp: str, timezone: str | None, is_noted: bool, words: str
) -> None:
    """As rows of accounting are; also where the log holds nothing, since what it covers is dated too."""
    (found,) = (one.found for one in read(tmp_path, f"{stamp} {words}\n", timezone).events)
    assert (NOTE in found.notes) == is_noted
    assert all(e.at.strftime("%H:%M") == "10:59" for e in (*found.events, *found.covers))


def test_the_first_line_of_a_journal_names_the_zone(tmp_path: Path) -> None:
    """Of winter's CET nobody differs in November; the person's own word goes before it."""
    header = "-- Logs begin at Mon 2026-11-23 00:00:00 CET, end at Wed 2026-11-25 00:00:00 CET. --\n"
    (one,) = read(tmp_path, f"{header}Nov 24 11:59:00 n1 {XID}\n").events
    assert one.found.events[0].at == datetime(2026, 11, 24, 10, 59, tzinfo=UTC)
    assert one.found.notes == ["its times are read as CET, which its first line names"]
    (one,) = read(tmp_path, f"{header}Nov 24 11:59:00 n1 {XID}\n", "Asia/Tokyo").events
    assert one.found.events[0].at == datetime(2026, 11, 24, 2, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begin", "end", "is_named"),
    [
        ("2026-11-23 00:00:00 CET", "2026-11-25 00:00:00 CET", True),
        ("2026-07-01 00:00:00 EDT", "2026-07-05 00:00:00 EDT", True),
        ("2026-07-01 00:00:00 CEST", "2026-11-25 00:00:00 CET", True),
        ("2026-11-23 00:00:00 UTC", "2026-11-25 00:00:00 UTC", True),
        ("2026-11-23 00:00:00 CST", "2026-11-25 00:00:00 CST", False),
        ("2026-11-23 00:00:00 IST", "2026-11-25 00:00:00 IST", False),
        ("2026-11-23 00:00:00 XYZ", "2026-11-25 00:00:00 XYZ", False),
    ],
)
def test_a_zones_name_counts_where_it_means_one_thing(begin: str, end: str, is_named: bool) -> None:
    """CST is Chicago's and Shanghai's: then nothing is taken from it."""
    named = named_zones.of_header(f"-- Journal begins at Mon {begin}, ends at Wed {end}. --")
    assert (named is not None) == is_named


def test_a_name_means_what_clocks_called_so_then() -> None:
    """The hour in which summer ends is called by both names."""
    assert named_zones.offset("CEST", datetime(2026, 7, 1, tzinfo=UTC)) == timedelta(hours=2)
    assert named_zones.offset("CET", datetime(2026, 10, 25, 2, 30, tzinfo=UTC)) == timedelta(hours=1)
    assert named_zones.offset("CST", datetime(2026, 7, 1, tzinfo=UTC)) is None
    assert named_zones.offset("EDAC", datetime(2026, 7, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("stamps", "hint"),
    [
        (["09:59:30"], "1 hour before the end of job 7"),
        (["14:59:00"], "4 hours after the end of job 7"),
        (["09:30:00"], ""),
        (["10:58:00"], ""),
        (["09:59:30", "10:59:00"], ""),
    ],
)
def test_whole_hours_between_a_fault_and_an_end_are_hinted_at(
    tmp_path: Path, stamps: list[str], hint: str
) -> None:
    """A fault right before the end, but for the zone; not where one lies near it, or the hours are not whole."""
    text = "".join(f"2026-11-24T{at} n1 {XID}\n" for at in stamps)
    (one,) = read(tmp_path, text).events
    assert any("(--timezone)?" in note for note in one.found.notes) == bool(hint)
    assert hint in " ".join(one.found.notes)
    zoned = "".join(f"2026-11-24T{at}+00:00 n1 {XID}\n" for at in stamps)
    assert read(tmp_path, zoned).events[0].found.notes == []
