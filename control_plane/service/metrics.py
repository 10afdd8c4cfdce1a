"""The Prometheus endpoint: read from the store at each scrape, so that it cannot go stale."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.policy import budget, confirm, view
from probing_cluster.control_plane.service import tasks, turns
from probing_cluster.core import certificates, errors, network_address, records
from probing_cluster.db import engines
from probing_cluster.reports import node_state

LOG = logging.getLogger("probing.metrics")


@contextlib.contextmanager
def serving(service: context.Context) -> Iterator[None]:
    """The endpoint, while the block runs, when service.metrics_listen names one."""
    listen = service.config.service.metrics_listen
    if not listen:
        yield
        return
    host, port = network_address.parse(listen, "[service] metrics_listen")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(service))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as exc:
        LOG.warning("no metrics endpoint", extra={"fields": {"listen": listen, "why": str(exc)}})
        yield
        return
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class ServiceCollector(Collector):
    """Everything the endpoint tells."""

    def __init__(self, service: context.Context) -> None:
        self._service = service
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Names no metric before a scrape: the database may be away."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        with self._lock:
            yield from task_metrics(self._service)
            yield certificate_metric(self._service)
            up = GaugeMetricFamily("probing_database_up", "1 when the database answered this scrape")
            try:
                found = list(store_metrics(self._service))
            except errors.ProbingError:
                found = []
                up.add_metric([], 0)
            else:
                up.add_metric([], 1)
            yield up
            yield from found


def task_metrics(service: context.Context) -> Iterator[Metric]:
    """How the service's own tasks fare."""
    last = GaugeMetricFamily(
        "probing_task_last_pass_timestamp_seconds", "end of the task's last pass", labels=["task"]
    )
    took = GaugeMetricFamily("probing_task_duration_seconds", "wall time of its last pass", labels=["task"])
    passes = CounterMetricFamily("probing_task_passes", "passes by outcome", labels=["task", "outcome"])
    for name, done in sorted(service.journal.passes().items()):
        last.add_metric([name], done.at.timestamp())
        took.add_metric([name], done.duration_s)
        for outcome in ("ok", "unavailable", "failed"):
            passes.add_metric([name, outcome], getattr(done, f"n_{outcome}"))
    every = GaugeMetricFamily(
        "probing_task_interval_seconds",
        "how often the task passes; a day where it has its hour",
        labels=["task"],
    )
    for task in tasks.REGISTER:
        every.add_metric([task.name], 86400.0 if task.every_s is None else task.every_s(service.config))
    yield from (last, took, passes, every)
    missed = CounterMetricFamily(
        "probing_turns_missed",
        "passes that could not take their turn, from the second in a row on",
        labels=["turn"],
    )
    n_missed = service.journal.turns_missed()
    for name in turns.NAMES:
        missed.add_metric([name], n_missed.get(name, 0))
    yield missed
    skipped = CounterMetricFamily(
        "probing_rows_unreadable", "stored rows that a pass could not read and left out", labels=["node"]
    )
    for node, count in sorted(service.store.skipped.counts().items()):
        skipped.add_metric([node], count)
    yield skipped
    messages = GaugeMetricFamily(
        "probing_outbox_letters", "mails and posts that are not delivered, by state", labels=["state"]
    )
    counts = Counter(x.state for x in queue.of(service.config).pending())
    for state in ("waiting", "failed"):
        messages.add_metric([state], counts[state])
    yield messages


def certificate_metric(service: context.Context) -> Metric:
    """The end of the service's own certificates; shown also while the database is away, perhaps because of one."""
    found = GaugeMetricFamily(
        "probing_certificate_end_timestamp_seconds",
        "when a certificate the service uses ends; 0 = unreadable",
        labels=["file"],
    )
    for one in certificates.named(service.config):
        try:
            at = certificates.ends(one.path, authority=one.authority).timestamp()
        except (errors.MalformedInput, OSError):
            at = 0.0
        found.add_metric([str(one.path)], at)
    return found


def store_metrics(service: context.Context) -> Iterator[Metric]:
    """What the rows say about nodes, agents, decisions and verdicts."""
    store, policy = service.store, service.config.policy
    cluster = service.cluster
    beats, ages = store.heartbeats(cluster=cluster), store.heartbeat_ages_s(cluster=cluster)
    since = service.clock.now() - timedelta(days=1)
    drains = store.drains(since=since, cluster=cluster)
    yield from _agents(beats, ages)
    yield from _faults(beats, ages)
    yield from _decisions(node_state.as_shown(drains, service.clock.now()))
    taken = GaugeMetricFamily("probing_budget_nodes_taken", "nodes counted against the drain budget now")
    taken.add_metric(
        [],
        len(
            budget.taken_nodes(
                view.View(
                    now=service.clock.now(), drains=tuple(drains), under_test=store.nodes_under_test(cluster)
                ),
                policy,
            )
        ),
    )
    limit = GaugeMetricFamily("probing_budget_nodes_limit", "policy.budget_nodes")
    limit.add_metric([], policy.budget_nodes)
    observing = GaugeMetricFamily("probing_observe_only", "1 while nothing is touched")
    observing.add_metric([], float(policy.observe_only))
    yield from (taken, limit, observing)
    yield from _waiting(_rows(service, WAITING)[0])
    yield _verdicts(_rows(service, VERDICTS, since=since))
    yield _lemons(service)


