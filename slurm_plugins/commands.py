"""The one place that starts Slurm's commands: a deadline, a clean environment, the whole process group ended."""

from __future__ import annotations

import contextlib
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

    def collect(self, program: str, *arguments: str, stdin: bytes, deadline_s: float) -> Collected:
        """What a program printed by its end or by the deadline, whatever its exit code: the rest of the nodes have answered."""
        directory = self.settings.bin_directory
        command = [str(Path(directory) / program) if directory else program, *arguments]
        return collect(command, self._environment({}), deadline_s, stdin)

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        conf = {"SLURM_CONF": self.settings.conf} if self.settings.conf else {}
        return plain_environment() | conf | dict(extra)


def plain_environment() -> dict[str, str]:
    """What a program that we start may see of our environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **kept, "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What one program left behind."""

    stdout: bytes
    stderr: bytes
    code: int | None
    """Exit code; None when the deadline ended it."""


def run(command: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> bytes:
    """Standard output of `command`; raises SlurmUnavailable."""
    done = collect(command, environment, deadline_s)
    if done.code is None:
        msg = f"{_shown(command)} did not end within {deadline_s:g} s"
        raise errors.SlurmUnavailable(msg)
    if done.code != 0:
        shown = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace")
        msg = f"{_shown(command)} ended with {done.code}: {sanitize.clean(shown, 500)}"
        raise errors.SlurmUnavailable(msg)
    return done.stdout


def collect(
    command: Sequence[str], environment: Mapping[str, str], deadline_s: float, stdin: bytes = b""
) -> Collected:
    """Run `command` until its end or the deadline, then its whole group is killed; raises SlurmUnavailable where it cannot start."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
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
            out, err = process.communicate(stdin or None, timeout=deadline_s)
        except subprocess.TimeoutExpired as exc:
            _kill_group(process)
            out, err = process.communicate()
            return Collected(stdout=out or exc.stdout or b"", stderr=err or b"", code=None)
        finally:
            _end_group(process)
    return Collected(stdout=out, stderr=err, code=process.returncode)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the command, children included; the group id is ours until the leader is reaped."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _shown(command: Sequence[str]) -> str:
    return sanitize.clean(" ".join([Path(command[0]).name, *command[1:4]]), 120)
