"""What `probing-ctl serve` keeps in memory on a year's database: at its start, after a backlog, at rest.

    .venv/bin/python -m benchmarks.control_plane.serve_memory [--attempts 4000000] [--events 20000000] [--backlog 20000] [--rest 300]
        [--reports 4000] [--keep DIRECTORY]

The database is that of full_size. Its latest attempts are unjudged (--backlog), and the service, a process of its own, judges
them, accounts for their runs, scores the lemon night that is due, and then has nothing to do for --rest seconds. Then it is
abused: --reports reports, forty at a time, the metrics as often as they come, and another backlog, as an import leaves one; and it
rests again. Printed are MB resident and proportional of the service's own process, and of the processes beside it (`in_child`) the
most that was seen.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg

from benchmarks.db import full_size
from probing_cluster.attribution.passes import pending
from probing_cluster.core import clock, errors, settings
from probing_cluster.db import migrate
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded
from probing_cluster.reports import job_ref
from probing_cluster.reports.asking import door

CLUSTER = "bench"
MOST_MB = 250.0
_PATIENCE_S = 3600.0
_UNJUDGE = """
UPDATE probing.job_attempt SET judged_at = NULL WHERE (cluster, job_id, submit_at) IN (
    SELECT cluster, job_id, submit_at FROM probing.job_attempt
    WHERE state = 'FAILED' AND cluster = %s ORDER BY end_at DESC LIMIT %s)
"""


class Service:
    """A running `probing-ctl serve` and what it keeps in memory."""

    def __init__(self, process: subprocess.Popen[bytes], config: settings.Settings) -> None:
        self._process = psutil.Process(process.pid)
        self.config = config
        self.beside_mb = 0.0
        """The most that one process beside it was seen to hold, proportional MB."""

    def look(self) -> tuple[float, float]:
        """Resident and proportional MB of the service itself, now."""
        for child in self._process.children(recursive=True):
            try:
                self.beside_mb = max(self.beside_mb, child.memory_full_info().pss / 1e6)
            except psutil.Error:
                continue  # it has ended meanwhile
        now = self._process.memory_full_info()
        return now.rss / 1e6, now.pss / 1e6


@contextmanager
def serving(url: str, home: Path) -> Iterator[Service]:
    """The service on the database `url`, without a Slurm; ended afterwards."""
    config = home / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "{CLUSTER}"\n[database]\nurl = "{url}"\n[slurm]\nbin_directory = "{home}/none"\n'
        f'[service]\nsocket = "{home}/report.sock"\nmetrics_listen = "127.0.0.1:{_port()}"\n[mail]\nspool_directory = "{home}/mail"\n'
    )
    with (home / "log").open("w") as log:
        argv = [str(Path(sys.executable).with_name("probing-ctl")), "serve", "--config", str(config)]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        _wait("the service", (home / "report.sock").exists)
        yield Service(process, settings.load(config))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def _wait(what: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} is not ready after {_PATIENCE_S:g} s")
        time.sleep(0.5)


def _all_judged(store: store_module.Store) -> bool:
    now = datetime.now(UTC)
    return pending.first_end(store.of(None), clock.EPOCH, now, unjudged=True) is None


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def abuse(url: str, service: Service, n_reports: int, backlog: int) -> None:
    """Reports of the latest jobs, forty at a time, with the metrics between them; and `backlog` attempts that are to be judged anew."""
    with psycopg.connect(url, autocommit=True) as connection:
        query = (
            "SELECT job_id FROM probing.job_attempt WHERE state = 'FAILED' ORDER BY end_at DESC LIMIT 5000"
        )
        jobs = [row[0] for row in connection.execute(query)]
        connection.execute(_UNJUDGE, (CLUSTER, backlog))

    def one(n: int) -> int:
        if n % 20 == 0:
            with urllib.request.urlopen(f"http://{service.config.service.metrics_listen}/metrics") as page:
                page.read()
        try:
            door.ask(Path(service.config.service.socket), job_ref.JobRef(base=jobs[n % len(jobs)]))
        except errors.DatabaseUnavailable:
            return 0  # more at once than it answers
        return 1

    with ThreadPoolExecutor(40) as many:
        answered = sum(many.map(one, range(n_reports)))
    print(f"{n_reports} reports asked for, {answered} answered")


def measure(
    url: str, home: Path, rest_s: float, n_reports: int, backlog: int
) -> list[tuple[str, float, float]]:
    """(moment, resident MB, proportional MB) of the service, printed as they come."""
    found: list[tuple[str, float, float]] = []

    def note(moment: str, service: Service) -> None:
        rss_mb, pss_mb = service.look()
        over = f"   OVER {MOST_MB:g} MB" if moment.startswith("at rest") and rss_mb > MOST_MB else ""
        print(f"{rss_mb:7.1f} MB resident   {pss_mb:7.1f} MB proportional   {moment}{over}", flush=True)
        found.append((moment, rss_mb, pss_mb))

    with store_module.Store.open(url) as store, serving(url, home) as service:

        def looked(ready: bool) -> bool:
            service.look()
            return ready

        note("at the start", service)
        _wait("the backlog", lambda: looked(_all_judged(store)))
        note("after the backlog", service)
        _wait("the lemon night", lambda: looked(store.recall(f"lemon.done {CLUSTER}") is not None))
        note("after the lemon night", service)
        time.sleep(rest_s)
        note("at rest", service)
        abuse(url, service, n_reports, backlog)
        note("after the abuse", service)
        _wait("the second backlog", lambda: looked(_all_judged(store)))
        time.sleep(rest_s)
        note("at rest after the abuse", service)
        print(f"{service.beside_mb:7.1f} MB proportional at most of a process beside it")
    return found


def main() -> None:
    """Fill a database, run the service on it, print what it holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attempts", type=int, default=4_000_000)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--backlog", type=int, default=20_000)
    parser.add_argument("--rest", type=float, default=300.0, help="seconds with nothing to do")
    parser.add_argument("--reports", type=int, default=4000)
    parser.add_argument("--keep", type=Path, help="use (and keep) this directory; filled only when empty")
    wanted = parser.parse_args()
    directory = wanted.keep or Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    try:
        url = embedded.ensure(directory)
        migrate.upgrade(url)
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute("SELECT EXISTS (SELECT FROM probing.job_attempt)").fetchone()
            if row != (True,):
                full_size.fill(url, wanted.attempts, wanted.events)
            n = connection.execute(_UNJUDGE, (CLUSTER, wanted.backlog)).rowcount
            connection.execute("DELETE FROM probing.state WHERE key = 'lemon.done ' || %s", (CLUSTER,))
        print(f"{wanted.attempts:,} attempts, {wanted.events:,} events, a backlog of {n:,}")
        with tempfile.TemporaryDirectory(prefix="probing-serve-") as home:
            measure(url, Path(home), wanted.rest, wanted.reports, wanted.backlog)
    finally:
        embedded.stop(directory)
        if not wanted.keep:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
