"""Accounts by columns are the accounts of the one-run function, to the last bit."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.attribution.reliability import account_columns, ettr, run_account
from probing_cluster.core import records
from probing_cluster.db import rows as db_rows

T0 = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
NOW = T0 + timedelta(days=40)
STATES = ("COMPLETED", "FAILED", "NODE_FAIL", "REQUEUED", "RUNNING", "SUSPENDED", "PENDING")
US = pa.timestamp("us", tz="UTC")
ASSUMPTIONS = (
    run_account.Assumptions(),
    run_account.Assumptions(interval_s=1800, write_s=30, restart_s=120),
    run_account.Assumptions(interval_s=100.5, write_s=7.25, restart_s=0.0, failures_per_node_day=0.0),
    run_account.Assumptions(restart_s=9000, failures_per_node_day=90.0),
)

spans = st.one_of(
    st.just(timedelta()), st.timedeltas(timedelta(), timedelta(hours=3)), st.just(timedelta(seconds=121))
)


@st.composite
def progresses(draw, start: datetime) -> run_account.RunProgress:
    written = [
        run_account.Checkpoint(at=start + draw(spans), duration_s=draw(st.floats(0, 4000)))
        for _ in range(draw(st.integers(0, 3)))
    ]
    first = start + draw(spans) - timedelta(seconds=5) if draw(st.booleans()) else None
    return run_account.RunProgress(first_step_at=first, checkpoints=tuple(written))


@st.composite
def runs(draw, number: int):
    """One run: attempts after one another as requeues make them, sometimes overlapping, set back, waiting or running."""
    made, measured, submit = [], {}, T0 + draw(spans)
    for i in range(draw(st.integers(1, 5))):
        eligible = draw(st.none() | spans.map(lambda span, submit=submit: submit + span))
        start = submit + draw(spans) if draw(st.integers(0, 5)) else None
        end = (start or submit) + draw(spans) if draw(st.integers(0, 5)) else None
        if draw(st.integers(0, 9)) == 0 and end is not None:
            end -= timedelta(hours=1)
        one = records.JobAttempt(
            cluster="c",
            job_id=number * 100 + draw(st.integers(0, 1)) * 10 + i,
            submit_at=submit,
            attempt=i + 1,
            eligible_at=eligible,
            start_at=start,
            end_at=end,
            state=draw(st.sampled_from(STATES)),
            suspended_s=draw(st.sampled_from([0.0, 60.0, -1.0, 100_000.0]) | st.floats(0, 5000)),
            nodes=tuple(f"n{n}" for n in range(draw(st.integers(0, 4)))),
            n_gpus=draw(st.none() | st.integers(0, 64)),
            user="alice",
            run_key=f"r{number}",
        )
        made.append(one)
        if start is not None and draw(st.booleans()):
            measured[one.cluster, one.job_id, one.submit_at] = draw(progresses(start))
        overlap = timedelta(minutes=10) if draw(st.integers(0, 9)) == 0 else timedelta()
        submit = max(submit, (end or NOW) - overlap) + draw(spans)
    return sorted(made, key=lambda a: (a.submit_at, a.job_id)), measured


@st.composite
def fleets(draw):
    found = [draw(runs(number)) for number in range(draw(st.integers(1, 5)))]
    stalls = {
        (a.cluster, a.job_id, a.submit_at): a.start_at + draw(spans) - timedelta(minutes=1)
        for made, _ in found
        for a in made
        if a.start_at is not None and draw(st.integers(0, 2)) == 0
    }
    return (
        [made for made, _ in found],
        {key: p for _, measured in found for key, p in measured.items()},
        stalls,
    )


def table(fleet: list[list[records.JobAttempt]]) -> pa.Table:
    """The rows as stale_attempts.sql gives them."""
    flat = [(number, a) for number, run in enumerate(fleet, 1) for a in run]
    times = {
        name: pa.array([getattr(a, name) for _, a in flat], US)
        for name in ("submit_at", "eligible_at", "start_at", "end_at")
    }
    words = {
        name: pa.array([getattr(a, name) for _, a in flat], pa.string())
        for name in ("cluster", "user", "run_key", "state")
    }
    return pa.table(
        {
            "run_no": pa.array([number for number, _ in flat], pa.int64()),
            "job_id": pa.array([a.job_id for _, a in flat], pa.int64()),
            "attempt": pa.array([a.attempt for _, a in flat], pa.int64()),
            "suspended_s": pa.array([a.suspended_s for _, a in flat], pa.float64()),
            "n_nodes": pa.array([len(a.nodes) for _, a in flat], pa.int32()),
            "n_gpus": pa.array([a.n_gpus for _, a in flat], pa.int64()),
            **times,
            **words,
        }
    )


@given(fleets(), st.sampled_from(ASSUMPTIONS))
def test_by_columns_is_one_by_one(made, assume):
    """Every field of every run's account is equal; what overlaps is left to the one-run function."""
    fleet, measured, stalls = made
    columns = account_columns.attempts_of(table(fleet), NOW)
    simple = account_columns.in_sequence(columns)
    assert len(simple) == len(fleet)
    kept = [run for run, whole in zip(fleet, simple, strict=True) if whole]
    if not kept:
        return
    columns = account_columns.attempts_of(table(kept), NOW)
    got = account_columns.accounts(columns, measured, assume, NOW, stalls).to_pylist()
    want = [
        run_account.account(run, now=NOW, progress=measured, stalls=stalls, assume=assume) for run in kept
    ]
    assert [db_rows.from_row(records.RunAccount, row) for row in got] == want


@given(runs(1))
def test_only_runs_that_overlap_are_left_out(made):
    """A run in which every attempt is submitted after the end of the one before, and starts after that, is simple."""
    run, _ = made
    (simple,) = account_columns.in_sequence(account_columns.attempts_of(table([run]), NOW))

    def ended(a: records.JobAttempt) -> datetime:
        return max(a.submit_at, a.start_at or a.submit_at, a.end_at or NOW)

    # Of one submission, attempts are components of one start.
    follow = all(b.submit_at >= ended(a) and b.submit_at > a.submit_at for a, b in itertools.pairwise(run))
    assert simple == follow


@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.floats(0, 1e6), st.floats(1e-6, 1e8)), min_size=1, max_size=9
    ),
    st.sampled_from([0.0, 0.005, 5.0, 500.0]),
)
def test_renewals_are_the_renewal_form_of_each(given_runs, rate):
    """To the last bit, also without failures and where nothing is ever done."""
    model = ettr.Model(n_nodes=1, failures_per_node_day=rate, interval_s=1800, write_s=12.5)
    sizes, waits, lengths = (np.array(column) for column in zip(*given_runs, strict=True))
    got = ettr.renewals(model, sizes, waits, lengths).tolist()
    assert got == [
        ettr.renewal(
            ettr.Model(
                n_nodes=n,
                failures_per_node_day=rate,
                interval_s=1800,
                write_s=12.5,
                queue_s=q,
                productive_s=r,
            )
        )
        for n, q, r in given_runs
    ]


def test_components_that_never_ran_add_up_by_columns_too(make):
    """Cancelled in the second of their submission, they overlap in no instant, and are one start all the same."""
    both = [
        make.attempt(
            job_id=600 + i, het_job_id=600, het_offset=i, submit_at=NOW, start_at=NOW, end_at=NOW, n_gpus=64
        )
        for i in (0, 1)
    ]
    assert not account_columns.in_sequence(account_columns.attempts_of(table([both]), NOW)).any()
