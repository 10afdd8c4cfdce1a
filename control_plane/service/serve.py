"""`probing-ctl serve`: the tasks on their schedule, the report door and the metrics, until SIGTERM."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.door import report_door
from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.control_plane.service import metrics, tasks, turns
from probing_cluster.core import clock, errors, logs, settings
from probing_cluster.core.ending import process_memory, watchdog
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.slurm_plugins import commands

LOG = logging.getLogger("probing.serve")
_RETRY_S = 5.0
_REVIVE_S = 30.0
"""A server whose disk is full does not start, however often it is tried."""
_GRACE_S = 25.0
"""How long a pass may go on after SIGTERM; systemd's own patience is longer."""
_SET_BACK_S = 5.0
"""A clock that was set back by less delays a pass by less."""
MAX_CONNECTIONS = len(tasks.REGISTER) + len(turns.NAMES)
"""Every task may ask the database while all turns are held, each by a connection of its own."""
_TRIM_FROM_S = 30.0
"""After passes that come as seldom as this, memory is given back: it takes some milliseconds."""


def main(config: settings.Settings) -> int:
    """Run the service until it is stopped; its exit code."""
    logs.configure()
    attribute.seldom_collected()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    watchdog.begin()
    with watchdog.reported():  # an upgrade of the embedded database takes as long as it takes
        store = _open_store(config, stopping)
    if store is None:
        return 0
    with store:
        run_slurm = commands.SlurmCommands(settings=config.slurm)
        tasks_journal = journal.Journal()
        slurm = slurm_actions.SlurmActions(
            config,
            run_slurm,
            lambda question, error: tasks_journal.note_slurm(question, clock.SYSTEM.now(), error),
            before_act=turns.check,
        )
        service = context.Context(
            config=config,
            store=store,
            run_slurm=run_slurm,
            slurm=slurm,
            journal=tasks_journal,
            stopping=stopping,
            in_children=True,
            aside=aside,
        )
        with report_door.serving(service), metrics.serving(service), _scheduled(service) as scheduler:
            LOG.info(
                "serving",
                extra={
                    "fields": {"cluster": config.cluster.name, "observe_only": config.policy.observe_only}
                },
            )
            until_stopped(scheduler, stopping)
            LOG.info("stopping")
    return 0


def until_stopped(scheduler: BackgroundScheduler, stopping: threading.Event) -> None:
    """Wait for the end; where the clock is set back meanwhile, plan every pass anew: the old plan lies in the future."""
    before_s = _ahead_s()
    while not stopping.wait(_SET_BACK_S):
        now_s = _ahead_s()
        if before_s - now_s > _SET_BACK_S:
            LOG.warning("the clock was set back", extra={"fields": {"by_s": round(before_s - now_s, 1)}})
            _plan_anew(scheduler)
        before_s = now_s


def _ahead_s() -> float:
    return clock.SYSTEM.now().timestamp() - clock.SYSTEM.monotonic_s()


def _plan_anew(scheduler: BackgroundScheduler) -> None:
    for job in scheduler.get_jobs():
        with contextlib.suppress(JobLookupError):  # one that runs once has just begun
            if isinstance(job.trigger, CronTrigger):
                job.reschedule(job.trigger)
            else:
                job.modify(next_run_time=clock.SYSTEM.now())


def aside(work: Callable[[], object]) -> None:
    """Begin work that no pass waits for, on a thread of its own."""

    def one() -> None:
        try:
            work()
        except Exception:
            LOG.exception("work beside the passes failed")

    threading.Thread(target=one, name="aside").start()


def _open_store(config: settings.Settings, stopping: threading.Event) -> db_store.Store | None:
    """The database once it can be opened; None when the service is stopped first."""
    warned = False
    while not stopping.is_set():
        try:
            return db_store.Store.open(config, upgrade=not config.database.url, max_overflow=MAX_CONNECTIONS)
        except errors.DatabaseUnavailable as exc:
            if not warned:
                LOG.warning("waiting for the database", extra={"fields": {"why": str(exc)}})
            warned = True
            stopping.wait(_RETRY_S)
    return None


