"""A node whose clock is off: its events, heartbeats and Prologs are judged by the server's clock, and the verdict states so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import alembic.command
import psycopg
import pytest

from probing_cluster.attribution.passes import attribute, fetch, node_clocks
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records
from probing_cluster.db import bulk, delivery, migrate, partitions
from tests.set_clock import SetClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Site:
    """A cluster of eight nodes with agents, of which n2's clock is `ahead_s` seconds ahead of the server's."""

    def __init__(self, store, postgres_url: str, ahead_s: float) -> None:
        self.store, self._url, self.ahead = store, postgres_url, timedelta(seconds=ahead_s)
        self.now = datetime.now(UTC)
        self.end = self.now - timedelta(seconds=20)
        for node in (f"n{i}" for i in range(1, 9)):
            self.beat(node)
        self.is_older(3600)
        self.beat("n2")
        for node in (f"n{i}" for i in range(1, 9)):
            self.beat(node)

    def offset(self, node: str) -> timedelta:
        return self.ahead if node == "n2" else timedelta()

    def beat(self, node: str, started: timedelta = timedelta(days=3)) -> None:
        """Delivers the heartbeat of an agent that started so long ago."""
        at = datetime.now(UTC) + self.offset(node)
        beat = records.AgentHeartbeat(
            cluster="c", node=node, at=at, started_at=at - started, boot_id=f"b{started.total_seconds()}"
        )
        delivery.Delivery(self._url, "c", node).deliver(heartbeat=beat)

    def is_older(self, by_s: float) -> None:
        """The clocks that are off were so for longer: a clock counts as behind only by three heartbeats of a minute or more."""
        with psycopg.connect(self._url) as connection:
            connection.execute(
                "UPDATE probing.node_clock SET from_at = from_at - make_interval(secs => %s)", (by_s,)
            )

    def deliver(
        self, *events: records.HealthEvent, allocations: Iterable[records.JobAllocation] = ()
    ) -> None:
        """Delivers events now, as each node's agent would, and its next heartbeat; their times are those of its node's clock."""
        of_node = list(allocations)
        for node in {*(e.node for e in events), *(a.node for a in of_node)}:
            delivery.Delivery(self._url, "c", node).deliver(
                events=[e for e in events if e.node == node],
                allocations=[a for a in of_node if a.node == node],
            )
            self.beat(node)

    def judge(self) -> records.Verdict:
        (verdict,) = attribute.attribute(self.store, at=SetClock(self.now + timedelta(minutes=30))).verdicts
        return verdict


@pytest.fixture
def site(store, postgres_url) -> Callable[[float], Site]:
    """Builds a site."""
    return lambda ahead_s: Site(store, postgres_url, ahead_s)


def failed(make, site: Site, **over) -> records.JobAttempt:
    start = site.end - timedelta(hours=5)
    over = {"submit_at": start, "start_at": start, "end_at": site.end, "nodes": ("n1", "n2"), **over}
    attempt = make.attempt(**over)
    site.store.upsert_attempts([attempt])
    return attempt


def lost_gpu(make, site: Site, before_end_s: float = 6.0) -> records.HealthEvent:
    at = site.end - timedelta(seconds=before_end_s) + site.ahead
    return make.xid(79, at=at)


OFFSETS = [0.0, 7.0, 400.0, 700.0, 7200.0, -45.0, -700.0, -7200.0]


@pytest.mark.parametrize("ahead_s", OFFSETS)
def test_a_lost_gpu_is_the_cause_whatever_its_node_takes_the_time_for(site, make, ahead_s):
    """It was judged the user's error, "likely", with the GPUs ruled out: by its own clock the Xid came after the window."""
    here = site(ahead_s)
    failed(make, here)
    here.deliver(lost_gpu(make, here))
    verdict = here.judge()
    assert (verdict.cause, verdict.node) == ("gpu_lost", "n2")
    assert "fell off the bus" in verdict.summary
    assert " 6 s before the job ended" in verdict.summary
    assert ("chronyc" in verdict.next_step, "clock of n2" in verdict.summary) == (bool(ahead_s),) * 2


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [
        (400.0, "The clock of n2 was 400 s ahead: the times of its events are corrected by that."),
        (-45.0, "The clock of n2 was 45 s behind: the times of its events are corrected by that."),
    ],
)  # fmt: skip
def test_the_verdict_states_how_far_the_clock_was_off(site, make, ahead_s, words):
    """A reader of the report sees lines of n2 that seem to come after the end."""
    here = site(ahead_s)
    failed(make, here)
    here.deliver(lost_gpu(make, here))
    assert words in here.judge().summary


