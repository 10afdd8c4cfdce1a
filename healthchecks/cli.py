"""`probing-check`: run, list and explain the health checks by hand; needs no agent, no Slurm, no database."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from probing_cluster.core import certificates, command_line, errors, settings
from probing_cluster.core.ending import run_command
from probing_cluster.healthchecks import (
    checkresults,
    exit_codes,
    genconf,
    manual,
    nodeview,
    registry,
    runner,
    site,
    table,
)
from probing_cluster.healthchecks.readers import slurm_conf


class _Parser(command_line.Parser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(exit_codes.USAGE)


def parser() -> _Parser:
    """The command line."""
    top = _Parser(prog="probing-check", description="Health checks of this node, by hand.")
    command_line.add_version(top)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    listing = commands.add_parser("list", help="every check, whether it is on, and what it proves")
    running = commands.add_parser("run", help="run checks now and say what was found")
    running.add_argument("names", nargs="*", metavar="NAME", help="checks to run (default: all that are on)")
    running.add_argument("--all", action="store_true", help="list absent checks one by one")
    running.add_argument(
        "--state", metavar="FILE", help="remember counters here, so that the next run sees what is new"
    )
    explaining = commands.add_parser(
        "explain", help="what a check proves, its limits and where they come from, what to do"
    )
    explaining.add_argument("name", metavar="NAME")
    making = commands.add_parser(
        "genconf", help="write a site file from this (healthy) node to standard output"
    )
    making.add_argument("--match", metavar="PATTERN", help="write it as a [[nodes]] section for these nodes")
    _add_common(listing, running, explaining, making)
    return top


def _add_common(listing: _Parser, running: _Parser, explaining: _Parser, making: _Parser) -> None:
    for command in (listing, running, explaining, making):
        command.add_argument("--site", metavar="FILE", help="site file (default: [checks] site_file)")
        command.add_argument(
            "--node", metavar="NAME", help="node name (default: SLURMD_NODENAME, else the host name)"
        )
    for command in (listing, running):
        command.add_argument("--json", action="store_true", help="JSON instead of a table")
    for command in (running, making):
        command.add_argument(
            "--root", metavar="DIR", help="directory to take for the node's / (default: [agent] root)"
        )
        command.add_argument(
            "--nvml-library", metavar="FILE", help="libnvidia-ml.so.1 to load (default: the loader's)"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is documented in docs/checks.md."""
    return run_command.run(
        "probing-check",
        lambda: _command(parser().read(argv)),
        code_of=lambda exc: exit_codes.CONFIG if isinstance(exc, errors.SettingsError) else exit_codes.USAGE,
        failed=exit_codes.ERROR,
    )


def _command(args: argparse.Namespace) -> int:
    return {"list": _list, "run": _run, "explain": _explain, "genconf": _genconf}[args.command](args)


def _settings() -> settings.Settings:
    return settings.load()


def _site_path(args: argparse.Namespace, settings: settings.Settings) -> Path | None:
    if args.site:
        site.load(Path(args.site))  # a file named by hand must be right
        return Path(args.site)
    return Path(settings.checks.site_file) if settings.checks.site_file else None


def _spec(args: argparse.Namespace, settings: settings.Settings) -> nodeview.NodeSpec:
    spec = nodeview.NodeSpec(
        node=_node(args, settings),
        cluster=settings.cluster.name,
        root=Path(args.root or settings.agent.root).absolute(),
        command_dirs=tuple(settings.checks.command_directories),
        nvml_library=args.nvml_library or settings.agent.nvml_library or None,
        certificates=tuple(certificates.named(settings)),
    )
    return slurm_conf.expecting(spec)


def _node(args: argparse.Namespace, settings: settings.Settings) -> str:
    return args.node or settings.agent.node or runner.local_node()


def _run(args: argparse.Namespace) -> int:
    settings = _settings()
    names = [registry.get(n).name for n in args.names] or None
    site_file = site.SiteFile(_site_path(args, settings))
    state = Path(args.state) if args.state else None
    engine = runner.CheckRunner(
        _spec(args, settings), site_file, state_file=state, watchdog_s=settings.checks.watchdog_s
    )
    swept = engine.run(names, force=True)
    for name in sorted(set(names or ()) - {r.name for r in swept.results}):
        print(f"probing-check: {name} is switched off by the site file", file=sys.stderr)
    code = exit_codes.of(swept.results)
    if args.json:
        rows = [checkresults.to_json(r) for r in swept.results]
        print(
            json.dumps(
                {
                    "node": engine.spec.node,
                    "exit_code": code,
                    "wall_s": round(swept.wall_s, 4),
                    "results": rows,
                },
                indent=2,
            )
        )
        return code
    print(table.render(swept.results, every=args.all or names is not None))
    print(f"\n{engine.spec.node}: {swept.heartbeat.message} in {swept.wall_s:.2f} s")
    return code


def _list(args: argparse.Namespace) -> int:
    settings = _settings()
    plans = site.SiteFile(_site_path(args, settings)).current().plan(_node(args, settings))
    if args.json:
        rows = [{"name": n, "proves": p.check.proves, **site.describe(p)} for n, p in plans.items()]
        print(json.dumps(rows, indent=2))
    else:
        print(table.listing(list(plans.values())))
    return exit_codes.OK


def _explain(args: argparse.Namespace) -> int:
    settings = _settings()
    check = registry.get(args.name)
    plan = site.SiteFile(_site_path(args, settings)).current().plan(_node(args, settings))[check.name]
    print(table.explain(check.name, manual.rows(plan)))
    return exit_codes.OK


def _genconf(args: argparse.Namespace) -> int:
    settings = _settings()
    site_file = site.SiteFile(_site_path(args, settings))
    made = genconf.make(_spec(args, settings), site_file.current(), match=args.match)
    for problem in made.problems:
        print(f"probing-check: {problem}", file=sys.stderr)
    print(made.text, end="")
    return exit_codes.WARN if made.problems else exit_codes.OK


if __name__ == "__main__":
    sys.exit(main())
