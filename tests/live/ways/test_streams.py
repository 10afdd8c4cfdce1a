"""Lines of many collectors come together again; a deadline is kept whoever hangs, and what is silent is named."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.live import packing
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import Columns, Scan
from probing_cluster.live.ways import collectors, streams

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
        found = [
            collectors.Command(argv=a, nodes=n, environment={"PATH": "/usr/bin:/bin"}) for a, n in commands
        ]
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
        found = [unpacking.unpack(f, node) for node, f in reply.frames]
        assert sorted(f.node for f in found) == ["n1", "n2", "n3"]
        assert all(f.rows["rank"].to_pylist() == list(range(200)) for f in found)
        assert (reply.missing, reply.answered) == ([], {"n1", "n2", "n3"})
    assert opened.steps == {"5"}


def test_who_hangs_is_missing_and_the_others_are_there_in_time(start: Start) -> None:
    """One stream never answers, one ends with words, one cannot do it: the answer does not wait for them."""
    hangs = [sys.executable, "-c", "import time; time.sleep(600)"]
    ends = [
        sys.executable,
        "-c",
        "import sys; sys.exit('srun: error: Unable to create step: Access/permission denied')",
    ]
    opened = start((lines(LABELLED, "n1"), ("n1",)), (hangs, ("n2", "n3")), (ends, ("n4",)))
    reason = "Unable to create step: Access/permission denied"
    for _ in range(20):  # the first one in time: a busy machine may need more than the first
        reply = opened.ask(SCAN, 3.0)
        if reply.answered and reason in {m.reason for m in reply.missing}:
            break
    assert [child.process.poll() for child in opened._children if child.nodes == ("n2", "n3")] == [None]
    assert [unpacking.unpack(f, node).node for node, f in reply.frames] == ["n1"]
    assert {m.node: m.reason for m in reply.missing} == {
        "n2": "no answer in 3 s: its collector has not started",
        "n3": "no answer in 3 s: its collector has not started",
        "n4": reason,
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
    assert any(f and unpacking.unpack(f, node).node == "n1" for node, f in reply.frames if f)


def test_closing_ends_what_will_not_end_and_reports_its_steps(start: Start) -> None:
    """SIGTERM does not end an srun that is launching; the step of a killed one is to be cancelled."""
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + LABELLED
        + "\nsys.stdout.flush(); time.sleep(600)"
    )
    cancelled: list[set[str]] = []
    opened = start((lines(stubborn, "n1"), ("n1",)), on_close=cancelled.append)
    opened.ask(SCAN, 20.0)
    (child,) = opened._children
    opened.close()
    assert child.process.wait() == -signal.SIGKILL
    assert cancelled == [{"5"}]


def test_a_program_that_is_not_there_is_named(start: Start) -> None:
    with pytest.raises(errors.SlurmUnavailable, match="cannot be started"):
        start((["/nonexistent/srun"], ("n1",)))


SRUN = """
import base64, os, sys, time
nodes, hung, frames = {nodes!r}, {hung!r}, {frames!r}
for label, node in enumerate(nodes):
    if node not in hung and {begins!r}:
        print(f"{{label}}: 0 !{{node}} {{len(nodes)}}", flush=True)
def hangs():
    return any(os.path.exists(f"{flag}-{{node}}") for node in nodes if node in hung)
# As srun: nothing of what is asked goes to any node before all of them have begun the step.
while hangs():
    if all(os.path.exists(f"{flag}-done-{{node}}") for node in {others!r}):
        {fate}
    time.sleep(0.05)
for line in sys.stdin:
    number = line.split(",")[0].rpartition(":")[2]
    for label, node in enumerate(nodes):
        parts = [frames[node][at:at + 720] for at in range(0, len(frames[node]), 720)]
        print(f"{{label}}: {{number}} ?")
        for part in parts:
            print(f"{{label}}: {{number}} +{{base64.b64encode(part).decode()}}")
        print(f"{{label}}: {{number}} .\\n{{label}}: {{number}} !{{node}} {{len(nodes)}}", flush=True)
        open(f"{flag}-done-{{node}}", "w").close()
