"""What jobs' owners are told: the mails they asked Slurm for, with the verdict."""

from __future__ import annotations

import contextlib
from pathlib import Path

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.jobs import accounting, accounts, attribution
from probing_cluster.core import errors

_HURRY_S = 2.0
"""No sooner are accounting and attribution asked out of turn again, however many mails wait."""
_MOST_HURRIED = 100
"""Jobs asked about in one question, the newest."""


def run(service: context.Context) -> str:
    """One look; what was sent."""
    if not service.config.mail.host:
        return ""
    words = _answers(service)
    _unasked(service)
    return "; ".join(words)


def _answers(service: context.Context) -> list[str]:
    """Sends the mails that are owed before all else: "the verdict follows" needs neither the database nor Slurm."""
    if not (Path(service.config.mail.spool_directory) / "owed").is_dir():
        return []
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.owners import answers, corrections

    now = service.clock.now()
    with contextlib.suppress(errors.DatabaseUnavailable, errors.SlurmUnavailable):
        _hurry(service)
    put = [*answers.run(service, now), *corrections.run(service, now)]
    if put:
        service.aside(lambda: delivery.flush(service.config, now, wait=False))
    return [f"{len(put)} mails"] if put else []


def _hurry(service: context.Context) -> None:
    """Ask accounting about ended jobs out of turn, and have judged what has settled: their owners wait for it."""
    from probing_cluster.control_plane.owners import answers

    now_s = service.clock.monotonic_s()
    if service.seldom("owners_hurry", _HURRY_S, lambda: now_s) != now_s:
        return
    waits = answers.waits_for(service, service.clock.now())
    if waits.ends_of:
        accounting.of_jobs(service, sorted(waits.ends_of)[-_MOST_HURRIED:])
        waits = answers.waits_for(service, service.clock.now())
    if waits.verdicts:
        attribution.run(service)
    if waits.verdicts or waits.accounts:
        accounts.run(service)


def _unasked(service: context.Context) -> None:
    """What Slurm hands over nothing about."""
    from probing_cluster.control_plane.owners import held_mail, missing

    missing.run(service)
    held_mail.run(service)


TASK = context.Task(
    name="owners",
    meaning="sends owners the mails they asked Slurm for, with the verdict",
    run=run,
    every_s=lambda _: 2.0,
    follows=("attribution", "accounts", "restarts"),
)
