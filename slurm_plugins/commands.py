"""The one place that starts Slurm's commands: a deadline, a clean environment, the whole process group ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from probing_cluster.core import errors, sanitize, settings

KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SLURM_CONF", "KRB5CCNAME")
"""What a command may see of our environment; SACCT_FORMAT, SQUEUE_* and the like would change its output."""


class Runner(Protocol):
    """How a Slurm command is run; tests pass their own."""

    def __call__(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class SlurmCommands:
    """Runs Slurm's programs; raises SlurmUnavailable with what Slurm said when one fails or does not end."""

    settings: settings.SlurmSettings

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        directory = self.settings.bin_directory
        command = [str(Path(directory) / program) if directory else program, *arguments]
        return run(command, self._environment(environment or {}), self.settings.command_deadline_s)

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        if self.settings.conf:
            kept["SLURM_CONF"] = self.settings.conf
        return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **kept, "LC_ALL": "C", "TZ": "UTC", **extra}


def run(command: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> bytes:
    """Standard output of `command`; raises SlurmUnavailable."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as exc:
        msg = f"{command[0]} cannot be started: {exc.strerror}"
        raise errors.SlurmUnavailable(msg) from exc
    with process:
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired as exc:
            msg = f"{_shown(command)} did not end within {deadline_s:g} s"
            raise errors.SlurmUnavailable(msg) from exc
        finally:
            _end_group(process)
    if process.returncode != 0:
        output = sanitize.clean(err.decode("utf-8", "replace").strip() or out.decode("utf-8", "replace"), 500)
        msg = f"{_shown(command)} ended with {process.returncode}: {output}"
        raise errors.SlurmUnavailable(msg)
    return out


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the command, children included; the group id is ours until the leader is reaped."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _shown(command: Sequence[str]) -> str:
    return sanitize.clean(" ".join([Path(command[0]).name, *command[1:4]]), 120)
