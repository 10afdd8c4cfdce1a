"""A live process answers its owner, nobody else, and whatever it does the asker has a word within the deadline."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probing_cluster.core import digits, errors
from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.inject.site._probing_probe import responder
from probing_cluster.probe_agent.jobs import processes
from probing_cluster.probe_agent.ranks import evaluate

UID = os.geteuid()
NAMESPACE = processes.namespace_of("self")
PROGRAM = """
import os, sys, time, threading, probing_tables
loss = 0.5
rows = [{"step": 1, "loss": 0.5}, {"step": 2, "why": "x" * 9000}]
class Tensor:
    shape = ()
    def item(self): return 7
def train():
    loss, local = 0.25, "mine"
    print("ready", flush=True)
    inside()
def inside():
    innermost = 1
    HOLD
train()
"""


@contextmanager
def program(directory: Path, hold: str = "time.sleep(600)", **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process of a live job that has come to `hold`."""
    merged = {
        "PATH": os.environ["PATH"],
        "PROBING_PAGE_DIR": str(directory),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING": "live",
        **env,
    }
    path = directory / "program.py"
    path.write_text(PROGRAM.replace("HOLD", hold))
    process = subprocess.Popen([sys.executable, str(path)], env=merged, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def target(pid: int, rank: int = 0) -> evaluate.EvaluatedProcess:
    """The process as the node's pages show it."""
    return evaluate.EvaluatedProcess(rank=rank, pid=pid, pid_inside=pid, pid_namespace=NAMESPACE)


def ask(directory: Path, pid: int, expression: str, **more: float) -> evaluate.PageAnswer:
    """One answer."""
    (answer,) = evaluate.evaluate(directory, UID, expression, [target(pid)], **more)  # type: ignore[arg-type]
    return answer


def test_values_come_as_columns(tmp_path: Path) -> None:
    """Scalars, rows, locals of the program's functions, loaded modules; what is raised is an error, not an end."""
    with program(tmp_path) as process:
        pid = process.pid
        assert [(a.columns, a.rows) for a in [ask(tmp_path, pid, "1 + 1")]] == [(("value",), ((2,),))]
        cases: list[tuple[str, object]] = [
            ("loss", ((0.25,),)),
            ("local + str(innermost)", (("mine1",),)),
            ("[loss for _ in range(2)]", ((0.25,), (0.25,))),
            ("json.dumps(1)", (("1",),)),
            ("Tensor()", ((7,),)),
            ("2**80", ((str(2**80),),)),
            ("float('nan') != 1", ((True,),)),
            ("None", ((None,),)),
            ("{'a': 1, 'b': [2]}", ((1, "[2]"),)),
            ("rows[:1]", ((1, 0.5),)),
            ("[]", ()),
        ]
        for expression, rows in cases:
            answer = ask(tmp_path, pid, expression)
            assert (answer.error, answer.missing, answer.rows) == (None, None, rows), expression
        both = ask(tmp_path, pid, "rows")
        assert both.columns == ("step", "loss", "why")
        assert both.rows[1] == (2, None, "x" * 4096)
        many = ask(tmp_path, pid, "range(10**5) and list(range(10**5))")
        assert (len(many.rows), many.cut) == (4096, 10**5 - 4096)
        for expression, error in (
            ("1/0", "ZeroDivisionError: division by zero"),
            ("nowhere", "NameError: name 'nowhere' is not defined"),
            ("sys.exit(3)", "SystemExit: 3"),
        ):
            assert ask(tmp_path, pid, expression).error == error
        assert process.poll() is None
        assert (tmp_path / responder.name_of(pid, NAMESPACE)).stat().st_mode & 0o777 == 0o600


def test_what_is_no_expression_is_refused_here(tmp_path: Path) -> None:
    """Nothing is asked; also nothing too long."""
    for wrong in ("", "import os", "a =", "x = 1", "1" * 9000, "a\0b"):
        with pytest.raises(errors.UsageError):
            evaluate.evaluate(tmp_path, UID, wrong, [target(1)])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_only_the_owner_may_ask(tmp_path: Path) -> None:
    """Root asks for another: refused here. Another user, past all modes: the process closes without a word."""
    with pytest.raises(errors.NotPermitted, match="only the job's owner may"):
        evaluate.evaluate(tmp_path, UID + 1, "1", [target(1)])
    with tempfile.TemporaryDirectory() as open_to_all, program(Path(open_to_all)) as process:
        directory = Path(open_to_all)
        directory.chmod(0o777)
        path = directory / responder.name_of(process.pid, NAMESPACE)
        path.chmod(0o777)
        code = (
            "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            'try:\n    s.sendall(b\'{"expression": "1"}\\n\')\n    print(len(s.recv(9)))\nexcept OSError: print(0)'
        )
        shown = [
            subprocess.run(
                ["/usr/bin/python3", "-c", code, str(path)], user=user, group=user, extra_groups=[],
                capture_output=True, text=True, check=True, cwd="/",
            ).stdout
            for user in (12345, UID)
        ]  # fmt: skip
        assert [int(s) > 0 for s in shown] == [False, True]
        assert ask(directory, process.pid, "1").rows == ((1,),)


def test_a_forged_socket_gets_and_gives_nothing(tmp_path: Path) -> None:
    """Another user's listener is not asked; garbage, silence and floods on one's own are told as such."""
    replies = {
        b"garbage\n": "its answer is none",
        b"{}\n": "its answer is none",
        b'{"columns": ["a"], "rows": [[[]]], "cut": 0}\n': "its answer is none",
        b'{"columns": ["a"], "rows": [[1, 2], []], "cut": 0}\n': "its answer is none",
        b'{"columns": 7, "rows": 7, "cut": 0}\n': "its answer is none",
        b"[" * 100000 + b"\n": "its answer is none",
        b"": "closed the connection",
        b"x" * (9 << 20): "its answer is none",
    }
    path = tmp_path / responder.name_of(4242, NAMESPACE)
    for reply, why in replies.items():
        with _listener(path, lambda link, reply=reply: (link.recv(9999), link.sendall(reply))):
            assert why in (ask(tmp_path, 4242, "1").missing or ""), reply[:30]
    assert ask(tmp_path, 4242, "1").missing == "its process has ended"


@contextmanager
def _listener(path: Path, serve: Callable[[socket.socket], object]) -> Iterator[None]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def once() -> None:
            link, _ = listening.accept()
            with link:
                try:
                    serve(link)
                except OSError:
                    return

        thread = threading.Thread(target=once)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(
    ("expression", "hold", "reason"),
    [
        pytest.param("1", "[x for x in [0] if sum(range(10**11))]", "program.py:14", id="gil"),
        pytest.param("sum(range(10**11))", "time.sleep(600)", "this expression, or one before it, has held the GIL", id="own-gil"),
        pytest.param("time.sleep(600)", "time.sleep(600)", "this expression, or one before it, has not ended", id="own-sleep"),
    ],
)  # fmt: skip
def test_who_does_not_answer_is_told_from_outside(
    tmp_path: Path, expression: str, hold: str, reason: str
) -> None:
    """By a look at the stack. It may not hold the GIL yet, and on a busy machine py-spy may be too slow: it is asked again."""
    with program(tmp_path, hold) as held:
        until_s = time.monotonic() + 60
        while reason not in (
            (answer := ask(tmp_path, held.pid, expression, deadline_s=0.7)).missing or ""
        ) and (time.monotonic() < until_s):
            time.sleep(0.05)
        assert answer.missing is not None
        assert answer.missing.startswith("no answer")
        assert reason in answer.missing, answer.missing
        if reason == "program.py:14":
            assert "GIL held for 0.7 s at" in answer.missing


def _stop(pid: int) -> None:
    """Stopped, not only told to: on a busy machine its other threads run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    until_s = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "T":
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_stopped_process_and_one_that_is_not_live(tmp_path: Path) -> None:
    """Named for what they are; the one beside them answers."""
    with program(tmp_path) as stopped, program(tmp_path) as fine, program(tmp_path, PROBING="on") as mute:
        _stop(stopped.pid)
        targets = [target(p.pid, n) for n, p in enumerate((stopped, fine, mute))]
        for deadline_s in (0.5, 2.0, 8.0, 32.0):  # the one beside them answers in time: a machine may be busy
            first, second, third = evaluate.evaluate(tmp_path, UID, "1", targets, deadline_s=deadline_s)
            if second.rows:
                break
        assert "stopped by a signal" in (first.missing or "")
        assert (second.rank, second.rows) == (1, ((1,),))
        assert third.missing == evaluate.NOT_LIVE
        os.kill(stopped.pid, signal.SIGCONT)
        assert ask(tmp_path, stopped.pid, "2", deadline_s=20).rows == ((2,),)
        _stop(stopped.pid)
        # On a busy machine some of these have no time to be asked at all.
        for _ in range(1000):
            (abandoned,) = evaluate.evaluate(tmp_path, UID, "1", targets[:1], deadline_s=0.01)
            if "too many earlier questions" in (abandoned.missing or ""):
                break
        assert "too many earlier questions" in (abandoned.missing or "")


def test_a_forked_child_is_not_asked_for_its_parent(tmp_path: Path) -> None:
    """The child holds no socket: when the parent is gone, so is the answer."""
    with program(tmp_path, "os.fork() and os._exit(0); time.sleep(600)") as process:
        process.wait()
        missing = ask(tmp_path, process.pid, "1").missing
        for entry in Path("/proc").iterdir():
            if digits.is_number(entry.name) and _environment(entry).find(str(tmp_path).encode()) >= 0:
                os.kill(int(entry.name), signal.SIGKILL)
        closed = "its process ended, or closed the connection, before it answered"
        assert missing in ("its process has ended", evaluate.NOT_LIVE, closed)


def _environment(entry: Path) -> bytes:
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""


def test_nothing_is_left_after_the_end_and_an_old_socket_is_no_hindrance(tmp_path: Path) -> None:
    """A process that ends in order takes its socket with it."""
    with program(tmp_path, "return") as process:
        process.wait()
        assert not list(tmp_path.glob("*.sock"))
