"""Starting the sandbox's daemons and running its commands; the room's only user of subprocess."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from probing_cluster.core import errors
from probing_cluster.sandbox.machine import processes

# `setsid --fork` leaves no child of ours behind to become a zombie; the shell records its pid, then becomes the command.
_LAUNCHER = ("setsid", "--fork", "sh", "-c", 'echo $$ >"$0" && exec "$@"')


Completed = subprocess.CompletedProcess[str]
"""A command that ended: returncode, stdout, stderr."""


class CommandFailed(errors.ProbingError):
    """A command of the sandbox failed."""


def start(role: str, argv: Sequence[str], *, env: Mapping[str, str], run: Path, log: Path) -> int:
    """Starts a daemon in a session of its own; its output goes to `log`, its pid to `<run>/<role>.pid`."""
    pid_file = run / f"{role}.pid"
    pid_file.unlink(missing_ok=True)
    with log.open("ab") as out:
        subprocess.run(
            [*_LAUNCHER, str(pid_file), *argv],
            env={**env, processes.ROLE: role},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            check=True,
        )
    wait_until(lambda: _pid(pid_file) is not None, f"{role} did not start; see {log}", timeout_s=60)
    pid = _pid(pid_file)
    assert pid is not None
    return pid


def start_ready(
    role: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    run: Path,
    log: Path,
    ready: Callable[[], bool] | None,
    timeout_s: float = 120,
) -> None:
    """Starts a daemon and returns when it is `ready`; one that ends before that is an error at once."""
    pid = start(role, argv, env=env, run=run, log=log)
    if ready is not None:
        wait_ready(role, pid, log, ready, timeout_s)


def wait_ready(role: str, pid: int, log: Path, ready: Callable[[], bool], timeout_s: float = 120) -> None:
    """Returns when the daemon `pid` is `ready`; raises CommandFailed when it ends or takes too long."""
    wait_until(
        lambda: not processes.is_alive(pid) or ready(),
        f"{role} is not ready; see {log.parent}",
        timeout_s=timeout_s,
    )
    if not processes.is_alive(pid):
        raise CommandFailed(f"{role} ended at once: {tail(log)}")


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: str = "",
    timeout_s: float = 60,
    check: bool = True,
) -> Completed:
    """Runs a command to its end and returns what it printed; raises CommandFailed."""
    try:
        done = subprocess.run(
            list(argv),
            env=dict(env),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise CommandFailed(f"`{' '.join(argv)}` did not end within {timeout_s:g} s") from exc
    except OSError as exc:
        raise CommandFailed(f"`{argv[0]}` cannot be run: {exc.strerror}") from exc
    if check and done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CommandFailed(f"`{' '.join(argv)}` ended with {done.returncode}: {output}")
    return done


def call(argv: Sequence[str], *, env: Mapping[str, str]) -> int:
    """Runs a command on the caller's own terminal and returns its exit code."""
    return subprocess.call(list(argv), env=dict(env))


def wait_until(ready: Callable[[], bool], message: str, *, timeout_s: float, every_s: float = 0.05) -> None:
    """Returns when `ready()`; raises CommandFailed with `message` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise CommandFailed(message)
        time.sleep(every_s)


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error message."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "no output"


def _pid(pid_file: Path) -> int | None:
    try:
        text = pid_file.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None
