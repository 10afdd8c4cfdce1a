"""A teller that is killed again and again loses nothing, and doubles nothing that its mark does not give away."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import mail_server
import pytest
import web_sink

from probing_cluster.core import records
from probing_cluster.db import store as db_store

TELLER = Path(__file__).with_name("teller.py")
SERVICE = Path(__file__).with_name("service_teller.py")
KILLS = int(os.environ.get("PROBING_KILL_ROUNDS", "200"))


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_nothing_is_lost_and_a_double_bears_the_same_mark(tmp_path: Path, kills: int) -> None:
    """SIGKILL at any instant; each fact is one message (one mark), delivered at least once, on a real SMTP server."""
    config, facts = tmp_path / "probing.toml", tmp_path / "facts"
    facts.touch()
    box, dice, names = mail_server.Box(), random.Random(kills), []
    with mail_server.running(box) as port:
        config.write_text(
            f'[mail]\nhost = "localhost"\nport = {port}\nsecurity = "none"\nspool_directory = "{tmp_path}/mail"\nretry_s = 0.1\n'
            '[notices]\n[[notices.routes]]\nname = "ops"\nmail_to = ["ops@site"]\nper_hour = 1000000\n'
        )
        for n in range(kills):
            teller = start(config, facts)
            for m in range(3):
                names.append(f"fact-{n}-{m}")
                with facts.open("a") as stream:
                    stream.write(json.dumps([names[-1], datetime.now(UTC).isoformat()]) + "\n")
                time.sleep(dice.uniform(0, 0.05))
            teller.kill()
            teller.wait()
        last = start(config, facts, "once")
        assert last.wait(timeout=60) == 0
    mails = [box.message(n) for n in range(len(box.mails))]
    marks = {str(m["Message-ID"]): str(m["Subject"]) for m in mails}
    counted = Counter(subject.rpartition("(")[2].rstrip(")") for subject in marks.values())
    assert counted == Counter(names)
    print(
        f"{kills} kills: {len(names)} facts, {len(mails)} mails, {len(mails) - len(marks)} sent twice under one mark"
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_drains_are_posted_and_mailed_through_kills(
    store: db_store.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of rows in the database, to a real HTTPS and a real SMTP server: killed while it decides, stores, posts or mails."""
    config, urls = tmp_path / "probing.toml", tmp_path / "urls"
    cert = mail_server.certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert[0]))
    box, sink, dice, names = mail_server.Box(), web_sink.Sink(), random.Random(KILLS), list[str]()
    with mail_server.running(box) as smtp_port, web_sink.running(sink, cert) as web_port:
        urls.write_text(f"jsons://localhost:{web_port}/hook\n")
        urls.chmod(0o600)
        config.write_text(
            f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n[mail]\nhost = "localhost"\nport = {smtp_port}\n'
            f'security = "none"\nspool_directory = "{tmp_path}/mail"\nretry_s = 0.1\n[notices]\n'
            f'[[notices.routes]]\nname = "ops"\nurl_file = "{urls}"\nper_hour = 1000000\n'
            '[[notices.routes]]\nname = "mails"\nmail_to = ["ops@site"]\nper_hour = 1000000\n'
        )
        for n in range(KILLS):
            teller = start(config, program=SERVICE)
            names.append(f"fact-{n}")
            drained(store, names[-1])
            time.sleep(dice.uniform(0, 2.0))
            teller.kill()
            teller.wait()
        last = start(config, "once", program=SERVICE)
        assert last.wait(timeout=600) == 0
    posts = {p["message"].rpartition("ref ")[2]: p["title"] for p in sink.posts}
    messages = [box.message(n) for n in range(len(box.mails))]
    mails = {str(m["Message-ID"]): str(m["Subject"]) for m in messages}
    for found in (posts, mails):
        assert Counter(t.rpartition("(")[2].rstrip(")") for t in found.values()) == Counter(names)
    twice = (
        f"{len(sink.posts) - len(posts)} posts and {len(messages) - len(mails)} mails twice under one mark"
    )
    print(f"{KILLS} kills: {len(names)} drains, {len(sink.posts)} posts, {len(messages)} mails, {twice}")


def drained(store: db_store.Store, cause: str) -> None:
    """A drain of ours, as the service records it."""
    store.save_drain(
        records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node="n1", at=datetime.now(UTC), action="drain", reason=f"probing: {cause} gpu3",
            owner="probing", state="done", severity=records.Severity.HIGH,
        )
    )  # fmt: skip


def start(*arguments: object, program: Path = TELLER) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process
