"""Forms that whole output files of strangers' jobs showed: a site's account below the last error, servers that go on, last words of tools."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader as joblog
from tests.every_case import every

LIMIT = "slurmstepd: error: *** JOB 71 ON n3 CANCELLED AT 2026-03-02T19:41:07 DUE TO TIME LIMIT ***"
RAISED = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "sqlite3.OperationalError: x"]
SITES = {
    "seff": ["Job ID: 71", "Cluster: c", "User/Group: ann/lab", "State: FAILED (exit code 1)", "Nodes: 1", "Cores per node: 8", "CPU Utilized: 00:00:01", "Memory Utilized: 3 GB"],
    "statistics": ["JOB STATISTICS", "==============", "Job ID: 71", "State: FAILED (exit code 1)", "Nodes: 1", "CPU Utilized: 00:00:01", "Memory Utilized: 3 GB"],
    "information": [f"===== Job Information {'=' * 60}", "Submitted: 2026-06-12T18:07:18", "Started: 2026-06-12T19:55:44", "Ended: 2026-06-12T19:55:56", "(HT-)CPUs: 8, Nodes: 1", "=" * 80],
    "epilogue": ["-" * 39, "Begin Slurm Epilog: Mar-13-2026 16:29:39", "Job ID:        71", "User ID:       ann", "Resources:     cpu=1", "Rsrc Used:     cput=00:00:04", "Partition:     gpu", "Nodes:", "n3.example.org", "-" * 39],
    "usage": ["=" * 60, "                  Resource Usage on 2026-10-12 15:03:10:", "   Project:            x1", "   NCPUs Requested:    48      NCPUs Used: 48", "   JobFS requested:    1MB", "=" * 60],
}  # fmt: skip


def cause(*lines: str) -> list[tuple[str, int]]:
    return [(f.kind, f.line) for f in joblog.read(lines) if f.first_cause]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    "word", ["ERROR: no mesh in case.cas", "mesh.dat: No such file or directory", "Invalid number of atoms"]
)
def test_a_sites_account_of_the_job_is_no_work_of_the_program(site: str, word: str) -> None:
    """An error stays the last word above it; the same number of the program's own lines drops it."""
    assert cause("reading", word, *SITES[site]) == [("program_error", 2)]
    assert cause("reading", word, *[f"wrote block of file {name}" for name in "abcdef"]) == []


def test_an_error_below_a_sites_account_is_read() -> None:
    """The account ends where its fields do."""
    log = ["start", *SITES["statistics"], "Geometry error: bond too long", *RAISED]
    assert cause(*log) == [("python_exception", len(log))]


@every(
    "word",
    [
        "bind: Address already in use",
        "connect : Connection refused",
        "recv(): Connection reset by peer",
        "socket: Operation not permitted",
        "inet_pton : src does not contain a character string representing a valid network address",
        "qchem not found in PATH",
        "Caffe not found in PYTHONPATH.",
        "Failed on line: 12 at command: decode.sh",
        "[FAIL] exit 1",
        "[FAILED] smoke test of model a (exit 3)",
        "✗ Spatial pipeline failed with error: index out of range",
        "PLUMED error: two atoms at one place.",
        "#### WRF MODEL ERROR! FILE ####",
    ],
)
def test_the_last_word_is_the_cause_until_work_follows(word: str) -> None:
    """At the end of an output only."""
    assert cause("reading", word) == [("program_error", 2)]
    assert cause("reading", word, *[f"wrote block of file {name}" for name in "abcdef"]) == []


@every(
    ("word", "kind"),
    [
        ("Command failed with exit status 2: ./run.sh", "task_exit"),
        (" Pipeline failed (exit code: 1)", "task_exit"),
        ("srun: Job has been cancelled", "slurm_cancelled"),
        ("48 total processes failed to start", "slurm_launch_failed"),
        ("CUDA error src/a.cu:62 'no kernel image is available for execution on the device'", "cuda_version"),
        ("make: *** [Makefile:23: src/main.o] Interrupt", "interrupted"),
    ],
)
def test_a_launchers_word_has_its_kind(word: str, kind: str) -> None:
    """Each alone in the output."""
    assert cause("start", word) == [(kind, 2)]


@every(
    "line",
    [
        "Error: 9.514310e-01, GPU time: 5446.058105",
        "    reason: Missing output files: /scratch/a/out.csv; Input files updated by another job: b",
        "Unrecognized keys in `rope_parameters` for 'rope_type'='default': {'a'}",
        "tee: /proc/sys/kernel/perf_event_paranoid: Read-only file system",
    ],
)
def test_what_only_looks_like_an_error_is_none(line: str) -> None:
    """Values that are called errors, reasons for which a rule runs, notes, and settings that a container may not write."""
    assert cause("start", line, "done") == []


