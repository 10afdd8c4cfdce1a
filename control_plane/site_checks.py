"""What `probing-ctl doctor` looks at beyond Slurm's configuration: database, agents, rights, socket."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, doctor

Check = Callable[[settings.Settings], Iterator[doctor.Finding]]


def examine(config: settings.Settings, run: commands.Runner) -> list[doctor.Finding]:
    """Every finding, ours and Slurm's; a check that cannot run is a finding itself."""
    found = _slurm(run)
    for check in (_database, _agents, _policy, _socket, _secrets):
        try:
            found += check(config)
        except errors.ProbingError as exc:
            name = check.__name__.strip("_")
            found.append(doctor.Finding(name=name, level="fail", found="cannot be checked", why=str(exc)))
    order = ("fail", "warn", "note", "ok")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _slurm(run: commands.Runner) -> list[doctor.Finding]:
    try:
        text = run("scontrol", "show", "config").decode("utf-8", "replace")
        found = doctor.findings(text)
    except errors.SlurmUnavailable as exc:
        fix = "check [slurm] conf and bin_directory, and that slurmctld runs"
        return [doctor.Finding(name="slurmctld", level="fail", found="no answer", why=str(exc), fix=fix)]
    try:
        run("sacct", "-e")
    except errors.SlurmUnavailable as exc:
        fix = "set AccountingStorageType=accounting_storage/slurmdbd; without accounting no attempt is known"
        found.append(
            doctor.Finding(name="accounting", level="fail", found="sacct fails", why=str(exc), fix=fix)
        )
    return found


def _database(config: settings.Settings) -> Iterator[doctor.Finding]:
    from probing_cluster.db import embedded, migrate

    directory = config.database.directory
    if not config.database.url and not embedded.running(directory):
        fix = "probing-ctl db upgrade"
        yield doctor.Finding(name="database", level="fail", found=f"no server runs in {directory}", fix=fix)
        return
    status = migrate.status(config.database.url or embedded.url(directory))
    if status.up_to_date:
        yield doctor.Finding(name="database", level="ok", found=f"schema {status.current}")
    else:
        found = f"schema {status.current or 'none'}, this version needs {status.head}"
        yield doctor.Finding(name="database", level="fail", found=found, fix="probing-ctl db upgrade")
    if not config.database.url:
        why = "agents on other hosts cannot reach the embedded server"
        fix = "set [database] url on a cluster of more than one host"
        yield doctor.Finding(
            name="database_reach", level="note", found="embedded, local socket only", why=why, fix=fix
        )


def _agents(config: settings.Settings) -> Iterator[doctor.Finding]:
    from probing_cluster.db import store as db_store

    with db_store.Store.open(config) as store:
        beats = {b.node: b.beat_s for b in store.heartbeats()}
        ages = store.heartbeat_ages_s()
    silent = sorted(n for n, beat_s in beats.items() if ages.get(n, float("inf")) > 3 * beat_s)
    if not beats:
        fix = "start probing-agent on the nodes, with [database] url or [agent] database_url"
        yield doctor.Finding(name="agents", level="fail", found="none was ever heard", fix=fix)
    elif silent:
        shown = ", ".join(silent[:8]) + (" …" if len(silent) > 8 else "")
        why = "nothing is seen on these nodes, and nothing is done about them"
        yield doctor.Finding(
            name="agents", level="warn", found=f"{len(silent)} of {len(beats)} silent: {shown}", why=why
        )
    else:
        yield doctor.Finding(name="agents", level="ok", found=f"{len(beats)} heard")


def _policy(config: settings.Settings) -> Iterator[doctor.Finding]:
    if config.policy.observe_only:
        why = "decisions are recorded, nothing is drained or requeued"
        fix = "after a look at probing-ctl policy simulate: [policy] observe_only = false"
        yield doctor.Finding(name="policy", level="note", found="observe-only", why=why, fix=fix)
        return
    limit = f"{config.policy.budget_nodes} nodes, {config.policy.budget_frac:.0%} of the cluster"
    yield doctor.Finding(
        name="policy",
        level="ok",
        found=f"enforcing, at most {limit} per {config.policy.budget_window_s:.0f} s",
    )


def _socket(config: settings.Settings) -> Iterator[doctor.Finding]:
    path = Path(config.service.socket)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        yield doctor.Finding(name="report_socket", level="ok", found=str(path))
        return
    why = "users' probing-report is answered only while probing-ctl serve runs"
    yield doctor.Finding(
        name="report_socket",
        level="warn",
        found=f"no socket at {path}",
        why=why,
        fix="start probing-ctl serve",
    )


def _secrets(config: settings.Settings) -> Iterator[doctor.Finding]:
    named = [Path(p) for p in (os.environ.get("PROBING_CONFIG", ""), config.mail.password_file) if p]
    for path in named:
        secret = (
            path == Path(config.mail.password_file)
            or "password=" in config.database.url
            or ":" in _userinfo(config)
        )
        if path.exists() and secret and path.stat().st_mode & 0o077:
            found = f"{path} is mode {stat.S_IMODE(path.stat().st_mode):04o}"
            yield doctor.Finding(
                name="secrets",
                level="fail",
                found=found,
                why="it holds a password others can read",
                fix=f"chmod 600 {path}",
            )


def _userinfo(config: settings.Settings) -> str:
    return config.database.url.partition("://")[2].partition("@")[0] if "@" in config.database.url else ""
