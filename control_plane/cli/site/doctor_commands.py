"""`probing-ctl doctor`: every assumption about the site, checked, with the fix."""

from __future__ import annotations

import argparse
import dataclasses
import json

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import settings


def register(register: commands.Commands) -> None:
    """Adds `doctor`."""
    made = register.add(
        "doctor", _doctor, "check what we assume about Slurm, database, agents and rights; exit 1 on a fail"
    )
    made.add_argument(
        "--node",
        action="store_true",
        help="on a compute node: what only it can tell, without database and service",
    )
    made.add_argument("--json", action="store_true", help="one JSON array")
    made.add_argument("--all", action="store_true", help="show what is in order, too")


def _doctor(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.doctor import site_checks
    from probing_cluster.slurm_plugins import commands as slurm_commands

    path = args.config or (site_checks.node_settings_path() if args.node else None)
    config = settings.load(path)
    examine = site_checks.examine_node if args.node else site_checks.examine
    found = examine(config, slurm_commands.SlurmCommands(settings=config.slurm), path)
    if args.json:
        print(json.dumps([dataclasses.asdict(f) for f in found], indent=2))
    else:
        for finding in found:
            if finding.level == "ok" and not args.all:
                continue
            print(f"{finding.level:<5} {finding.name}: {finding.found}")
            for word, words in (("why", finding.why), ("fix", finding.fix)):
                if words:
                    print(f"      {word}: {words}")
        in_order = sum(f.level == "ok" for f in found)
        print(f"{in_order} of {len(found)} assumptions hold")
    return 1 if any(f.level == "fail" for f in found) else 0
