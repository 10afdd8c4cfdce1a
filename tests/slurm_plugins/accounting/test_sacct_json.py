"""Accounting's JSON of five releases, in their own samples and in the shapes they differ by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_json


def parse(*jobs: Any, **envelope: Any) -> attempt_rows.ParseResult:
    return sacct_json.parse_sacct_json(json.dumps({"jobs": list(jobs), **envelope}).encode())


def some(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


def old(**changes: Any) -> dict[str, Any]:
    """One job as 21.08 writes it."""
    return {
        "job_id": 7,
        "cluster": "c",
        "user": "alice",
        "account": "lab",
        "partition": "gpu",
        "nodes": "n[1-2]",
        "state": {"current": "FAILED", "reason": "None"},
        "array": {"job_id": 0, "task_id": None},
        "het": {"job_id": 0, "job_offset": None},
        "exit_code": {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}},
        "time": {"submission": 100, "eligible": 101, "start": 110, "end": 200, "suspended": 5, "limit": 60},
        "tres": {
            "allocated": [
                {"type": "cpu", "name": None, "count": 8},
                {"type": "gres", "name": "gpu", "count": 16},
            ]
        },
        "comment": {"job": None},
        "working_directory": "/home/alice",
        **changes,
    }


def new(**changes: Any) -> dict[str, Any]:
    """The same job as 23.11 and later write it."""
    common = old(
        state={"current": ["FAILED"], "reason": "None"},
        array={"job_id": 0, "task_id": some(None)},
        het={"job_id": 0, "job_offset": some(None)},
        exit_code={
            "status": ["SIGNALED"],
            "return_code": some(0),
            "signal": {"id": some(9), "name": "KILL"},
        },
        comment={"job": ""},
    )
    common["time"] = {**common["time"], "limit": some(60)}
    common["tres"] = {
        "allocated": [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 16}]
    }
    return {**common, **changes}


def test_old_and_new_shapes_are_one_attempt() -> None:
    """The same job in the writing of 21.08 and of 23.11 gives equal records."""
    assert parse(old()).attempts == parse(new()).attempts
    (row,) = parse(old()).attempts
    assert (row.job_id, row.state, row.exit_code, row.exit_signal) == (7, "FAILED", 0, 9)
    assert (row.nodes, row.n_gpus, row.n_cpus, row.suspended_s) == (("n1", "n2"), 16, 8, 5)
    assert (row.time_limit_s, row.work_dir, row.run_key) == (3600, "/home/alice", "7")


def test_arrays_het_jobs_and_limits() -> None:
    """Task 0 is a task, 0 as a master is none, infinite is no limit."""
    task = new(array={"job_id": 5, "task_id": some(0)})
    task["time"]["limit"] = {"set": False, "infinite": True, "number": 0}
    (row,) = parse(task).attempts
    assert (row.array_job_id, row.array_task_id, row.run_key, row.time_limit_s) == (5, 0, "5_0", None)
    task["time"]["limit"] = some(
        525600
    )  # the year that slurmctld writes where neither job nor partition has one
    assert parse(task).attempts[0].time_limit_s is None
    (row,) = parse(new(het={"job_id": 6, "job_offset": some(1)})).attempts
    assert (row.het_job_id, row.het_offset, row.run_key) == (6, 1, "6")


def test_states_with_flags() -> None:
    """REQUEUED beside a base state is how this row ended; RUNNING has neither end nor exit code."""
    (row,) = parse(new(state={"current": ["PENDING", "REQUEUED"], "reason": "None"})).attempts
    assert row.state == "REQUEUED"
    (row,) = parse(new(state={"current": ["RUNNING"], "reason": "None"})).attempts
    assert (row.end_at, row.exit_code) == (None, None)


def test_gpus_by_type_and_by_request() -> None:
    """Typed counts are summed where no total stands, and the request fills in where the allocation is silent."""
    typed = new(tres={"allocated": [{"type": "gres", "name": f"gpu:{t}", "count": 2} for t in ("a", "b")]})
    assert parse(typed).attempts[0].n_gpus == 4
    calls = new(tres={"allocated": [], "requested": [{"type": "gres", "name": "gpu", "count": 3}]})
    assert parse(calls).attempts[0].n_gpus == 3


def test_what_never_ran_and_what_cannot_be() -> None:
    """Pending jobs are no attempts; jobs without id, state or sense are set aside with their place."""
    pending = new(state={"current": ["PENDING"], "reason": "Priority"})
    backwards = new()
    backwards["time"] = {**backwards["time"], "end": 50}
    result = parse(pending, {"state": {}}, "text", new(state={}), backwards, new())
    assert [n.job_id for n in result.not_started] == ["7"]
    assert [(r.line_no, r.why) for r in result.rejected] == [
        (2, "it has no job_id"),
        (3, "it has no job_id"),
        (4, "it has no state"),
        (5, "it ends before it starts"),
    ]
    assert len(result.attempts) == 1


def test_slurms_own_errors_are_passed_on() -> None:
    """What stands under `errors` is a note beside an empty answer, and the reason where there is none."""
    answers = [{"error": "Unable to query", "description": "slurmdbd is away"}]
    assert parse(errors=answers).notes == ("Slurm said: Unable to query: slurmdbd is away",)
    with pytest.raises(errors.MalformedInput, match="slurmdbd is away"):
        sacct_json.parse_sacct_json(json.dumps({"errors": answers}).encode())


@pytest.mark.parametrize(
    "form",
    [
        "{one}\n{two}\n",
        "sacct: error: slurm_persist_conn_open\nLoading {{slurm}}/23.02\n{one}\n[1] done\n{two}",
        "\ufeff{one}\n\n{two}",
        "[{first},\n{second}]",
        "{first}\n{second}\n",
        "{many}",
    ],
)
def test_dumps_in_one_file_and_what_jq_makes_of_them(form: str) -> None:
    """No document of a file is left out: months appended to one file, `jq '.jobs'`, `jq -c '.jobs[]'`."""
    first, second = new(), new(job_id=8)
    dumps = {"first": first, "second": second, "one": {"jobs": [first]}, "two": {"jobs": [second]}}
    dumps["many"] = {"jobs": [first, second]}
    text = form.format(**{name: json.dumps(value) for name, value in dumps.items()})
    assert [a.job_id for a in sacct_json.parse_sacct_json(text.encode()).attempts] == [7, 8]


def test_a_dump_that_breaks_off_is_refused() -> None:
    """Its inner lists do not pass for dumps of their own."""
    whole = json.dumps({"jobs": [new()]}, indent=1)
    for text in (whole[: len(whole) // 2], whole + "\n" + whole[:99], json.dumps({"jobs": [new()]})[:-9]):
        with pytest.raises(errors.MalformedInput, match="not JSON"):
            sacct_json.parse_sacct_json(text.encode())


def test_run_key_in_the_comment() -> None:
    """A site without our plugin names the run in the job's comment."""
    assert parse(new(comment={"job": "probing-run=big"})).attempts[0].run_key == "big"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(old())), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(old())), JSON, max_size=6))
