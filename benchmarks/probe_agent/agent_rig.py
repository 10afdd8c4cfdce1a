"""One agent on a simulated 8-GPU node with an embedded Postgres, for the agent's measurements."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from probing_cluster.db import migrate
from probing_cluster.db.server import embedded
from probing_cluster.sandbox.c_libraries import nvml_build
from probing_cluster.sandbox.nodetree import build, identity


@dataclass(frozen=True, kw_only=True)
class Rig:
    """The running agent and what it works on."""

    home: Path
    url: str
    agent: subprocess.Popen[bytes]
    hardware: identity.TreeIdentity

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def socket(self) -> Path:
        return self.home / "agent.sock"

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What Postgres has."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def processes(self) -> dict[int, str]:
        """The agent and its children: pid to what it is."""
        found = {self.agent.pid: "agent"}
        own = Path(f"/proc/{self.agent.pid}/cmdline").read_bytes()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == self.agent.pid:
                    line = stat.with_name("cmdline").read_bytes()
                    name = "sweep" if line == own else Path(line.split(b"\0")[-2].decode()).name
                    found[int(stat.parent.name)] = name or "child"
        return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a living process, and of the children it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(f) for f in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> tuple[float, float]:
    """(resident, proportional) memory of a process, MiB."""
    fields = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if ":" in line
    )
    return int(fields["Rss"].split()[0]) / 1024, int(fields["Pss"].split()[0]) / 1024


@contextlib.contextmanager
def running(*, real_kernel_log: bool = False, **settings: float) -> Iterator[Rig]:
    """A rig whose agent answers, on this machine's own kernel log if wanted; `settings` override keys of [agent]."""
    home = Path(tempfile.mkdtemp(prefix="probing-bench-"))
    home.chmod(0o755)
    postgres = home / "pg"
    postgres.mkdir(mode=0o755)
    agent: subprocess.Popen[bytes] | None = None
    try:
        url = embedded.ensure(postgres)
        migrate.upgrade(url)
        library = nvml_build.build(home / "lib")
        hardware = build.build(home, "n1", gpus=8)
        if real_kernel_log:
            (home / "root/dev/kmsg").unlink()
            (home / "root/dev/kmsg").symlink_to("/dev/kmsg")
        config = _config(home, url, library, settings)
        environment = {**os.environ, "PROBING_NVML_STATE": str(home / build.NVML_STATE)}
        argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--config", str(config)]
        agent = subprocess.Popen(argv, env=environment)
        while not (home / "agent.sock").exists():
            time.sleep(0.05)
        yield Rig(home=home, url=url, agent=agent, hardware=hardware)
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait(timeout=30)
        embedded.stop(postgres)
        shutil.rmtree(home, ignore_errors=True)


def _config(home: Path, url: str, library: Path, settings: dict[str, float]) -> Path:
    path = home / "probing.toml"
    extra = "".join(f"{key} = {value}\n" for key, value in settings.items())
    path.write_text(
        f'[cluster]\nname = "bench"\n[agent]\nroot = "{home}/root"\nnode = "n1"\nsocket = "{home}/agent.sock"\n'
        f'spool_directory = "{home}/spool"\njob_directory = "{home}/jobs"\nnvml_library = "{library}"\n'
        f'database_url = "{url}"\n{extra}[checks]\nstate_file = "{home}/checks.json"\n'
        f'command_directories = ["{home}/root/usr/bin"]\n'
    )
    return path
