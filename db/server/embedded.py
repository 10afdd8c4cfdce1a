"""The embedded Postgres: started on demand in a directory, reached by Unix socket only, never run as root.

Layout of the directory: `data/` (Postgres's own), `run/` (the socket), `log/`, `lock`, and
`server-18/` when the wheel's programs could not be reached by the server's account. Only
root and the account that owns the server may connect, as any role, known by peer uid.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

from probing_cluster.core import errors
from probing_cluster.db.server import postgres_programs, server_files

OWNER = "probing_owner"
DATABASE = "probing"
PORT = server_files.PORT
START_DEADLINE_S = 3600
"""Crash recovery of a big database takes minutes; a server that died is noticed at once."""
_STOP_DEADLINE_S = 60
_STATE, _STATE_AT, _SHUT_DOWN = struct.Struct("=i"), 16, {1, 2}
"""Where Postgres's pg_control keeps the cluster's state (ControlFileData.state), and those of a server that was stopped."""
_INITDB = (
    "--username", OWNER, "--encoding=UTF8", "--auth=peer", "--no-instructions",
    "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--lc-collate=C", "--lc-ctype=C",
)  # fmt: skip


def ensure(directory: str | os.PathLike[str]) -> str:
    """The URL of the running server of `directory`, made and started first where need be.

    Safe to call from many processes at once. Raises DatabaseUnavailable saying the way out.
    """
    home = _home(directory)
    account = postgres_programs.account(home / "data")
    if server_files.trusted_socket(home, account):
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(url(home), connect_timeout=5).close()
            return url(home)
    try:
        server_files.make_home(home)
        with _locked(home):
            _start(home, account)
    except PermissionError as exc:
        if not exists(home):
            raise errors.DatabaseRefused(
                f"no database can be made in {home}: {exc.strerror} ({exc.filename}); name a directory that you may write to"
                " (import --database DIR, or database.directory in the settings)"
            ) from exc
        raise errors.DatabaseRefused(
            f"you may not use the database in {home}: only its owner and root may; an administrator can give you a login"
            " (probing-ctl db add-login), and probing-report answers everybody about their own jobs"
        ) from exc
    except OSError as exc:
        raise errors.DatabaseUnavailable(
            f"{exc.filename or home}: {exc.strerror}; only the owner of {home} and root may start it"
        ) from exc
    return url(home)


def stop(directory: str | os.PathLike[str]) -> None:
    """Stop the server of `directory`; nothing to do when none runs. Raises DatabaseRefused where it is another account's."""
    home = _home(directory)
    if is_closed(directory):
        try:
            owner = home.owner()
        except (KeyError, OSError):
            owner = "another account"
        raise errors.DatabaseRefused(
            f"the database in {home} belongs to {owner}: only its owner and root may stop its server (sudo probing-ctl db stop)"
        )
    data, sockets = home / "data", server_files.socket_directory(home)
    account = postgres_programs.account(data)
    if not (data / "PG_VERSION").exists():
        return
    with _locked(home):
        if server_files.running_pid(data) is not None:
            for mode in ("fast", "immediate"):
                failed = _control(home, account, ["stop", "-m", mode], _STOP_DEADLINE_S)
                if failed is None:
                    break
            else:
                raise errors.DatabaseUnavailable(f"the server in {data} does not stop: {failed}")
        if sockets.parent != home:
            with contextlib.suppress(OSError):
                sockets.rmdir()


def url(directory: str | os.PathLike[str], *, database: str = DATABASE, user: str = OWNER) -> str:
    """The URL of the server of `directory`, running or not."""
    host = urllib.parse.quote(str(server_files.socket_directory(_home(directory))), safe="")
    login, name = urllib.parse.quote(user, safe=""), urllib.parse.quote(database, safe="")
    return f"postgresql://{login}@/{name}?host={host}&port={PORT}"


def running(directory: str | os.PathLike[str]) -> bool:
    """Whether a server runs on `directory`."""
    return server_files.running_pid(_home(directory) / "data") is not None


def crashed(directory: str | os.PathLike[str]) -> bool:
    """Whether the server of `directory` ended without having been stopped: killed, out of memory, or with its disk full."""
    data = _home(directory) / "data"
    try:
        (state,) = _STATE.unpack_from((data / "global" / "pg_control").read_bytes(), _STATE_AT)
    except (OSError, struct.error):
        return False  # none is there, or its owner alone may look
    return state not in _SHUT_DOWN and server_files.running_pid(data) is None


def exists(directory: str | os.PathLike[str]) -> bool:
    """Whether there is a database in `directory`, its server running or not; also one that only its owner may look into."""
    data = _home(directory) / "data"
    try:
        return (data / "PG_VERSION").exists()
    except PermissionError:
        return True


