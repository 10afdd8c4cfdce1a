"""History in Parquet and the recent past in Postgres are one, and no row is there twice."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from probing_cluster.attribution.history import history
from probing_cluster.attribution.history import source as sources
from probing_cluster.attribution.passes import attribute, bulk, distributed
from probing_cluster.attribution.reliability import fleet
from probing_cluster.attribution.reliability.fleet import coverage
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import delivery
from tests.set_clock import SetClock

SINCE, UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def year(store, make, postgres_url):
    """Attempts in January, February, March and April, each with an Xid; judged."""
    events, attempts = [], []
    for n, month in enumerate((1, 2, 3, 4), 1):
        end = datetime(2026, month, 20, tzinfo=UTC)
        events.append(make.xid(79, 3, at=end - timedelta(seconds=5)))
        events.append(make.xid(45, 3, at=end - timedelta(seconds=4), severity=records.Severity.INFO))
        begin = end - timedelta(hours=30)
        attempts.append(
            make.attempt(job_id=n, submit_at=begin, eligible_at=begin, start_at=begin, end_at=end)
        )
    attempts.append(
        make.attempt(
            job_id=9,
            submit_at=SINCE,
            start_at=SINCE + timedelta(days=30),
            end_at=SINCE + timedelta(days=33),
            state="COMPLETED",
            exit_code=0,
        )
    )
    attempts.append(
        make.attempt(
            job_id=10,
            submit_at=SINCE,
            start_at=SINCE + timedelta(days=33),
            end_at=None,
            state="RUNNING",
            exit_code=None,
        )
    )
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=events)
    store.upsert_attempts(attempts)
    attribute.attribute(store, since=SINCE)
    return store


def plain(table: pa.Table) -> list[dict]:
    return sorted(table.to_pylist(), key=str)


def test_joined_equals_postgres_alone(year, tmp_path):
    """Attempts and events of any span, exported or not, the same rows once."""
    before = sources.PostgresSource(year.connection_uri())
    done = history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    assert done.months == ("2026-01", "2026-02")
    joined = history.of(year)
    assert isinstance(joined, history.HistoryAndPostgres)
    for since, until in (
        (SINCE, UNTIL),
        (datetime(2026, 1, 15, tzinfo=UTC), datetime(2026, 3, 19, tzinfo=UTC)),
        (datetime(2026, 4, 1, tzinfo=UTC), UNTIL),
    ):
        assert plain(joined.attempts(since, until)) == plain(before.attempts(since, until))
        assert plain(joined.events(since, until)) == plain(before.events(since, until))


def test_only_the_columns_that_are_wanted_are_read(year, tmp_path):
    """The rows are the same; columns that are not needed are null."""
    wanted = frozenset({"cluster", "job_id", "submit_us", "nodes", "cause"})
    alone = sources.PostgresSource(year.connection_uri())
    whole = alone.attempts(SINCE, UNTIL)
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    for source in (alone, history.of(year)):
        found = source.attempts(SINCE, UNTIL, sources.NeededPart(columns=wanted))
        assert found.schema == sources.ATTEMPT_SCHEMA
        assert plain(found.select(sorted(wanted))) == plain(whole.select(sorted(wanted)))
        assert found["state"].null_count == found.num_rows > 0
        events = source.events(SINCE, UNTIL, sources.NeededPart(columns=frozenset({"event_id", "severity"})))
        assert plain(events.select(["event_id", "severity"])) == plain(
            alone.events(SINCE, UNTIL).select(["event_id", "severity"])
        )
    past = sources.ParquetSource(tmp_path)
    assert past.attempts(SINCE, UNTIL, sources.NeededPart(columns=wanted))["state"].null_count > 0


def test_coverage_reads_only_the_rows_it_needs(year, make, postgres_url):
    """Completed attempts and infrastructure failures, their evidence, and check results; a lost node's evidence in any domain."""
    lost = make.attempt(job_id=11, submit_at=SINCE, start_at=SINCE, end_at=SINCE + timedelta(days=9), nodes=("n2",), state="NODE_FAIL", exit_code=0)  # fmt: skip
    stray = make.xid(31, 5, at=SINCE + timedelta(days=60))
    boot = make.event(kind="node_boot", code=vocabulary.AFTER_SHUTDOWN, source="agent", at=lost.end_at - timedelta(minutes=1))  # fmt: skip
    checked = make.event(kind="check", source="check", at=SINCE + timedelta(days=31))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[stray, boot, checked])
    year.upsert_attempts([lost])
    attribute.attribute(year, since=SINCE)
    source = sources.PostgresSource(year.connection_uri())
    found = source.attempts(SINCE, UNTIL, coverage.ATTEMPTS).to_pylist()
    assert sorted(row["job_id"] for row in found) == [1, 2, 3, 4, 9, 11]
    evidence = {event_id for row in found for event_id in row["evidence"] or ()}
    events = {row["event_id"] for row in source.events(SINCE, UNTIL, coverage.EVENTS).to_pylist()}
    everything = {row["event_id"] for row in source.events(SINCE, UNTIL).to_pylist()}
    assert events == (evidence & everything) | {str(checked.event_id)}
    assert {row["domain"] for row in found if row["job_id"] == 11} == {"unknown"}
    assert str(boot.event_id) in events
    assert fleet.check_coverage(year, SINCE, UNTIL) == fleet.check_coverage(
        history.ReadOnce(year), SINCE, UNTIL
    )


