"""What `probing-ctl doctor` finds about files and rights: what root runs, what is secret, who may touch nodes."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from probing_cluster.control_plane.doctor import safe_fix
from probing_cluster.core import database_url, errors, secret_file, settings
from probing_cluster.slurm_plugins import admin_level, commands, doctor

ROOTS_HOOKS = ("Prolog", "Epilog", "HealthCheckProgram")
"""What slurmd starts as root."""
_EVERYBODYS_ACCOUNTS = frozenset({"nobody", "daemon", "bin", "sys", "www-data", "games", "guest"})
EVERYBODYS = ("TaskProlog", "PlugStackConfig")
"""What is read or run in every user's name: whoever can write it is every user."""


def untrusted(path: Path, owner: int = 0) -> str | None:
    """Why `path` must not be run by root: the first part of it, links followed, that another can change; None = none.

    A directory that all may write is no better for being sticky: its owner's files may be there, not ours.
    """
    return next((why for _, why in open_parts(path, owner)), None)


def open_parts(path: Path, owner: int = 0) -> list[tuple[Path, str]]:
    """Every part of `path` that others can change, and why."""
    found = []
    for part in parts(path):
        part_stat = part.lstat()
        if part_stat.st_uid not in {0, owner}:
            found.append((part, f"{part} belongs to uid {part_stat.st_uid}"))
        elif not stat.S_ISLNK(part_stat.st_mode) and part_stat.st_mode & 0o022:
            found.append((part, f"{part} is mode {stat.S_IMODE(part_stat.st_mode):04o}: others can write it"))
    return found


def parts(path: Path) -> list[Path]:
    """The path, what its links lead to, and every directory above either."""
    return [part for place in (path, path.resolve()) for part in (place, *place.parents)]


def changeable(name: str, path: Path, key: str, *, why: str, owner: int = 0) -> doctor.DoctorFinding | None:
    """What is wrong with who can change a file that `key` names; None where only root and `owner` can."""
    bad = open_parts(path, owner)
    if not bad:
        return None
    fix = safe_fix.for_program(path, (part for part, _ in bad), key)
    if all(_keeps_what_is_there(part) for part, _ in bad) and path.parent not in dict(bad):
        found = f"{path} lies below {bad[0][0]}, where everybody may write"
        return doctor.warn(
            name, found, why="once it is gone (a reboot, a cleaner of /tmp) another's can be there", fix=fix
        )
    return doctor.fail(name, bad[0][1], why=why, fix=fix)


def _keeps_what_is_there(part: Path) -> bool:
    """A directory of root's in which nobody can replace what is another's, as in `/tmp`."""
    found = part.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and bool(found.st_mode & stat.S_ISVTX)


def hooks(config: Mapping[str, str]) -> Iterator[doctor.DoctorFinding]:
    """The programs that slurm.conf names, as they lie on this host: only root may be able to change them."""
    for key in (*ROOTS_HOOKS, *EVERYBODYS):
        found = list(_files(config.get(key, "")))
        name, why = f"{key.lower()}_path", "whoever can change it is root (or every user) on every node"
        bad = [f for path in found if (f := changeable(name, path, f"{key} in slurm.conf", why=why))]
        if bad:
            yield min(bad, key=lambda finding: finding.level)
        elif found:
            yield doctor.ok(name, ", ".join(map(str, found[:3])))
        elif config.get(key):
            yield doctor.note(
                name,
                f"{config[key]} is not on this host",
                why="its owner and mode can only be seen where it lies",
                fix="probing-ctl doctor --node on a compute node",
            )


def _files(patterns: str) -> Iterator[Path]:
    for pattern in filter(None, patterns.split(",")):
        path = Path(pattern)
        if any(mark in pattern for mark in "*?["):
            yield from sorted(path.parent.glob(path.name))
        elif path.is_absolute() and path.exists():
            yield path


def closed_to_users(path: Path) -> Path | None:
    """The first directory on the way to `path` that other accounts may not enter; None if they reach it."""
    return next((p for p in parts(path)[1:] if p.is_dir() and not p.stat().st_mode & stat.S_IXOTH), None)


def users_python(python: Path | None = None) -> Iterator[doctor.DoctorFinding]:
    """The Python that our commands are started with: users' commands and job steps start it, too."""
    place = python or Path(sys.executable)
    shut = closed_to_users(place)
    if shut is None:
        yield doctor.ok("users_python", str(place.resolve()))
        return
    yield doctor.warn(
        "users_python",
        f"{place.resolve()} lies below {shut}, which other accounts may not enter",
        why="no user can start probing-report, and no job step ours: 'bad interpreter: Permission denied'",
        fix="make the environment with a Python that everybody may run, such as /usr/bin/python3 (docs/install.md)",
    )


def settings_file(path: Path) -> Iterator[doctor.DoctorFinding]:
    """The settings themselves: who writes them decides what the daemons do."""
    if not path.exists():
        why = "the defaults stand: an embedded database, cluster name `cluster`"
        yield doctor.note("settings", f"no {path}", why=why, fix=f"write {path}")
        return
    why = "whoever writes it says what our daemons do"
    bad = changeable("settings", path, "--config, or PROBING_CONFIG", why=why, owner=os.geteuid())
    yield bad or doctor.ok("settings", str(path))


