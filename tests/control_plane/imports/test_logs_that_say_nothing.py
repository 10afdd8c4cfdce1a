"""A kernel log that says nothing of a job's time is a look at its node; one that only begins after the job is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane.imports import kernel, load
from probing_cluster.core import records
from probing_cluster.db import store as db_store

START, END = datetime(2026, 5, 4, 8, 0, tzinfo=UTC), datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
NOW = END + timedelta(days=90)
SACCT = (
    "JobIDRaw|JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES\n"
    "9020|9020|FAILED|1:0|2026-05-04T06:00:00|2026-05-04T08:00:00|2026-05-04T09:30:00|b01|cpu=8,gres/gpu=8,node=1\n"
)
OUTPUT = "step 1 loss 2\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
HARMLESS = "b01 kernel: usb 1-1: new device"
H = 3600


def lines(*after_start_s: float) -> str:
    """A log with harmless lines so many seconds after the job's start."""
    return "".join(
        f"{START + timedelta(seconds=s):%Y-%m-%dT%H:%M:%S+00:00} {HARMLESS}\n" for s in after_start_s
    )


LOGS = {
    "from before to after": ([lines(-H, 3 * H)], "possible"),
    "one line while it ran": ([lines(600)], "possible"),
    "two files, one after the other": ([lines(-H, -60), lines(2 * H, 9 * H)], "possible"),
    "silent since before the job began, as a quiet machine's is": ([lines(-9 * H, -H)], "possible"),
    "begins after the job's end, as after a reboot": ([lines(2 * H, 9 * H)], "likely"),
    "without any date": ([f"[  12.000000] {HARMLESS}\n"], "likely"),
    "none": ([], "likely"),
    "of a ring buffer that was just cleared": (["", "\n \n"], "likely"),
    "of a journal without entries": (["-- No entries --\n"], "likely"),
}


@pytest.mark.parametrize("name", LOGS)
def test_text_alone_convicts_a_node_that_nobody_looked_at_more_surely(
    store: db_store.Store, tmp_path: Path, name: str
) -> None:
    """The job's own words are "possible" at most where the kernel would have told of it and did not."""
    texts, word = LOGS[name]
    (tmp_path / "sacct").write_text(SACCT)
    (tmp_path / "out").write_text(OUTPUT)
    logs = []
    for number, text in enumerate(texts):
        path = tmp_path / f"kern{number}"
        path.write_text(text)
        logs.append(("b01", path))
    order = load.LoadOrder(
        sacct=[tmp_path / "sacct"], kernel=logs, joblog=[("9020", tmp_path / "out")], cluster="c", now=NOW, timezone="UTC"
    )  # fmt: skip
    assert load.load(store, order).n_events == 1, "what a log covers is no event that somebody imported"
    load.load(store, order)
    attribute.attribute(store)
    (verdict,) = store.verdicts(job_ids=[9020])
    assert (verdict.cause, str(verdict.confidence)) == ("gpu_memory_uncorrectable", word)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=30), st.booleans())
def test_what_a_log_covers_is_from_its_first_date_to_its_last(seconds: list[int], undated: bool) -> None:
    """Lines without a date at either end change nothing; the same log is the same event."""
    seconds = sorted(seconds)
    noise = ["a line without a date\n"] * 3 if undated else []
    text = [*noise, *lines(*seconds).splitlines(keepends=True), *noise]
    where = kernel.FilePlace(file="f", node="b01", cluster="c", read_at=NOW, reference=NOW)
    (first,), (again,) = (kernel.read([t.encode() for t in text], where).covers for _ in range(2))
    assert (first.at, first.last_at) == tuple(START + timedelta(seconds=s) for s in (seconds[0], seconds[-1]))
    assert first == again
    assert first.severity is records.Severity.INFO