@pytest.mark.parametrize(
    "selection",
    [{}, {"partition": "gpu"}, {"partition": "none"}, {"users": ["alice"]}, {"users": ["nobody"]}],
)
def test_a_figure_that_reads_what_it_needs_says_what_one_that_reads_all_does(year, tmp_path, selection):
    """Coverage reads a part of the columns when it is asked for alone."""
    whole = history.ReadOnce(year)
    attempt = year.attempts(job_ids=[9])[0]
    given = {
        "partition": attempt.partition if selection.get("partition") == "gpu" else selection.get("partition"),
        "users": [attempt.user] if selection.get("users") == ["alice"] else selection.get("users"),
    }
    assert fleet.check_coverage(year, SINCE, UNTIL, **given) == fleet.check_coverage(
        whole, SINCE, UNTIL, **given
    )
    found = fleet.check_coverage(year, SINCE, UNTIL, **given)
    nothing = "none" in selection.values() or ["nobody"] in selection.values()
    assert (found.n_good, bool(found.causes)) == ((0, False) if nothing else (1, True))
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    assert fleet.check_coverage(year, SINCE, UNTIL, **given) == found


def test_a_second_export_only_adds(year, tmp_path):
    """Months are written once; numbers of nodes and sorts never change."""
    history.export(year, tmp_path, before=datetime(2026, 2, 2, tzinfo=UTC), since=SINCE)
    first = (tmp_path / "events" / "month=2026-01" / "part.parquet").read_bytes()
    nodes = history.pq.read_table(tmp_path / "nodes.parquet").to_pylist()
    done = history.export(year, tmp_path, before=datetime(2026, 4, 1, tzinfo=UTC), since=SINCE)
    assert done.months == ("2026-01", "2026-02", "2026-03")
    assert (tmp_path / "events" / "month=2026-01" / "part.parquet").read_bytes() == first
    assert history.pq.read_table(tmp_path / "nodes.parquet").to_pylist()[: len(nodes)] == nodes


