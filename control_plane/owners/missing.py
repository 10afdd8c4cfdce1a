"""Mails that owners asked for and Slurm does not send: the END of a failure up to 22.05, our requeue from 25.11.3 on.

Who asked for what is known to the controller only, while it holds the job: one listing after ends that matter.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import handover
from probing_cluster.core import errors, records
from probing_cluster.reports import attempt_view
from probing_cluster.reports.sending import headers
from probing_cluster.slurm_plugins.live import job_texts

LOG = logging.getLogger("probing.owners")
_LATE = timedelta(minutes=5)
"""An end that accounting tells later than this is forgotten by the controller (MinJobAge)."""
_EVERY_S = 2.0
_MOST_LOOKS = 10
"""Looks at an end whose job is in doubt. Each may be a listing, and a job whose owner forged another's line stays in doubt."""
_End = tuple[int, datetime, str]
"""Job, submission, Slurm's word."""
_MAIL_REQUEST = re.compile(r"(?:^| )MailUser=(\S+) MailType=(\S+)(?= |$)", re.MULTILINE)
_STATE = re.compile(r" JobState=(\S+)(?= )")
_RELEASE = re.compile(r"(\d\d)\.(\d\d)(?:\.(\d+))?")
NO_END_MAIL_BEFORE = (23, 2, 0)
NO_REQUEUE_MAIL_FROM = (25, 11, 3)


@dataclass(frozen=True, kw_only=True)
class MailRequest:
    """What a job asked Slurm to mail."""

    state: str
    """The job's, now."""
    recipient: str
    events: frozenset[str]
    """Slurm's words: END, FAIL, REQUEUE …"""


@dataclass(frozen=True, kw_only=True)
class MailRequests:
    """What jobs asked Slurm to mail; nothing of a job that the controller does not have, or in whose own text it stands twice."""

    by_job: Mapping[int, MailRequest]
    doubtful: frozenset[int]
    """Jobs of which Slurm's answer does not show what they asked for: another answer may."""


@dataclass(kw_only=True)
class _Looked:
    """What the last look found."""

    ends: AbstractSet[_End] = frozenset()
    """Ends of which it is known whether we owe a mail that Slurm does not send, or that were looked at often enough."""
    n_looks: Mapping[_End, int] = field(default_factory=dict)
    """Of ends whose jobs are in doubt."""


def run(service: context.Context) -> None:
    """One look every two seconds; what Slurm does not send is put beside what it handed over."""
    service.seldom("missing", _EVERY_S, lambda: _look(service))


def _look(service: context.Context) -> int:
    now, looked = service.clock.now(), service.memory(_Looked)
    ends = list(_ends(service, release(service), now))
    keys = {_key(attempt, event) for attempt, event in ends}
    new = [(attempt, event) for attempt, event in ends if _key(attempt, event) not in looked.ends]
    if not new:
        looked.ends = keys
        return 0
    # Arrays get one summary, or with ARRAY_TASKS mails of their own.
    mailed = [(attempt, event) for attempt, event in new if attempt.array_task_id is None]
    requests = mail_requests(service, {attempt.job_id for attempt, _ in mailed})
    put = sum(
        handover.put(service.config, owed)
        for attempt, event in mailed
        for owed in _owed(attempt, event, requests.by_job, now)
    )
    looked.n_looks = _still_doubtful(mailed, requests.doubtful, looked.n_looks)
    looked.ends = keys - looked.n_looks.keys()
    return put


def _key(attempt: records.JobAttempt, event: str) -> _End:
    return attempt.job_id, attempt.submit_at, event


def _still_doubtful(
    mailed: Iterable[tuple[records.JobAttempt, str]], doubtful: AbstractSet[int], n_looks: Mapping[_End, int]
) -> dict[_End, int]:
    """Ends to be looked at again, with the number of looks so far."""
    again: dict[_End, int] = {}
    for attempt, event in mailed:
        if attempt.job_id in doubtful:
            key = _key(attempt, event)
            n = n_looks.get(key, 0) + 1
            if n < _MOST_LOOKS:
                again[key] = n
            else:
                LOG.info("job %d: %d answers of Slurm do not show what mail it asked for", key[0], n)
    return again


def release(service: context.Context) -> tuple[int, int, int]:
    """Slurm's, as of the last hour."""
    return service.seldom("release", 3600.0, lambda: _read_release(service))


def _read_release(service: context.Context) -> tuple[int, int, int]:
    text = service.run_slurm("scontrol", "--version").decode("ascii", "replace")
    found = _RELEASE.search(text)
    if found is None:
        raise errors.SlurmUnavailable(f"scontrol --version says {text[:60]!r}")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def _ends(
    service: context.Context, slurm: tuple[int, int, int], now: datetime
) -> Iterator[tuple[records.JobAttempt, str]]:
    """Attempts whose end Slurm does not mail about, each with Slurm's word for it."""
    cluster, since = service.config.cluster.name, now - _LATE
    if slurm < NO_END_MAIL_BEFORE:
        states = sorted(attempt_view.FAILED_STATES - {"REQUEUED", "CANCELLED", "PREEMPTED"})
        for attempt in service.store.attempts(since=since, states=states, ended=True, cluster=cluster):
            yield attempt, "Ended"
    if slurm >= NO_REQUEUE_MAIL_FROM:
        acts = [
            d
            for d in service.store.drains(
                since=since, actions=["restart"], states=["done"], cluster=service.cluster
            )
            if d.job_id
        ]
        # Slurm mails about the requeue of a running job, not about that of one which had ended by itself.
        starts = {(d.job_id, d.submit_at) for d in acts}
        jobs = sorted({d.job_id for d in acts if d.job_id is not None})
        for attempt in service.store.attempts(job_ids=jobs, ended=True, cluster=cluster) if jobs else []:
            if (attempt.job_id, attempt.submit_at) in starts:
                yield attempt, "Requeued"


def mail_requests(service: context.Context, jobs: AbstractSet[int]) -> MailRequests:
    """What these jobs asked for, by the controller, which forgets a job some minutes after its end."""
    by_job: dict[int, MailRequest] = {}
    found = job_texts.of_jobs(service.run_slurm, jobs)
    for job_id, text in found.texts.items():
        named, states = _MAIL_REQUEST.findall(text), _STATE.findall(text)
        if len(named) == 1 and len(states) == 1:
            recipient, events = named[0]
            by_job[job_id] = MailRequest(
                state=states[0], recipient=recipient, events=frozenset(events.split(","))
            )
    return MailRequests(by_job=by_job, doubtful=found.unclear)


def _owed(
    attempt: records.JobAttempt,
    event: str,
    requests: Mapping[int, MailRequest],
    now: datetime,
) -> Iterator[handover.OwedMail]:
    request = requests.get(attempt.job_id)
    if request is None:
        return
    events = request.events
    ended = (
        request.state == attempt.state and "END" in events and "FAIL" not in events
    )  # elsewhere it goes on
    if not ("REQUEUE" in events if event == "Requeued" else ended):
        return
    try:
        recipient = headers.address(request.recipient)
    except errors.UsageError:
        return
    yield handover.OwedMail(
        job_id=attempt.job_id,
        restart_count=attempt.n_restarts,
        recipient=recipient,
        subject=f"Slurm Job_id={attempt.job_id} Name={attempt.name} {event}, {attempt.state}",
        event=event,
        state=attempt.state,
        user=attempt.user,
        at=min(attempt.end_at or now, now),
    )
