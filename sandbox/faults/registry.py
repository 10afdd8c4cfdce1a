"""The register of faults, and what a fault is given to work on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import errors
from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.machine import layout
from probing_cluster.sandbox.nodetree import build, identity, kmsg

CLUSTER = "-"
"""Stands for a node where a fault concerns the whole cluster."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One simulated node (or, with node "-", the cluster) under a fault."""

    layout: layout.Layout
    node: str
    env: Mapping[str, str]
    """Environment of the sandbox's daemons, to start some again."""

    @property
    def home(self) -> Path:
        return self.layout.node(self.node)

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def nvml(self) -> Path:
        return self.home / build.NVML_STATE

    @property
    def number(self) -> int:
        return self.layout.node_names.index(self.node) + 1

    @property
    def hardware(self) -> identity.TreeIdentity:
        return identity.identity(self.node, self.number, self.layout.gpus)

    def gpu(self, index: int) -> identity.TreeGpu:
        """The GPU with NVML index `index`; raises NotFound."""
        if not 0 <= index < self.layout.gpus:
            raise errors.NotFound(f"no GPU {index} on {self.node}; there are 0 to {self.layout.gpus - 1}")
        return self.hardware.gpus[index]

    def hca(self, name: str) -> identity.Hca:
        """The adapter called `name`; raises NotFound."""
        found = {hca.name: hca for hca in self.hardware.hcas}
        if name not in found:
            raise errors.NotFound(f"no HCA {name!r} on {self.node}; there are {' '.join(found)}")
        return found[name]

    def kernel(self, *lines: str, level: int = kmsg.WARNING) -> None:
        """Adds kernel log lines."""
        kmsg.append(self.root, *lines, level=level)

    def set_gpu(self, index: int, **values: str | int | None) -> None:
        """Sets keys of one GPU's NVML state; `__` in a name stands for a dot."""
        nvml_state.set_gpu(self.nvml, index, {key.replace("__", "."): value for key, value in values.items()})


Fault = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class RegisteredFault:
    """One fault: its name, meaning, function and parameters after the target."""

    name: str
    run: Fault
    parameters: tuple[inspect.Parameter, ...]

    @property
    def meaning(self) -> str:
        return (inspect.getdoc(self.run) or "").splitlines()[0]


FAULTS: dict[str, RegisteredFault] = {}
CLUSTER_WIDE: set[str] = set()


def fault(name: str, *, cluster_wide: bool = False) -> Callable[[Fault], Fault]:
    """Registers a function under `name`; its parameters after the target become the command's."""

    def register(run: Fault) -> Fault:
        parameters = tuple(inspect.signature(run, eval_str=True).parameters.values())[1:]
        FAULTS[name] = RegisteredFault(name=name, run=run, parameters=parameters)
        if cluster_wide:
            CLUSTER_WIDE.add(name)
        return run

    return register


def inject(target: Target, name: str, **options: Any) -> None:
    """Injects the fault `name`; raises NotFound for an unknown one, UsageError for wrong options."""
    if name not in FAULTS:
        raise errors.NotFound(f"no fault {name!r}; there are {' '.join(sorted(FAULTS))}")
    if (target.node == CLUSTER) != (name in CLUSTER_WIDE):
        wants = "the whole cluster (node -)" if name in CLUSTER_WIDE else "one node"
        raise errors.UsageError(f"{name} concerns {wants}")
    if target.node != CLUSTER:
        target.layout.node(target.node)
    try:
        bound = inspect.signature(FAULTS[name].run).bind(target, **options)
    except TypeError as exc:
        raise errors.UsageError(f"{name}: {exc}") from exc
    FAULTS[name].run(*bound.args, **bound.kwargs)


def manual_rows() -> list[str]:
    """One row of docs/sandbox.md per fault: how it is written, and what it means."""
    rows = []
    for name, registered in sorted(FAULTS.items()):
        words = [name]
        for parameter in registered.parameters:
            flag = "--" + parameter.name.replace("_", "-")
            if parameter.default is inspect.Parameter.empty:
                words.append(parameter.name.upper())
            elif parameter.default is None:
                words.append(f"[{flag} …]")
            else:
                words.append(f"[{flag} {parameter.default}]")
        node = "-" if name in CLUSTER_WIDE else "NODE"
        rows.append(f"| `{node} {' '.join(words)}` | {registered.meaning} |")
    return rows
