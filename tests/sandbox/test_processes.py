"""Starting, finding and ending processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox import ports, processes


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory whose processes are ended afterwards."""
    yield tmp_path
    processes.end_all(tmp_path)


def _start(role: str, script: str, run: Path) -> int:
    env = {**os.environ, processes.MARK: str(run)}
    return processes.start(role, ["sh", "-c", script], env=env, run=run, log=run / f"{role}.out")


def test_a_started_process_is_found_by_its_mark_with_its_role(run: Path) -> None:
    """The mark in the environment finds it, children included, and names what it was started as."""
    pid = _start("a", "sleep 100 & wait", run)
    other = _start("b", "exec sleep 100", run)
    processes.wait_until(lambda: len(processes.listing(run)) == 3, "no children", timeout_s=5)
    assert {p.role for p in processes.listing(run)} == {"a", "b"}
    assert processes.pids_of(run, "b") == [other]
    assert pid in processes.pids_of(run, "a")


def test_descendants_that_hide_the_mark_are_found_by_ancestry(run: Path) -> None:
    """A child with an emptied environment still belongs to its parent's role."""
    _start("a", "env -i sleep 100 & wait", run)
    processes.wait_until(lambda: len(processes.pids_of(run, "a")) == 2, "the child is not found", timeout_s=5)


def test_a_process_that_ignores_sigterm_is_killed(run: Path) -> None:
    """Ending is certain: what does not go when asked is killed, and no other role is touched."""
    _start("stubborn", "trap '' TERM; while :; do sleep 0.1; done", run)
    _start("bystander", "exec sleep 100", run)
    processes.end(run, ["stubborn"], timeout_s=0.3)
    assert {p.role for p in processes.listing(run)} == {"bystander"}


def test_our_own_shell_is_never_among_the_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command typed inside `probing-sandbox shell` does not end that shell."""
    found = {p.pid for p in processes.listing(run)}
    assert os.getpid() not in found
    assert os.getppid() not in found


def test_a_daemon_that_ends_at_once_is_an_error_with_its_last_words(run: Path) -> None:
    """Nobody waits a minute for a process that is gone."""
    with pytest.raises(processes.CommandFailed, match="x ended at once: no such database"):
        processes.start_ready(
            "x",
            ["sh", "-c", "echo no such database; exit 3"],
            env={**os.environ, processes.MARK: str(run)},
            run=run,
            log=run / "x.out",
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
    with pytest.raises(processes.CommandFailed, match=why):
        processes.run(argv, env=os.environ, timeout_s=0.1 if argv[0] == "sleep" else 10)


def test_chosen_ports_are_free_distinct_and_never_standard() -> None:
    """Ports lie above the standard ones and below those of outgoing connections."""
    chosen = ports.choose(66)
    assert len(set(chosen)) == 66
    assert all(18_000 <= port < 32_000 for port in chosen)
    assert not any(ports.answers(port) for port in chosen[:5])
