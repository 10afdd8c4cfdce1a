"""The demo where no cluster can run: a recorded incident through the same database, attribution and report."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.sandbox.demo import recording
from probing_cluster.sandbox.machine import commands, configs, layout

_MADE_BY_US = ("postgres", "etc")


def run(directory: Path, path: Path, *, announce: Callable[[str], None]) -> int:
    """Replays `path`, prints the report and writes the HTML one; stops the database again. Returns the job's id."""
    incident = recording.load(path)
    directory = directory.resolve()
    layout.require_own(directory)
    announce(f"replaying a recorded incident: {incident.about}")
    config = _fresh(directory, incident.cluster)
    try:
        announce("starting the embedded Postgres")
        with db_store.Store.open(settings.load(config), upgrade=True) as database:
            announce(f"storing {len(incident.attempts)} attempts and {len(incident.events)} events")
            recording.put(incident, database)
        _judge_and_report(directory, config, str(incident.job_id), announce)
    finally:
        embedded.stop(directory / "postgres")
    return incident.job_id


def _fresh(directory: Path, cluster: str) -> Path:
    """Removes what an earlier replay left and writes the configuration; returns its path."""
    if (directory / "postgres").exists():
        embedded.stop(directory / "postgres")
    for name in _MADE_BY_US:
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / "etc").mkdir(parents=True, exist_ok=True)
    config = directory / "etc/probing.toml"
    config.write_text(configs.replay_toml(cluster, directory / "postgres"))
    return config


def _judge_and_report(directory: Path, config: Path, job: str, announce: Callable[[str], None]) -> None:
    env = {**os.environ, "PROBING_CONFIG": str(config)}
    tools = Path(sys.executable).parent
    announce("judging")
    commands.run([str(tools / "probing-ctl"), "attribute", "--job", job], env=env, timeout_s=120)
    sys.stdout.write(f"\n$ probing-report {job}\n")
    sys.stdout.flush()
    html = directory / f"report-{job}.html"
    commands.call([str(tools / "probing-report"), job], env=env)
    commands.run([str(tools / "probing-report"), job, "--html", str(html)], env=env, timeout_s=120)
    announce("")
    announce(f"HTML report: {html}")
