"""How each daemon of Slurm is started and known to be ready: munged, MariaDB, slurmdbd, slurmctld, slurmd."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence

from probing_cluster.sandbox.machine import commands, layout, ports

_MARIADB = (
    "--no-defaults",
    "--user=root",
    "--skip-networking",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-flush-log-at-trx-commit=2",
    "--max-allowed-packet=64M",
)


_ADMINISTRATOR = "root"
"""MariaDB's account, which slurmdbd.conf names as well."""


def _account() -> str:
    """The account that runs the sandbox, by name."""
    return pwd.getpwuid(os.geteuid()).pw_name


def start_munge(lay: layout.Layout, env: Mapping[str, str]) -> None:
    """munged with a key of its own."""
    key = lay.etc / "munge.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
    lay.munge_socket.unlink(missing_ok=True)
    argv = ["munged", "--foreground", f"--key-file={key}", f"--socket={lay.munge_socket}", "--force"]
    argv += [f"--pid-file={lay.run}/munged.own.pid", f"--seed-file={lay.run}/munged.seed"]
    argv += [f"--log-file={lay.log}/munged.log", "--num-threads=2"]
    _start(lay, "munged", argv, env, lay.munge_socket.exists)


def start_mariadb(lay: layout.Layout, env: Mapping[str, str]) -> None:
    """MariaDB on its own data directory, reachable by its socket only."""
    if not (lay.mariadb / "mysql").exists():
        lay.mariadb.mkdir(mode=0o700, exist_ok=True)
        init = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={lay.mariadb}"]
        # Its administrator has no password: the kernel tells that the caller is this account, and no other may log in.
        init += ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={_account()}"]
        init += ["--skip-test-db", "--innodb-log-file-size=16M"]
        # It names its temporary tables by pid alone: in a shared directory two containers' would meet.
        commands.run(init, env={**env, "TMPDIR": str(lay.run)}, timeout_s=120)
    argv = ["mariadbd", *_MARIADB, f"--datadir={lay.mariadb}", f"--socket={lay.mariadb_socket}"]
    argv += [
        f"--pid-file={lay.run}/mariadb.own.pid",
        f"--tmpdir={lay.run}",
        f"--secure-file-priv={lay.mariadb}",
    ]
    lay.mariadb_socket.unlink(missing_ok=True)
    user = f"--user={_ADMINISTRATOR}"
    ping = ["mariadb-admin", "--no-defaults", f"--socket={lay.mariadb_socket}", user, "ping"]

    def ready() -> bool:
        return lay.mariadb_socket.exists() and commands.run(ping, env=env, check=False).returncode == 0

    _start(lay, "mariadb", argv, env, ready)


def start_slurmdbd(lay: layout.Layout, env: Mapping[str, str]) -> None:
    """slurmdbd, which makes its tables on the first start."""
    # The client library's own variable: slurmdbd.conf has no key for the socket.
    reach = {**env, "MYSQL_UNIX_PORT": str(lay.mariadb_socket)}
    _start(lay, "slurmdbd", ["slurmdbd", "-D"], reach, lambda: ports.answers(lay.slurmdbd_port))


def enrol(env: Mapping[str, str]) -> None:
    """The cluster, an account and its users in the accounting database; does nothing the second time."""
    known = commands.run(["sacctmgr", "-nP", "show", "cluster", "format=cluster"], env=env).stdout.split()
    if layout.CLUSTER_NAME in known:
        return
    for words in (
        ["add", "cluster", layout.CLUSTER_NAME],
        ["add", "account", "research", "Description=sandbox", "Organization=sandbox"],
        ["add", "user", "root,nobody,daemon", "Account=research", "DefaultAccount=research"],
    ):
        commands.run(["sacctmgr", "-i", *words], env=env)


def start_slurmctld(lay: layout.Layout, env: Mapping[str, str]) -> None:
    """slurmctld; it is ready when it accepts connections."""
    _start(lay, "slurmctld", ["slurmctld", "-D"], env, lambda: ports.answers(lay.slurmctld_port))


def start_slurmd(lay: layout.Layout, env: Mapping[str, str], node: str, *, rebooted: bool = False) -> None:
    """The slurmd of one node; `rebooted` makes it report a boot, as after a power cycle."""
    argv = ["slurmd", "-D", "-N", node, *(["-b"] if rebooted else [])]
    _start(lay, f"slurmd-{node}", argv, env)


def wait_for_nodes(lay: layout.Layout, env: Mapping[str, str], *, timeout_s: float = 180) -> None:
    """Returns when every node has registered and answers."""
    names = ",".join(lay.node_names)

    def registered() -> bool:
        done = commands.run(["sinfo", "-hN", "-n", names, "-o", "%N %t"], env=env, check=False)
        states = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
        return len(states) == lay.nodes and not any(s.endswith("*") or "unk" in s for s in states.values())

    commands.wait_until(
        registered, f"not every node registered; see {lay.log}/slurmd-*.log", timeout_s=timeout_s, every_s=0.2
    )


def _start(
    lay: layout.Layout,
    role: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    ready: Callable[[], bool] | None = None,
) -> None:
    commands.start_ready(role, argv, env=env, run=lay.run, log=lay.log / f"{role}.out", ready=ready)
