"""The hook socket: bounded in size, time and number, and deaf to everybody but root and the agent's own user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import errors
from probing_cluster.probe_agent.hooks import hook_socket

Client = Callable[[str], Awaitable[Any]]


async def echo(request: Mapping[str, Any]) -> dict[str, Any]:
    if request.get("op") == "bad":
        raise errors.UsageError("unknown op 'bad'")
    if request.get("op") == "bug":
        raise ZeroDivisionError
    return {"v": 1, "ok": True, "echo": request.get("op")}


def serve(path: Path, work: Client, **options: Any) -> Any:
    """The result of `work` while the socket is served."""

    async def run() -> Any:
        served = hook_socket.HookSocket(path, echo, **options)
        await served.start()
        try:
            return await work(str(path)), served
        finally:
            await served.stop()

    return asyncio.run(run())


async def ask(path: str, raw: bytes, *, close: bool = False) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(raw)
    if close:
        writer.write_eof()
    line = await asyncio.wait_for(reader.readline(), 10)
    await hang_up(writer)
    return json.loads(line)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def test_one_line_in_one_line_out(tmp_path: Path) -> None:
    """The protocol as the hooks speak it."""
    answer, _ = serve(tmp_path / "s", lambda p: ask(p, b'{"v":1,"op":"prolog"}\n'))
    assert answer == {"v": 1, "ok": True, "echo": "prolog"}


def test_an_answer_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked need not read it, and it would stay in the agent's memory."""
    monkeypatch.setattr(hook_socket, "MAX_REPLY_BYTES", 60)
    answer, _ = serve(tmp_path / "s", lambda p: ask(p, b'{"v":1,"op":"' + b"x" * 50 + b'"}\n'))
    assert answer["ok"] is False
    assert "ask about fewer" in answer["error"]


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\n",
        b"\n",
        b"[1]\n",
        b'{"op":"prolog"}\n',
        b'{"v":2,"op":"x"}\n',
        b"\x00\xff\xfe\n",
        b'{"v":1,"op":"bad"}\n',
        b'{"v":1,"op":"bug"}\n',
        b"[" * 60000 + b"\n",
        b'{"v":1,"op":"' + b"x" * 70000 + b'"}\n',
    ],
)
def test_nonsense_gets_an_error_and_the_next_request_its_answer(tmp_path: Path, raw: bytes) -> None:
    """Garbage, deep nesting, a huge request, an operation that fails: one error each, nothing more."""

    async def work(path: str) -> Any:
        bad = await ask(path, raw)
        good = await ask(path, b'{"v":1,"op":"status"}\n')
        return bad, good

    (bad, good), _ = serve(tmp_path / "s", work)
    assert bad["ok"] is False
    assert bad["error"]
    assert good["ok"] is True


def test_request_without_an_end_is_an_error(tmp_path: Path) -> None:
    """Half a line is no request."""
    answer, _ = serve(tmp_path / "s", lambda p: ask(p, b'{"v":1,"op":"prolog"}', close=True))
    assert answer["ok"] is False


def test_slow_peer_is_let_go_and_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never finishes its line costs its own connection, not the others' time."""
    monkeypatch.setattr(hook_socket, "REQUEST_S", 0.3)

    async def work(path: str) -> Any:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"v":1')
        quick = await asyncio.wait_for(ask(path, b'{"v":1,"op":"a"}\n'), 5)
        slow = json.loads(await asyncio.wait_for(reader.readline(), 5))
        await hang_up(writer)
        return quick, slow

    (quick, slow), _ = serve(tmp_path / "s", work)
    assert quick["ok"] is True
    assert slow["ok"] is False


def test_many_at_once_are_answered_and_too_many_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bounded number is served at the same time; the rest fails open on its own side."""

    async def many(path: str) -> Any:
        return await asyncio.gather(*(ask(path, b'{"v":1,"op":"a"}\n') for _ in range(60)))

    answers, _ = serve(tmp_path / "s", many)
    assert all(a["ok"] for a in answers)
    monkeypatch.setattr(hook_socket, "MAX_CONNECTIONS", 2)

    async def crowded(path: str) -> Any:
        held = [await asyncio.open_unix_connection(path) for _ in range(3)]
        await asyncio.sleep(0.1)
        answer = json.loads(await asyncio.wait_for(held[2][0].readline(), 5))
        for _, writer in held:
            await hang_up(writer)
        return answer

    answer, _ = serve(tmp_path / "t", crowded)
    assert "too many" in answer["error"]


def test_peers_queue_while_the_agent_is_busy(tmp_path: Path) -> None:
    """As many as it serves at once: a hook that finds the queue full asks nothing."""

    async def busy(path: str) -> int:
        peers = [
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(hook_socket.MAX_CONNECTIONS)
        ]
        for peer in peers:
            peer.setblocking(False)
            peer.connect(path)
        for peer in peers:
            peer.close()
        return len(peers)

    assert serve(tmp_path / "a.sock", busy)[0] == hook_socket.MAX_CONNECTIONS


def test_socket_file_is_closed_to_others(tmp_path: Path) -> None:
    """The file's mode is the first lock."""

    async def mode(_: str) -> int:
        return (tmp_path / "s").lstat().st_mode & 0o777

    found, _ = serve(tmp_path / "s", mode)
    assert found == 0o600


