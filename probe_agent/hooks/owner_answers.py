"""What the agent answers to the owner of a job on this node, about that job and no other: stacks, GPUs, adapters, kernel events.

The owner's own rights do not reach these. Every answer is for `peer_uid`, which the kernel vouches for; what a user can make
the agent do is bounded: stacks and GPUs are read again at most once in `KEPT_S`, whoever asks how often.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.healthchecks.readers import nvml, nvml_snapshot
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import nic_traffic
from probing_cluster.probe_agent.sources import ib_ports

KEPT_S = 1.0
"""An answer that is dear to make serves everybody for so long."""
SAMPLES = 60
"""Readings of the GPUs that are kept: ten minutes at the installed interval."""
MAX_PIDS = 64
_EVENT_FIELDS = ("kind", "code", "severity", "device", "gpu_uuid", "pci_bus_id", "job_id", "message")
BEFORE = timedelta(minutes=10)
"""A kernel event of the node so long before the job still concerns it."""
ABOUT_PROCESSES = frozenset({"oom", "hung_task", "segfault"})
"""Kinds of kernel events that name a process: shown only to the owner of its job."""

Stacks = Callable[[int, Collection[int]], Awaitable[Mapping[int, Mapping[str, Any]]]]
_SAMPLED = (
    "uuid", "index", "utilization_frac", "power_w", "temperature_c", "memory_temperature_c", "throttle_reasons",
)  # fmt: skip


@dataclass(kw_only=True)
class OwnerAnswers:
    """Answers the owners of an agent's jobs; each operation is one method named `_<op>`."""

    book: jobs.JobBook
    stacks: Stacks
    """(job id, pids) to what `python.backtrace` needs of each."""
    recent: Callable[[], Collection[records.HealthEvent]]
    """The events that the agent took in last."""
    last: Mapping[str, Any]
    """The poller's last reading of every source."""
    nics: nic_traffic.NicTraffic
    nvml_library: str | None = None
    clock: clock.Clock = clock.SYSTEM
    _samples: deque[tuple[int, list[dict[str, Any]]]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _uuids: dict[int, str] = field(default_factory=dict)
    """By NVML's number, as the polls found them."""
    _kept: dict[tuple[str, int], tuple[float, Any]] = field(default_factory=dict)
    _making: dict[tuple[str, int], asyncio.Lock] = field(default_factory=dict)

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request; raises NotPermitted to whoever is not the job's owner, UsageError."""
        op, job = request.get("op"), self._job(request)
        work = {
            "hello": self._hello,
            "stacks": self._stacks,
            "gpus": self._gpus,
            "nics": self._nics,
            "kernel": self._kernel,
        }.get(op if isinstance(op, str) else "")
        if work is None:
            raise errors.UsageError(f"unknown op {str(op)[:40]!r}")
        return {"v": 1, "ok": True, **await work(job, request)}

    def sampled(self, reading: Any) -> None:
        """Keeps what of an NVML reading is a series."""
        rows = ((reading or {}).get("snapshot") or {}).get("gpus") or ()
        if rows:
            kept = [{k: row.get(k) for k in _SAMPLED} for row in rows]
            self._samples.append((time.time_ns(), kept))
            self._uuids |= {
                row["index"]: row["uuid"] for row in kept if row["uuid"] and row["index"] is not None
            }

    def _job(self, request: Mapping[str, Any]) -> jobs.NodeJob:
        job_id = request.get("job_id")
        job = self.book.get(job_id) if isinstance(job_id, int) else None
        if job is None or job.uid is None or job.uid != request.get("peer_uid"):
            # The same words for a job that is not here and one that is another's: who runs where is not everybody's.
            raise errors.NotPermitted("this node has no such job of yours")
        return job

    async def _hello(self, _: jobs.NodeJob, __: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _stacks(self, job: jobs.NodeJob, request: Mapping[str, Any]) -> dict[str, Any]:
        named = request.get("pids")
        pids = {p for p in named if isinstance(p, int)} if isinstance(named, list) else set()
        wanted = set(sorted(pids)[:MAX_PIDS])
        found = await self._once("stacks", job.job_id, lambda: self.stacks(job.job_id, wanted))
        return {"stacks": {str(pid): entry for pid, entry in found.items() if pid in wanted}}

    async def _gpus(self, job: jobs.NodeJob, _: Mapping[str, Any]) -> dict[str, Any]:
        if job.gpu_uuids is None:
            raise errors.NotFound("which GPUs the job has here is not known")
        read = await self._once("gpus", 0, self._read_gpus)
        if isinstance(read, nvml.NvmlUnavailable):
            raise errors.NotFound(f"NVML: {read.message}")
        mine = set(job.gpu_uuids)
        return {
            "gpus": [row for row in map(self._named, nvml.to_json(read)["gpus"]) if row["uuid"] in mine],
            "samples": [
                {"at_ns": at_ns, **row}
                for at_ns, rows in self._samples
                for row in rows
                if row["uuid"] in mine
            ],
        }

    def _named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A GPU's row. A lost one does not tell its UUID any more: it is the one that a poll has met at its index."""
        uuid = row.get("uuid")
        return {**row, "uuid": self._uuids.get(row["index"]) if uuid is None and row.get("lost") else uuid}

    async def _read_gpus(self) -> nvml.NvmlSnapshot | nvml.NvmlUnavailable:
        # The call that can hang is in a child of its own with a deadline; the thread waits for that one.
        return await asyncio.to_thread(nvml_snapshot.snapshot, self.nvml_library, 5.0)

    async def _nics(self, _: jobs.NodeJob, __: Mapping[str, Any]) -> dict[str, Any]:
        raw = self.last.get("infiniband")
        now_s, now_ns = self.clock.monotonic_s(), time.time_ns()
        return {
            "ports": [
                {
                    "device": port.device,
                    "up": port.up,
                    "rate_gbps": port.rate_gbps,
                    "link_layer": "Ethernet" if port.ethernet else "InfiniBand",
                    "netdevs": list(port.netdevs),
                    "counters": dict(port.counters),
                }
                for port in (ib_ports.parse(raw) if raw is not None else ())
            ],
            "samples": [
                {"at_ns": now_ns - int((now_s - r.at_s) * 1e9), "device": d, "tx_bytes": tx, "rx_bytes": rx}
                for r in self.nics.readings
                for d, (tx, rx) in r.counts.items()
            ],
        }

    async def _kernel(self, job: jobs.NodeJob, _: Mapping[str, Any]) -> dict[str, Any]:
        mine = set(job.gpu_uuids or ())
        rows = [
            {"at_ns": int(e.at.timestamp() * 1e9), **records.json_fields(e, *_EVENT_FIELDS)}
            for e in self.recent()
            if e.source in vocabulary.KERNEL_LOG_SOURCES and _concerns(e, job, mine)
        ]
        return {"events": rows}

    async def _once(self, what: str, job_id: int, make: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, made anew when the last one is older than KEPT_S; one of a job at a time."""
        key = what, job_id
        running = {0, *self.book.running}
        self._making = {k: lock for k, lock in self._making.items() if k[1] in running}
        async with self._making.setdefault(key, asyncio.Lock()):
            made_s, kept = self._kept.get(key, (-KEPT_S, None))
            if self.clock.monotonic_s() - made_s >= KEPT_S:
                kept = await make()
                now_s = self.clock.monotonic_s()
                self._kept = {k: v for k, v in self._kept.items() if now_s - v[0] < KEPT_S}
                self._kept[key] = now_s, kept
            return kept


def _concerns(event: records.HealthEvent, job: jobs.NodeJob, gpu_uuids: Collection[str]) -> bool:
    """Whether the owner of a job may know of a kernel event: it is the job's, its GPUs', or the whole node's."""
    if event.at < job.started_at - BEFORE:
        return False
    if event.job_id is not None:
        return event.job_id == job.job_id
    if event.gpu_uuid is not None:
        return event.gpu_uuid in gpu_uuids
    return event.kind not in ABOUT_PROCESSES
