"""One attempt that the rules fail on is judged unknown, alone; everybody else is judged as ever."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.attribution.passes import isolation
from probing_cluster.core import errors, records

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(job_id: int) -> records.JobAttempt:
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=NOW, start_at=NOW, end_at=NOW + timedelta(hours=1), state="FAILED", nodes=("n1",)
    )  # fmt: skip


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {1, 2}, set(range(7))])
def test_only_those_it_fails_on(bad: set[int], caplog: pytest.LogCaptureFixture) -> None:
    """At any place among the others; the log names each with its job."""

    def judge(attempts: Sequence[records.JobAttempt]) -> list[records.Verdict]:
        if bad & {a.job_id for a in attempts}:
            raise OverflowError("a number of a forged event")
        return [
            records.Verdict(
                cluster="c", job_id=a.job_id, submit_at=NOW, cause="user_error", domain=records.Domain.USER_PROGRAM,
                confidence=records.Confidence.LIKELY, summary="", rules_version="1", made_at=NOW,
            )
            for a in attempts
        ]  # fmt: skip

    made = isolation.verdicts([attempt(n) for n in range(7)], judge, NOW)
    assert [v.job_id for v in made] == list(range(7))
    assert {v.job_id for v in made if v.cause == "unknown"} == bad
    assert all(v.confidence is records.Confidence.UNKNOWN for v in made if v.job_id in bad)
    assert {r.fields["job_id"] for r in caplog.records} == bad  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "failure",
    [errors.DatabaseUnavailable("gone"), OSError(errno.ENOSPC, "No space left"), MemoryError()],
    ids=lambda failure: type(failure).__name__,
)
def test_a_database_disk_or_memory_that_fails_judges_nobody(failure: Exception) -> None:
    """Our failure is not the job's: nothing is called unknown because of it."""

    def judge(attempts: Sequence[records.JobAttempt]) -> list[records.Verdict]:
        raise failure

    with pytest.raises(type(failure)):
        isolation.verdicts([attempt(1), attempt(2)], judge, NOW)


def test_a_number_that_is_no_time_is_the_attempts() -> None:
    """The operating system refuses it, and so `datetime` raises an OSError; the others are judged."""

    def judge(attempts: Sequence[records.JobAttempt]) -> list[records.Verdict]:
        if any(a.job_id == 2 for a in attempts):
            datetime.fromtimestamp(1e17, UTC)
        return []

    assert [v.job_id for v in isolation.verdicts([attempt(1), attempt(2)], judge, NOW)] == [2]
