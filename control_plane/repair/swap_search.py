"""`probing-ctl swap-search`: the run's stretches as they were measured, and which nodes to replace next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from probing_cluster.core import clock, errors, hostlist, records
from probing_cluster.db import store as db_store
from probing_cluster.diagnostics import swap

_KEY = "swap:{}:{}"


@dataclass(frozen=True, kw_only=True)
class SwapSearchResult:
    """The plan, in words and as JSON."""

    job_id: int
    plan: swap.SwapPlan
    stretches: tuple[swap.Stretch, ...]
    good_s: float
    slow_s: float

    def plain(self) -> dict[str, Any]:
        """The search as JSON."""
        ranked = sorted(self.plan.probabilities.items(), key=lambda item: -item[1])
        return {
            "job_id": self.job_id,
            "good_s": self.good_s,
            "slow_s": self.slow_s,
            "stretches": [{"nodes": sorted(s.nodes), "step_s": s.step_s} for s in self.stretches],
            "probabilities": {name or "none of them": round(p, 4) for name, p in ranked},
            "replace": list(self.plan.replace),
            "put_back": list(self.plan.put_back),
            "rounds_left": self.plan.rounds_left,
        }

    def text(self) -> str:
        """The search in words, for people."""
        name, likely = self.plan.suspect
        ranked = sorted(self.plan.probabilities.items(), key=lambda item: -item[1])
        now_s = self.stretches[-1].step_s
        times = f"{now_s:.4g} s a step at last, {self.slow_s:.4g} s while slow, {self.good_s:.4g} s before"
        lines = [
            f"job {self.job_id}: {times}; {len(self.stretches)} stretches known",
            "likeliest: " + ", ".join(f"{node or 'none of the nodes'} {p:.0%}" for node, p in ranked[:5]),
        ]
        if self.plan.settled and name:
            lines.append(
                f"it is {name} ({likely:.0%}): take it out (probing-ctl drain {name} --reason …) and go on without it"
            )
        elif self.plan.settled:
            lines.append(
                "it is none of the nodes: look at the program, the file system and the network (probing-ctl ranks)"
            )
        elif self.plan.put_back:
            back = hostlist.compress(self.plan.put_back)
            lines.append(
                f"it went with those that were replaced: take {back} back at the next requeue, in place of nodes that are cleared, "
                f"then ask again; about {self.plan.rounds_left} rounds to go"
            )
        else:
            lines.append(
                f"replace next: {hostlist.compress(self.plan.replace)} (--exclude={hostlist.compress(self.plan.replace)} at the next requeue), "
                f"then ask again; about {self.plan.rounds_left} replacements to go"
            )
        return "\n".join(lines)


def search(
    store: db_store.Store,
    cluster: str,
    job_id: int,
    *,
    spares: int,
    given: Sequence[str] = (),
    good_s: float | None = None,
    slow_s: float | None = None,
) -> SwapSearchResult:
    """The plan for a job's run; raises NotFound for an unknown job, UsageError where there is nothing to search by."""
    attempts = store.attempts(job_ids=[job_id], cluster=cluster)
    if not attempts:
        raise errors.NotFound(f"no attempt of job {job_id} is known")
    latest = attempts[-1]
    remembered = _remembered(store, cluster, latest, job_id)
    stretches = [*remembered, *map(_given, given)]
    if not stretches:
        raise errors.UsageError(
            f"no step time of job {job_id} is known: the probe sees none; give them as --stretch '{hostlist.compress(latest.nodes) or 'NODES'}=SECONDS'"
        )
    since = slow_s if slow_s is not None else max(s.step_s for s in stretches)
    before = good_s if good_s is not None else min(s.step_s for s in stretches)
    plan = swap.plan(stretches, spares, before, since)
    return SwapSearchResult(job_id=job_id, plan=plan, stretches=tuple(stretches), good_s=before, slow_s=since)


def _remembered(
    store: db_store.Store, cluster: str, latest: records.JobAttempt, job_id: int
) -> list[swap.Stretch]:
    """The run's stretches kept from earlier questions, with the present one added where its ranks say what a step takes."""
    key = _KEY.format(cluster, latest.run_key or job_id)
    kept = {row["at"]: row for row in store.recall(key, [])}
    step_s = _present(store.heartbeats(latest.nodes, cluster=cluster, with_ranks=True), job_id)
    if step_s is not None and latest.start_at is not None:
        kept[clock.iso_z(latest.start_at)] = {
            "at": clock.iso_z(latest.start_at),
            "nodes": list(latest.nodes),
            "step_s": step_s,
        }
        try:
            store.remember(key, list(kept.values()))
        except errors.NotPermitted:
            return [
                _stretch(row) for row in kept.values()
            ]  # an operator reads; the service's account keeps it
    return [_stretch(row) for row in kept.values()]


def _stretch(row: Mapping[str, Any]) -> swap.Stretch:
    return swap.Stretch(nodes=frozenset(row["nodes"]), step_s=float(row["step_s"]))


def _present(beats: Iterable[records.AgentHeartbeat], job_id: int) -> float | None:
    """Median over the job's ranks of what their latest window says a step takes; None where no rank says so."""
    found = []
    for beat in beats:
        for key, rank in beat.ranks.items():
            window = rank.get("window") if isinstance(rank, Mapping) else None
            if key.partition(":")[0] == str(job_id) and isinstance(window, Mapping):
                value = window.get("total_s")
                if isinstance(value, int | float) and 0 < value < 1e6:
                    found.append(float(value))
    return median(found) if found else None


def _given(text: str) -> swap.Stretch:
    listed, _, seconds = text.rpartition("=")
    try:
        step_s, nodes = float(seconds), hostlist.expand(listed)
    except (ValueError, errors.MalformedInput) as exc:
        raise errors.UsageError(f"--stretch {text!r} is not HOSTLIST=SECONDS") from exc
    if not nodes or not 0 < step_s < 1e6:
        raise errors.UsageError(f"--stretch {text!r} is not HOSTLIST=SECONDS")
    return swap.Stretch(nodes=frozenset(nodes), step_s=step_s)