def test_late_events_and_new_verdicts_are_not_lost(year, make, tmp_path, postgres_url):
    """An event that arrives after its month was exported, and a verdict changed since, are seen once each."""
    history.export(
        year,
        tmp_path,
        before=datetime(2026, 4, 1, tzinfo=UTC),
        since=SINCE,
        at=SetClock(datetime.now(UTC) + timedelta(hours=2)),
    )
    late = make.xid(48, 2, at=datetime(2026, 2, 20, tzinfo=UTC) - timedelta(seconds=60))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[late])
    manifest = history.read_manifest(tmp_path)
    exported_at = dict.fromkeys(manifest.months, datetime.now(UTC) - timedelta(seconds=1))
    history._write_manifest(tmp_path, dataclasses.replace(manifest, exported_at=exported_at))
    mine = dataclasses.replace(year.verdicts(job_ids=[1])[0], cause="disk", author="bob")
    year.save_verdicts([mine])
    alone, joined = sources.PostgresSource(year.connection_uri()), history.of(year)
    assert plain(joined.events(SINCE, UNTIL)) == plain(alone.events(SINCE, UNTIL))
    assert plain(joined.attempts(SINCE, UNTIL)) == plain(alone.attempts(SINCE, UNTIL))
    # Which coverage needs no more: the exported row must not come back for it.
    owned = dataclasses.replace(mine, cause="user_error", domain=records.Domain.USER_PROGRAM)
    year.save_verdicts([owned])
    assert fleet.check_coverage(year, SINCE, UNTIL) == fleet.check_coverage(
        year.connection_uri(), SINCE, UNTIL
    )


MARCH, MAY = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def two_exports(year, make, postgres_url, tmp_path):
    """A verdict changed and an event arrived between the export of January and February and the next one; each at its time."""

    def stored(at: datetime) -> None:
        times = ("probing.event_key", "received_at"), ("probing.job_attempt", "judged_at")
        with year.engine.begin() as connection:
            for table, column in times:
                query = f"UPDATE {table} SET {column} = :at WHERE {column} > '2026-06-01'"
                connection.execute(sa.text(query), {"at": at})

    stored(MARCH)
    history.export(year, tmp_path, before=MARCH, since=SINCE, at=SetClock(MARCH + timedelta(days=2)))
    late = make.xid(48, 2, at=datetime(2026, 2, 20, tzinfo=UTC) - timedelta(seconds=60))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[late])
    mine = dataclasses.replace(year.verdicts(job_ids=[1])[0], cause="disk", author="bob")
    year.save_verdicts([mine])
    stored(MARCH + timedelta(days=10))
    history.export(year, tmp_path, before=MAY, since=SINCE, at=SetClock(MAY + timedelta(days=2)))
    return year


def test_the_next_export_hides_nothing_that_came_after_the_one_before(two_exports, tmp_path):
    """Each month is compared with the time of its own export."""
    alone, joined = sources.PostgresSource(two_exports.connection_uri()), history.of(two_exports)
    for since in (SINCE, datetime(2026, 2, 1, tzinfo=UTC), MARCH):
        assert plain(joined.events(since, UNTIL)) == plain(alone.events(since, UNTIL))
        assert plain(joined.attempts(since, UNTIL)) == plain(alone.attempts(since, UNTIL))
    assert {r["cause"] for r in joined.attempts(SINCE, UNTIL).to_pylist() if r["job_id"] == 1} == {"disk"}


def test_only_what_changed_comes_from_postgres(two_exports, tmp_path, monkeypatch):
    """The others are in the history as they are: they would be sent for nothing."""
    n_fetched, fetch = [], sources.fetch

    def counted(*given, **named):
        found = fetch(*given, **named)
        n_fetched.append(found.num_rows)
        return found

    monkeypatch.setattr(sources, "fetch", counted)
    assert history.of(two_exports).events(SINCE, MAY).num_rows == 9
    assert n_fetched == [1, 0]  # and no event that was moved


def test_an_old_manifest_stands_for_the_ends_of_its_months(two_exports, tmp_path):
    """Of 0.1.0: one time for all months. What arrived after a month's end comes from Postgres, too."""
    old = {
        "months": ["2026-01", "2026-02"],
        "exported_at": "2026-05-03T02:30:00+00:00",
        "n_attempts": 3,
        "n_events": 4,
    }
    (tmp_path / "manifest.json").write_text(json.dumps(old), "utf-8")
    assert history.read_manifest(tmp_path).exported_at == {
        "2026-01": datetime(2026, 2, 1, tzinfo=UTC),
        "2026-02": MARCH,
    }
    alone, joined = sources.PostgresSource(two_exports.connection_uri()), history.of(two_exports)
    assert plain(joined.events(SINCE, UNTIL)) == plain(alone.events(SINCE, UNTIL))
    assert plain(joined.attempts(SINCE, UNTIL)) == plain(alone.attempts(SINCE, UNTIL))


