"""Booting a sandbox: its files, then Slurm and our own processes side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path

from probing_cluster import probe_agent, slurm_plugins
from probing_cluster.sandbox import services
from probing_cluster.sandbox.c_libraries import nvml_build, spank_build
from probing_cluster.sandbox.machine import configs, daemons, layout, mounts, slurm_conf
from probing_cluster.sandbox.nodetree import build

Env = Mapping[str, str]
Announce = Callable[[str], None]


def boot(lay: layout.Layout, env: Env, announce: Announce) -> None:
    """Starts everything and returns when it is usable; what had started before an error is left to the caller."""
    write_files(lay)
    with futures.ThreadPoolExecutor(max_workers=2) as pool:
        halves = [pool.submit(_slurm, lay, env, announce)]
        if not lay.bare:
            halves.append(pool.submit(_ours, lay, env, announce))
        for half in halves:
            half.result()
    if not lay.bare:
        announce("probing-ctl serve")
        services.start_service(lay, env)


def write_files(lay: layout.Layout) -> None:
    """Every directory, configuration file, simulated node and built library."""
    for path in (lay.etc, lay.bin, lay.lib, lay.log, lay.run, lay.state, lay.jobs, lay.kept):
        path.mkdir(parents=True, exist_ok=True)
    lay.save()
    lay.jobs.chmod(0o1777)
    lay.kept.chmod(0o1777)
    for number, name in enumerate(lay.node_names, start=1):
        for sub in ("run/jobs", "spool", "slurmd"):
            (lay.node(name) / sub).mkdir(parents=True, exist_ok=True)
        mounts.bound(lay.node(name) / "run/jobs")
        build.build(lay.node(name), name, number=number, gpus=lay.gpus)
    shutil.rmtree(lay.probe, ignore_errors=True)
    probe = Path(probe_agent.__path__[0]).resolve() / "inject/site"
    shutil.copytree(probe, lay.probe, ignore=shutil.ignore_patterns("__pycache__"))
    slurm_conf.write(lay, _own_hooks(lay), spank_build.build(lay.lib))
    if not lay.bare:
        configs.write(lay, nvml_build.build(lay.lib))


def _own_hooks(lay: layout.Layout) -> Path:
    """A copy of the hooks: as root they run nothing of another account's, and the checkout may be one's."""
    copy = lay.lib / "hooks"
    shutil.rmtree(copy, ignore_errors=True)
    source = Path(slurm_plugins.__path__[0]).resolve() / "hooks"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    return copy


def _slurm(lay: layout.Layout, env: Env, announce: Announce) -> None:
    announce("munge, MariaDB and slurmdbd")
    daemons.start_munge(lay, env)
    daemons.start_mariadb(lay, env)
    daemons.start_slurmdbd(lay, env)
    daemons.enrol(env)
    announce(f"slurmctld and {lay.nodes} x slurmd")
    daemons.start_slurmctld(lay, env)
    for name in lay.node_names:
        daemons.start_slurmd(lay, env, name)
    daemons.wait_for_nodes(lay, env)


def _ours(lay: layout.Layout, env: Env, announce: Announce) -> None:
    announce("embedded Postgres")
    services.start_database(lay)
    announce(f"{lay.nodes} x probing-agent")
    services.start_agents(lay, env, lay.node_names)
