"""The Prometheus endpoint: read from the store at each scrape, so that it cannot go stale."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from probing_cluster.control_plane import budget, confirm, context, view
from probing_cluster.core import errors, network_address, records

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
        """Nothing is promised before a scrape: the database may be away."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        with self._lock:
            yield from task_metrics(self._service)
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
    yield from (last, took, passes)


def store_metrics(service: context.Context) -> Iterator[Metric]:
    """What the rows say about nodes, agents, decisions and verdicts."""
    store, policy = service.store, service.config.policy
    beats, ages = store.heartbeats(), store.heartbeat_ages_s()
    since = service.clock.now() - timedelta(days=1)
    drains = store.drains(since=since)
    yield from _agents(beats, ages)
    yield from _faults(beats, ages)
    yield from _decisions(drains)
    taken = GaugeMetricFamily("probing_budget_nodes_taken", "nodes counted against the drain budget now")
    taken.add_metric(
        [], len(budget.taken_nodes(view.View(now=service.clock.now(), drains=tuple(drains)), policy))
    )
    limit = GaugeMetricFamily("probing_budget_nodes_limit", "policy.budget_nodes")
    limit.add_metric([], policy.budget_nodes)
    observing = GaugeMetricFamily("probing_observe_only", "1 while nothing is touched")
    observing.add_metric([], float(policy.observe_only))
    yield from (taken, limit, observing, _verdicts(store.verdicts(since=since)))


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
    dropped = CounterMetricFamily(
        "probing_agent_dropped", "events dropped by the node's spool", labels=["node"]
    )
    hung = GaugeMetricFamily(
        "probing_agent_hung_children", "children in D state past their deadline", labels=["node"]
    )
    for beat in beats:
        age.add_metric([beat.node], ages.get(beat.node, float("nan")))
        depth.add_metric([beat.node], beat.spool_depth)
        lag.add_metric([beat.node], beat.lag_s)
        dropped.add_metric([beat.node], beat.dropped_total)
        hung.add_metric([beat.node], beat.hung_children)
    yield from (age, depth, lag, dropped, hung)


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
    counts: dict[tuple[str, str], int] = {}
    for drain in drains:
        counts[drain.action, drain.state] = counts.get((drain.action, drain.state), 0) + 1
    made = GaugeMetricFamily(
        "probing_decisions_24h", "decisions of the last 24 h", labels=["action", "state"]
    )
    for (action, state), count in sorted(counts.items()):
        made.add_metric([action, state], count)
    yield made


def _verdicts(verdicts: Iterable[records.Verdict]) -> Metric:
    counts: dict[tuple[str, str], int] = {}
    for verdict in verdicts:
        key = (verdict.domain.value, verdict.cause)
        counts[key] = counts.get(key, 0) + 1
    found = GaugeMetricFamily(
        "probing_verdicts_24h", "attempts that ended in the last 24 h, by verdict", labels=["domain", "cause"]
    )
    for (domain, cause), count in sorted(counts.items()):
        found.add_metric([domain, cause], count)
    return found