def test_what_is_older_than_the_first_month_comes_from_postgres(two_exports, make, tmp_path, postgres_url):
    """As an import of older logs brings it, also once later months were exported."""
    end = datetime(2025, 12, 20, tzinfo=UTC)
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[make.xid(79, 3, at=end)])
    two_exports.upsert_attempts([make.attempt(job_id=12, submit_at=end, start_at=end, end_at=end)])
    with two_exports.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE probing.event_key SET received_at = '2026-01-02' WHERE at < '2026-01-01'")
        )
        connection.execute(
            sa.text("UPDATE probing.job_attempt SET judged_at = '2026-01-02' WHERE end_at < '2026-01-01'")
        )
    alone, joined = sources.PostgresSource(two_exports.connection_uri()), history.of(two_exports)
    since = datetime(2025, 12, 1, tzinfo=UTC)
    assert {r["job_id"] for r in joined.attempts(since, UNTIL).to_pylist()} >= {12}
    assert plain(joined.events(since, UNTIL)) == plain(alone.events(since, UNTIL))


def test_a_month_with_late_events_is_written_again_and_loses_none(two_exports, make, tmp_path, postgres_url):
    """Then Postgres may drop it. What it has dropped already stays in the history."""
    months = ["2026-01", "2026-02", "2026-03", "2026-07"]
    assert history.incomplete(two_exports, tmp_path, months) == ["2026-02", "2026-07"]
    with two_exports.engine.begin() as connection:
        connection.execute(
            sa.text("DELETE FROM probing.health_event WHERE at < '2026-02-20' AND code = '79'")
        )
    before = sources.ParquetSource(tmp_path).events(SINCE, UNTIL)
    assert history.renew(two_exports, tmp_path, months, SetClock(MAY)) == ["2026-02"]
    assert history.incomplete(two_exports, tmp_path, months) == ["2026-07"]
    after = sources.ParquetSource(tmp_path).events(SINCE, UNTIL)
    assert after.num_rows == before.num_rows + 1
    assert {*before["event_id"].to_pylist()} < {*after["event_id"].to_pylist()}
    stored = history.pq.ParquetDataset(tmp_path / "events").read(["row", "at_us"]).sort_by("row")
    assert stored["at_us"].to_pylist() == sorted(stored["at_us"].to_pylist())
    assert len(set(stored["row"].to_pylist())) == stored.num_rows


def grown(store, make, url):
    """A late event and a late attempt of January: its renewal numbers the attempts anew."""
    end = SINCE + timedelta(days=1)
    begin = end - timedelta(hours=3)
    delivery.Delivery(url, "c", "n9").deliver(events=[make.xid(31, 3, at=end, node="n9")])
    store.upsert_attempts(
        [make.attempt(job_id=99, submit_at=begin, start_at=begin, end_at=end, nodes=("n9",))]
    )


def stored(tmp_path, kind):
    return history.pq.read_table(tmp_path / kind / "month=2026-01" / "part.parquet").to_pylist()


@pytest.mark.parametrize("dies_at", ["attempts", "attempt_nodes", "events", "manifest"])
def test_a_crash_while_a_month_is_written_again_leaves_it_as_it_was(
    year, make, tmp_path, postgres_url, monkeypatch, dies_at
):
    """Its attempts were rewritten before their nodes: each had another one's. The next night writes all of it."""
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    grown(year, make, postgres_url)
    before = {kind: stored(tmp_path, kind) for kind in history._KINDS}
    months, write, write_manifest = sources.ParquetSource(tmp_path), history._write, history._write_manifest

    def dies(path, table):
        if path.parent.parent.name == dies_at:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        write(path, table)

    def dies_at_the_manifest(directory, manifest):
        raise KeyboardInterrupt

    monkeypatch.setattr(history, "_write", dies)
    monkeypatch.setattr(history, "_write_manifest", dies_at_the_manifest)
    with pytest.raises(KeyboardInterrupt):
        history.renew(year, tmp_path, ["2026-01"])
    assert {kind: stored(tmp_path, kind) for kind in history._KINDS} == before
    assert months.events(SINCE, UNTIL).num_rows == 4
    assert history.incomplete(year, tmp_path, ["2026-01"]) == ["2026-01"]
    monkeypatch.setattr(history, "_write", write)
    monkeypatch.setattr(history, "_write_manifest", write_manifest)
    assert history.renew(year, tmp_path, ["2026-01"]) == ["2026-01"]
    assert len(stored(tmp_path, "attempts")) == len(before["attempts"]) + 1


