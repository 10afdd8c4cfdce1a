"""The nightly search for lemons: the day scored, the messages in the outbox, the lemons dealt with; once a day.

Asked every minute whether a night is due, so that a night missed because the service or its database was
away is made up for as soon as both are back, in one go and not once per night missed.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from probing_cluster.attribution.places import layout
from probing_cluster.control_plane import child_process, context
from probing_cluster.control_plane.policy import actions, slurm_actions
from probing_cluster.control_plane.service import turns
from probing_cluster.core import errors, settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands

if TYPE_CHECKING:
    from probing_cluster.lemon import gather, nightly

SCORED = "lemon.scored"
DONE = "lemon.done"
"""The last day whose night is over, by cluster."""
ACTIONS = ("off", "drain")
"""What may be done with a new lemon."""


def run(service: context.Context) -> str:
    """One look at the clock; what the night found."""
    day = due_day(service.clock.now(), service.config)
    if _done(service, day):
        return ""
    with turns.take(service, "lemon") as mine:
        # Asked again inside: another service may have finished this very night in between.
        if not mine or _done(service, day):
            return ""
        _check_action(service.config.lemon.action)
        summary = ""
        # Before the first job there is nobody to score: the libraries of a night need not be loaded to find none.
        if service.store.any_started(service.config.cluster.name, day + timedelta(days=1)):
            summary = (
                child_process.run(__name__, service.config, day)
                if service.in_children
                else _night(service, day)
            )
        service.store.remember(_key(service), f"{day:%Y-%m-%d}")
    return summary


def in_child(config: settings.Settings, day: datetime) -> str:
    """The night in a process of its own."""
    run_slurm = commands.SlurmCommands(settings=config.slurm)
    slurm = slurm_actions.SlurmActions(config, run_slurm, before_act=turns.check)
    with db_store.Store.open(config) as store:
        return _night(context.Context(config=config, store=store, run_slurm=run_slurm, slurm=slurm), day)


def due_day(now: datetime, config: settings.Settings) -> datetime:
    """The day (midnight UTC) whose night was due last: the latest that had ended by then."""
    zone = _zone(config.service.timezone)
    at = _time_of(config.lemon.run_at)
    local = now.astimezone(zone)
    due = datetime.combine(local.date(), at, zone)
    if due > local:
        due = datetime.combine(local.date() - timedelta(days=1), at, zone)
    # As nightly.day_of, whose import would stay with the service for good.
    return due.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


def _check_action(action: str) -> None:
    """Raises SettingsError for an action there is not."""
    if action not in ACTIONS:
        raise errors.SettingsError(f"[lemon] action must be {' or '.join(ACTIONS)}, not {action!r}")


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as exc:
        raise errors.SettingsError(f"[service] timezone: no zone {name!r} is known") from exc


def _time_of(text: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError as exc:
        raise errors.SettingsError(f"[lemon] run_at must be HH:MM, not {text!r}") from exc


_NEIGHBOURS = ("leaf", "block", "rack")
"""What of several known places makes nodes neighbours, the closest first."""


def _neighbours(store: db_store.Store, cluster: str, at: datetime) -> dict[str, str]:
    """Node to its leaf switch, block or rack."""
    where = layout.Places(store.places(cluster)).at(cluster, at)
    found: dict[str, str] = {}
    for wanted in reversed(_NEIGHBOURS):
        for kind, place in sorted(where.members, reverse=True):
            if kind == wanted:
                found.update(dict.fromkeys(where.members[kind, place], place))
    return found


def slurm_facts(
    slurm: actions.SlurmOperations, store: db_store.Store, config: settings.Settings, day: datetime
) -> gather.SlurmFacts:
    """When nodes were out of service, by Slurm's accounting, and which of them share a place."""
    from probing_cluster.lemon import gather, nightly

    until = day + nightly.DAY
    since = until - timedelta(days=config.lemon.window_days)
    places = _neighbours(store, config.cluster.name, until)
    try:
        out = slurm.outages(since, until)
    except errors.SlurmUnavailable:
        return gather.SlurmFacts(places=places)
    outages = [
        gather.SlurmOutage(node=o.node, start_at=o.start_at, end_at=o.end_at, reason=o.reason) for o in out
    ]
    return gather.SlurmFacts(outages=outages, places=places)


def _night(service: context.Context, day: datetime) -> str:
    from probing_cluster.control_plane.outbox import night_messages
    from probing_cluster.reports.lemon import lemon_view

    config, store, now = service.config, service.store, service.clock.now()
    night = _scored(service, day)
    if not night.scores:
        return ""
    # Before the messages, so that they say what was done.
    acted = _acted(service, night)
    new = night_messages.put(config, night, store.drains(open_only=True, cluster=service.cluster), now)
    store.forget_exclusions(now - timedelta(days=config.database.retention_days))
    store.forget_dependencies(now - timedelta(days=config.database.retention_days))
    words = [lemon_view.headline(night), *acted]
    return "; ".join([*words, *(f"{kind} queued" for kind in new)])


def _scored(service: context.Context, day: datetime) -> nightly.Night:
    """The day scored by this night; not again where only its messages or acts are to be tried again."""
    from probing_cluster.lemon import nightly

    store, config, key = service.store, service.config, f"{SCORED} {service.config.cluster.name}"
    if store.recall(key) == f"{day:%Y-%m-%d}":
        return nightly.load(store, config, day)
    found = slurm_facts(service.slurm, store, config, day)
    night = nightly.score(store, config, day, slurm_facts=found, at=service.clock)
    if night.scores:
        store.remember(key, f"{day:%Y-%m-%d}")
    return night


def _acted(service: context.Context, night: nightly.Night) -> list[str]:
    """What was done about the lemons; with Slurm away the messages go out all the same, and the next night acts."""
    from probing_cluster.control_plane.service import lemon_action

    try:
        return [f"{d.action} {d.node} {d.state}" for d in lemon_action.carry_out(service, night)]
    except errors.SlurmUnavailable as exc:
        return [f"not acted: {exc}"]


def _done(service: context.Context, day: datetime) -> bool:
    done = service.store.recall(_key(service))
    return done is not None and str(done) >= f"{day:%Y-%m-%d}"


def _key(service: context.Context) -> str:
    return f"{DONE} {service.config.cluster.name}"


TASK = context.Task(
    name="lemon",
    meaning="scores nodes at lemon.run_at, queues the mail, drains new lemons where asked to",
    run=run,
    every_s=lambda _: 60.0,
)
