"""One line per verdict behind what others wrote, never over it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.control_plane.owners import write_back
from probing_cluster.core import records
from tests.every_case import every

AT = datetime(2026, 11, 22, tzinfo=UTC)


def verdict(**changes: object) -> records.Verdict:
    values: dict[str, object] = {
        "cluster": "c", "job_id": 7, "submit_at": AT, "attempt": 1, "cause": "gpu_lost", "domain": records.Domain.HARDWARE,
        "node": "n2", "device": "gpu3", "confidence": records.Confidence.CERTAIN, "summary": "GPU 3 fell off the bus.",
        "rules_version": "1", "made_at": AT,
    }  # fmt: skip
    return records.Verdict(**(values | changes))


LINE = "probing #1: gpu_lost (certain) n2 gpu3: GPU 3 of n2 fell off the bus."


@pytest.mark.parametrize("text", ["", "mine", "mine; and yours", "; ;", "probing: my own words", "a=b;c"])
def test_others_words_stay_to_the_letter(text: str) -> None:
    """Whatever stood there stands there still, in front; a second look changes nothing."""
    new = write_back.appended(text, [verdict()])
    assert new == (f"{text}; {LINE}" if text else LINE)
    assert write_back.appended(new, [verdict()]) is None


@pytest.mark.parametrize(
    ("text", "small"),
    [("it's mine", False), ('say "x"', False), ("Train LLaMA", True), ("'x", True)],
)
def test_words_that_a_write_would_change_are_left_alone(text: str, small: bool) -> None:
    """sacctmgr writes the whole field: quotes come back as backquotes, and before 23.02 capitals as small letters."""
    assert write_back.appended(text, [verdict()], small=small) is None
    assert write_back.appended(write_back._as_stored(text, small=small), [verdict()], small=small)


def test_our_line_is_known_again_as_it_is_stored() -> None:
    """Else it were written anew at every look."""
    new = write_back.appended("mine", [verdict()], small=True)
    assert new == f"mine; {LINE.lower()}"
    assert write_back.appended(new, [verdict()], small=True) is None


def test_a_newer_verdict_takes_the_place_of_ours_alone() -> None:
    """Each attempt has one line."""
    first = write_back.appended("mine", [verdict()])
    assert first is not None
    new = write_back.appended(first, [verdict(cause="nccl", summary="x"), verdict(attempt=2, cause="oom")])
    assert new is not None
    assert new.split("; ")[0] == "mine"
    assert [p.split(" (")[0] for p in new.split("; ")[1:]] == ["probing #1: nccl", "probing #2: oom"]


def test_a_full_field_is_left_alone() -> None:
    """Nothing is cut to make room."""
    assert write_back.appended("x" * 3990, [verdict()]) is None


@pytest.mark.parametrize(
    "summary",
    [
        "GPU 3 fell off the bus. Its last line: mine alone",
        "The program failed; its last line: mine alone; the exception above it: mine alone.",
        "GPU 3 of n2 fell off the bus (reported only by the job itself: mine alone).",
    ],
)
def test_no_text_of_the_program_is_shown_to_everybody(summary: str) -> None:
    """Any user may read the field; the owner has the summary in the report."""
    assert write_back.line(verdict(summary=summary)) == LINE


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("user_error", "probing #1: user_error (certain): The program ended with an error of its own."),
        ("unknown", "probing #1: unknown (certain): No evidence explains the end."),
        ("of_a_later_release", "probing #1: of_a_later_release (certain)"),
    ],
)
def test_a_cause_without_a_machine_is_in_its_own_words(cause: str, line: str) -> None:
    """A cause that this release does not know has none."""
    assert write_back.line(verdict(cause=cause, node=None, device=None, summary="mine alone")) == line


@every("cause", sorted(taxonomy.load().causes))
def test_every_cause_has_a_line(cause: str) -> None:
    """Whole, without a name that was not filled in."""
    for changes in ({}, {"node": None}, {"device": None}, {"node": None, "device": None}):
        line = write_back.line(verdict(cause=cause, **changes))
        assert line.endswith(".")
        assert not set(line) & set("{}")


def test_no_name_breaks_the_line() -> None:
    """Quotes (which accounting turns into others), separators and breaks are taken out."""
    line = write_back.line(verdict(device='it\'s `x` | "y"; z\n\x1b[1m'))
    assert not set(line) & set("'\"`|;\n\x1b\\")
    assert write_back.appended(line, [verdict(device='it\'s `x` | "y"; z\n\x1b[1m')]) is None
