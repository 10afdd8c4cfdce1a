"""Errors that are spoken of: in prose, quotes, data, chat and code they convict nobody."""

from __future__ import annotations

import itertools
import os
import random
import string

import pytest

from probing_cluster.evidence.joblog import mention, reader
from tests.every_case import every

EXAMPLES = int(os.environ.get("PROBING_EXAMPLES", "40"))

HARDWARE = (
    "CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    "CUDA error: uncorrectable NVLink error detected during the execution",
    "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    "hipErrorECCNotCorrectable: uncorrectable ECC error encountered",
    "n3:17:20 [4] misc/x.cc:60 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
)
CONVICTS = {"cuda_ecc", "cuda_nvlink", "cuda_device_lost"}
REPORTED = (
    "CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: transform: failed to synchronize: cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    "  what():  CUDA error: uncorrectable ECC error encountered",
    "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "2026-01-02 03:04:05,678 ERROR train.py:88 - CUDA error: uncorrectable ECC error encountered",
    "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered",
    "(Worker pid=17, ip=10.0.0.3) RuntimeError: CUDA error: uncorrectable ECC error encountered",
    'CUDA error at copy.cu:256 code=214(cudaErrorECCUncorrectable) "cudaMemcpy(a, b, n)"',
    "n3:17:20 [4] misc/x.cc:60 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
    "E0517 08:24:03.8 17 cuda_driver.cc:1234] could not synchronize on CUDA context: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    '{"level": "error", "message": "CUDA error: uncorrectable ECC error encountered"}',
    "pynvml.NVMLError_GpuIsLost: GPU is lost",
    "Unable to determine the device handle for GPU 0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU",
)
CARRIERS = (
    '{{"role": "user", "content": "{0}"}}',
    "{{'prompt': '{0}', 'loss': 0.3}}",
    '"{0}"',
    "The message “{0}” appeared on the console.",
    "`{0}`",
    "- what should I do when I see {0}?",
    'r"{0}",',
    "PATTERN = rb'{0}'",
    "> my colleague got {0} yesterday and asked me",
    "Q: {0}",
    "### Instruction: explain {0}",
    "[sample 12] text: {0}",
    "raise RuntimeError('{0}')",
    "        if '{0}' in str(error):",
    "# {0}",
    "    print('{0}')",
    '12: raise RuntimeError("{0}")',
    "If you ever read {0} in a log, drain the node.",
    "{0} is what my program printed last week, so I rebooted it",
    "Assistant: your card reports {0}",
)


@every("line", REPORTED)
def test_an_error_where_errors_stand_is_read(line: str) -> None:
    """Exceptions, loggers, ranks, C++ and NCCL may stand in front of it."""
    assert {f.kind for f in reader.read([line])} & CONVICTS, line


@every("error, carrier", itertools.product(HARDWARE, CARRIERS))
def test_an_error_that_is_spoken_of_convicts_nobody(carrier: str, error: str) -> None:
    """Chat, data sets, quotations, prose and listings."""
    line = carrier.format(error.replace("'", "") if "'{0}'" in carrier else error)
    assert not {f.kind for f in reader.read([line])} & CONVICTS, line


@pytest.mark.longer
def test_no_sentence_around_an_error_convicts_a_machine() -> None:
    """Words of a sentence at any side, in any number from three on, quoted or not: never hardware."""
    chance = random.Random(14)
    words = [
        "yesterday",
        "we",
        "saw",
        "that",
        "some",
        "nodes",
        "print",
        "such",
        "lines",
        "because",
        "they",
        "train",
        "models",
        "which",
        "answer",
        "questions",
        "about",
        "failing",
        "cards",
    ]
    for _ in range(15 * EXAMPLES):
        error = chance.choice(HARDWARE)
        before = " ".join(chance.choices(words, k=chance.randint(3, 12)))
        behind = " ".join(chance.choices(words, k=chance.randint(3, 12)))
        opening, closing = chance.choice((("", ""), ('"', '"'), ("`", "`"), ("“", "”"), ("(", ")")))
        line = f"{before} {opening}{error}{closing} {behind}"
        assert not {f.kind for f in reader.read([line])} & CONVICTS, line


