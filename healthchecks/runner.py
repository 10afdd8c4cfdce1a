"""The runner: every check of this node once, each isolated and timed, as `CheckResult`s.

Timing, deadlines, isolation, periods, memory and the making of results are written here, once.
Single-threaded (it forks); a process with threads uses `sweep.Sweep`.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import records, sanitize
from probing_cluster.healthchecks import (
    checkresults,
    findings,
    lanes,
    memory,
    nodeview,
    registry,
    run_check,
    site,
)
from probing_cluster.healthchecks.readers import mounts, nvml, nvml_snapshot

WATCHDOG_S = 30.0
"""A whole sweep never takes longer; Slurm kills a HealthCheckProgram at 60 s."""

NVML_DEADLINE_S = 15.0
"""Without persistence mode the first NVML call wakes every GPU, one after the other."""

MAX_MESSAGE_CHARS = 500


_SHARED = ("gpu", "mounts")
"""Lanes whose checks only judge a reading that is a step of its own: never the ones that hang."""


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """One sweep: the results of every enabled check, and what it cost."""

    results: tuple[records.CheckResult, ...]
    heartbeat: records.CheckResult
    wall_s: float
    cpu_s: float
    """Ours and that of every child and tool it started."""
    ran: int
    """Checks measured now; the others' results still stand."""


