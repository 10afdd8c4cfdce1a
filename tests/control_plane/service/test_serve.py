from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fakes
import mail_server
import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import metrics, serve, tasks, turns
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.core.ending import watchdog
from probing_cluster.db import engines
from probing_cluster.db import store as db_store
from probing_cluster.sandbox.machine import ports
from tests.set_clock import SetClock

SLURM = """#!/bin/sh
case "$(basename "$0") $*" in
  *"-e"*) echo JobIDRaw JobID State Submit Eligible Start End ExitCode NodeList AllocTRES User Account Partition JobName Cluster ;;
  sacct*) for a in "$@"; do case "$a" in --delimiter=*) d="${a#--delimiter=}";; --format=*) f="${a#--format=}";; esac; done
          echo "$f" | sed "s/,/$d/g" ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: sockets have little room."""
    with tempfile.TemporaryDirectory(prefix="probing-serve-") as directory:
        yield Path(directory)


def write_config(home: Path, url: str, metrics_listen: str = "") -> Path:
    bin_directory = home / "bin"
    bin_directory.mkdir()
    for name in ("sacct", "scontrol", "sinfo", "squeue"):
        (bin_directory / name).write_text(SLURM)
        (bin_directory / name).chmod(0o755)
    path = home / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{url}"\n[slurm]\nbin_directory = "{bin_directory}"\n'
        f'[service]\nsocket = "{home}/report.sock"\nmetrics_listen = "{metrics_listen}"\naction_poll_s = 0.2\n'
    )
    return path


def until(what: Callable[[], bool]) -> None:
    """Waits for something the service does in its own time."""
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def start(config: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "probing_cluster.control_plane.cli.main",
        "serve",
        "--config",
        str(config),
    ]
    with log.open("wb") as stream:
        return subprocess.Popen(
            command, stderr=stream, stdout=stream, env={**os.environ, "PYTHONWARNINGS": ""}
        )


def lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def test_the_service_runs_and_ends_cleanly_on_sigterm(home: Path, store: db_store.Store) -> None:
    """Real process, real Postgres, Slurm's commands at the edge: it polls, opens its door, and leaves nothing."""
    log = home / "log"
    process = start(write_config(home, store.connection_uri()), log)
    try:
        until(lambda: store.recall("accounting.until c") is not None and (home / "report.sock").exists())
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0
    messages = [line["message"] for line in lines(log)]
    assert messages[0] == "serving"
    assert "stopping" in messages  # a pass that was under way may still tell of itself
    assert not (home / "report.sock").exists()


@pytest.mark.soak
def test_the_night_is_mailed_by_the_running_service(home: Path, store: db_store.Store) -> None:
    """Real process, scheduler, Postgres and SMTP: the night due last is made up for at once and mailed, once."""
    now = datetime.now(UTC).replace(microsecond=0)
    start_at, end_at = now - timedelta(days=5), now - timedelta(days=3)
    store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=1, submit_at=start_at, start_at=start_at, end_at=end_at, state="COMPLETED",
                nodes=("n1", "n2"), n_gpus=16, user="alice", run_key="1",
            )
        ]
    )  # fmt: skip
    box, log = mail_server.Box(), home / "log"
    with mail_server.running(box) as port:
        config = write_config(home, store.connection_uri())
        with config.open("a") as stream:
            stream.write(
                f'[mail]\nhost = "localhost"\nport = {port}\nsecurity = "none"\nrecipients = ["ops@example.org"]\n'
                f'spool_directory = "{home}/mail"\n'
            )
        process = start(config, log)
        try:
            until(lambda: bool(box.mails))
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    assert code == 0
    assert [to for to, _ in box.mails] == [["ops@example.org"]]
    assert box.message()["Subject"] == "[c] quiet night, no lemon"
    assert store.recall("lemon.done c") == f"{store.lemon_scores()[0].day:%Y-%m-%d}"