def secrets(config: settings.Settings, path: Path) -> Iterator[doctor.DoctorFinding]:
    """Passwords and keys: in files that nobody else reads."""
    urls = (config.database.url, config.agent.database_url)
    if any(database_url.has_password(url) for url in urls) and path.exists() and path.stat().st_mode & 0o077:
        yield doctor.fail(
            "secrets",
            f"{path} holds a password and is mode {stat.S_IMODE(path.stat().st_mode):04o}",
            why="whoever can read it can connect",
            fix="take the password out of it: passfile= or sslkey= in the URL names a private file",
        )
    named = {
        "[mail] password_file": config.mail.password_file,
        "[lemon] webhook_secret_file": config.lemon.webhook_secret_file,
        "[service] tls_key": config.service.tls_key,
        "sslkey= in [database] url": database_url.parameters(config.database.url).get("sslkey", ""),
        "sslkey= in [agent] database_url": database_url.parameters(config.agent.database_url).get(
            "sslkey", ""
        ),
        **{f"url_file of [[notices.routes]] {r.name}": r.url_file for r in config.notices.routes},
    }
    settings_of: dict[str, list[str]] = {}
    for setting, secret in named.items():
        settings_of.setdefault(secret, []).append(setting)
    settings_of.pop("", None)
    for secret, setting_names in settings_of.items():
        try:
            secret_file.require_private(Path(secret))
        except errors.SettingsError as exc:
            why = "it is not read while it is so: nothing is delivered, mailed, posted or answered with it"
            yield doctor.fail(
                "secrets",
                str(exc),
                why=why,
                fix=safe_fix.for_secret(Path(secret), " and ".join(setting_names)),
            )


def helper(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The one process that may touch nodes: there, and its socket open to the service only."""
    if not config.slurm.helper_socket:
        if not config.policy.observe_only:
            why = "the service itself needs the right to drain every node and requeue every job"
            fix = "run probing-node-helper as SlurmUser, and set [slurm] helper_socket"
            yield doctor.note("helper", "none", why=why, fix=fix)
        return
    path = Path(config.slurm.helper_socket)
    if not path.is_socket():
        level = "note" if config.policy.observe_only else "fail"
        why = "nothing can be drained or requeued"
        fix = "start probing-node-helper.service"
        yield doctor.DoctorFinding(name="helper", level=level, found=f"no socket at {path}", why=why, fix=fix)
    elif path.stat().st_mode & 0o077:
        found = f"{path} is mode {stat.S_IMODE(path.stat().st_mode):04o}"
        why = "it still answers root and the service only, but others may keep it busy"
        yield doctor.warn(
            "helper", found, why=why, fix="systemctl restart probing-node-helper, which makes its socket anew"
        )
    else:
        yield doctor.ok("helper", str(path))


def account(config: settings.Settings, run: commands.Runner) -> Iterator[doctor.DoctorFinding]:
    """The service's account, by the owner of its socket: an operator in Slurm's accounting, and no more."""
    path = Path(config.service.socket)
    if not path.is_socket() or path.stat().st_uid == 0:
        return
    try:
        name = pwd.getpwuid(path.stat().st_uid).pw_name
        operators = admin_level.ask(run).operators
    except (KeyError, errors.SlurmUnavailable) as exc:
        why = "whether the service sees everybody's jobs is unknown"
        yield doctor.warn("admin_level", f"cannot be told: {exc}", why=why, fix="sacctmgr show user")
        return
    if name in operators:
        yield doctor.ok("admin_level", f"{name} is an operator")
        return
    yield doctor.warn(
        "admin_level",
        f"{name} is no operator",
        why="where PrivateData hides jobs, the service sees none of them",
        fix=_operator(name),
    )


def _operator(name: str) -> str:
    """How the service becomes an operator; an account that others share must never become one."""
    if name in _EVERYBODYS_ACCOUNTS:
        return f"run probing-ctl serve under an account of its own, not {name}; then doctor says how it becomes an operator"
    quoted = shlex.quote(name)
    return (
        f"if only probing-ctl serve uses {name}: sacctmgr add user {quoted} account=root adminlevel=operator"
        f" (or modify user where name={quoted} set adminlevel=operator)"
    )


def agent_socket(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """Checks on a compute node that the agent listens, where only root can stand in for it."""
    path = Path(config.agent.socket)
    if not path.is_socket():
        why = "hooks go on without an answer: no job is recorded, no GPU known, nothing refused"
        fix = "systemctl start probing-agent"
        yield doctor.fail("agent_socket", f"no socket at {path}", why=why, fix=fix)
    elif bad := untrusted(path.parent):
        why = (
            "another process could put its own socket there (hooks would not believe it, nor hear the agent)"
        )
        yield doctor.fail("agent_socket", bad, why=why, fix=safe_fix.for_socket("[agent] socket"))
    else:
        yield doctor.ok("agent_socket", str(path))


def pages(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """Checks on a compute node that a file system of its own bounds what jobs may write."""
    path = Path(config.agent.job_directory)
    if path.is_mount():
        yield doctor.ok("pages", f"{path} is a file system of its own")
        return
    why = "a job could fill the file system that its pages lie on"
    fix = "systemctl enable --now 'run-probing\\x2dcluster-jobs.mount'"
    yield doctor.warn("pages", f"{path} is not bounded", why=why, fix=fix)
