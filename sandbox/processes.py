"""Starting, finding and ending the sandbox's processes; the room's only user of subprocess.

Every process started here carries the sandbox's directory in its environment, and so do its
children. That mark, not a pid file, is what finds them again: it survives a crash of ours and
cannot name a stranger after a pid is reused. slurmstepd writes its title over its environment and
is known by the log that it holds open instead; the jobs' processes descend from it, and the
TaskProlog marks them as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import errors

MARK = "PROBING_SANDBOX"
"""Environment variable: the sandbox's directory."""
ROLE = "PROBING_SANDBOX_ROLE"
"""Environment variable: what the process was started as (slurmctld, slurmd-n1, agent-n1 …)."""

# `setsid --fork` leaves no child of ours behind to become a zombie; the shell records its pid, then becomes the command.
_LAUNCHER = ("setsid", "--fork", "sh", "-c", 'echo $$ >"$0" && exec "$@"')


Completed = subprocess.CompletedProcess[str]
"""A command that ended: returncode, stdout, stderr."""


class CommandFailed(errors.ProbingError):
    """A command of the sandbox failed."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One live process of a sandbox."""

    pid: int
    parent: int
    role: str
    """What its nearest marked ancestor was started as; empty when unknown."""
    name: str


def start(role: str, argv: Sequence[str], *, env: Mapping[str, str], run: Path, log: Path) -> int:
    """Starts a daemon in a session of its own; its output goes to `log`, its pid to `<run>/<role>.pid`."""
    pid_file = run / f"{role}.pid"
    pid_file.unlink(missing_ok=True)
    with log.open("ab") as out:
        subprocess.run(
            [*_LAUNCHER, str(pid_file), *argv],
            env={**env, ROLE: role},
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
        lambda: not is_alive(pid) or ready(), f"{role} is not ready; see {log.parent}", timeout_s=timeout_s
    )
    if not is_alive(pid):
        msg = f"{role} ended at once: {tail(log)}"
        raise CommandFailed(msg)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: str = "",
    timeout_s: float = 60,
    check: bool = True,
    user: int | None = None,
) -> Completed:
    """Runs a command to its end and returns what it printed; raises CommandFailed."""
    try:
        done = subprocess.run(
            list(argv),
            env=dict(env),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            user=user,
        )
    except subprocess.TimeoutExpired as exc:
        msg = f"`{' '.join(argv)}` did not end within {timeout_s:g} s"
        raise CommandFailed(msg) from exc
    except OSError as exc:
        msg = f"`{argv[0]}` cannot be run: {exc.strerror}"
        raise CommandFailed(msg) from exc
    if check and done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        msg = f"`{' '.join(argv)}` ended with {done.returncode}: {said}"
        raise CommandFailed(msg)
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


def is_alive(pid: int) -> bool:
    """Whether `pid` is there and no zombie."""
    return _stat(pid) is not None


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error message."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "no output"


def pids_of(directory: Path, role: str) -> list[int]:
    """Pids of the process started as `role` and of all that descend from it, parents first."""
    return [p.pid for p in listing(directory) if p.role == role]


def listing(directory: Path) -> list[Process]:
    """Every live process of the sandbox in `directory`: marked, or descending from a marked one."""
    table = {pid: row for pid in _all_pids() if (row := _stat(pid)) is not None}
    roles = {pid: role for pid, row in table.items() if (role := _role(pid, row[1], directory)) is not None}
    for pid in table:
        chain, at = [], pid
        while at not in roles and at in table and at > 1:
            chain.append(at)
            at = table[at][0]
        if at in roles:
            roles |= dict.fromkeys(chain, roles[at])
    ours = _ancestors(os.getpid(), table)
    return [
        Process(pid=pid, parent=table[pid][0], role=roles[pid], name=table[pid][1])
        for pid in sorted(roles)
        if pid not in ours
    ]


def _role(pid: int, name: str, directory: Path) -> str | None:
    """What a process was started as; None when it carries no mark of this sandbox."""
    if name == "slurmstepd":
        return _role_by_log(pid, directory)
    environ = _environ(pid)
    if os.fsencode(f"{MARK}={directory}") not in environ:
        return None
    prefix = os.fsencode(f"{ROLE}=")
    return next((os.fsdecode(v[len(prefix) :]) for v in environ if v.startswith(prefix)), "")


def _role_by_log(pid: int, directory: Path) -> str | None:
    """The role of a slurmstepd: that of the slurmd whose log it holds open, even a deleted one."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = Path(str(entry.readlink()).removesuffix(" (deleted)"))
                if target.parent == directory / "log" and target.stem.startswith("slurmd-"):
                    return target.stem
    return None


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signals those of `pids` that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end(directory: Path, roles: Iterable[str], *, timeout_s: float = 10) -> None:
    """Asks the processes of these roles to end, then kills what remains; returns when none is left."""
    wanted = set(roles)
    _end(lambda: [p.pid for p in listing(directory) if p.role in wanted], timeout_s)


def end_all(directory: Path, *, but: Iterable[str] = (), timeout_s: float = 5) -> None:
    """Ends every process of the sandbox, jobs included, but those roles; returns when none is left."""
    spared = set(but)
    _end(lambda: [p.pid for p in listing(directory) if p.role not in spared], timeout_s)


def _end(find: Callable[[], list[int]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    send(find(), signal.SIGTERM)
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    # Killing can race with forking: look again until nothing is left.
    while left:
        send(left, signal.SIGKILL)
        if time.monotonic() > deadline + 10:
            msg = f"processes {left} survived SIGKILL for 10 s"
            raise CommandFailed(msg)
        time.sleep(0.02)
        left = find()


def _ancestors(pid: int, table: Mapping[int, tuple[int, str]]) -> set[int]:
    """`pid` and everything above it: a command never ends the shell it was typed into."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid][0]
    return found


def _pid(pid_file: Path) -> int | None:
    try:
        text = pid_file.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # ten times as fast here


def _stat(pid: int) -> tuple[int, str] | None:
    """(parent pid, name) of a live process; None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b") ")
    fields = rest.split()
    return None if fields[0] in {b"Z", b"X"} else (int(fields[1]), os.fsdecode(name))


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