@pytest.mark.parametrize("n_placed", [0, 1, 2, 3])
def test_a_month_that_was_written_is_put_into_its_place_after_a_crash(
    year, make, tmp_path, postgres_url, monkeypatch, n_placed
):
    """Between two of its files: until then Postgres drops nothing of it."""
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    grown(year, make, postgres_url)
    replace, places = history._replace, []

    def dies(fresh, path):
        if path.name == "part.parquet":
            if len(places) == n_placed:
                raise KeyboardInterrupt
            places.append(path)
        elif len(places) == 3:
            raise KeyboardInterrupt
        replace(fresh, path)

    monkeypatch.setattr(history, "_replace", dies)
    later = SetClock(datetime.now(UTC) + 2 * history.OVERLAP)
    with pytest.raises(KeyboardInterrupt):
        history.renew(year, tmp_path, ["2026-01"], later)
    alone = sources.PostgresSource(year.connection_uri())
    assert plain(history.of(year).events(SINCE, UNTIL)) == plain(alone.events(SINCE, UNTIL))
    assert plain(history.of(year).attempts(SINCE, UNTIL)) == plain(alone.attempts(SINCE, UNTIL))
    monkeypatch.setattr(history, "_replace", replace)
    assert history.incomplete(year, tmp_path, ["2026-01"]) == ["2026-01"]
    assert history.renew(year, tmp_path, ["2026-01"]) == []
    assert history.incomplete(year, tmp_path, ["2026-01"]) == []
    nodes = {r["node_idx"]: r["node"] for r in history.pq.read_table(tmp_path / "nodes.parquet").to_pylist()}
    of = {r["attempt_id"]: r["nodes"] for r in stored(tmp_path, "attempts")}
    assert all(nodes[r["node_idx"]] in of[r["attempt_id"]] for r in stored(tmp_path, "attempt_nodes"))
    assert ["n9"] in of.values()


@pytest.mark.parametrize("n_placed", [0, 1, 2])
@pytest.mark.parametrize("first", [True, False], ids=["first month", "second month"])
def test_a_month_that_is_being_placed_is_read_from_postgres(year, tmp_path, monkeypatch, first, n_placed):
    """The manifest names it before its files are there, and after a crash until the next night: figures must not lack a month."""
    alone = sources.PostgresSource(year.connection_uri())
    if not first:
        history.export(year, tmp_path, before=FEBRUARY, since=SINCE)
    replace, places = history._replace, []

    def dies(fresh, path):
        if path.name == "part.parquet":
            if len(places) == n_placed:
                raise KeyboardInterrupt
            places.append(path)
        replace(fresh, path)

    monkeypatch.setattr(history, "_replace", dies)
    year.remember(history.REMEMBERED, {"directory": str(tmp_path)})
    later = SetClock(datetime.now(UTC) + 2 * history.OVERLAP)
    with pytest.raises(KeyboardInterrupt):
        history.export(year, tmp_path, before=FEBRUARY if first else MARCH, since=SINCE, at=later)
    joined = history.of(year)
    assert isinstance(joined, history.HistoryAndPostgres)
    assert plain(joined.attempts(SINCE, UNTIL)) == plain(alone.attempts(SINCE, UNTIL))
    assert plain(joined.events(SINCE, UNTIL)) == plain(alone.events(SINCE, UNTIL))


