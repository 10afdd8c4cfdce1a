"""The collector: one short-lived process per node of a job, run as the job's owner. Questions in, frames out.

    python -I -m probing_cluster.live.collecting.collector [--directory DIR] [--job ID] [--node NAME] [--idle S] [--tables-only] [--packed BYTES]

Standard input: one JSON question per line: {"id", "deadline_s", "scans": [scan, …]}. Standard output, lines of ASCII short
enough that Slurm hands each on whole: `ID ?` (the question has come), `ID +BASE64` (a part of a frame), `ID .` (the frame is whole),
`ID !NODE` (the question is answered). The first line is `0 !NODE` with the step's number: `0 !NODE STEP`. With --packed one question is answered, by one bundle
of frames (packing.bundle) of at most that many bytes: the agent's way.

Each table is read in a process of its own with the question's deadline (readers): one that hangs, raises, is killed or eats its memory
becomes a frame that says so. Standard library only; it counts against the job's own memory, so it is small, and the first
that the kernel takes when memory runs out.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import digits
from probing_cluster.live import packing
from probing_cluster.live.collecting import answering, readers
from probing_cluster.live.node import agent_client
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import Columns, Scan
from probing_cluster.live.tables import registry
from probing_cluster.probe_agent.jobs import collect_child

LINE_BYTES = 720
"""Bytes of a frame per line: 960 characters, below the 1,024 in which srun passes on output."""
MAX_SCANS = 64
LATE = "no answer before the deadline"
MAX_QUESTION_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which job on which node."""

    job_id: int
    node: str
    directory: Path
    step: str
    may_evaluate: bool

    def view(self, deadline_s: float) -> node_view.NodeView:
        """A fresh look."""
        return node_view.NodeView(
            job_id=self.job_id,
            node=self.node,
            uid=os.geteuid(),
            directory=self.directory,
            agent=agent_client.AgentClient(
                path=self.directory.parent / agent_client.SOCKET, job_id=self.job_id
            ),
            deadline_s=deadline_s,
            may_evaluate=self.may_evaluate,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Answer questions until standard input closes, or none came for `--idle` seconds."""
    args = _options(sys.argv[1:] if argv is None else argv)
    _be_small()
    if args.become:
        registry.load()
        collect_child.become(*args.become)
    directory = Path(args.directory or os.environ.get("PROBING_PAGE_DIR") or "/nonexistent/0")
    job = args.job or os.environ.get("SLURM_JOB_ID", "")
    place = Place(
        job_id=int(directory.name) if digits.is_number(directory.name) else int(job or 0),
        node=args.node or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0],
        directory=directory,
        step=os.environ.get("SLURM_STEP_ID", ""),
        may_evaluate=not args.tables_only,
    )
    pool = readers.TableReaders(lambda scan, deadline: answering.answer(place.view(deadline), scan))
    if args.packed:
        return _answer_packed(place, pool, next(_lines(args.idle), b""), args.packed)
    _write(b"0 !%b %b\n" % (place.node.encode(), place.step.encode()))
    for line in _lines(args.idle):
        _answer(place, pool, line)
    return 0


@dataclass(kw_only=True)
class CollectorOptions:
    """What the command line says."""

    directory: str = ""
    job: str = ""
    node: str = ""
    become: tuple[int, int] | None = None
    """The job's owner, uid and gid: root's way."""
    idle: float = 3600.0
    tables_only: bool = False
    """Evaluate nothing: somebody else than the owner asks."""
    packed: int = 0
    """One question, one bundle of at most so many bytes; 0 for questions until the end of input."""


def _options(argv: Sequence[str]) -> CollectorOptions:
    """Read by hand: argparse would take a tenth of what the collector costs its node."""
    read, words = CollectorOptions(), iter(argv)
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        if name == "tables_only":
            read.tables_only = True
        elif name == "become":
            read.become = int(next(words)), int(next(words))
        elif name in ("directory", "job", "node"):
            setattr(read, name, next(words))
        elif name == "idle":
            read.idle = float(next(words))
        elif name == "packed":
            read.packed = int(next(words))
        else:
            sys.exit(f"collector: no such option: {word}")
    return read


def _be_small() -> None:
    # Whoever runs out of memory loses this process first, never a rank.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    with contextlib.suppress(OSError):
        os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _lines(idle_s: float) -> Any:
    """The questions as they come; ends with the input, after `idle_s` without one, or with one too long."""
    kept = b""
    while select.select([0], [], [], idle_s)[0]:
        chunk = os.read(0, 65536)
        kept += chunk
        *whole, kept = kept.split(b"\n")
        yield from whole
        if not chunk or len(kept) > MAX_QUESTION_BYTES:
            return


def _answer(place: Place, pool: readers.TableReaders, line: bytes) -> None:
    question = _question(line)
    if question is None:
        return
    number, scans, deadline = question
    _write(b"%d ?\n" % number)
    reading = [pool.start(scan, deadline) for scan in scans]
    late = pool.collect(reading, deadline, lambda one: _send(number, one.frame or _failed(place, one.scan)))
    for one in late:
        _send(number, _failed(place, one.scan, LATE))
    _write(b"%d !%b %b\n" % (number, place.node.encode(), place.step.encode()))
    # Said first: a process takes a moment to be gone.
    for one in reading:
        pool.release(one)


def _answer_packed(place: Place, pool: readers.TableReaders, line: bytes, most_bytes: int) -> int:
    """Answers one question with a bundle: what makes it too large is left out, and reported."""
    question = _question(line)
    if question is None:
        return 1
    _, scans, deadline = question
    reading = [pool.start(scan, deadline) for scan in scans]
    late = pool.collect(reading, deadline, lambda _: None)
    frames = [
        _failed(place, one.scan, LATE) if one in late else one.frame or _failed(place, one.scan)
        for one in reading
    ]
    while (body := packing.bundle(frames, max(most_bytes, MAX_QUESTION_BYTES))) is None:
        largest = max(range(len(frames)), key=lambda at: len(frames[at]))
        why = f"its rows are {len(frames[largest]) >> 20} MiB, more than agents pass on: ask for fewer columns or rows"
        frames[largest] = _failed(place, scans[largest], why)
    _write(body)
    for one in reading:
        pool.end(one)
    return 0


def _question(line: bytes) -> tuple[int, list[Scan], float] | None:
    """(its number, what it wants, until when by the monotonic clock); None for no question of ours."""
    try:
        question = json.loads(line)
        number = int(question["id"])
        scans = [Scan.of_json(s) for s in question["scans"][:MAX_SCANS]]
        deadline = time.monotonic() + min(float(question["deadline_s"]), 600.0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return number, scans, deadline


def _failed(place: Place, scan: Scan, reason: str = "its reader ended without an answer") -> bytes:
    view = place.view(0.0)
    view.miss(reason)
    return answering.frame(view, scan, Columns(names=(), kinds=(), values=()))


def _send(number: int, frame: bytes) -> None:
    lines = [
        b"%d +%b\n" % (number, base64.b64encode(frame[at : at + LINE_BYTES]))
        for at in range(0, len(frame), LINE_BYTES)
    ]
    _write(b"".join([*lines, b"%d .\n" % number]))


def _write(text: bytes) -> None:
    left = memoryview(text)
    try:
        while left:
            left = left[os.write(1, left) :]
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more


if __name__ == "__main__":
    sys.exit(main())
