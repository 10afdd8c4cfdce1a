"""`probing-ctl policy`: what the policy is, and what it would have done."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta

from probing_cluster.control_plane.cli import commands, span
from probing_cluster.core import clock, errors, settings
from probing_cluster.core.settings import manual as settings_manual


def register(register: commands.Commands) -> None:
    """Adds `policy simulate|show`."""
    group = register.group("policy", "the drain policy: its settings, and a replay of history")
    made = group.add("simulate", _simulate, "say what the policy would have done with the events of the past")
    made.add_argument(
        "--since", default="7d", metavar="WHEN", help="7d (ago, the default), yesterday, 2026-01-31 …"
    )
    made.add_argument("--until", metavar="WHEN", help="end of the replay (default now)")
    made.add_argument("--json", action="store_true", help="one JSON object")
    shown = group.add("show", _show, "print the settings in force")
    shown.add_argument("--json", action="store_true", help="one JSON object: key to value")


def _show(args: argparse.Namespace) -> int:
    config = settings.load(args.config).policy
    meanings = {
        key: meaning for section, key, _, meaning in settings_manual.describe() if section == "policy"
    }
    if args.json:
        print(json.dumps({key: getattr(config, key) for key in meanings}, indent=2, default=str))
        return 0
    for key, meaning in meanings.items():
        # Numbers, truth, strings and lists of them are the same in TOML.
        print(f"{key} = {json.dumps(getattr(config, key), ensure_ascii=False)}\n    # {meaning}")
    return 0


def _simulate(args: argparse.Namespace) -> int:
    from probing_cluster.attribution.places import layout
    from probing_cluster.control_plane.policy import restart, simulate, simulate_restarts, slurm_actions
    from probing_cluster.core import records
    from probing_cluster.db import store as db_store
    from probing_cluster.slurm_plugins import commands as slurm_commands

    config = settings.load(args.config)
    now = clock.SYSTEM.now()
    since = span.instant(args.since, now)
    until = span.instant(args.until, now) if args.until else now
    with db_store.Store.open(config) as store:
        events = store.events(since=since, until=until, min_severity=records.Severity.LOW)
        attempts = store.attempts(since=since - timedelta(hours=1), until=until)
        ended = [a for a in attempts if a.end_at is not None and since <= a.end_at < until]
        jobs = sorted({a.job_id for a in ended if a.state in restart.CANDIDATES})
        verdicts = store.verdicts(job_ids=jobs)
        history = simulate_restarts.by_job(store.verdict_histories(jobs))
        ids = {i for vs in history.values() for v in vs if restart.concerns(v) for i in v.evidence}
        evidence = {e.event_id: e for e in store.events_by_id(ids)}
        places = layout.Places(store.places(config.cluster.name))
    try:
        runner = slurm_commands.SlurmCommands(settings=config.slurm)
        nodes = {n.name: n for n in simulate.in_service(slurm_actions.SlurmActions(config, runner).nodes())}
        nodes_source = "Slurm"
    except errors.SlurmUnavailable:
        nodes, nodes_source = simulate.nodes_of(attempts), "the jobs' own nodes"
    found = simulate.replay(events, attempts, nodes, config.policy, places)
    back = simulate_restarts.replay(ended, verdicts, evidence, history, config.policy)
    if args.json:
        print(json.dumps(_json(found) | {"restarts": simulate_restarts.to_json(back)}, indent=2))
    else:
        print(_text(found, nodes_source), *simulate_restarts.sentences(back), sep="\n")
    return 0


def _json(found: object) -> dict[str, object]:
    from probing_cluster.control_plane.policy import simulate

    assert isinstance(found, simulate.Replay)
    return {
        "events": found.n_events,
        "failed_anyway": found.n_failed_anyway,
        "completed_anyway": found.n_completed_anyway,
        "gpu_h_cut": found.gpu_h_cut,
        "decisions": [
            {
                "at": clock.iso_z(at),
                "node": d.node,
                "action": d.action,
                "state": d.held or "would act",
                "why": d.why,
                "reason": d.reason,
                "job_id": d.job.job_id if d.job else None,
                "event_ids": [str(e) for e in d.event_ids],
            }
            for at, d in found.decisions
        ],
    }


def _text(found: object, nodes_source: str) -> str:
    from probing_cluster.control_plane.policy import simulate
    from probing_cluster.control_plane.terminal import table

    assert isinstance(found, simulate.Replay)
    rows = [
        (
            clock.iso_z(at.replace(microsecond=0)),
            d.node,
            d.action,
            d.job.job_id if d.job else None,
            d.held or "act",
            d.reason,
            d.why,
        )
        for at, d in found.decisions
    ]
    acted = [d for _, d in found.decisions if not d.held]
    lines = [table.render(("AT", "NODE", "ACTION", "JOB", "STATE", "REASON", "WHY"), rows)] if rows else []
    lines += [
        (
            f"{found.n_events} events could act; of the {len(found.decisions)} decisions "
            f"{sum(d.action == 'drain' for d in acted)} drains and {sum(d.action == 'requeue' for d in acted)} requeues "
            f"would be carried out, {len(found.decisions) - len(acted)} are held back"
        ),
        (
            f"of the requeued attempts {found.n_failed_anyway} ended badly anyway, {found.n_completed_anyway} had completed "
            f"({found.gpu_h_cut:.1f} GPU-hours cut short)"
        ),
        f"assumed: every fault confirmed by its agent, every job requeueable, nodes as {nodes_source} knows them",
    ]
    return "\n".join(lines)