@pytest.mark.longer
def test_no_string_of_a_data_row_convicts_a_machine() -> None:
    """Whatever the key is called, unless loggers call it so."""
    chance = random.Random(15)
    for _ in range(10 * EXAMPLES):
        key = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(6, 9)))
        if key in ("message", "stderr", "reason", "detail"):
            continue
        lead = " ".join(chance.choices(("the", "log", "of", "user", "says:", "and"), k=chance.randint(0, 4)))
        line = f'{{"id": {chance.randint(1, 99)}, "{key}": "{lead} {chance.choice(HARDWARE[:5])}"}}'
        assert not {f.kind for f in reader.read([line])} & CONVICTS, line


def test_a_healthy_log_that_prints_its_own_source_has_no_first_cause() -> None:
    """A listing with error texts in strings and comments, then steps."""
    listing = [
        "import torch",
        "    except RuntimeError as e:",
        "        raise RuntimeError('CUDA out of memory. Tried to allocate') from e",
        "# torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB on small cards",
        "        if 'CUDA error: uncorrectable ECC error encountered' in str(e):",
    ]
    assert not [
        f for f in reader.read([*listing, *(f"step:{n}/90 loss:2.5" for n in range(9))]) if f.first_cause
    ]


def test_a_bare_line_is_refuted_by_a_traceback_behind_it_and_an_exception_is_not() -> None:
    """A prompt of several lines may put the error alone on one; an exception's own line is a runtime's."""
    own = ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "KeyError: 'labels'"]

    def first(*lines: str) -> list[str]:
        return [f.kind for f in reader.read([*lines, *own]) if f.first_cause]

    assert first("CUDA error: uncorrectable ECC error encountered") == ["python_exception"]
    assert first("RuntimeError: CUDA error: uncorrectable ECC error encountered") == ["cuda_ecc"]
    refuted = next(reader.read(["CUDA error: uncorrectable ECC error encountered", *own]))
    assert refuted.detail["survived"] is True, "no verdict counts what the program outlived"


TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
CANCELLED = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***"


@every(
    ("text", "first"),
    [
        (TIMEOUT, True),
        (f"[rank0]: {TIMEOUT}", True),
        (f'terminated with exception: "{TIMEOUT}"', True),  # a report that quotes what it caught
        (f'level=error msg="{TIMEOUT}"', True),
        (CANCELLED, True),
        (f" 45%|####      | 9/20 [00:03<00:04, 2.75it/s]{CANCELLED}", True),
        (f"45%|####      | 9/20 [00:03<00:04, 2.75it/s] {CANCELLED}", True),
        (f'yesterday the last one "as planned and foreseen" {CANCELLED}', False),
        (f'the last one said "{TIMEOUT}"', False),
        (f"| F11 | `{TIMEOUT}` | **PASS** |", False),
        (f"see “{CANCELLED}” in the manual", False),
        ("比如：“n3:17:20 [4] net.cc:60 NCCL WARN NET/IB : Got async event : port error”。", False),
        ("错误：“n3:17:20 [4] net.cc:60 NCCL WARN NET/IB : Got async event : port error”", True),
        ("原因：\"OSError: [Errno 5] Input/output error: '/lustre/x'\"", True),
        ('[rank3] 読み込み失敗："OSError: [Errno 28] No space left on device"', True),
        (f'step 20 sample: "{CANCELLED}" -> label: timeout', False),
        (f"> {TIMEOUT}", False),
        (f"Record(id=2, label='infra', text='{TIMEOUT}')", False),
        (f"sample 2 | prompt: {CANCELLED} - is this my fault?", False),
        (f' 21          raise RuntimeError("{TIMEOUT}")', False),
        (f"old/slurm-81.out:77:{CANCELLED}", False),
        (f"slurm-81.err:{CANCELLED}", False),
        ("FATAL = re.compile(", False),
        ("* Log an error when UnkillableStepTimeout is less than five times MessageTimeout.", False),
        (f'TIMED_OUT = rb"{TIMEOUT}"', False),
        (f"tests/test_x.py::test_raises[{TIMEOUT}] PASSED", False),
    ],
)
def test_what_is_quoted_is_no_cause_in_any_family(text: str, first: bool) -> None:
    """Marks of quotation, searches in other files and names of tests: the guard is one for every family."""
    assert any(f.first_cause for f in reader.read(["starting", text])) is first


