"""MailProg: what it hands over, and that whatever goes wrong ends at the site's own program with Slurm's own arguments."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster import slurm_plugins

HOOK = Path(slurm_plugins.__path__[0]).resolve() / "hooks/mail_program.py"
ARGUMENTS = ["-s", "Slurm Job_id=7 Name=a 'b' \"c\" $(d)\nx Failed", "alice@site"]
JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_MAIL_TYPE": "Failed", "SLURM_JOB_STATE": "FAILED", "SLURM_JOB_RESTART_COUNT": "2",
    "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_NAME": "x",
}  # fmt: skip


@contextlib.contextmanager
def serving(path: Path, answer: bytes | None) -> Iterator[list[dict[str, object]]]:
    """A door that gives one answer, or none; what it was asked."""
    calls: list[dict[str, object]] = []
    done = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                calls.append(json.loads(stream.readline()))
                if answer is None:
                    done.wait(20)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield calls
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    path.unlink()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The script that slurm.conf names, with a site's program that keeps its arguments."""
    site, ours = tmp_path / "site", tmp_path / "mailprog"
    site.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >{tmp_path}/called\n')
    ours.write_text(
        f'#!/bin/sh\n/usr/bin/python3 -I -S {HOOK} --socket {tmp_path}/sock -- "$@" || exec {site} "$@"\n'
    )
    for path in (site, ours):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ours


def call(program: Path, subject: str = ARGUMENTS[1], **changes: str) -> list[str] | None:
    """The site's program's arguments; None when it was not called."""
    environment = {**os.environ, **JOB, **changes}
    arguments = ["-s", subject, ARGUMENTS[2]]
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, timeout=30, check=True)
    assert done.stdout == done.stderr == b""
    called = program.parent / "called"
    return called.read_text().split("\0")[:-1] if called.exists() else None


def test_the_service_has_it_and_the_site_is_not_called(program: Path, tmp_path: Path) -> None:
    """Subject, recipient and the attempt; nothing of the job's own variables."""
    with serving(tmp_path / "sock", b'{"v": 1, "ok": true}\n') as requests:
        assert call(program) is None
    (calls,) = requests
    assert (calls["op"], calls["subject"], calls["recipient"]) == ("mail", ARGUMENTS[1], ARGUMENTS[2])
    environment = calls["environment"]
    assert isinstance(environment, dict)
    assert environment["SLURM_JOB_RESTART_COUNT"] == "2"
    assert "SLURM_JOB_NAME" not in environment


@pytest.mark.parametrize("answer", [b'{"v": 1, "ok": false}\n', b"nonsense\n", b"", b"[]\n", b'{"ok": 1}\n'])
def test_refused_or_misunderstood_the_site_sends_it(program: Path, tmp_path: Path, answer: bytes) -> None:
    """With Slurm's arguments to the letter."""
    with serving(tmp_path / "sock", answer):
        assert call(program) == ARGUMENTS


def test_without_a_service_or_an_answer_the_site_sends_it(program: Path, tmp_path: Path) -> None:
    """Nobody there, and somebody who never answers: after ten seconds."""
    assert call(program) == ARGUMENTS
    (tmp_path / "called").unlink()
    with serving(tmp_path / "sock", None):
        assert call(program) == ARGUMENTS


@pytest.mark.parametrize(
    "changes",
    [{"SLURM_JOB_MAIL_TYPE": "Began"}, {"SLURM_JOB_STATE": "COMPLETED"}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_MAIL_TYPE": ""},
     {"SLURM_JOB_MAIL_TYPE": "Reached time limit"}],
)  # fmt: skip
def test_a_mail_with_nothing_to_add_is_the_sites(
    program: Path, tmp_path: Path, changes: dict[str, str]
) -> None:
    """The service is not even asked."""
    with serving(tmp_path / "sock", b'{"v": 1, "ok": true}\n') as requests:
        assert call(program, **changes) == ARGUMENTS
    assert requests == []


def test_a_task_named_like_a_summary_is_none(program: Path, tmp_path: Path) -> None:
    """It completed, and the service has nothing to add."""
    subject = "Slurm Array Task Job_id=110_3 (112) Name=Array Summary Ended, COMPLETED, ExitCode 0"
    changes = {"SLURM_JOB_STATE": "COMPLETED", "SLURM_JOB_MAIL_TYPE": "Ended", "SLURM_ARRAY_JOB_ID": "110"}
    with serving(tmp_path / "sock", b'{"v": 1, "ok": true}\n') as requests:
        assert call(program, subject, **changes) is not None
    assert requests == []


@pytest.mark.parametrize(
    ("event", "ends", "is_taken"),
    [
        ("Failed", "Failed, Mixed, ExitCode [0-1]", True),
        ("Ended", "Ended, Mixed, MaxSignal [15]", True),
        ("Ended", "Ended, COMPLETED, ExitCode [0-0]", False),
        ("Began", "Began", False),
    ],
)
def test_an_arrays_summary_is_handed_over_whatever_its_last_task_did(
    program: Path, tmp_path: Path, event: str, ends: str, is_taken: bool
) -> None:
    """Slurm gives it the state of the task that ended last; its subject has the exit codes of all."""
    subject = f"Slurm Array Summary Job_id=110_* (112) Name=COMPLETED {ends}"
    changes = {"SLURM_JOB_STATE": "COMPLETED", "SLURM_JOB_MAIL_TYPE": event, "SLURM_ARRAY_JOB_ID": "110"}
    with serving(tmp_path / "sock", b'{"v": 1, "ok": true}\n') as requests:
        called = call(program, subject, **changes)
    assert (called is None) is is_taken
    assert len(requests) == is_taken
