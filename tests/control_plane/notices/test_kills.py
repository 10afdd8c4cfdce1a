"""A teller that is killed again and again loses nothing, and doubles nothing that its mark does not give away."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import mail_server
import pytest

TELLER = Path(__file__).with_name("teller.py")


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


def start(*arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(TELLER), *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process
