"""A node's directory read in place, and a source read and judged again and again as the agent does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import clock as clocks
from probing_cluster.core import processes
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.faults import conditions
from probing_cluster.probe_agent.sources import file_child, polled


class DirectReach:
    """Reads the directory in this process; tools and NVML answer what the test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: dict[str, children.Finished] = {}
        self.silent: set[str] = set()
        self.failing: dict[str, str] = {}
        self.reads: list[str] = []

    async def files(
        self, patterns: Sequence[str], links: Sequence[str] = (), skip: Sequence[str] = ()
    ) -> Any:
        found = file_child.read(str(self.root), list(patterns), list(links), list(skip))
        for path, why in self.failing.items():
            if found["files"].pop(path, None) is not None:
                found["errors"][path] = why
        self.reads += [*found["files"], *found["errors"]]
        return json.loads(json.dumps(found))

    async def touch(self, path: str, *, remote: bool) -> Mapping[str, Any]:
        del remote
        if path in self.silent:
            raise children.ChildHung(f"mount {path}: no answer")
        return file_child.touch(str(self.root), path)

    async def command(self, name: str, *args: str) -> children.Finished | None:
        del args
        return self.commands.get(name)

    async def nvml(self, *, links: bool) -> Mapping[str, Any]:
        raise processes.ChildFailed("no NVML in this test")

    async def amdsmi(self) -> Mapping[str, Any]:
        raise processes.ChildFailed("no AMD SMI in this test")

    def answer(self, name: str, text: str, returncode: int = 0) -> None:
        self.commands[name] = children.Finished(returncode=returncode, stdout=text.encode(), stderr=b"")


class Watched:
    """One source on one node: every `look` is one reading with the memory of the last."""

    def __init__(self, source: polled.Polled, node_identity: identity.Identity, clock: Any) -> None:
        self.source = source
        self.reader = DirectReach(node_identity.root)
        self.memory: Mapping[str, Any] = {}
        self.clock = clock
        self.context = polled.PollContext(
            now=clock.now(), boot_id=node_identity.boot_id(), uptime_s=100_000.0
        )

    def look(self, times: int = 1, *, every_s: float = 10.0, **changed: Any) -> conditions.Judgement:
        judged = conditions.Judgement()
        for _ in range(times):
            self.clock.move(every_s)
            context = replace(self.context, now=self.clock.now(), **changed)
            raw = asyncio.run(self.source.read(self.reader, self.memory, context))
            judged = self.source.judge(raw, self.memory, context)
            self.memory = json.loads(json.dumps(judged.memory))
            if judged.inventory is not None:
                self.context = replace(self.context, inventory=judged.inventory)
        return judged

    def reboot(self, boot_id: str = "another-boot", uptime_s: float = 30.0) -> None:
        self.context = replace(self.context, boot_id=boot_id, uptime_s=uptime_s)


Watch = Callable[[polled.Polled], Watched]


@pytest.fixture
def watch(node_identity: identity.Identity, clock: clocks.Clock) -> Watch:
    """Watches one source on the healthy simulated node."""
    return lambda source: Watched(source, node_identity, clock)


@pytest.fixture
def bare(tmp_path: Path) -> identity.Identity:
    """A node with nothing: no GPU, no HCA, no mount table."""
    (tmp_path / "bare").mkdir()
    return identity.Identity(cluster="c", node="n1", root=tmp_path / "bare")


def codes(judged: conditions.Judgement) -> list[tuple[str, str | None, str, str]]:
    return [(c.kind, c.code, c.device, str(c.severity)) for c in judged.present]


def edges(judged: conditions.Judgement) -> list[tuple[str, str | None, str, str]]:
    return [(e.what.kind, e.what.code, e.what.device, str(e.what.severity)) for e in judged.edges]


@pytest.fixture
def present() -> Callable[[conditions.Judgement], list[tuple[str, str | None, str, str]]]:
    """(kind, code, device, severity) of what stands."""
    return codes


@pytest.fixture
def moved() -> Callable[[conditions.Judgement], list[tuple[str, str | None, str, str]]]:
    """(kind, code, device, severity) of what happened."""
    return edges
