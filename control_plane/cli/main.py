"""`probing-ctl`: the operators' command."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import command_line
from probing_cluster.core.ending import run_command

GROUPS = (
    "site.db",
    "site.serve",
    "site.door",
    "jobs.classify",
    "history.import",
    "jobs.attribute",
    "history.fleet",
    "nodes.lemon",
    "nodes.nodes",
    "nodes.places",
    "jobs.ranks",
    "nodes.diagnose",
    "nodes.repair",
    "jobs.eval",
    "nodes.policy",
    "site.notices",
    "history.query",
    "jobs.sql",
    "site.doctor",
    "site.dashboards",
    "site.completion",
)
"""Command groups in the order of the help: `<folder>.<name>` is `<folder>/<name>_commands.py` and imports its tools when it runs."""
ABOVE = ("probing_cluster.web.web_commands",)
"""Groups of rooms above this one, which it must not import: found by name, where they are installed."""

QUICK = {"sql": "jobs.sql", "eval": "jobs.eval"}
"""Commands, with their groups, whose answer is waited for by the tenth of a second: their groups are loaded alone."""


def parser(first: str = "") -> command_line.Parser:
    """The command line, with every group that is installed; with the one alone that `first`, one of QUICK, names."""
    made = command_line.Parser(
        prog="probing-ctl",
        description="Runs and asks Probing Cluster.",
        epilog=commands.EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_version(made)
    register = commands.Commands(made)
    groups, above = ((QUICK[first],), ()) if first in QUICK else (GROUPS, ABOVE)
    for name in (*(f"probing_cluster.control_plane.cli.{group}_commands" for group in groups), *above):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name).register(register)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code. Of one of QUICK, in a process of its own, it ends the process."""
    code = run_command.run("probing-ctl", lambda: _run(argv), broken_pipe=128 + signal.SIGPIPE)
    if argv is None and sys.argv[1:2] and sys.argv[1] in QUICK:
        # All is written. To take Arrow and DataFusion down costs a tenth of the processor time of the whole command.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)
    return code


def _run(argv: Sequence[str] | None) -> int:
    given = sys.argv[1:] if argv is None else argv
    args = parser(given[0] if given else "").read(argv)
    args.own_process = argv is None
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
