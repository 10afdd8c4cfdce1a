"""The one place that starts Slurm's commands: a deadline, a clean environment, the whole process group ended."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from probing_cluster.core import errors, processes, sanitize, settings

KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "SLURM_CONF", "KRB5CCNAME")
"""What a command may see of our environment; SACCT_FORMAT, SQUEUE_* and the like would change its output."""

_LOCAL = dict.fromkeys(("SACCT_LOCAL", "SCONTROL_LOCAL", "SINFO_LOCAL", "SQUEUE_LOCAL"), "1")
"""In a federation with fed_display Slurm's commands show the jobs and nodes of all its clusters; ours are of this one."""

Keep = Callable[[bytes], bytes]
"""Given a program's output piece by piece as it comes; what of each is kept."""
MOST_ERRORS_BYTES = 1 << 16
"""Bytes of standard error that are kept where the output is kept in part only."""

NO_ANSWER = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|connection refused|"
    r"communication connection failure|connect failure|unable to connect to slurm daemon",
    re.IGNORECASE,
)
"""How Slurm's library says that no daemon answered; every other failure is Slurm's answer."""
NO_SUCH = re.compile(r"\bInvalid (?:job id|node name) specified|\b(?:Job|Node) \S+ not found\b")
"""Slurm's words for a job or node that it does not know."""
_ERROR_LINE = re.compile(r"\b(?:error|fatal): |^slurm_\w+: ", re.IGNORECASE)
"""An error on standard error; the other lines may hold what users wrote."""

AWAY = "Slurm does not answer"
"""How the text of a SlurmAway begins."""

STUCK = processes.StuckChildren()
"""This process's Slurm commands that would not die, by program and first argument."""


class SlurmAway(errors.SlurmUnavailable):
    """Slurm does not answer; what it would have said is not known."""

    def __init__(self, why: str) -> None:
        super().__init__(why if why.startswith(AWAY) else f"{AWAY}: {why}")


class SlurmTimedOut(SlurmAway):
    """A command did not end within its deadline: Slurm does not answer, or what was asked for takes it longer."""


class OneByOne:
    """Acts on one subject after another, of which Slurm may not answer about one: the others still have their turn.

    The second unanswered subject in a row is an outage and ends the loop, which would otherwise wait once for each.
    """

    def __init__(self) -> None:
        self._first: SlurmAway | None = None
        self._in_a_row = False

    @contextlib.contextmanager
    def subject(self) -> Iterator[None]:
        """Holds the act on one subject; raises SlurmAway if neither it nor the subject before it was answered."""
        try:
            yield
        except SlurmAway as exc:
            if self._in_a_row:
                raise
            self._first, self._in_a_row = self._first or exc, True
        else:
            self._in_a_row = False

    def end(self) -> None:
        """Raise the first SlurmAway that a subject met."""
        if self._first is not None:
            raise self._first


class Runner(Protocol):
    """How a Slurm command is run; tests pass their own."""

    def __call__(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class SlurmCommands:
    """Runs Slurm's programs; raises SlurmUnavailable with what Slurm said when one fails, SlurmAway when nobody answers."""

    settings: settings.SlurmSettings

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        directory = self.settings.bin_directory
        command = [str(Path(directory) / program) if directory else program, *arguments]
        return run(command, self._environment(environment or {}), self.settings.command_deadline_s)

    def collect(
        self, program: str, *arguments: str, stdin: bytes, deadline_s: float, keep: Keep | None = None
    ) -> ProgramOutput:
        """What a program printed by its end or by the deadline, whatever its exit code: the rest of the nodes have answered."""
        directory = self.settings.bin_directory
        command = [str(Path(directory) / program) if directory else program, *arguments]
        return collect(command, self._environment({}), deadline_s, stdin, keep)

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        conf = {"SLURM_CONF": self.settings.conf} if self.settings.conf else {}
        return plain_environment() | conf | dict(extra)


def within(run: Runner, deadline_s: float) -> Runner:
    """The same with a shorter deadline, for somebody who waits for the answer."""
    if not isinstance(run, SlurmCommands):
        return run
    shorter = min(deadline_s, run.settings.command_deadline_s)
    return SlurmCommands(settings=replace(run.settings, command_deadline_s=shorter))


def of_one(run: Runner, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    """What a command that asks about one job or node prints; nothing where Slurm knows no such thing."""
    try:
        return run(program, *arguments, environment=environment)
    except SlurmAway:
        raise
    except errors.SlurmUnavailable as exc:
        if NO_SUCH.search(str(exc)):
            return b""
        raise


def plain_environment() -> dict[str, str]:
    """What a program that we start may see of our environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **kept, **_LOCAL, "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, kw_only=True)
class ProgramOutput:
    """What one program left behind."""

    stdout: bytes
    stderr: bytes
    code: int | None
    """Exit code; None when the deadline ended it."""


def run(command: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> bytes:
    """Standard output of `command`; raises SlurmUnavailable for a refusal, SlurmAway when nobody answers, SlurmTimedOut at the deadline."""
    done = collect(command, environment, deadline_s)
    if done.code is None:
        raise SlurmTimedOut(f"{_shown(command)} did not end within {deadline_s:g} s")
    if done.code != 0:
        shown = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace")
        msg = f"{_shown(command)} ended with {done.code}: {sanitize.clean(shown, 500)}"
        raise SlurmAway(msg) if _is_no_answer(done.stderr) else errors.SlurmUnavailable(msg)
    return done.stdout


def _is_no_answer(stderr: bytes) -> bool:
    lines = stderr.decode("utf-8", "replace").splitlines()
    found = [(line, error) for line in lines if (error := _ERROR_LINE.search(line))]
    return any(NO_ANSWER.search(line, error.end()) for line, error in found)


def collect(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline_s: float,
    stdin: bytes = b"",
    keep: Keep | None = None,
) -> ProgramOutput:
    """Run `command` until its end or the deadline, which ends its whole group.

    Raises SlurmUnavailable where it cannot start, SlurmAway where one before it hangs and cannot be ended.
    """
    key = " ".join([Path(command[0]).name, *command[1:2]])
    try:
        done = STUCK.run(
            key, command, deadline_s=deadline_s, env=environment, stdin=stdin, directory=None, end_group=keep is not None,
            max_bytes=None if keep is None else MOST_ERRORS_BYTES, keep=keep
        )  # fmt: skip
    except processes.ChildStuck as exc:
        raise SlurmAway(str(exc)) from exc
    except OSError as exc:
        # A program that is missing or may not be run is a fault of this machine; no outage of Slurm ends it.
        raise errors.SlurmUnavailable(f"{command[0]} cannot be started: {exc.strerror}") from exc
    return ProgramOutput(stdout=done.stdout, stderr=done.stderr, code=done.code)


def _shown(command: Sequence[str]) -> str:
    return sanitize.clean(" ".join([Path(command[0]).name, *command[1:4]]), 120)
