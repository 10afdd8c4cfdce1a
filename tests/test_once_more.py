"""A test that fails twice fails the gate; one that fails once is named; failures in four files, or nine in one, are not run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("once_more.py")
FLAKY = "from pathlib import Path\ndef test_{n}():\n    seen = Path('seen-{n}')\n    was = seen.exists()\n    seen.touch()\n    assert was\n"
BROKEN = "def test_{n}():\n    assert False\n"


def _gate(tmp_path: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """One run of pytest over the tests in a folder of their own, and what the gate makes of its end."""
    for n, text in enumerate(tests):
        (tmp_path / f"test_{n}.py").write_text(text.format(n=n))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q"]
    # These tests need none of pytest's plugins, which cost each run more than all else.
    own = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, env=own, check=False)
    argv = [sys.executable, str(PROGRAM), str(first.returncode), *command]
    return subprocess.run(argv, cwd=tmp_path, capture_output=True, env=own, text=True, check=False)


def test_a_test_that_passes_alone_is_named_and_the_gate_goes_on(tmp_path: Path) -> None:
    ended = _gate(tmp_path, FLAKY, "def test_{n}():\n    pass\n")
    assert ended.returncode == 0
    assert "FAILED ONCE, PASSED ALONE: test_0.py::test_0" in ended.stdout


def test_a_test_that_fails_twice_fails_the_gate(tmp_path: Path) -> None:
    ended = _gate(tmp_path, FLAKY, BROKEN)
    assert ended.returncode == 1
    assert "PASSED ALONE" not in ended.stdout


def test_failures_in_four_files_are_not_run_again(tmp_path: Path) -> None:
    ended = _gate(tmp_path, FLAKY, FLAKY, FLAKY, FLAKY)
    assert ended.returncode == 1
    assert "4 tests failed: none is run again" in ended.stdout


def test_tests_that_share_a_file_fall_together(tmp_path: Path) -> None:
    """Four of one file, which shares its cluster, are run again; nine are too many."""
    four = "".join(FLAKY.replace("{n}", f"{{n}}_{k}") for k in range(4))
    assert _gate(tmp_path, four).returncode == 0
    nine = "".join(BROKEN.replace("{n}", f"{{n}}_{k}") for k in range(9))
    assert "9 tests failed: none is run again" in _gate(tmp_path, nine).stdout


@pytest.mark.parametrize("status", [2, 3, 4, 5])
def test_what_is_no_failed_test_ends_the_gate(tmp_path: Path, status: int) -> None:
    argv = [sys.executable, str(PROGRAM), str(status), sys.executable, "-c", "raise SystemExit(0)"]
    assert subprocess.run(argv, cwd=tmp_path, check=False).returncode == status


def test_they_run_again_in_the_order_of_their_file(tmp_path: Path) -> None:
    """Tests that share a cluster rely on it: the second of these passes only after the first."""
    first = (
        "from pathlib import Path\n"
        "def test_z{n}():\n    was = Path('z').exists()\n    Path('z').touch()\n    assert was\n    Path('again').touch()\n"
    )
    second = "def test_a{n}():\n    assert Path('again').exists()\n"
    assert _gate(tmp_path, first + second).returncode == 0
