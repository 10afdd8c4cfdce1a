"""A sandbox is found where it lies: at a default place, or by its processes; two are never taken for one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.sandbox import cli
from probing_cluster.sandbox.machine import commands, layout, processes, sandbox_directory
from tests.sandbox.conftest import ONE_NODE

Make = Callable[[str], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory of an installation that started nothing."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(layout, "default_directory", lambda name=".sandbox": tmp_path / name)
    monkeypatch.setattr(layout, "SHARED", tmp_path / "shared")
    return tmp_path


@pytest.fixture
def make(here: Path) -> Iterator[Make]:
    """Makes a sandbox of one process, `sleep`, that this installation started."""
    made: list[Path] = []

    def start(name: str) -> Path:
        directory = here / name
        directory.mkdir(parents=True)
        layout.Layout(directory=directory, **ONE_NODE).save()
        env = {**os.environ, processes.MARK: str(directory), processes.STARTED_BY: sys.prefix}
        commands.start("sleeper", ["sleep", "600"], env=env, run=directory, log=directory / "log")
        made.append(directory)
        return directory

    yield start
    for directory in made:
        processes.end_all(directory)


def test_the_one_that_runs_is_found_wherever_it_lies(make: Make) -> None:
    """At the demo's default place, and elsewhere by its processes; a named one is taken as named."""
    demo = make(".demo")
    assert sandbox_directory.choose(None) == demo
    processes.end_all(demo)
    shutil.rmtree(demo)
    elsewhere = make("far/away")
    assert sandbox_directory.choose(None) == elsewhere
    assert sandbox_directory.choose(demo) == demo


def test_of_several_none_is_guessed(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """`down` names both and ends neither; `status` shows both."""
    both = [make(".sandbox"), make("b")]
    assert cli.main(["down"]) == errors.UsageError.exit_code
    printed = capsys.readouterr().err
    assert all(str(directory) in printed for directory in both)
    assert cli.main(["status"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{directory}: running: sleeper" in printed for directory in both)


def test_down_all_ends_what_this_installation_started_and_says_so(
    make: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make clean` does: also a sandbox whose directory is gone; another installation's runs on."""
    lost, kept = make("lost"), make("kept")
    shutil.rmtree(lost)
    own = sys.prefix
    monkeypatch.setattr(sys, "prefix", "/another/installation")
    theirs = make("theirs")
    monkeypatch.setattr(sys, "prefix", own)
    assert cli.main(["down", "--all", "--purge"]) == 0
    printed = capsys.readouterr().out
    assert f"{lost}: 1 process ended; the directory is gone" in printed
    assert f"{kept}: 1 process ended; the directory is gone" in printed
    assert not kept.exists()
    assert [p.role for p in processes.listing(theirs)] == ["sleeper"]
    assert cli.main(["down", "--all"]) == 0
    assert "nothing to stop" in capsys.readouterr().out


def test_down_without_purge_keeps_the_directory(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """And says that `up` goes on there."""
    directory = make(".sandbox")
    assert cli.main(["down"]) == 0
    assert "1 process ended; the directory is kept" in capsys.readouterr().out
    assert layout.exists(directory)


def test_without_any_the_default_place_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """status and down say where they looked and how one is made."""
    for word in ("status", "down"):
        assert cli.main([word]) == errors.NotFound.exit_code
        assert f"no sandbox in {here / '.sandbox'}" in capsys.readouterr().err


def test_somebody_elses_is_named_with_its_owner(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside root's demo another account hears whose it is, not how to make one, which needs root."""
    kept = here / "shared" / "probing.demo-0badcafe"
    kept.mkdir(parents=True)
    owner, uid = kept.owner(), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    for word in ("status", "shell"):
        assert cli.main([word]) == errors.NotFound.exit_code
        assert f"the one in {kept} is {owner}'s" in capsys.readouterr().err
