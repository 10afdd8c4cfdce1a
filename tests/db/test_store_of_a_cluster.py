"""A store is of one cluster: none of its reads gives another's rows of the same node, job or day."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from probing_cluster.core import errors, settings
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from tests import two_clusters
from tests.two_clusters import JOB, NODE, OURS, THEIRS

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=2)
Store = db_store.Store
READS: Mapping[str, Callable[[Store], Any]] = {
    "allocations": lambda s: s.allocations(job_id=JOB, node=NODE),
    "attempts": lambda s: s.attempts(job_ids=[JOB]),
    "checks": lambda s: s.checks(node=NODE),
    "drains": lambda s: s.drains(node=NODE, job_id=JOB, open_only=True),
    "ettr_by_size": lambda s: [r["n_runs"] for r in s.ettr_by_size(LONG_AGO, LATER, 0.0)],
    "events": lambda s: s.events(nodes=[NODE], job_id=JOB),
    "events_on": lambda s: s.events_on({NODE: LONG_AGO}),
    "first_start": lambda s: s.first_start(),
    "gang_verdicts": lambda s: s.gang_verdicts(job_ids=[JOB], open_only=True),
    "heartbeat_ages_s": lambda s: list(s.heartbeat_ages_s()),
    "heartbeats": lambda s: s.heartbeats([NODE], job_id=JOB),
    "incidents": lambda s: s.incidents(node=NODE, open_only=True),
    "latest_of_job": lambda s: s.latest_of_job(JOB, "xid", LONG_AGO),
    "lemon_scores": lambda s: s.lemon_scores(),
    "notes": lambda s: s.notes(subject=f"node:{NODE}"),
    "results": lambda s: s.results(node=NODE),
    "run_account": lambda s: [s.run_account("7")],
    "run_accounts": lambda s: s.run_accounts(since=LONG_AGO),
    "run_totals": lambda s: [s.run_totals(LONG_AGO, LATER)["n_runs"]],
    "silences_s": lambda s: list(s.silences_s()),
    "verdict_histories": lambda s: s.verdict_histories([JOB]),
    "verdicts": lambda s: s.verdicts(job_ids=[JOB], node=NODE),
}
"""Each read of a store that is of its cluster; a number stands for how many rows went into it."""
NAMED = {
    "any_started", "correct_times", "dependencies", "lemon_counts", "lemon_day_before", "listen_anew", "nodes_under_test", "places",
    "save_places", "save_slurm_drains", "scores_answered", "slurm_drains",
}  # fmt: skip
"""What cannot be called without its cluster."""
BY_KEY = {
    "answers", "attempts_of", "beats_after", "cancel_request", "count_starts", "events_by_id", "fingerprints", "known_submits", "request_states",
    "shifted_start", "update_drain", "update_incident",
}  # fmt: skip
"""What is asked for by a key that one cluster alone has: a UUID, or the cluster beside the job."""
OF_RECORDS = {
    "add_drain", "add_note", "add_notes", "add_results", "open_incident", "save_dependencies", "save_drain",
    "save_exclusions", "save_gang_verdicts", "save_lemon_scores", "save_verdicts", "upsert_attempts",
}  # fmt: skip
"""What stores records, each of which names its cluster."""
REQUESTS = {"request", "request_all"}
"""What goes to the store's cluster, and is refused where that has none."""
OF_ALL = {
    "clusters": "it names them",
    "exported_until": "what was imported is of all clusters of a file",
    "recorded_until": "likewise",
    "forget_dependencies": "by age alone",
    "forget_exclusions": "by age alone",
    "reopen_for_arrivals": "one delivery after the other, each of its own cluster",
}
NO_ROWS_OF_CLUSTERS = {
    "arrow", "close", "connection_uri", "login", "may_add_results", "of", "open", "readable", "recall", "remember", "require_writable",
    "rows", "server_up_s", "speaker",
}  # fmt: skip
"""What reads no table of clusters; the texts that go through `arrow` and `rows` are tests/db/test_statements_of_clusters.py's."""


