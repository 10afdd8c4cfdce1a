"""`probing-ctl eval`: the value of an expression inside the processes of a live job, for its owner alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import command_line, errors, settings

if TYPE_CHECKING:
    from probing_cluster.live.ways import streams

_EPILOG = """For the job's owner alone, and only in a job started with --probing=live, or made so by --make-live. EXPR sees the locals of the
functions of the program's own file that the main thread is in, that file's globals, and the modules that are loaded. It runs inside the process:
while it holds the GIL the rank stands still, and nothing can stop it. JOBID is 123, 123_4 (array task) or 123+1 (het component).
Exit code 8: a rank did not answer; 9: all answered, and in one or more the expression raised.
example: probing-ctl eval 4242 --rank 3 "torch.cuda.memory_allocated() / 2**30\""""
PARTIAL = 8
"""Exit code when something did not answer."""
RAISED = 9
"""Exit code when all answered and the expression raised in one of them."""
START_S = 3.0
"""Beyond a rank's own time, for the step to start and the answer to travel."""
_PLACE = ("node", "rank", "pid", "at", "error")


def register(register: commands.Commands) -> None:
    """Adds `eval`."""
    made = register.add(
        "eval", _eval, "the value of an expression inside the processes of a live job", epilog=_EPILOG
    )
    made.add_argument("job", metavar="JOBID")
    made.add_argument("expression", metavar="EXPR")
    made.add_argument("--rank", type=command_line.whole, metavar="R", help="this rank (default: all)")
    made.add_argument(
        "--timeout", type=float, default=3.0, metavar="S", help="wait for an answer S seconds (default 3)"
    )
    made.add_argument(
        "--local", action="store_true", help="the ranks of this node, one of the job's, without Slurm"
    )
    made.add_argument(
        "--make-live",
        action="store_true",
        help="first make processes live that were not started so (Python 3.14 and later)",
    )
    made.add_argument("--quiet", dest="no_warning", action="store_true", help="without the warning")
    made.add_argument("--json", action="store_true", help="one JSON object a rank")


def _eval(args: argparse.Namespace) -> int:
    from probing_cluster.live.ways import choosing
    from probing_cluster.probe_agent.ranks import evaluate

    if not 0 < args.timeout <= 600:
        raise errors.UsageError("--timeout must be above 0 and at most 600")
    evaluate.check(args.expression)
    config = settings.load(args.config)
    nodes = choosing.open_nodes(config, args.job, "local" if args.local else "auto")
    try:
        nodes.require_owner()
        if not args.no_warning:
            print(f"probing-ctl: {evaluate.WARNING}", file=sys.stderr)
        return _show(_answers(nodes, args), args)
    finally:
        nodes.close()


def _answers(nodes: Any, args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[streams.Missing]]:
    """A row per value, and what did not answer. Only the rank that is named evaluates."""
    from probing_cluster.live.session import unpacking  # while the collectors start
    from probing_cluster.live.table import Scan
    from probing_cluster.live.tables.python import own
    from probing_cluster.live.ways import streams

    wanted = None if args.rank is None else {"op": "=", "column": "rank", "value": args.rank}
    # A bare name would be one of the program's own tables.
    expression = f"({args.expression})" if args.expression.isidentifier() else args.expression
    scan = Scan(table=f"python.{expression}", condition=wanted, make_live=args.make_live)
    node_s = args.timeout + own.LOOK_S
    reply = nodes.ask([scan], node_s + START_S, node_s=node_s)
    rows: list[dict[str, Any]] = []
    missing = list(reply.missing)
    for node, data in reply.frames:
        try:
            frame = unpacking.unpack(data, node)
        except errors.MalformedInput as exc:
            missing.append(streams.Missing(node=node, reason=str(exc)))
            continue
        rows += unpacking.for_python(frame.rows).to_pylist()
        missing += [streams.Missing(node=frame.node, rank=rank, reason=why) for rank, why in frame.missing]
    rows.sort(key=lambda r: (-1 if r["rank"] is None else r["rank"], r["node"]))
    return rows, missing


def _show(found: tuple[list[dict[str, Any]], list[streams.Missing]], args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import table

    rows, missing = found
    if not rows and not missing:
        which = f"rank {args.rank}" if args.rank is not None else "no rank"
        raise errors.NotFound(
            f"job {args.job}: {which} {'has no page on its nodes' if args.rank is not None else 'has a page'}: "
            "the probe knows a rank once it has imported torch or has a table of probing_tables (probing-ctl ranks shows which there are)"
        )
    has_raised = any(row.get("error") is not None for row in rows)
    if args.json:
        for answer in _by_rank(rows):
            print(json.dumps(answer, ensure_ascii=False))
    elif rows:
        names = [n for n in dict.fromkeys(n for row in rows for n in row) if n != "at"]
        names = [n for n in names if n in ("node", "rank", "pid") or any(r.get(n) is not None for r in rows)]
        print(table.render(names, [[_text(row.get(n)) for n in names] for row in rows]))
    for one in missing:
        place = f"rank {one.rank} on {one.node}" if one.rank is not None else one.node or args.job
        print(f"probing-ctl: {place}: {one.reason}", file=sys.stderr)
    return PARTIAL if missing else RAISED if has_raised else 0


def _by_rank(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One object a rank: its place, the columns of its value with their rows, what it raised."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        columns = [n for n in row if n not in _PLACE]
        place = {name: row[name] for name in ("node", "rank", "pid")}
        one = found.setdefault(
            tuple(place.values()), {**place, "columns": columns, "rows": [], "error": row.get("error")}
        )
        if row.get("error") is None:
            one["rows"].append([row[n] for n in columns])
    return list(found.values())


def _text(value: Any) -> Any:
    # As Python writes it: the table's two decimals are for people who look at many.
    return repr(value) if isinstance(value, float) else value