@contextlib.contextmanager
def _scheduled(service: context.Context) -> Iterator[BackgroundScheduler]:
    scheduler = make_scheduler(service)
    scheduler.start()
    try:
        yield scheduler
    finally:
        ended = threading.Thread(target=scheduler.shutdown, name="shutdown", daemon=True)
        ended.start()
        ended.join(_GRACE_S)
        if ended.is_alive():
            LOG.warning("a task did not end in time", extra={"fields": {"grace_s": _GRACE_S}})


def make_scheduler(service: context.Context) -> BackgroundScheduler:
    """Every registered task on its interval: one pass at a time, missed ones folded into one."""
    scheduler = BackgroundScheduler(
        timezone=service.config.service.timezone,
        # One thread a task: ten that wait for a slurmctld that hangs must not keep verdicts and notices waiting.
        executors={"default": ThreadPoolExecutor(len(tasks.REGISTER) + 1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    logging.getLogger("apscheduler").setLevel(
        logging.ERROR
    )  # "skipped: still running" every second says nothing new
    for number, task in enumerate(tasks.REGISTER):
        _schedule(scheduler, service, task, number)
    # By the scheduler itself: where it plans nothing any more, systemd starts the service again.
    scheduler.add_job(watchdog.report, "interval", seconds=watchdog.EVERY_S, id="watchdog")
    return scheduler


def run_followers(scheduler: BackgroundScheduler, name: str) -> None:
    """Have the tasks that follow this one run now: what it did is news to them."""
    for follower in tasks.REGISTER:
        if name in follower.follows:
            with contextlib.suppress(JobLookupError):  # the service is ending
                scheduler.modify_job(follower.name, next_run_time=clock.SYSTEM.now())


def revive(service: context.Context) -> None:
    """Start the embedded server again where it crashed; one that somebody stopped stays stopped."""
    database = service.config.database
    if database.url or not embedded.crashed(database.directory):
        return

    def start() -> bool:
        try:
            embedded.ensure(database.directory)
        except errors.DatabaseUnavailable as exc:
            LOG.warning(
                "the database's server crashed and does not start", extra={"fields": {"why": str(exc)}}
            )
            return False
        LOG.warning("the database's server had crashed and runs again")
        return True

    service.seldom("revive", _REVIVE_S, start)


def run_pass(service: context.Context, task: context.Task) -> str:
    """One pass of a task; what it did. Raises DatabaseReadOnly also where an earlier pass could not write and this one had nothing to."""
    try:
        did = task.run(service)
        if service.journal.waits_to_write(task.name):
            service.store.require_writable()
    except errors.DatabaseReadOnly:
        service.store.engine.dispose()  # sessions that are read-only for their life, whatever cursor found it
        raise
    return did


def _schedule(
    scheduler: BackgroundScheduler, service: context.Context, task: context.Task, number: int
) -> None:
    def one() -> None:
        if not service.stopping.is_set():
            done = journal.one_pass(
                service.journal, task.name, lambda: run_pass(service, task), service.clock
            )
            if done.outcome == "unavailable":
                revive(service)
            if done.outcome == "ok" and done.message and not service.stopping.is_set():
                run_followers(scheduler, task.name)
            if (
                task.every_s is None or task.every_s(service.config) >= _TRIM_FROM_S
            ) and not service.stopping.is_set():
                process_memory.give_back()

    first = clock.SYSTEM.now() + timedelta(seconds=0.1 * number)
    options = {"id": task.name, "name": task.name}
    if task.every_s is not None:
        begin = {"next_run_time": first} if task.at_start else {}
        scheduler.add_job(one, "interval", seconds=task.every_s(service.config), **options, **begin)
    elif task.daily_at is not None:
        hour, minute = task.daily_at(service.config).split(":")
        scheduler.add_job(one, "cron", hour=int(hour), minute=int(minute), **options)
        if task.at_start:
            scheduler.add_job(one, "date", run_date=first, id=f"{task.name}-first", name=task.name)