"""


def srun(
    tmp_path: Path, nodes: tuple[str, ...], hung: str, *, begins: bool = True, fate: str = "break"
) -> collectors.Command:
    """A step that hands on its input as srun does. `begins`: the others start, although the input does not reach them;
    `fate`: what becomes of a hung srun when the others have answered."""
    (tmp_path / f"hangs-{hung}").touch()

    def step(calls: tuple[str, ...]) -> collectors.Command:
        # A hung node in a tree keeps those behind it from beginning; alone, a healthy one begins.
        text = SRUN.format(
            nodes=calls,
            hung=(hung,),
            others=[n for n in nodes if n != hung],
            frames={n: frame(n) for n in calls},
            flag=tmp_path / "hangs",
            begins=begins or len(calls) < len(nodes),
            fate=fate,
        )
        return collectors.Command(
            argv=[sys.executable, "-c", text],
            nodes=calls,
            environment={"PATH": "/usr/bin:/bin"},
            narrower=step,
            ends_itself=True,
        )

    return step(nodes)


@pytest.mark.parametrize("begins", [True, False])
def test_a_node_that_never_begins_the_step_silences_nobody_else(tmp_path: Path, begins: bool) -> None:
    """The others come by smaller steps, once each; of the hung one stands what srun says of it."""
    nodes = ("n1", "n2", "n3", "n4")
    fails = "sys.exit('srun: error: a socket timed out\\nsrun: error: Task launch for 7.3 failed on node n3: timed out')"
    opened = streams.Streams([srun(tmp_path, nodes, "n3", begins=begins, fate=fails)])
    try:
        reply = opened.ask(SCAN, 120.0)
        assert sorted(unpacking.unpack(f, node).node for node, f in reply.frames) == ["n1", "n2", "n4"]
        assert [(m.node, m.reason) for m in reply.missing] == [
            ("n3", "Task launch for 7.3 failed on node n3: timed out")
        ]
        assert opened.nodes == nodes
        again = opened.ask(SCAN, 120.0)
        assert sorted(unpacking.unpack(f, node).node for node, f in again.frames) == ["n1", "n2", "n4"]
    finally:
        opened.close()


def test_at_the_deadline_the_others_rows_are_there(tmp_path: Path) -> None:
    """However long srun waits for the hung node."""
    opened = streams.Streams([srun(tmp_path, ("n1", "n3"), "n3", fate="pass")])
    try:
        for _ in range(20):  # the first one in time: a busy machine may need more than the first
            reply = opened.ask(SCAN, 3.0)
            if reply.answered:
                break
        assert [unpacking.unpack(f, node).node for node, f in reply.frames] == ["n1"]
        assert [m.node for m in reply.missing] == ["n3"]
        assert reply.missing[0].reason.startswith("no answer in 3 s: its collector has not started")
    finally:
        opened.close()


def test_a_silent_node_is_waited_for_once_and_again_when_it_has_answered(
    tmp_path: Path, start: Start
) -> None:
    """A console and `--watch` go on at the speed of those that answer; the silent one is named each time."""
    wakes = f"import os\nwhile not os.path.exists({str(tmp_path / 'wakes')!r}): time.sleep(0.02)\n"
    opened = start((lines(LABELLED, "n1"), ("n1",)), (lines(wakes + LABELLED, "n2"), ("n2",)))
    while opened.ask(SCAN, 1.0).answered != {"n1"}:
        pass  # the first one in time: a busy machine may need more than the first
    opened._patience.remember({"n2"}, set(), 3600.0)
    for _ in range(3):
        reply = opened.ask(SCAN, 3600.0)  # with the node waited for, it would take the hour
        assert reply.answered == {"n1"}
        assert [m.node for m in reply.missing] == ["n2"]
        assert reply.missing[0].reason.endswith("not waited for again before it answers")
    (tmp_path / "wakes").touch()
    while opened.ask(SCAN, 3600.0).answered != {"n1", "n2"}:
        time.sleep(0.05)
    assert opened.ask(SCAN, 3600.0).missing == []


def test_a_silent_node_is_waited_for_where_more_time_is_given_or_nobody_else_is_left(
    tmp_path: Path, start: Start
) -> None:
    """More time is what a person gives who wants its answer."""
    wakes = f"import os\nwhile not os.path.exists({str(tmp_path / 'wakes')!r}): time.sleep(0.02)\n"
    opened = start((lines(LABELLED, "n1"), ("n1",)), (lines(wakes + LABELLED, "n2"), ("n2",)))
    while opened.ask(SCAN, 1.0).answered != {"n1"}:
        pass
    assert opened._lost(1.0) == {"n2"}
    assert opened._lost(2.0) == set()
    opened._patience.remember({"n1", "n2"}, set(), 1.0)
    opened._children[0].with_output.clear()
    assert opened._lost(1.0) == set()


def test_no_smaller_step_beyond_the_share_of_steps(tmp_path: Path) -> None:
    """The job has made many steps of its own since the question's own was allowed: its srun is not to fail for an answer."""
    calls: list[int] = []

    def may_add(steps: set[str], more: int) -> bool:
        calls.append(more)
        return False

    opened = streams.Streams([srun(tmp_path, ("n1", "n3"), "n3", fate="pass")], may_add=may_add)
    try:
        while not calls:
            reply = opened.ask(SCAN, 3.0)
        assert set(calls) == {2}
        assert len(opened._children) == 1
        assert reply.missing[1].reason.startswith(
            "no answer in 3 s: its step hangs, and the job has made too many steps"
        )
    finally:
        opened.close()