def test_a_missing_output_that_makes_a_rule_run_does_not_end_the_workflow() -> None:
    """The engine's own word remains."""
    log = [
        "rule a:",
        "    reason: Missing output files: out.csv",
        "Shutting down, this might take some time.",
    ]
    over = "Exiting because a job execution failed. Look above for error message"
    assert cause(*log, over) == [("task_exit", 4)]


@every("request_line", [[], ["    HTTPServerRequest(protocol='http', method='GET')"]])
def test_a_notebooks_server_outlives_a_request_that_failed(request_line: list[str]) -> None:
    """Its log indents the traceback."""
    head = "[E 19:45:54.007 NotebookApp] Uncaught exception GET /api/contents/a.ipynb"
    log = [head, *request_line, *(f"    {line}" for line in RAISED), LIMIT]
    assert cause(*log) == [("slurm_timeout", len(log))]
    assert cause("start", *RAISED, LIMIT) == [("python_exception", 4)]


def test_a_notebooks_server_that_saves_files_goes_on() -> None:
    """So does a kernel without its history."""
    raised = ["Exception in callback BaseAsyncIOLoop._handle_events(9, 1)", *RAISED]
    saved = [f"[I 13:{n}:54.316 NotebookApp] Saving file at /a.ipynb" for n in range(10, 15)]
    log = [*raised, *saved, LIMIT]
    assert cause(*log) == [("slurm_timeout", len(log))]
    history = "[IPKernelApp] ERROR | Failed to create history session in h.sqlite. History will not be saved."
    assert cause(history, *RAISED, LIMIT) == [("slurm_timeout", 5)]


def test_a_script_that_traces_many_commands_after_a_complaint_goes_on() -> None:
    """A few commands are a clean-up."""
    log = ["+ mkdir -p /mnt/a", "mkdir: cannot create directory ‘/mnt/a’: Permission denied"]
    assert cause(*log, *["+ rm -f lock"] * 3) == [("program_error", 2)]
    assert cause(*log, *[f"+ srun ./part{n}" for n in range(14)]) == []
    assert cause(*log, *[f"+ export V{n}=1" for n in range(14)]) == [("program_error", 2)]


def test_a_complaint_that_a_program_outlived_again_and_again_is_not_its_end() -> None:
    """The last try of a few is."""
    word = "ERROR:root:dropped chunk 404 of file_stream"
    steps = ["saved part one", "saved part two", "moved on", "closed the part"]
    assert cause(*[word, *steps] * 20, word) == []
    assert cause(*[word, *steps] * 3, word) == [("program_error", 16)]


def test_a_configuration_that_ended_well_outlived_its_errors() -> None:
    """configure tries compilers until one works; another rank's good end proves nothing."""
    log = ["conftest.c:9:10: fatal error: x.h: No such file or directory", "checking", "yes", "no"]
    assert cause(*log, "configure: exit 0") == []
    assert cause(*RAISED, "Tokenization pipeline finished successfully", LIMIT) == [("python_exception", 3)]


@pytest.mark.parametrize(
    "end",
    [
        ("ERROR: no mesh in case.cas", "The run has not ended normally"),
        ("ERROR: no mesh in case.cas", "MPI process 3 exited normally"),
        ("=== Job Information ===", "Invalid input parameter: nx must be positive"),
        ("See the results in", "```", "a,b", "```", "- [a](https://a.example)", "- [b](https://b.example)", "ERROR: no mesh in case.cas"),
    ],
    ids=["not", "one process", "a heading", "a page above"],
)  # fmt: skip
def test_what_only_resembles_a_good_end_an_account_or_a_page_hides_no_error(end: tuple[str, ...]) -> None:
    """Each was read as one."""
    assert len(cause("reading", *end)) == 1


def test_a_helper_that_a_script_killed_is_no_killed_job() -> None:
    """The script's own words stand before the shell's."""
    assert cause("Stopping background monitor... Killed", "writing report") == []


def test_xlas_warning_of_a_waiting_thread_is_no_cause() -> None:
    """XLA withdraws it when the thread goes on."""
    stuck = "E xla/service/rendezvous.cc:38] This thread has been waiting for `first call` for 20 seconds and may be stuck."
    unstuck = "E xla/service/rendezvous.cc:46] Thread is unstuck! Warning above was a false-positive."
    assert cause("step 1", stuck, unstuck) == cause("step 1", stuck) == []
    assert cause("step 1", stuck, "srun: error: n7: task 1: Killed") == [("oom_kill_suspected", 3)]


def test_lsfs_account_of_an_exit_explains_nothing() -> None:
    """It stands for what accounting says; an error above it is the cause."""
    report = [
        "-" * 60,
        "",
        "Exited with exit code 1.",
        "",
        "Resource usage summary:",
        "    CPU time :    1.26 sec.",
    ]
    assert cause("reading", *report) == []
    assert cause("reading", "Error: no mesh", *report) == [("program_error", 2)]
