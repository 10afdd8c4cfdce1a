"""Crashes by their signal's name, limits of PBS, and what CUDA's checker finds."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader

ABOVE = [f"reading part {n} of the input" for n in range(30)]


@pytest.mark.parametrize(
    ("last", "kind", "domains"),
    [
        (["*** Caught a fatal signal (proc 3): SIGSEGV(11)"], "segfault", None),
        (["*** Caught a fatal signal: SIGFPE(8)"], "process_crashed", None),
        (["fish: Job 1, './a.out' terminated by signal SIGSEGV (Address boundary error)"], "segfault", None),
        (["fish: Process 12, './a.out' from job 1, './a.out' terminated by signal SIGKILL (Forced quit)"], "oom_kill_suspected", None),
        (["Bad system call (core dumped)"], "process_crashed", None),
        (["run.sh: line 3: 12 Trace/breakpoint trap   (core dumped) ./a.out"], "process_crashed", None),
        (["セグメンテーション違反です (コアダンプ)"], "segfault", None),
        (["セグメンテーション違反"], "segfault", None),
        (["========= Invalid __global__ write of size 4 bytes", "=========     at k(int *)+0x50 in a.cu:3", "========= ERROR SUMMARY: 1 error"], "cuda_illegal_access", ["user_program"]),
        (["========= Misaligned __shared__ read of size 8 bytes", "=========     at k(int *)+0x50 in a.cu:3"], "cuda_illegal_access", ["user_program"]),
        (["=>> PBS: job killed: ncpus 2.5 exceeded limit 1 (sum)"], "process_terminated", ["user_program"]),
        (["=>> PBS: job killed: vmem 12gb exceeded limit 10gb"], "slurm_oom", None),
        (["=>> PBS: job killed: walltime 3617 exceeded limit 3600"], "slurm_timeout", None),
        ([" E r r o r   t e r m i n a t i o n"], "program_error", ["user_program"]),
        (["/b/gpusolver/src/PxgSolver.cpp (12) : internal error : solver cuEventRecord failed", "", "Segmentation fault"], "cuda_error", None),
        (["Loss 0.3, step 12solve: ../src/grid.c:77: check: Assertion `n > 0' failed."], "program_error", ["user_program"]),
        (["[ 12%]solve: grid.cpp:7: int check(int): Assertion `n > 0' failed."], "program_error", ["user_program"]),
        (["70%assert: grid.cpp:7: main: Assertion `n > 0' failed.", "Aborted (core dumped)"], "program_error", ["user_program"]),
    ],
    ids=lambda value: value[0][:40] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_crash_has_its_kind(last: list[str], kind: str, domains: list[str] | None) -> None:
    lines = [*ABOVE, *last]
    found = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert found == [classify.joblog_json(f) for f in reader.read(lines)], "the two ways differ"
    causes = [f for f in found if f["first_cause"]]
    assert [(f["kind"], f["line"]) for f in causes] == [(kind, len(ABOVE) + 1)]
    assert domains is None or causes[0]["domains"] == domains


def test_after_what_physx_reports_the_programs_own_exception_counts() -> None:
    """A simulation goes on after it."""
    raised = [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "    go()",
        "KeyError: 'mass'",
    ]
    lines = [*ABOVE, "/b/gpusolver/src/PxgSolver.cpp (12) : internal error : cuEventRecord failed", *raised]
    assert [f.kind for f in reader.read(lines) if f.first_cause] == ["python_exception"]


@pytest.mark.parametrize("name", ["LowLevelFatalError", "[2024.05.01-10.00.00:123][ 77]LogCore: Fatal error:", "Fatal error:"])  # fmt: skip
def test_an_engines_fatal_error_is_the_sentence_below_it(name: str) -> None:
    lines = [*ABOVE, f"{name} [File:/src/Rhi.cpp] [Line: 803] ", "Memory->Find(Type) failed, Result=-8", "Signal 11 caught.", "Segmentation fault (core dumped)"]  # fmt: skip
    found = [f for f in reader.read(lines) if f.first_cause]
    assert [(f.kind, f.line) for f in found] == [("program_error", len(ABOVE) + 2)]


def test_gasnet_names_the_process() -> None:
    found = list(reader.read(["*** Caught a fatal signal (proc 3): SIGSEGV(11)"]))
    assert [f.rank for f in found] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "E0000 00:00:1700000000.123456    1234 cuda_dnn.cc:8310] Unable to register cuDNN factory",
        "E0102 10:00:00.123456   1234 cuda_dnn.cc:8310] Unable to register cuDNN factory: already registered",
        "E0102 10:00:00.123456   1234 x.cc:12] 3 of 10 shards",
        "E0000 00:00:1700000000.123456    1234 cuda_executor.cc:1228] INTERNAL: CUDA Runtime error: Failed call to cudaGetRuntimeVersion",
        "========= ERROR SUMMARY: 0 errors",
        "The handler caught a fatal signal in its test",
        "/b/physx/src/NpScene.cpp (12) : internal error : the scene is empty",
        "/b/gpucommon/PxgHeap.cpp (12) : warning : Failed to allocate pinned memory.",
        "in run 12 we saw '0solve: grid.c:77: check: Assertion `n > 0' failed.'",
    ],
)
def test_what_well_ending_runs_print_is_no_crash(text: str) -> None:
    assert not [f for f in reader.read([*ABOVE, text]) if f.first_cause]