def test_an_error_behind_which_the_run_resumes_is_survived() -> None:
    """The script says that it resumes, and steps follow: whatever stood before ended nothing."""
    shown = [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "=== resuming with batch size 16 ===",
    ]
    steps = [f"step {n}0 loss 2.{9 - n}" for n in range(1, 4)]
    assert not [f for f in reader.read([*shown, *steps]) if f.first_cause]
    assert [f.kind for f in reader.read(shown[:1]) if f.first_cause] == ["cuda_oom"]


@every(
    ("event", "kinds"),
    [("client reregistration", []), ("port active", []), ("port error", ["net_ib_async_event"])],
)
def test_routine_events_of_a_fabric_are_no_cause(event: str, kinds: list[str]) -> None:
    """The subnet manager asks its clients to register again; nothing is broken."""
    line = f"n1:5021:5386 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : {event}"
    assert [f.kind for f in reader.read([line]) if f.first_cause] == kinds


@every(
    ("text", "mentioned"),
    [
        ("RuntimeError: ERR", False),
        ("Caught RuntimeError('ERR", False),
        ("2026-01-01 INFO worker 3: ERR", False),
        ("somebody once told me that ERR", True),
        ('he wrote "ERR', True),
        ("don't panic: ERR", False),
        ("is it ERR", False),
        ("why? ERR", True),
    ],
)
def test_how_a_place_is_judged(text: str, mentioned: bool) -> None:
    """Three words of a sentence or an open quotation; a label, an apostrophe or a represented exception is neither."""
    assert mention.is_mentioned(text, text.index("ERR")) is mentioned


def test_an_answer_goes_on_over_indented_lines() -> None:
    """Markdown's code inside an answer; a line that is not indented, or has another tag, is the program's own."""
    answer = ["[eval] A: The message", "[eval]"]
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered"

    def first(*lines: str) -> list[str]:
        return [f.kind for f in reader.read(lines) if f.first_cause]

    assert first(*answer, f"[eval]     {error}") == []
    assert first("[eval] loading", f"[eval]     {error}") == ["cuda_ecc"]
    assert first(*answer, error) == ["cuda_ecc"]


@every(
    "lines",
    [
        ('src/launch.py:219:        raise RuntimeError("CUDA error: an illegal memory access was encountered")',),
        ("lib/a.cu:7:// CUDA error: uncorrectable ECC error encountered",),
        ('\t\terror("%s: failed to signal task %u of %ps: %m",', "\t\t      __func__, i, &step);"),
        ('  info("Found %"PRIu64" oom_kill event%s in %ps.",',),
        ("+`OSError: [Errno 5] Input/output error` in the job's output.",),
        ("If you see", "    Traceback (most recent call last):", "      ...", "    RuntimeError: CUDA error: device-side assert", "halve the batch"),
    ],
)  # fmt: skip
def test_source_that_a_search_prints_and_examples_are_no_errors(lines: tuple[str, ...]) -> None:
    """A line of a file with its number, a change of a text, what somebody would see."""
    assert not any(f.first_cause for f in reader.read([*lines, "done"]))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('error("GPU at 95% load"): CUDA error: uncorrectable ECC error encountered', "cuda_ecc"),
        ('open("/lustre/data/img%20001.jpg"): Input/output error', "io_error"),
    ],
)
def test_a_percent_sign_in_a_reported_call_makes_no_source(line: str, kind: str) -> None:
    """A statement of source ends with a comma or a semicolon; a report ends with the error."""
    assert [f.kind for f in reader.read([line]) if f.first_cause] == [kind]


def test_a_tests_failure_with_its_place_is_one() -> None:
    """pytest writes a place and a bare name; Python's own traceback is indented, too."""
    failed = "tests/a.py:219: RuntimeError: CUDA error: an illegal memory access was encountered"
    assert any(f.first_cause for f in reader.read([failed]))
    block = (
        "rank 3 says",
        "    Traceback (most recent call last):",
        '      File "a.py", line 1',
        "    KeyError: 'lr'",
    )
    assert any(f.first_cause for f in reader.read(block))
