"""Slurm's filename patterns, as slurmstepd of 22.05.8 was seen to fill them in (and as sbatch's manual says of later ones)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.probe_agent.jobs import jobs, log_names

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
PLAIN = {"ids_known": True, "user": "nobody"}
TASK = {**PLAIN, "array_job_id": 2, "array_task_id": 12}


def job(**fields: Any) -> jobs.NodeJob:
    given = {"job_id": 8, "started_at": NOW, "work_dir": "/w", "job_name": "name x", "nodelist": "n[1-2]"}
    return jobs.NodeJob(**{**given, "extra": PLAIN, **fields})


EXPANDED = [
    ("A_%A_a_%a_J_%J_j_%j_n_%n_s_%s_t_%t", "A_8_a_4294967294_J_8_j_8_n_0_s_batch_t_0", {}),
    ("u_%u_x_%x_5j_%5j", "u_nobody_x_name x_5j_00008", {}),
    ("15j_%15j_0j_%0j_5N_%5N_3a_%3a", "15j_0000000008_0j_8_5N_n1_3a_4294967294", {}),
    ("q_%q_pp_%%_5s_%5s_end%", "q_%q_pp_%_5s_batch_end%", {}),
    ("ARR_%A_%a_%J_%j_%3a", "ARR_2_12_3_3_012", {"job_id": 3, "extra": TASK}),
    ("first-%a", "first-0", {"extra": {**TASK, "array_task_id": 0}}),
    ("err-%4j.err", "err-0008.err", {}),
    (r"esc\%j\\x", r"esc%j\x", {}),
    (r"two words\ esc%j", "two words esc%j", {}),
]


@pytest.mark.parametrize(("pattern", "name", "fields"), EXPANDED)
def test_as_slurmstepd_wrote_it(pattern: str, name: str, fields: dict[str, Any]) -> None:
    """The very names that Slurm gave to files."""
    assert log_names.names(pattern, job(**fields), "n1")[0] == f"/w/{name}"


def test_what_older_releases_leave_is_tried_too() -> None:
    """`%b` and `%r` came later: before, they stood as they are, and lost the sign before a width."""
    found = log_names.names("/x/%b-%2b-%r", job(extra=TASK, restart_count=1), "n1")
    assert found == ("/x/2-02-1", "/x/%b-2b-%r")


def test_a_host_called_otherwise_than_its_node() -> None:
    """`%N` is the host's short name; both are tried."""
    host = os.uname().nodename.partition(".")[0]
    assert log_names.names("/x/%N", job(), "n1") == tuple(dict.fromkeys(("/x/n1", f"/x/{host}")))


def test_the_second_file_is_one_of_its_own() -> None:
    """With `--error` there are two; without, both go to the first."""
    assert log_names.patterns(job(stdout="/x/o", stderr="/x/%j.e")) == {"stdout": "/x/o", "stderr": "/x/%j.e"}
    assert list(log_names.patterns(job(stdout="/x/o", stderr="/x/o"))) == ["stdout"]


@pytest.mark.parametrize(("extra", "name"), [(PLAIN, "slurm-8.out"), (TASK, "slurm-2_12.out")])
def test_the_default_name(extra: dict[str, Any], name: str) -> None:
    """An array's tasks have another."""
    made = job(extra=extra)
    assert log_names.names(log_names.patterns(made)["stdout"], made, "n1") == (f"/w/{name}",)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"work_dir": ""}, "did not report the job"),
        ({"stdout": "out", "work_dir": ""}, "relative"),
        ({"stdout": "/x/%A_%a", "extra": {}}, "%A"),
        ({"stdout": "/x/%b", "extra": {}}, "%b"),
        ({"stdout": "/x/%u", "extra": {}}, "%u"),
        ({"stdout": "/x/%x", "job_name": ""}, "%x"),
    ],
)
def test_what_cannot_be_known_is_not_guessed(fields: dict[str, Any], missing: str) -> None:
    """A guess could be another job's log."""
    made = job(**fields)
    pattern = log_names.patterns(made)["stdout"]
    with pytest.raises(log_names.NotKnown, match=missing):
        log_names.names(pattern, made, "n1")


@given(
    pattern=st.text(alphabet=st.sampled_from("%\\/.-019AaJjNnrstuxbqé \n"), max_size=30),
    task=st.none() | st.integers(0, 2**31),
)
def test_any_pattern_is_a_path_and_ends(pattern: str, task: int | None) -> None:
    """Whatever its user wrote: absolute names, few of them, and none with an escape left in it."""
    extra = PLAIN if task is None else {**TASK, "array_task_id": task}
    found = log_names.names(pattern or "x", job(extra=extra), "n1")
    assert 1 <= len(found) <= 4
    assert all(name.startswith("/") for name in found)


@given(text=st.text(alphabet=st.characters(blacklist_characters="%\\\0"), min_size=1, max_size=40))
def test_text_without_signs_stays_as_it_is(text: str) -> None:
    """Only what begins with a sign is replaced."""
    assert log_names.names(f"/{text}", job(), "n1") == (f"/{text}",)


@given(width=st.integers(0, 10**6), number=st.integers(1, 2**32 - 1))
def test_padding_never_loses_a_digit(width: int, number: int) -> None:
    """Zeros in front, ten characters at most, and the number whole."""
    (name,) = log_names.names(f"/%{width}j", job(job_id=number), "n1")
    assert int(name[1:]) == number
    assert len(name) - 1 == max(len(str(number)), min(width, 10))
