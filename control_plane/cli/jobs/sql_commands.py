"""`probing-ctl sql`: SQL over the processes of a running job, for its owner."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import command_line, digits, errors, settings

if TYPE_CHECKING:
    from probing_cluster.live.session import session
    from probing_cluster.live.ways import agents, choosing, streams

_EPILOG = """The tables are in docs/live.md; SELECT table_schema, table_name FROM information_schema.tables lists them.
Without QUERY a console opens. JOBID is 123, 123_4 (array task) or 123+1 (het component). What did not answer is named on
standard error and is a row of cluster.missing; the exit code is then 8.
example: probing-ctl sql 4242 "SELECT rank, node, step, inside, seconds_inside FROM cluster.ranks ORDER BY rank\""""
PARTIAL = 8
"""Exit code of an answer with something missing."""
_SHOWN = 5


def register(register: commands.Commands) -> None:
    """Adds `sql`."""
    made = register.add("sql", _sql, "SQL over the processes of a running job, for its owner", epilog=_EPILOG)
    made.add_argument("job", metavar="JOBID")
    made.add_argument("query", metavar="QUERY", nargs="?", help="one statement, or - for standard input")
    made.add_argument(
        "--format",
        choices=("table", "json", "csv", "arrow", "parquet"),
        default="table",
        help="how to print the rows",
    )
    made.add_argument(
        "--timeout",
        type=command_line.seconds,
        metavar="S",
        help="what has not answered after S seconds is missing (default 5; through the agents 20)",
    )
    made.add_argument(
        "--watch",
        type=command_line.seconds,
        metavar="S",
        help="ask again every S seconds, through one open step",
    )
    made.add_argument(
        "--via",
        choices=("auto", "local", "slurm", "agents"),
        default="auto",
        help="how the nodes are asked: by a Slurm step, only this one without Slurm, or by service and agents (default auto)",
    )


def _sql(args: argparse.Namespace) -> int:
    from probing_cluster.live.ways import choosing

    config = settings.load(args.config)
    query = sys.stdin.read() if args.query == "-" else args.query

    def mailbox() -> agents.Mailbox:
        from probing_cluster.control_plane.gangs import mailbox as mailboxes

        return mailboxes.JobMailbox(config, args.job)

    # The collectors start while our own libraries load.
    try:
        nodes = choosing.open_nodes(config, args.job, args.via, mailbox)
    except errors.NotFound as exc:
        return _kept(args, config, query, exc)
    try:
        if args.own_process:
            from probing_cluster.live.session import lean

            lean.load()
        from probing_cluster.live.session import postgres, session

        patience_s = config.live.agents_timeout_s if nodes.way == "agents" else config.live.timeout_s
        timeout_s = args.timeout if args.timeout is not None else patience_s
        asking = session.Session(
            nodes, timeout_s=timeout_s, beside=postgres.Postgres(config), on_expression=_Warning(nodes)
        )
        if query is None:
            from probing_cluster.live.session import console

            return console.run(asking, args.job, lambda result: _show(args, result), _print_status)
        if args.watch is not None:
            return _watch(args, asking, query, _least_every_s(nodes.way))
        return _show(args, asking.sql(query))
    finally:
        nodes.close()


def _kept(
    args: argparse.Namespace, config: settings.Settings, query: str | None, over: errors.NotFound
) -> int:
    """The same statement over what the nodes kept of the job's last attempt; raises `over` where that is nothing."""
    from probing_cluster.attribution.history import kept, kept_sql
    from probing_cluster.live.session import session

    directory = kept.directory_of(config.kept)
    job_id = int(args.job) if digits.is_number(args.job) else None
    found = kept.attempts(directory, config.cluster.name, job_id) if directory and job_id is not None else []
    if not found and args.via == "local":
        raise over  # it may well run, elsewhere
    if not found:
        raise errors.NotFound(_nothing_kept(args.job, directory, config.kept.days, over)) from over
    if args.watch is not None and query is not None:
        raise errors.UsageError(
            f"job {args.job} is over: what was kept of it does not change; leave out --watch"
        )
    _print_status(f"job {args.job} is over: what was kept of its start {found[-1].name.rpartition('-')[2]}")
    tables = kept.tables(found[-1])
    asking = session.KeptSession(kept_sql.context(tables), tables)
    if query is None:
        from probing_cluster.live.session import console

        return console.run(asking, args.job, lambda result: _show(args, result), _print_status)
    return _show(args, asking.sql(query))


