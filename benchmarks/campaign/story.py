"""A story: one job, what really ended it, and everything its cluster would have written down about it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from probing_cluster.core import records

GPU_PCI = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
"""PCI buses of the eight GPUs of a node."""
HCA_PCI = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
USERS = ("alice", "bob", "chen", "dora", "emre", "femi")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many nodes, GPUs per node and hours a job has."""

    name: str
    nodes: int
    gpus: int
    shared: bool = False
    """True when others run on its node."""


SHAPES = (
    Shape(name="1 GPU, shared node", nodes=1, gpus=1, shared=True),
    Shape(name="4 GPUs, shared node", nodes=1, gpus=4, shared=True),
    Shape(name="1 node", nodes=1, gpus=8),
    Shape(name="2 nodes", nodes=2, gpus=8),
    Shape(name="8 nodes", nodes=8, gpus=8),
    Shape(name="32 nodes", nodes=32, gpus=8),
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kernel line on one node, `before_s` seconds before the job's end (negative: after it)."""

    node: str
    before_s: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an agent's own look at a node found, as its sources word it."""

    node: str
    before_s: float
    source: str
    kind: str
    code: str
    severity: records.Severity
    device: str
    gpu: int | None = None
    recovered: bool = False


@dataclass(kw_only=True)
class Story:
    """Built up by a fault or a bug, then by noise."""

    rng: random.Random
    shape: Shape
    number: int
    kind: str = ""
    causes: tuple[str, ...] = ()
    """The true cause first; what else would also be right behind it."""
    domain: records.Domain = records.Domain.UNKNOWN
    noise: list[str] = field(default_factory=list)
    state: str = "FAILED"
    exit_code: int = 1
    exit_signal: int = 0
    reason: str = ""
    failed_node: str | None = None
    ran_s: float = 0.0
    time_limit_s: float = 86400.0 * 7
    lines: list[Line] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    active_faults: list[Reading] = field(default_factory=list)
    """Conditions that began before the window and still stood."""
    log: list[str] = field(default_factory=list)
    has_log: bool = True
    silent: dict[str, float] = field(default_factory=dict)
    """Node to how long before the end its agent was last heard."""
    actions: list[tuple[str, str, float]] = field(default_factory=list)
    """Action, node, seconds before the end: what the policy did."""
    cancelled_by: str | None = None
    broken: str | None = None
    """The node whose part is at fault, where there is one."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.nodes = [f"n{self.number:05d}x{i:02d}" for i in range(self.shape.nodes)]
        first = rng.choice(range(9 - self.shape.gpus))
        self.held = tuple(range(first, first + self.shape.gpus))
        self.ran_s = self.ran_s or rng.choice([rng.uniform(2400, 9000), rng.uniform(9000, 250_000)])
        self.end_at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(minutes=7 * self.number)
        self.user = rng.choice(USERS)
        self.job_id = 100_000 + self.number

    @property
    def ranks(self) -> int:
        """World size."""
        return self.shape.nodes * self.shape.gpus

    def node(self) -> str:
        """One of its nodes."""
        return self.rng.choice(self.nodes)

    def gpu(self) -> int:
        """One of the GPUs it holds on each node."""
        return self.rng.choice(self.held)

    def foreign_gpu(self) -> int | None:
        """A GPU of its node that others hold; None when it has them all."""
        others = [i for i in range(8) if i not in self.held]
        return self.rng.choice(others) if others else None

    def rank_of(self, node: str, gpu: int) -> int:
        """The rank that runs on this GPU."""
        return self.nodes.index(node) * self.shape.gpus + self.held.index(gpu)

    def kernel(self, node: str, before_s: float, *texts: str) -> None:
        """Kernel lines, a few milliseconds apart."""
        for i, text in enumerate(texts):
            self.lines.append(Line(node=node, before_s=before_s - 0.003 * i, text=text))

    def polled(
        self, node: str, before_s: float, source: str, kind: str, code: str, severity: records.Severity, device: str,
        *, gpu: int | None = None, recovered: bool = False, every_s: float = 10.0,
    ) -> None:  # fmt: skip
        """What an agent that looks every `every_s` seconds finds of something that began `before_s` before the end."""
        found_before_s = before_s - self.rng.uniform(0, every_s)
        self.readings.append(
            Reading(node=node, before_s=found_before_s, source=source, kind=kind, code=code, severity=severity, device=device, gpu=gpu, recovered=recovered)
        )  # fmt: skip

    def is_caused(self, domain: records.Domain, *causes: str) -> None:
        """The label."""
        self.domain, self.causes = domain, causes


Teller = Callable[[Story], None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One sort of ending."""

    name: str
    write: Teller
    group: str
    """fault, bug, scheduler or silent."""
    least_nodes: int = 1
    whole_nodes: bool = False


KINDS: dict[str, Kind] = {}


def kind(
    name: str, group: str, *, least_nodes: int = 1, whole_nodes: bool = False
) -> Callable[[Teller], Teller]:
    """Registers the teller of one kind of ending."""

    def register(write: Teller) -> Teller:
        KINDS[name] = Kind(
            name=name, write=write, group=group, least_nodes=least_nodes, whole_nodes=whole_nodes
        )
        return write

    return register


def pci(gpu: int) -> str:
    """`0000:1b:00` of GPU 0."""
    return f"0000:{GPU_PCI[gpu]}:00"


def gpu_uuid(node: str, gpu: int) -> str:
    """The same UUID whenever asked."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{node}:{gpu}')}"
