"""`probing-ctl diagnose|swap-search`: tests of nodes, now, as a job of one's own; and which node makes a job slow."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.cli.nodes import nodes_commands
from probing_cluster.core import clock, command_line, errors, hostlist, records, settings

if TYPE_CHECKING:
    from probing_cluster.control_plane.policy import view
    from probing_cluster.control_plane.repair import round_findings
    from probing_cluster.db import store as db_store
    from probing_cluster.slurm_plugins.acts import job_steps

_EPILOG = """The tests run as a job of yours that takes the nodes whole: they wait for nobody's job and run beside none. Nodes that
Probing Cluster drained are tested by its repair workflow, in a reservation: `probing-ctl repair release NODE`.
`probing-diagnose --list` says what each test proves."""


def register(register: commands.Commands) -> None:
    """Adds `diagnose` and `swap-search`."""
    made = register.add(
        "diagnose", _diagnose, "test nodes now, and say which node or link is at fault", epilog=_EPILOG
    )
    made.add_argument("node", nargs="*", metavar="NODE", help="hostlists")
    made.add_argument(
        "--job", metavar="JOBID", help="the nodes of this job's latest attempt: 123, 123_4 or 123+1"
    )
    made.add_argument(
        "--suspects",
        action="store_true",
        help="the nodes with a fault and without a drain, and lemon suspects",
    )
    made.add_argument(
        "--tests", metavar="NAME,…", default="", help="only these tests (default [diagnostics] tests)"
    )
    made.add_argument(
        "--reference",
        metavar="NODE",
        action="append",
        default=[],
        help="hostlist of idle nodes to test against",
    )
    made.add_argument(
        "--every-link",
        action="store_true",
        help="test every pair: finds every bad link, in as many rounds as there are nodes",
    )
    made.add_argument(
        "--wait",
        type=command_line.seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for the nodes (default 60)",
    )
    made.add_argument("--dry-run", action="store_true", help="print the plan and end")
    made.add_argument("--json", action="store_true", help="one JSON object")
    made.add_argument("--html", metavar="FILE", type=Path, help="write a self-contained page as well")

    made = register.add(
        "swap-search",
        _swap_search,
        "which node makes a job slow, by replacing some at a time (every test passes alone)",
    )
    made.add_argument("job", metavar="JOBID", help="the job that became slow: 123, 123_4 or 123+1")
    made.add_argument(
        "--spares",
        type=command_line.whole,
        default=1,
        metavar="N",
        help="nodes that can be replaced at once (default 1)",
    )
    made.add_argument(
        "--stretch",
        metavar="HOSTLIST=SECONDS",
        action="append",
        default=[],
        help="a further stretch of the training: its nodes and its step time",
    )
    made.add_argument(
        "--good",
        type=command_line.seconds,
        metavar="SECONDS",
        help="step time before it slowed (default: from the run's earlier attempts)",
    )
    made.add_argument(
        "--slow",
        type=command_line.seconds,
        metavar="SECONDS",
        help="step time since (default: the present one)",
    )
    made.add_argument("--json", action="store_true", help="one JSON object")


def _diagnose(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.policy import slurm_actions
    from probing_cluster.db import store as db_store
    from probing_cluster.diagnostics import registry
    from probing_cluster.slurm_plugins import commands as slurm_commands
    from probing_cluster.slurm_plugins import topology

    config = settings.load(args.config)
    tests = tuple(
        t.name for t in registry.chosen([t for t in args.tests.split(",") if t] or config.diagnostics.tests)
    )
    with db_store.Store.open(config) as store:
        slurm = slurm_actions.SlurmActions(config, slurm_commands.SlurmCommands(settings=config.slurm))
        nodes = {n.name: n for n in slurm.nodes()}
        names, references = _wanted(args, store, config), _expanded(args.reference)
        if not args.node:
            names = _those_free(names, nodes)
        _require_free([*names, *references], nodes)
        everyone = [*names, *references]
        plan = [
            _plan(args, names, references, tests, config),
            *_busy(everyone, nodes),
            *_too_few(everyone, nodes, tests),
        ]
        if not (args.json and args.dry_run):
            print("\n".join(plan), file=sys.stderr if args.json else sys.stdout, flush=True)
        if args.dry_run:
            if args.json:
                print(
                    json.dumps(
                        {"nodes": names, "references": references, "tests": tests, "plan": plan}, indent=2
                    )
                )
            return 0
        if not store.may_add_results():
            raise errors.NotPermitted(
                "this database login may not store results, so no node is taken; ask as an operator (probing-ctl db add-login)"
            )
        found = _run(args, config, store, nodes, names, references, tests, topology.leaves(slurm.places()))
        store.add_results(found.results)
    if args.html:
        _page(args.html, config.cluster.name, found, names)
    from probing_cluster.control_plane.terminal import diagnose_text

    print(
        json.dumps(diagnose_text.plain(found, names), indent=2)
        if args.json
        else diagnose_text.text(found, names)
    )
    return 0 if diagnose_text.is_clean(found, names) else 1


def _swap_search(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.imports import job_outputs
    from probing_cluster.control_plane.repair import swap_search
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    with db_store.Store.open(config) as store:
        found = swap_search.search(
            store,
            config.cluster.name,
            job_outputs.attempt_of(store, args.job, cluster=config.cluster.name).job_id,
            spares=args.spares,
            given=args.stretch,
            good_s=args.good,
            slow_s=args.slow,
        )
    print(json.dumps(found.plain(), indent=2) if args.json else found.text())
    return 0


def _expanded(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in hostlist.expand(text)))


def _wanted(args: argparse.Namespace, store: db_store.Store, config: settings.Settings) -> list[str]:
    given = [bool(args.node), args.job is not None, args.suspects]
    if sum(given) != 1:
        raise errors.UsageError("name nodes, or --job JOBID, or --suspects: one of the three")
    if args.node:
        names = _expanded(args.node)
    elif args.job is not None:
        from probing_cluster.control_plane.imports import job_outputs

        names = list(job_outputs.attempt_of(store, args.job, cluster=config.cluster.name).nodes)
        if not names:
            raise errors.NotFound(f"the nodes of job {args.job} are not in the accounting")
    else:
        names = _suspects(store, config)
        if not names:
            raise errors.NotFound("there is no suspect: no undrained node with a fault, and no lemon suspect")
    if not names:
        raise errors.UsageError("that names no node")
    return names


def _suspects(store: db_store.Store, config: settings.Settings) -> list[str]:
    acting = {records.Severity.HIGH.value, records.Severity.LOW.value}
    drained = {d.node for d in store.drains(open_only=True, cluster=config.cluster.name)}
    faulty = {
        b.node
        for b in store.heartbeats(cluster=config.cluster.name)
        if any(isinstance(f, dict) and f.get("severity") in acting for f in b.faults.values())
    }
    lemons = {
        s.node
        for s in store.lemon_scores()
        if s.cluster == config.cluster.name and s.verdict in {"lemon", "suspect"}
    }
    return sorted((faulty | lemons) - drained)


def _require_free(names: Sequence[str], nodes: dict[str, view.Node]) -> None:
    from probing_cluster.control_plane.repair import by_hand

    nodes_commands.require_known(names, nodes)
    by_hand.require_free(names, nodes)


def _those_free(names: list[str], nodes: dict[str, view.Node]) -> list[str]:
    """The names of nodes that can take a job now; the others are printed and left out. Raises NotPermitted where there is none."""
    from probing_cluster.control_plane.repair import by_hand

    out = {name: why for name in names if (why := by_hand.why_taken(name, nodes.get(name)))}
    for why in out.values():
        print(f"left out: {why}", file=sys.stderr)
    free = [name for name in names if name not in out]
    if not free:
        raise errors.NotPermitted(f"none of {hostlist.compress(names)} takes a test now")
    return free


def _busy(names: Sequence[str], nodes: dict[str, view.Node]) -> list[str]:
    from probing_cluster.control_plane.repair import workflow

    busy = [name for name in names if nodes[name].states & workflow.BUSY]
    return [f"jobs run on {hostlist.compress(busy)} now: the tests wait for their ends"] if busy else []


def _too_few(everyone: Sequence[str], nodes: dict[str, view.Node], tests: Sequence[str]) -> list[str]:
    """What so few nodes cannot show, and which idle ones to add."""
    from probing_cluster.control_plane.repair import workflow
    from probing_cluster.diagnostics import registry, slowness

    missing = slowness.FEWEST - len(everyone)
    if missing <= 0 or not any(test.judged for test in registry.chosen(tests)):
        return []
    together = set.intersection(*(set(nodes[name].partitions) for name in everyone))
    idle = [
        name
        for name, node in sorted(nodes.items())
        if name not in everyone and workflow.Pass.is_idle(node) and together & set(node.partitions)
    ]
    links = "one node alone has no link to test, and " if len(everyone) == 1 else ""
    hint = f"; to add idle ones: --reference '{hostlist.compress(idle[:missing])}'" if idle else ""
    return [f"{links}fewer than {slowness.FEWEST} nodes are not compared by speed{hint}"]


def _plan(
    args: argparse.Namespace,
    names: list[str],
    references: list[str],
    tests: tuple[str, ...],
    config: settings.Settings,
) -> str:
    against = f", against {hostlist.compress(references)}" if references else ""
    return (
        f"plan: {', '.join(tests)} on {hostlist.compress(names)} ({len(names)} node{'s' if len(names) > 1 else ''}{against}), as a job "
        f"that takes them whole; at most {config.diagnostics.round_s:g} s after they are free ({args.wait:g} s are waited for that); ^C cancels it"
    )


def _run(
    args: argparse.Namespace,
    config: settings.Settings,
    store: db_store.Store,
    nodes: dict[str, view.Node],
    names: list[str],
    references: list[str],
    tests: tuple[str, ...],
    places: dict[str, str],
) -> round_findings.Findings:
    from probing_cluster.control_plane.repair import by_hand, campaign, rounds
    from probing_cluster.slurm_plugins.acts import job_steps

    question = by_hand.DiagnosisRequest(
        round_id=uuid.uuid4(), names=tuple(names), references=tuple(references), tests=tests, every_link=args.every_link
    )  # fmt: skip
    steps, wanted = job_steps.JobSteps(config.slurm), by_hand.wanted(config, nodes, question)

    def announce(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    # A terminal that goes away or a `kill` leaves no job on the nodes either.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    announce(f"waiting for {hostlist.compress(wanted.nodes)}")
    try:
        round_request = by_hand.round_request(question, nodes, places, _allocated(steps, wanted, args.wait))
        runner = campaign.Campaign(
            config=config,
            steps=steps,
            command=rounds.command(config),
            now=clock.SYSTEM.now,
            announce=announce,
        )
        return runner.run(round_request, rounds.history(store))
    except KeyboardInterrupt:
        announce("cancelled: the tests' job is being ended, and nothing of this round is stored")
        raise
    finally:
        steps.cancel_named(wanted.name)  # also after ^C: nothing of ours is left on the nodes


def _allocated(steps: job_steps.JobSteps, wanted: job_steps.StepWanted, wait_s: float) -> int:
    try:
        return steps.allocate(wanted, wait_s)
    except errors.SlurmUnavailable as exc:
        raise errors.SlurmUnavailable(
            f"{exc}; --wait SECONDS waits longer, `squeue -w NODES` shows whose jobs are in the way"
        ) from exc


def _page(target: Path, cluster: str, found: Any, names: list[str]) -> None:
    from probing_cluster.reports.fleet import diagnose_page

    markup = diagnose_page.render(cluster, found.results, names, made_at=clock.SYSTEM.now())
    command_line.write_file(target, markup)
    print(f"probing-ctl: wrote {target}", file=sys.stderr)
