"""`probing-sandbox`: a real Slurm cluster on one machine, to try and to break."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import shutil
import sys
import time
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.core import command_line, errors
from probing_cluster.core.ending import run_command
from probing_cluster.sandbox import cluster, gangs, services
from probing_cluster.sandbox.demo import cli_demo
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import commands, layout, mounts, processes, sandbox_directory


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command.run("probing-sandbox", lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().read(argv)
    return int(args.run(args))


Register = Callable[..., argparse.ArgumentParser]
"""Adds a command: name, function, one sentence, and the default directory's name if it makes a sandbox."""


def _parser() -> command_line.Parser:
    parser = command_line.Parser(prog="probing-sandbox", description=__doc__)
    command_line.add_version(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str, where: str | None = None) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        default = layout.default_directory(where) if where else None
        meaning = "%(default)s" if where else "the one there is"
        sub.add_argument("--dir", type=Path, default=default, help=f"the sandbox (default {meaning})")
        sub.set_defaults(run=run)
        return sub

    _add_cluster(command)
    cli_demo.register(command)
    return parser


def _add_cluster(command: Register) -> None:
    up = command("up", _up, "boot a cluster, or start a stopped one again", ".sandbox")
    up.add_argument("--nodes", type=int, default=4, help="simulated nodes, 1 to 64 (default 4)")
    up.add_argument("--gpus", type=int, default=8, help="GPUs per node, 0 to 16 (default 8)")
    up.add_argument("--bare", action="store_true", help="Slurm only: no agents, no Postgres, no service")
    down = command("down", _down, "end every process of the sandbox and remove its run state")
    down.add_argument("--purge", action="store_true", help="remove the directory too")
    down.add_argument("--all", action="store_true", help="every sandbox that this installation started")
    command(
        "status", _status, "what runs, and what Slurm thinks of its nodes; without --dir, of every sandbox"
    )
    _add_faults(command("fault", _fault, "break a node, or heal it"))
    gang = command("gang", _gang, "submit a PyTorch gang of two ranks a node that hangs in a known way")
    gang.add_argument(
        "case",
        nargs="?",
        default="python_loop",
        choices=[*gangs.HANGS, gangs.SLOW, "healthy"],
        help="%(choices)s",
    )
    shell = command("shell", _shell, "a shell (or COMMAND) whose Slurm commands reach the sandbox")
    shell.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")


