"""A real cluster whose service mails and posts to real servers of ours, and when they had what."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / room) for room in ("control_plane", "reports"))

import mail_server
import web_sink

from probing_cluster.sandbox import cluster, services
from probing_cluster.sandbox.machine import processes, scratch
from tests.e2e import conftest

_QUICK = re.compile(
    r"^(accounting_poll_s|attribution_poll_s|action_poll_s|queue_poll_s|settle_s|beat_s|job_beat_s|poll_s|sweep_s|"
    r"stall_least_s|stall_startup_s) = .*\n",
    re.MULTILINE,
)
"""The sandbox's own intervals, shorter than those of an installation."""


class Site(conftest.Cluster):
    """A cluster whose service mails to `box` and posts to `sink`, both real servers."""

    box: mail_server.Box
    sink: web_sink.Sink
    intervals: str
    """Whose: the sandbox's or an installation's."""

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

    def verdict_mailed_at(self, job: int, word: str = "") -> float | None:
        """When the owner's mail with a verdict on the job came, of this event: Failed, Ended, Requeued."""
        for n, at in enumerate(self.box.at_s):
            mail = self.box.message(n)
            part = mail.get_body(("plain",))
            subject = str(mail["Subject"])
            follows = part is not None and "The verdict follows" in part.get_content()
            if f"Job_id={job} " in subject and word in subject and not follows:
                return at
        return None

    def posted_at(self, words: str, line: str = "", since: float = 0.0) -> float | None:
        """When the first post with these words in its title and this in its text came."""
        for post, at in zip(self.sink.posts, self.sink.at_s, strict=True):
            if at >= since and words in post["title"] and line in post["message"]:
                return at
        return None

    def operators_mailed_at(self, words: str, line: str = "", since: float = 0.0) -> float | None:
        """The same of mails to operators."""
        for n, at in enumerate(self.box.at_s):
            mail = self.box.message(n)
            ours = at >= since and "ops@site" in self.box.mails[n][0] and words in str(mail["Subject"])
            if ours and line in mail.get_content():
                return at
        return None


@contextlib.contextmanager
def site(*, nodes: int = 2, gpus: int = 2, budget_nodes: int = 9, installed: bool = False) -> Iterator[Site]:
    """The cluster; `installed`: agents and service look as seldom as an installation's do by default."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("needs root and Debian's slurm packages")
    box, sink = mail_server.Box(), web_sink.Sink()
    with (
        scratch.directory("pcnote-") as directory,
        mail_server.running(box) as smtp_port,
        cluster.Sandbox.up(directory / "s", nodes=nodes, gpus=gpus) as sandbox,
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
            route = 'severity = "info"\nper_hour = 1000\n'
            text += f'\n[notices]\nupdate_s = 1.0\n\n[[notices.routes]]\nname = "ops"\nurl_file = "{urls}"\n{route}'
            text += f'\n[[notices.routes]]\nname = "mails"\nmail_to = ["ops@site"]\n{route}'
            # Each drain stays as it is.
            text = conftest.Cluster.untested(text).replace("frac = 0.5", "frac = 1.0")
            text = text.replace(f"budget_nodes = {max(2, nodes // 2)}", f"budget_nodes = {budget_nodes}")
            lay.probing_toml.write_text(_QUICK.sub("", text) if installed else text)
            processes.end(lay.directory, [services.SERVICE])
            if installed:
                agents = [services.agent_role(n) for n in lay.node_names]
                processes.end(lay.directory, agents)
                for node in lay.node_names:
                    own = lay.node(node) / "probing.toml"
                    own.write_text(_QUICK.sub("", own.read_text()))
                services.start_agents(lay, sandbox._daemon_env, lay.node_names)
            services.start_service(lay, {**sandbox._daemon_env, "REQUESTS_CA_BUNDLE": str(cert[0])})
            with contextlib.closing(Site(sandbox)) as made:
                made.box, made.sink = box, sink
                made.intervals = "installed" if installed else "sandbox"
                for node in lay.node_names:
                    made.alive(node)
                yield made
