"""Merging findings."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings

OK = findings.ok("fine")


def test_worst_speaks_and_the_others_are_listed() -> None:
    """The worst finding's device and message are the result's; the others are named and kept."""
    low = findings.fail("b is pending", device="b", severity=records.Severity.LOW)
    high = findings.fail("c is dead", device="c", measured=1.0)
    merged = findings.merge([OK, findings.warn("a", device="a"), low, high], healthy="all fine")
    assert (merged.outcome, merged.device, merged.measured) == (records.Outcome.FAIL, "c", 1.0)
    assert merged.message == "c is dead (and 2 more: a, b)"
    assert [f["device"] for f in merged.detail["findings"]] == ["c", "a", "b"]


def test_blindness_outranks_a_warning() -> None:
    """A part that could not be read is not hidden behind another part's warning."""
    merged = findings.merge(
        [findings.warn("warm", device="a"), findings.unseen("blind", device="b")], healthy=""
    )
    assert merged.outcome is records.Outcome.ERROR


def test_nothing_to_judge_is_absent() -> None:
    """No part at all, or only absent ones, is absent and never ok."""
    assert findings.merge([], healthy="x").outcome is records.Outcome.ABSENT
    assert findings.merge([findings.absent("none")], healthy="x").outcome is records.Outcome.ABSENT


def test_all_well_says_so() -> None:
    """Only healthy (and absent) parts give ok with the healthy sentence."""
    merged = findings.merge([OK, findings.absent("none")], healthy="2 parts fine")
    assert (merged.outcome, merged.message) == (records.Outcome.OK, "2 parts fine")


def test_long_lists_are_bounded() -> None:
    """A thousand broken parts make one result of bounded size that still tells the number."""
    merged = findings.merge([findings.fail("x", device=str(i)) for i in range(1000)], healthy="")
    assert len(merged.detail["findings"]) == findings.MAX_LISTED
    assert merged.detail["findings_total"] == 1000


def test_a_finding_never_raises_the_severity() -> None:
    """The milder of two severities wins, in either order."""
    high, low = records.Severity.HIGH, records.Severity.LOW
    assert findings.least(high, low) is low
    assert findings.least(low, high) is low


def test_plural() -> None:
    """One thing has no s."""
    assert [findings.plural(n, "port") for n in (0, 1, 2)] == ["0 ports", "1 port", "2 ports"]


def test_too_few_is_one_failure_with_both_numbers() -> None:
    """Fewer than wanted fail with what was counted and what should be there; enough, or no wanted number, is nothing."""
    (found,) = findings.too_few(3, 4, "arrays")
    assert (found.outcome, found.message) == (records.Outcome.FAIL, "3 of 4 arrays")
    assert (found.measured, found.threshold, found.unit) == (3.0, 4.0, "count")
    assert findings.too_few(4, 4, "arrays") == findings.too_few(0, None, "arrays") == []
