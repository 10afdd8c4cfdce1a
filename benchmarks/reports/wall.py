"""Wall time of `probing-report` on a database with one requeued job: the whole command, process start included.

    python -m benchmarks.reports.wall [--runs 15] [--config FILE --job JOBID]

With --config and --job it measures a job of an existing database, else it fills an embedded one of its own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from probing_cluster.core import records
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded

JOB = 4242


@contextmanager
def own_database() -> Iterator[Path]:
    """Settings that name a fresh embedded database with one job of two attempts."""
    home = Path(tempfile.mkdtemp(prefix="probing-bench-"))
    home.chmod(0o755)
    try:
        with db_store.Store.open(embedded.ensure(home / "pg"), upgrade=True) as store:
            start = datetime(2026, 11, 20, 14, tzinfo=UTC)
            store.upsert_attempts(
                records.JobAttempt(
                    cluster="c", job_id=JOB, attempt=n, submit_at=start + timedelta(hours=n), state=state, user="alice",
                    start_at=start + timedelta(hours=n, minutes=1), end_at=start + timedelta(hours=n, minutes=50),
                    nodes=("n1", "n2"), n_gpus=16, run_key=str(JOB), partition="gpu", name="sft",
                )
                for n, state in ((1, "REQUEUED"), (2, "COMPLETED"))
            )  # fmt: skip
        path = home / "probing.toml"
        path.write_text(
            f'[cluster]\nname = "c"\n[database]\ndirectory = "{home}/pg"\n[service]\nsocket = "{home}/report.sock"\n'
        )
        yield path
    finally:
        embedded.stop(home / "pg")
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def service(config: Path) -> Iterator[None]:
    """`probing-ctl serve` on that database, its door open."""
    command = [str(Path(sys.executable).with_name("probing-ctl")), "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not config.with_name("report.sock").exists():
            time.sleep(0.1)
        try:
            yield
        finally:
            process.terminate()


def measure(command: list[str], runs: int) -> tuple[float, float]:
    """Median and least wall time, seconds."""
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return statistics.median(took), min(took)


def main() -> int:
    """Prints one line per measured command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--job", default=str(JOB))
    args = parser.parse_args()
    report = str(Path(sys.executable).with_name("probing-report"))

    def report_median(name: str, command: list[str]) -> None:
        median_s, least_s = measure(command, args.runs)
        print(f"{name:<28} median {median_s:.3f} s  least {least_s:.3f} s  ({args.runs} runs)")

    def all_of(config: Path) -> None:
        report_median("python -I -S -c pass", [sys.executable, "-I", "-S", "-c", "pass"])
        report_median("python -c 'import psycopg'", [sys.executable, "-c", "import psycopg"])
        report_median("probing-report, database", [report, args.job, "--config", str(config)])
        report_median("probing-report --json", [report, args.job, "--config", str(config), "--json"])
        report_median("probing-report --html -", [report, args.job, "--config", str(config), "--html", "-"])

    if args.config:
        all_of(args.config)
    else:
        with own_database() as config:
            all_of(config)
            with service(config):
                report_median("probing-report, service", [report, args.job, "--config", str(config)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