@pytest.fixture
def both(store: Store) -> Store:
    """The store of both clusters."""
    two_clusters.fill(store)
    return store


def test_every_table_of_clusters_has_rows_of_both(both: Store) -> None:
    """A table that two_clusters.fill forgets would leave its reads unproved."""
    lacking = {
        name
        for name in two_clusters.tables_of_clusters() - {"agent_role"}
        if {r["cluster"] for r in both.rows(f"SELECT cluster FROM probing.{name}", {})} < {OURS, THEIRS}
    }
    assert lacking == set()


def test_every_part_of_the_store_is_of_one_kind() -> None:
    """A new method stands in one of the lists above, so that somebody has thought of its cluster."""
    named = [READS, NAMED, BY_KEY, OF_RECORDS, REQUESTS, OF_ALL, NO_ROWS_OF_CLUSTERS]
    public = {n for n, _ in inspect.getmembers(Store, callable) if not n.startswith("_")}
    assert public == set().union(*named)
    assert sum(map(len, named)) == len(public)
    for name in NAMED:
        parameter = inspect.signature(getattr(Store, name)).parameters["cluster"]
        assert parameter.default is inspect.Parameter.empty, name


def test_each_read_gives_the_rows_of_its_cluster(both: Store) -> None:
    """Of a store without a cluster it gives those of both: so it would, had the read no cluster."""
    with both.engine.begin() as connection:
        connection.execute(sa.text("UPDATE probing.job_attempt SET judged_at = NULL"))
    for name, read in READS.items():
        mine, every = read(both.of(OURS)), read(both)
        if name in {"ettr_by_size", "run_totals"}:
            assert (mine, every) == ([1], [2]), name
        elif name == "first_start":
            assert (mine, read(both.of("elsewhere"))) == (every, None), name
        elif name in {"heartbeat_ages_s", "silences_s"}:
            assert (mine, read(both.of("elsewhere"))) == ([NODE], []), name
        else:
            assert {r.cluster for r in mine} == {OURS}, name
            assert {r.cluster for r in every} == {OURS, THEIRS} or name == "run_account", name


def test_a_read_may_name_another_cluster(both: Store) -> None:
    """A database of several is looked at as a whole through `of(None)`, or one by one."""
    mine = both.of(OURS)
    assert [d.cluster for d in mine.drains(cluster=THEIRS)] == [THEIRS]
    assert {d.cluster for d in mine.of(None).drains()} == {OURS, THEIRS}
    assert [d.cluster for d in mine.drains()] == [OURS]


def test_the_store_of_settings_is_of_their_cluster(both: Store) -> None:
    config = settings.Settings(
        cluster=settings.ClusterSettings(name=THEIRS), database=settings.DatabaseSettings(url=both.url)
    )
    with Store.open(config) as theirs, Store.open(both.url) as every:
        assert (theirs.cluster, every.cluster) == (THEIRS, None)


def test_a_request_goes_to_the_stores_cluster(both: Store) -> None:
    """Two clusters have a node n1; the other's agent was heard last."""
    both.of(OURS).request(NODE, "recheck")
    verbs = {
        c: [r.verb for r in delivery.Delivery(both.url, c, NODE).deliver().requests] for c in (OURS, THEIRS)
    }
    assert verbs == {OURS: ["recheck"], THEIRS: []}
    with pytest.raises(errors.UsageError, match="must name its cluster"):
        both.request(NODE, "recheck")


def test_the_last_night_is_each_clusters_own(both: Store) -> None:
    """The other cluster's night is done first."""
    (ours,) = both.of(OURS).lemon_scores()
    (theirs,) = both.of(THEIRS).lemon_scores()
    later = theirs.day + timedelta(days=1)
    both.save_lemon_scores([dataclasses.replace(theirs, day=later)])
    assert both.of(OURS).lemon_scores() == [ours]
    assert {(s.cluster, s.day) for s in both.lemon_scores()} == {(OURS, ours.day), (THEIRS, later)}


def test_connections_are_shared(both: Store) -> None:
    """A store of a cluster is no second pool."""
    assert both.of(OURS).engine is both.engine
