"""Workers as jobs of a real Slurm: four of them, one killed in mid-run, the same answer to the row."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing_cluster.attribution.passes import distributed
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import requirements, scratch
from tests.attribution.passes.test_reattribute import generate

SINCE = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=45)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::ResourceWarning",
        "ignore::UserWarning",
        "ignore::FutureWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ),
]  # Dask's own start-up and the killing of its worker warn about sockets that the kill left open.


@pytest.fixture
def slurm(monkeypatch):
    """A bare sandbox whose sbatch this process reaches."""
    pytest.importorskip("dask_jobqueue")
    if why := requirements.missing():
        pytest.skip(why)
    with (
        scratch.directory("probing-dask-") as where,
        cluster.Sandbox.up(where / "s", nodes=4, gpus=0, bare=True) as box,
    ):
        for name, value in box.env.items():
            monkeypatch.setenv(name, value)
        yield where


def test_four_slurm_workers_one_killed_give_the_same_rows(slurm, tmp_path):
    """`probing-ctl attribute --engine slurm`: Slurm ends one worker's job while slices are judged; they are judged again elsewhere."""
    history = slurm / "history"
    generate.generate(history, generate.Scale(n_nodes=24, days=40, n_attempts=3000, n_events=20_000, seed=3))
    alone = pa.concat_tables(list(distributed.run(history, SINCE, UNTIL))).sort_by("attempt_id")
    killed: list[str] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            time.sleep(0.5)
            running = subprocess.run(
                ["squeue", "-h", "-t", "R", "-o", "%i"], capture_output=True, text=True, check=True
            ).stdout.split()
            if len(running) >= 2:
                subprocess.run(["scancel", "-s", "KILL", "-f", running[0]], check=True)
                killed.append(running[0])

    killer = threading.Thread(target=kill_one)
    killer.start()
    logs = slurm / "logs"
    logs.mkdir(mode=0o777)
    calls = ("n_jobs=4", "cores=1", "memory=1GiB", "interface=lo", f"log_directory={logs}", "without=--mem")
    command = [
        sys.executable,
        "-m",
        "probing_cluster.control_plane.cli.main",
        "attribute",
        "--engine",
        "slurm",
    ]
    command += ["--since", f"{SINCE:%Y-%m-%d}", "--until", f"{UNTIL:%Y-%m-%d}", "--slice-days", "0.5"]
    (tmp_path / "probing.toml").touch()
    command += [
        "--config",
        str(tmp_path / "probing.toml"),
        "--history",
        str(history),
        "--output",
        str(tmp_path / "rows.parquet"),
    ]
    command += [word for text in calls for word in ("--worker", text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    killer.join()
    assert done.returncode == 0, done.stderr
    assert killed
    assert f"{alone.num_rows:,} attempts of the history judged" in done.stdout
    found = pq.read_table(tmp_path / "rows.parquet").select(alone.column_names).sort_by("attempt_id")
    assert found.equals(alone.combine_chunks())
