"""The embedded Postgres: started on demand in a directory, reached by Unix socket only, never run as root.

Layout of the directory: `data/` (Postgres's own), `run/` (the socket), `log/`, `lock`, and
`server-18/` when the wheel's programs could not be reached by the server's account. Only
root and the account that owns the server may connect, as any role, known by peer uid.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import psycopg

from probing_cluster.core import errors
from probing_cluster.db import postgres_programs

OWNER = "probing_owner"
DATABASE = "probing"
PORT = 5432  # only names the socket file; nothing listens on TCP
START_DEADLINE_S = 3600.0
"""Crash recovery of a big database takes minutes; a server that died is noticed at once."""
_STOP_DEADLINE_S = 60.0
_SOCKET_PATH_MAX = 107
_NO_PID = 2**31 - 2  # above every pid_max


def ensure(directory: str | os.PathLike[str]) -> str:
    """The URL of the running server of `directory`, made and started first where need be.

    Safe to call from many processes at once. Raises DatabaseUnavailable saying the way out.
    """
    home = _home(directory)
    with contextlib.suppress(psycopg.Error):
        _probe(url(home))
        return url(home)
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = _locked(home)
    except OSError as exc:
        raise errors.DatabaseUnavailable(
            f"{home}: {exc.strerror}; only its owner and root may start it"
        ) from exc
    with lock:
        _start(home)
    return url(home)


def stop(directory: str | os.PathLike[str]) -> None:
    """Stop the server of `directory`; nothing to do when none runs."""
    home = _home(directory)
    data = home / "data"
    if not (data / "PG_VERSION").exists():
        return
    who = postgres_programs.account()
    with _locked(home):
        pid = _running_pid(data)
        if pid is not None:
            bin_dir = postgres_programs.programs(home, who)
            for mode in ("fast", "immediate"):
                command: list[str | Path] = [
                    bin_dir / "pg_ctl",
                    "stop",
                    "-D",
                    data,
                    "-m",
                    mode,
                    "-t",
                    str(int(_STOP_DEADLINE_S)),
                ]
                done = postgres_programs.run(who, command, timeout_s=_STOP_DEADLINE_S + 10)
                if done.returncode == 0:
                    break
            else:
                raise errors.DatabaseUnavailable(f"the server in {data} does not stop: {done.stdout.strip()}")
        if _socket_directory(home).parent != home:
            with contextlib.suppress(OSError):
                _socket_directory(home).rmdir()


def url(directory: str | os.PathLike[str], *, database: str = DATABASE, user: str = OWNER) -> str:
    """The URL of the server of `directory`, running or not."""
    host = urllib.parse.quote(str(_socket_directory(_home(directory))), safe="")
    return f"postgresql://{urllib.parse.quote(user)}@/{urllib.parse.quote(database)}?host={host}&port={PORT}"


def running(directory: str | os.PathLike[str]) -> bool:
    """Whether a server runs on `directory`."""
    return _running_pid(_home(directory) / "data") is not None


def _home(directory: str | os.PathLike[str]) -> Path:
    return Path(directory).expanduser().absolute()


def _socket_directory(home: Path) -> Path:
    inside = home / "run"
    if len(str(inside / f".s.PGSQL.{PORT}").encode()) <= _SOCKET_PATH_MAX:
        return inside
    # A socket's path is limited by the kernel; the name is derived, so that every process finds it.
    digest = hashlib.blake2b(str(home).encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"probing-{digest}"


def _probe(where: str) -> None:
    psycopg.connect(where, connect_timeout=5).close()


@contextlib.contextmanager
def _lock_held(handle: int) -> Iterator[None]:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _locked(home: Path) -> contextlib.AbstractContextManager[None]:
    return _lock_held(os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _start(home: Path) -> None:
    data = home / "data"
    who = postgres_programs.account()
    _check_reachable(home, who)
    bin_dir = postgres_programs.programs(home, who)
    if not (data / "PG_VERSION").exists():
        _initialise(home, bin_dir, who)
    _check_version(data)
    if _running_pid(data) is None:
        crashed = _disown_stale_pid(home, who)
        _configure(home, who)
        _launch(data, bin_dir, who, patience_s=30.0 if crashed else 0.0)
    _create_database(home)


def _check_reachable(home: Path, who: postgres_programs.Account) -> None:
    for ancestor in [*reversed(home.parents), home]:
        if postgres_programs.run(who, ["test", "-x", ancestor], timeout_s=10).returncode != 0:
            raise errors.DatabaseUnavailable(
                f"the server runs as {who.name}, which may not enter {ancestor}; choose a database directory "
                f"elsewhere (such as /var/lib/probing-cluster/postgres) or allow it yourself: chmod o+x {ancestor}"
            )


def _check_version(data: Path) -> None:
    found = (data / "PG_VERSION").read_text().strip()
    if found != str(postgres_programs.MAJOR):
        raise errors.DatabaseUnavailable(
            f"{data} was made by Postgres {found}, the installed one is {postgres_programs.MAJOR}; "
            "see docs/database.md, 'Upgrading the embedded server'"
        )


def _initialise(home: Path, bin_dir: Path, who: postgres_programs.Account) -> None:
    fresh = home / "data.new"  # renamed when complete: an interrupted initdb leaves no half database
    if fresh.exists():
        shutil.rmtree(fresh)
    _own(fresh, who, 0o700)
    command: list[str | Path] = [
        bin_dir / "initdb",
        "-D",
        fresh,
        "-U",
        OWNER,
        "-E",
        "UTF8",
        "--auth=peer",
        "--no-instructions",
    ]
    locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--lc-collate=C", "--lc-ctype=C"]
    done = postgres_programs.run(who, [*command, *locale], timeout_s=600)
    if done.returncode != 0:
        raise errors.DatabaseUnavailable(f"initdb in {fresh} failed: {done.stdout.strip()[-800:]}")
    fresh.rename(home / "data")


def _own(path: Path, who: postgres_programs.Account, mode: int) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, who.uid, who.gid, follow_symlinks=False)


def _configure(home: Path, who: postgres_programs.Account) -> None:
    """Write our settings anew before each start, so that a newer version's reach an old directory."""
    data, sockets = home / "data", _socket_directory(home)
    _own(sockets, who, 0o755)
    _own(home / "log", who, 0o700)
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(sockets),
        "port": str(PORT),
        "max_connections": "200",
        "shared_buffers": "128MB",
        "max_wal_size": "2GB",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "on",
        "log_directory": str(home / "log"),
        "log_filename": "postgres-%a.log",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
    }
    escaped = {name: value.replace("'", "''") for name, value in settings.items()}
    _write(data / "probing.conf", "".join(f"{name} = '{value}'\n" for name, value in escaped.items()), who)
    main = (data / "postgresql.conf").read_text()
    if "include 'probing.conf'" not in main:
        _write(data / "postgresql.conf", f"{main}\ninclude 'probing.conf'\n", who)
    _write(data / "pg_hba.conf", "local all all peer map=probing\n", who)
    names = dict.fromkeys(["root", who.name])
    _write(data / "pg_ident.conf", "".join(f'probing "{name}" all\n' for name in names), who)


