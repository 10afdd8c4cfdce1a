"""The time slices of `reattribute` on several machines: Dask workers, which the site's Slurm may start.

A slice is a task of its own: it reads its months from the shared history directory, needs no other slice and may be
repeated anywhere. A worker that dies costs the time of its slices and nothing else.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from probing_cluster.attribution.passes import bulk, reattribute
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import clock, errors

RETRIES = 3
"""How often a slice is tried again elsewhere."""


@dataclass(frozen=True, kw_only=True)
class SlurmWorkers:
    """Slurm options for the workers."""

    n_jobs: int = 4
    cores: int = 2
    memory: str = "8GiB"
    walltime: str = "02:00:00"
    partition: str | None = None
    directives: tuple[str, ...] = ()
    """Further #SBATCH options, such as `--gres=none`."""
    without: tuple[str, ...] = ()
    """Options that Dask sets and this site rejects, such as `--mem`."""
    python: str | None = None
    """The workers' Python; None = this one, which must be on a shared file system."""
    interface: str | None = None
    """Network interface of scheduler and workers; None = Dask's choice."""
    log_directory: str | None = None


def run(
    directory: Path,
    since: datetime,
    until: datetime,
    policy: cases.WindowPolicy | None = None,
    *,
    engine: str = "local",
    slice_days: float | None = None,
    workers: SlurmWorkers | None = None,
    memory_bytes: int | None = None,
) -> Iterator[pa.Table]:
    """Verdict cores slice by slice, in order of time.

    `engine`: `local`; `dask://HOST:PORT` for a running scheduler; `slurm` to start one with workers as jobs.
    """
    parts = list(slices(since, until, slice_days))
    if engine == "local":
        source = bulk.Bulk(directory, policy, memory_bytes=memory_bytes)
        for part in parts:
            yield reattribute.judge_slice(source, part)
        return
    with _client(engine, workers or SlurmWorkers()) as client:
        futures = [
            client.submit(work, str(directory), p, policy, memory_bytes, retries=RETRIES, pure=False)
            for p in parts
        ]
        for future in futures:
            yield _table(_result(future, directory))


def slices(since: datetime, until: datetime, days: float | None = None) -> Iterator[bulk.Slice]:
    """Months, or equal stretches of `days`."""
    if days is None:
        yield from bulk.month_slices(since, until)
        return
    at = since
    while at < until:
        end = min(until, at + timedelta(days=days))
        yield bulk.Slice(since_us=clock.to_us(at), until_us=clock.to_us(end))
        at = end


def work(
    directory: str, part: bulk.Slice, policy: cases.WindowPolicy | None, memory_bytes: int | None
) -> bytes:
    """One slice's verdict cores as Arrow IPC bytes; raises FileNotFoundError if the worker does not see the history."""
    if not (Path(directory) / "attempts").is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
    table = reattribute.judge_slice(bulk.Bulk(Path(directory), policy, memory_bytes=memory_bytes), part)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _result(future: Any, directory: Path) -> bytes:
    """One slice's result; an error that the site must fix becomes one sentence."""
    distributed = _module("distributed", "dask")
    try:
        return bytes(future.result())
    except FileNotFoundError as exc:
        raise errors.UsageError(
            f"a worker does not find {exc.filename or directory}: the history must lie where all workers can read it"
        ) from exc
    except distributed.KilledWorker as exc:
        raise errors.ProbingError(
            "worker after worker died of the same slice; give them more memory (--worker memory=…) or make slices"
            " shorter (--slice-days)"
        ) from exc


def _table(raw: bytes) -> pa.Table:
    return pa.ipc.open_stream(raw).read_all()


@contextmanager
def _client(engine: str, workers: SlurmWorkers) -> Iterator[Any]:
    distributed = _module("distributed", engine)
    if engine.startswith("dask://"):
        address = f"tcp://{engine.removeprefix('dask://')}"
        try:
            client = distributed.Client(address, timeout="30s")
        except OSError as exc:
            raise errors.UsageError(f"no Dask scheduler answers at {address}") from exc
        with client:
            yield client
        return
    if engine != "slurm":
        msg = f"engine {engine!r}; valid: local, dask://HOST:PORT, slurm"
        raise errors.UsageError(msg)
    with _slurm(workers) as cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def _slurm(workers: SlurmWorkers) -> Iterator[Any]:
    """A local scheduler with workers as Slurm jobs; lost workers are restarted."""
    dask_jobqueue = _module("dask_jobqueue", "slurm")
    options: dict[str, Any] = {
        "cores": workers.cores,
        "processes": 1,
        "memory": workers.memory,
        "walltime": workers.walltime,
        "queue": workers.partition,
        "job_extra_directives": list(workers.directives),
        "job_directives_skip": list(workers.without),
        "interface": workers.interface,
        "log_directory": workers.log_directory,
    }
    if workers.python is not None:
        options["python"] = workers.python
    with dask_jobqueue.SLURMCluster(**options) as cluster:
        cluster.adapt(minimum_jobs=workers.n_jobs, maximum_jobs=workers.n_jobs)
        yield cluster


def _module(name: str, engine: str) -> Any:
    """An optional package; raises UsageError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        msg = f"engine {engine!r} needs the extra `scale`: pip install 'probing-cluster[scale]'"
        raise errors.UsageError(msg) from exc
