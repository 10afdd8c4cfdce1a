"""The embedded server's directory: making its parts, its configuration, and its lock files after a crash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from probing_cluster.core import errors
from probing_cluster.db.server import postgres_programs

PORT = 5432  # only names the socket file; nothing listens on TCP
_SOCKET_PATH_MAX = 107
_NO_PID = 2**31 - 2  # above every pid_max
_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "max_connections": "200",
    "max_wal_size": "2GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    # Agents connect for one call each: a twentieth of its cost was loading this.
    "shared_preload_libraries": "plpgsql",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "on",
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
}


_MIB = 2**20
_LEAST_MIB, _MOST_MIB = 128, 8192
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def shared_buffers_mib(group_limit: Path = _GROUP_LIMIT) -> int:
    """An eighth of the machine's memory, or of what its cgroup may use: a week of 10,000 nodes does not fit into PostgreSQL's default."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # No limit reads "max".
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(group_limit.read_text()))
    return min(max(total // 8 // _MIB, _LEAST_MIB), _MOST_MIB)


def socket_directory(home: Path) -> Path:
    """The directory of the socket of the server in `home`."""
    inside = home / "run"
    if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= _SOCKET_PATH_MAX:
        return inside
    # A socket's path is limited by the kernel; the name is derived, so that every process finds it.
    digest = hashlib.blake2b(os.fsencode(home), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"probing-{digest}"


def trusted_socket(home: Path, account: postgres_programs.OsAccount) -> bool:
    """Whether the socket's directory is the server's own, not one that somebody else put in its place."""
    try:
        found = socket_directory(home).lstat()
    except FileNotFoundError:
        return False
    return found.st_uid in {0, account.uid, os.geteuid()}


def make_home(home: Path) -> None:
    """Make the directory and those above it that are missing, such that the server's account can walk in."""
    for path in [*reversed(home.parents), home]:
        if not path.exists():
            path.mkdir(exist_ok=True)
            path.chmod(0o755)


def own(path: Path, account: postgres_programs.OsAccount, mode: int) -> None:
    """Make a directory of the server's; raises DatabaseUnavailable when somebody else's stands there."""
    path.mkdir(exist_ok=True)
    found = path.lstat()
    if path.is_symlink() or found.st_uid not in {0, account.uid, os.geteuid()}:
        raise errors.DatabaseUnavailable(f"{path} belongs to somebody else; remove it")
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def write(path: Path, text: str, account: postgres_programs.OsAccount) -> None:
    """Replace a file of the server's, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), account.uid, account.gid)
    fresh.replace(path)


def configure(home: Path, account: postgres_programs.OsAccount) -> None:
    """Write our settings anew before each start, so that a newer version's reach an old directory."""
    data, sockets = home / "data", socket_directory(home)
    own(sockets, account, 0o755)
    own(home / "log", account, 0o700)
    here = {
        "unix_socket_directories": f'"{sockets}"',
        "log_directory": str(home / "log"),
        "shared_buffers": f"{shared_buffers_mib()}MB",
    }
    escaped = {name: value.replace("'", "''") for name, value in (_SETTINGS | here).items()}
    write(data / "probing.conf", "".join(f"{name} = '{value}'\n" for name, value in escaped.items()), account)
    main = (data / "postgresql.conf").read_text()
    if "include 'probing.conf'" not in main:
        write(data / "postgresql.conf", f"{main}\ninclude 'probing.conf'\n", account)
    write(data / "pg_hba.conf", "local all all peer map=probing\n", account)
    names = dict.fromkeys(["root", account.name])
    write(data / "pg_ident.conf", "".join(f'probing "{name}" all\n' for name in names), account)


def running_pid(data: Path) -> int | None:
    """The postmaster of `data`, alive and really started on that directory."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        # Its arguments, not its working directory: those of another account are closed to root in a container.
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if os.fsencode(data) in arguments else None


def disown_stale_pid(home: Path, account: postgres_programs.OsAccount) -> bool:
    """Replaces the pid that a crash left in the lock files by one that no process can have; True when there was one.

    A reused (or never reaped) pid would make Postgres refuse to start. The files stay: their other
    lines are how Postgres finds children of the dead server that still use the data.
    """
    found = False
    for path in (home / "data" / "postmaster.pid", socket_directory(home) / f".s.PGSQL.{PORT}.lock"):
        with contextlib.suppress(FileNotFoundError):
            lines = path.read_text().split("\n")
            write(path, "\n".join([str(_NO_PID), *lines[1:]]), account)
            found = True
    return found
