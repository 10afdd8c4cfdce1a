"""Jobs: their list, and everything about one. Whoever asks for another's job is refused, here and by the database."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.control_plane.owners import waiting
from probing_cluster.core import errors, hostlist, records
from probing_cluster.db import engines
from probing_cluster.reports import job_ref, json_out, model, query, rows
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.accounting import attempt_rows
from probing_cluster.web import documents
from probing_cluster.web.api import operation

JobId = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


State = Annotated[str, msgspec.Meta(pattern=operation.one_of(attempt_rows.STATES))]
Cause = Annotated[str, msgspec.Meta(pattern=operation.one_of(taxonomy.load().causes))]
Domain = Annotated[str, msgspec.Meta(pattern=operation.one_of(records.Domain))]


class Jobs(operation.Paged, kw_only=True):
    """Which attempts."""

    job_id: JobId | None = None
    user: operation.Word | None = None
    account: operation.Word | None = None
    partition: operation.Word | None = None
    state: State | None = None
    cause: Cause | None = None
    domain: Domain | None = None
    node: operation.Word | None = None
    since: operation.Instant | None = None
    until: operation.Instant | None = None
    running: bool | None = None


def jobs(ask: operation.Ask) -> documents.Page[documents.Job]:
    """Attempts, latest start first."""
    q: Jobs = ask.query
    after = operation.cursor_values(q.cursor, _CURSOR) or (None, None, None)
    found = ask.rows("jobs", **ask.scope, job_id=q.job_id, user=q.user, account=q.account, partition=q.partition,
        state=q.state, cause=q.cause, domain=q.domain, on_node=q.node, since=q.since, until=q.until,
        few=few(ask, q.cause, q.domain), running=q.running, after_at=after[0], after_job=after[1], after_submit=after[2], n=q.limit + 1,
    )  # fmt: skip
    shown = found[: q.limit]
    more = len(found) > q.limit
    last = shown[-1] if more else None
    return documents.Page(
        items=[_job(row) for row in shown],
        next=operation.cursor_of([last["start_at"], last["job_id"], last["submit_at"]]) if last else None,
    )


FEW = 5000
"""Verdicts of one cause: up to so many their attempts are looked for, beyond them the latest attempts soon show a page of it."""


def few(ask: operation.Ask, cause: str | None, domain: str | None) -> list[int] | None:
    """The jobs that a rare cause or domain ended; None where nobody asks for one, many have it, or the viewer's own are few anyway."""
    if (cause is None and domain is None) or not ask.viewer.operator:
        return None
    found = ask.rows("few_verdicts", cause=cause, domain=domain, n=FEW + 1)
    return None if len(found) > FEW else [row["job_id"] for row in found]


_CURSOR = (datetime, int, datetime)


def _job(row: dict[str, Any]) -> documents.Job:
    return msgspec.convert(row | {"hosts": hostlist.compress(row["nodes"] or ())}, documents.Job)


def gang_of(ask: operation.Ask, job: str = "") -> gang_board.BoardGang:
    """The job of the path, or `job`, which the viewer may see; raises NotFound and NotPermitted."""
    ref = job_ref.parse(job or ask.path["job"])
    site = ask.site
    try:
        gang = gang_board.find(site.service.store, ask.cluster, ref, site.service.clock.now())
    except errors.NotFound:
        _require_started(ask, ref)
        raise
    if not _may_see(ask, gang.owners):
        raise errors.NotPermitted(f"job {ref} is another user's; {ask.viewer.user} may see their own")
    # The policies' word counts as much as ours: a job in accounting must be visible to the viewer's own key.
    if gang.attempt is not None and not site.rows(
        ask.viewer, "visible", cluster=gang.cluster, job_id=gang.job_id
    ):
        raise errors.NotPermitted(f"job {ref} is another user's")
    return gang


def _may_see(ask: operation.Ask, owners: Collection[Mapping[str, Any]]) -> bool:
    own = {str(a["user"]) for a in owners} == {ask.viewer.user}
    coordinated = bool(owners) and all(a.get("account") in ask.viewer.accounts for a in owners)
    return ask.viewer.operator or own or coordinated


def _require_started(ask: operation.Ask, ref: job_ref.JobRef) -> None:
    """Raises NotFound with what became of a job of the viewer's that ended before it began, or what it waits for."""
    away: commands.SlurmAway | None = None
    try:
        pending = waiting.of(ask.site.service, ref)
    except commands.SlurmAway as exc:
        pending, away = None, exc
    if pending is not None and _may_see(ask, [{"user": pending.user, "account": pending.account}]):
        raise errors.NotFound(pending.words)
    with _database(ask) as connection:
        found = query.never_started(connection, ask.cluster, ref)
    if found is not None and _may_see(ask, [{"user": found.user, "account": found.account}]):
        raise errors.NotFound(found.words)
    if away is not None:
        raise waiting.unknown_job(ask.site.service, ref) from away


@contextlib.contextmanager
def _database(ask: operation.Ask) -> Iterator[query.Connection]:
    with engines.translated(), ask.site.service.store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("set local timezone = 'UTC'; set local jit = off")
        yield raw


def stored(ask: operation.Ask) -> rows.ReportRows:
    """Every row that a report on the job is made of."""
    gang = gang_of(ask)
    with _database(ask) as connection:
        found = query.fetch(connection, gang.cluster, job_ref.parse(ask.path["job"]))
    return rows.from_json(waiting.beside(ask.site.service, found))


def report(ask: operation.Ask) -> dict[str, Any]:
    """The report as `probing-report --json` prints it."""
    ref = job_ref.parse(ask.path["job"])
    found, now = stored(ask), ask.site.service.clock.now()
    if model.is_overview(ref, found):
        return json_out.overview(str(ref), found, now)
    return json_out.document(model.build(ref, found, now=now))


def attempts(ask: operation.Ask) -> list[records.JobAttempt]:
    """Every start of it, oldest first, as accounting has it."""
    return list(stored(ask).attempts)


def verdicts(ask: operation.Ask) -> list[records.Verdict]:
    """Why each of its attempts ended."""
    return list(stored(ask).verdicts)


def account(ask: operation.Ask) -> records.RunAccount:
    """Where its run's wall time went; raises NotFound until that is computed."""
    found = stored(ask).account
    if found is None:
        raise errors.NotFound("the run's time is not computed yet")
    return found
