from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.site import completion_commands


def offered(script: Path, line: str) -> list[str]:
    """What bash offers after `line`, the script loaded."""
    ask = f"""
source {script}
COMP_WORDS=({line} "${{1-}}"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
$(complete -p "${{COMP_WORDS[0]}}" | sed -E 's/.*-F ([^ ]+).*/\\1/') "${{COMP_WORDS[0]}}" "" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.split()


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The bash script as a site installs it."""
    assert main.main(["completion", "bash"]) == 0
    made = tmp_path / "probing-cluster"
    made.write_text(capsys.readouterr().out)
    return made


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("probing-ctl", {"nodes", "fleet", "doctor", "lemon"}),
        ("probing-ctl lemon", {"report", "confirm"}),
        ("probing-check", {"run", "explain"}),
    ],
)
def test_bash_offers_the_commands(script: Path, line: str, words: set[str]) -> None:
    """In a real bash, from the written script alone: none of our code runs at a key."""
    assert words <= set(offered(script, line))


@pytest.mark.parametrize("shell", completion_commands.SHELLS)
def test_every_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One command, one script."""
    assert main.main(["completion", shell, "probing-report"]) == 0
    printed = capsys.readouterr().out
    assert "probing-report" in printed
    assert "html" in printed


def test_what_is_no_command_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3 and a sentence."""
    assert main.main(["completion", "bash", "ls"]) == 3
    assert "'ls' is none of probing-ctl" in capsys.readouterr().err