def test_the_next_export_puts_into_its_place_what_a_crash_left(year, tmp_path, monkeypatch):
    """Also where it writes another month meanwhile: only one month can be under way."""
    replace = history._replace

    def dies(fresh, path):
        if path.name == "part.parquet":
            raise KeyboardInterrupt
        replace(fresh, path)

    monkeypatch.setattr(history, "_replace", dies)
    with pytest.raises(KeyboardInterrupt):
        history.export(year, tmp_path, before=FEBRUARY, since=SINCE)
    monkeypatch.setattr(history, "_replace", replace)
    done = history.export(year, tmp_path, before=MARCH, since=SINCE)
    assert (done.months, done.placing) == (("2026-01", "2026-02"), "")
    assert sources.ParquetSource(tmp_path).events(SINCE, MARCH).num_rows == 4


def test_what_was_stored_while_a_month_was_exported_comes_from_postgres(year, make, tmp_path, postgres_url):
    """Its transaction began before the export and was not visible to it."""
    history.export(year, tmp_path, before=MARCH, since=SINCE, at=SetClock(MARCH + timedelta(days=2)))
    late = make.xid(48, 2, at=FEBRUARY - timedelta(days=3))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[late])
    with year.engine.begin() as connection:
        at = {"at": MARCH + timedelta(days=2) - history.OVERLAP / 2}
        connection.execute(sa.text("UPDATE probing.event_key SET received_at = :at"), at)
    alone, joined = sources.PostgresSource(year.connection_uri()), history.of(year)
    assert plain(joined.events(SINCE, UNTIL)) == plain(alone.events(SINCE, UNTIL))


def test_rows_are_numbered_in_order_of_time_over_the_years():
    """Each month has numbers of its own, in the 40 bits that bulk keeps."""
    months = ["2000-01", "2025-12", "2026-01", "2026-12", "2027-01", "2099-12"]
    numbers = [history._numbers(month, 2).to_pylist() for month in months]
    assert [n for some in numbers for n in some] == sorted({n for some in numbers for n in some})
    assert numbers[0][0] == 0
    assert numbers[-1][-1] < 1 << 40


@pytest.mark.parametrize("kind", ["attempts", "attempt_nodes", "events"])
@pytest.mark.parametrize("damage", ["empty", "cut", "gone"])
def test_a_month_whose_file_was_lost_is_written_again_before_it_is_dropped(year, tmp_path, kind, damage):
    """As a power failure left it: the name without the bytes. Only the manifest was looked at."""
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    with year.engine.begin() as connection:
        connection.execute(sa.text("UPDATE probing.event_key SET received_at = at"))
    part = tmp_path / kind / "month=2026-01" / "part.parquet"
    whole = part.read_bytes()
    part.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "gone": b""}[damage])
    if damage == "gone":
        part.unlink()
    assert history.incomplete(year, tmp_path, ["2026-01", "2026-02"]) == ["2026-01"]
    assert history.renew(year, tmp_path, ["2026-01"]) == ["2026-01"]
    assert history.incomplete(year, tmp_path, ["2026-01"]) == []
    assert part.read_bytes() == whole


def test_a_month_with_fewer_events_than_postgres_is_not_complete(year, tmp_path):
    """Whatever the reason: Postgres keeps what it has until the history has it."""
    history.export(year, tmp_path, before=datetime(2026, 3, 15, tzinfo=UTC), since=SINCE)
    with year.engine.begin() as connection:
        connection.execute(sa.text("UPDATE probing.event_key SET received_at = at"))
    part = tmp_path / "events" / "month=2026-01" / "part.parquet"
    history.pq.write_table(history.pq.ParquetFile(part).read().slice(1), part)
    assert history.incomplete(year, tmp_path, ["2026-01", "2026-02"]) == ["2026-01"]


def test_a_part_is_on_the_disk_before_the_manifest_names_it(year, tmp_path, monkeypatch):
    """A power failure then leaves no name without its bytes: each file is synced, and the folder after each change of a name."""
    synced, steps = [], []
    monkeypatch.setattr(
        os, "fsync", lambda opened: synced.append(str(Path(f"/proc/self/fd/{opened}").readlink()))
    )
    place = history._replace

    def placed(fresh, path):
        assert str(fresh) in synced, path
        place(fresh, path)
        assert synced[-1] == str(path.parent)
        steps.append(path.name)

    monkeypatch.setattr(history, "_replace", placed)
    history.export(year, tmp_path, before=datetime(2026, 2, 2, tzinfo=UTC), since=SINCE)
    assert steps == [
        "nodes.parquet",
        "sorts.parquet",
        "manifest.json",
        *["part.parquet"] * 3,
        "manifest.json",
    ]


