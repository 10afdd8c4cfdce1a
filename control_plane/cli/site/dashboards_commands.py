"""`probing-ctl dashboards DIRECTORY` and `alerts`: what Grafana and Prometheus are given."""

from __future__ import annotations

import argparse
from pathlib import Path

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import errors

DIRECTORY = Path(__file__).parent / "dashboards"
RULES = DIRECTORY / "alerts.yml"


def register(register: commands.Commands) -> None:
    """Adds `dashboards` and `alerts`."""
    made = register.add("dashboards", _dashboards, "write the Grafana dashboards into a directory")
    made.add_argument(
        "directory", metavar="DIRECTORY", type=Path, help="where Grafana's file provisioning looks"
    )
    register.add("alerts", _alerts, "print alerting rules for Prometheus")


def _alerts(_: argparse.Namespace) -> int:
    print(RULES.read_text(encoding="utf-8"), end="")
    return 0


def _dashboards(args: argparse.Namespace) -> int:
    try:
        args.directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(DIRECTORY.glob("*.json")):
            target = args.directory / f"probing-{path.name}"
            target.write_bytes(path.read_bytes())
            print(target)
    except OSError as exc:
        raise errors.UsageError(f"{args.directory} cannot be written: {exc.strerror}") from exc
    return 0