def _add_faults(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the node; - for what concerns the whole cluster")
    kinds = parser.add_subparsers(required=True, metavar="KIND", dest="kind")
    for name, fault in sorted(registry.FAULTS.items()):
        kind = kinds.add_parser(name, help=fault.meaning, description=fault.meaning)
        # Behind the kind, too; left out there, it does not undo one in front.
        kind.add_argument("--dir", type=Path, default=argparse.SUPPRESS, help="the sandbox")
        for parameter in fault.parameters:
            positional = parameter.default is inspect.Parameter.empty
            flag = parameter.name if positional else "--" + parameter.name.replace("_", "-")
            options = {} if positional else {"default": parameter.default, "dest": parameter.name}
            kind.add_argument(flag, type=_converter(parameter.annotation), **options)


def _converter(annotation: Any) -> Callable[[str], Any]:
    """int, float or str for a parameter's type; the first of a union with None."""
    kinds = typing.get_args(annotation) or (annotation,)
    return next(kind for kind in (int, float, str) if kind in kinds)


def _fault(args: argparse.Namespace) -> int:
    fault = registry.FAULTS[args.kind]
    options = {parameter.name: getattr(args, parameter.name) for parameter in fault.parameters}
    cluster.Sandbox.open(sandbox_directory.choose(args.dir)).fault(args.node, args.kind, **options)
    given = "".join(f" {name}={value}" for name, value in options.items() if value is not None)
    print(f"{'the cluster' if args.node == '-' else args.node}: {args.kind}{given}")
    print(f"  {fault.meaning}")
    return 0


_ASK = """job {job} on {nodes} nodes; rank {culprit} is the culprit. As soon as its ranks have started (half a minute), ask
  {command} shell probing-ctl ranks {job}
  {command} shell probing-ctl stacks {job}
  {command} shell probing-ctl sql {job} "SELECT rank, node, state, step, inside FROM cluster.ranks ORDER BY rank"
and end it with {command} shell scancel {job}"""
_PATIENT_S = 1800
"""How long the gang's collectives wait: somebody looks at it."""


def _gang(args: argparse.Namespace) -> int:
    box = cluster.Sandbox.open(sandbox_directory.choose(args.dir))
    if importlib.util.find_spec("torch") is None:
        raise errors.UsageError("torch is not installed beside this command; make setup installs it")
    # `-t idle` would list drained nodes, too.
    shown = box.run(["sinfo", "-hN", "-p", "gpu", "-o", "%t"]).stdout.split()
    idle = [state for state in shown if state == "idle"]
    if len(idle) < gangs.CULPRITS_NODE + 1:
        raise errors.UsageError(
            f"{len(idle)} nodes are idle and it needs 3; probing-sandbox status shows them, and "
            "`fault NODE heal`, then `shell probing-ctl set-healthy NODE` gives one back"
        )
    nodes = min(len(idle), 4)
    job = gangs.submit(
        box, args.case, variables={"GLOO_TIMEOUT_S": _PATIENT_S}, nodes=nodes, ntasks=2 * nodes
    )
    print(_ASK.format(job=job, nodes=nodes, culprit=gangs.CULPRIT, command=Path(sys.argv[0])))
    return 0


def _up(args: argparse.Namespace) -> int:
    began = time.monotonic()
    box = cluster.Sandbox.up(
        args.dir,
        nodes=args.nodes,
        gpus=args.gpus,
        bare=args.bare,
        announce=lambda line: print(f"  {line}", flush=True),
    )
    print(f"{box.layout.nodes} nodes x {box.layout.gpus} GPUs up in {time.monotonic() - began:.1f} s")
    print(f"use it:  probing-sandbox shell --dir {args.dir}")
    return 0


def _down(args: argparse.Namespace) -> int:
    if args.all and args.dir is not None:
        raise errors.UsageError("--all means every sandbox; leave out --dir")
    directories = sandbox_directory.known() if args.all else [sandbox_directory.choose(args.dir)]
    for directory in directories:
        _take_down(directory, purge=args.purge)
    if not directories:
        print("no sandbox of this installation runs; nothing to stop")
    return 0


def _take_down(directory: Path, *, purge: bool) -> None:
    running = len(processes.listing(directory))
    if layout.exists(directory) or not running:
        cluster.Sandbox.open(directory).down(purge=purge)
    else:  # its directory was removed under it: the processes still carry its name
        processes.end_all(directory)
        mounts.unmount_below(directory)
        if purge:
            shutil.rmtree(directory, ignore_errors=True)
    kept = "kept, `probing-sandbox up` goes on there" if layout.exists(directory) else "gone"
    print(f"{directory}: {running} process{'' if running == 1 else 'es'} ended; the directory is {kept}")


def _status(args: argparse.Namespace) -> int:
    directories = [] if args.dir else sandbox_directory.known()
    states = [_show(directory) for directory in directories or [sandbox_directory.choose(args.dir)]]
    return 0 if any(states) else errors.NotFound.exit_code


def _show(directory: Path) -> bool:
    """Prints what runs of one sandbox; returns whether anything does."""
    roles = sorted({p.role for p in processes.listing(directory)})
    if roles and not layout.exists(directory):
        print(
            f"{directory}: running without its directory: {' '.join(roles)}; end it with `probing-sandbox down`"
        )
        return True
    box = cluster.Sandbox.open(directory)
    # Postgres is a daemon of its own, and no process of ours has a role for it.
    roles = sorted([*roles, "postgres"]) if services.database_runs(box.layout) else roles
    print(f"{box.directory}: {'running: ' + ' '.join(roles) if roles else 'stopped'}")
    if "slurmctld" in roles:
        print(box.run(["sinfo", "-N", "-p", "gpu", "-o", "%8N %10T %20G %E"]).stdout, end="")
    return bool(roles)


def _shell(args: argparse.Namespace) -> int:
    box = cluster.Sandbox.open(sandbox_directory.choose(args.dir))
    words = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    return commands.call(words or [os.environ.get("SHELL", "/bin/bash")], env=box.env)
