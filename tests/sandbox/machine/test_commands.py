"""Starting daemons and running commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import commands, processes


def test_a_daemon_that_ends_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """Nobody waits a minute for a process that is gone."""
    with pytest.raises(commands.CommandFailed, match="x ended at once: no such database"):
        commands.start_ready(
            "x",
            ["sh", "-c", "echo no such database; exit 3"],
            env={**os.environ, processes.MARK: str(tmp_path)},
            run=tmp_path,
            log=tmp_path / "x.out",
            ready=lambda: False,
        )


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["sh", "-c", "echo nope >&2; exit 3"], "ended with 3: nope"),
        (["sleep", "10"], "did not end within 0.1 s"),
        (["/no/such/command"], "cannot be run: No such file"),
    ],
)
def test_a_failing_command_is_one_line(argv: list[str], why: str) -> None:
    """The error names the command and what it said, how long it took, or why it did not start."""
    with pytest.raises(commands.CommandFailed, match=why):
        commands.run(argv, env=os.environ, timeout_s=0.1 if argv[0] == "sleep" else 10)
