"""What a row of a user's table costs the training loop, beside Probing's; how small a kept table becomes, beside Pco.

    python -m benchmarks.probe_agent.user_tables [--rounds N] [--theirs PYTHON]

Append: CPU nanoseconds, the best of the rounds, less an empty loop; `--theirs` is an interpreter with PyPI `probing`.
Kept: 10,000 rows of series that trainings have, as one column of our Parquet, and by Pco at its default level (`pcodec`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from probing_cluster.probe_agent.inject.site._probing_probe import tables

ROWS = 10_000
_THEIRS = """
import time, probing
table = probing.ExternalTable("a", ["x", "y"])
def rows(n):
    for i in range(n): table.append([i, 0.5])
def empty(n):
    for i in range(n): pass
def best(f):
    found = 1e9
    for _ in range(5):
        began = time.process_time_ns(); f(50000); found = min(found, (time.process_time_ns() - began) / 50000)
    return found
print("ns", best(rows) - best(empty))
"""


def _best(work: Callable[[int], None], rounds: int, n: int = 100_000) -> float:
    found = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        work(n)
        found = min(found, (time.process_time_ns() - began) / n)
    return found


def appends(rounds: int) -> dict[str, float]:
    """CPU nanoseconds of an append, by how it is written."""
    train = tables.table("train", step=int, loss=float)
    named = tables.table("named", phase=str, loss=float)
    external = tables.ExternalTable("external", ["step", "loss"])

    def by_place(n: int) -> None:
        for i in range(n):
            train.append(i, 0.5)

    def by_name(n: int) -> None:
        for i in range(n):
            train.append(step=i, loss=0.5)

    def text(n: int) -> None:
        for _ in range(n):
            named.append("train", 0.5)

    def values(n: int) -> None:
        for i in range(n):
            external.append([i, 0.5])

    def empty(n: int) -> None:
        for _ in range(n):
            pass

    nothing = _best(empty, rounds)
    works = {"by place": by_place, "by name": by_name, "text and number": text, "ExternalTable": values}
    return {name: _best(work, rounds) - nothing for name, work in works.items()}


def theirs(python: str) -> float:
    """Probing's ExternalTable.append in an interpreter that has it."""
    done = subprocess.run(
        [python, "-c", _THEIRS],
        env={**os.environ, "PROBING": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.rpartition("ns")[2])


def series() -> dict[str, tuple[str, list[int] | list[float]]]:
    """Columns as trainings write them: (kind, values)."""
    chance = random.Random(7)
    at, times, loss, curve = 1_795_000_000_000_000_000, [], 5.0, []
    for _ in range(ROWS):
        at += 500_000_000 + chance.randrange(-300_000, 300_000)
        times.append(at)
        loss = 0.9995 * loss + 0.0005 * (1.5 + chance.gauss(0, 1.0))
        curve.append(loss + chance.gauss(0, 0.02))
    return {
        "step number": ("int", list(range(ROWS))),
        "time of a row, ns": ("time", times),
        "loss": ("float", curve),
        "duration of a step, s": ("float", [0.5 * (1 + chance.gauss(0, 0.02)) for _ in range(ROWS)]),
        "memory, bytes": ("int", [30_000_000_000 + 2_097_152 * chance.randrange(64) for _ in range(ROWS)]),
    }


def ratios(kind: str, values: list[int] | list[float]) -> tuple[float, float | None]:
    """(raw bytes over Parquet's column chunk, the same over Pco's; None without pcodec)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from probing_cluster.attribution.history import kept

    raw = 8 * len(values)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t.parquet"
        kept.write_parquet(pa.table({"v": pa.array(values, kept.TYPES[kind])}), path)  # type: ignore[index]
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0).total_compressed_size
    if importlib.util.find_spec("pcodec") is None:
        return raw / chunk, None
    import numpy as np
    from pcodec import ChunkConfig, standalone

    array = np.array(values, dtype=np.float64 if kind == "float" else np.int64)
    return raw / chunk, raw / len(standalone.simple_compress(array, ChunkConfig()))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--theirs", metavar="PYTHON", help="an interpreter with PyPI probing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        os.environ["PROBING_PAGE_DIR"] = directory
        for name, cost in appends(args.rounds).items():
            print(f"append {name:16} {cost:6.0f} ns")
    if args.theirs:
        print(f"append {'Probing':16} {theirs(args.theirs):6.0f} ns")
    for name, (kind, values) in series().items():
        ours, pco = ratios(kind, values)
        print(f"kept   {name:22} {ours:7.1f} x   Pco {'-' if pco is None else f'{pco:.1f} x'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