_UNPROBED = (
    "no process of the job has a page of the probe, so nothing can be read of its ranks: none has imported torch (yet), or its PYTHONPATH "
    "was lost on the way (a container, python -I or -E), or the probe is off (PROBING=off, --probing=off), or the job was started before "
    "it was installed (docs/probe.md); the tables of gpu, nic, cpu and kernel need none, nor do those of python.* that its program writes itself"
)


def _nothing_kept(job: str, directory: Path | None, days: float, over: errors.NotFound) -> str:
    """Why neither the job nor what was kept of it can be asked, and what can be done instead."""
    from probing_cluster.evidence import kept_file

    fact, _, way = str(over).partition("; ")
    if directory is None:
        where = "this site keeps no tables of ended jobs ([kept] directory)"
    elif digits.is_number(job) and (why := kept_file.why_not_own(directory, os.geteuid())):
        where = f"nothing of it was kept, for {why}: whoever runs this service can give it back"
    elif digits.is_number(job):
        where = (
            f"nothing of it was kept in {directory} (kept are, for {days:g} days and for their owner alone, "
            "jobs in which the probe ran)"
        )
    else:
        where = f"what was kept is found by the raw job id (sacct -X -n -o JobIDRaw -j {job})"
    report = (
        "" if "probing-report" in way else f"; probing-report {job} tells what is known of a job that is over"
    )
    return f"{fact}, and {where}{f'; {way}' if way else ''}{report}"


class _Warning:
    """Says once what an expression may do to the job, where it may run at all."""

    def __init__(self, nodes: choosing.Nodes | agents.AgentNodes) -> None:
        self._nodes = nodes
        self._is_out = False

    def __call__(self) -> None:
        from probing_cluster.probe_agent.ranks import evaluate

        self._nodes.require_owner()
        if not self._is_out:
            _print_status(evaluate.WARNING)
        self._is_out = True


def _least_every_s(way: str) -> float:
    from probing_cluster.live.ways import agents

    return agents.LEAST_EVERY_S if way == "agents" else 0.0


def _watch(args: argparse.Namespace, asking: session.Session, query: str, least_s: float) -> int:
    """The same statement again and again, until Ctrl-C or the end of the job; not sooner again than after `least_s`."""
    from probing_cluster.live.session import console

    every_s = max(args.watch, least_s)
    if every_s > args.watch:
        _print_status(f"through the agents it is asked every {every_s:g} s")
    while True:
        began_s = time.monotonic()
        code = _show(args, asking.sql(query))
        if asking.over:
            _print_status(console.OVER)
            return code
        time.sleep(max(0.0, every_s - (time.monotonic() - began_s)))
        if args.format == "table":
            print()


def _show(args: argparse.Namespace, result: session.Result) -> int:
    """Prints rows and what is missing; the exit code."""
    from probing_cluster.control_plane.terminal import table
    from probing_cluster.live.session import output

    output.write(result.rows, args.format, sys.stdout.buffer, table.render)
    if not result.rows.num_rows and args.format == "table":
        _print_status("no rows")
    if result.unprobed:
        _print_status(_UNPROBED)
    words = missing_words(result.missing, result.n_ranks, result.world_size)
    for line in words:
        _print_status(line)
    return PARTIAL if words else 0


def _print_status(line: str) -> None:
    print(f"probing-ctl: {line}", file=sys.stderr)


def missing_words(missing: Sequence[streams.Missing], n_ranks: int, world_size: int) -> list[str]:
    """What a person must know of an answer that is not whole: a line, and one for each reason; empty when it is whole."""
    if not missing:
        return []
    by_reason: dict[tuple[str, str | None], list[Any]] = {}
    for one in missing:
        by_reason.setdefault((one.reason, one.table), []).append(one)
    parts = [f"{_places(found)}: {reason}" for (reason, _), found in by_reason.items()]
    more = [f"… {len(parts) - _SHOWN} more reasons in cluster.missing"] if len(parts) > _SHOWN else []
    counted = f"{n_ranks} of {world_size} ranks; " if world_size > n_ranks else ""
    return [f"{counted}{parts[0]}", *parts[1:_SHOWN], *more]


def _places(found: Sequence[streams.Missing]) -> str:
    nodes = sorted({m.node for m in found if m.node}, key=lambda name: (len(name), name))
    ranks = sorted({m.rank for m in found if m.rank is not None})
    words = []
    if ranks:
        words.append(
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{' …' if len(ranks) > 8 else ''}"
        )
    if nodes:
        words.append(f"{', '.join(nodes[:8])}{f' and {len(nodes) - 8} more' if len(nodes) > 8 else ''}")
    table = found[0].table
    return (
        " on ".join(words) + (f", {table}" if table and words else table or "" if not words else "") or "job"
    )
