"""`python -m benchmarks` knows every measurement there is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
APART = ("probe_agent.agent_rig", "evidence.coverage_fuzz", "campaign.", "blind.")
"""Not measurements by themselves: a rig, a fuzzer that runs until stopped, the campaign and strangers' cases with commands of their own."""


@pytest.fixture
def listed() -> ModuleType:
    """The list; benchmarks are no package of the product."""
    spec = importlib.util.spec_from_file_location("benchmarks_main", ROOT / "benchmarks/__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_measurement_is_listed(listed: ModuleType) -> None:
    """A new file with a `main` that nobody listed would never be run again."""
    found = {
        ".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts)
        for path in (ROOT / "benchmarks").rglob("*.py")
        if "def main(" in path.read_text() and path.name != "__main__.py"
    }
    wanted = sorted(name for name in found if not name.startswith(APART))
    assert sorted(one.name for one in listed.BENCHMARKS) == wanted


def test_every_measurement_has_its_row_in_the_manual(listed: ModuleType) -> None:
    """docs/benchmarks.md says for each what was measured, where and with which command."""
    manual = (ROOT / "docs/benchmarks.md").read_text()
    for one in listed.BENCHMARKS:
        assert f"benchmarks.{one.name}" in manual, one.name


def test_every_command_is_understood(listed: ModuleType) -> None:
    """The arguments of the list are ones that the benchmark has."""
    for one in listed.BENCHMARKS:
        source = (ROOT / "benchmarks" / f"{one.name.replace('.', '/')}.py").read_text()
        for word in (*one.short, *one.whole):
            if word.startswith("--"):
                assert f'"{word}"' in source, (one.name, word)


def test_what_cannot_run_here_is_left_out_and_said(
    listed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing tool is no failure, and no silence."""
    monkeypatch.setitem(listed.NEEDS, "slurm", ("root and Debian's Slurm", lambda: False))
    outcome = listed.run(next(b for b in listed.BENCHMARKS if b.name == "spine"), short=True)
    assert (outcome.state, outcome.last_line) == ("left out", "needs root and Debian's Slurm")
    assert "| spine | left out | 0 | needs root and Debian's Slurm |" in listed.table([outcome])