def test_a_clock_that_was_never_set_watches_nothing(site, make):
    """Nothing there can be dated: its node counts as not watched, and nothing is ruled out."""
    here = site(40 * 365 * 86400.0)
    failed(make, here)
    here.deliver(lost_gpu(make, here))
    verdict = here.judge()
    assert verdict.cause == "user_error"
    assert verdict.confidence is records.Confidence.POSSIBLE
    assert "nobody watched n2" in verdict.summary
    assert "The clock of n2 was more than a day off: nothing there can be dated." in verdict.summary
    assert not any(sentence.startswith("GPUs") for sentence in verdict.ruled_out)


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, -600.0])
def test_a_dead_node_did_not_report_after_its_death(site, make, ahead_s):
    """Slurm gave n2 up five minutes after its last heartbeat. By its clock that heartbeat came five minutes after the end."""
    here = site(ahead_s)
    here.end = here.now + timedelta(minutes=5)
    failed(make, here, state="NODE_FAIL", failed_node="n2", exit_code=0)
    summary = here.judge().summary
    assert "n2 stopped answering Slurm" in summary
    assert "kept reporting" not in summary


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, -600.0])
def test_a_node_that_lives_on_is_found_alive(site, make, ahead_s):
    """Somebody set n2 DOWN: its agent reported five minutes later, whatever its clock showed."""
    here = site(ahead_s)
    here.end = here.now - timedelta(minutes=5)
    failed(make, here, state="NODE_FAIL", failed_node="n2", exit_code=0)
    assert "the agent of n2 kept reporting" in here.judge().summary


@pytest.mark.parametrize("ahead_s", [0.0, 400.0, -400.0])
def test_a_fault_after_the_end_is_not_taken_into_the_run(site, make, ahead_s):
    """A clock that is behind would date it before the end."""
    here = site(ahead_s)
    here.end = here.now - timedelta(minutes=6)
    failed(make, here)
    here.deliver(lost_gpu(make, here, before_end_s=-350.0))
    assert here.judge().cause == "user_error"


@pytest.mark.parametrize("ahead_s", [0.0, 400.0, -700.0])
def test_the_log_of_a_job_is_its_own_on_such_a_node(site, make, ahead_s):
    """A traceback that n2's agent dated after the window counted for nothing."""
    here = site(ahead_s)
    failed(make, here)
    at = here.end - timedelta(seconds=2) + here.ahead
    here.deliver(
        make.finding(
            "python_exception", at=at, node="n2", code="KeyError", message="KeyError: 'x'",
            detail={"first_cause": True},
        )
    )  # fmt: skip
    verdict = here.judge()
    assert verdict.cause == "user_error"
    assert "KeyError" in verdict.summary


def test_a_collective_was_issued_by_the_servers_clock(site, make):
    """The issue time in a dump moves the onset: ten minutes before the end, not three."""
    here = site(400.0)
    failed(make, here)
    issued = here.end - timedelta(minutes=10) + here.ahead
    waiting = [{"created_ns": round(issued.timestamp() * 1e9)}, {"created_ns": "?"}, "odd"]
    at = here.end - timedelta(seconds=1) + here.ahead
    here.deliver(make.finding("dump", at=at, node="n2", source="dump", detail={"outstanding": waiting}))
    onset_at = here.judge().onset_at
    assert onset_at is not None
    assert (here.end - onset_at).total_seconds() == pytest.approx(600, abs=2)


