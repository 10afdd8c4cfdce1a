"""What a real cluster needs of this machine, and one clear line about what is missing."""

from __future__ import annotations

import os
import shutil

from probing_cluster.core import errors

COMMANDS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "gcc": "gcc",
    "setsid": "util-linux",
}
"""Command to the Debian package that has it."""

_DAEMON_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing() -> str:
    """Why no real cluster can run here, in words; empty when one can."""
    if os.geteuid() != 0:
        return "a real cluster needs root (slurmd starts jobs as their users)"
    packages = sorted(
        {p for command, p in COMMANDS.items() if shutil.which(command, path=_DAEMON_PATH) is None}
    )
    if packages:
        return f"Debian packages are missing: {' '.join(packages)}"
    return ""


def require_cluster() -> None:
    """Raises NotPermitted or UsageError when no real cluster can run here."""
    why = missing()
    if not why:
        return
    if os.geteuid() != 0:
        raise errors.NotPermitted(why)
    raise errors.UsageError(f"{why}; install them with `apt-get install`")