def test_the_service_waits_for_its_database_and_can_be_stopped_meanwhile(home: Path) -> None:
    """No server at start: each task says once that it waits, and SIGTERM still ends it."""
    log = home / "log"
    process = start(write_config(home, f"postgresql://nobody@/none?host={home}"), log)
    try:
        until(lambda: "task waits" in log.read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0
    waits = [line["task"] for line in lines(log) if line["message"] == "task waits"]
    assert len(waits) == len(set(waits))


def test_the_service_starts_a_crashed_server_again_and_no_stopped_one(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for want of memory, or its disk was full: tried twice a minute, until it runs; a site's own server is the site's."""
    started: list[str] = []

    def ensure(directory: str) -> str:
        started.append(directory)
        raise errors.DatabaseUnavailable("No space left on device")

    monkeypatch.setattr(serve.embedded, "ensure", ensure)
    monkeypatch.setattr(serve.embedded, "crashed", lambda _: crashed)
    set_clock = SetClock(fakes.NOW)
    service = dataclasses.replace(service, clock=set_clock, config=settings.Settings())
    crashed = False
    serve.revive(service)
    crashed = True
    for _ in range(4):
        serve.revive(service)
        set_clock.at += timedelta(seconds=10)
    assert len(started) == 2
    of_the_site = settings.Settings(database=settings.DatabaseSettings(url="postgresql://db/probing"))
    serve.revive(dataclasses.replace(service, config=of_the_site))
    assert len(started) == 2


def test_every_registered_task_is_scheduled_alone(service: context.Context) -> None:
    """One pass at a time, missed ones folded: a slow task never runs twice at once."""
    scheduler = serve.make_scheduler(service)
    jobs = {job.id: job for job in scheduler.get_jobs()}
    assert {task.name for task in tasks.REGISTER} <= set(jobs)


def test_tasks_that_wait_for_slurm_keep_no_other_task_waiting(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but one wait, each of them under a turn as far as there are turns: the last still runs, and reaches the database."""
    url, released, ran = service.store.url, threading.Event(), threading.Event()
    with db_store.Store.open(url, max_overflow=serve.MAX_CONNECTIONS) as store:
        service = dataclasses.replace(service, store=store)
        waiting = threading.Barrier(len(tasks.REGISTER))
        names = iter([*turns.NAMES, *[""] * len(tasks.REGISTER)])

        def wait(_service: context.Context) -> str:
            name = next(names)
            turn = turns.take(service, name) if name else contextlib.nullcontext()
            with turn, store.engine.connect():
                waiting.wait(60)
                released.wait(60)
            return ""

        def run(_service: context.Context) -> str:
            waiting.wait(60)
            store.recall("a key")
            ran.set()
            return ""

        def task(number: int) -> context.Task:
            last = number == len(tasks.REGISTER) - 1
            return context.Task(
                name=f"t{number}", meaning="", run=run if last else wait, every_s=lambda _: 3600.0
            )

        monkeypatch.setattr(tasks, "REGISTER", tuple(task(n) for n in range(len(tasks.REGISTER))))
        scheduler = serve.make_scheduler(service)
        scheduler.start()
        try:
            assert ran.wait(70)
        finally:
            released.set()
            scheduler.shutdown()


def test_the_service_reports_to_systemd_while_every_task_waits(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its scheduler: a Slurm that hangs is no reason to start it again, a scheduler that plans nothing is."""
    released, waits, reported = threading.Event(), threading.Event(), threading.Event()

    def wait(_: context.Context) -> str:
        waits.set()
        released.wait(60)
        return ""

    task = context.Task(name="t", meaning="", run=wait, every_s=lambda _: 3600.0, at_start=True)
    monkeypatch.setattr(tasks, "REGISTER", (task,))
    monkeypatch.setattr(watchdog, "EVERY_S", 0.1)
    monkeypatch.setattr(watchdog, "report", lambda: waits.is_set() and reported.set())
    scheduler = serve.make_scheduler(service)
    scheduler.start()
    try:
        assert reported.wait(60)
    finally:
        released.set()
        scheduler.shutdown()


@pytest.mark.parametrize(("did", "runs"), [("drain n1 done", True), ("", False)])
def test_what_a_task_did_is_news_to_those_that_follow_it(
    service: context.Context, monkeypatch: pytest.MonkeyPatch, did: str, runs: bool
) -> None:
    """People are told when something was done, not when their hour comes; a pass that did nothing wakes nobody."""
    passes = {"act": threading.Event(), "tell": threading.Event()}

    def task(name: str, message: str, *follows: str) -> context.Task:
        def run(_: context.Context) -> str:
            passes[name].set()
            return message

        return context.Task(
            name=name, meaning="", run=run, every_s=lambda _: 3600.0, at_start=not follows, follows=follows
        )

    monkeypatch.setattr(tasks, "REGISTER", (task("act", did), task("tell", "", "act")))
    scheduler = serve.make_scheduler(service)
    scheduler.start()
    try:
        assert passes["act"].wait(60)
        assert not runs or passes["tell"].wait(60)
    finally:
        scheduler.shutdown()  # waits for the passes
    assert passes["tell"].is_set() is runs


def test_a_pass_that_had_nothing_to_write_ends_no_outage(
    service: context.Context, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only database stops those that write: one line as it begins and one as they write again, with any cursor of the driver."""
    writes = [True]

    def run(given: context.Context) -> str:
        with engines.translated(), given.store.engine.begin() as connection:
            connection.execute(sa.text("SELECT 1"))
            if writes[0]:
                connection.connection.cursor().execute("DELETE FROM probing.state")
        return ""

    task = context.Task(name="t", meaning="", run=run)

    def outcome(*, to_write: bool) -> str:
        writes[0] = to_write
        return journal.one_pass(
            service.journal, "t", lambda: serve.run_pass(service, task), service.clock
        ).outcome

    name = sa.engine.make_url(service.store.url).database
    owner = sa.create_engine(service.store.engine.url, isolation_level="AUTOCOMMIT").connect()
    with owner:
        owner.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        service.store.engine.dispose()
        assert outcome(to_write=False) == "ok"
        assert [outcome(to_write=w) for w in (True, False, True)] == ["unavailable"] * 3
        owner.execute(sa.text(f"ALTER DATABASE {name} RESET default_transaction_read_only"))
    owner.engine.dispose()
    assert outcome(to_write=True) == "ok"
    assert [r.message for r in caplog.records if r.name == "probing.tasks"] == [
        "task waits",
        "task works again",
    ]


def value(text: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"{name}{labels} is not exported")


def test_a_clock_that_is_set_back_delays_no_pass(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler plans by the wall clock: after a step of a day it would do nothing for a day."""
    scheduler, stopping = serve.make_scheduler(service), threading.Event()
    scheduler.start(paused=True)
    try:
        planned_at = clock.SYSTEM.now() + timedelta(days=1)
        for job in scheduler.get_jobs():
            job.modify(next_run_time=planned_at)
        readings = iter((0.0, 0.0, 86400.0, 86399.995, -1.0))

        def ahead_s() -> float:
            value = next(readings, None)
            if value is None:
                stopping.set()
            elif value >= 0:
                assert {job.next_run_time for job in scheduler.get_jobs()} == {planned_at}
            return -1.0 if value is None else value

        monkeypatch.setattr(serve, "_SET_BACK_S", 0.01)
        monkeypatch.setattr(serve, "_ahead_s", ahead_s)
        serve.until_stopped(scheduler, stopping)
        late = {j.id for j in scheduler.get_jobs() if j.next_run_time > clock.SYSTEM.now()}
        daily = {task.name for task in tasks.REGISTER if task.daily_at is not None}
        assert late <= daily
        assert all(j.next_run_time < planned_at + timedelta(seconds=1) for j in scheduler.get_jobs())
    finally:
        scheduler.shutdown(wait=False)


def test_a_daily_task_runs_once_a_day_in_every_zone() -> None:
    """Where clocks are set back an hour comes twice, and where they are set forward one is missing: neither is a task's."""
    for at in {task.daily_at(settings.Settings()) for task in tasks.REGISTER if task.daily_at is not None}:
        hour, minute = map(int, at.split(":"))
        for name in zoneinfo.available_timezones():
            first = datetime(2026, 1, 1, hour, minute, tzinfo=zoneinfo.ZoneInfo(name))
            days = (first + timedelta(days=n) for n in range(365))
            odd = [day for day in days if day.utcoffset() != day.replace(fold=1).utcoffset()]
            assert odd == [], f"{at} in {name}"


def test_metrics_tell_of_tasks_nodes_and_decisions(service: context.Context) -> None:
    """One scrape over HTTP: tasks, heartbeats, faults, budget; the numbers are the rows' own."""
    import test_tasks

    from probing_cluster.control_plane.service.tasks.nodes import actions

    fakes.deliver(service.store, "n2", test_tasks.xid())
    day = fakes.NOW.replace(hour=0, minute=0, second=0)
    service.store.save_lemon_scores(
        [records.LemonScore(cluster="c", node="n2", day=day, score=0.95, verdict="lemon", made_at=fakes.NOW)]
    )
    journal.one_pass(service.journal, "actions", lambda: actions.run(service), service.clock)
    (done,) = service.store.drains()
    for age_s in (5, 400):  # the younger one is under way, and nothing to be called for
        at = service.clock.now() - timedelta(seconds=age_s)
        begun = dataclasses.replace(done, drain_id=uuid.uuid4(), at=at, state="failed", why_state=view.BEGUN)
        service.store.save_drain(begun)
    port = ports.choose(1)[0]
    service.config = settings.Settings(
        cluster=service.config.cluster,
        policy=service.config.policy,
        service=settings.ServiceSettings(metrics_listen=f"127.0.0.1:{port}"),
    )
    with (
        metrics.serving(service),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply,
    ):
        text = reply.read().decode()
    assert value(text, "probing_task_passes_total", task="actions", outcome="ok") == 1
    assert value(text, "probing_node_faults", node="n2", severity="high") == 1
    assert value(text, "probing_decisions_24h", action="drain", state="done") == 1
    assert value(text, "probing_decisions_24h", action="drain", state="failed") == 1
    assert value(text, "probing_decisions_24h", action="drain", state="under way") == 1
    assert value(text, "probing_budget_nodes_taken") == 1
    assert value(text, "probing_database_up") == 1
    assert value(text, "probing_observe_only") == 0
    assert value(text, "probing_outbox_letters", state="failed") == 0
    assert value(text, "probing_lemon_nodes", verdict="lemon") == 1


def test_metrics_tell_what_waits_and_who_is_silent(service: context.Context) -> None:
    """Silent and heard agents, attempts without a verdict, open requests and drains, refused rows, losses: the rows' own."""
    from datetime import timedelta

    import psycopg
    from prometheus_client import CollectorRegistry, generate_latest

    from probing_cluster.core import records
    from probing_cluster.db import delivery

    store, url = service.store, service.store.connection_uri()
    for node in ("n1", "n2", "n3"):
        fakes.deliver(store, node)
    lost = records.AgentHeartbeat(
        cluster="c", node="n2", at=fakes.NOW, dropped_total=5, rejected_total=6, coalesced_total=7, lag_s=8.5
    )
    door = delivery.Delivery(url, "c", "n2")
    door.deliver(heartbeat=lost, events=[records.HealthEvent(
        event_id=records.make_event_id("c", "n9", "kernel", "x"), cluster="c", node="n9", at=fakes.NOW, observed_at=fakes.NOW,
        kind="xid", severity=records.Severity.HIGH, source="kernel", message="forged",
    )])  # fmt: skip
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE probing.agent_heartbeat SET received_at = now() - interval '1 hour' WHERE node = 'n3'"
        )
    store.upsert_attempts([records.JobAttempt(
        cluster="c", job_id=7, submit_at=fakes.NOW - timedelta(hours=3), start_at=fakes.NOW - timedelta(hours=2),
        end_at=fakes.NOW - timedelta(hours=1), state="FAILED", nodes=("n1",), user="alice", run_key="7",
    )])  # fmt: skip
    store.request("n1", "recheck", cluster="c")
    registry = CollectorRegistry()
    registry.register(metrics.ServiceCollector(service))
    text = generate_latest(registry).decode()
    assert (value(text, "probing_agents", state="heard"), value(text, "probing_agents", state="silent")) == (
        2,
        1,
    )
    assert value(text, "probing_attempts_unjudged") == 1
    assert value(text, "probing_attempts_unjudged_oldest_seconds") >= 3600
    assert value(text, "probing_requests_open") == 1
    assert value(text, "probing_drains_open") == 0
    assert value(text, "probing_delivery_rejected_24h") == 1
    for name, number in (("dropped", 5), ("rejected", 6), ("coalesced", 7)):
        assert value(text, f"probing_agent_{name}_total", node="n2") == number
    assert value(text, "probing_agent_lag_seconds", node="n2") == 8.5


def test_a_scrape_without_the_database_still_answers(
    service: context.Context, postgres_directory: Path
) -> None:
    """Prometheus learns that the database is away from the endpoint itself."""
    from prometheus_client import CollectorRegistry, generate_latest

    from probing_cluster.db.server import embedded

    registry = CollectorRegistry()
    registry.register(metrics.ServiceCollector(service))
    embedded.stop(postgres_directory)
    try:
        text = generate_latest(registry).decode()
    finally:
        embedded.ensure(postgres_directory)
    assert value(text, "probing_database_up") == 0


_THREADS = """
import ctypes, os, sys, threading
from probing_cluster.core.ending import process_memory
if sys.argv[1] == "few":
    process_memory.keep_small()
libc, together = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype = ctypes.c_void_p
def work():
    together.wait()
    held = [libc.malloc(1000) for _ in range(1000)]
    together.wait()
all = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in all], [t.join() for t in all]
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fflush(ctypes.c_void_p(file))
"""


def test_the_tasks_threads_share_few_heaps() -> None:
    """A heap a thread would each keep the size of the largest pass that ever ran on it."""

    def heaps(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", _THREADS, how], capture_output=True, text=True, check=True
        )
        return done.stdout.count("<heap ")

    assert heaps("few") <= 3  # glibc counts the threads there are, and one it has begun with
    assert heaps("many") > 3


_PASSES = """
import re, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from probing_cluster.core.ending import process_memory
if sys.argv[1] == "small":
    process_memory.keep_small()
from probing_cluster.db import arrow
import pyarrow as pa, pyarrow.compute as pc

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

def one(_):
    with lock:
        column = pa.nulls(1_000_000, pa.int64()).fill_null(7)
        words = column.cast(pa.string())
        pc.take(words, pc.sort_indices(words))
    together.wait()

lock, together = threading.Lock(), threading.Barrier(4)
before_mb = resident_mb()
with ThreadPoolExecutor(4) as pool:
    list(pool.map(one, range(4)))
    process_memory.give_back()
    print(resident_mb() - before_mb, "pandas" in sys.modules)
import types
plugin = types.ModuleType("site_plugin")
exec("import pandas", vars(plugin))
print(plugin.pandas.__name__)
"""


def test_a_pass_leaves_nothing_behind() -> None:
    """What each thread's pass took goes back, and no pandas is loaded, which Arrow imports wherever it is installed, as it is here.

    A plugin that imports it gets it.
    """

    def left(how: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _PASSES, how], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    (small_mb, small, plugins), (usual_mb, usual, _) = left("small"), left("usual")
    assert (small, usual, plugins) == ("False", "True", "pandas")
    assert float(small_mb) < 20 < float(usual_mb)
