"""The campaign's stories on one fleet: thousands of labelled jobs on 2,000 nodes, through the database and the service's own pass.

    python -m benchmarks.campaign.fleet [--stories 2000] [--nodes 2000] [--noise 100000] [--seed N]

The replay judges each story by itself. Here they share nodes one after another: what a story leaves behind on a node (old and
later faults, noise, others' GPUs) lies beside the next one's. Attempts, events and heartbeats go into a real Postgres, with the noise
of a large fleet (`benchmarks.attribution.generate`) under them, and every four hours what ended is judged as `probing-ctl serve` does it.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.attribution import generate
from benchmarks.campaign import replay, score, story
from probing_cluster.attribution.passes import attribute
from probing_cluster.core import records
from probing_cluster.db import bulk, migrate, rows, store, tables
from probing_cluster.db.server import embedded
from probing_cluster.db.store import base as store_base

SEED = 20261127
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
TICK = timedelta(hours=4)
IDLE = 100
"""Nodes that run nothing, and on which the faults happen that strike nobody."""
GAP = timedelta(seconds=5000)
"""Between two jobs of a node: stories tell of faults up to 4,000 s after their end, which a real node would be repaired of first."""


@dataclasses.dataclass
class _Clock:
    at: datetime

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return time.monotonic()


def placed(n: int, n_nodes: int, seed: int) -> list[story.Story]:
    """The stories on nodes of one fleet, none of them overlapping on a node, by end."""
    rng = random.Random(f"fleet:{seed}")
    free = [(BEGIN + timedelta(seconds=rng.uniform(0, 40_000)), f"gpu{i:04d}") for i in range(n_nodes)]
    heapq.heapify(free)
    stories = []
    for one in replay.stories(range(n), seed):
        mine = {old: heapq.heappop(free) for old in one.nodes}
        one.end_at = max(at for at, _ in mine.values()) + GAP + timedelta(seconds=round(one.ran_s))
        _clip(one, {old: at for old, (at, _) in mine.items()})
        _move(one, {old: name for old, (_, name) in mine.items()})
        for _, name in mine.values():
            heapq.heappush(free, (one.end_at + GAP, name))
        stories.append(one)
    return sorted(stories, key=lambda s: (s.end_at, s.number))


def _clip(the_story: story.Story, since: dict[str, datetime]) -> None:
    """Faults of a time when another job had the node would be that one's, and its label wrong: they are left out.

    What stood since before began at the earliest when the node became free.
    """

    def after_others(node: str, before_s: float) -> bool:
        return node not in since or the_story.end_at - timedelta(seconds=before_s) >= since[node]

    def reach_s(node: str, before_s: float) -> float:
        return min(before_s, (the_story.end_at - since[node]).total_seconds()) if node in since else before_s

    the_story.lines = [x for x in the_story.lines if after_others(x.node, x.before_s)]
    the_story.readings = [r for r in the_story.readings if after_others(r.node, r.before_s)]
    the_story.active_faults = [
        dataclasses.replace(r, before_s=reach_s(r.node, r.before_s)) for r in the_story.active_faults
    ]


def _move(the_story: story.Story, names: dict[str, str]) -> None:
    """Gives the story's nodes these names; a node that it mentions and does not run on becomes an idle one."""

    def node(name: str) -> str:
        if name not in names:
            names[name] = f"idle{the_story.rng.randrange(IDLE):03d}"
        return names[name]

    def text(line: str) -> str:
        for old, new in names.items():
            line = line.replace(old, new)
        return line

    the_story.nodes = [node(n) for n in the_story.nodes]
    the_story.lines = [dataclasses.replace(x, node=node(x.node)) for x in the_story.lines]
    the_story.readings = [dataclasses.replace(r, node=node(r.node)) for r in the_story.readings]
    the_story.active_faults = [dataclasses.replace(r, node=node(r.node)) for r in the_story.active_faults]
    the_story.silent = {node(n): s for n, s in the_story.silent.items()}
    the_story.failed_node = the_story.failed_node and node(the_story.failed_node)
    the_story.broken = the_story.broken and node(the_story.broken)
    the_story.lines = [dataclasses.replace(x, text=text(x.text)) for x in the_story.lines]
    the_story.log = [text(line) for line in the_story.log]


def attempts_of(the_story: story.Story) -> list[records.JobAttempt]:
    """The job, and on a shared node the neighbour that has the other GPUs."""
    mine = replay.attempt_of(the_story, live=True)
    if not the_story.shape.shared:
        return [mine]
    others = tuple(story.gpu_uuid(the_story.nodes[0], g) for g in range(8) if g not in the_story.held)
    beside = dataclasses.replace(
        mine,
        job_id=1_000_000 + the_story.number,
        state="COMPLETED",
        exit_code=0,
        exit_signal=0,
        end_at=the_story.end_at + timedelta(hours=1),
        n_gpus=len(others),
        gpus={the_story.nodes[0]: others},
        user="zoe",
        cancelled_by=None,
    )
    return [mine, beside]


