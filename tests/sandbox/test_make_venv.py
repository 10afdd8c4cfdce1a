"""sandbox/make_venv.sh: an environment that does not run for the one who asks says so in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "sandbox" / "make_venv.sh"


def check(venv: Path) -> subprocess.CompletedProcess[str]:
    """What `make demo` asks before it runs a command of the environment."""
    return script(sys.executable, venv, "check")


def script(python: str | Path, venv: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", SCRIPT, python, venv, what], capture_output=True, text=True, timeout=60, check=False
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


def interpreter(path: Path, base: Path) -> Path:
    """A Python that says it lies at `base`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncase "$2" in *realpath*) echo {base} ;; esac\n')
    path.chmod(0o755)
    return path


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path) -> None:
    """`make PYTHON=/usr/bin/python3 setup` is the way out of a Python that users cannot run; make's own default changes nothing."""
    venv, python = tmp_path / ".venv", tmp_path / "python3.11"
    interpreter(venv / "bin/python", Path("/usr/bin/old"))
    interpreter(python, Path("/usr/bin/old"))
    assert script(python, venv, "python").returncode == 0
    assert venv.exists()
    interpreter(python, Path("/usr/bin/new"))
    assert script("python3", venv, "python").returncode == 0
    assert venv.exists()
    done = script(python, venv, "python")
    assert done.returncode == 0, done.stderr
    assert f"{venv} was made with /usr/bin/old; it is made anew with /usr/bin/new" in done.stdout
    assert not venv.exists()


def test_a_python_that_only_one_account_can_run_is_warned_of(tmp_path: Path) -> None:
    """Below a closed home, as root's, no other user gets as far as the interpreter."""
    home, venv = tmp_path / "home", tmp_path / ".venv"
    home.mkdir(mode=0o700)
    python = interpreter(tmp_path / "python3.11", home / "bin/python3")
    (home / "bin").mkdir()
    done = script(python, venv, "python")
    assert done.returncode == 0
    assert f"can run {home}/bin/python3: other users cannot enter {home} and get" in done.stderr
    home.chmod(0o755)
    assert f"enter {home} " not in script(python, venv, "python").stderr