@pytest.mark.parametrize("ahead_s", [400.0, -400.0])
def test_both_ways_of_judging_agree(store, postgres_url, make, monkeypatch, ahead_s):
    """Many attempts go through columns; those on a node whose clock was off are judged one by one, with the same verdicts."""
    here = Site(store, postgres_url, ahead_s)
    jobs = range(4242, 4260)
    for job_id in jobs:
        end = here.end - timedelta(seconds=40 * (job_id - 4242))
        nodes = [("n1", "n2"), ("n3",), ("n2", "n4"), ("n5", "n6")][job_id % 4]
        start = end - timedelta(minutes=20 + job_id % 7)
        store.upsert_attempts(
            [
                make.attempt(
                    job_id=job_id, submit_at=start, start_at=start, end_at=end, nodes=nodes, gpus=None,
                    state=("FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")[job_id % 3],
                )
            ]
        )  # fmt: skip
    sorts = [{"kind": "xid", "code": "79"}, {"kind": "nfs", "code": "not_responding", "device": "/home"},
             {"kind": "ib_link", "code": "down", "device": "mlx5_0"}, {"kind": "xid", "code": "31"}]  # fmt: skip
    here.deliver(
        *(
            make.event(node=node, at=here.end - timedelta(seconds=90 * i) + here.offset(node), **sort)
            for i in range(8)
            for node, sort in ((f"n{1 + i % 5}", sorts[i % 4]), ("n2", sorts[(i + 1) % 4]))
        )
    )

    def verdicts(many: int) -> dict[int, tuple[object, ...]]:
        monkeypatch.setattr(attribute, "MANY", many)
        later = SetClock(here.now + timedelta(minutes=30))
        made = attribute.attribute(store, since=here.now - timedelta(days=1), at=later).verdicts
        return {v.job_id: (v.cause, v.confidence, v.summary, v.ruled_out, v.next_step, v.incident_id, v.evidence) for v in made}  # fmt: skip

    one_by_one, by_columns = verdicts(1_000_000), verdicts(1)
    assert set(one_by_one) == set(jobs)
    assert by_columns == one_by_one
    assert len({cause for cause, *_ in one_by_one.values()}) > 2


def test_a_clock_set_right_leaves_old_verdicts_as_they_were(site, make):
    """The offset is kept: judged again weeks later, the attempt gets the same verdict."""
    here = site(400.0)
    failed(make, here)
    here.deliver(lost_gpu(make, here))
    first = here.judge()
    here.ahead = timedelta()
    here.beat("n2")
    again = attribute.attribute(
        here.store, job_ids=[4242], dry_run=True, at=SetClock(here.now + timedelta(days=9))
    )
    assert not again.changed
    assert [v.summary for v in again.verdicts] == [first.summary]


def test_an_event_from_before_the_clock_was_wrong_keeps_its_time(store, postgres_url, make):
    """Each event is corrected by the offset at which it was stored."""
    here = Site(store, postgres_url, 0.0)
    right = lost_gpu(make, here)
    here.deliver(right)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE probing.event_key SET received_at = received_at - interval '1 minute'")
    here.ahead = timedelta(seconds=400)
    here.beat("n2")
    here.is_older(30)
    wrong = make.xid(31, at=here.end + here.ahead)
    here.deliver(wrong)
    assert node_clocks.correct(store) == 1
    found = {e.event_id: e for e in store.events_by_id([right.event_id, wrong.event_id])}
    assert found[right.event_id] == right
    assert (found[wrong.event_id].at - here.end).total_seconds() == pytest.approx(0, abs=2)


