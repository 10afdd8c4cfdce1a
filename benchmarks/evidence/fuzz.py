"""Mutated lines through every reader: no exception, no hang, well-formed findings.

    python -m benchmarks.evidence.fuzz [--lines N] [--jobs N] [--seed S] [--samples FILE-OR-DIRECTORY …]

Seeds are the samples given (or those beside the checkout, where they are) and the words the readers look
for. A line that takes ten seconds of processor time is a hang. `coverage_fuzz` runs the same target under coverage guidance.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import FrameType

from probing_cluster.core.errors import MalformedInput
from probing_cluster.evidence import classify
from probing_cluster.evidence.flight_recorder import model, verdict
from probing_cluster.evidence.joblog import families
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel

SHARED = Path(__file__).resolve().parents[3] / "shared" / "samples"
HANG_S = 10.0
"""Of processor time: a busy machine is no hang."""
_SPLICES = (
    b"\x00",
    b"\xff\xfe",
    "\u202e".encode(),
    b"\x1b[31m",
    b"(" * 40,
    b"[" * 40,
    b" " * 200,
    b"9" * 40,
    b"0x",
    b"\\x0a",
    b"{",
    b'"',
    b"\r",
)


class Hang(Exception):
    """A line took longer than the limit."""


def _alarm(_number: int, _frame: FrameType | None) -> None:
    raise Hang


def seeds(paths: list[Path]) -> list[bytes]:
    """Every line of the samples, and every word the readers look for."""
    files = [
        f
        for p in paths
        for f in (sorted(p.rglob("*")) if p.is_dir() else [p])
        if f.suffix in {".tsv", ".log", ".txt"}
    ]
    lines = [line.split(b"\t")[0] for f in files for line in f.read_bytes().split(b"\n")]
    words = [t.encode() for t in (*kernel.TRIGGERS, *families.TRIGGERS)]
    return [line for line in lines if line] + words


def mutate(chance: random.Random, pool: list[bytes], words: list[bytes]) -> bytes:
    """One seed cut, doubled, spliced, flipped or filled with odd bytes, up to four times."""
    line = bytearray(chance.choice(pool))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(line) + 1)
        match chance.randrange(7):
            case 0:
                del line[at : at + chance.randrange(1, 12)]
            case 1:
                line[at:at] = chance.choice(words)
            case 2:
                other = chance.choice(pool)
                line[at:] = other[chance.randrange(len(other) + 1) :]
            case 3 if line:
                line[at % len(line)] = chance.randrange(256)
            case 4:
                line[at:at] = chance.choice(_SPLICES)
            case 5:
                line[at:at] = line[: chance.randrange(64)]
            case _:
                line[at : at + 3] = str(chance.randrange(-(10**9), 10**12)).encode()
    return bytes(line[:4096])


class Target:
    """Feeds lines to long-lived readers, as an agent does, and checks what comes out."""

    def __init__(self) -> None:
        self.kernel = kernel.KernelReader()
        self.job = joblog.JobLogReader()
        self.line = 0
        self.found = 0

    def one(self, data: bytes) -> None:
        """Every reader on one line."""
        text = data.decode("utf-8", "replace")
        self.line += 1
        if found := self.kernel.read_line(text):
            self.found += 1
            json.dumps(classify.kernel_json(self.line, found[1])).encode()
        for finding in self.job.feed(self.line, text):
            self.found += 1
            json.dumps(classify.joblog_json(finding)).encode()
        if self.line % 997 == 0:
            self.job = joblog.JobLogReader()


def dump(data: bytes) -> None:
    """The flight-recorder loader on arbitrary bytes."""
    try:
        verdict.judge([model.parse(0, data)])
    except MalformedInput:
        return


def rounds(lines: int, seed: int, pool: list[bytes]) -> Iterator[tuple[int, int, float]]:
    """Run; yields (lines done, findings, CPU seconds) every 100,000 lines. A failure prints its line and raises."""
    chance, target = random.Random(seed), Target()
    words = [t.encode() for t in (*kernel.TRIGGERS, *families.TRIGGERS)]
    signal.signal(signal.SIGPROF, _alarm)
    start = time.process_time()
    for number in range(1, lines + 1):
        data = mutate(chance, pool, words)
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        try:
            target.one(data)
            if number % 50 == 0:
                dump(data)
        except BaseException:
            sys.stderr.write(f"failed on {data!r} (seed {seed}, line {number})\n")
            raise
        if number % 100_000 == 0 or number == lines:
            signal.setitimer(signal.ITIMER_PROF, 0)
            yield number, target.found, time.process_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)


def run(lines: int, seed: int, pool: list[bytes]) -> None:
    """One run, a line of progress per 100,000."""
    for done, found, seconds in rounds(lines, seed, pool):
        print(
            f"seed {seed}: {done:10d} lines  {found:9d} findings  {done / seconds:9.0f} lines/CPU s",
            flush=True,
        )


def main() -> None:
    """Share the lines among processes, each with a seed of its own; any that fails fails the whole."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first process; each next has the next")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--samples", type=Path, nargs="*", default=[SHARED] if SHARED.is_dir() else [])
    chosen = parser.parse_args()
    pool, each = seeds(chosen.samples), -(-chosen.lines // chosen.jobs)
    with futures.ProcessPoolExecutor(chosen.jobs) as processes:
        for done in [processes.submit(run, each, chosen.seed + i, pool) for i in range(chosen.jobs)]:
            done.result()


if __name__ == "__main__":
    main()