def _write(path: Path, text: str, who: postgres_programs.Account) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(fresh, who.uid, who.gid, follow_symlinks=False)
    fresh.replace(path)


def _launch(data: Path, bin_dir: Path, who: postgres_programs.Account, *, patience_s: float) -> None:
    """Start the server and wait until it answers; for `patience_s`, wait for a dead one's children to leave."""
    log = data / "start.log"
    command: list[str | Path] = [
        bin_dir / "pg_ctl",
        "start",
        "-D",
        data,
        "-l",
        log,
        "-w",
        "-t",
        str(int(START_DEADLINE_S)),
    ]
    give_up = time.monotonic() + patience_s
    while True:
        log.unlink(missing_ok=True)
        done = postgres_programs.run(who, command, timeout_s=START_DEADLINE_S + 60)
        if done.returncode == 0:
            return
        if time.monotonic() > give_up:
            said = log.read_text(errors="replace")[-800:] if log.exists() else ""
            raise errors.DatabaseUnavailable(
                f"Postgres in {data} does not start: {done.stdout.strip()[-400:]} {said.strip()}; "
                f"more in {data.parent / 'log'}"
            )
        time.sleep(0.2)


def _running_pid(data: Path) -> int | None:
    """The postmaster of `data`, alive and really on that directory."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (OSError, ValueError) as exc:
        if not isinstance(exc, PermissionError):
            return None
    try:
        return pid if Path(f"/proc/{pid}/cwd").samefile(data) else None
    except PermissionError:
        return pid  # another account's process: only its owner and root can look closer
    except OSError:
        return None


def _disown_stale_pid(home: Path, who: postgres_programs.Account) -> bool:
    """After a crash, make the pid in the lock files one that nobody can have; True when there was one.

    A reused (or never reaped) pid would make Postgres refuse to start. The files stay: their other
    lines are how Postgres finds children of the dead server that still use the data.
    """
    found = False
    for path in (home / "data" / "postmaster.pid", _socket_directory(home) / f".s.PGSQL.{PORT}.lock"):
        with contextlib.suppress(FileNotFoundError):
            lines = path.read_text().split("\n")
            _write(path, "\n".join([str(_NO_PID), *lines[1:]]), who)
            found = True
    return found


def _create_database(home: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            with psycopg.connect(
                url(home, database="postgres"), autocommit=True, connect_timeout=5
            ) as connection:
                found = connection.execute(
                    "SELECT FROM pg_database WHERE datname = %s", [DATABASE]
                ).fetchone()
                if found is None:
                    connection.execute(f'CREATE DATABASE "{DATABASE}"')
            return
        except psycopg.OperationalError as exc:
            if _running_pid(home / "data") is None or time.monotonic() > deadline:
                raise errors.DatabaseUnavailable(f"Postgres in {home} does not answer: {exc}") from exc
            time.sleep(0.1)


def kill(directory: str | os.PathLike[str]) -> None:
    """End the server of `directory` with SIGKILL, as a crash would: for fault tests."""
    pid = _running_pid(_home(directory) / "data")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