@pytest.mark.parametrize(("stored_after_s", "ahead_s", "is_moved"), [
    (-10, 400, True), (3, 400, True), (3, 0, False), (14, 0, False), (20, 400, False), (-10, 0, True),
])  # fmt: skip
def test_around_the_bounds_the_nearer_reading_counts(
    store, postgres_url, make, stored_after_s, ahead_s, is_moved
):
    """The clock was 400 s ahead, and was set right after the last heartbeat that showed it: of what is stored then, either may hold."""
    here = Site(store, postgres_url, 400.0)
    at = here.now + timedelta(seconds=ahead_s)
    event = make.xid(31, at=at, last_at=at + timedelta(seconds=1))
    here.deliver(event)
    here.ahead = timedelta()
    here.beat("n2")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE probing.node_clock SET to_at = now() - interval '30 seconds'")
        connection.execute(
            "UPDATE probing.event_key SET received_at = now() - interval '30 seconds' + make_interval(secs => %s)",
            (stored_after_s,),
        )
    assert node_clocks.correct(store) == is_moved
    assert node_clocks.correct(store) == 0
    ahead = timedelta(seconds=400 if is_moved else 0)
    (found,) = store.events_by_id([event.event_id])
    assert (event.at - ahead - found.at).total_seconds() == pytest.approx(0, abs=2)
    assert (event.observed_at - ahead - found.observed_at).total_seconds() == pytest.approx(0, abs=2)
    assert (event.last_at - ahead - found.last_at).total_seconds() == pytest.approx(0, abs=2)


def test_a_corrected_event_moves_to_the_month_in_which_it_happened(store, postgres_url, make):
    """By its node's clock the next month had begun an hour before; its key keeps by how much it was moved."""
    here = Site(store, postgres_url, 7200.0)
    partitions.maintain(postgres_url, retention_days=400)
    month = here.now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    stored_at, event = month - timedelta(hours=1), make.xid(31, at=month + timedelta(hours=1))
    here.deliver(event)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT probing.make_month(%s)", [stored_at.date()])
        connection.execute("UPDATE probing.event_key SET received_at = %s", [stored_at])
        connection.execute("UPDATE probing.node_clock SET from_at = %s, to_at = %s", [stored_at, stored_at])
        connection.execute("DELETE FROM probing.arrival")
    assert node_clocks.correct(store) == 1
    with psycopg.connect(postgres_url) as connection:
        ((at, key_at, node_at, partition, is_new),) = connection.execute(
            "SELECT e.at, k.at, k.at + make_interval(secs => k.ahead_s), e.tableoid::regclass::text, k.received_at > now() - interval '1 minute'"
            " FROM probing.event_key k JOIN probing.health_event e USING (event_id)"
        ).fetchall()
        noted = {
            row[0] for row in connection.execute("SELECT first_at FROM probing.arrival WHERE node = 'n2'")
        }
    assert is_new, "who read it before reads it again"
    assert {at, node_at} <= noted, "verdicts of both times are given again"
    assert at == key_at
    assert (stored_at - at).total_seconds() == pytest.approx(0, abs=2)
    assert node_at == event.at
    assert partition == f"probing.health_event_{stored_at:%Y_%m}"


def test_events_that_no_agent_dated_keep_their_times(store, postgres_url, make):
    """What the service and its imports store about such a node has the server's time, or a file's."""
    here = Site(store, postgres_url, 400.0)
    known = [make.xid(31, at=here.now, source=source) for source in ("import", "slurm", "probe")]
    bulk.load_events(store.connection_uri(), known)
    here.beat("n2")
    assert node_clocks.correct(store) == 0
    assert store.events() == sorted(known, key=lambda e: (e.at, e.event_id))


def test_what_an_earlier_release_stored_keeps_its_times(store, postgres_url, make):
    """It did not note who dated an event: the first pass after the upgrade took an hour off what Slurm had dated."""
    here = Site(store, postgres_url, 3600.0)
    known = [make.xid(31, at=here.now, source=source) for source in ("import", "slurm", "diagnostic")]
    bulk.load_events(store.connection_uri(), known)
    with store.engine.begin() as connection:
        alembic.command.downgrade(migrate.config(connection), "node_clock")
    migrate.upgrade(postgres_url)
    here.beat("n2")
    assert node_clocks.correct(store) == 0
    assert store.events() == sorted(known, key=lambda e: (e.at, e.event_id))
    here.deliver(make.xid(79, at=here.now + here.ahead))
    assert node_clocks.correct(store) == 1


def test_the_node_of_this_name_of_another_cluster_has_its_own_clock(store, postgres_url, make):
    """Ours is wrong, theirs is right."""
    here = Site(store, postgres_url, 400.0)
    theirs = make.xid(31, at=here.now, cluster="d")
    delivery.Delivery(postgres_url, "d", "n2").deliver(events=[theirs])
    here.beat("n2")
    assert node_clocks.correct(store) == 0
    assert store.events(cluster="d") == [theirs]


