"""Drawn incidents: a GPU is lost, perhaps it is set up anew, a job ends; what may be said of the job follows from the order of these.

One database holds many jobs, each alone on a node of its own, with a kernel log per node, as a user with sacct and dmesg files has them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane.imports import load
from probing_cluster.db import store as db_store

EPOCH = datetime(2026, 3, 10, tzinfo=UTC)
LOST = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
RESETS = (
    "Linux version 5.15.0-91-generic (buildd@lcy02) (gcc 11.4.0) #101-Ubuntu SMP",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023",
)
QUOTES = (
    "n sudo: ops : COMMAND=/usr/bin/grep {} /var/log/messages",
    "n ops-note[12]: kernel: {}",
    "n kernel: process '{}' started with executable stack",
    "n qemu-kvm[7001]: [    0.000000] {}",
)


@dataclass(frozen=True)
class Drawn:
    """One job, the loss of a GPU of its node, and what set the GPUs up anew; minutes since the epoch."""

    lost: int
    reset: int | None
    quoted: bool
    """The reset is only spoken of."""
    start: int
    end: int
    n_gpus: int
    state: str

    @property
    def stood(self) -> bool:
        """Whether the GPU was gone while the job ran."""
        back = self.reset is not None and not self.quoted and self.lost < self.reset
        return self.lost < self.end and not (back and self.reset is not None and self.reset <= self.start)


def draw(rng: random.Random) -> Drawn:
    """Any order of loss, reset, start and end that leaves no two of them in one minute."""
    a, b, c, d = sorted(rng.sample(range(60, 1200, 3), 4))
    lost, reset, start, end = rng.choice(
        [(a, b, c, d), (a, c, b, d), (b, c, a, d), (a, d, b, c), (b, d, a, c), (c, d, a, b)]
    )
    return Drawn(
        lost=lost, reset=rng.choice([reset, reset, None]), quoted=rng.random() < 0.3, start=start, end=end,
        n_gpus=rng.choice([0, 8, 8]), state=rng.choice(["FAILED", "FAILED", "TIMEOUT", "CANCELLED"]),
    )  # fmt: skip


def _at(minute: int) -> str:
    return f"{EPOCH + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%S}"


def _log(one: Drawn, node: str, rng: random.Random) -> str:
    lines = [
        (0, f"{node} kernel: usb 1-1: new device"),
        (one.lost, f"{node} kernel: {LOST}"),
        (1300, f"{node} kernel: done"),
    ]
    if one.reset is not None:
        words = rng.choice(RESETS)
        lines.append((one.reset, rng.choice(QUOTES).replace("n ", f"{node} ", 1).format(words) if one.quoted else f"{node} kernel: {words}"))  # fmt: skip
    return "".join(f"{_at(minute)}+00:00 {text}\n" for minute, text in sorted(lines))


@pytest.mark.parametrize("seed", [3])
def test_a_lost_gpu_is_blamed_where_it_stood_and_nowhere_else(
    store: db_store.Store, tmp_path: Path, seed: int
) -> None:
    """Not after a restart, not of a job that held none, not before it happened; and never with certainty of an end from outside."""
    rng = random.Random(seed)
    jobs = {1000 + n: draw(rng) for n in range(36)}
    rows, logs = ["JobIDRaw|JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES"], []
    for job, one in jobs.items():
        gpus = f"gres/gpu={one.n_gpus}," if one.n_gpus else "gres/gpu=0,"
        state = "CANCELLED by 0" if one.state == "CANCELLED" else one.state
        times = "|".join(_at(m) for m in (one.start - 1, one.start, one.end))
        rows.append(f"{job}|{job}|{state}|{int(one.state == 'FAILED')}:0|{times}|n{job}|cpu=8,{gpus}node=1")
        path = tmp_path / f"n{job}"
        path.write_text(_log(one, f"n{job}", rng))
        logs.append((f"n{job}", path))
    (tmp_path / "sacct").write_text("\n".join(rows) + "\n")
    now = EPOCH + timedelta(days=2)
    load.load(
        store, load.LoadOrder(sacct=[tmp_path / "sacct"], kernel=logs, cluster="c", now=now, timezone="UTC")
    )
    attribute.attribute(store)
    verdicts = {v.job_id: v for v in store.verdicts(job_ids=list(jobs))}
    blamed = 0
    for job, one in jobs.items():
        verdict = verdicts[job]
        lost = verdict.cause == "gpu_lost"
        blamed += lost
        if lost:
            assert one.stood, one
            assert one.n_gpus, one
            assert verdict.node == f"n{job}"
            assert verdict.confidence != "certain" or one.state == "FAILED", one
        if one.stood and one.n_gpus and one.state == "FAILED" and one.start < one.lost:
            back = one.reset is not None and not one.quoted and one.lost < one.reset < one.end
            assert lost or back or verdict.cause == "node_reboot", (one, verdict.summary)
    assert blamed >= 5
