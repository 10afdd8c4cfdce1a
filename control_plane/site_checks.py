"""What `probing-ctl doctor` looks at: Slurm's configuration, the database, rights, sockets and the policy."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from probing_cluster.control_plane import site_database, site_rights
from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, doctor

Ask = Callable[[], Iterable[doctor.Finding]]


def examine(
    config: settings.Settings, run: commands.Runner, path: Path | None = None
) -> list[doctor.Finding]:
    """Every finding, ours and Slurm's, worst first; a check that cannot run is a finding itself."""
    where = path or settings_path()
    return _sorted([
        *_slurm(run),
        *_each(
            ("accounting", lambda: _sacct(run)),
            ("admin_level", lambda: site_rights.account(config, run)),
            ("database", lambda: site_database.schema(config)),
            ("postgres", lambda: site_database.server(config)),
            ("agents", lambda: site_database.agents(config)),
            ("policy", lambda: _policy(config)),
            ("helper", lambda: site_rights.helper(config)),
            ("report_socket", lambda: _door(config)),
            ("settings", lambda: site_rights.settings_file(where)),
            ("secrets", lambda: site_rights.secrets(config, where)),
        ),
    ])  # fmt: skip


def examine_node(
    config: settings.Settings, run: commands.Runner, path: Path | None = None
) -> list[doctor.Finding]:
    """What only the compute node itself can tell: the hooks' files, the agent's socket, the pages' file system."""
    where = path or settings_path()
    return _sorted([
        *(f for f in _slurm(run) if f.level == "fail" or f.name.endswith("_path")),
        *_each(
            ("agent_socket", lambda: site_rights.agent_socket(config)),
            ("pages", lambda: site_rights.pages(config)),
            ("settings", lambda: site_rights.settings_file(where)),
            ("secrets", lambda: site_rights.secrets(config, where)),
        ),
    ])  # fmt: skip


def settings_path() -> Path:
    """The settings file in force when none is named."""
    return Path(os.environ.get("PROBING_CONFIG") or settings.DEFAULT_PATH)


def _each(*checks: tuple[str, Ask]) -> Iterator[doctor.Finding]:
    for name, check in checks:
        try:
            yield from check()
        except (errors.ProbingError, OSError) as exc:
            fix = "what it says comes first; then ask again"
            yield doctor.Finding(name=name, level="fail", found="cannot be checked", why=str(exc), fix=fix)


def _sorted(found: list[doctor.Finding]) -> list[doctor.Finding]:
    order = ("fail", "warn", "note", "ok")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _slurm(run: commands.Runner) -> list[doctor.Finding]:
    try:
        text = run("scontrol", "show", "config").decode("utf-8", "replace")
    except errors.SlurmUnavailable as exc:
        fix = "check [slurm] conf and bin_directory, and that slurmctld runs"
        return [doctor.Finding(name="slurmctld", level="fail", found="no answer", why=str(exc), fix=fix)]
    return [*doctor.findings(text), *site_rights.hooks(doctor.parse(text))]


def _sacct(run: commands.Runner) -> Iterator[doctor.Finding]:
    try:
        run("sacct", "-n", "-X", "-S", "now-1minutes")
    except errors.SlurmUnavailable as exc:
        fix = "AccountingStorageType=accounting_storage/slurmdbd, and slurmdbd running"
        yield doctor.Finding(name="slurmdbd", level="fail", found="sacct fails", why=str(exc), fix=fix)
        return
    yield doctor.Finding(name="slurmdbd", level="ok", found="sacct answers")


def _policy(config: settings.Settings) -> Iterator[doctor.Finding]:
    if config.policy.observe_only:
        why = "decisions are recorded, nothing is drained or requeued"
        fix = "after a look at probing-ctl policy simulate: [policy] observe_only = false"
        yield doctor.Finding(name="policy", level="note", found="observe-only", why=why, fix=fix)
        return
    limit = f"{config.policy.budget_nodes} nodes, {config.policy.budget_frac:.0%} of the cluster"
    found = f"enforcing, at most {limit} per {config.policy.budget_window_s:.0f} s"
    yield doctor.Finding(name="policy", level="ok", found=found)


def _door(config: settings.Settings) -> Iterator[doctor.Finding]:
    path = Path(config.service.socket)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        yield doctor.Finding(name="report_socket", level="ok", found=str(path))
        return
    why = "users' probing-report is answered only while probing-ctl serve runs"
    fix = "start probing-ctl serve"
    yield doctor.Finding(name="report_socket", level="warn", found=f"no socket at {path}", why=why, fix=fix)
