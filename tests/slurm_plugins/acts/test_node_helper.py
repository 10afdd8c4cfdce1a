"""The helper over a real Unix socket: who may ask, for what, and what comes of anything else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import helper_client, node_helper, nodes

START = datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Recorder:
    """Stands where DirectActions would act."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def _note(self, *what: object) -> nodes.Outcome:
        self.calls.append(what)
        return nodes.Outcome(state="skipped", why="said so", alarm=True)

    def drain(self, node: str, reason: str, reservation: str = "") -> nodes.Outcome:
        return self._note("drain", node, reason, *([reservation] if reservation else []))

    def adopt(self, node: str, reason: str) -> nodes.Outcome:
        return self._note("adopt", node, reason)

    def resume_own(self, node: str, reservation: str = "") -> nodes.Outcome:
        return self._note("resume", node, *([reservation] if reservation else []))

    def reboot_own(self, node: str) -> nodes.Outcome:
        return self._note("reboot", node)

    def requeue(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, expect_nodes: Iterable[str]
    ) -> nodes.Outcome:
        return self._note("requeue", job_id, expect_start_at, expect_restart, list(expect_nodes))

    def requeue_held(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, *, running: bool = False
    ) -> nodes.Outcome:
        return self._note("requeue_held", job_id, expect_start_at, expect_restart, running)

    def exclude(
        self, job_id: int, expect_restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> nodes.Outcome:
        return self._note("exclude", job_id, expect_restart, list(add), list(remove))

    def depend(self, job_id: int, on: int) -> nodes.Outcome:
        return self._note("depend", job_id, on)

    def release(self, job_id: int, expect_restart: int) -> nodes.Outcome:
        return self._note("release", job_id, expect_restart)


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[tuple[Recorder, nodes.Actions, Path]]:
    recorder = Recorder()
    tmp_path.chmod(0o755)
    path = tmp_path / "helper.sock"
    listener = node_helper.listen(path, os.geteuid())
    served = node_helper.Helper(recorder, frozenset({os.geteuid()}))
    thread = threading.Thread(target=served.serve, args=(listener,))
    thread.start()
    yield recorder, helper_client.connect(settings.SlurmSettings(helper_socket=str(path))), path
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    listener.close()


def test_the_nine_verbs_arrive_as_they_were_asked(helper: tuple[Recorder, nodes.Actions, Path]) -> None:
    """Every argument crosses the socket unchanged, and the outcome comes back whole."""
    recorder, through, _ = helper
    outcomes = [
        through.drain("n1", "probing: a"),
        through.adopt("n1", "probing: b"),
        through.resume_own("n1"),
        through.drain("n1", "probing: c", "probing-n1-x"),
        through.resume_own("n1", "probing-n1-x"),
        through.reboot_own("n1"),
        through.requeue(7, START, 2, {"n2", "n1"}),
        through.requeue_held(7, START, 2),
        through.requeue_held(7, START, 2, running=True),
        through.exclude(7, 3, {"n2", "n1"}, {"n3"}),
        through.depend(8, 7),
        through.release(7, 3),
    ]
    assert set(outcomes) == {nodes.Outcome(state="skipped", why="said so", alarm=True)}
    assert recorder.calls == [
        ("drain", "n1", "probing: a"),
        ("adopt", "n1", "probing: b"),
        ("resume", "n1"),
        ("drain", "n1", "probing: c", "probing-n1-x"),
        ("resume", "n1", "probing-n1-x"),
        ("reboot", "n1"),
        ("requeue", 7, START, 2, ["n1", "n2"]),
        ("requeue_held", 7, START, 2, False),
        ("requeue_held", 7, START, 2, True),
        ("exclude", 7, 3, ["n1", "n2"], ["n3"]),
        ("depend", 8, 7),
        ("release", 7, 3),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage\n",
        b"[]\n",
        b"{}\n",
        b'{"verb":"down","node":"n1"}\n',
        b'{"verb":"drain","node":"n1"}\n',
        b'{"verb":"drain","node":["n1"],"reason":"probing: x"}\n',
        b'{"verb":"requeue","job_id":"x","start_at":"now","restart":0,"nodes":[]}\n',
        b'{"verb":"release","job_id":7}\n',
        b'{"verb":"exclude","job_id":7,"restart":1,"add":"n1","remove":[]}\n',
        b'{"verb":"depend","job_id":7,"on":"a job"}\n',
        b'{"verb":"requeue_held","job_id":7,"start_at":7,"restart":0}\n',
        b'{"verb":"resume","node":"n1"' + b" " * 70000,
        b"[" * 60000 + b"\n",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_nothing_else_is_understood(helper: tuple[Recorder, nodes.Actions, Path], line: bytes) -> None:
    """Malformed, unknown, huge and deeply nested requests get an error and cause nothing."""
    recorder, through, path = helper
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        assert b'"ok": false' in helper_client.read_line(connection)
    assert recorder.calls == []
    assert through.resume_own("n1").state == "skipped", "and the helper lives on"


def test_who_has_hung_up_gets_nothing_done(helper: tuple[Recorder, nodes.Actions, Path]) -> None:
    """Requests wait for the act before theirs; the service that gave up has recorded that nothing was done."""
    recorder, through, path = helper
    begun, go = threading.Event(), threading.Event()

    def slowly(node: str, reservation: str = "") -> nodes.Outcome:
        begun.set()
        go.wait(20)
        return nodes.Outcome(state="done")

    recorder.resume_own = slowly  # type: ignore[method-assign]
    first = threading.Thread(target=through.resume_own, args=("n1",))
    first.start()
    assert begun.wait(20)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b'{"v":1,"verb":"drain","node":"n2","reason":"probing: x"}\n')
    go.set()
    first.join(20)
    assert through.drain("n3", "probing: y").state == "skipped"
    assert recorder.calls == [("drain", "n3", "probing: y")]


def test_what_became_of_an_act_that_takes_too_long_is_not_known(tmp_path: Path) -> None:
    """The helper has the request and may still do it: a failure on record would be wrong."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        through = helper_client.HelperActions(settings.SlurmSettings(helper_socket=str(tmp_path / "s")))
        through._deadline_s = 0.2
        with pytest.raises(commands.SlurmAway, match="is not done in time"):
            through.drain("n1", "probing: x")


def test_a_request_is_refused_after_its_callers_deadline() -> None:
    """One that is asked by an older service names none and is done."""
    recorder = Recorder()
    served = node_helper.Helper(recorder, frozenset({0}))
    late = served.answer(b'{"verb":"drain","node":"n1","reason":"probing: x","until_s":0.001}', 0)
    assert (late["ok"], recorder.calls) == (False, [])
    assert "no longer waits" in late["error"]
    assert served.answer(b'{"verb":"drain","node":"n1","reason":"probing: x"}', 0)["ok"]


def test_others_may_not_ask() -> None:
    """A caller whose uid is not on the list is refused before its request is read."""
    recorder = Recorder()
    served = node_helper.Helper(recorder, frozenset({0}))
    assert served.answer(b'{"verb":"resume","node":"n1"}', 1000) == {
        "v": 1,
        "ok": False,
        "error": "uid 1000 may not ask",
    }
    assert recorder.calls == []


def test_the_socket_is_for_one_user_in_a_safe_directory(tmp_path: Path) -> None:
    """The socket is mode 0600, and a directory others can write to is refused."""
    tmp_path.chmod(0o755)
    with node_helper.listen(tmp_path / "s", os.geteuid()):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    tmp_path.chmod(0o777)
    with pytest.raises(errors.NotPermitted, match="writable by nobody else"):
        node_helper.listen(tmp_path / "t", os.geteuid())


def test_a_helper_that_is_away_is_slurm_not_answering(tmp_path: Path) -> None:
    """The service hears it under the name it already handles."""
    through = helper_client.connect(settings.SlurmSettings(helper_socket=str(tmp_path / "none")))
    with pytest.raises(errors.SlurmUnavailable, match="node helper"):
        through.resume_own("n1")


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown account and a missing configuration end with a documented status and one line."""
    assert node_helper.main(["--socket", str(tmp_path / "s"), "--allow-user", "nobody-of-this-name"]) == 2
    arguments = ["--socket", str(tmp_path / "s"), "--allow-user", "root", "--config", str(tmp_path / "none")]
    assert node_helper.main(arguments) == 2
    assert "does not exist" in capsys.readouterr().err


def test_slurm_that_does_not_answer_the_helper_does_not_answer_the_caller(
    helper: tuple[Recorder, nodes.Actions, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller has the same error as if it had asked Slurm itself, and no outcome that it would record; who asked is logged."""
    recorder, through, _ = helper

    def gone(*_: object) -> nodes.Outcome:
        raise commands.SlurmAway("scontrol did not end within 30 s")

    caplog.set_level("INFO", "probing.helper")
    monkeypatch.setattr(recorder, "drain", gone)
    with pytest.raises(
        commands.SlurmAway, match=r"^Slurm does not answer: scontrol did not end within 30 s$"
    ):
        through.drain("n1", "probing: a")
    assert '"verb": "drain"' in caplog.text
    assert "not known" in caplog.text
