"""Results for people, at 80 columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.healthchecks import site, table


def result(name: str, outcome: records.Outcome, message: str, **more: Any) -> records.CheckResult:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    return records.CheckResult(
        cluster="c",
        node="n",
        name=name,
        outcome=outcome,
        severity=records.Severity.LOW,
        message=message,
        at=at,
        **more,
    )


SOME = [
    result("disk_space", records.Outcome.OK, "fine"),
    result("load", records.Outcome.WARN, "load 300.0 on 64 CPUs over 15 min", threshold=4.0, unit="per_cpu"),
    result("unauthorized_processes", records.Outcome.FAIL, "x" * 100, threshold=2**31, unit="bytes"),
    result("dns", records.Outcome.ERROR, "getent gave no answer in 5 s", timed_out=True),
    result("raid", records.Outcome.ABSENT, "no software RAID array"),
]


def test_worst_first_within_80_columns() -> None:
    """Failures first, then errors, warnings and the rest; absent ones in one line; nothing wider than 80."""
    lines = table.render(SOME).splitlines()
    assert max(len(line) for line in lines) <= 80
    order = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert order[:5] == ["outcome", "fail", "error*", "warn", "ok"]
    assert "absent (1; nothing here for them to judge): raid" in lines
    assert "* ended by its deadline" in lines
    assert any(line.endswith("2 GiB") for line in lines)


def test_every_one_when_asked() -> None:
    """With `every`, absent checks have their own rows and reasons."""
    assert "no software RAID array" in table.render(SOME, every=True)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "c", ""),
        (0.9, "frac", "90 %"),
        (89.0, "c", "89 °C"),
        (1536.0, "bytes", "1.5 KiB"),
        (12.0, "bytes", "12 B"),
        (8.0, "count", "8"),
        (120.0, "per_hour", "120/h"),
        (400.0, "gbps", "400 Gb/s"),
        (0.25, "s", "0.25 s"),
        (3.0, None, "3"),
    ],
)
def test_numbers(value: float | None, unit: str | None, text: str) -> None:
    """Limits with their units as people write them."""
    assert table.number(value, unit) == text


def test_listing_fits() -> None:
    """The list of checks fits 80 columns and tells which are off."""
    text = table.listing(list(site.parse("[checks.load]\nenabled = false").plan("n").values()))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert any(line.split()[:2] == ["load", "no"] for line in text.splitlines())


def test_explain_fits() -> None:
    """Long paragraphs are wrapped under their label."""
    text = table.explain("x", [("proves", "word " * 60)])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.splitlines()[1].startswith("  proves      word")
