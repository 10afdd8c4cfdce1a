"""Which of accounting's jobs are tests of nodes, by a repair or a person: nobody's work, and never an attempt.

By what is certain: a job that this process submitted, a job in which a stored test ran, and a job of our account, or an
operator's, that bears the name of a test. A name alone proves nothing: every user may choose it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.control_plane.repair import by_hand, workflow
from probing_cluster.core import errors, records
from probing_cluster.db import engines
from probing_cluster.slurm_plugins import admin_level
from probing_cluster.slurm_plugins.accounting import attempt_rows
from probing_cluster.slurm_plugins.acts import job_steps

_REPAIRS_LAST = timedelta(days=30)
"""A repair that was opened longer before a question runs no tests any more."""
_SLACK = timedelta(minutes=2)
"""Clocks of this host, the controller and nodes may differ by this much."""
_INCOMPLETE = timedelta(minutes=5)
"""A row without a partition is read again for so long before it is believed.

slurmdbd makes such rows when a word about a job overtakes its start: they are named `allocation`, and root's whoever submitted the job.
"""
_SQL = Path(__file__).parent / "sql"
_TESTS_RUN = (_SQL / "tests_run.sql").read_text(encoding="utf-8")
_FORGET = (_SQL / "forget_tests.sql").read_text(encoding="utf-8")


def of_users(
    service: context.Context, found: Sequence[records.JobAttempt], since: datetime
) -> list[records.JobAttempt]:
    """The attempts but for those of tests, of which none stays stored, and rows that slurmdbd has not completed yet."""
    if not found:
        return []
    names, spans = _repair_names(service, since), _test_spans(service, {a.job_id for a in found})
    tests = [
        a
        for a in found
        if _is_one(service, a.name or "", a.user, a.account, names)
        or (_ran_tests(a, spans) and _may_be_ours(service, a))
    ]
    if tests:
        _forget(service, tests)
    ours = {(a.job_id, a.submit_at) for a in tests}
    now = service.clock.now()
    return [
        a
        for a in found
        if (a.job_id, a.submit_at) not in ours and not _is_incomplete(a.partition, a.start_at, now)
    ]


def not_started_of_users(
    service: context.Context, found: Iterable[attempt_rows.NotStarted], since: datetime
) -> list[attempt_rows.NotStarted]:
    """The jobs that never started, but for tests whose nodes did not become free in time, and rows that slurmdbd has not completed yet."""
    now = service.clock.now()
    listed = [job for job in found if not _is_incomplete(job.partition, job.end_at or job.submit_at, now)]
    names = _repair_names(service, since) if listed else set()
    return [job for job in listed if not _is_one(service, job.name, job.user, job.account, names)]


def _is_one(service: context.Context, name: str, user: str, account: str, names: set[str]) -> bool:
    """Whether the name is a test's, and who ran the job may take nodes for tests."""
    if name in names and user == _own_name():
        return True
    return by_hand.NAME.fullmatch(name) is not None and _may_test(service, user, account)


def _repair_names(service: context.Context, since: datetime) -> set[str]:
    repairs = service.store.incidents(since=since - _REPAIRS_LAST, cluster=service.cluster)
    return {workflow.reservation_of(r) for r in repairs if r.cluster == service.config.cluster.name}


def _test_spans(service: context.Context, jobs: Iterable[int]) -> dict[int, list[tuple[datetime, datetime]]]:
    """Of these jobs, id to when a job of that id was submitted by us, or ran a test: Slurm uses an id again."""
    spans: dict[int, list[tuple[datetime, datetime]]] = {}
    for job in list(job_steps.SUBMITTED.values()):  # another thread may submit one meanwhile
        spans.setdefault(job.job_id, []).append((job.submit_at, job.granted_at))
    given = {"cluster": service.config.cluster.name, "jobs": sorted(jobs)}
    for row in service.store.rows(_TESTS_RUN, given):
        spans.setdefault(row["job_id"], []).append((row["began_at"], row["until_at"]))
    return spans


def _ran_tests(attempt: records.JobAttempt, spans: dict[int, list[tuple[datetime, datetime]]]) -> bool:
    """Whether one of its id's spans touches the time from its submission to its end."""
    over = attempt.end_at or datetime.max.replace(tzinfo=attempt.submit_at.tzinfo) - _SLACK
    return any(
        began <= over + _SLACK and attempt.submit_at - _SLACK <= until
        for began, until in spans.get(attempt.job_id, ())
    )


def _may_be_ours(service: context.Context, attempt: records.JobAttempt) -> bool:
    """Whether who ran it may test, or the row is one of slurmdbd's incomplete ones.

    A stored test result alone is not enough: operators may store results, and with them name any job.
    """
    incomplete = not attempt.partition or attempt.name == "allocation"
    return incomplete or _may_test(service, attempt.user, attempt.account)


def _is_incomplete(partition: str, at: datetime | None, now: datetime) -> bool:
    return not partition and at is not None and now - at < _INCOMPLETE


def _forget(service: context.Context, tests: Iterable[records.JobAttempt]) -> None:
    """Take away what an earlier poll stored of these jobs as an attempt, with its verdict and account."""
    cluster = service.config.cluster.name
    by_id = {a.job_id: a for a in tests}
    wrong = [
        a
        for a in service.store.attempts(job_ids=sorted(by_id), cluster=cluster)
        if abs(a.submit_at - by_id[a.job_id].submit_at) <= _SLACK
    ]
    if not wrong:
        return
    with engines.translated(), service.store.engine.begin() as connection:
        for attempt in wrong:
            given = {"cluster": cluster, "job_id": attempt.job_id, "submit_at": attempt.submit_at}
            given["run_key"], given["user"] = attempt.run_key, attempt.user
            connection.execute(sa.text(_FORGET), given)


def _may_test(service: context.Context, user: str, account: str) -> bool:
    """Whether who ran this may take nodes for tests: by the tests' own Slurm account, or as an operator."""
    own = service.config.diagnostics.account
    if user == _own_name() or (own and account == own):
        return True
    operators = service.seldom("operators", admin_level.KEPT_S, lambda: _operators(service))
    return user in operators


def _operators(service: context.Context) -> frozenset[str]:
    try:
        return admin_level.ask(service.run_slurm).operators
    except errors.SlurmUnavailable:
        return frozenset()  # a user's choice of a name must not stop the poll


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
