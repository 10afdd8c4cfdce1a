"""`probing-agent`: the node daemon."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from probing_cluster.core import command_line
from probing_cluster.core.ending import run_command


def main(argv: list[str] | None = None) -> int:
    """Run the agent until it is stopped; `--once` reads everything once, delivers and prints what it saw."""
    return run_command.run("probing-agent", lambda: _run(argv))


def _run(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="probing-agent", description="The node daemon of Probing Cluster.")
    parser.add_argument(
        "--config", type=Path, help="the TOML file; default $PROBING_CONFIG or /etc/probing-cluster"
    )
    parser.add_argument(
        "--once", action="store_true", help="read every source once, deliver, print JSON, exit"
    )
    parser.add_argument("--verbose", action="store_true", help="log what is done, not only what is wrong")
    command_line.add_version(parser)
    args = parser.parse_args(argv)

    from probing_cluster.core import logs, settings
    from probing_cluster.probe_agent import daemon

    level = logging.INFO if args.verbose else logging.WARNING
    if args.once:
        logging.basicConfig(level=level, format="probing-agent %(levelname)s %(name)s: %(message)s")
    else:
        logs.configure(level=level)
    daemon.run(settings.load(args.config), once=args.once, emit=_print)
    return 0


def _print(status: dict[str, Any]) -> None:
    print(json.dumps(status, indent=2, sort_keys=True, default=str))


if __name__ == "__main__":
    sys.exit(main())