def test_a_step_that_comes_to_itself_is_asked_alone_again(tmp_path: Path) -> None:
    """The smaller ones that were started meanwhile are given up: no node is asked twice for ever."""
    command = srun(tmp_path, ("n1", "n2"), "n2")
    made: list[tuple[str, ...]] = []
    inner = command.narrower
    assert inner is not None

    def free_it(nodes: tuple[str, ...]) -> collectors.Command:
        made.append(nodes)
        (tmp_path / "hangs-n2").unlink(missing_ok=True)
        return inner(nodes)

    opened = streams.Streams([dataclasses.replace(command, narrower=free_it)])
    try:
        for _ in range(3):
            reply = opened.ask(SCAN, 60.0)
            assert sorted(unpacking.unpack(f, node).node for node, f in reply.frames) == ["n1", "n2"]
            assert reply.missing == []
        assert made == [("n1",), ("n2",)]
    finally:
        opened.close()


def test_steps_for_silent_nodes_are_bounded(tmp_path: Path) -> None:
    """However many nodes are silent, a step is split in few; what is added in all has an end."""
    many = tuple(f"n{i}" for i in range(64))
    parts = list(streams.smaller(many, set()))
    assert len(parts) == streams.GROUPS
    assert sorted(n for p in parts for n in p) == sorted(many)
    assert list(streams.smaller(("n1", "n2", "n3"), {"n1", "n3", "x"})) == [("n1", "n3"), ("n2",)]
    started: list[tuple[str, ...]] = []

    def hangs(nodes: tuple[str, ...]) -> collectors.Command:
        started.append(nodes)
        return collectors.Command(argv=["/bin/sleep", "60"], nodes=nodes, environment={}, narrower=hangs)

    opened = streams.Streams([hangs(many)])
    try:
        assert len(opened.ask(SCAN, 2.0).missing) == 64
        assert len(started) <= 1 + streams.MORE_STEPS
    finally:
        opened.close()


def test_a_node_that_takes_no_questions_blocks_nobody(start: Start) -> None:
    """Its pipe is full at some time: the asker writes on to the others, and holds no more than a bound for it."""
    deaf = [sys.executable, "-c", "import time; time.sleep(600)"]
    opened = start((lines(LABELLED, "n1"), ("n1",)), (deaf, ("n2",)))
    long_condition = {"op": "in", "column": "rank", "values": list(range(50_000))}
    scan = [Scan(table="cluster.ranks", condition=long_condition)]
    for _ in range(20):
        reply = opened.ask(scan, 1.0)
        if reply.answered == {"n1"}:
            break
    assert reply.answered == {"n1"}
    assert [m.node for m in reply.missing] == ["n2"]


def test_an_srun_that_is_starting_is_asked_to_end_and_left_to_itself(tmp_path: Path) -> None:
    """Killed at that moment its step would be listed until the job's end; it heeds the signal when its launch is over."""
    text = (
        "import signal, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: open({str(tmp_path / 'asked')!r}, 'w').close())\n"
        "print('0 !n1 5', flush=True)\n"
        "time.sleep(600)\n"
        "time.sleep(600)"
    )
    command = collectors.Command(
        argv=[sys.executable, "-c", text], nodes=("n1", "n2"), environment={}, ends_itself=True
    )
    cancelled: list[set[str]] = []
    opened = streams.Streams([command], on_close=cancelled.append)
    for _ in range(60):
        if "has not started" not in {m.node: m.reason for m in opened.ask(SCAN, 0.5).missing}["n1"]:
            break
    (child,) = opened._children
    opened.close()
    try:
        assert child.process.poll() is None
        assert cancelled == [{"5"}]
        deadline = time.monotonic() + 60
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert child.process.poll() is None
    finally:
        child.process.kill()
        child.process.wait()


