"""The roles beside a real Slurm: the site's own hooks first, then ours; afterwards the site's hooks alone, and
no byte changed."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import requirements, scratch
from tests.ansible import conftest, playbooks
from tests.ansible.test_roles import variables
from tests.slurm_plugins.conftest import FakeAgent

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="the roles are root's"),
]
PATIENCE_S = 120.0


@pytest.fixture
def box() -> Iterator[cluster.Sandbox]:
    """One node, whose Prolog, Epilog, HealthCheckProgram and TaskProlog play the site's own."""
    if why := requirements.missing():
        pytest.skip(why)
    with (
        scratch.directory("probing-site-") as directory,
        cluster.Sandbox.up(directory / "box", nodes=1, gpus=0, bare=True) as made,
    ):
        yield made


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.mark.soak
def test_beside_the_sites_own_and_gone_again(box: cluster.Sandbox, tmp_path: Path) -> None:
    """A job passes the site's hooks and ours, in this order, and rides with the probe; after uninstalling it does not."""
    lay = box.layout
    marks = lay.directory / "marks"
    for kind in ("prolog", "epilog", "healthcheck"):
        script = lay.etc / f"{kind}.d/site"
        script.write_text(f"#!/bin/sh\necho {kind} >>{marks}\n")
        script.chmod(0o755)
    before = lay.slurm_conf.read_bytes()
    with scratch.directory("probing-ours-") as place:
        ours = (place / "units", place / "bin")
        for directory in ours:
            directory.mkdir()
        untouched = playbooks.picture(*ours)
        site = playbooks.Site(
            directory=place,
            groups=("probing_slurm_conf", "probing_compute", "probing_login"),
            environment={"PATH": box.env["PATH"]},
            variables={
                **variables(place),
                "probing_slurm_etc": str(lay.etc),
                "probing_plugstack": str(place / "nowhere/plugstack.conf"),
                "probing_inside_jobs": "taskprolog",
                "probing_slurm_reconfigure": True,
            },
        )
        assert site.play("site") > 0
        assert (place / "units/probing-agent.service").exists()

        def answer(connection: socket.socket, line: bytes) -> None:
            with marks.open("a") as opened:
                opened.write(f"our-{json.loads(line)['op']}\n")
            connection.sendall(b'{"v":1,"ok":true,"fit":true}\n')

        agent = FakeAgent(place / "run/agent.sock", answer)
        try:
            job = box.submit(f"echo path=$PYTHONPATH; cat {marks}", output=str(tmp_path / "out"))
            box.wait(job, ["COMPLETED"], timeout_s=PATIENCE_S)
            lines = (tmp_path / "out").read_text().splitlines()
            assert lines[0].startswith(f"path={place}/lib/probe:")
            assert "prolog" in lines[1:]
            until(lambda: {"prolog", "epilog", "healthcheck"} <= {r["op"] for r in agent.requests})
            until(lambda: {"prolog", "epilog", "healthcheck"} <= set(marks.read_text().split()))
            order = marks.read_text().split()
            for hook in ("prolog", "epilog"):
                assert order.index(hook) < order.index(f"our-{hook}")
            assert {r["job_id"] for r in agent.requests if r["op"] == "prolog"} == {job}
            site.play("uninstall", probing_purge=True)
            assert lay.slurm_conf.read_bytes() == before
            assert playbooks.picture(*ours) == untouched
            assert not any((place / name).exists() for name in ("lib", "etc"))
            n_before = len(agent.requests)
            job = box.submit("echo path=$PYTHONPATH", output=str(tmp_path / "after"))
            box.wait(job, ["COMPLETED"], timeout_s=PATIENCE_S)
            assert str(place) not in (tmp_path / "after").read_text()
            assert [r["op"] for r in agent.requests[n_before:] if r["op"] == "prolog"] == []
        finally:
            agent.close()


MAIL = """
- hosts: probing_slurm_conf
  become: true
  tasks:
    - ansible.builtin.include_role:
        name: control_plane
        tasks_from: mail_program
- hosts: probing_slurm_conf
  become: true
  roles: [slurm_config]
"""


@pytest.mark.soak
def test_our_mail_program_stands_before_the_sites_and_goes_again(box: cluster.Sandbox) -> None:
    """Applied twice: slurm.conf names ours, and with no service there the site's own has Slurm's arguments, unchanged."""
    lay = box.layout
    marks, own = lay.directory / "mails", lay.etc / "own-mail"
    own.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{marks}\n')
    own.chmod(0o755)
    lines = [line for line in lay.slurm_conf.read_text().splitlines() if not line.startswith("MailProg=")]
    lay.slurm_conf.write_text("\n".join([*lines, f"MailProg={own}", ""]))
    box.run(["scontrol", "reconfigure"])
    before = lay.slurm_conf.read_bytes()
    with scratch.directory("probing-ours-") as place:
        (place / "mail.yml").write_text(MAIL)
        site = playbooks.Site(
            directory=place,
            groups=("probing_slurm_conf",),
            environment={"PATH": box.env["PATH"]},
            variables={
                **variables(place),
                "probing_source": str(conftest.ROOT),  # this playbook lies elsewhere
                "probing_slurm_etc": str(lay.etc),
                "probing_inside_jobs": "none",
                "probing_mail_program": True,
                "probing_slurm_reconfigure": True,
                # Only the mail is installed here: the site's hooks stay Slurm's.
                "probing_slurm_set": {"MailProg": f"{place}/lib/slurm/mailprog"},
            },
        )
        assert site.play(str(place / "mail")) > 0
        assert f"\nMailProg={place}/lib/slurm/mailprog" in lay.slurm_conf.read_text()
        assert f"exec {own} " in (place / "lib/slurm/mailprog").read_text()
        assert site.play(str(place / "mail")) == 0, site.last()
        shown = box.run(["scontrol", "show", "config"]).stdout
        assert f"{place}/lib/slurm/mailprog" in shown
        job = box.submit("true", mail_type="END", mail_user="alice@site")
        until(lambda: marks.exists() and "alice@site" in marks.read_text())
        marked = marks.read_text().splitlines()
        assert (marked[0], marked[2]) == ("-s", "alice@site")
        assert f"Job_id={job} " in marked[1]
        site.play(str(place / "mail"), probing_state="absent", probing_mail_program=False)
        assert lay.slurm_conf.read_bytes() == before
