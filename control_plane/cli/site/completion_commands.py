"""`probing-ctl completion SHELL`: the shell's own completion of our commands, written once."""

from __future__ import annotations

import argparse

from probing_cluster.control_plane.cli import commands

SHELLS = ("bash", "zsh", "tcsh")

_EPILOG = """bash: probing-ctl completion bash > /etc/bash_completion.d/probing-cluster
zsh:  probing-ctl completion zsh probing-ctl > /usr/local/share/zsh/site-functions/_probing-ctl
Write it again after an upgrade."""


def register(register: commands.Commands) -> None:
    """Adds `completion`."""
    made = register.add(
        "completion", _completion, "print a shell's completion of our commands and options", epilog=_EPILOG
    )
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    made.add_argument(
        "program",
        metavar="COMMAND",
        nargs="*",
        help="probing-ctl, probing-report, probing-check (default: all three)",
    )


def _completion(args: argparse.Namespace) -> int:
    import shtab

    from probing_cluster.core import errors

    known = parsers()
    unknown = [name for name in args.program if name not in known]
    if unknown:
        raise errors.NotFound(f"{unknown[0]!r} is none of {', '.join(known)}")
    for name in args.program or known:
        print(shtab.complete(known[name], args.shell))
    return 0


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The commands that people type, with their options."""
    from probing_cluster.control_plane.cli import main
    from probing_cluster.healthchecks import cli as check_cli
    from probing_cluster.reports import cli as report_cli

    return {
        "probing-ctl": main.parser(),
        "probing-report": report_cli.parser(),
        "probing-check": check_cli.parser(),
    }