def test_peer_that_is_not_allowed_is_refused_by_its_credentials(tmp_path: Path) -> None:
    """Even with the file open to all, the peer's uid decides."""
    answer, served = serve(
        tmp_path / "s", lambda p: ask(p, b'{"v":1,"op":"prolog"}\n'), allowed=frozenset({4_000_000_000})
    )
    assert answer["ok"] is False
    assert "neither root" in answer["error"]
    assert served.refused_total == 1


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_real_other_user_cannot_ask(tmp_path: Path) -> None:
    """nobody, with the file opened to all on purpose, gets no answer but a refusal."""
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)  # whatever it is: with --basetemp it may be /tmp itself
    code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(4096).decode())"

    async def work(path: str) -> Any:
        closed = await asyncio.to_thread(run, path)
        (tmp_path / "s").chmod(0o666)
        return closed, await asyncio.to_thread(run, path)

    def run(path: str) -> subprocess.CompletedProcess[str]:
        argv = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            sys.executable,
            "-I",
            "-S",
            "-c",
            code,
            path,
        ]
        return subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")

    (closed, opened), _ = serve(tmp_path / "s", work)
    if "Permission denied: '/" in opened.stderr and "root" in sys.executable:
        pytest.skip("this Python cannot be run by another user")
    assert closed.returncode != 0
    assert "neither root" in opened.stdout


def test_socket_of_a_dead_agent_is_replaced(tmp_path: Path) -> None:
    """A crash leaves the file behind; the next start does not stumble over it."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "s"))
    left.close()
    answer, _ = serve(tmp_path / "s", lambda p: ask(p, b'{"v":1,"op":"a"}\n'))
    assert answer["ok"] is True


def test_path_that_no_socket_can_have_is_said(tmp_path: Path) -> None:
    """107 bytes are the limit, and the error says so."""
    long = tmp_path / ("x" * 120)
    with pytest.raises(errors.UsageError, match="107"):
        serve(long, lambda p: ask(p, b""))


def replace(path: str, left: str) -> None:
    Path(path).unlink()
    if left == "a dead socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)


@pytest.mark.parametrize("left", ["nothing", "a dead socket"])
def test_a_socket_that_was_removed_is_made_anew(tmp_path: Path, left: str) -> None:
    """A second agent's starter took it away, or a dead one's was put there; the hooks come in again."""

    async def work(path: str) -> None:
        served = hook_socket.HookSocket(Path(path), echo)
        await served.start()
        watcher = asyncio.create_task(served.stay(0.01))
        replace(path, left)
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(OSError):
                    answer = await ask(path, b'{"v": 1, "op": "x"}\n')
                    break
                await asyncio.sleep(0.01)
        assert answer["echo"] == "x"
        assert os.lstat(path).st_mode & 0o777 == 0o600
        watcher.cancel()
        await served.stop()

    asyncio.run(work(str(tmp_path / "s")))
    assert not (tmp_path / "s").exists()


def test_a_socket_that_another_agent_listens_on_is_left_to_it(tmp_path: Path) -> None:
    """Two agents do not take it from each other for ever."""

    async def work() -> None:
        first, second = (hook_socket.HookSocket(tmp_path / "s", echo) for _ in range(2))
        await first.start()
        await second.start()
        inode = os.lstat(tmp_path / "s").st_ino
        watcher = asyncio.create_task(first.stay(0.01))
        await asyncio.sleep(0.2)
        assert os.lstat(tmp_path / "s").st_ino == inode
        watcher.cancel()
        await first.stop()
        assert os.lstat(tmp_path / "s").st_ino == inode
        await second.stop()
        assert not (tmp_path / "s").exists()

    asyncio.run(work())