def _lemons(service: context.Context) -> Metric:
    found = GaugeMetricFamily(
        "probing_lemon_nodes", "nodes of the last scored day, by verdict", labels=["verdict"]
    )
    for verdict, count in sorted(service.store.lemon_counts(service.config.cluster.name).items()):
        found.add_metric([verdict], count)
    return found


def _agents(beats: Iterable[records.AgentHeartbeat], ages: dict[str, float]) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "probing_agent_heartbeat_age_seconds", "since the agent was last heard", labels=["node"]
    )
    depth = GaugeMetricFamily(
        "probing_agent_spool_depth", "events waiting in the node's spool", labels=["node"]
    )
    lag = GaugeMetricFamily(
        "probing_agent_lag_seconds", "age of the oldest undelivered event", labels=["node"]
    )
    hung = GaugeMetricFamily(
        "probing_agent_hung_children", "children in D state past their deadline", labels=["node"]
    )
    totals = {
        name: CounterMetricFamily(f"probing_agent_{name}", meaning, labels=["node"])
        for name, meaning in _TOTALS.items()
    }
    for beat in beats:
        age.add_metric([beat.node], ages.get(beat.node, float("nan")))
        depth.add_metric([beat.node], beat.spool_depth)
        lag.add_metric([beat.node], beat.lag_s)
        hung.add_metric([beat.node], beat.hung_children)
        for name, family in totals.items():
            family.add_metric([beat.node], getattr(beat, f"{name}_total"))
    yield from (age, depth, lag, hung, *totals.values())


_ACTIONS = ("drain", "refuse", "requeue", "resume")
_TOTALS = {
    "dropped": "events dropped by the node's spool",
    "coalesced": "events folded into others on the node",
    "rejected": "inputs the node refused as malformed",
}


def _faults(beats: Iterable[records.AgentHeartbeat], ages: dict[str, float]) -> Iterator[Metric]:
    faults = GaugeMetricFamily(
        "probing_node_faults", "faults the agent confirms now", labels=["node", "severity"]
    )
    for beat in beats:
        if confirm.is_current(beat, ages.get(beat.node)):
            for severity in ("high", "low"):
                count = sum(f.get("severity") == severity for f in beat.faults.values())
                faults.add_metric([beat.node, severity], count)
    yield faults


def _decisions(drains: Iterable[records.Drain]) -> Iterator[Metric]:
    # Those of the alarms from the start: a series that begins at 1 has not risen.
    counts = {(action, state): 0 for action in _ACTIONS for state in ("denied", "failed")}
    for drain in drains:
        counts[drain.action, drain.state] = counts.get((drain.action, drain.state), 0) + 1
    made = GaugeMetricFamily(
        "probing_decisions_24h", "decisions of the last 24 h", labels=["action", "state"]
    )
    for (action, state), count in sorted(counts.items()):
        made.add_metric([action, state], count)
    yield made


def _rows(service: context.Context, statement: sa.TextClause, **given: Any) -> list[Mapping[str, Any]]:
    with engines.translated(), service.store.engine.connect() as connection:
        result = connection.execute(statement, {"cluster": service.config.cluster.name, **given})
        return [dict(row) for row in result.mappings()]


def _waiting(row: Mapping[str, Any]) -> Iterator[Metric]:
    for name, key, meaning in _WAITING_METRICS:
        family = GaugeMetricFamily(f"probing_{name}", meaning)
        family.add_metric([], row[key])
        yield family
    agents = GaugeMetricFamily(
        "probing_agents",
        "agents by whether they are heard; silent = two missed beats",
        labels=["state"],
    )
    for state in ("heard", "silent"):
        agents.add_metric([state], row[state])
    yield agents


def _verdicts(rows: Iterable[Mapping[str, Any]]) -> Metric:
    found = GaugeMetricFamily(
        "probing_verdicts_24h", "attempts that ended in the last 24 h, by verdict", labels=["domain", "cause"]
    )
    for row in rows:
        found.add_metric([row["domain"], row["cause"]], row["n_attempts"])
    return found


_SQL = Path(__file__).parent / "sql"
WAITING = sa.text((_SQL / "waiting.sql").read_text(encoding="utf-8"))
VERDICTS = sa.text((_SQL / "verdicts_since.sql").read_text(encoding="utf-8"))
_WAITING_METRICS = (
    ("attempts_unjudged", "unjudged", "attempts that ended, not completed, and wait for a verdict"),
    ("attempts_unjudged_oldest_seconds", "oldest_unjudged_s", "since the end of the one that waits longest"),
    ("arrivals_waiting", "arrivals", "deliveries not yet held against the verdicts given"),
    ("requests_open", "requests", "requests to nodes that are not acknowledged"),
    ("drains_open", "drains", "drains of ours that stand"),
    (
        "delivery_rejected_24h",
        "refused_24h",
        "rows that the database refused of agents, on days with one in the last 24 h",
    ),
    ("agent_certificates_ending", "ending", "agents whose certificate, or its authority's, ends soon"),
)
