"""Errors of programs that a harness judges, and of calls that a checker does not count, are not the job's."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import grammar, reader

DIVIDED = ["Traceback (most recent call last):", '  File "<string>", line 7, in press', "ZeroDivisionError: division by zero"]  # fmt: skip
FAILED = ["--- sample vine/7 #2 (failed) ---", *DIVIDED]
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NO_ROOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB."
CALL = '========= Program hit cudaErrorNotReady (error 600) due to "device not ready" on CUDA API call to cudaEventQuery.'
FRAME = "=========     Host Frame: [0x7a1] in /usr/lib64/libcuda.so.1"


def first(lines: list[str]) -> str:
    """The text of the first cause; empty without one."""
    whole = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert whole == [classify.joblog_json(f) for f in reader.read(lines)], "the sieve hides nothing"
    return next((lines[f["line"] - 1] for f in whole if f["first_cause"]), "")


@pytest.mark.parametrize(
    "lines",
    [
        ["--- sample vine/6 #0 (passed) ---", *FAILED, "--- sample vine/8 #1 (passed) ---", "rate 0.3"],
        ["--- sample vine/6 #0 (timed out) ---", "TimeoutException: late", *FAILED, "{", '  "rate": 0.3', "}"],
        ["=== VINE/6 candidate 3: FAILED ===", "RecursionError: too deep", "=== VINE/7 candidate 1: FAILED ===", *DIVIDED, "rate 0.3"],
        ["## problem 6 / solution a (runtime error) ##", *DIVIDED, "## problem 7 / solution b (accepted) ##", "rate 0.3"],
        ["==== problem VP/6 ====", "target: passed", "response: failed: Traceback (most recent call last):", *DIVIDED[1:], "==== problem VP/7 ====", "response: passed", "rate 0.3"],
        ["--- candidate 6 of q1 ---", "status: error", *DIVIDED, "--- candidate 7 of q1 ---", "status: error: MemoryError", "rate 0.3"],
        ["--- candidate 6 of q1 ---", "status: ok", "--- candidate 7 of q1 ---", "status: error: MemoryError", "rate 0.3"],
        ["[vine__vine-31] press: ERROR: late", *(f"[vine__vine-31] {line}" for line in DIVIDED), "[must__must-7] pressed", "Instances unresolved: 1", "report in r.json"],
        ["[cc-101] sour", *(f"[cc-102] {line}" for line in DIVIDED), *(f"[cc-103] {line}" for line in DIVIDED), "Total problems: 3", "Problems with errors: 2"],
        ["--- chunk 6 (vines/press.md) ---", NO_ROOM, "means that the press is full.", "--- chunk 7 (vines/soil.rst) ---", *DIVIDED, "embedded 10/90 chunks"],
        ["=== passage 6: soil.txt ===", DIVIDED[-1], "=== passage 7: rain.txt ===", "rain", "sorted 1/9 passages"],
        ["========= COMPUTE-SANITIZER", "step 1", CALL, FRAME, "step 2", "========= ERROR SUMMARY: 0 errors", "exit 0"],
    ],
)  # fmt: skip
def test_what_is_judged_is_not_the_jobs_own(lines: list[str]) -> None:
    assert first(lines) == ""


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["--- sample vine/6 #0 (failed) ---", *DIVIDED], DIVIDED[-1]),
        (["--- sample vine/6 #0 (passed) ---", *FAILED, "srun: error: n4: task 0: Exited with exit code 1"], DIVIDED[-1]),
        (["--- sample vine/6 #0 (passed) ---", *FAILED, "press: cannot go on", "bye"], DIVIDED[-1]),
        (["--- sample vine/6 #0 (passed) ---", "--- sample vine/7 #2 (passed) ---", *DIVIDED, "bye"], DIVIDED[-1]),
        (["--- stage press 1 (passed) ---", "--- stage grow 2 (failed) ---", *DIVIDED, "--- stage sell 3 (skipped) ---"], DIVIDED[-1]),
        (["--- candidate 6 of q1 ---", "status: ok", "--- candidate 7 of q1 ---", "status: ok", *DIVIDED, "bye"], DIVIDED[-1]),
        (["--- candidate 6 of q1 ---", "vines are long", "--- candidate 7 of q1 ---", "status: error", *DIVIDED, "", "srun: error: n4: task 0: Exited with exit code 1"], DIVIDED[-1]),
        (["[vine-31] step 1", *(f"[vine-31] {line}" for line in DIVIDED), "ranks failed: 1"], f"[vine-31] {DIVIDED[-1]}"),
        (["[cc-101] sour", *(f"[cc-102] {line}" for line in DIVIDED), "Problems with errors: 0"], f"[cc-102] {DIVIDED[-1]}"),
        ([*(f"[cc-102] {line}" for line in DIVIDED), *DIVIDED[:2], "KeyError: 'sugar'", "Problems with errors: 1"], "KeyError: 'sugar'"),
        (["--- chunk 6 (vines/press.md) ---", NO_ROOM, "--- chunk 7 (vines/soil.rst) ---", "soil", *DIVIDED], DIVIDED[-1]),
        (["=== part 6 (press.py) ===", *DIVIDED, "=== part 7 (sell.py) ===", "no wine"], DIVIDED[-1]),
        (["========= COMPUTE-SANITIZER", CALL, FRAME, "========= ERROR SUMMARY: 1 error"], CALL),
        (["-- example 1: error --", ECC, "-- example 2: ok --"], ECC),
        (["-- example 1: error --", ECC, "-- example 2: error --", f"{ECC}.", "-- example 3: error --", f"{ECC}.", "srun: error: n4: task 0: Exited with exit code 1"], ECC),
        (["========= COMPUTE-SANITIZER", f"========= {ECC[14:]}", "========= ERROR SUMMARY: 0 errors"], f"========= {ECC[14:]}"),
        (["==31== Error: cannot allocate memory", "==31== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)"], "==31== Error: cannot allocate memory"),
        (["========= ERROR SUMMARY: 0 errors", "CUDA error: an illegal memory access was encountered at vine.cu:7"], "CUDA error: an illegal memory access was encountered at vine.cu:7"),
    ],
)  # fmt: skip
def test_an_error_that_is_not_judged_stays_the_cause(lines: list[str], cause: str) -> None:
    """A harness judges several programs and goes on; a checker counts what is wrong."""
    assert first(lines) == cause


def test_many_judged_errors_are_not_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, enrich = [], grammar.enrich
    monkeypatch.setattr(grammar, "enrich", lambda *two: calls.append(0) or enrich(*two))
    lines = [line for n in range(60) for line in (FAILED[0].replace("7", str(n)), *DIVIDED)]
    assert list(reader.read(lines))
    assert len(calls) < 4 * 60


BROKEN = "RuntimeError: CUDA error: unspecified launch failure"
RAISED = ["Traceback (most recent call last):", '  File "press.py", line 3, in <module>']


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["task_id=6: ok", f"task_id=7: error: {BROKEN}", "task_id=8: ok", "srun: error: n4: task 0: Exited with exit code 1"], 2),
        ([f"sample {n}: failed: {line}" if line is RAISED[0] else line for n in (6, 7) for line in (*RAISED, BROKEN)], 3),
        ([f"generation 6: failed: {RAISED[0]}", RAISED[1], "ValueError: no vines", "step 1/9", "step 2/9", "step 3/9"], 3),
        (["MIG instance 6: failed: NCCL error: unhandled system error", "MIG instance 7: ok"], 1),
        (["[n4-gpu6] stderr:", *(f"    {line}" for line in (*RAISED, BROKEN)), "[n4-gpu7] done", "Examples failed: 1"], 4),
    ],
)  # fmt: skip
def test_rows_of_the_jobs_own_parts_are_its_own(lines: list[str], line: int) -> None:
    """Tasks, samples and instances may be the job's own, on GPUs and nodes of its own. The next one may only fail alike."""
    assert first(lines) == lines[line - 1]
