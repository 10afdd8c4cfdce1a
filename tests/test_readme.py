"""The README shows what the product prints, and what it prints is true."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from probing_cluster.sandbox.demo import readme, recording

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_the_generated_parts_are_current() -> None:
    """The report is what a replay of the recorded incident prints now."""
    assert readme.current() == TEXT, "run: python -m probing_cluster.sandbox.demo.readme"


def test_every_figure_of_the_report_follows_from_the_recording() -> None:
    """Times, ETTR, the distance from fault to end: recomputed here from the recorded rows, by hand."""
    incident = recording.load(readme.RECORDING)
    first, second = sorted(incident.attempts, key=lambda a: a.submit_at)
    assert first.end_at is not None
    assert second.start_at is not None
    assert second.end_at is not None
    report = TEXT.split("<!-- report -->", 1)[1].split("<!-- /report -->", 1)[0]

    def clock(at: datetime) -> str:
        return f"{at:%H:%M:%S}Z"

    for attempt in (first, second):
        assert attempt.start_at is not None
        assert attempt.end_at is not None
        assert f"{clock(attempt.start_at)} -> {clock(attempt.end_at)}  {attempt.state}" in report
    wall_s = (second.end_at - first.submit_at).total_seconds()
    ran_s = [(a.end_at - a.start_at).total_seconds() for a in (first, second) if a.end_at and a.start_at]
    requeue_gap_s = (second.submit_at - first.end_at).total_seconds()
    queued_s = sum((a.start_at - a.submit_at).total_seconds() for a in (first, second) if a.start_at)
    assert wall_s == sum(ran_s) + requeue_gap_s + queued_s
    # The sandbox assumes a checkpoint every 10 s (half of it is lost) and one second of start-up.
    productive_s = sum(ran_s) - 2 * 1.0 - 5.0
    ettr = productive_s / (wall_s - requeue_gap_s)
    assert f"ETTR {ettr:.2f} " in report
    fault_at = min(e.at for e in incident.events if e.kind == "xid")
    stated_s = re.search(r"\(Xid 79\) (\d+) s before the job ended", report)
    assert stated_s is not None
    assert int(stated_s[1]) == round((first.end_at - fault_at).total_seconds())


def test_the_commands_of_the_readme_exist() -> None:
    """A newcomer types what stands there."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^    make (\w+)", TEXT, re.MULTILINE)) <= targets
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_ci_runs_the_readmes_command_and_nothing_of_its_own() -> None:
    """A fresh clone passes by what the README says: no variable set in .ci/run, none that `make test` needs."""
    (command,) = re.findall(r"^    (make test)\b", TEXT, re.MULTILINE)
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "make test" in line] == [f"exec {command}"]
    assert lines[-1] == f"exec {command}"
    assert not any(re.match(r"(export\s+)?\w+=", line) for line in lines)


def test_the_manual_names_what_the_gate_leaves_out() -> None:
    """Each file with a test marked soak or longer has its row in docs/testing.md."""
    page = (ROOT / "docs/testing.md").read_text()
    marked = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r"\bmark\.(soak|longer)\b", path.read_text())
    ]
    assert len(marked) >= 5
    assert [path.name for path in marked if path.name not in page and path != Path(__file__)] == []


def test_the_pictures_are_small() -> None:
    """A clone is not made heavy by them."""
    pictures = set(re.findall(r"\((docs/\w+\.png)\)", TEXT))
    assert len(pictures) == 3
    assert all((ROOT / name).stat().st_size < 200_000 for name in pictures)


def test_what_runs_alone_is_where_make_looks_for_it() -> None:
    """`make unit` collects only this folder a second time; the soak collects all."""
    assert (ROOT / "Makefile").read_text().count("pytest tests/e2e") == 1
    marked = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"\bmark\.alone\b", path.read_text())
    ]
    elsewhere = [path for path in marked if path.parent.name != "e2e"]
    assert len(elsewhere) < len(marked)
    assert all("pytestmark = [pytest.mark.soak, pytest.mark.alone" in path.read_text() for path in elsewhere)