@pytest.mark.parametrize(("number", "goes_on"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_that_syncs_no_folders_is_no_obstacle(year, tmp_path, monkeypatch, number, goes_on):
    """Any other error of the disk is one."""
    fsync = os.fsync

    def refused(opened):
        if Path(f"/proc/self/fd/{opened}").is_dir():
            raise OSError(number, os.strerror(number))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", refused)
    with contextlib.nullcontext() if goes_on else pytest.raises(OSError, match=os.strerror(number)):
        history.export(year, tmp_path, before=FEBRUARY, since=SINCE)
    assert (history.read_manifest(tmp_path).months == ("2026-01",)) is goes_on


def moved(store, event_id, by_s):
    """Corrects an event's time, as for a node whose clock was off."""
    with store.engine.begin() as connection:
        by = {"id": event_id, "s": by_s}
        connection.execute(
            sa.text(
                "UPDATE probing.event_key SET at = at - make_interval(secs => :s), ahead_s = :s, received_at = now() WHERE event_id = :id"
            ),
            by,
        )
        connection.execute(
            sa.text(
                "UPDATE probing.health_event SET at = at - make_interval(secs => :s) WHERE event_id = :id"
            ),
            by,
        )


FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.fixture
def corrected(year, make, postgres_url, tmp_path):
    """An event of February's first minutes that was exported, then corrected by an hour, into January."""
    event = make.xid(79, 3, at=FEBRUARY + timedelta(minutes=30))
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[event])
    with year.engine.begin() as connection:
        connection.execute(sa.text("UPDATE probing.event_key SET received_at = at"))
    history.export(year, tmp_path, before=MARCH, since=SINCE, at=SetClock(MARCH + timedelta(days=2)))
    moved(year, event.event_id, 3600)
    return event


@pytest.mark.parametrize(
    "since", [SINCE, FEBRUARY - timedelta(minutes=30), FEBRUARY, FEBRUARY + timedelta(minutes=10)]
)
def test_an_event_that_was_corrected_after_its_export_is_there_once(corrected, year, tmp_path, since):
    """At its true time, whether or not the span holds that."""
    alone, joined = sources.PostgresSource(year.connection_uri()), history.of(year)
    assert plain(joined.events(since, UNTIL)) == plain(alone.events(since, UNTIL))


def test_the_months_that_a_corrected_event_left_and_came_to_are_written_again(corrected, year, tmp_path):
    """Then Postgres may drop both, and the history holds it once."""
    before = sources.PostgresSource(year.connection_uri()).events(SINCE, MARCH)
    months = ["2026-01", "2026-02"]
    later = SetClock(datetime.now(UTC) + 2 * history.OVERLAP)
    assert history.renew(year, tmp_path, months, later) == months
    assert history.incomplete(year, tmp_path, months) == []
    with year.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM probing.health_event WHERE at < '2026-03-01'"))
    assert plain(sources.ParquetSource(tmp_path).events(SINCE, MARCH)) == plain(before)
    assert plain(history.of(year).events(SINCE, MARCH)) == plain(before)


@pytest.mark.parametrize(
    ("at", "by_s"), [(FEBRUARY + timedelta(minutes=30), 3600), (FEBRUARY - timedelta(minutes=30), -3600)]
)
def test_a_correction_under_way_while_its_month_was_exported_counts(
    year, make, tmp_path, postgres_url, at, by_s
):
    """Of a clock ahead, and of one behind: the month that the event left must be written again, too."""
    event = make.xid(79, 3, at=at)
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[event])
    exported_at = MARCH + timedelta(days=2)
    history.export(year, tmp_path, before=MARCH, since=SINCE, at=SetClock(exported_at))
    moved(year, event.event_id, by_s)
    with year.engine.begin() as connection:
        query = "UPDATE probing.event_key SET received_at = CASE WHEN ahead_s <> 0 THEN :at ELSE at END"
        connection.execute(sa.text(query), {"at": exported_at - history.OVERLAP / 2})
    months = ["2026-01", "2026-02"]
    assert history.incomplete(year, tmp_path, months) == months


