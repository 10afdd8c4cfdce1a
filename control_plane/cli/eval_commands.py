"""`probing-ctl eval`: the value of an expression inside the processes of a live job, for its owner alone."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import digits, errors, sanitize, settings

_EPILOG = """For the job's owner alone, and only in a job started with --probing=live. EXPR sees the locals of the functions of the
program's own file that the main thread is in, that file's globals, and the modules that are loaded. It runs inside the process:
while it holds the GIL the rank stands still, and nothing can stop it. JOBID is 123, 123_4 (array task) or 123+1 (het component).
Exit code 8: a rank did not answer.
example: probing-ctl eval 4242 --rank 3 "torch.cuda.memory_allocated() / 2**30\""""
PARTIAL = 8
"""Exit code when something did not answer."""


def register(register: commands.Commands) -> None:
    """Adds `eval`."""
    made = register.add(
        "eval", _eval, "the value of an expression inside the processes of a live job", epilog=_EPILOG
    )
    made.add_argument("job", metavar="JOBID")
    made.add_argument("expression", metavar="EXPR")
    made.add_argument("--rank", type=int, metavar="R", help="this rank (default: all)")
    made.add_argument(
        "--timeout", type=float, default=3.0, metavar="S", help="wait for an answer S seconds (default 3)"
    )
    made.add_argument(
        "--local", action="store_true", help="the ranks of this node, one of the job's, without Slurm"
    )
    made.add_argument("--quiet", action="store_true", help="without the warning")
    made.add_argument("--json", action="store_true", help="one JSON object a rank")


def _eval(args: argparse.Namespace) -> int:
    from probing_cluster.probe_agent.ranks import evaluate

    if not 0 < args.timeout <= 600:
        raise errors.UsageError("--timeout must be above 0 and at most 600")
    evaluate.check(args.expression)
    config = settings.load(args.config)
    if not args.quiet:
        print(f"probing-ctl: {evaluate.WARNING}", file=sys.stderr)
    question = {"expression": args.expression, "rank": args.rank, "deadline_s": args.timeout}
    ask = _here if args.local else _by_step
    replies = ask(config, args.job, question)
    return _show(replies, args)


def _here(config: settings.Settings, job: str, question: Mapping[str, Any]) -> list[dict[str, Any]]:
    from probing_cluster.probe_agent.ranks import evaluate_child

    directory = Path(config.agent.job_directory) / job
    if not digits.is_number(job) or not directory.is_dir():
        raise errors.NotFound(
            f"{directory} is not there: --local is for one of the job's nodes, and for its raw id"
        )
    try:
        answers = evaluate_child.answers(dict(question), directory)
    except PermissionError as exc:
        raise errors.NotPermitted(f"job {job} is another user's: only its owner may evaluate in it") from exc
    return [{"node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename, "answers": answers}]


def _by_step(config: settings.Settings, job: str, question: Mapping[str, Any]) -> list[dict[str, Any]]:
    from probing_cluster.probe_agent.ranks import evaluate_child
    from probing_cluster.slurm_plugins import commands as slurm_commands
    from probing_cluster.slurm_plugins.live import job_step

    run = slurm_commands.SlurmCommands(settings=config.slurm)
    running = job_step.running(run, job)
    if running[0].uid != os.geteuid():
        raise errors.NotPermitted(
            f"job {job} belongs to {running[0].user}: only a job's owner may evaluate in it, not even an operator"
        )
    replies: list[dict[str, Any]] = []
    for part in running:
        asked = {**question, "base": config.agent.job_directory, "job_id": part.job_id}
        command = [sys.executable, "-I", "-m", evaluate_child.__name__]
        variables = {evaluate_child.VARIABLE: json.dumps(asked), "PROBING": "on"}
        replies += [json.loads(raw) for raw in job_step.run_on_nodes(run, part, command, variables)]
    return replies


def _show(replies: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import table

    answers = [{"node": r["node"], **a} for r in replies for a in r.get("answers", ())]
    answers.sort(key=lambda a: (a["rank"] if a["rank"] is not None else -1, a["node"]))
    lines = [f"{sanitize.clean(str(r['node']), 64)}: {r['failed']}" for r in replies if "failed" in r]
    if not answers and not lines:
        which = f"rank {args.rank}" if args.rank is not None else "no rank"
        raise errors.NotFound(
            f"job {args.job}: {which} {'has no page on its nodes' if args.rank is not None else 'has a page'}: "
            "the probe names a rank once it has imported torch (probing-ctl ranks shows which there are)"
        )
    if args.json:
        for answer in answers:
            print(json.dumps(answer, ensure_ascii=False))
    else:
        rows = _rows(answers)
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            print(table.render(columns, [[_text(row.get(c)) for c in columns] for row in rows]))
    lines += [f"rank {a['rank']} on {a['node']}: {a['missing']}" for a in answers if a["missing"]]
    for line in lines:
        print(f"probing-ctl: {line}", file=sys.stderr)
    return PARTIAL if lines else 0


def _rows(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for answer in answers:
        place = {"rank": answer["rank"], "node": answer["node"], "pid": answer["pid"]}
        if answer["error"] is not None:
            rows.append({**place, "error": answer["error"]})
        rows += [{**place, **dict(zip(answer["columns"], row, strict=True))} for row in answer["rows"]]
    return rows


def _text(value: Any) -> Any:
    # As Python writes it: the table's two decimals are for people who look at many.
    return repr(value) if isinstance(value, float) else value
