"""`sys.remote_exec` makes a process live that was not started so; where it cannot, the asker has a word why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.inject.site._probing_probe import responder
from probing_cluster.probe_agent.jobs import processes
from probing_cluster.probe_agent.ranks import evaluate, make_live

PYTHON_3_14 = shutil.which("python3.14") or ""
needs_3_14 = pytest.mark.skipif(not PYTHON_3_14, reason="needs a python3.14 on PATH")
PROGRAM = """
import os, sys, time
loss = 0.5
def train():
    steps = 3
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(float(sys.argv[2]))
train()
print("over", flush=True)
"""


@contextmanager
def program(
    python: str, directory: Path, nap_s: float = 0.02, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """A probed process of a job that was not started live."""
    environment = {
        "PROBING_PAGE_DIR": str(directory),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING": "on",
        **more,
    }
    (directory / "train.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [python, str(directory / "train.py"), str(directory / "stop"), str(nap_s)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(directory: Path, pid: int, expression: str, *, may_make_live: bool) -> evaluate.PageAnswer:
    """One answer of one process."""
    namespace = processes.namespace_of("self")
    target = evaluate.EvaluatedProcess(rank=0, pid=pid, pid_inside=pid, pid_namespace=namespace)
    (answer,) = evaluate.evaluate(
        directory, os.geteuid(), expression, [target], deadline_s=3.0, may_make_live=may_make_live
    )
    return answer


@needs_3_14
def test_a_process_is_made_live(tmp_path: Path) -> None:
    """It answers from then on, also without being made so again; the program goes on and says nothing of it."""
    with program(PYTHON_3_14, tmp_path) as process:
        before = ask(tmp_path, process.pid, "loss", may_make_live=False)
        assert before.missing == evaluate.NOT_LIVE
        assert "--make-live" in evaluate.NOT_LIVE
        for may_make_live in (True, False, True):
            answer = ask(tmp_path, process.pid, "[loss, steps]", may_make_live=may_make_live)
            assert (answer.missing, answer.error, answer.rows) == (None, None, ((0.5,), (3,)))
        socket = tmp_path / responder.name_of(process.pid, processes.namespace_of("self") or 0)
        assert socket.stat().st_mode & 0o777 == 0o600
        (tmp_path / "stop").touch()
        assert process.communicate(timeout=10) == ("over\n", "")
        assert process.returncode == 0
        assert not socket.exists()


@needs_3_14
def test_a_main_thread_outside_python_is_not_waited_for(tmp_path: Path) -> None:
    """It sleeps in C: the answer comes within the deadline and says so."""
    with program(PYTHON_3_14, tmp_path, nap_s=600.0) as process:
        began_s = time.monotonic()
        assert ask(tmp_path, process.pid, "loss", may_make_live=True).missing == make_live.BUSY
        assert time.monotonic() - began_s < 6.0


@needs_3_14
def test_a_python_that_allows_no_remote_code_says_so(tmp_path: Path) -> None:
    """Its own words are passed on; the program goes on."""
    with program(PYTHON_3_14, tmp_path, PYTHON_DISABLE_REMOTE_DEBUG="1") as process:
        missing = ask(tmp_path, process.pid, "loss", may_make_live=True).missing
        assert missing is not None
        assert missing.startswith(("it cannot be made live: ", make_live.BUSY))
        assert process.poll() is None


def test_an_older_python_says_so(tmp_path: Path) -> None:
    """Nothing is run in its name."""
    if sys.version_info >= (3, 14):
        pytest.skip("this Python can")
    with program(sys.executable, tmp_path) as process:
        assert ask(tmp_path, process.pid, "loss", may_make_live=True).missing == make_live.TOO_OLD


def test_another_program_is_never_run(tmp_path: Path) -> None:
    """What is no Python by its own file's name is not started with our options; a process that is gone has ended."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        assert make_live.make_live([(process.pid, tmp_path / "none")], time.monotonic() + 1) == {
            process.pid: make_live.TOO_OLD
        }
    finally:
        process.kill()
        process.wait()
    gone = make_live.make_live([(process.pid, tmp_path / "none")], time.monotonic() + 1)
    assert gone == {process.pid: "its process has ended"}
