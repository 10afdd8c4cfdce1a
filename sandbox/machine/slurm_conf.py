"""The text of every Slurm configuration file and hook wrapper of a sandbox."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

from probing_cluster.sandbox.machine import layout, processes

_TEMPLATE = Path(__file__).with_name("slurm.conf.in")

CPUS_PER_NODE = 64
MEMORY_MIB = 512_000
GPU_TYPE = "h100"
NODE_TIMEOUT_S = 30
"""SlurmdTimeout: a killed slurmd is noticed, its jobs end NODE_FAIL, after this and a ping interval."""
HEALTH_CHECK_INTERVAL_S = 10

HOOKS = ("prolog", "epilog", "healthcheck")
"""Wrappers in `bin/`, each of which asks the agent by slurm_plugins/hooks/agent_hook.py."""


def slurm_conf(lay: layout.Layout, spank_plugin: Path | None) -> str:
    """slurm.conf: several slurmd on this host, each with its own port and directory."""
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS_PER_NODE} "
        f"RealMemory={MEMORY_MIB}" + (f" Gres=gpu:{GPU_TYPE}:{lay.gpus}" if lay.gpus else "")
        for name, port in zip(lay.node_names, lay.slurmd_ports, strict=True)
    )
    return _TEMPLATE.read_text().format(
        bin=lay.bin,
        cluster=layout.CLUSTER_NAME,
        directory=lay.directory,
        health_check_s=HEALTH_CHECK_INTERVAL_S,
        host=host,
        log=lay.log,
        munge=lay.munge_socket,
        names=",".join(lay.node_names),
        nodes=nodes,
        plugstack=f"PlugStackConfig={lay.etc}/plugstack.conf\n" if spank_plugin else "",
        run=lay.run,
        slurmctld_port=lay.slurmctld_port,
        slurmdbd_port=lay.slurmdbd_port,
        state=lay.state,
        timeout_s=NODE_TIMEOUT_S,
    )


def gres_conf(lay: layout.Layout) -> str:
    """gres.conf: the GPUs are plain files named like NVIDIA's device files."""
    return "".join(
        f"NodeName={name} Name=gpu Type={GPU_TYPE} File={lay.node(name)}/root/dev/nvidia[0-{lay.gpus - 1}]\n"
        for name in lay.node_names
        if lay.gpus
    )


def slurmdbd_conf(lay: layout.Layout) -> str:
    """slurmdbd.conf: accounting on the private MariaDB, reached by its socket."""
    return f"""# Made by probing-sandbox; `up` writes it again.
AuthType=auth/munge
AuthInfo=socket={lay.munge_socket}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={lay.slurmdbd_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile={lay.log}/slurmdbd.log
PidFile={lay.run}/slurmdbd.own.pid
CommitDelay=1
"""


def node_hook(lay: layout.Layout, hook: Path, kind: str) -> str:
    """A Prolog, Epilog or HealthCheckProgram: the site's own scripts first, then ours; fails open without it."""
    refuses = "[ $? -ne 42 ] || exit 1\n" if kind == "prolog" else ""
    return f"""#!/bin/sh
# Made by probing-sandbox: what slurm.conf names as the {kind}, as a site's own wrapper would be.
for site in {shlex.quote(f"{lay.etc}/{kind}.d")}/*; do
    if [ -x "$site" ]; then "$site" || exit; fi
done
[ -r {shlex.quote(str(hook))} ] || exit 0
/usr/bin/python3 -I -S {shlex.quote(str(hook))} {kind} --socket {shlex.quote(str(lay.directory))}/nodes/"$SLURMD_NODENAME"/run/agent.sock
{refuses}exit 0
"""


def task_prolog(lay: layout.Layout, hook: Path, spank_plugin: Path | None) -> str:
    """The TaskProlog: the mark by which `down` finds what a job leaves behind, and ours where no SPANK plugin does its work."""
    marks = f"""#!/bin/sh
# Made by probing-sandbox: prints the environment that every task gets.
# A machine that runs out of memory all the same ends the task that asks for this, not its own daemons.
echo 1000 2>/dev/null > /proc/$PPID/oom_score_adj
echo {shlex.quote(f"export {processes.MARK}={lay.directory}")}
echo "export {processes.ROLE}=job-$SLURMD_NODENAME"
"""
    if spank_plugin is not None:
        return marks
    return f"""{marks}[ -r {shlex.quote(str(hook))} ] || exit 0
exec /usr/bin/python3 -I -S {shlex.quote(str(hook))} --probe-dir {shlex.quote(str(lay.probe))} \\
    --job-dir {shlex.quote(str(lay.directory))}/nodes/"$SLURMD_NODENAME"/run/jobs
"""


def mail_program(lay: layout.Layout, hook: Path) -> str:
    """The MailProg: ours, and where it does not take the mail the site's, which here keeps one JSON line per call."""
    site = shlex.quote(str(lay.bin / "site-mail"))
    return f"""#!/bin/sh
# Made by probing-sandbox: what slurm.conf names as MailProg.
[ -r {shlex.quote(str(hook))} ] && /usr/bin/python3 -I -S {shlex.quote(str(hook))} --socket {shlex.quote(str(lay.run / "report.sock"))} -- "$@" \\
    || exec {site} "$@"
"""


def site_mail_program(lay: layout.Layout) -> str:
    """What stands for the site's own mail program: it sends nothing and writes down how it was called."""
    return f"""#!/usr/bin/python3 -IS
import json, os, sys
with open({str(lay.log / "mail.jsonl")!r}, "a") as kept:
    slurm = {{name: value for name, value in os.environ.items() if name.startswith("SLURM")}}
    kept.write(json.dumps({{"arguments": sys.argv[1:], "environment": slurm}}) + "\\n")
"""


def write(lay: layout.Layout, hooks: Path, spank_plugin: Path | None) -> None:
    """Writes every file; `hooks` is slurm_plugins/hooks, present or not."""
    files = {
        lay.slurm_conf: slurm_conf(lay, spank_plugin),
        lay.etc / "gres.conf": gres_conf(lay),
        lay.etc / "slurmdbd.conf": slurmdbd_conf(lay),
    }
    if spank_plugin:
        pages = f"{lay.directory}/nodes/%n/run/jobs"
        files[lay.etc / "plugstack.conf"] = (
            f"optional {spank_plugin} probe_dir={lay.probe} page_base={pages}\n"
        )
    for path, text in files.items():
        path.write_text(text)
    (lay.etc / "slurmdbd.conf").chmod(0o600)
    scripts = {lay.bin / kind: node_hook(lay, hooks / "agent_hook.py", kind) for kind in HOOKS}
    scripts[lay.bin / "mailprog"] = mail_program(lay, hooks / "mail_program.py")
    scripts[lay.bin / "site-mail"] = site_mail_program(lay)
    scripts[lay.bin / "taskprolog"] = task_prolog(lay, hooks / "task_prolog.py", spank_plugin)
    for path, text in scripts.items():
        path.write_text(text)
        path.chmod(0o755)
    for name in HOOKS:
        (lay.etc / f"{name}.d").mkdir(exist_ok=True)
