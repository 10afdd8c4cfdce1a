"""Real cases: real jobs on a real Slurm cluster, simulated hardware that really breaks, agents that really look."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.campaign import real_kinds, score, story
from probing_cluster.core import records, settings
from probing_cluster.db import store
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import commands, scratch
from probing_cluster.sandbox.nodetree import build

GROUPS = (
    ("n1",),
    ("n2",),
    ("n3",),
    ("n4",),
    ("n5",),
    ("n6",),
    ("n7",),
    ("n8",),
    ("n9", "n10"),
    ("n11", "n12"),
)
"""Nodes that work in turn, each group by itself."""
_ACTING = "observe_only = false"


@dataclass(kw_only=True)
class Ran:
    """One job as it was run."""

    job_id: int
    kind: real_kinds.RealKind
    nodes: tuple[str, ...]
    gpus: int
    noise: list[str] = field(default_factory=list)
    broken: str | None = None


class _Watch(threading.Thread):
    """One squeue for everybody."""

    def __init__(self, box: cluster.Sandbox) -> None:
        super().__init__(daemon=True)
        self._box, self._states, self.stop = box, dict[int, str](), threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.5):
            done = self._box.run(["squeue", "-h", "--states=all", "-o", "%A %T"], check=False)
            rows = [line.split() for line in done.stdout.splitlines()]
            self._states = {int(r[0]): r[1] for r in rows if len(r) == 2}

    def wait(self, job_id: int, states: set[str], timeout_s: float) -> str:
        """The job's state as soon as it is one of these; raises CommandFailed."""
        deadline = time.monotonic() + timeout_s
        while (now := self._states.get(job_id, "")) not in states:
            if time.monotonic() > deadline:
                raise commands.CommandFailed(f"job {job_id} is {now or 'unknown'}, not {sorted(states)}")
            time.sleep(0.2)
        return now


class Campaign:
    """Runs jobs until it has enough or the time is up."""

    def __init__(
        self, box: cluster.Sandbox, jobs: int, seed: int, minutes: float, announce: Callable[[str], None]
    ) -> None:
        self._box, self._announce = box, announce
        self._todo = iter(_plan(jobs, seed))
        self._lock = threading.Lock()
        self._until = time.monotonic() + minutes * 60
        self._watch = _Watch(box)
        self.ran: list[Ran] = []
        self.failed: list[str] = []

    def run(self) -> None:
        """Every group works at once."""
        self._watch.start()
        with futures.ThreadPoolExecutor(len(GROUPS)) as pool:
            for done in [pool.submit(self._work, group) for group in GROUPS]:
                done.result()
        self._watch.stop.set()

    def _work(self, nodes: tuple[str, ...]) -> None:
        while time.monotonic() < self._until:
            with self._lock:
                chosen = next(self._todo, None)
            if chosen is None:
                return
            number, rng = chosen
            kind = real_kinds.choose(rng, n_nodes=len(nodes))
            try:
                ran = self._one(number, rng, kind, nodes)
            except (commands.CommandFailed, OSError) as exc:
                self.failed.append(f"{kind.name} on {nodes}: {exc}")
                self._announce(f"case {number}: {self.failed[-1]}")
            else:
                self.ran.append(ran)
                if len(self.ran) % 20 == 0:
                    self._announce(f"{len(self.ran)} jobs have run")
            self._repair(nodes, kind)

    def _one(self, number: int, rng: random.Random, kind: real_kinds.RealKind, nodes: tuple[str, ...]) -> Ran:
        the_story = story.Story(
            rng=rng, shape=story.Shape(name="", nodes=len(nodes), gpus=8), number=number, ran_s=100_000.0
        )
        the_story.nodes, the_story.held = list(nodes), tuple(range(8))
        gpus = rng.choice([1, 8]) if len(nodes) == 1 and not kind.whole_nodes else 8
        jobs = self._box.layout.jobs
        go, tail = jobs / f"go-{number}", jobs / f"tail-{number}"
        kind.write_story(the_story)
        # Who waits for a node that is gone does so until Slurm gives it up.
        end = kind.end or ("sleep 600" if kind.crashes else f"exit {the_story.exit_code or 1}")
        tail.write_text("\n".join(the_story.log) + "\n" if the_story.log else "")
        script = f"echo step 1; echo step 2\nuntil [ -e {go} ]; do sleep 0.2; done\ncat {tail}\n{end}"
        job_id = self._box.submit(
            script,
            nodes=len(nodes),
            nodelist=",".join(nodes),
            gres=f"gpu:{gpus}",
            job_name=f"case-{number}",
            no_requeue=True,
        )
        ran = Ran(job_id=job_id, kind=kind, nodes=nodes, gpus=gpus)
        self._watch.wait(job_id, {"RUNNING"}, 90)
        place = real_kinds.Place(box=self._box, nodes=nodes, gpu=self._gpu(nodes[0]), job_id=job_id, rng=rng)
        if rng.random() < 0.5:
            ran.noise = real_kinds.add_noise(place, gpus=gpus)
        ran.broken = kind.breaks(place)
        time.sleep(rng.uniform(0.5, 2.5))
        go.touch()
        ended = {"FAILED", "COMPLETED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED", "BOOT_FAIL"}
        self._watch.wait(job_id, ended, 150 if kind.crashes else 60)
        return ran

    def _gpu(self, node: str) -> int:
        """NVML's index of the GPU that Slurm gives out first."""
        return self._box.gpu_of_slurm(node, 0).index

    def _repair(self, nodes: Sequence[str], kind: real_kinds.RealKind) -> None:
        time.sleep(3)  # the Epilog's collection
        for node in nodes:
            if kind.crashes:
                self._box.fault(node, "node-reboot")
            elif kind.reboot:  # the node as new, with a boot of its own, while Slurm thinks nothing of it
                lay = self._box.layout
                build.reboot(lay.node(node), node, number=lay.node_names.index(node) + 1, gpus=lay.gpus)
            else:
                self._box.fault(node, "heal")
        time.sleep(2.5)
        if kind.crashes:
            for node in nodes:
                self._box.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)


