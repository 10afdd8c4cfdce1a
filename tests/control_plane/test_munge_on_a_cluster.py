"""Users of a real cluster ask for their reports as they do on a login node: real MUNGE, TLS, service, Slurm and accounting."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certificates
import pytest

from probing_cluster.sandbox import cluster, services
from probing_cluster.sandbox.machine import ports, processes, requirements, scratch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users"),
]
ALICE, MALLORY = "nobody", "daemon"
"""Accounts that every Debian has."""
AS_USER = """
import contextlib, os, sys
from probing_cluster.reports import cli
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
    cli.main(sys.argv[3:])
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[2]))
raise SystemExit(cli.main(sys.argv[3:]))
"""
"""The command, rehearsed first so that every module is loaded: this interpreter may lie where users cannot read."""
FAILS = "echo 'ValueError: bad'; exit 3"


@dataclasses.dataclass
class Site:
    """A cluster whose service answers on the network, and the settings of a login node."""

    sandbox: cluster.Sandbox
    login_node: Path

    def as_user(self, user: str, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command as that user runs it: with their uid, gid and nothing of root's."""
        account = pwd.getpwnam(user)
        return subprocess.run(
            argv,
            env=self.sandbox.env | {"PROBING_CONFIG": str(self.login_node), "HOME": "/nonexistent"},
            cwd=self.sandbox.layout.jobs,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
        )

    def submit(self, user: str) -> str:
        """sbatch of a job that fails at once."""
        done = self.as_user(user, "sbatch", "--parsable", "--output=/dev/null", stdin=f"#!/bin/sh\n{FAILS}\n")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def report(self, user: str, job: str) -> subprocess.CompletedProcess[str]:
        """`probing-report JOB --json`, by a process that has given up being root before it asks."""
        account = pwd.getpwnam(user)
        return subprocess.run(
            [
                sys.executable,
                "-c",
                AS_USER,
                str(account.pw_gid),
                str(account.pw_uid),
                job,
                "--json",
            ],
            env=self.sandbox.env | {"PROBING_CONFIG": str(self.login_node), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )

    def ended(self, user: str, job: str) -> dict[str, Any]:
        """The user's report of the job once it has ended and was judged."""
        deadline = time.monotonic() + 120
        while True:
            done = self.report(user, job)
            found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
            if found and found["attempts"] and found["attempts"][-1]["verdict"]:
                return found
            assert time.monotonic() < deadline, f"{done.stdout}\n{done.stderr}"
            time.sleep(0.5)


@pytest.fixture
def site() -> Iterator[Site]:
    """Two nodes; the service listens on a port with a certificate, and the login node has neither socket nor database."""
    if why := requirements.missing():
        pytest.skip(why)
    with (
        scratch.directory("pcmunge-") as directory,
        cluster.Sandbox.up(directory / "s", nodes=2, gpus=1) as sandbox,
    ):
        lay = sandbox.layout
        crt, key = certificates.self_signed(directory)
        port = ports.choose(1)[0]
        doors = f'listen = "127.0.0.1:{port}"\ntls_certificate = "{crt}"\ntls_key = "{key}"\n'
        text = lay.probing_toml.read_text()
        lay.probing_toml.write_text(text.replace("[service]\n", f"[service]\n{doors}"))
        processes.end(lay.directory, [services.SERVICE])
        services.start_service(lay, sandbox._daemon_env)
        login_node = directory / "login.toml"
        login_node.write_text(
            f'[cluster]\nname = "{_name_in(text)}"\n[database]\ndirectory = "{directory}/none"\n'
            f'[service]\nsocket = "{directory}/none"\naddress = "localhost:{port}"\ntls_ca = "{crt}"\n'
            f'munge_socket = "{lay.munge_socket}"\n'
        )
        yield Site(sandbox=sandbox, login_node=login_node)


def _name_in(settings: str) -> str:
    return settings.partition("[cluster]")[2].partition('"')[2].partition('"')[0]


@pytest.mark.soak
def test_users_see_their_own_jobs_and_nobody_elses(site: Site) -> None:
    """Each of two users is told why their job failed; asked for the other's, the service shows nothing; root sees both."""
    jobs = {user: site.submit(user) for user in (ALICE, MALLORY)}
    for user, job in jobs.items():
        found = site.ended(user, job)
        (attempt,) = found["attempts"]
        assert (attempt["state"], found["user"]) == ("FAILED", user)
    for user, job in ((ALICE, jobs[MALLORY]), (MALLORY, jobs[ALICE])):
        refused = site.report(user, job)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert "Traceback" not in refused.stderr
    assert site.report(ALICE, "999").returncode in {3, 5}
    assert site.report("root", jobs[ALICE]).returncode == 0