def test_no_shape_breaks_it(changes: dict[str, Any]) -> None:
    """Any value under any key makes an attempt, a pending job or a rejected one, never an accident."""
    result = parse(new(**changes))
    assert len(result.attempts) + len(result.not_started) + len(result.rejected) == 1


@given(st.binary(max_size=200))
def test_no_bytes_break_it(data: bytes) -> None:
    """Arbitrary bytes are refused by name."""
    with pytest.raises(errors.MalformedInput):
        sacct_json.parse_sacct_json(data)


def _samples(directory: Path) -> list[Path]:
    return sorted(
        [
            *directory.glob("slurm/sarc_sacct/*.json"),
            *directory.glob("slurm/vcell/sacct-*.json"),
            *directory.glob("slurm/slurm-web/*/*/slurmdb-job-*.json"),
        ]
    )


def test_every_sample_parses_without_loss(shared_samples: Path) -> None:
    """Every job of every recorded release is an attempt or a pending job; none is set aside."""
    for path in _samples(shared_samples):
        result = sacct_json.parse_sacct_json(path.read_bytes())
        listed = json.loads(path.read_bytes())["jobs"]
        assert result.rejected == (), path
        assert len(result.attempts) + len(result.not_started) == len(listed), path


def test_real_jobs_of_five_releases(shared_samples: Path) -> None:
    """What a person reads in the files of 21.08 to 25.11 is what the records say; 22.05 writes 0 for whatever a failed job ended with."""
    read = {}
    for name in ("21_8_8", "22_5_9", "23_2_6", "23_11_5"):
        (row,) = sacct_json.parse_sacct_json(
            (shared_samples / f"slurm/sarc_sacct/slurm_{name}.json").read_bytes()
        ).attempts
        read[name] = (row.state, row.n_gpus, len(row.nodes), row.exit_code)
    assert read == {
        "21_8_8": ("REQUEUED", 1, 1, 0),
        "22_5_9": ("FAILED", 16, 4, None),
        "23_2_6": ("RUNNING", 2, 1, None),
        "23_11_5": ("RUNNING", 2, 1, None),
    }
    newest = shared_samples / "slurm/slurm-web/25.11/0.0.44"
    (failed,) = sacct_json.parse_sacct_json((newest / "slurmdb-job-failed.json").read_bytes()).attempts
    assert (failed.state, failed.exit_code, failed.nodes) == ("FAILED", 1, ("cn1",))
    (cancelled,) = sacct_json.parse_sacct_json((newest / "slurmdb-job-archived.json").read_bytes()).attempts
    assert (cancelled.state, cancelled.cancelled_by) == ("CANCELLED", "sevans")


@pytest.mark.parametrize("current", ["BANANA", ["BANANA"]])
def test_a_state_that_slurm_does_not_have_is_set_aside(current: Any) -> None:
    """Counted and named; the other job of the dump is taken."""
    result = parse(
        old(state={"current": current}), old(job_id=8, state={"current": ["FAILED", "EXPEDITING"]})
    )
    assert [a.job_id for a in result.attempts] == [8]
    (bad,) = result.rejected
    assert "'BANANA' is no state that Slurm has, such as COMPLETED" in bad.why
