"""One accounting of two clusters (`sacct -M a,b`): a log names no cluster, and ids and names may be of both."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.control_plane.imports import load
from probing_cluster.core import errors, vocabulary
from probing_cluster.db import store as db_store

NOW = datetime(2026, 11, 27, tzinfo=UTC)
HEAD = "Cluster|JobIDRaw|JobID|User|State|Submit|Start|End|NodeList"
DAY = "2026-11-24T"
RAN = f"{DAY}10:00:00|{DAY}10:00:00|{DAY}11:00:00"
WAITED = f"{DAY}10:00:00|None|{DAY}11:00:00|None assigned"
JOBS = (
    f"a|1|1|ann|COMPLETED|{RAN}|n1",
    f"a|2|2|ann|COMPLETED|{RAN}|n1",
    f"b|3|3|ben|FAILED|{RAN}|m1",
    f"a|9|9|ann|CANCELLED by 7|{WAITED}",
    f"b|9|9|ben|CANCELLED by 7|{WAITED}",
)
XID = "kernel: NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def sacct(tmp_path: Path) -> Path:
    (tmp_path / "sacct").write_text("\n".join((HEAD, *JOBS)) + "\n")
    return tmp_path / "sacct"


def order(sacct: Path, **changes: object) -> load.LoadOrder:
    values: dict[str, object] = {"sacct": [sacct], "now": NOW, "timezone": "UTC"}
    return load.LoadOrder(**(values | changes))  # type: ignore[arg-type]


def test_logs_and_events_are_of_the_cluster_that_has_the_node(
    store: db_store.Store, sacct: Path, tmp_path: Path
) -> None:
    """Filed under the cluster with most jobs they would be evidence for none of the other's."""
    (tmp_path / "m1").write_text(f"{DAY}10:59:58Z m1 {XID}\n")
    (tmp_path / "all").write_text(f"{DAY}10:59:57Z m1 {XID}\n{DAY}10:59:57Z n1 {XID}\n")
    event = {"node": "m1", "at": f"{DAY}10:59:56Z", "kind": "xid", "code": "79"}
    (tmp_path / "events").write_text(json.dumps(event))
    load.load(
        store,
        order(sacct, kernel=[("m1", tmp_path / "m1"), ("", tmp_path / "all")], events=[tmp_path / "events"]),
    )
    found = sorted((e.cluster, e.node) for e in store.of(None).events() if e.kind == "xid")
    assert found == [("a", "n1"), ("b", "m1"), ("b", "m1"), ("b", "m1")]


def test_a_job_that_never_started_is_of_its_own_cluster(store: db_store.Store, sacct: Path) -> None:
    """Two clusters may use one id in the same second."""
    done = load.load(store, order(sacct))
    found = sorted(
        (e.cluster, e.detail["user"]) for e in store.of(None).events() if e.kind == vocabulary.NEVER_STARTED
    )
    assert found == [("a", "ann"), ("b", "ben")]
    assert "2 jobs that never started" in done.lines[0]
    assert "double" not in done.lines[0]


def test_a_node_of_both_clusters_is_refused(store: db_store.Store, sacct: Path, tmp_path: Path) -> None:
    """Nothing tells whose log it is: nothing is stored."""
    with sacct.open("a") as stream:
        stream.write(f"b|4|4|ben|FAILED|{RAN}|n1\n")
    (tmp_path / "n1").write_text(f"{DAY}10:59:58Z n1 {XID}\n")
    with pytest.raises(errors.MalformedInput, match="n1 is a node of the clusters a and b"):
        load.load(store, order(sacct, kernel=[("n1", tmp_path / "n1")]))
    assert store.attempts() == []


def test_output_of_a_job_that_both_clusters_have_needs_the_cluster(
    store: db_store.Store, sacct: Path, tmp_path: Path
) -> None:
    """The later of two jobs of one id need not be the one that wrote it."""
    with sacct.open("a") as stream:
        stream.write(f"a|3|3|ann|FAILED|{RAN}|n1\n")
    (tmp_path / "out").write_text("RuntimeError: CUDA error: out of memory\n")
    with pytest.raises(errors.NotFound, match="which the clusters a and b have"):
        load.load(store, order(sacct, joblog=[("3", tmp_path / "out")]))
    load.load(store, order(sacct))
    done = load.load(
        store, load.LoadOrder(joblog=[("3", tmp_path / "out")], cluster="a", now=NOW, timezone="UTC")
    )
    assert "output of job 3" in done.lines[0]
    assert {e.cluster for e in store.of(None).events() if e.source == "joblog"} == {"a"}