@pytest.mark.parametrize("ahead_s", [0.0, 14400.0, -14400.0])
def test_a_reboot_that_sets_the_clock_right_ends_a_fault_from_before_it(site, make, ahead_s):
    """The GPU was lost by the wrong clock, the reboot is dated by the right one: a job afterwards was blamed on the lost GPU."""
    here = site(ahead_s)
    reboot_at = here.now - timedelta(minutes=30)
    lost = make.xid(79, at=reboot_at - timedelta(minutes=30) + here.ahead)
    here.deliver(lost)
    node_clocks.correct(here.store)
    here.ahead = timedelta()
    here.deliver(make.event(kind="node_boot", at=reboot_at, node="n2", source="agent", severity="info"))
    begin = here.now - timedelta(minutes=10)
    failed(make, here, submit_at=begin, start_at=begin, nodes=("n2",))
    assert here.judge().cause == "user_error"


@pytest.mark.parametrize("ahead_s", [400.0, -400.0])
def test_a_prolog_is_corrected_by_when_it_was_stored(site, make, ahead_s):
    """One before the clock was set right and one after; of a record from before this release the time of storing is not known."""
    here = site(ahead_s)

    def prolog(job_id: int, **over) -> records.JobAllocation:
        values = {"cluster": "c", "node": "n2", "job_id": job_id, "at": datetime.now(UTC) + here.ahead}
        return records.JobAllocation(**{**values, **over})

    before, both = prolog(7), prolog(8)
    here.deliver(allocations=[before, both])
    here.ahead = timedelta()
    here.beat("n2")
    right = prolog(9)
    here.deliver(allocations=[dataclasses.replace(both, released_at=right.at), right])
    clocks = node_clocks.read(here.store, "c")
    rows = here.store.rows("SELECT * FROM probing.job_allocation ORDER BY job_id", {})
    found = [
        clocks.allocation(a, row["received_at"], row["updated_at"])
        for a, row in zip(sorted(here.store.allocations(), key=lambda a: a.job_id), rows, strict=True)
    ]
    assert [abs((a.at - right.at).total_seconds()) < 5 for a in found] == [True] * 3
    assert found[1].released_at == right.at
    assert found[2] == right
    assert clocks.allocation(before, None, None) == before


def test_one_nodes_old_offset_widens_no_read(store, postgres_url, make):
    """22 hours ahead for a minute, long ago: every read of incidents read 44 hours more of the whole cluster."""
    here = Site(store, postgres_url, 79200.0)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "UPDATE probing.node_clock SET from_at = from_at - interval '300 days', to_at = to_at - interval '300 days'"
        )
    at = here.now - timedelta(days=2)
    link = {"kind": "ib_link", "code": "down", "source": "kernel", "device": "mlx5_0"}
    bulk.load_events(
        store.connection_uri(), [make.event(at=at + timedelta(hours=h), node="n3", **link) for h in range(20)]
    )
    found: list[object] = []

    class Counting(fetch.Fetcher):
        def _rows(self, name, given):
            found.extend(rows := super()._rows(name, given))
            return rows

    spans = [(at - timedelta(minutes=1), at + timedelta(minutes=1))]
    assert len(Counting(store, cases.WindowPolicy()).incident_events("c", spans)) == len(found) == 1


def test_offsets_of_different_days_are_those_of_the_nodes(store, postgres_url):
    """Five of eight nodes were an hour ahead for some minutes, each on a day of its own: with the fifth none was corrected any more."""
    Site(store, postgres_url, 0.0)
    with psycopg.connect(postgres_url) as connection:
        for i in range(1, 6):
            connection.execute(
                "INSERT INTO probing.node_clock (cluster, node, from_at, to_at, offset_s, n_beats)"
                " SELECT 'c', %s, at, at + interval '5 minutes', 3600, 30 FROM (VALUES (now() - make_interval(days => %s))) AS x(at)",
                (f"n{i}", i),
            )
    assert sorted(node_clocks.read(store, "c").spans) == ["n1", "n2", "n3", "n4", "n5"]


