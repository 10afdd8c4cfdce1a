"""The report socket: one service's at a time, made anew where it was removed, and removed only by whoever made it."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.control_plane.door import kept_socket


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the socket is to be, and is looked for without a wait."""
    monkeypatch.setattr(kept_socket, "LOOK_S", 0.02)
    with tempfile.TemporaryDirectory(prefix="probing-kept-") as directory:
        yield Path(directory) / "report.sock"


def listening(path: Path) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A service's way to listen there."""

    @contextlib.contextmanager
    def serve() -> Iterator[None]:
        with socket.socket(socket.AF_UNIX) as link:
            link.bind(str(path))
            link.listen()
            yield

    return serve


def until(what: Callable[[], bool]) -> None:
    """Waits for what the keeper does in its own time."""
    end_s = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        return link.connect_ex(str(path)) == 0


def test_a_second_service_takes_no_socket_away(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, leaves the first one's where it is, and takes it over once the first has ended."""
    first = contextlib.ExitStack()
    first.enter_context(kept_socket.kept(path, listening(path)))
    made = os.lstat(path).st_ino
    with kept_socket.kept(path, listening(path)):
        assert [r.message for r in caplog.records] == ["no report socket"]
        assert "another service listens there" in str(caplog.records[0].fields)  # type: ignore[attr-defined]
    assert (os.lstat(path).st_ino, answers(path)) == (made, True)
    with kept_socket.kept(path, listening(path)):
        first.close()
        until(lambda: path.exists() and answers(path))
    assert not path.exists()


def test_a_socket_that_was_removed_or_replaced_is_made_anew(path: Path) -> None:
    """Whoever took it away, such as another version's second service, which removes it as it ends."""
    with kept_socket.kept(path, listening(path)):
        path.unlink()
        until(lambda: path.exists() and answers(path))
        path.unlink()
        with listening(path)():
            theirs = os.lstat(path).st_ino
            time.sleep(0.2)
            assert os.lstat(path).st_ino == theirs
        until(lambda: answers(path))
    assert not path.exists()


def test_what_a_killed_service_left_is_replaced(path: Path) -> None:
    """A socket at which nobody listens, or a file."""
    with listening(path)():
        pass
    with kept_socket.kept(path, listening(path)):
        assert answers(path)
    path.write_text("")
    with kept_socket.kept(path, listening(path)):
        assert answers(path)
        assert path.stat().st_mode & 0o777 == 0o666


def test_a_place_where_none_can_be_made_is_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The service runs on without it, and listens as soon as it can."""
    path.parent.joinpath("d").write_text("")
    below = path.parent / "d" / "report.sock"
    with kept_socket.kept(below, listening(below)):
        time.sleep(0.2)
        assert [r.message for r in caplog.records] == ["no report socket"]
        below.parent.unlink()
        until(lambda: below.exists() and answers(below))
