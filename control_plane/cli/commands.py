"""The register of `probing-ctl`'s commands: each group is a file `<group>_commands.py` with one `register`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import command_line

EXIT_CODES = """exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no such thing, 4 database unreachable,
5 not permitted, 6 Slurm unreachable, 7 malformed input, 8 (eval, sql) something did not answer and is named,
9 (eval) the expression raised"""
"""The help of every command ends with them."""

Run = Callable[[argparse.Namespace], int]


class Commands:
    """Where a group adds its commands; every one of them takes `--config`."""

    def __init__(self, parser: command_line.Parser, *, dest: str = "command") -> None:
        self._parsers = parser.add_subparsers(dest=dest, metavar="COMMAND", required=True, title="commands")

    def add(self, name: str, run: Run, meaning: str, *, epilog: str = "") -> argparse.ArgumentParser:
        """A command whose `run` gives the exit code."""
        made: command_line.Parser = self._parsers.add_parser(
            name,
            help=meaning,
            description=meaning[:1].upper() + meaning[1:] + ".",
            epilog=f"{epilog}\n\n{EXIT_CODES}" if epilog else EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument(
            "--config", metavar="FILE", type=Path, help="settings file (default $PROBING_CONFIG, else /etc)"
        )
        made.set_defaults(run=run)
        return made

    def group(self, name: str, meaning: str) -> Commands:
        """A command with commands of its own."""
        made = self._parsers.add_parser(
            name, help=meaning, description=meaning[:1].upper() + meaning[1:] + "."
        )
        return Commands(made, dest=f"{name}_command")