def events_of(the_story: story.Story) -> Iterator[records.HealthEvent]:
    """All events of the story; a node with a hard fault is mended and restarted before the next job gets it."""
    attempt = replay.attempt_of(the_story, live=True)
    stood = list(replay.readings(the_story, the_story.active_faults))
    found = [*stood, *replay.events_of(the_story, attempt, "live")]
    for number, event in enumerate(found):
        # One node's numbers begin anew with every story: the story's own makes them one node's again.
        position = f"{the_story.number}:{number}"
        yield dataclasses.replace(
            event, event_id=records.make_event_id(replay.CLUSTER, event.node, event.source, position)
        )
    for node in sorted({e.node for e in found if e.severity is records.Severity.HIGH}):
        at = the_story.end_at + GAP - timedelta(seconds=1)
        yield records.HealthEvent(
            event_id=records.make_event_id(replay.CLUSTER, node, "kernel", f"{the_story.number}:boot"),
            cluster=replay.CLUSTER, node=node, at=at, observed_at=at, kind="node_boot", severity=records.Severity.INFO,
            source="kernel", message="restarted",
        )  # fmt: skip


def noise(n: int, n_nodes: int, until: datetime, seed: int) -> Iterator[records.HealthEvent]:
    """What the logs of a large fleet are full of: the sorts and shares of the scale benchmark."""
    rng = random.Random(f"noise:{seed}")
    span_s = (until - BEGIN).total_seconds()
    for sort in rng.choices(generate.SORTS, [s[4] for s in generate.SORTS], k=n):
        kind, code, severity, source, _, _ = sort
        at, node, gpu = (
            BEGIN + timedelta(seconds=rng.uniform(0, span_s)),
            f"gpu{rng.randrange(n_nodes):04d}",
            rng.randrange(8),
        )
        yield records.HealthEvent(
            event_id=uuid.UUID(int=rng.getrandbits(128)), cluster=replay.CLUSTER, node=node, at=at, observed_at=at, kind=kind,
            code=code, severity=records.Severity(severity), device=f"gpu{gpu}", gpu_uuid=story.gpu_uuid(node, gpu), source=source,
            message="",
        )  # fmt: skip


def run(stories: list[story.Story], n_nodes: int, n_noise: int, seed: int) -> list[score.Judged]:
    """The stories judged as they end, beside their labels."""
    home = Path(tempfile.mkdtemp(prefix="probing-campaign-pg-"))
    home.chmod(0o755)
    try:
        url = embedded.ensure(home)
        migrate.upgrade(url)
        with store.Store.open(url) as opened:
            return _judged(opened, stories, n_nodes, n_noise, seed)
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _judged(
    opened: store.Store, stories: list[story.Story], n_nodes: int, n_noise: int, seed: int
) -> list[score.Judged]:
    last = stories[-1].end_at + 2 * TICK
    bulk.load_events(opened.url, noise(n_noise, n_nodes, last, seed))
    _beat(opened, {f"gpu{i:04d}": last for i in range(n_nodes)})
    by_job = {t.job_id: t for t in stories}
    found: list[score.Judged] = []
    now, waiting = BEGIN, list(reversed(stories))
    while waiting:
        now += TICK
        ended: list[story.Story] = []
        while waiting and waiting[-1].end_at + GAP <= now:
            ended.append(waiting.pop())
        if not ended:
            continue
        opened.upsert_attempts(a for t in ended for a in attempts_of(t))
        bulk.load_events(opened.url, (e for t in ended for e in events_of(t)))
        silent = {n: t.end_at - timedelta(seconds=s) for t in ended for n, s in t.silent.items()}
        _beat(opened, silent)
        done = attribute.attribute(opened, at=_Clock(now))
        _beat(opened, dict.fromkeys(silent, last))
        found += [replay.scored(by_job[v.job_id], v, "fleet") for v in done.verdicts if v.job_id in by_job]
    return _last_word(found)


def _last_word(found: list[score.Judged]) -> list[score.Judged]:
    """A story judged again, because its node went on telling, counts once: with its latest verdict."""
    return list({c.note.split(" ", 1)[0]: c for c in found}.values())


def _beat(opened: store.Store, last_signs: dict[str, datetime]) -> None:
    if last_signs:
        beats = [
            rows.to_row(records.AgentHeartbeat(cluster=replay.CLUSTER, node=n, at=at))
            for n, at in last_signs.items()
        ]
        with opened.engine.begin() as connection:
            connection.execute(store_base.upsert(tables.agent_heartbeat), beats)


def main() -> int:
    """Tell, judge, score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stories", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--noise", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    stories = placed(given.stories, given.nodes, given.seed)
    days = (stories[-1].end_at - BEGIN).total_seconds() / 86400
    print(
        f"{len(stories)} stories on {given.nodes} nodes over {days:.1f} days, {given.noise} events of noise",
        flush=True,
    )
    began = time.process_time()
    cases = run(stories, given.nodes, given.noise, given.seed)
    print(f"{len(cases)} judged, {time.process_time() - began:.0f} CPU s")
    print(score.text(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
