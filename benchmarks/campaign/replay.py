"""Replayed cases: kernel lines and job logs as text, through classification and attribution as they are."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent import futures
from datetime import timedelta
from pathlib import Path

from benchmarks.campaign import bugs, faults, noise, score, story
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge
from probing_cluster.control_plane.imports import joblog as import_joblog
from probing_cluster.control_plane.imports import kernel as import_kernel
from probing_cluster.core import records, sanitize
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import gpus, sighting
from probing_cluster.probe_agent.jobs import collect_words
from probing_cluster.probe_agent.sources import kernel_words

CLUSTER = "campaign"
__all__ = ["bugs", "faults", "judged", "make", "run", "stories"]


CHUNK = 50
"""Cases a process takes at once."""
FILES_SHARE = 0.25
"""Of the cases, those read from files as `import` does; the others as agents deliver them."""


def stories(numbers: Iterable[int], seed: int) -> Iterator[story.Story]:
    """These cases: nearly half program bugs, so that a false accusation shows; every second one with noise."""
    names = {
        g: sorted(k for k, v in story.KINDS.items() if v.group == g)
        for g in ("fault", "bug", "scheduler", "silent")
    }
    for number in numbers:
        rng = random.Random(f"{seed}:{number}")
        group = rng.choices(["fault", "bug", "scheduler", "silent"], [0.45, 0.45, 0.07, 0.03])[0]
        yield make(rng.choice(names[group]), rng, number, noisy=number % 2 == 0)


def run(n: int, seed: int) -> Iterator[score.Judged]:
    """The first `n` cases of a seed, judged on every core, in order."""
    firsts = range(0, n, CHUNK)
    with futures.ProcessPoolExecutor() as pool:
        for chunk in pool.map(
            _chunk, firsts, [min(n, first + CHUNK) for first in firsts], [seed] * len(firsts)
        ):
            yield from chunk


def _chunk(first: int, until: int, seed: int) -> list[score.Judged]:
    of_chunk = stories(range(first, until), seed)
    return [judged(t, "files" if t.rng.random() < FILES_SHARE else "live") for t in of_chunk]


def make(name: str, rng: random.Random, number: int, *, noisy: bool) -> story.Story:
    """One case of this kind."""
    wanted = story.KINDS[name]
    shapes = [
        s for s in story.SHAPES if s.nodes >= wanted.least_nodes and (s.gpus == 8 or not wanted.whole_nodes)
    ]
    the_story = story.Story(rng=rng, shape=rng.choice(shapes), number=number, kind=name)
    wanted.write(the_story)
    if noisy:
        noise.add(the_story)
    return the_story


def judged(the_story: story.Story, path: str) -> score.Judged:
    """The verdict on a story; `path` is live or files."""
    attempt = attempt_of(the_story, live=path == "live")
    last = attempt.end_at
    assert last is not None
    last_signs = {n: last - timedelta(seconds=the_story.silent.get(n, -20.0)) for n in the_story.nodes}
    case = cases.Case(
        attempt=attempt,
        events=tuple(events_of(the_story, attempt, path)),
        active_faults=tuple(readings(the_story, the_story.active_faults)),
        shared={the_story.nodes[0]: ((attempt.submit_at, None),)} if the_story.shape.shared else {},
        watched=last_signs,
    )
    verdict = judge.judge(case, made_at=last + timedelta(minutes=6))
    assert verdict is not None
    return scored(the_story, verdict, path)


def events_of(
    the_story: story.Story, attempt: records.JobAttempt, path: str
) -> Iterator[records.HealthEvent]:
    """The story's events, without its standing readings."""
    yield from kernel_events(the_story, path)
    yield from readings(the_story, the_story.readings)
    yield from log_events(the_story, attempt, path)
    if path == "live":
        yield from silences(the_story)


def silences(the_story: story.Story) -> Iterator[records.HealthEvent]:
    """What the service writes of agents that it no longer hears."""
    for node, before_s in the_story.silent.items():
        at = the_story.end_at - timedelta(seconds=before_s)
        yield records.HealthEvent(
            event_id=records.make_event_id(CLUSTER, node, "agent", f"silent:{at.timestamp():.6f}"),
            cluster=CLUSTER, node=node, at=at, observed_at=the_story.end_at, kind="agent_silent",
            severity=records.Severity.INFO, source="agent", message="the agent has not been heard",
        )  # fmt: skip


def scored(the_story: story.Story, verdict: records.Verdict, path: str) -> score.Judged:
    """The verdict beside the label."""
    broken = broken_node(the_story)
    return score.Judged(
        kind=the_story.kind,
        group=story.KINDS[the_story.kind].group,
        shape=the_story.shape.name,
        noisy=bool(the_story.noise),
        path=path,
        causes=the_story.causes,
        domain=the_story.domain,
        verdict_cause=verdict.cause,
        verdict_domain=verdict.domain,
        confidence=verdict.confidence,
        node_right=None if broken is None or verdict.node is None else verdict.node == broken,
        note=f"#{the_story.number} {the_story.state} {the_story.exit_code} noise={','.join(the_story.noise)}: {verdict.summary} | {'; '.join(verdict.ruled_out[:3])}",
    )


def broken_node(the_story: story.Story) -> str | None:
    """The node at fault; None where it is nobody's or many."""
    return the_story.broken