def test_a_clock_counts_once_every_agent_has_sent_a_heartbeat_since(store, postgres_url, make):
    """Just after the database's clock was set back, the first agent that is heard seems to be the only one that is ahead."""
    here = Site(store, postgres_url, 0.0)
    here.ahead = timedelta(seconds=400)
    here.beat("n2")
    here.deliver(make.xid(31, at=here.now + here.ahead))
    assert node_clocks.correct(store) == 0
    here.is_older(15)
    assert node_clocks.correct(store) == 1


def test_a_late_event_of_such_a_node_reopens_the_verdict(site, make):
    """By its own time it lies after the window; by its true time it is the cause."""
    here = site(4000.0)
    failed(make, here)
    assert here.judge().cause == "user_error"
    here.deliver(lost_gpu(make, here))
    assert here.judge().cause == "gpu_lost"


def test_the_database_whose_clock_is_wrong_moves_nothing(store, postgres_url, make):
    """If every agent is as far ahead, the database is behind: Slurm's clock is as right as theirs."""
    here = Site(store, postgres_url, 0.0)
    here.offset = lambda _: timedelta(seconds=400)  # type: ignore[method-assign]
    for i in range(1, 9):
        here.beat(f"n{i}")
    assert node_clocks.read(store, "c").spans == {}


@pytest.mark.parametrize(("n_ahead", "n_moved"), [(4, 4), (5, 0)])
def test_half_of_the_agents_may_be_wrong_more_may_not(store, postgres_url, n_ahead, n_moved):
    """Of eight: where five agree, the database's clock is the one that is off."""
    here = Site(store, postgres_url, 0.0)
    here.offset = lambda node: timedelta(seconds=400 if int(node[1:]) <= n_ahead else 0)  # type: ignore[method-assign]
    for i in range(1, 9):
        here.beat(f"n{i}")
    assert len(node_clocks.read(store, "c").spans) == n_moved


@pytest.mark.parametrize(("after_s", "offset_s", "n_alike"), [(20, 95.0, 2), (20, 205.0, 1), (900, 85.0, 1)])
def test_clocks_are_off_alike_if_they_are_so_by_about_as_much_and_at_one_time(after_s, offset_s, n_alike):
    """Agents send their heartbeats one after the other; and 85 and 95 seconds are not the same number of minutes."""
    rows = [
        {"node": node, "from_at": at, "to_at": at + timedelta(minutes=5), "offset_s": seconds}
        for node, at, seconds in (("n1", NOON, 85.0), ("n2", NOON + timedelta(seconds=after_s), offset_s))
    ]
    assert node_clocks._n_alike(rows) == [n_alike, n_alike]


@pytest.mark.parametrize(("ahead", "is_corrected"), [(timedelta(hours=20), True), (timedelta(days=2), False)])
def test_a_prolog_of_a_clock_that_was_never_set_keeps_its_time(ahead, is_corrected):
    """Nothing on such a node can be dated."""
    span = node_clocks.ClockSpan(NOON, NOON + timedelta(minutes=5), ahead)
    row = records.JobAllocation(cluster="c", node="n2", job_id=7, at=NOON + ahead)
    found = node_clocks.NodeClocks({"n2": [span]}).allocation(row, NOON, None)
    assert found.at == (NOON if is_corrected else row.at)


@pytest.mark.parametrize("is_current", [True, False])
def test_a_heartbeat_is_corrected_by_the_clock_that_made_it(is_current):
    """A clock that was off and was set right makes right heartbeats."""
    ahead = timedelta(seconds=400)
    span = node_clocks.ClockSpan(NOON, NOON + timedelta(minutes=5), ahead, is_current)
    beat = records.AgentHeartbeat(cluster="c", node="n2", at=NOON + timedelta(hours=1))
    found = node_clocks.NodeClocks({"n2": [span]}).heartbeat(beat)
    assert beat.at - found.at == (ahead if is_current else timedelta())


