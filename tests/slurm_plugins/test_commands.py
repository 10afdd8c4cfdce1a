"""The process edge: real processes, ended with all their children, told what they may see."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands


def _script(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def _runner(directory: Path, deadline_s: float = 10.0) -> commands.SlurmCommands:
    return commands.SlurmCommands(
        settings=settings.SlurmSettings(
            bin_directory=str(directory), conf="/etc/x/slurm.conf", command_deadline_s=deadline_s
        )
    )


def test_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that change Slurm's output do not reach it; its configuration and UTC do."""
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    _script(tmp_path, "sacct", "env\n")
    seen = dict(
        line.split("=", 1)
        for line in _runner(tmp_path)("sacct", environment={"EXTRA": "1"}).decode().splitlines()
    )
    assert (seen["SLURM_CONF"], seen["TZ"], seen["LC_ALL"], seen["EXTRA"]) == (
        "/etc/x/slurm.conf",
        "UTC",
        "C",
        "1",
    )
    assert not {"SACCT_FORMAT", "SLURM_TIME_FORMAT"} & seen.keys()


def test_failure_carries_what_slurm_said(tmp_path: Path) -> None:
    """Exit status and standard error are in the message, without control characters."""
    _script(tmp_path, "scontrol", "printf 'slurm_update error: \\033[1mInvalid user id\\n' >&2; exit 1\n")
    with pytest.raises(errors.SlurmUnavailable, match=r"ended with 1: slurm_update error: Invalid user id"):
        _runner(tmp_path)("scontrol", "update", "NodeName=n1")
    with pytest.raises(errors.SlurmUnavailable, match="cannot be started"):
        _runner(tmp_path)("sinfo")


def test_a_hanging_command_and_its_children_are_ended(tmp_path: Path) -> None:
    """At the deadline the whole process group goes, and the caller hears why."""
    _script(tmp_path, "sacct", f"sleep 60 & echo $! > {tmp_path}/child; sleep 60\n")
    with pytest.raises(errors.SlurmUnavailable, match=r"did not end within 0\.5 s"):
        _runner(tmp_path, 0.5)("sacct")
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the child outlived its command")
