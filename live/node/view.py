"""What a collector can see of one job on its node: the ranks with their pages and processes, read once per question."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probing_cluster.core import errors
from probing_cluster.live.node import agent_client
from probing_cluster.live.table import Missing
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import guarded_reads, processes
from probing_cluster.probe_agent.ranks import page_child, pages

MAX_MISSING = 64
"""Reports of missing parts per table and node; more are counted."""


@dataclass(frozen=True, kw_only=True)
class RankProcess:
    """One training process: what its page says, and the process behind it while it lives."""

    page: pages.ProbePage
    facts: processes.ProcessFacts | None

    @property
    def alive(self) -> bool:
        """The process that made the page still runs (a recycled pid has another start time)."""
        return self.facts is not None and self.facts.state != "Z"

    @property
    def rank(self) -> int | None:
        """Its number in the job."""
        return self.page.rank

    @property
    def pid(self) -> int:
        """Its number on the node."""
        return self.page.pid


@dataclass(kw_only=True)
class NodeView:
    """One job on one node during one question."""

    job_id: int
    node: str
    uid: int
    """Whose job it is; this process runs as that user."""
    directory: Path
    """The job's page directory."""
    agent: agent_client.AgentClient
    deadline_s: float
    """By the monotonic clock: later answers are not waited for."""
    may_evaluate: bool = False
    """The owner asks, not somebody who has become the owner."""
    proc: Path = processes.PROC
    at_ns: int = field(default_factory=time.time_ns)
    missing: list[tuple[int | None, str]] = field(default_factory=list)

    def miss(self, reason: str, *, rank: int | None = None) -> None:
        """Says that something of the table is not here."""
        if len(self.missing) < MAX_MISSING:
            self.missing.append((rank, reason))

    def left_s(self) -> float:
        """Seconds until the deadline, at least a tenth."""
        return max(0.1, self.deadline_s - time.monotonic())

    def place(self, process: RankProcess) -> dict[str, Any]:
        """The first columns of a row about a process."""
        return {"node": self.node, "rank": process.rank, "pid": process.pid, "at": self.at_ns}

    def node_place(self) -> dict[str, Any]:
        """The first columns of a row about the node."""
        return {"node": self.node, "at": self.at_ns}

    @functools.cached_property
    def ranks(self) -> tuple[RankProcess, ...]:
        """The job's training processes here, dead ones included, by rank; raises Missing where there can be none."""
        try:
            answer = page_child.read_pages(str(self.directory), self.uid)
        except FileNotFoundError as exc:
            raise Missing("the job has no page directory here: its Prolog did not reach an agent") from exc
        except PermissionError as exc:
            raise Missing(f"uid {os.geteuid()} may not read the job's page directory") from exc
        if answer["refused"] or answer["more"]:
            self.miss(f"{len(answer['refused']) + answer['more']} files of the page directory are no pages")
        found = [
            RankProcess(page=page, facts=self.facts_of(page.pid, page.start_ticks))
            for page in self._pages(answer["pages"])
        ]
        return tuple(sorted(_newest(_ranks_among(found, self.proc)), key=lambda p: (p.rank or 0, p.pid)))

    @property
    def living(self) -> Iterable[RankProcess]:
        """The training processes that run."""
        return (p for p in self.ranks if p.alive)

    def _pages(self, raw: Mapping[str, str]) -> list[pages.ProbePage]:
        found, torn = [], 0
        for name, text in raw.items():
            try:
                page = pages.parse(bytes.fromhex(text))
            except errors.MalformedInput:
                torn += 1
                continue
            if name in layout.names_of(page.pid, page.pid_namespace or 0):
                found.append(page)
            else:
                torn += 1
        if torn:
            self.miss(f"{torn} pages are torn or not what their names say")
        return [replace(p, pid=self.pid_here(p.pid_inside, p.pid_namespace)) for p in found]

    def pid_here(self, pid_inside: int, namespace: int | None) -> int:
        """The number on the node of a process that knows itself by another in a PID namespace of its own; 0 where there is none."""
        if namespace in (None, self._namespace):
            return pid_inside
        return self._outside.get((namespace or 0, pid_inside), 0)

    @functools.cached_property
    def _namespace(self) -> int | None:
        return processes.namespace_of("self", self.proc)

    @functools.cached_property
    def _outside(self) -> Mapping[tuple[int, int], int]:
        search = processes.inside(self.uid, proc=self.proc)
        if search.unanswered:
            self.miss(f"{len(search.unanswered)} processes could not be asked for their PID namespace")
        return search.found

    def facts_of(self, pid: int, start_ticks: int | None) -> processes.ProcessFacts | None:
        """The process that a page or table names, which may name any: only one of this user, started when it says, counts."""
        try:
            found = processes.facts(pid, self.proc) if pid else None
        except guarded_reads.ProcessHangs:
            self.miss(f"the kernel does not answer about process {pid}: whether it runs is unknown")
            return None
        same = found is not None and found.start_ticks == start_ticks and found.uid == self.uid
        return found if same else None


def _ranks_among(found: list[RankProcess], proc: Path) -> list[RankProcess]:
    """Without helpers, and without what only starts ranks (torchrun): it has the number that Slurm gave its task, which is some rank's own."""
    above = _above(found, proc)
    pages_of = [p.page for p in found]
    kept = [i for i, page in enumerate(pages_of) if not pages.helps(page, (pages_of[j] for j in above[i]))]
    return [
        found[i]
        for i in kept
        if pages_of[i].rank is not None
        and not pages.launches(pages_of[i], (pages_of[j] for j in kept if i in above[j]))
    ]


def _above(found: list[RankProcess], proc: Path) -> list[set[int]]:
    """Of each process which of the others it descends from."""
    if len(found) < 2:
        return [set() for _ in found]
    by_pid = {p.pid: i for i, p in enumerate(found) if p.alive}
    by_number = {(p.page.pid_namespace, p.page.pid_inside): i for i, p in enumerate(found)}
    above = []
    for process in found:
        chain = processes.ancestors(process.pid, proc) if process.alive else ()
        # Of one that has ended, or whose parent has, only its own page still says whose child it was.
        parent = by_number.get((process.page.pid_namespace, process.page.parent_inside or 0))
        above.append(
            {by_pid[pid] for pid in chain if pid in by_pid} | ({parent} if parent is not None else set())
        )
    return above


def _newest(found: list[RankProcess]) -> list[RankProcess]:
    """One process per step and rank: one that lives, one that works or has worked most, the last that started; of steps that are over only the last one."""
    steps = {p.page.step_id for p in found if p.alive}
    steps.add(max((p.page.step_id for p in found if p.page.step_id is not None), default=None))
    chosen: dict[tuple[int | None, int | None], RankProcess] = {}
    for process in sorted(found, key=_likelihood):
        if process.page.step_id in steps:
            chosen[process.page.step_id, process.rank] = process
    return list(chosen.values())


def _likelihood(process: RankProcess) -> tuple[float, ...]:
    """Higher for the process that rather is the rank, of several with its number."""
    works = process.alive and process.page.works
    cpu_s = process.facts.cpu_s if process.facts is not None and not works else 0.0
    return (process.alive, works, cpu_s, process.page.start_ticks or 0)
