"""Starting, finding and ending processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import commands, processes


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory whose processes are ended afterwards."""
    yield tmp_path
    processes.end_all(tmp_path)


def _start(role: str, script: str, run: Path) -> int:
    env = {**os.environ, processes.MARK: str(run)}
    return commands.start(role, ["sh", "-c", script], env=env, run=run, log=run / f"{role}.out")


def test_a_started_process_is_found_by_its_mark_with_its_role(run: Path) -> None:
    """The mark in the environment finds it, children included, and names what it was started as."""
    pid = _start("a", "sleep 100 & wait", run)
    other = _start("b", "exec sleep 100", run)
    commands.wait_until(lambda: len(processes.listing(run)) == 3, "no children", timeout_s=60)
    assert {p.role for p in processes.listing(run)} == {"a", "b"}
    assert processes.pids_of(run, "b") == [other]
    assert pid in processes.pids_of(run, "a")


def test_descendants_that_hide_the_mark_are_found_by_ancestry(run: Path) -> None:
    """A child with an emptied environment still belongs to its parent's role."""
    _start("a", "env -i sleep 100 & wait", run)
    commands.wait_until(lambda: len(processes.pids_of(run, "a")) == 2, "the child is not found", timeout_s=60)


def test_a_process_that_ignores_sigterm_is_killed(run: Path) -> None:
    """Ending is certain: what does not go when asked is killed, and no other role is touched."""
    _start("stubborn", "trap '' TERM; while :; do sleep 0.1; done", run)
    _start("bystander", "exec sleep 100", run)
    processes.end(run, ["stubborn"], timeout_s=0.3)
    assert {p.role for p in processes.listing(run)} == {"bystander"}


def test_an_orphaned_command_of_slurms_is_found_by_its_configuration(run: Path) -> None:
    """A killed service leaves its salloc without mark or parent; a person's shell with the same configuration is not ours."""
    salloc = run / "salloc"
    salloc.symlink_to("/bin/sleep")
    plain = {"PATH": os.environ["PATH"], "SLURM_CONF": f"{run}/etc/slurm.conf"}
    with (
        subprocess.Popen([salloc, "100"], env=plain) as orphan,
        subprocess.Popen(["/bin/sleep", "100"], env=plain) as shell,
    ):
        commands.wait_until(lambda: bool(processes.listing(run)), "not found", timeout_s=5)
        processes.end_all(run)
        assert orphan.wait(60) != 0
        assert shell.poll() is None
        shell.kill()


def test_our_own_command_from_the_sandboxs_shell_is_found_by_its_configuration(run: Path) -> None:
    """A `probing-ctl web serve` that somebody typed ends with the sandbox; one of another cluster and an editor do not."""
    command = run / "probing-ctl"
    command.symlink_to("/bin/sleep")
    there = {"PATH": os.environ["PATH"], "PROBING_CONFIG": f"{run}/etc/probing.toml"}
    elsewhere = there | {"PROBING_CONFIG": f"{run}2/etc/probing.toml"}
    with (
        subprocess.Popen([command, "100"], env=there) as ours,
        subprocess.Popen([command, "100"], env=elsewhere) as other,
        subprocess.Popen(["/bin/sleep", "100"], env=there) as editor,
    ):
        commands.wait_until(lambda: bool(processes.listing(run)), "not found", timeout_s=60)
        processes.end_all(run)
        assert ours.wait(60) != 0
        for left in (other, editor):
            assert left.poll() is None
            left.kill()


def test_our_own_shell_is_never_among_the_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command typed inside `probing-sandbox shell` does not end that shell."""
    found = {p.pid for p in processes.listing(run)}
    assert os.getpid() not in found
    assert os.getppid() not in found


def test_what_hides_at_one_look_is_killed_at_the_next() -> None:
    """A process that executes a program shows no mark for an instant."""
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        looks = iter([[], [child.pid]])
        processes.kill(lambda: next(looks, []))
        left = list(looks)
        child.kill()
        assert left == [], "it was not looked at again"
