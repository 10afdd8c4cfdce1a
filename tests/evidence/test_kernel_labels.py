"""Accuracy on the labelled real lines: precision and recall 1.00, by kind, code, PCI address, pid and process."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.kernel import reader

DECISIONS = {
    "gpu_fallen_no_xid": {"none", "gpu_lost"},
    "gpu_fallen_dup": {"none"},
    "rc_watchdog": {"none"},
    "access_reg_failed": {"none"},
    "aer_injected": {"none"},
}
"""What we answer for the `none` rows that carry a sub-code; docs/evidence.md says why."""


@pytest.fixture
def rows(shared_samples: Path) -> list[list[str]]:
    text = (shared_samples / "kernel_lines.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.split("\n")[1:] if line]


def test_every_labelled_line_is_read_as_labelled(rows: list[list[str]]) -> None:
    """Precision and recall are 1.00: no line missed, none invented, every field as labelled."""
    read = reader.KernelReader()
    wrong = []
    for line, kind, code, pci, pid, process, *_ in rows:
        found = read.read_line(line)
        got = found[1] if found else None
        if kind == "none" and code:
            if (got.kind if got else "none") not in DECISIONS[code]:
                wrong.append((line, code, got))
            continue
        have = ("none", "", "", "", "")
        if got:
            shown_pid = "" if got.pid is None else str(got.pid)
            have = (got.kind, got.code or "", got.pci_bus_id or "", shown_pid, got.process or "")
        if have != (kind, code, pci, pid, process):
            wrong.append((line, (kind, code, pci, pid, process), have))
    assert wrong == []


def test_the_lost_gpu_without_an_xid_is_found_with_its_address(rows: list[list[str]]) -> None:
    """Of the three-line message, the last line is the event and carries the first line's PCI address."""
    lines = [r[0].encode() for r in rows]
    lost = [f for f in classify.classify_stream(lines, "kernel") if f["kind"] == "gpu_lost"]
    assert [(f["code"], f["pci_bus_id"], f["severity"]) for f in lost] == [
        ("gpu_fallen_no_xid", "0000:b3:00.0", "high")
    ]


def test_a_labelled_line_says_the_same_alone_or_among_others(rows: list[list[str]]) -> None:
    """No kind depends on the lines around it, except what repeats an Xid 79 or continues a report."""
    lines = [r[0].encode() for r in rows]
    together = {f["line"]: f["kind"] for f in classify.classify_stream(lines, "kernel")}
    alone = {}
    for number, line in enumerate(lines, 1):
        for finding in classify.classify_stream([line], "kernel"):
            alone[number] = finding["kind"]
    differing = {n for n in set(together) | set(alone) if together.get(n) != alone.get(n)}
    assert {rows[n - 1][2] for n in differing} <= {"gpu_fallen_dup", "gpu_fallen_no_xid"}
