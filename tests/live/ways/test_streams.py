"""Lines of many collectors come together again; a deadline is kept whoever hangs, and what is silent is named."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

from probing_cluster.core import errors
from probing_cluster.live import packing
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import Columns, Scan
from probing_cluster.live.ways import streams

SCAN = [Scan(table="cluster.ranks")]
ECHO = """
import base64, json, sys, time
frames = {frames!r}
for line in sys.stdin:
    number = json.loads(line)["id"]
    {body}
    sys.stdout.flush()
"""
Start = Callable[..., streams.Streams]


def frame(node: str) -> bytes:
    columns = Columns(names=("node", "rank"), kinds=("text", "int"), values=([node] * 200, list(range(200))))
    return packing.pack({"node": node, "table": "cluster.ranks", "missing": []}, columns)


def lines(body: str, *nodes: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        ECHO.format(frames={n: frame(n) for n in nodes}, body=body.replace("\n", "\n    ")),
    ]


LABELLED = """for at in range(0, 40000, 720):
    for label, (node, data) in enumerate(frames.items()):
        part = base64.b64encode(data[at:at + 720]).decode()
        if part: print(f"{label:2d}: {number} +{part}")
for label, node in enumerate(frames):
    print(f"{label:2d}: {number} .")
    print(f"{label:2d}: {number} !{node} 5")"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Streams of children that play collectors."""
    made: list[streams.Streams] = []

    def start_one(*commands: tuple[list[str], tuple[str, ...]], **options: object) -> streams.Streams:
        found = [streams.Command(argv=a, nodes=n, environment={"PATH": "/usr/bin:/bin"}) for a, n in commands]
        made.append(streams.Streams(found, **options))  # type: ignore[arg-type]
        return made[-1]

    yield start_one
    for one in made:
        one.close()


def test_interleaved_lines_come_together(start: Start) -> None:
    """Two nodes on one stream, their lines mixed, twice; and another stream beside them."""
    opened = start((lines(LABELLED, "n1", "n2"), ("n1", "n2")), (lines(LABELLED, "n3"), ("n3",)))
    for _ in range(2):
        reply = opened.ask(SCAN, 20.0)
        found = [unpacking.unpack(f) for f in reply.frames]
        assert sorted(f.node for f in found) == ["n1", "n2", "n3"]
        assert all(f.rows["rank"].to_pylist() == list(range(200)) for f in found)
        assert (reply.missing, reply.answered) == ([], {"n1", "n2", "n3"})
    assert opened.steps == {"5"}


def test_who_hangs_is_missing_and_the_others_are_there_in_time(start: Start) -> None:
    """One stream never answers, one ends with words, one cannot do it: the whole takes no longer than the deadline."""
    hangs = [sys.executable, "-c", "import time; time.sleep(60)"]
    ends = [
        sys.executable,
        "-c",
        "import sys; sys.exit('srun: error: Unable to create step: Access/permission denied')",
    ]
    opened = start((lines(LABELLED, "n1"), ("n1",)), (hangs, ("n2", "n3")), (ends, ("n4",)))
    began = time.monotonic()
    reply = opened.ask(SCAN, 3.0)
    assert time.monotonic() - began < 6.0
    assert [unpacking.unpack(f).node for f in reply.frames] == ["n1"]
    assert {m.node: m.reason for m in reply.missing} == {
        "n2": "the step did not start in 3 s",
        "n3": "the step did not start in 3 s",
        "n4": "Unable to create step: Access/permission denied",
    }


def test_an_answer_that_came_too_late_is_not_the_next_questions(start: Start) -> None:
    late = "if number == 1: time.sleep(2.0)\n" + LABELLED
    opened = start((lines(late, "n1"), ("n1",)))
    assert opened.ask(SCAN, 1.0).frames == []
    reply = opened.ask(SCAN, 20.0)
    assert len(reply.frames) == 1
    assert reply.missing == []


def test_noise_is_no_answer(start: Start) -> None:
    """What a site's profile prints, half lines, words where numbers should be, a node that was not asked."""
    noisy = (
        'print("Welcome to the cluster: 3")\nprint("1 +%%%")\nprint("x +AAAA")\nprint(f"{number} !other 1")\n'
        + LABELLED
    )
    opened = start((lines(noisy, "n1"), ("n1",)))
    reply = opened.ask(SCAN, 20.0)
    assert reply.answered == {"n1"}
    assert any(f and unpacking.unpack(f).node == "n1" for f in reply.frames if f)


def test_closing_ends_what_will_not_end_and_reports_its_steps(start: Start) -> None:
    """SIGTERM does not end an srun that is launching; the step of a killed one is to be cancelled."""
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + LABELLED
        + "\nsys.stdout.flush(); time.sleep(60)"
    )
    cancelled: list[set[str]] = []
    opened = start((lines(stubborn, "n1"), ("n1",)), on_close=cancelled.append)
    opened.ask(SCAN, 20.0)
    began = time.monotonic()
    opened.close()
    assert time.monotonic() - began < 10
    assert cancelled == [{"5"}]


def test_a_program_that_is_not_there_is_named(start: Start) -> None:
    with pytest.raises(errors.SlurmUnavailable, match="cannot be started"):
        start((["/nonexistent/srun"], ("n1",)))
