"""Lines that somebody wrote to make a reader break or take long: numbers without end, messages without end."""

from __future__ import annotations

import dataclasses
import re
import tracemalloc
from pathlib import Path

import pytest

import probing_cluster.evidence as room
from probing_cluster.evidence.joblog import chain
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel

NUMBER = "1" * 5000
"""`int` refuses text of more than 4,300 digits."""
_UNBOUNDED = re.compile(r"\((?:\?P<\w+>)?-?(?:\\d|\[0-9\])[+*]\)")


@pytest.mark.parametrize(
    "line",
    [
        f"Timeout at NCCL work: 5, last enqueued NCCL work: {NUMBER}, last completed NCCL work: 4.",
        f"Timeout at NCCL work: 5, last enqueued NCCL work: 5, last completed NCCL work: -{NUMBER}.",
    ],
)
def test_a_number_without_end_costs_no_log(line: str) -> None:
    """One line would else leave all of a job's log unread: what it said before, too."""
    found = list(joblog.read(["RuntimeError: CUDA error: an illegal memory access was encountered", line]))
    assert any(f.first_cause for f in found)


def test_no_form_takes_a_number_without_end() -> None:
    """What a form captures as a number is made one."""
    sources = Path(room.__path__[0]).rglob("*.py")
    bad = {p.name: f for p in sources if (f := _UNBOUNDED.findall(p.read_text("utf-8")))}
    assert bad == {}


def test_no_family_sees_more_of_a_message_than_a_kernel_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dmesg` and syslog files hold what users log, too; forms whose time grows with the square of a line see little of it."""
    lengths: list[int] = []

    def read(message: str, _: object) -> None:
        lengths.append(len(message))

    families = tuple(dataclasses.replace(f, read=read) for f in kernel.FAMILIES)
    monkeypatch.setattr(kernel, "FAMILIES", families)
    message = " ".join(kernel.TRIGGERS) + " " * 20_000
    kernel.KernelReader().read_message(message)
    kernel.KernelReader().read_line(f"[   12.345678] {message}")
    assert len(lengths) >= len(families)
    assert max(lengths) <= kernel.MAX_MESSAGE_CHARS


@pytest.mark.timeout(60)
@pytest.mark.parametrize("column", ["  1", " \t1", "\t 1", " \t 1", "  1.1,1", "\t\t1"])
def test_a_row_of_many_columns_costs_no_log(column: str) -> None:
    """A column that a pattern could read in two ways would cost two to the power of the columns: the reader would stand still."""
    row = "errors" + column * 40 + "x"
    lines = ["start", row, "srun: error: n1: task 0: Exited with exit code 1"]
    assert any(f.kind == "task_exit" for f in joblog.read(lines))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    [
        "gloo/transport/tcp/pair.cc:598] " + "Read" * 2000,
        "gloo/transport/tcp/pair.cc:598] " + "Read error [" * 600,
        "11 " + "\t " * 298 + "x",
        "11" + " " * 590 + "x",
    ],
)
def test_a_line_that_repeats_a_patterns_own_words_costs_no_log(line: str) -> None:
    """Two parts of a pattern that can take the same letters cost the cube of the line's length: minutes for one line."""
    lines = ["RuntimeError: bad", *[line] * 20, "srun: error: n1: task 0: Exited with exit code 1"]
    assert any(f.kind == "task_exit" for f in joblog.read(lines))


def test_what_the_reader_holds_does_not_grow_with_the_ranks_that_began_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of ranks may be killed inside theirs: none of them comes back to end it."""

    monkeypatch.setattr(joblog, "_TRACEBACK_LINES", 20)
    monkeypatch.setattr(chain, "_MAX_RANKS", 16)

    def held(ranks: int) -> int:
        tracemalloc.start()
        reader = joblog.JobLogReader()
        line = 0
        for rank in range(ranks):
            for text in (
                "Traceback (most recent call last):",
                '  File "t.py", line 1, in f',
                "    " + f"g{rank}" * 800,
            ):
                line += 1
                list(reader.feed(line, f"[rank{rank}]: {text}"))
            for _ in range(25):
                line += 1
                list(reader.feed(line, f"loading {line % 7}"))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    assert held(150) < 2 * held(25)


def test_the_frames_of_many_ranks_make_room_for_the_next() -> None:
    """What was held of ranks far above must not keep the exception of a later one from being followed."""
    frames = [f'[rank{rank}]:   File "t.py", line 3, in f' for rank in range(400)]
    work = [f"loading part {n}" for n in range(1000)]
    end = ['[rank700]:   File "t.py", line 3, in f', "[rank700]:     g()", "[rank700]: KeyError: 'lr'"]
    behind = [f"[rank{rank}]: lost its peer" for rank in range(60)]
    found = [f for f in joblog.read([*frames, *work, *end, *behind]) if f.first_cause]
    assert [f.message for f in found] == ["KeyError: 'lr'"]
