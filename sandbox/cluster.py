"""A real Slurm cluster on one machine: boot it, use it, break it, take it down."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from probing_cluster.core import errors
from probing_cluster.sandbox import boot, jobs, services
from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import (
    commands,
    hanging_mount,
    layout,
    mounts,
    ports,
    processes,
    requirements,
)
from probing_cluster.sandbox.nodetree import build, identity

Announce = Callable[[str], None]


def _discard(_line: str) -> None:
    """Progress nobody asked for."""


class Sandbox:
    """One running (or stopped) sandbox; leaving its `with` block takes it down."""

    def __init__(self, lay: layout.Layout) -> None:
        self.layout = lay

    @classmethod
    def up(
        cls,
        directory: Path,
        *,
        nodes: int = 4,
        gpus: int = 8,
        bare: bool = False,
        announce: Announce = _discard,
    ) -> Self:
        """Boots a sandbox in `directory`; one that was stopped there is started again as it was."""
        requirements.require_cluster()
        directory = directory.resolve()
        if layout.exists(directory):
            self = cls.open(directory)
            if processes.listing(directory):
                msg = f"the sandbox in {directory} is running; `probing-sandbox down` first"
                raise errors.UsageError(msg)
        else:
            self = cls(_new_layout(directory, nodes, gpus, bare=bare))
        try:
            boot.boot(self.layout, self._daemon_env, announce)
        except BaseException:
            self.down()
            raise
        return self

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The sandbox that was made in `directory`; raises NotFound."""
        return cls(layout.Layout.load(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def directory(self) -> Path:
        return self.layout.directory

    @property
    def env(self) -> dict[str, str]:
        """The caller's environment, pointed at this cluster."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "PROBING_"))}
        return own | {
            "SLURM_CONF": str(self.layout.slurm_conf),
            "PROBING_CONFIG": str(self.layout.probing_toml),
            "PATH": f"{Path(sys.executable).parent}:{own.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
        }

    def run(self, argv: Sequence[str], *, check: bool = True, timeout_s: float = 60) -> commands.Completed:
        """Runs a command with `env` and returns what it printed; raises when it fails unless `check` is false."""
        return commands.run(argv, env=self.env, check=check, timeout_s=timeout_s)

    def submit(self, script: str, **options: str | int | bool) -> int:
        """`sbatch` of `script` (see jobs.submit); returns the job id."""
        return jobs.submit(self.layout, self.env, script, options)

    def wait(self, job_id: int, states: Iterable[str], timeout_s: float = 120) -> str:
        """Returns the job's state as soon as it is one of `states`; raises when that takes too long."""
        return jobs.wait(self.env, job_id, set(states), timeout_s)

    def fault(self, node: str, kind: str, **options: Any) -> None:
        """Injects a fault into a node, or with node "-" into the cluster (see sandbox/faults)."""
        target = registry.Target(layout=self.layout, node=node, env=self._daemon_env)
        registry.inject(target, kind, **options)

    def hardware(self, node: str) -> identity.TreeIdentity:
        """The identities of a node and its GPUs."""
        return identity.identity(node, self.layout.node_names.index(node) + 1, self.layout.gpus)

    def gpu_of_slurm(self, node: str, position: int) -> identity.TreeGpu:
        """The GPU that Slurm calls `position` in SLURM_JOB_GPUS on this node."""
        state = nvml_state.read(self.layout.node(node) / build.NVML_STATE)
        return self.hardware(node).gpus[nvml_state.index_of_slurm(state, position)]

    def down(self, *, purge: bool = False) -> None:
        """Ends every process and removes the run state; `purge` removes the directory as well."""
        lay = self.layout
        if not purge and processes.pids_of(lay.directory, "slurmctld"):
            # Accounting keeps its rows: they must say that these jobs ended.
            jobs.cancel_all(self.env)
        # Who waits on a hanging mount outlives SIGKILL, and every look below it would hang, too.
        for node in lay.node_names:
            hanging_mount.stop(lay, node)
        # First all that asks Slurm or writes on its way out, then what it asks and writes to.
        processes.end(lay.directory, [services.SERVICE, *map(services.agent_role, lay.node_names)])
        processes.end_all(lay.directory, but=("munged", "mariadb", "slurmdbd"), timeout_s=10)
        processes.end(lay.directory, ["slurmdbd"])
        processes.end_all(lay.directory)
        mounts.unmount_below(lay.directory)
        if not lay.bare:
            services.stop_database(lay)
        for path in (lay.run, *(lay.node(n) / sub for n in lay.node_names for sub in ("run", "slurmd"))):
            shutil.rmtree(path, ignore_errors=True)
        if purge:
            shutil.rmtree(lay.directory)

    @property
    def _daemon_env(self) -> Mapping[str, str]:
        return self.env | {processes.MARK: str(self.layout.directory), processes.STARTED_BY: sys.prefix}


def _new_layout(directory: Path, nodes: int, gpus: int, *, bare: bool) -> layout.Layout:
    layout.check(directory, nodes, gpus)
    layout.require_own(directory)
    if directory.exists() and any(directory.iterdir()):
        raise errors.UsageError(f"{directory} is not empty and no sandbox; choose another --dir")
    chosen = ports.choose(2 + nodes)
    return layout.Layout(
        directory=directory,
        nodes=nodes,
        gpus=gpus,
        bare=bare,
        slurmctld_port=chosen[0],
        slurmdbd_port=chosen[1],
        slurmd_ports=tuple(chosen[2:]),
    )
