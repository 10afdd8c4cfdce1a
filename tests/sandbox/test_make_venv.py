"""sandbox/make_venv.sh: an environment that does not run for the one who asks says so in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "sandbox" / "make_venv.sh"


def check(venv: Path) -> subprocess.CompletedProcess[str]:
    """What `make demo` asks before it runs a command of the environment."""
    return subprocess.run(
        ["sh", SCRIPT, sys.executable, venv, "check"], capture_output=True, text=True, timeout=60, check=False
    )


def test_an_environment_whose_python_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    """As in a clone that another account made: the cause and the way out, not the shell's error 127."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "another" / "python3")
    done = check(tmp_path / ".venv")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "does not run for" in line
    assert f"its Python, {tmp_path}/another/python3, is gone or not yours to run" in line
    assert "make a clone of your own" in line


def test_an_environment_that_runs_passes(tmp_path: Path) -> None:
    """Silently, and nothing is made of one that is not there."""
    python = tmp_path / ".venv" / "bin" / "python"
    assert check(tmp_path / ".venv").returncode == 0
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    done = check(tmp_path / ".venv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