def attempt_of(the_story: story.Story, *, live: bool) -> records.JobAttempt:
    """The attempt as accounting records it; a live one has its GPUs from the Prolog."""
    start = the_story.end_at - timedelta(seconds=the_story.ran_s)
    held = {n: tuple(story.gpu_uuid(n, g) for g in the_story.held) for n in the_story.nodes}
    return records.JobAttempt(
        cluster=CLUSTER,
        job_id=the_story.job_id,
        submit_at=start - timedelta(seconds=90),
        eligible_at=start - timedelta(seconds=90),
        start_at=start,
        end_at=the_story.end_at,
        state=the_story.state,
        exit_code=the_story.exit_code,
        exit_signal=the_story.exit_signal,
        reason=the_story.reason,
        failed_node=the_story.failed_node,
        cancelled_by=the_story.cancelled_by,
        nodes=tuple(the_story.nodes),
        n_gpus=the_story.ranks,
        gpus=held if live else None,
        user=the_story.user,
        partition="gpu",
        time_limit_s=the_story.time_limit_s,
        work_dir="/scratch/u" if the_story.number % 3 == 0 else "/home/u/proj",
    )


def inventory(node: str) -> gpus.Inventory:
    """The GPUs the node's agent knows."""
    return gpus.Inventory(
        gpus=tuple(
            gpus.Gpu(uuid=story.gpu_uuid(node, i), index=i, minor=i, pci_bus_id=story.pci(i))
            for i in range(8)
        )
    )


def kernel_events(the_story: story.Story, path: str) -> Iterator[records.HealthEvent]:
    """Each node's lines in order, through the agent's reader or the file import's."""
    for node in sorted({line.node for line in the_story.lines}):
        mine = sorted(
            (line for line in the_story.lines if line.node == node), key=lambda line: -line.before_s
        )
        if path == "live":
            yield from _agent(the_story, node, mine)
            continue
        place = import_kernel.FilePlace(
            file="kern.log",
            node=node,
            cluster=CLUSTER,
            read_at=the_story.end_at + timedelta(days=1),
            reference=the_story.end_at,
        )
        text = [
            f"{(the_story.end_at - timedelta(seconds=x.before_s)).isoformat(timespec='microseconds')} {node} kernel: {x.text}\n".encode()
            for x in mine
        ]
        yield from import_kernel.read(text, place).events


def _agent(the_story: story.Story, node: str, lines: list[story.Line]) -> Iterator[records.HealthEvent]:
    reader, node_identity, known = (
        kernel_words.KernelWords(),
        identity.Identity(cluster=CLUSTER, node=node, root=Path("/")),
        inventory(node),
    )
    for number, line in enumerate(lines):
        at = the_story.end_at - timedelta(seconds=line.before_s)
        if line.before_s < the_story.silent.get(node, -1e9) and node in the_story.silent:
            return  # nobody reads any more
        found = reader(line.text, at.timestamp())
        if found is None:
            continue
        the_sighting = sighting.Sighting(
            source="kernel", position=f"boot:{number}", at=at, kind=found.kind, code=found.code, severity=found.severity,
            message=found.message, device=found.device, pci_bus_id=found.pci_bus_id, pid=found.pid, process=found.process,
            job_id=found.job_id, detail=found.detail,
        )  # fmt: skip
        yield sighting.to_event(the_sighting, identity=node_identity, inventory=known, observed_at=at)


def readings(the_story: story.Story, found: list[story.Reading]) -> Iterator[records.HealthEvent]:
    """What the agents' other sources saw."""
    for number, r in enumerate(found):
        at = the_story.end_at - timedelta(seconds=r.before_s)
        the_sighting = sighting.Sighting(
            source=r.source, position=f"boot:{r.kind}:{number}", at=at, kind=r.kind, code=r.code, severity=r.severity,
            message=f"{r.device} {r.code}", device=r.device, gpu_uuid=None if r.gpu is None else story.gpu_uuid(r.node, r.gpu),
            detail={"recovered": True} if r.recovered else {},
        )  # fmt: skip
        yield sighting.to_event(
            the_sighting,
            identity=identity.Identity(cluster=CLUSTER, node=r.node, root=Path("/")),
            inventory=inventory(r.node),
            observed_at=at,
        )


def log_events(the_story: story.Story, attempt: records.JobAttempt, path: str) -> list[records.HealthEvent]:
    """The job's log through the agent's collecting child or the file import."""
    if not the_story.has_log or not the_story.log:
        return []
    if path == "files":
        return import_joblog.read(
            [f"{x}\n".encode() for x in the_story.log], attempt, the_story.end_at + timedelta(days=1)
        )
    rows = collect_words.log_findings("\n".join(the_story.log).encode(), 0)
    at = the_story.end_at + timedelta(seconds=the_story.rng.uniform(0.2, 4))
    node = the_story.nodes[0]
    return [
        records.HealthEvent(
            event_id=records.make_event_id(CLUSTER, node, "joblog", f"{the_story.job_id}:{r['offset']}:{r['kind']}"),
            cluster=CLUSTER, node=node, at=at, observed_at=at, kind=r["kind"], severity=records.Severity.INFO, job_id=the_story.job_id,
            source="joblog", message=sanitize.clean(r["message"]), pid=r["pid"], detail={**r["detail"], "restart_count": 0},
        )
        for r in rows
    ]  # fmt: skip
