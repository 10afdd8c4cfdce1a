"""Telling people, on a real Slurm cluster: the owner's mail with the verdict, the operators' message, the line in accounting."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(str(Path(__file__).parents[1] / room) for room in ("control_plane", "reports"))

import mail_server
import web_sink

from probing_cluster.sandbox import cluster, services
from probing_cluster.sandbox.machine import processes, scratch
from tests.e2e import conftest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


class Site(conftest.Cluster):
    """A cluster whose service mails to `box` and posts to `sink`, both real servers."""

    box: mail_server.Box
    sink: web_sink.Sink

    def site_mails(self) -> list[list[str]]:
        """The arguments of every call of the site's own mail program."""
        kept = self.sandbox.layout.log / "mail.jsonl"
        return (
            [json.loads(line)["arguments"] for line in kept.read_text().splitlines()] if kept.exists() else []
        )

    def mails_about(self, job: int) -> list[str]:
        """Subjects of our mails about a job."""
        found = [str(self.box.message(n)["Subject"]) for n in range(len(self.box.mails))]
        return [subject for subject in found if f"Job_id={job} " in subject]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("needs root and Debian's slurm packages")
    box, sink = mail_server.Box(), web_sink.Sink()
    with (
        scratch.directory("pcnote-") as directory,
        mail_server.running(box) as smtp_port,
        cluster.Sandbox.up(directory / "s", nodes=2, gpus=2) as sandbox,
    ):
        cert = mail_server.certificate(directory)
        with web_sink.running(sink, cert) as web_port:
            urls = directory / "urls"
            urls.write_text(f"jsons://localhost:{web_port}/hook\n")
            urls.chmod(0o600)
            lay = sandbox.layout
            text = lay.probing_toml.read_text()
            text = text.replace(
                "[mail]\n", f'[mail]\nhost = "localhost"\nport = {smtp_port}\nsecurity = "none"\n'
            )
            text = text.replace(
                "[service]\n", '[service]\nwrite_back = "SystemComment"\nmail_wait_s = 40.0\n'
            )
            text += f'\n[notices]\nupdate_s = 1.0\n\n[[notices.routes]]\nname = "ops"\nurl_file = "{urls}"\n'
            lay.probing_toml.write_text(text)
            processes.end(lay.directory, [services.SERVICE])
            services.start_service(lay, {**sandbox._daemon_env, "REQUESTS_CA_BUNDLE": str(cert[0])})
            made = Site(sandbox)
            made.box, made.sink = box, sink
            for node in lay.node_names:
                made.alive(node)
            yield made


def test_the_owner_gets_the_verdict_in_slurms_mail(site: Any) -> None:
    """FAIL comes with the cause; BEGIN goes to the site's own program, unchanged; END alone is mailed by us (22.05)."""
    asked = site.sandbox.submit(
        "echo KeyError: x; exit 3", mail_type="ALL", mail_user="alice@site", gres="gpu:1"
    )
    only_end = site.sandbox.submit("exit 3", mail_type="END", mail_user="alice@site", gres="gpu:1")
    for job in (asked, only_end):
        site.until(f"mail about {job}", lambda job=job: site.mails_about(job), 60)
    (subject,) = site.mails_about(asked)
    assert "Failed" in subject
    assert "died" in subject
    (subject,) = site.mails_about(only_end)
    assert "Ended" in subject
    begun = [a for a in site.site_mails() if f"Job_id={asked} " in a[1]]
    assert [(a[0], a[2]) for a in begun] == [("-s", "alice@site")]
    assert "Began" in begun[0][1]
    line = site.until("line in accounting", lambda: written(site, asked), 60)
    assert line.startswith("probing #1: ")


def written(site: Any, job: int) -> str:
    """The job's SystemComment."""
    return str(
        site.sandbox.run(["sacct", "-X", "-n", "-P", "-j", str(job), "--format=SystemComment"]).stdout
    ).strip()


def test_with_the_service_away_the_sites_program_is_called_unchanged(site: Any) -> None:
    """Slurm's own arguments, and nothing is sent twice once the service is back."""
    lay = site.sandbox.layout
    processes.end(lay.directory, [services.SERVICE])
    try:
        job = site.sandbox.submit("exit 4", mail_type="FAIL", mail_user="bob@site", gres="gpu:1")
        call = site.until("call", lambda: [a for a in site.site_mails() if f"Job_id={job} " in a[1]])
        assert call[0][0] == "-s"
        assert call[0][1].startswith(f"Slurm Job_id={job} Name=sbatch Failed, Run time")
        assert call[0][2:] == ["bob@site"]
    finally:
        cert = next(lay.directory.parent.glob("cert.pem"))
        services.start_service(lay, {**site.sandbox._daemon_env, "REQUESTS_CA_BUNDLE": str(cert)})
    assert site.mails_about(job) == []


def test_a_drain_is_told_within_ten_seconds_of_its_fault(site: Any) -> None:
    """From the kernel's line to the message in the sink; the job's requeue is told to its owner with the cause."""
    job = site.sandbox.submit("sleep 300", mail_type="REQUEUE", mail_user="alice@site", gres="gpu:2", nodes=1)
    (node,) = site.running(job)
    began = time.monotonic()
    site.sandbox.fault(node, "xid", code=79, gpu=0)
    site.until("message", lambda: any(f"Drained: {node}" in t for t in site.sink.titles), 30)
    print(f"fault to message: {time.monotonic() - began:.1f} s")
    site.until(f"mail about {job}", lambda: site.mails_about(job), 60)
    assert "Requeued" in site.mails_about(job)[0]
    assert (
        len([t for t in site.sink.titles if t.endswith(f"Drained: {node} (xid)") and "Update" not in t]) == 1
    )