def test_a_step_that_has_answered_is_asked_to_end_and_left_to_itself() -> None:
    """A busy cluster ends it when it can: nobody waits for that, and its srun is not killed, which would leave the step behind."""
    slow = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        + LABELLED
        + "\nsys.stdout.flush(); time.sleep(600); time.sleep(600)"
    )
    command = collectors.Command(argv=lines(slow, "n1"), nodes=("n1",), environment={}, ends_itself=True)
    cancelled: list[set[str]] = []
    opened = streams.Streams([command], on_close=cancelled.append)
    assert opened.ask(SCAN, 60.0).answered == {"n1"}
    (child,) = opened._children
    opened.close()
    try:
        assert (child.process.poll(), cancelled) == (None, [])
    finally:
        child.process.kill()
        child.process.wait()


def test_a_node_that_answers_twice_counts_once(start: Start) -> None:
    """A step that comes to itself answers beside the smaller ones that were started for its nodes."""
    late = LABELLED.replace(
        "for label, node in enumerate(frames):",
        "for label, node in enumerate(frames):\n    if node == 'n2': sys.stdout.flush(); time.sleep(2.0)",
    )
    opened = start((lines(late, "n1", "n2"), ("n1", "n2")), (lines(LABELLED, "n1"), ("n1",)))
    reply = opened.ask(SCAN, 60.0)
    assert sorted(unpacking.unpack(f, node).node for node, f in reply.frames) == ["n1", "n2"]
    assert (reply.answered, reply.missing) == ({"n1", "n2"}, [])
    assert opened.nodes == ("n1", "n2")


def test_a_label_speaks_for_one_node(start: Start) -> None:
    """A collector that names another's node costs that one nothing: its own answer is waited for, and is the one that counts."""
    claims = """print(" 0: 0 !n1 5"); print(" 1: 0 !n2 5"); print(f" 1: {number} !n1 5"); print(" 2: 0 !n1 5")
print(f" 2: {number} !n1 5")
"""
    opened = start((lines(claims + LABELLED, "n1", "n2"), ("n1", "n2")))
    reply = opened.ask(SCAN, 20.0)
    assert sorted(unpacking.unpack(f, node).node for node, f in reply.frames) == ["n1", "n2"]
    assert reply.missing == []


HINT = collectors._HINT


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (
            "0: /root/venv/bin/python: Permission denied\nsrun: error: n1: task 0: Exited with exit code 1\n",
            f"/root/venv/bin/python: Permission denied{HINT}",
        ),
        (
            "srun: error: n1: task 0: Exited with exit code 1\n0: /usr/bin/python3: No module named probing_cluster\n",
            f"/usr/bin/python3: No module named probing_cluster{HINT}",
        ),
        ("srun: error: n1: task 0: Exited with exit code 1\n", f"task 0: Exited with exit code 1{HINT}"),
        ("srun: error: Unable to create step for job 7: Job/step already completing\n",
         "Unable to create step for job 7: Job/step already completing"),
        ("srun: error: n1: task 0: Killed\nsrun: error: n2: task 1: Killed\n", "task 0: Killed"),
        ("", "its collector ended"),
    ],
)  # fmt: skip
def test_a_collector_that_ended_says_so_in_its_own_words(noise: str, words: str) -> None:
    """The node is not named twice, and the exit code is said only where nothing else was."""
    assert collectors.last_words(noise, "n1") == words


def test_a_step_is_a_number(start: Start) -> None:
    """The collector is its owner's process, and root may ask: what it calls its step becomes an argument of scancel."""
    opened = start((lines('print(f"{number} !n1 5,77")', "n1"), ("n1",)))
    assert opened.ask(SCAN, 20.0).answered == {"n1"}
    assert opened.steps == set()


def test_what_is_written_without_end_is_not_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one endless frame nor endless empty ones, nor ever new labels, fill the asker's memory."""
    monkeypatch.setattr(collectors, "MAX_FRAME_CHARS", 10_000)
    body = """for n in range(500): print(f"{number} +" + "A" * 960)
for n in range(500): print(f"{number} .")
for n in range(500): print(f"{n}: {number} +" + "A" * 960)
print(f"{number} !n1 5")"""
    opened = start((lines(body, "n1"), ("n1",)))
    reply = opened.ask(SCAN, 20.0)
    (child,) = opened._children
    assert reply.answered == {"n1"}
    assert len(reply.frames) <= 10_000 // 64
    assert sum(len(part) for parts in child._parts.values() for part in parts) <= 10_000
    assert set(child._parts) | set(child.frames) <= {"", "0"}
