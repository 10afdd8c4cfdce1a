"""The paths of one sandbox; nothing ever lies outside its directory."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from probing_cluster.core import errors

CLUSTER_NAME = "sandbox"
MAX_NODES = 64
MAX_GPUS = 16
SHARED = Path("/var/tmp")  # noqa: S108  # below it root's own directory, made with mkdir
"""Where root's sandboxes lie whose clone other accounts may not enter."""

_LONGEST_SOCKET_CHARS = 107
"""What a Unix socket address holds (sun_path less its NUL)."""
_LONGEST_SOCKET_BELOW = len("/nodes/n64/slurmd/n64_1234567.4294967291")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One sandbox: its directory, its size and the TCP ports chosen for it."""

    directory: Path
    nodes: int
    gpus: int
    bare: bool
    slurmctld_port: int
    slurmdbd_port: int
    slurmd_ports: tuple[int, ...]

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{i}" for i in range(1, self.nodes + 1))

    @property
    def etc(self) -> Path:
        return self.directory / "etc"

    @property
    def bin(self) -> Path:
        """Generated wrappers that Slurm runs: Prolog, Epilog, HealthCheckProgram, TaskProlog."""
        return self.directory / "bin"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def lib(self) -> Path:
        """What is built or copied once: the NVML stub, the SPANK plugin, the probe."""
        return self.directory / "lib"

    @property
    def probe(self) -> Path:
        """What goes to the front of every task's PYTHONPATH: a copy that other users can read."""
        return self.lib / "probe"

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.directory / "run"

    @property
    def state(self) -> Path:
        """slurmctld's StateSaveLocation."""
        return self.directory / "state"

    @property
    def mariadb(self) -> Path:
        return self.directory / "mariadb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"

    @property
    def kept(self) -> Path:
        """The directory in which nodes keep what ended jobs left, each user's in one of their own."""
        return self.directory / "kept"

    @property
    def jobs(self) -> Path:
        """The directory in which submitted scripts run and write their output by default."""
        return self.directory / "jobs"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def probing_toml(self) -> Path:
        return self.etc / "probing.toml"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge.socket"

    @property
    def mariadb_socket(self) -> Path:
        return self.run / "mariadb.socket"

    def node(self, name: str) -> Path:
        """Directory of node `name`: root/, run/, spool/, slurmd/, probing.toml, nvml.state."""
        if name not in self.node_names:
            msg = f"no node {name!r} in {self.directory}; there are {self.node_names[0]} to {self.node_names[-1]}"
            raise errors.NotFound(msg)
        return self.directory / "nodes" / name

    def save(self) -> None:
        fields = asdict(self) | {"directory": str(self.directory)}
        _file(self.directory).write_text(json.dumps(fields, indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The sandbox in `directory`; raises NotFound when none was made there."""
        directory = directory.resolve()
        require_own(directory)
        try:
            fields = json.loads(_file(directory).read_text())
        except FileNotFoundError as exc:
            msg = f"no sandbox in {directory}; make one with `probing-sandbox up --dir {directory}`"
            raise errors.NotFound(msg) from exc
        fields |= {"directory": directory, "slurmd_ports": tuple(fields["slurmd_ports"])}
        return cls(**fields)


def default_directory(name: str = ".sandbox") -> Path:
    """`.sandbox` in the working directory; below /var/tmp where other accounts may not enter that.

    A clone in /root is such a place: Postgres does not run as root, and jobs run as their users.
    """
    here = Path.cwd() / name
    if os.geteuid() != 0 or all(parent.stat().st_mode & stat.S_IXOTH for parent in here.parents):
        return here
    digest = hashlib.blake2b(str(here).encode(), digest_size=4).hexdigest()
    return SHARED / f"probing{name}-{digest}"


def exists(directory: Path) -> bool:
    """Whether a sandbox was made in `directory` (running or not)."""
    return _file(directory).exists()


def check(directory: Path, nodes: int, gpus: int) -> None:
    """Raises UsageError when a sandbox of this size cannot live in `directory`."""
    if not 1 <= nodes <= MAX_NODES:
        raise errors.UsageError(f"--nodes {nodes}: between 1 and {MAX_NODES}")
    if not 0 <= gpus <= MAX_GPUS:
        raise errors.UsageError(f"--gpus {gpus}: between 0 and {MAX_GPUS}")
    room = _LONGEST_SOCKET_CHARS - _LONGEST_SOCKET_BELOW
    if len(str(directory)) > room:
        msg = f"{directory} is too long for Unix sockets below it ({len(str(directory))} characters, at most {room})"
        raise errors.UsageError(msg)
    if any(c.isspace() or c in "\"'\\,=#" for c in str(directory)):
        msg = f"{directory}: Slurm's configuration cannot hold blanks, quotes, commas, = or # in a path"
        raise errors.UsageError(msg)


def require_own(directory: Path) -> None:
    """Raises NotPermitted when others could have put something into an existing `directory`.

    The default place is a predictable name in /var/tmp for some, and root runs what lies there.
    """
    try:
        found = directory.stat()
    except FileNotFoundError:
        return
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        msg = f"{directory} belongs to someone else or others may write into it; choose another --dir"
        raise errors.NotPermitted(msg)


def _file(directory: Path) -> Path:
    return directory / "sandbox.json"