@pytest.mark.parametrize(
    ("stored_s", "until_s"), [(1200, 0), (40, 30)], ids=["clock known only now", "span extended meanwhile"]
)
def test_what_the_last_correction_could_not_know_is_corrected_by_the_next(
    store, postgres_url, make, stored_s, until_s
):
    """A clock counts as behind only after a minute; and a heartbeat under way may have extended its span."""
    here = Site(store, postgres_url, 400.0)
    event = make.xid(31, at=here.now + timedelta(seconds=400 - stored_s))
    here.deliver(event)
    store.correct_times("c", [("n9", here.now, here.now, 400.0)])
    with psycopg.connect(postgres_url) as connection:
        ago = "now() - make_interval(secs => %s)"
        connection.execute(f"UPDATE probing.event_key SET received_at = {ago}", [stored_s])
        connection.execute(f"UPDATE probing.node_clock SET to_at = {ago}", [until_s])
    assert node_clocks.correct(store) == 1


@pytest.mark.parametrize(("waited_h", "n_corrected"), [(3, 1), (30, 0)])
def test_an_event_that_waited_for_hours_is_corrected(store, postgres_url, make, waited_h, n_corrected):
    """After more than a day nobody knows which clock dated it."""
    here = Site(store, postgres_url, 400.0)
    here.deliver(make.xid(31, at=here.now + timedelta(seconds=400) - timedelta(hours=waited_h)))
    assert node_clocks.correct(store) == n_corrected


@pytest.mark.parametrize(
    ("begin_s", "end_s", "met"),
    [(-900, -600, False), (-900, 30, True), (100, 200, True), (290, 900, True), (600, 900, False)],
)
def test_a_clock_was_off_in_a_stretch_that_its_time_meets(begin_s, end_s, met):
    """Five minutes of it; a stretch long before or after has a right clock."""
    span = node_clocks.ClockSpan(NOON, NOON + timedelta(minutes=5), timedelta(seconds=400))
    clocks = node_clocks.NodeClocks({"n2": [span]})
    begin, end = NOON + timedelta(seconds=begin_s), NOON + timedelta(seconds=end_s)
    assert clocks.offsets_s(["n1", "n2"], begin, end) == ({"n2": 400.0} if met else {})


def late_beats(site: Site, *behind_s: float, apart_s: float = 30.0) -> None:
    """Delivers heartbeats of n2 so far behind the server's clock, each so long after the one before."""
    for seconds in behind_s:
        with psycopg.connect(site.store.url) as connection:
            for table, columns in (
                ("node_clock", ("from_at", "to_at")),
                ("agent_heartbeat", ("at", "received_at")),
            ):
                moved = ", ".join(f"{c} = {c} - make_interval(secs => {apart_s})" for c in columns)
                connection.execute(f"UPDATE probing.{table} SET {moved} WHERE node = 'n2'")
        site.ahead = timedelta(seconds=-seconds)
        site.beat("n2")
    site.ahead = timedelta()


def test_a_minute_of_late_heartbeats_is_a_clock_behind(site):
    """Two show nothing, nor do three of half a minute; three of a minute do, and so do those that follow."""
    here = site(0.0)
    late_beats(here, 90, 90, apart_s=100)
    assert node_clocks.read(here.store, "c").spans == {}
    late_beats(here, 60, 60)
    assert node_clocks.read(here.store, "c").spans == {}
    assert fetch.Fetcher(here.store, cases.WindowPolicy()).clocks("c").spans == {}
    late_beats(here, 61, apart_s=15)
    assert node_clocks.read(here.store, "c").spans == {}
    late_beats(here, 60, 75, 59)
    (span,) = node_clocks.read(here.store, "c").spans["n2"]
    assert span.offset.total_seconds() == pytest.approx(-59, abs=2)
    assert (span.to_at - span.from_at).total_seconds() == pytest.approx(135, abs=2)


