"""`probing-ctl ranks`, `stacks`, `watch`: what a running job's processes do now, for its owner and operators."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import clock, command_line, errors, settings

_EPILOG = """The job's owner, coordinators of its account and Slurm operators may look; the service knows who asks.
JOBID is 123, 123_4 (array task) or 123+1 (het component)."""
RECENT_S = 30.0
"""Agents take a job's stacks at most so often: younger ones are not asked for again."""
_TAKEN_S = 1.0
"""Between two looks for stacks that have been asked for."""


def register(register: commands.Commands) -> None:
    """Adds `ranks`, `stacks` and `watch`."""
    made = register.add("ranks", _ranks, "what every rank of a job does now", epilog=_EPILOG)
    made.add_argument("job", metavar="JOBID")
    made.add_argument("--all", action="store_true", help="a line for every rank, not one for those alike")
    made.add_argument("--json", action="store_true", help="one JSON object")
    made = register.add("stacks", _stacks, "the stacks of all ranks of a job as one tree", epilog=_EPILOG)
    made.add_argument("job", metavar="JOBID")
    made.add_argument("--last", action="store_true", help="those taken last, without asking the nodes anew")
    made.add_argument(
        "--wait",
        type=float,
        default=25.0,
        metavar="S",
        help="wait for new ones at most S seconds (default 25)",
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made = register.add("watch", _watch, "follow the ranks of a job until it ends", epilog=_EPILOG)
    made.add_argument("job", metavar="JOBID")
    made.add_argument(
        "--interval",
        type=command_line.seconds,
        default=2.0,
        metavar="S",
        help="seconds between looks (default 2)",
    )
    made.add_argument(
        "--count",
        type=command_line.whole,
        default=0,
        metavar="N",
        help="look N times, then stop (default: no end)",
    )
    made.add_argument("--all", action="store_true", help="a line for every rank, not one for those alike")
    made.add_argument("--json", action="store_true", help="one JSON object a line for every look")


def _ranks(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import gang_text

    document = _asker(args)("ranks")
    _print(args, document, lambda d: gang_text.ranks(_without_blame(d), width=_width(), everyone=args.all))
    return 0


def _without_blame(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ranks as they are shown: where no node has a page of any, none is named as if its agent were silent."""
    return document if document["ranks"] else {**document, "silent_nodes": []}


def _stacks(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import gang_text

    ask = _asker(args)
    document = ask("stacks", fresh=not args.last)
    if not args.last and not document["ended"]:
        document = _awaited(ask, document, args.wait)
    _print(args, document, lambda d: gang_text.tree(d, width=_width()))
    return 0


def _awaited(
    ask: Callable[..., Mapping[str, Any]], first: Mapping[str, Any], wait_s: float
) -> Mapping[str, Any]:
    """The stacks once every node that told before has told anew, or what there is when the wait is over."""
    request_at = datetime.fromisoformat(first["made_at"])
    end_s = clock.SYSTEM.monotonic_s() + wait_s
    document = first
    while not _complete(document, request_at) and clock.SYSTEM.monotonic_s() < end_s:
        time.sleep(min(_TAKEN_S, max(0.0, end_s - clock.SYSTEM.monotonic_s())))
        document = ask("stacks")
    return document


def _complete(document: Mapping[str, Any], request_at: datetime) -> bool:
    """Whether recent stacks of all ranks are there."""
    if document["at"] is None:
        return False
    recent = (request_at - datetime.fromisoformat(document["at"])).total_seconds() < RECENT_S
    n_ranks, world = document["n_ranks"], document["world_size"]
    return recent and not document["silent_nodes"] and (world is None or n_ranks >= world)


def _watch(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import gang_text
    from probing_cluster.reports import phrase

    if args.count < 0:
        raise errors.UsageError("--count must not be below 0")
    ask = _asker(args)
    screen = sys.stdout.isatty() and not args.json
    if screen:
        sys.stdout.write("\x1b[2J")
    looks = 0
    while True:
        document = ask("ranks")
        looks += 1
        if args.json:
            print(json.dumps(document, ensure_ascii=False))
        else:
            text = gang_text.ranks(_without_blame(document), width=_width(), everyone=args.all)
            height = shutil.get_terminal_size((80, 24)).lines - 1
            made_at = phrase.stamp_z(datetime.fromisoformat(document["made_at"]))
            lines = [f"{made_at}  every {args.interval:g} s, Ctrl-C ends", *text.splitlines()]
            sys.stdout.write(gang_text.changes(lines[:height]) if screen else "\n".join([*lines, "", ""]))
        sys.stdout.flush()
        if document["ended"] or looks == args.count:
            return 0
        time.sleep(args.interval)


def _asker(args: argparse.Namespace) -> Callable[..., Mapping[str, Any]]:
    """How this job is asked about: of the service, or of the database where the caller may open it."""
    from probing_cluster.reports import job_ref, source

    config = settings.load(args.config)
    ref = job_ref.parse(args.job)

    def ask(op: str, *, fresh: bool = False) -> Mapping[str, Any]:
        return source.document(
            config, ref, lambda url: _direct(url, config, ref, op, fresh), op=op, fresh=fresh
        )

    return ask


def _direct(url: str, config: settings.Settings, ref: Any, op: str, fresh: bool) -> Mapping[str, Any]:
    from probing_cluster.control_plane.gangs import gang_board
    from probing_cluster.db import store as db_store

    now = clock.SYSTEM.now()
    with db_store.Store.open(url) as store:
        gang = gang_board.find(store, config.cluster.name, ref, now)
        if fresh:
            gang_board.ask(store, gang)
        return gang_board.DOCUMENTS[op](store, gang, now)


def _print(
    args: argparse.Namespace, document: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str]
) -> None:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.stdout.write(
        json.dumps(document, indent=2, ensure_ascii=False) + "\n" if args.json else render(document)
    )


def _width() -> int:
    """The terminal's, within reason; 80 where there is none."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, 60), 160) if sys.stdout.isatty() else 80
