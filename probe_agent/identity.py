"""Which node this is: its Slurm name, its filesystem root, its boot, and when that boot began."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import clock, digits, settings

HOST_ROOT = Path("/")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The node as its events name it; `root` is `/`, or a directory that stands for a node."""

    cluster: str
    node: str
    root: Path

    @property
    def is_host(self) -> bool:
        """True when the root is this machine's own, not a directory that plays a node."""
        return self.root == HOST_ROOT

    def path(self, absolute: str) -> Path:
        """The path on this machine of the node's `absolute` path."""
        return self.root / absolute.lstrip("/")

    def boot_id(self) -> str:
        """The node's boot id, read afresh; `unknown` where the kernel does not tell."""
        try:
            return self.path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip() or "unknown"
        except (OSError, UnicodeDecodeError):
            return "unknown"

    def boot_epoch_s(self) -> float | None:
        """The node's boot time in epoch seconds (`btime` of /proc/stat); None when unreadable."""
        try:
            lines = self.path("/proc/stat").read_text("ascii", "replace").splitlines()
        except OSError:
            return None
        fields = next((line.split() for line in lines if line.startswith("btime ")), [])
        return float(fields[1]) if len(fields) == 2 and digits.is_number(fields[1]) else None

    def time_zone(self) -> str:
        """The value of TZ for a child that reads local times: the node's /etc/localtime, which slurmd and jobs use.

        A directory that plays a node and has none uses this process's zone.
        """
        zone = self.path("/etc/localtime")
        return f":{zone}" if zone.exists() else os.environ.get("TZ", ":/etc/localtime")


def identify(config: settings.Settings) -> Identity:
    """The identity the configuration gives; the node name falls back to Slurm's, then the host's."""
    node = config.agent.node or os.environ.get("SLURMD_NODENAME", "") or socket.gethostname().split(".")[0]
    return Identity(cluster=config.cluster.name, node=node, root=Path(config.agent.root).absolute())


def uptime_s(identity: Identity, clock: clock.Clock) -> float | None:
    """Seconds since the node booted; None when its boot time is unknown."""
    booted = identity.boot_epoch_s()
    return None if booted is None else max(0.0, clock.now().timestamp() - booted)