def is_closed(directory: str | os.PathLike[str]) -> bool:
    """Whether this account may not look into the database of `directory`, so that nobody here knows whether its server runs."""
    try:
        return not os.access(_home(directory) / "data", os.R_OK | os.X_OK) and exists(directory)
    except PermissionError:
        return True


def kill(directory: str | os.PathLike[str]) -> None:
    """End the server of `directory` with SIGKILL, as a crash would: for fault tests."""
    pid = server_files.running_pid(_home(directory) / "data")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def _home(directory: str | os.PathLike[str]) -> Path:
    return Path(directory).expanduser().absolute()


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    handle = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _start(home: Path, account: postgres_programs.OsAccount) -> None:
    data = home / "data"
    _check_reachable(home, account)
    if not (data / "PG_VERSION").exists():
        _initialise(home, account)
    _check_version(data)
    if server_files.running_pid(data) is None:
        crashed = server_files.disown_stale_pid(home, account)
        server_files.configure(home, account)
        _launch(home, account, patience_s=30.0 if crashed else 0.0)
    _create_database(home)


def _check_reachable(home: Path, account: postgres_programs.OsAccount) -> None:
    for ancestor in [*reversed(home.parents), home]:
        if postgres_programs.run(account, ["test", "-x", ancestor], timeout_s=10).returncode != 0:
            raise errors.DatabaseUnavailable(
                f"the server runs as {account.name}, which may not enter {ancestor}; choose a database directory "
                f"elsewhere, such as /var/lib/probing-cluster/postgres"
            )


def _check_version(data: Path) -> None:
    found = (data / "PG_VERSION").read_text().strip()
    if found != str(postgres_programs.MAJOR):
        raise errors.DatabaseUnavailable(
            f"{data} was made by Postgres {found}, the installed one is {postgres_programs.MAJOR}; "
            "see docs/database.md, 'Upgrading the embedded server'"
        )


def _initialise(home: Path, account: postgres_programs.OsAccount) -> None:
    fresh = home / "data.new"  # renamed when complete: an interrupted initdb leaves no half database
    if fresh.exists():
        shutil.rmtree(fresh)
    server_files.own(fresh, account, 0o700)
    initdb = postgres_programs.programs(home, account) / "initdb"
    done = postgres_programs.run(account, [initdb, "--pgdata", fresh, *_INITDB], timeout_s=600)
    if done.returncode != 0:
        raise errors.DatabaseUnavailable(f"initdb in {fresh} failed: {done.stdout.strip()[-800:]}")
    fresh.rename(home / "data")


def _control(
    home: Path, account: postgres_programs.OsAccount, what: Sequence[str], deadline_s: int
) -> str | None:
    """Run pg_ctl and wait for it; returns the end of its output when it failed, else None."""
    pg_ctl = postgres_programs.programs(home, account) / "pg_ctl"
    command: list[str | Path] = [pg_ctl, *what, "-D", home / "data", "-w", "-t", str(deadline_s)]
    done = postgres_programs.run(account, command, timeout_s=deadline_s + 60)
    return None if done.returncode == 0 else done.stdout.strip()[-400:]


def _launch(home: Path, account: postgres_programs.OsAccount, *, patience_s: float) -> None:
    """Start the server and wait until it answers; for `patience_s`, wait for a dead one's children to leave."""
    log = home / "data" / "start.log"
    give_up = time.monotonic() + patience_s
    while True:
        log.unlink(missing_ok=True)
        failed = _control(home, account, ["start", "-l", str(log)], START_DEADLINE_S)
        if failed is None:
            return
        if time.monotonic() > give_up:
            log_end = log.read_text(errors="replace")[-800:].strip() if log.exists() else ""
            raise errors.DatabaseUnavailable(
                f"Postgres in {home} does not start: {failed} {log_end}; more in {home / 'log'}"
            )
        time.sleep(0.2)


def _create_database(home: Path) -> None:
    """Make our database where it is missing, waiting while the server recovers."""
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            where = url(home, database="postgres")
            with psycopg.connect(where, autocommit=True, connect_timeout=5) as connection:
                query = "SELECT FROM pg_database WHERE datname = %s"
                if connection.execute(query, [DATABASE]).fetchone() is None:
                    connection.execute(f'CREATE DATABASE "{DATABASE}"')
            return
        except psycopg.OperationalError as exc:
            if not running(home) or time.monotonic() > deadline:
                raise errors.DatabaseUnavailable(f"Postgres in {home} does not answer: {exc}") from exc
            time.sleep(0.1)
