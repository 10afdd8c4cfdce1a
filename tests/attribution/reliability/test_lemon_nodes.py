"""The lemons' figures and the checks' marks against a count by hand, from a real Postgres."""

from __future__ import annotations

import math
import random
import statistics
import uuid
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from probing_cluster.attribution.history import history
from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records

T0 = datetime(2026, 3, 1, tzinfo=UTC)
SINCE, UNTIL = T0, T0 + timedelta(days=42)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def lemon(node: str, day: datetime, verdict: str = "ok", **signals: object) -> records.LemonScore:
    return records.LemonScore(
        cluster="c", node=node, day=day, score=0.5, verdict=verdict, made_at=day + DAY, **signals
    )  # type: ignore[arg-type]


def drain(node: str, at: datetime, state: str = "done", action: str = "drain") -> records.Drain:
    return records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node=node, at=at, action=action, reason="probing: x", owner="probing", state=state, severity="high",
    )  # fmt: skip


def test_signals_by_value_with_the_lemons_marked(store):
    """300 nodes of the last scored day; an older day, and a later one than the span, are not in it."""
    rng = random.Random(7)
    scores = []
    for n in range(300):
        is_lemon = n % 20 == 0
        rate = None if n % 3 == 0 and not is_lemon else rng.randrange(5) / 4
        values = {
            name: rng.randrange(4) + 3 * is_lemon for name in fleet_signals() if not name.endswith("rate")
        }
        scores.append(
            lemon(
                f"n{n}",
                T0 + 5 * DAY,
                "lemon" if is_lemon else "ok",
                single_node_node_failure_rate=rate,
                **values,
            )
        )
    store.save_lemon_scores(
        [*scores, lemon("n0", T0, "lemon", xid_cnt=99), lemon("n1", UNTIL + DAY, xid_cnt=77)]
    )
    found = fleet.lemon_signals(store, SINCE, UNTIL)
    assert found.day == T0 + 5 * DAY
    for name in fleet_signals():
        known = [(getattr(s, name), s.verdict == "lemon") for s in scores if getattr(s, name) is not None]
        rows = {v.value: (v.n_nodes, v.n_lemons) for v in found.values if v.signal == name}
        assert rows == {
            value: (sum(v == value for v, _ in known), sum(v == value and bad for v, bad in known)) for value in {v for v, _ in known}
        }  # fmt: skip
        (summary,) = (s for s in found.signals if s.signal == name)
        bad, good = ([v for v, is_bad in known if is_bad is wanted] for wanted in (True, False))
        above = statistics.mean(1.0 if b > g else 0.5 if b == g else 0.0 for b in bad for g in good)
        assert summary.separation_frac == pytest.approx(above)
        assert (summary.mean_of_lemons, summary.mean_of_others) == pytest.approx(
            (statistics.mean(bad), statistics.mean(good))
        )
    none = fleet.lemon_signals(store, UNTIL + 9 * DAY, UNTIL + 19 * DAY)
    assert (none.values, none.signals, none.day) == ((), (), None)


def fleet_signals() -> list[str]:
    return ["excl_jobid_count", "xid_cnt", "tickets", "out_count", "multi_node_node_fails", "single_node_node_fails",
            "single_node_node_failure_rate"]  # fmt: skip


