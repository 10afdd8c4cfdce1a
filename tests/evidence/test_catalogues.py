"""The catalogues are what the facts give, in our words, and never cry wolf."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from probing_cluster.core.catalogue import nvlink5, sxid, xid
from probing_cluster.core.errors import MalformedInput
from probing_cluster.evidence import generate_catalogues, page
from probing_cluster.evidence.joblog import families as joblog
from probing_cluster.evidence.kernel import reader as kernel


@pytest.fixture
def facts(shared_samples: Path) -> Path:
    return shared_samples.parent / "facts"


def test_packaged_catalogues_are_up_to_date(facts: Path) -> None:
    """What is packaged is what the generator makes of the facts today."""
    for name, text in generate_catalogues.render(facts).items():
        assert (generate_catalogues.TARGET / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("column", ["immediate_action", "likely_domains", "source", "xid", "mnemonic"])
def test_an_unknown_word_stops_the_generator(facts: Path, tmp_path: Path, column: str) -> None:
    """A new word in any column raises instead of slipping in."""
    with (facts / "xid_catalog.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    rows[3][column] = "SOMETHING new"
    copy = tmp_path / "xid_catalog.csv"
    with copy.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises((MalformedInput, KeyError)):
        list(generate_catalogues.xid_lines(copy))


@pytest.mark.parametrize("catalogue", [xid, sxid])
def test_every_entry_is_complete(catalogue: object) -> None:
    """Each code has a sentence, a domain, a next step, a source and a month."""
    for entry in catalogue.table().values():  # type: ignore[attr-defined]
        assert entry.meaning.endswith(".")
        assert entry.next_step.endswith(".")
        assert entry.domains
        assert entry.source
        assert len(entry.date) == 7


@pytest.mark.parametrize("catalogue", [xid, sxid])
def test_an_unknown_code_is_kept_and_never_critical(catalogue: object) -> None:
    """A code no table lists is called unknown and is info."""
    entry = catalogue.lookup(98765)  # type: ignore[attr-defined]
    assert (entry.code, entry.meaning, entry.severity, entry.domains) == (
        98765,
        "unknown",
        "info",
        ("unknown",),
    )


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (79, "high"),
        (48, "high"),
        (64, "high"),
        (95, "high"),
        (74, "high"),
        (119, "high"),
        (94, "low"),
        (63, "low"),
        (13, "info"),
        (31, "info"),
        (43, "info"),
        (45, "info"),
        (8, "info"),
        (109, "info"),
    ],
)
def test_severities_of_the_codes_people_meet(code: int, severity: str) -> None:
    """Faults of the node are high, what a user's program can provoke is info."""
    assert xid.lookup(code).severity == severity


def test_no_code_a_user_program_can_cause_takes_a_node() -> None:
    """Wherever the program itself is a possible cause, the severity is info."""
    assert [
        e.code for e in xid.table().values() if "user_program" in e.domains and e.severity != "info"
    ] == []


@pytest.mark.parametrize(
    ("code", "unit", "info", "status", "severity"),
    [
        (145, "RLW_REMAP", 0x82, 0x40, "high"),
        (145, "RLW_REMAP", 0x82, 0x01, "info"),
        (149, "NETIR_LINK_EVT", 0x025525C6, 0, "high"),
        (149, "NETIR_LINK_DOWN", 0x00000011, 0, "high"),
        (144, "SAW_MVB", 0x00000001, 0x8, "info"),
    ],
)
def test_nvlink5_sub_codes(code: int, unit: str, info: int, status: int, severity: str) -> None:
    """Both layouts of the first word, and the bits of the second, pick the row."""
    rule = nvlink5.decode(code, unit, info, status)
    assert rule is not None
    assert rule.severity == severity
    assert rule.date


def test_nvlink5_knows_what_it_does_not_know() -> None:
    """A unit or bits outside the table give no rule."""
    assert nvlink5.decode(145, "NEW_UNIT", 0x82, 0x40) is None
    assert nvlink5.decode(145, "RLW_REMAP", 0x3FF, 0x40) is None
    assert nvlink5.sub_code(0x025525C6) == 37


def test_several_status_bits_take_the_worst_row() -> None:
    """A fatal bit among harmless ones is fatal."""
    rule = nvlink5.decode(145, "RLW_REMAP", 0x82, 0x40 | 0x100)
    assert rule is not None
    assert rule.severity == "high"


def test_the_manual_lists_every_kind() -> None:
    """docs/evidence.md is what the families say: run `python -m probing_cluster.evidence.page`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.render(text) == text
    for kind, code in kernel.facts():
        assert f"| `{kind}` | " in text
        assert code == "*" or f"`{code}`" in text
    for kind in joblog.facts():
        assert f"| `{kind}` | " in text
