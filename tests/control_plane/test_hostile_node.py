"""One node sends whatever its certificate lets it, or did before the door looked: no pass over the others fails, and theirs goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from datetime import timedelta
from typing import Any

import fakes
import hypothesis
import hypothesis.strategies as st
import psycopg
import pytest
import test_tasks

from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.policy import resume_policy
from probing_cluster.control_plane.service import metrics
from probing_cluster.control_plane.service.tasks.jobs import attribution, gangs, slow
from probing_cluster.control_plane.service.tasks.nodes import actions, resume, silence
from probing_cluster.core import records
from probing_cluster.db import delivery

NOW = fakes.NOW.isoformat()
PASSES = (actions, resume, slow, silence, attribution, gangs)
NUMBERS = (0, 1, -1, 7, 2**31, 2**63, 10**300, 1e300, -1e300, 5e-324, 0.5)
_WORDS = st.sampled_from(
    [
        None,
        True,
        False,
        *NUMBERS,
        "",
        "boo",
        "high",
        "infinity",
        NOW,
        str(uuid.UUID(int=1)),
        "gpu3",
        "training",
        "7:0",
        "0-99999999",
    ]
)
_NAMES = st.sampled_from(
    [
        "since",
        "confirmed_at",
        "severity",
        "event_id",
        "event_ids",
        "code",
        "kind",
        "device",
        "latched",
        "message",
        "ranks",
        "rank",
        "alive",
        "steps",
        "step_age_s",
        "phase",
        "stalled",
        "world_size",
        "pid",
        "window",
        "index",
        "total_s",
        "compute_s",
        "host_s",
        "input_s",
        "checkpoint_s",
        "waiting_s",
        "backward_s",
        "stack",
        "calls",
        "group",
        "group_size",
        "seq",
        "op",
        "nics",
        "ports",
        "gpus",
        "tx_bytes_per_s",
        "over_s",
        "together",
        "step_id",
        "first",
        "fault",
        "role",
        "domains",
        "exception",
        "exit_code",
        "tasks",
        "culprit_node",
        "host",
        "outstanding",
        "created_ns",
        "timeout_ms",
        "elapsed_ms",
        "first_cause",
        "survived",
        "recovered",
        "restart_count",
        "serial",
        "port_up",
        "duration_s",
        "total_s",
    ]
)
ANY = st.recursive(
    _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=12,
)
FAULTS = st.dictionaries(st.sampled_from(["xid:gpu3", "xid:", "", "nic_down:ib0"]), ANY, max_size=2) | ANY
RANKS = st.dictionaries(st.sampled_from(["7:0", "7:1", "7:2", "7:pid5", "8:0", "boo"]), ANY, max_size=5) | ANY
KINDS = (
    "xid",
    "check",
    "rank_stall",
    "rank_snapshot",
    "rank_dead",
    "gang_pace",
    "last_progress",
    "dump",
    "nccl_timeout",
    "python_exception",
    "checkpoint",
)
SOURCES = ("kernel", "agent", "probe", "joblog", "dump", "check")
RAW = (
    "[1]",
    "null",
    "5",
    '{"x": 1e131000}',
    '{"ranks": 1e400}',
    '"boo"',
    '{"x": ' + "[" * 3000 + "]" * 3000 + "}",
)
"""What jsonb holds, and no reader."""


def heal(service: context.Context) -> None:
    """A healthy and a faulty neighbour, and an ended attempt of theirs; nothing of the hostile node, n4."""
    store = service.store
    with psycopg.connect(store.connection_uri()) as connection:
        connection.execute(
            "TRUNCATE probing.health_event, probing.event_key, probing.agent_heartbeat, probing.drain, probing.job_attempt,"
            " probing.verdict, probing.arrival, probing.gang_verdict, probing.check_now, probing.job_allocation"
        )
    fakes.deliver(store, "n2", test_tasks.xid(node="n2"))
    fakes.deliver(store, "n1")
    usual: dict[str, Any] = {
        "cluster": "c",
        "submit_at": fakes.NOW - timedelta(hours=2),
        "start_at": fakes.NOW - timedelta(hours=1),
    }
    ended: dict[str, Any] = {"end_at": fakes.NOW - timedelta(minutes=20), "state": "FAILED", "exit_code": 1}
    store.upsert_attempts(
        [
            records.JobAttempt(job_id=7, state="RUNNING", nodes=("n3", "n4"), run_key="7", **usual),
            records.JobAttempt(job_id=8, nodes=("n1",), run_key="8", **usual, **ended),
            records.JobAttempt(job_id=9, nodes=("n4",), run_key="9", **usual, **ended),
        ]
    )


def require_all_well(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Every pass goes through, and does for the others what it is for."""
    started = dataclasses.replace(service)
    slurm.acts.clear()
    slurm.state |= {
        n: dataclasses.replace(s, states=frozenset({"IDLE"}), reason="") for n, s in slurm.state.items()
    }
    for task in PASSES:
        task.run(started)
    assert [a[:2] for a in slurm.acts if a[1] == "n2"] == [("drain", "n2")]
    assert isinstance(started.memory(resume.GreenTimes)["n1"], resume_policy.GreenTime)
    assert 8 in {v.job_id for v in service.store.verdicts()}
    list(metrics.store_metrics(started))
    rank_rows.of_heartbeats(service.store.heartbeats(with_ranks=True))
    with psycopg.connect(service.store.connection_uri()) as connection:
        for view in (
            "agent_health",
            "node_now",
            "check_now",
            "high_events_24h",
            "rejections",
            "requests",
            "drains",
        ):
            connection.execute(
                f"SELECT * FROM ops.{view}"
            ).fetchall() if view == "rejections" else connection.execute(
                f"SELECT count(*), min(t::text) FROM ops.{view} t"
            )