class CheckRunner:
    """Runs checks on one node and keeps their last results."""

    def __init__(
        self,
        spec: nodeview.NodeSpec,
        site_file: site.SiteFile,
        *,
        state_file: Path | None = None,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        self.spec = spec
        self.site_file = site_file
        self.watchdog_s = watchdog_s
        self.results: dict[str, records.CheckResult] = {}
        self.memory = memory.Memory(state_file, _boot_id(spec))
        self.lanes = lanes.Lanes(spec.edge)
        self._measured_s: dict[str, float] = {}
        self._recall()

    def run(self, names: Iterable[str] | None = None, *, force: bool = False) -> SweepResult:
        """Measure what is due (with `names` or `force`: at once) and return every result that stands.

        With `names`, only those are measured and returned.
        """
        began, cpu = time.monotonic(), _cpu_s()
        self._follow_boot()
        plans = {n: p for n, p in self.site_file.current().plan(self.spec.node).items() if p.enabled}
        if names is not None:
            plans = {registry.get(n).name: plans[n] for n in names if registry.get(n).name in plans}
        due = [p for n, p in plans.items() if force or names is not None or self._due(p, began)]
        self.results = {n: r for n, r in self.results.items() if names is not None or n in plans}
        answers, _ = self.lanes.run(self._lanes(due), watchdog_s=self.watchdog_s)
        for plan in due:
            if plan.check.lane != "self":
                self._take(plan, answers[plan.check.name], began)
        self._judge_self([p for p in due if p.check.lane == "self"], began)
        self._remember(plans)
        results = tuple(self.results[n] for n in plans if n in self.results)
        wall_s, cpu_s = time.monotonic() - began, _cpu_s() - cpu
        beat = self._heartbeat(results, len(due), wall_s, cpu_s)
        return SweepResult(results=results, heartbeat=beat, wall_s=wall_s, cpu_s=cpu_s, ran=len(due))

    def _follow_boot(self) -> None:
        """Forgets what was kept of another boot. On a real node a reboot ends this process; a directory can play one."""
        boot_id = _boot_id(self.spec)
        if boot_id and boot_id != self.memory.boot_id:
            self.memory = memory.Memory(self.memory.path, boot_id)
            self.results.clear()
            self._measured_s.clear()

    def learn(self, plans: Mapping[str, site.CheckPlan]) -> dict[str, lanes.StepAnswer]:
        """What the checks of `plans` would put into a site file, as genconf asks."""
        steps = [(plan.check, self._learning(plan)) for plan in plans.values()]
        return self.lanes.run([self._in_order(steps)], watchdog_s=self.watchdog_s)[0]

    def _learning(self, plan: site.CheckPlan) -> lanes.Step:
        def work(facts: lanes.Facts) -> Mapping[str, Any]:
            return run_check.teach(plan, self.spec, facts)

        return lanes.Step(key=plan.check.name, work=work, deadline_s=2 * plan.deadline_s)

    def clear(self, names: Iterable[str] | None = None) -> None:
        """A person says that what these checks (None = every one that remembers) found is repaired: only what comes after counts.

        They are measured first, so that what happened since the last sweep is repaired too.
        """
        chosen = list(self._remembering() if names is None else names)
        self.run(chosen)
        for name in (registry.get(n).name for n in chosen):
            self.memory.put(name, memory.cleared(self.memory.of(name)))
            self._measured_s.pop(name, None)
        self.memory.save()

    def _remembering(self) -> list[str]:
        """Checks that a clearing changes: those that latch, those that fail, and those that have not looked yet."""
        plans = self.site_file.current().plan(self.spec.node)
        well = (records.Outcome.OK, records.Outcome.ABSENT)
        return [
            n
            for n, p in plans.items()
            if p.enabled
            and (
                n not in self.results
                or self.results[n].outcome not in well
                or memory.latches(self.memory.of(n))
            )
        ]

    def _remember(self, plans: Mapping[str, site.CheckPlan]) -> None:
        """Write down what the next runner of this boot must know: it may be another process."""
        results = {n: r for n, r in self.results.items() if r.timed_out or (n in plans and plans[n].period_s)}
        self.memory.runner = {
            "results": [checkresults.to_json(r) for r in results.values()],
            "measured_s": {n: self._measured_s[n] for n in results if n in self._measured_s},
            "stuck": self.lanes.stuck.to_state(),
        }
        self.memory.save()

    def _recall(self) -> None:
        kept = self.memory.runner
        known = registry.load()
        try:
            results = [checkresults.from_json(row) for row in kept.get("results", [])]
            self.lanes.stuck.restore(kept.get("stuck", {}))
            measured_s = {str(n): float(s) for n, s in kept.get("measured_s", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            self.memory.problem = f"the state of the last sweep is unreadable ({type(exc).__name__})"
            return
        self.results = {r.name: r for r in results if r.name in known and known[r.name].version == r.version}
        self._measured_s = {n: s for n, s in measured_s.items() if n in self.results}

    def _due(self, plan: site.CheckPlan, now_s: float) -> bool:
        name = plan.check.name
        measured_s = self._measured_s.get(name)
        if measured_s is None or name not in self.results:
            return True
        # What failed or could not be seen is looked at in every sweep: recovery must show at once.
        unwell = self.results[name].outcome not in (records.Outcome.OK, records.Outcome.ABSENT)
        return unwell or now_s - measured_s >= plan.period_s

    def _lanes(self, due: list[site.CheckPlan]) -> list[list[lanes.Step]]:
        """One child for all that went well last time; what timed out last time runs apart, and delays nobody."""
        apart: dict[str, list[tuple[registry.Check, lanes.Step]]] = {}
        for plan in due:
            check = plan.check
            if check.lane != "self":
                group = check.lane if check.lane in _SHARED else check.name
                apart.setdefault(group if group in self._suspects() else "", []).append(
                    (check, self._step(plan))
                )
        return [self._in_order(steps) for steps in apart.values()]

    def _suspects(self) -> set[str]:
        slow = (registry.get(n) for n, r in self.results.items() if r.timed_out)
        return {check.lane if check.lane in _SHARED else check.name for check in slow}

    def _in_order(self, steps: list[tuple[registry.Check, lanes.Step]]) -> list[lanes.Step]:
        """What cannot hang first; the readings that checks share just before those checks."""
        chain: list[lanes.Step] = []
        for name in registry.LANES:
            mine = [step for check, step in steps if check.lane == name]
            if mine and name == "gpu":
                chain.append(self._nvml_step())
            if mine and name == "mounts":
                chain += mounts.steps(self.spec)
            chain += mine
        return chain

    def _nvml_step(self) -> lanes.Step:
        def work(_: lanes.Facts) -> Mapping[str, Any]:
            return nvml.to_json(nvml_snapshot.read_here(self.spec.nvml_library))

        return lanes.Step(key="nvml", work=work, deadline_s=NVML_DEADLINE_S, fact=True)

    def _step(self, plan: site.CheckPlan) -> lanes.Step:
        kept = self.memory.of(plan.check.name)

        def work(facts: lanes.Facts) -> Mapping[str, Any]:
            return run_check.look(plan, self.spec, kept, facts)

        return lanes.Step(key=plan.check.name, work=work, deadline_s=plan.deadline_s)

    def _take(self, plan: site.CheckPlan, answer: lanes.StepAnswer, now_s: float) -> None:
        name = plan.check.name
        self._measured_s[name] = now_s
        if answer.value is None:
            found = findings.unseen(str(answer.error), timed_out=answer.timed_out)
        else:
            found = run_check.finding(answer.value["finding"])
            self.memory.put(name, answer.value["memory"])
        self.results[name] = self.result(plan, found, answer.duration_s)

    def _judge_self(self, due: list[site.CheckPlan], now_s: float) -> None:
        now = self.spec.clock.now()
        state = {
            **self.spec.self_state,
            "stuck": [
                {
                    "what": family,
                    "pid": s.identity.pid,
                    "age_s": round(max(0.0, self.spec.clock.monotonic_s() - s.since_s), 1),
                    "waits_in": s.waits_in,
                }
                for family, s in self.lanes.stuck.items()
            ],
            "site_problem": self.site_file.problem,
            "memory_problem": self.memory.problem,
            "errors": sorted(n for n, r in self.results.items() if r.outcome is records.Outcome.ERROR),
            "now": now.isoformat(),
        }
        for plan in due:
            spec = dataclasses.replace(self.spec, self_state=state)
            self._take(
                plan, lanes.StepAnswer(key=plan.check.name, value=run_check.look(plan, spec, {}, {})), now_s
            )

    def result(self, plan: site.CheckPlan, found: findings.Finding, duration_s: float) -> records.CheckResult:
        """The record of one finding. `severity` is how bad a failure of it is here, lowered by the finding's own."""
        severity = plan.severity
        if found.severity is not None:
            severity = findings.least(severity, found.severity)
        return records.CheckResult(
            cluster=self.spec.cluster,
            node=self.spec.node,
            name=plan.check.name,
            outcome=found.outcome,
            severity=severity,
            message=sanitize.clean(found.message, MAX_MESSAGE_CHARS),
            device=found.device,
            measured=found.measured,
            threshold=found.threshold,
            unit=found.unit,
            duration_s=round(duration_s, 6),
            timed_out=found.timed_out,
            version=plan.check.version,
            at=self.spec.clock.now(),
            detail=dict(found.detail),
        )

    def _heartbeat(
        self, results: tuple[records.CheckResult, ...], ran: int, wall_s: float, cpu_s: float
    ) -> records.CheckResult:
        counts = {o.value: sum(r.outcome is o for r in results) for o in records.Outcome}
        summary = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        worst = next((o for o in _WORST_FIRST if counts[o.value]), records.Outcome.ABSENT)
        return records.CheckResult(
            cluster=self.spec.cluster,
            node=self.spec.node,
            name="sweep",
            outcome=worst,
            severity=records.Severity.INFO,
            message=f"{findings.plural(len(results), 'check')}: {summary}",
            duration_s=round(wall_s, 6),
            at=self.spec.clock.now(),
            detail={**counts, "ran": ran, "cpu_s": round(cpu_s, 4), "stuck": len(self.lanes.stuck)},
        )


_WORST_FIRST = (records.Outcome.FAIL, records.Outcome.ERROR, records.Outcome.WARN, records.Outcome.OK)


def _boot_id(spec: nodeview.NodeSpec) -> str:
    return nodeview.NodeView(spec).text("/proc/sys/kernel/random/boot_id") or ""


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def local_node() -> str:
    """The Slurm node name of this machine: $SLURMD_NODENAME, else the short host name."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
