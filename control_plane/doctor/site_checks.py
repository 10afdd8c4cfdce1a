"""What `probing-ctl doctor` looks at: Slurm's configuration, the database, rights, sockets and the policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from probing_cluster.control_plane.doctor import site_certificates, site_doors, site_names, site_rights
from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, doctor

Ask = Callable[[], Iterable[doctor.DoctorFinding]]
OfSlurm = Callable[[settings.Settings, Mapping[str, str]], Iterable[doctor.DoctorFinding]]
NODE_SETTINGS = Path("/etc/probing-cluster/agent.toml")
"""Where a compute node has its settings; it has no others."""


def examine(
    config: settings.Settings, run: commands.Runner, path: Path | None = None
) -> list[doctor.DoctorFinding]:
    """Every finding, ours and Slurm's, worst first; a check that cannot run is a finding itself."""
    from probing_cluster.control_plane.doctor import (  # their libraries are not on compute nodes
        site_database,
        site_mail,
    )

    where = path or settings_path()
    return _sorted([
        *_slurm(run, config, site_mail.mail_program),
        *_each(
            ("accounting", lambda: _sacct(run)),
            ("admin_level", lambda: site_rights.account(config, run)),
            ("database", lambda: site_database.everything(config, run)),
            ("policy", lambda: _policy(config)),
            ("helper", lambda: site_rights.helper(config)),
            ("report_socket", lambda: site_doors.own_socket(config)),
            ("munge", lambda: site_doors.munged(config)),
            ("network_door", lambda: site_doors.network_door(config)),
            ("node_door", lambda: site_doors.node_door(config)),
            ("notices", lambda: site_mail.notice_routes(config)),
            ("write_back", lambda: site_mail.written_back(config)),
            ("certificates", lambda: site_certificates.files(config)),
            ("users_python", site_rights.users_python),
            ("settings", lambda: site_rights.settings_file(where)),
            ("secrets", lambda: site_rights.secrets(config, where)),
        ),
    ])  # fmt: skip


def examine_node(
    config: settings.Settings, run: commands.Runner, path: Path | None = None
) -> list[doctor.DoctorFinding]:
    """What only the compute node itself can tell: the hooks' files, the agent's socket, the pages' file system."""
    where = path or node_settings_path() or settings_path()
    return _sorted([
        *(f for f in _slurm(run, config) if f.level == "fail" or f.name.endswith(("_path", "cluster_name"))),
        *_each(
            ("agent_socket", lambda: site_rights.agent_socket(config)),
            ("pages", lambda: site_rights.pages(config)),
            ("certificates", lambda: site_certificates.files(config)),
            ("users_python", site_rights.users_python),
            ("settings", lambda: site_rights.settings_file(where)),
            ("secrets", lambda: site_rights.secrets(config, where)),
        ),
    ])  # fmt: skip


def node_settings_path() -> Path | None:
    """The agent's settings where nothing else is named or in the usual place; None = as everywhere."""
    usual = os.environ.get("PROBING_CONFIG") or settings.DEFAULT_PATH.exists()
    return NODE_SETTINGS if not usual and NODE_SETTINGS.exists() else None


def settings_path() -> Path:
    """The settings file in force when none is named."""
    return Path(os.environ.get("PROBING_CONFIG") or settings.DEFAULT_PATH)


def _each(*checks: tuple[str, Ask]) -> Iterator[doctor.DoctorFinding]:
    for name, check in checks:
        try:
            yield from check()
        except (errors.ProbingError, OSError) as exc:
            fix = "what it says comes first; then ask again"
            yield doctor.fail(name, "cannot be checked", why=str(exc), fix=fix)


def _sorted(found: list[doctor.DoctorFinding]) -> list[doctor.DoctorFinding]:
    order = ("fail", "warn", "note", "ok")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _slurm(run: commands.Runner, config: settings.Settings, *more: OfSlurm) -> list[doctor.DoctorFinding]:
    try:
        text = run("scontrol", "show", "config").decode("utf-8", "replace")
    except errors.SlurmUnavailable as exc:
        fix = "check [slurm] conf and bin_directory, and that slurmctld runs"
        return [doctor.fail("slurmctld", "no answer", why=str(exc), fix=fix)]
    slurm_config = doctor.parse(text)
    return [
        *doctor.findings(text),
        *site_names.cluster(config, slurm_config),
        *site_rights.hooks(slurm_config),
        *(finding for look in more for finding in look(config, slurm_config)),
    ]


def _sacct(run: commands.Runner) -> Iterator[doctor.DoctorFinding]:
    try:
        run("sacct", "-n", "-X", "-S", "now-1minutes")
    except errors.SlurmUnavailable as exc:
        fix = "AccountingStorageType=accounting_storage/slurmdbd, and slurmdbd running"
        yield doctor.fail("slurmdbd", "sacct fails", why=str(exc), fix=fix)
        return
    yield doctor.ok("slurmdbd", "sacct answers")


def _policy(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    if config.policy.observe_only:
        why = "decisions are recorded, nothing is drained or requeued"
        fix = "after a look at probing-ctl policy simulate: [policy] observe_only = false"
        yield doctor.note("policy", "observe-only", why=why, fix=fix)
        return
    limit = f"{config.policy.budget_nodes} nodes, {config.policy.budget_frac:.0%} of the cluster"
    found = (
        f"enforcing, at most {limit} per {config.policy.budget_window_s:.0f} s, "
        f"{config.policy.standing_frac:.0%} out at one time"
    )
    yield doctor.ok("policy", found)
