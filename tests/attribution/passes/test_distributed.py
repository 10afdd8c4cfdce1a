"""The same slices on Dask give the same rows, also when a worker is killed under them."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from probing_cluster.attribution.passes import distributed
from probing_cluster.core import clock, errors
from tests.attribution.passes.test_reattribute import generate

SINCE = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=45)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)
# Dask's own start-up and the killing of its worker warn about sockets that the kill left open.


@pytest.fixture(scope="module")
def dask_distributed():
    """Dask's, loaded by the one worker that runs this file and not by each that collects it."""
    return pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    where = tmp_path_factory.mktemp("history")
    generate.generate(where, generate.Scale(n_nodes=24, days=40, n_attempts=3000, n_events=20_000, seed=3))
    return where


@pytest.fixture(scope="module")
def alone(history):
    return pa.concat_tables(list(distributed.run(history, SINCE, UNTIL)))


def test_slices_of_days_cover_the_span():
    """End to end, the last one cut."""
    parts = list(distributed.slices(SINCE, SINCE + timedelta(days=10), 4))
    assert [p.since_us for p in parts[1:]] == [p.until_us for p in parts[:-1]]
    assert parts[-1].until_us == clock.to_us(SINCE + timedelta(days=10))


def test_days_instead_of_months_change_nothing(history, alone):
    """The slice length is free."""
    assert (
        pa.concat_tables(list(distributed.run(history, SINCE, UNTIL, slice_days=3)))
        .sort_by("attempt_id")
        .equals(alone.combine_chunks().sort_by("attempt_id"))
    )


@pytest.mark.slow
def test_dask_gives_the_same_rows_though_a_worker_is_killed(dask_distributed, history, alone):
    """Two worker processes, one of them killed in mid-run: the same answer to the row."""
    with dask_distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        first = next(iter(cluster.workers.values()))

        def kill() -> None:
            time.sleep(1.0)
            os.kill(first.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        engine = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"
        found = pa.concat_tables(list(distributed.run(history, SINCE, UNTIL, engine=engine, slice_days=1)))
        killer.join()
    assert found.sort_by("attempt_id").equals(alone.combine_chunks().sort_by("attempt_id"))


def test_unknown_engines_are_refused_by_name(history):
    """One line that names the valid ones."""
    with pytest.raises(errors.UsageError, match="dask://HOST:PORT"):
        list(distributed.run(history, SINCE, UNTIL, engine="spark"))


def test_a_scheduler_that_is_not_there_is_said(dask_distributed, history, monkeypatch):
    """No trace, one line."""

    class Nobody:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError("timed out")

    monkeypatch.setattr(dask_distributed, "Client", Nobody)
    with pytest.raises(errors.UsageError, match="no Dask scheduler"):
        list(distributed.run(history, SINCE, UNTIL, engine="dask://127.0.0.1:1"))