def _plan(jobs: int, seed: int) -> Iterator[tuple[int, random.Random]]:
    for number in range(jobs):
        yield number, random.Random(f"real:{seed}:{number}")


def run(
    jobs: int, seed: int, minutes: float, announce: Callable[[str], None]
) -> tuple[list[score.Judged], list[str]]:
    """Every judged case, and what could not be run."""
    with (
        scratch.directory("probing-campaign-") as where,
        cluster.Sandbox.up(where / "s", nodes=sum(map(len, GROUPS)), gpus=8, announce=announce) as box,
    ):
        _observe_only(box)
        campaign = Campaign(box, jobs, seed, minutes, announce)
        campaign.run()
        return _judged(box, campaign.ran, announce), campaign.failed


def _observe_only(box: cluster.Sandbox) -> None:
    """The verdicts are measured here, not the policy: a requeued job would wait for its broken node."""
    path: Path = box.layout.probing_toml
    path.write_text(path.read_text().replace(_ACTING, "observe_only = true"))
    box.fault("-", "service-crash")
    box.fault("-", "service-start")


def _judged(box: cluster.Sandbox, ran: Sequence[Ran], announce: Callable[[str], None]) -> list[score.Judged]:
    with store.Store.open(settings.load(box.layout.probing_toml)) as database:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            verdicts = {v.job_id: v for v in database.verdicts(job_ids=[r.job_id for r in ran])}
            if len(verdicts) == len(ran):
                break
            time.sleep(2)
        announce(f"{len(verdicts)} of {len(ran)} jobs have a verdict")
        time.sleep(10)  # late evidence re-opens
        verdicts = {v.job_id: v for v in database.verdicts(job_ids=[r.job_id for r in ran])}
    return [_score(r, verdicts.get(r.job_id)) for r in ran]


def _score(ran: Ran, verdict: records.Verdict | None) -> score.Judged:
    shape = f"{len(ran.nodes)} x {ran.gpus}"
    if verdict is None:
        return score.Judged(
            kind=ran.kind.name, group=ran.kind.group, shape=shape, noisy=bool(ran.noise), path="real", causes=ran.kind.causes, domain=ran.kind.domain,
            verdict_cause="(no verdict)", verdict_domain=records.Domain.UNKNOWN, confidence=records.Confidence.UNKNOWN, note=f"job {ran.job_id}",
        )  # fmt: skip
    named = verdict.node is not None and ran.broken is not None
    return score.Judged(
        kind=ran.kind.name, group=ran.kind.group, shape=shape, noisy=bool(ran.noise), path="real", causes=ran.kind.causes, domain=ran.kind.domain,
        verdict_cause=verdict.cause, verdict_domain=verdict.domain, confidence=verdict.confidence, node_right=verdict.node == ran.broken if named else None,
        note=f"job {ran.job_id} on {','.join(ran.nodes)} noise={','.join(ran.noise)}: {verdict.summary} | {'; '.join(verdict.ruled_out[:3])}",
    )  # fmt: skip