def test_figures_read_both(year, tmp_path):
    """A figure before and after the export is the same, and from the history alone too."""
    before = fleet.state_breakdown(year, SINCE, UNTIL)
    history.export(year, tmp_path, before=UNTIL, since=SINCE)
    assert fleet.state_breakdown(year, SINCE, UNTIL) == before
    assert fleet.state_breakdown(tmp_path, SINCE, UNTIL).n_attempts == before.n_attempts
    assert fleet.cooccurrence(tmp_path, SINCE, UNTIL) == fleet.cooccurrence(year, SINCE, UNTIL)


def test_months_of_before_a_column_are_read_beside_those_that_have_it(year, tmp_path):
    """What they do not say is not known; the months after them say it."""
    hung = dataclasses.replace(year.verdicts(job_ids=[2])[0], stalled_at=datetime(2026, 2, 19, tzinfo=UTC))
    year.save_verdicts([hung])
    before = fleet.goodput_loss(year, SINCE, UNTIL)
    history.export(year, tmp_path, before=UNTIL, since=SINCE)
    first = tmp_path / "attempts" / "month=2026-01" / "part.parquet"
    history.pq.write_table(history.pq.read_table(first).drop_columns(["stalled_us"]), first)
    found = sources.ParquetSource(tmp_path).attempts(SINCE, UNTIL).to_pylist()
    stalled = {r["job_id"]: r["stalled_us"] for r in found}
    assert (stalled[1], stalled[2]) == (None, clock.to_us(hung.stalled_at))
    assert fleet.goodput_loss(tmp_path, SINCE, UNTIL).first_gpu_h == before.first_gpu_h
    assert fleet.goodput_loss(year, SINCE, UNTIL) == before


def test_the_history_can_be_judged_again(year, tmp_path):
    """Bulk re-attribution of exported months names what the store's verdicts name."""
    history.export(year, tmp_path, before=UNTIL, since=SINCE)
    found = pa.concat_tables(list(distributed.run(tmp_path, SINCE, UNTIL)))
    attempts = {
        r["attempt_id"]: r for r in history.pq.ParquetDataset(tmp_path / "attempts").read().to_pylist()
    }
    assert found.num_rows == 4
    for row in found.to_pylist():
        given = attempts[row["attempt_id"]]
        assert (row["cause"], row["node"], row["confidence"]) == (
            given["cause"],
            given["fault_node"],
            given["confidence"],
        )
    assert bulk.Bulk(tmp_path).nodes == ["n1", "n2"]


def test_a_hang_in_the_history_moves_the_window(store, make, postgres_url, tmp_path):
    """The log's collective timeout reaches back to the fault that hung the job, in bulk as alone."""
    end = datetime(2026, 1, 20, tzinfo=UTC)
    begin = end - timedelta(hours=30)
    hang = make.finding("watchdog_timeout", at=end, detail={"timeout_ms": 1_800_000})
    xid = make.xid(79, 3, at=end - timedelta(seconds=1805))
    for node, event in (("n1", hang), ("n2", xid)):
        delivery.Delivery(postgres_url, "c", node).deliver(events=[event])
    store.upsert_attempts([make.attempt(submit_at=begin, eligible_at=begin, start_at=begin, end_at=end)])
    history.export(store, tmp_path, before=UNTIL, since=SINCE)
    (row,) = pa.concat_tables(list(distributed.run(tmp_path, SINCE, UNTIL))).to_pylist()
    assert (row["cause"], row["node"], row["confidence"]) == ("gpu_lost", "n2", "certain")


def test_an_empty_history_is_no_history(store, tmp_path):
    """Before the first export everything comes from Postgres."""
    assert history.read_manifest(tmp_path).until is None
    assert history.of(store).attempts(SINCE, UNTIL).num_rows == 0
    history.export(store, tmp_path, before=SINCE, since=SINCE)
    assert history.of(store).events(SINCE, UNTIL).num_rows == 0
