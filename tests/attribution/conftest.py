"""Small hands for building cases: everything not named is an ordinary two-node, eight-GPU job."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge
from probing_cluster.core import records

T0 = datetime(2026, 3, 2, 14, 2, 14, tzinfo=UTC)
"""Start of the usual attempt."""
END = T0 + timedelta(minutes=18, seconds=22)
"""Its end."""


class Maker:
    """Makes records around one attempt; numbers make ids, so the same calls give the same records."""

    start = T0
    end = END

    def __init__(self) -> None:
        self._serial = itertools.count(1)

    def uuid(self, node: str, index: int) -> str:
        """A GPU's UUID."""
        return f"GPU-{node}-{index}-5f3c9e10"

    def gpus(self, *nodes: str, indices: range | tuple[int, ...] = range(8)) -> dict[str, tuple[str, ...]]:
        """Every GPU of these nodes (or the ones named)."""
        return {n: tuple(self.uuid(n, i) for i in indices) for n in nodes}

    def attempt(self, **over: Any) -> records.JobAttempt:
        """A FAILED attempt on n1 and n2 with all their GPUs."""
        nodes = over.get("nodes", ("n1", "n2"))
        values: dict[str, Any] = {
            "cluster": "c",
            "job_id": 4242,
            "submit_at": self.start - timedelta(seconds=3),
            "eligible_at": self.start - timedelta(seconds=3),
            "start_at": self.start,
            "end_at": self.end,
            "state": "FAILED",
            "exit_code": 1,
            "exit_signal": 0,
            "nodes": nodes,
            "n_gpus": 8 * len(nodes),
            "gpus": self.gpus(*nodes),
            "user": "alice",
            "name": "llama-70b-sft",
            "partition": "gpu",
            "time_limit_s": 86400.0,
            "run_key": "4242",
        }
        return records.JobAttempt(**{**values, **over})

    def event(self, before_end_s: float = 4.0, **over: Any) -> records.HealthEvent:
        """A node event `before_end_s` before the usual end."""
        number = next(self._serial)
        at = over.pop("at", None) or self.end - timedelta(seconds=before_end_s)
        node = over.get("node", "n2")
        values: dict[str, Any] = {
            "event_id": records.make_event_id("c", node, over.get("source", "kernel"), str(number)),
            "cluster": "c",
            "node": node,
            "at": at,
            "observed_at": at,
            "kind": "xid",
            "severity": records.Severity.HIGH,
            "source": "kernel",
            "message": "",
        }
        return records.HealthEvent(**{**values, **over})

    def xid(
        self, code: int, gpu: int | None = 3, before_end_s: float = 4.0, **over: Any
    ) -> records.HealthEvent:
        """A kernel Xid line of one GPU, enriched as the agent does it."""
        node = over.get("node", "n2")
        device: dict[str, Any] = {}
        if gpu is not None:
            device = {
                "device": f"gpu{gpu}",
                "gpu_uuid": self.uuid(node, gpu),
                "pci_bus_id": f"0000:{0x50 + gpu:02x}:00",
            }
        return self.event(before_end_s, kind="xid", code=str(code), **{**device, **over})

    def finding(self, kind: str, before_end_s: float = 1.0, **over: Any) -> records.HealthEvent:
        """Something the job's own log says."""
        values = {"source": "joblog", "job_id": 4242, "severity": records.Severity.INFO, "node": "n1"}
        return self.event(before_end_s, kind=kind, **{**values, **over})

    def action(self, action: str = "requeue", after_end_s: float = -2.0, **over: Any) -> records.Drain:
        """Something we did."""
        number = next(self._serial)
        values: dict[str, Any] = {
            "drain_id": records.make_event_id("c", "n2", "action", str(number)),
            "cluster": "c",
            "node": "n2",
            "at": self.end + timedelta(seconds=after_end_s),
            "action": action,
            "reason": "probing: xid 79 gpu3",
            "owner": "probing",
            "state": "done",
        }
        return records.Drain(**{**values, **over})

    def case(
        self, *events: records.HealthEvent, attempt: records.JobAttempt | None = None, **over: Any
    ) -> cases.Case:
        """A case whose nodes were all watched."""
        attempt = attempt or self.attempt()
        watched = {n: self.end + timedelta(seconds=30) for n in attempt.nodes}
        return cases.Case(**{"attempt": attempt, "events": events, "watched": watched, **over})

    def judge(self, *events: records.HealthEvent, **over: Any) -> records.Verdict:
        """The verdict of that case."""
        verdict = judge.judge(self.case(*events, **over), made_at=self.end + timedelta(minutes=1))
        assert verdict is not None
        return verdict


@pytest.fixture
def make() -> Maker:
    """A fresh maker."""
    return Maker()


@pytest.fixture
def new_maker() -> Callable[[], Maker]:
    """For property tests, which need one maker per example."""
    return Maker
