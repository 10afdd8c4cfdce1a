"""What `probing-ctl` and the web do to one node in a person's name: drain it, resume it, note it as repaired."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from probing_cluster.core import clock, errors, records, sanitize, settings, vocabulary

if TYPE_CHECKING:
    from probing_cluster.control_plane.policy import actions
    from probing_cluster.db import store as db_store
    from probing_cluster.slurm_plugins.acts import nodes


def drain_reason(words: str, person: str) -> str:
    """The reason as Slurm shows it; raises UsageError for one that says nothing."""
    if not sanitize.clean(words).strip():
        raise errors.UsageError("the reason says nothing; whoever finds the node drained needs to know why")
    return sanitize.clean(f"{vocabulary.OWN_PREFIX}{words} ({person})", 200)


def drain_one(
    config: settings.Settings,
    store: db_store.Store,
    slurm: actions.SlurmOperations,
    name: str,
    reason: str,
    person: str,
) -> str:
    """Drains one node in a person's name, recorded before it is done; raises what kept it from being done.

    The answer says so where jobs of the node will not finish there.
    """
    from probing_cluster.control_plane.policy import view
    from probing_cluster.slurm_plugins import commands as slurm_commands

    # First the row: what cannot be recorded is not done.
    row = records.Drain(
        drain_id=uuid.uuid4(), cluster=config.cluster.name, node=name, at=clock.SYSTEM.now(),
        action="drain", reason=reason, owner=person, state="failed", why_state=view.BEGUN,
    )  # fmt: skip
    store.add_drain(row)
    try:
        outcome = slurm.drain(name, reason)
    except slurm_commands.SlurmAway:
        store.update_drain(
            row.drain_id, why_state=view.OUTCOME_UNKNOWN
        )  # the service settles it once Slurm answers
        raise
    except errors.SlurmUnavailable as exc:
        store.update_drain(row.drain_id, why_state=str(exc))
        raise
    store.update_drain(row.drain_id, state=outcome.state, why_state=outcome.why)
    _require_done(outcome)
    return "drained" + _requeues(config, store, name)


def _requeues(config: settings.Settings, store: db_store.Store, name: str) -> str:
    """Words about the jobs that the service requeues off a drained node; empty where it requeues none."""
    from probing_cluster.control_plane.policy import confirm, policy, view

    if config.policy.observe_only or not config.policy.requeue:
        return ""
    now, cluster = clock.SYSTEM.now(), config.cluster.name
    since = now - timedelta(seconds=config.policy.fresh_s)
    node_view = view.View(
        now=now,
        heartbeats={b.node: b for b in store.heartbeats([name], cluster=cluster)},
        silent_s=store.heartbeat_ages_s(cluster=cluster),
        drains=tuple(store.drains(node=name, cluster=cluster)),
    )
    events = store.events(nodes=[name], since=since, min_severity=records.Severity.HIGH, cluster=cluster)
    acting = [e for e in events if not confirm.why_not(e, node_view, config.policy)]
    if not acting:
        return ""
    fault = policy.reason_for(acting).removeprefix(vocabulary.OWN_PREFIX)
    return f"; its agent reports {fault}: the service requeues the jobs that this hits, and the others finish"


class NotDone(errors.ProbingError):
    """It was not done."""


def _require_done(outcome: nodes.Outcome) -> None:
    if outcome.state != "done":
        raise NotDone(outcome.why)


def resume_one(
    config: settings.Settings, store: db_store.Store, slurm: actions.SlurmOperations, name: str, person: str
) -> str:
    """Lifts our drain of one node in a person's name; raises what kept it from being lifted, with the way back."""
    from probing_cluster.control_plane.repair import way_back

    # Asked first: the service sees a drain that was lifted, too, and would not know by whom.
    open_drains = [
        drain
        for drain in store.drains(node=name, open_only=True, cluster=config.cluster.name)
        if drain.action == "drain"
    ]
    outcome = slurm.resume(name)
    if outcome.state == "skipped" and (node := slurm.node(name)):
        if way_back.is_back_from_boot(node):
            tested = (
                f"probing-ctl repair release {name} has it tested first; "
                if _is_tested(config, store, name)
                else ""
            )
            raise NotDone(
                f"Slurm holds it DOWN since it booted: {tested}scontrol update NodeName={name} State=RESUME returns it untested"
            )
        if way_back.not_ours(node):
            raise NotDone(way_back.not_ours(node))
    _require_done(outcome)
    why = f"{way_back.RESUMED_BY}{store.speaker(person)}"
    for drain in open_drains:
        store.update_drain(drain.drain_id, state="resumed", ended_at=clock.SYSTEM.now(), why_state=why)
    return "resumed"


def heal_one(
    config: settings.Settings,
    store: db_store.Store,
    slurm: actions.SlurmOperations,
    name: str,
    note: str,
    why: str,
    person: str,
) -> str:
    """Notes one node as repaired in a person's name and lifts our drain, unless `why` says what still fails.

    A node whose last tests did not pass, or that Slurm holds down since it booted, is given to its repair, which tests it. Of a
    drain that is not ours the answer says who lifts it.
    """
    from probing_cluster.control_plane.repair import way_back, workflow

    if why:
        raise NotDone(why)
    node = slurm.node(name)
    failed = _failed_tests(config, store, name) if node is not None and node.ours else ""
    if failed and (off := workflow.switched_off(config)):
        raise NotDone(
            f"its last tests did not pass ({failed}), and {off} keeps it from being tested again; `probing-ctl resume {name}` returns it untested"
        )
    add_notes(config, store, [name], "repaired", note, person)
    if node is None or not node.ours:
        return f"noted as repaired; {way_back.not_ours(node) or 'it is not drained'}"
    booted = _is_tested(config, store, name) and way_back.is_back_from_boot(node)
    if failed or booted:
        add_notes(config, store, [name], "release", note, person)
        before = f"its last tests did not pass ({failed})" if failed else "it booted"
        untested = f"; `probing-ctl resume {name}` returns it untested" if failed and not booted else ""
        return f"noted as repaired; {before}, and its repair tests it before it returns (probing-ctl repair show {name}){untested}"
    return f"noted as repaired and {resume_one(config, store, slurm, name, person)}"


def _is_tested(config: settings.Settings, store: db_store.Store, name: str) -> bool:
    """Whether the node is under a repair that may test it."""
    from probing_cluster.control_plane.repair import workflow

    under = store.incidents(cluster=config.cluster.name, node=name, open_only=True)
    return bool(under) and not workflow.switched_off(config)


def _failed_tests(config: settings.Settings, store: db_store.Store, name: str) -> str:
    """Which of the last tests of a node under repair failed or left it unproven, shortened; empty for none."""
    from probing_cluster.control_plane.repair import round_findings, workflow

    under = store.incidents(cluster=config.cluster.name, node=name, open_only=True)
    failing = [words for one in under for words in one.detail.get("failing") or ()]
    failed = [w for w in failing if round_findings.is_of_a_test(w.removeprefix(workflow.NOT_PROVEN))]
    more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{sanitize.clean(failed[0], 160)}{more}" if failed else ""


def add_notes(
    config: settings.Settings,
    store: db_store.Store,
    names: Iterable[str],
    action: str,
    note: str,
    person: str,
) -> None:
    """Keeps a person's word about nodes."""
    author, now = store.speaker(person), clock.SYSTEM.now()
    store.add_notes(
        records.OperatorNote(
            note_id=uuid.uuid4(), cluster=config.cluster.name, at=now, author=author, subject=f"node:{name}",
            action=action, note=sanitize.clean(note),
        )
        for name in names
    )  # fmt: skip