def event(kind: str, source: str, detail: str, job_id: int, measured: float | None) -> dict[str, Any]:
    """The arguments of one event of the hostile node, during its jobs."""
    at = fakes.NOW - timedelta(seconds=5) if job_id == 7 else fakes.NOW - timedelta(minutes=20, seconds=30)
    return {
        "e_event_id": [uuid.uuid4()], "e_cluster": ["c"], "e_node": ["n4"], "e_at": [at], "e_observed_at": [at], "e_kind": [kind],
        "e_severity": ["high" if source in ("kernel", "check") else "info"], "e_source": [source], "e_code": ["prolog_refused"],
        "e_detail": [detail], "e_job_id": [job_id], "e_measured": [measured], "e_device": ["gpu3"],
    }  # fmt: skip


def deliver(service: context.Context, **given: Any) -> None:
    """One call of the door for n4."""
    kinds = {f"e_{name}": f"{sql}[]" for name, sql in delivery.EVENT_FIELDS}
    names = ", ".join(f"{name} => %s::{kinds.get(name, 'jsonb')}" for name in given)
    with (
        psycopg.connect(service.store.connection_uri(), autocommit=True) as connection,
        contextlib.suppress(psycopg.Error),
    ):
        connection.execute(f"SELECT probing.deliver('c', 'n4', {names})", list(given.values()))


@hypothesis.settings(max_examples=10, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    faults=FAULTS, ranks=RANKS, sources=ANY, beat_s=_WORDS, direct=st.booleans(),
    events=st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(SOURCES), ANY, st.sampled_from([7, 9]), st.sampled_from([None, *NUMBERS])), max_size=8),
)  # fmt: skip
def test_whatever_one_node_sends_the_others_passes_go_on(
    faults: Any,
    ranks: Any,
    sources: Any,
    beat_s: Any,
    direct: bool,
    events: list[Any],
    service: context.Context,
    slurm: fakes.FakeSlurm,
) -> None:
    """Arbitrary JSON through the door; and, as of a time before it looked, put into the tables."""
    heal(service)
    deliver(
        service,
        p_heartbeat=json.dumps(
            {"at": NOW, "faults": faults, "ranks": ranks, "sources": sources, "beat_s": beat_s}
        ),
    )
    deliver(service, p_heartbeat=json.dumps({"at": NOW, "ranks": ranks}))
    for kind, source, detail, job_id, measured in events:
        deliver(service, **event(kind, source, json.dumps(detail), job_id, measured))
    if direct:
        put(service, json.dumps(faults), json.dumps(ranks), json.dumps(events[0][2] if events else 5))
    require_all_well(service, slurm)


def put(service: context.Context, faults: str, ranks: str, detail: str, at: str = NOW) -> None:
    """A heartbeat and events of n4 as the owner of the tables writes them: nothing looks at them."""
    with psycopg.connect(service.store.connection_uri(), autocommit=True) as connection:
        connection.execute("DELETE FROM probing.agent_heartbeat WHERE node = 'n4'")
        connection.execute(
            "INSERT INTO probing.agent_heartbeat SELECT r.* FROM probing.agent_heartbeat h,"
            " jsonb_populate_record(h, '{\"node\": \"n4\"}') r WHERE h.node = 'n1'"
        )
        connection.execute(
            "UPDATE probing.agent_heartbeat SET at = %s, faults = %s, ranks = %s, sources = %s WHERE node = 'n4'",
            [at, faults, ranks, faults],
        )
        for job_id, kind, source in (
            (7, "rank_snapshot", "probe"),
            (9, "nccl_timeout", "joblog"),
            (9, "xid", "kernel"),
            (7, "check", "agent"),
        ):
            connection.execute(
                "WITH e AS (INSERT INTO probing.event_key (event_id, at) VALUES (gen_random_uuid(), %s) RETURNING event_id, at)"
                " INSERT INTO probing.health_event (event_id, cluster, node, at, observed_at, kind, severity, source, message, detail, job_id, count, code)"
                " SELECT event_id, 'c', 'n4', at, at, %s, 'high', %s, '', %s::jsonb, %s, 1, 'prolog_refused' FROM e",
                [fakes.NOW - timedelta(seconds=5 if job_id == 7 else 1230), kind, source, detail, job_id],
            )


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: raw[:20])
def test_what_was_stored_before_the_door_looked_stops_nobody(
    raw: str, service: context.Context, slurm: fakes.FakeSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    """Values that Postgres holds and no client reads: the row is left out, counted and logged with its node."""
    heal(service)
    put(service, raw, raw, raw, at="infinity")
    require_all_well(service, slurm)
    assert service.store.skipped.counts()["n4"] > 0
    nodes = [r.fields["node"] for r in caplog.records if "cannot be read" in r.getMessage()]  # type: ignore[attr-defined]
    assert set(nodes) == {"n4"}
    assert len(nodes) <= 6  # once for each table and node, not for each pass