def upper(n: int, failed: int) -> float:
    """The share at which `failed` or fewer of n have a chance of 2.5 %, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(failed + 1))
        low, high = (p, high) if tail > 0.025 else (low, p)
    return low


def test_large_jobs_before_and_after_lemons_left(store):
    """Two lemons leave; a drain of a good node, a denied one and one long after the score are no departures."""
    rng = random.Random(11)
    store.save_lemon_scores(
        [
            lemon(n, T0 + d * DAY, v)
            for n, d, v in (
                ("a", 13, "lemon"),
                ("b", 20, "lemon"),
                ("g", 13, "ok"),
                ("x", 2, "lemon"),
                ("y", 2, "lemon"),
            )
        ]
    )
    left = [T0 + 14 * DAY + 6 * HOUR, T0 + 20 * DAY + HOUR]
    for made in (drain("a", left[0]), drain("a", left[0] + 9 * DAY), drain("b", left[1], "resumed"), drain("g", T0 + 14 * DAY),
                 drain("x", T0 + 3 * DAY, "denied"), drain("y", T0 + 5 * DAY)):  # fmt: skip
        store.add_drain(made)
    attempts = []
    for n in range(600):
        start = T0 + rng.random() * 41 * DAY
        end = start + rng.random() * DAY
        state = "NODE_FAIL" if rng.random() < (0.3 if end < left[0] else 0.05) else "COMPLETED"
        attempts.append(
            records.JobAttempt(
                cluster="c", job_id=n, submit_at=start, eligible_at=start, start_at=start, end_at=end, state=state, nodes=("n1",),
                n_gpus=rng.choice((8, 511, 512, 2048)), user="u", partition="gpu", run_key=str(n),
            )
        )  # fmt: skip
    store.upsert_attempts(attempts)
    found = fleet.lemon_departures(store, SINCE, UNTIL)
    assert [(d.node, d.left_at) for d in found.departures] == [("a", left[0]), ("b", left[1])]
    large = [a for a in attempts if a.n_gpus >= 512 and a.end_at < UNTIL]
    phases = {
        "before the first left": [a for a in large if a.end_at < left[0]],
        "after the last left": [a for a in large if a.start_at >= left[1]],
    }
    phases["in between"] = [a for a in large if not any(a in p for p in phases.values())]
    for phase in found.phases:
        mine = phases[phase.phase]
        failed = sum(a.state == "NODE_FAIL" for a in mine)
        assert (phase.n_attempts, phase.n_failed) == (len(mine), failed)
        assert phase.high_frac == pytest.approx(upper(len(mine), failed), rel=1e-6)
        assert phase.low_frac == pytest.approx(1 - upper(len(mine), len(mine) - failed), abs=1e-9)
        assert phase.gpu_h == pytest.approx(sum(a.n_gpus * (a.end_at - a.start_at) / HOUR for a in mine))
    assert sum(b.n_attempts for b in found.buckets) == len(large)
    assert [b.n_left for b in found.buckets] == [0, 0, 2, 2, 2, 2]
    assert fleet.lemon_departures(store, SINCE, left[0]).phases == ()
    known = history.ReadOnce(store)
    known.attempts(SINCE, UNTIL)
    with store.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM probing.job_attempt"))
    assert fleet.lemon_departures(store, SINCE, UNTIL, attempts=known) == found, (
        "what was read is not read again"
    )


def test_marks_when_checks_came_into_force_and_checks_that_found_nothing(store):
    """The checks of the first day are no marks; a new version is one; what only check_now remembers is older."""

    def result(
        name: str, day: float, outcome: str = "ok", version: str = "1", node: str = "n1"
    ) -> records.CheckResult:
        return records.CheckResult(
            cluster="c", node=node, name=name, outcome=records.Outcome(outcome), severity=records.Severity.LOW, version=version, at=T0 + day * DAY,
        )  # fmt: skip

    rows = [result("old", -30), result("old", 3, "fail"), result("old", 4, "fail", node="n2"), result("young", 10), result("young", 11, node="n2"),
            result("old", 12, version="2"), result("later", 50), result("quiet", 20)]  # fmt: skip
    store._upsert(records.CheckResult, rows)
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO probing.check_now SELECT (jsonb_populate_record(r, %s::jsonb)).* FROM probing.check_result r WHERE name = 'quiet'",
            ('{"at": "2026-01-31T12:00:00Z"}',),
        )
    source = history.of(store)
    found = fleet.failures_over_time(source, SINCE, UNTIL)
    assert [(c.name, c.version, c.at) for c in found.checks_began] == [
        ("young", "1", T0 + 10 * DAY),
        ("old", "2", T0 + 12 * DAY),
    ]
    yields = {
        (c.name, c.version): (c.n_results, c.n_failed)
        for c in fleet.check_coverage(source, SINCE, UNTIL).checks
    }
    assert yields == {
        ("young", "1"): (2, 0),
        ("old", "2"): (1, 0),
        ("old", "1"): (2, 2),
        ("quiet", "1"): (1, 0),
    }