@pytest.mark.parametrize(
    "behind_s",
    [(60, 0.1, 0.1, 57), (60, 0.1, 60, 0.1, 60, 0.1), (60, 60, 0.1, 60, 60), (60, 72, 66, 85, 61, 70), (65, 60, 55, 50, 45, 40, 35)],
)  # fmt: skip
def test_heartbeats_that_waited_are_no_clock_behind(site, make, behind_s):
    """A right heartbeat between shows that the clock is right; without one, waits differ. The node's Xid was taken out of the window."""
    here = site(0.0)
    late_beats(here, *behind_s)
    assert node_clocks.read(here.store, "c").spans == {}
    failed(make, here)
    here.deliver(lost_gpu(make, here))
    verdict = here.judge()
    assert verdict.cause == "gpu_lost"
    assert "behind" not in verdict.summary


def test_a_clock_set_right_and_wrong_again_is_right_between(site):
    """Two times, with the right one between; the second counts only after a minute of its own."""
    here = site(0.0)
    late_beats(here, 60, 60, 60, 0.1, 0.1, 60, 60)
    (first,) = node_clocks.read(here.store, "c").spans["n2"]
    late_beats(here, 60)
    spans = node_clocks.read(here.store, "c").spans["n2"]
    assert len(spans) == 2
    assert (spans[1].from_at - spans[0].to_at).total_seconds() == pytest.approx(90, abs=2)
    assert (first.to_at - first.from_at).total_seconds() == pytest.approx(60, abs=2)


def test_a_heartbeat_of_a_clock_ahead_that_waited_ends_nothing(site):
    """A clock seven seconds ahead whose heartbeat waited for four looks right; it is one time all the same."""
    here = site(7.0)
    late_beats(here, -7, -3, -7, -3, -7)
    (span,) = node_clocks.read(here.store, "c").spans["n2"]
    assert span.offset.total_seconds() == pytest.approx(7, abs=1)


def test_heartbeats_that_wait_fill_no_table(site, postgres_url):
    """Late by another time each, they push no time out of the table in which the clock was off."""
    here = site(400.0)
    late_beats(here, *(40 + 7 * (i % 5) for i in range(60)), apart_s=10)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(
            "SELECT count(*), max(offset_s) > 390 FROM probing.node_clock"
        ).fetchone() == (2, True)


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, -600.0])
def test_an_agent_that_was_away_leaves_a_gap_by_the_servers_clock(site, postgres_url, ahead_s):
    """n2's agent was dead for three minutes: by the clock of the server, whatever that of the node showed."""
    here = site(ahead_s)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "UPDATE probing.agent_heartbeat SET at = at - interval '200 s', received_at = received_at - interval '200 s'"
        )
        connection.execute("UPDATE probing.node_clock SET to_at = to_at - interval '200 s'")
    here.beat("n2", started=timedelta(seconds=20))
    with psycopg.connect(postgres_url) as connection:
        (spans,) = connection.execute(
            "SELECT unwatched FROM probing.agent_heartbeat WHERE node = 'n2'"
        ).fetchone()  # type: ignore[misc]
    gap = spans[-1]
    assert (here.now - gap.lower).total_seconds() == pytest.approx(200, abs=6)
    assert (here.now - gap.upper).total_seconds() == pytest.approx(20, abs=6)


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, -600.0])
def test_a_silence_in_which_the_clock_was_set_right_is_noted(site, postgres_url, ahead_s):
    """What ended in it is judged again. By the node's times a clock that was set back had left no silence."""
    here = site(ahead_s)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "UPDATE probing.agent_heartbeat SET at = at - interval '200 s', received_at = received_at - interval '200 s'"
        )
        connection.execute("DELETE FROM probing.arrival")
    here.ahead = timedelta()
    here.beat("n2", started=timedelta(seconds=20))
    with psycopg.connect(postgres_url) as connection:
        ((first_at, last_at),) = connection.execute(
            "SELECT first_at, last_at FROM probing.arrival"
        ).fetchall()
    assert first_at <= here.now - timedelta(seconds=190)
    assert last_at >= here.now - timedelta(seconds=20)


def test_a_clock_that_jumps_fills_no_table(site, postgres_url):
    """At most some fifty times are kept of a node."""
    here = site(0.0)
    for i in range(60):
        here.ahead = timedelta(seconds=100 * (i + 1))
        here.beat("n2")
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) <= 51 FROM probing.node_clock").fetchone() == (True,)
