"""The first cause of a log is the same when launchers, `pdsh`, `ts`, containers or pods write something in front of every line."""

from __future__ import annotations

import functools
import itertools
import json

from probing_cluster.evidence.joblog import labels
from probing_cluster.evidence.joblog import reader as joblog
from tests.every_case import every

BEFORE = [
    "Starting the job",
    "Loading modules",
    "4 nodes are ready",
    "using 8 workers",
    "model has 7.1B parameters",
]
TRACEBACK = ["Traceback (most recent call last):", '  File "/opt/t.py", line 12, in <module>', "    main()"]
LOGS = {
    "exception": [*TRACEBACK, "KeyError: 'lr'"],
    "device": [*TRACEBACK, "RuntimeError: CUDA error: uncorrectable ECC error encountered"],
    "shell": ["Segmentation fault (core dumped)"],
    "other shell": ["segmentation fault (core dumped)"],
    "not found": ["/var/spool/slurmd/job8812/slurm_script: line 11: module: command not found"],
    "options": ["usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --local-rank=1"],
    "heading": ["Error in setup: MPI tasks > number of elements!", "MPI_Abort was invoked"],
    "survived": [
        *TRACEBACK, "KeyError: 'x'", "skipping this file",
        *(f"epoch 1 step {n} loss {9 - n / 100:.3f} lr 0.0003 tokens/s 31234.1" for n in range(400)),
        *TRACEBACK, "ValueError: bad shape",
    ],
    "errno": [*TRACEBACK, "FileNotFoundError: [Errno 2] No such file or directory: 'a.pt'", "bye"],
    "worker": [*TRACEBACK, "PIL.ImageError: Caught ImageError in DataLoader worker process 6.", "Original Traceback (most recent call last):", TRACEBACK[1], "    raise ImageError(msg)", "PIL.ImageError: cannot identify image file"],
    "aborted worker": ["terminate called without an active exception", *TRACEBACK, "RuntimeError: DataLoader worker (pid 396160) is killed by signal: Aborted. ", "During handling of the above exception, another exception occurred:", "", *TRACEBACK, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU "],
    "quoted": ["===== system prompt (verbatim) =====", "### Example", *TRACEBACK, "KeyError: 'lr'", "===== end of system prompt =====", *TRACEBACK, "ValueError: bad shape"],
}  # fmt: skip
WRAPPERS = {
    "srun --label": "3: {}", "srun --label, padded": " 3: {}", "mpirun": "[1,3]<stderr>:{}", "torchrun --tee": "[default3]:{}",
    "pdsh": "gpu-node-12: {}", "pdsh to itself": "localhost: {}", "DeepSpeed": "worker-1: {}", "host and rank": "n7:3: {}", "Intel MPI": "[3] {}",
    "tee by rank": "[3]:{}", "containers": "2025-03-04T05:06:07.123456789Z stderr F {}", "compose": "trainer-1  | {}", "ts": "2025-03-04 05:06:07 {}",
    "ts in brackets": "[2025-03-04 05:06:07] {}", "clock": "05:06:07 {}", "clock in brackets": "[05:06:07.123] {}", "seconds": "1741064767.123 {}", "set in": "    {}",
    "PRRTE": "[prterun-n1-123@1,3]<stderr>: {}", "Lightning": "[rank: 3] {}", "Swarm": "worker.3.abc123@node7    | {}", "pods": "[pod/trainer-0/main] {}",
    "seconds in brackets": "[  161.5s] {}", "LSF": "<<n3>> {}", "host and rank in brackets": "[n-prod-230:0]:{}", "parallel --tag": "cfg3\t{}", "a workflow's log": "train\tRun it\t2025-03-04T05:06:07.1234567Z {}", "blanks at the end": "{}   ", "returned carriage": "{}\r", "journal": "Mar 04 05:06:07 n1 train.sh[4242]: {}", "syslog's date": "Mar 04 05:06:07 {}", "SkyPilot": "(worker1, rank=1, pid=4242, ip=10.0.0.7) {}", "SkyPilot's single task": "(task, pid=4242) {}",
}  # fmt: skip
JSON = {"docker": "log", "a cloud's log": "textPayload", "fluentd": "message"}
"""Where relays that write a record a line keep the text."""


def first(lines: list[str]) -> tuple[int, str]:
    return next((f.line, f.kind) for f in joblog.read(lines) if f.first_cause)


@functools.cache
def first_plain(*lines: str) -> tuple[int, str]:
    """Of a log that nothing is wrapped around, which many tests compare with."""
    return first(list(lines))


@every("wrapper, log", itertools.product(WRAPPERS.values(), LOGS.values()))
def test_a_wrapped_log_says_what_it_said(log: list[str], wrapper: str) -> None:
    """Line and kind of the first cause are the same, and so is what was survived and what was only quoted."""
    lines = [*BEFORE, *log]
    assert first([wrapper.format(line) for line in lines]) == first_plain(*lines)


@every("field, log", itertools.product(JSON.values(), LOGS.values()))
def test_a_log_of_json_records_says_what_it_said(log: list[str], field: str) -> None:
    """A record a line, with the line's blanks and quotes."""
    lines = [*BEFORE, *log]
    record = {"stream": "stderr", "time": "2026-11-29T10:00:00.123456789Z"}
    assert first([json.dumps({field: f"{line}\n", **record}) for line in lines]) == first_plain(*lines)


def test_a_label_names_the_host_or_the_rank() -> None:
    """Of the line it stands in front of, once it is known to be one."""
    lines = [*BEFORE, *LOGS["shell"]]
    for wrapper, host, rank in (
        ("gpu-node-12: {}", "gpu-node-12", None),
        ("[3] {}", None, 3),
        ("3: {}", None, 3),
    ):
        (found,) = joblog.read([wrapper.format(line) for line in lines])
        assert (found.host, found.rank) == (host, rank)


@every(
    "lines",
    [
        ["layer1: 12 blocks", "layer2: 12 blocks", "layer3: 12 blocks", "layer4: 12 blocks", "layer5: 12 blocks"],
        ["[1] loss 2.3", "[2] loss 2.2", "[3] loss 2.1", "[4] loss 2.0", "[5] loss 1.9"],
        ["ValueError: a", "ValueError: b", "ValueError: c", "ValueError: d", "ValueError: e"],
        ["  indented", "not indented", "  indented", "    more", "  indented"],
        ["[Epoch 1] step 1", "[Epoch 2] step 1", "[Epoch 3] step 1", "[Epoch 4] step 1", "[Epoch 5] step 1"],
        ["[ERROR 7] a", "[ERROR 7] b", "[ERROR 7] c", "[ERROR 7] d", "[ERROR 7] e"],
        ["05:06:07 ERROR a", "[05:06:07] WARNING b", "1741064767.123 [INFO] c"],
        ["[2025-03-04 05:06:07] [INFO] a", "[2025-03-04 05:06:07,123] ERROR b", "[2025-03-04 05:06:07] {t.py:1} c"],
    ],
)  # fmt: skip
def test_what_a_line_says_is_no_label(lines: list[str]) -> None:
    """Other words at each line's beginning, an exception's name, a logger's date and level."""
    known = labels.LineLabels()
    plain = [known.plain(line) for line in lines]
    assert plain[1:] == lines[1:]


@every(
    "form, log",
    itertools.product(
        ["{n:5}  {line}", "{n:6}\t{line}", "{n}:{line}", "{n} {line}", "{n:4}| {line}"], LOGS.values()
    ),
)
def test_the_lines_of_a_log_may_be_numbered(log: list[str], form: str) -> None:
    """As `cat -n` and pages number them, some lines left out."""
    whole = [*(f"preparing {name}" for name in "abcdefghij"), *log]
    line, kind = first_plain(*whole)
    numbered = [form.format(n=i if i < 7 else i + 40, line=text) for i, text in enumerate(whole, 1)]
    numbered.insert(6, "...")
    assert first(numbered) == (line + 1, kind)
    alone = form.format(n=1, line="x")
    assert labels.LineLabels().plain(alone) == alone.lstrip(" "), "one numbered line proves nothing"


@every("wrapper", ["[05:06:07] {}", "[  161.5s] {}", "[2025-03-04 05:06:07] {}", "05:06:07 {}"])
def test_a_clock_in_front_of_every_line_is_not_the_loggers_own(wrapper: str) -> None:
    """A logger's own date stays with its level where other lines have none."""
    log = [
        *BEFORE,
        "INFO 03-14 10:00:08 [core.py:1] starting",
        "ERROR 03-14 10:00:09 [core.py:586] ValueError: no memory is left",
        "EngineDeadError: see the cause above",
    ]
    line, kind = first([wrapper.format(text) for text in log])
    assert (line, kind) == (first(log)[0], "python_exception")
    reading = labels.LineLabels()
    assert reading.plain("[05:06:07] ERROR: no").startswith("[05:06:07]")


def test_what_is_remembered_of_labels_is_bounded() -> None:
    """A log may name as many hosts as it likes."""
    known = labels.LineLabels()
    for n in range(20_000):
        known.plain(f"host{n}: text")
        known.plain(f"{n}: text")
    assert len(known._counts) <= labels._MAX_LABELS


def test_a_bar_in_front_of_a_traceback_is_no_entry_of_a_logger() -> None:
    """Its blanks look like those with which a logger sets in a traceback below its note, which would be one that was handled."""
    bar = "  0%|          | 0/500 [00:00<?, ?image/s]"
    note = "2026-03-06 06:20:43,869 INFO: Save the latest model."
    lines = [note, bar + TRACEBACK[0], *TRACEBACK[1:], "KeyError: 'lr'"]
    assert first(lines) == (5, "python_exception")
    handled = [note, *("  " + line for line in (*TRACEBACK, "KeyError: 'lr'"))]
    assert not [f for f in joblog.read(handled) if f.first_cause]


@every(
    "note",
    [
        "Detected KeyboardInterrupt, attempting graceful shutdown ...",
        "2024-07-14 07:04:38 - LOGS - Keyboard interruption. Exiting from early training",
        "Training interrupted by user (Ctrl-C)",
        "KeyboardInterrupt received, saving checkpoint",
        "Ctrl-C pressed: stopping after this step",
    ],
)
def test_a_programs_own_note_of_an_interruption_is_the_first_cause(note: str) -> None:
    """Also behind the broken connections of its workers; advice how to interrupt it is no interruption."""
    workers = [*TRACEBACK, "ConnectionResetError: [Errno 104] Connection reset by peer"]
    assert first([*BEFORE, note]) == (6, "interrupted")
    assert first([*workers, *workers, note, "Training took 00:09:17"]) == (9, "interrupted")
    advice = "wandb: Waiting for the process to finish. Press Control-C or Ctrl-C to abort syncing."
    assert first([*workers, advice]) == (4, "python_consequence")


def test_a_subprocess_that_died_is_not_the_programs_own_error() -> None:
    """`datasets` says that one died; Slurm's kill for memory is why. Without it nothing says why."""
    died = [*TRACEBACK, "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing."]  # fmt: skip
    killed = "slurmstepd-gpu016: error: Detected 4 oom_kill events in StepId=25022146.batch. Some of the step tasks have been OOM Killed."
    assert first([*died, "more of the log", killed]) == (6, "slurm_oom")
    assert first(died) == (4, "python_consequence")


def test_source_code_in_a_box_is_no_progress() -> None:
    """rich lists the program's lines with their numbers below an error: `step = 0` among them advances nothing."""
    code = [f"│   {n} │   iteration = {n - 400} if step > {n} else epoch[{n}]                     │" for n in range(441, 450)]  # fmt: skip
    error = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.45 GiB (GPU 0; 39.59 GiB total capacity)"
    box = [
        "╭────── Traceback (most recent call last) ──────╮",
        *code,
        "╰───────────────────────────────────────────────╯",
    ]
    again = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 5.45 GiB (GPU 0; 39.59 GiB total capacity)"
    )
    assert first([*BEFORE, *TRACEBACK, error, *box, again]) == (9, "cuda_oom")


def test_what_reports_and_launchers_add_below_an_interruption_takes_nothing_from_it() -> None:
    """`seff`, srun and torchrun sum up an end that the program named."""
    lines = [*TRACEBACK, "KeyboardInterrupt"]
    for tail in (
        ["srun: error: n3: task 2: Exited with exit code 1"],
        ["Job ID: 123", "State: FAILED (exit code 1)", "CPU Efficiency: 3.21% of 01:00:00 core-walltime"],
        ["[ERROR] failed (exitcode: 1) local_rank: 0 (pid: 4242) of binary: /opt/conda/bin/python"],
    ):
        assert first([*lines, *tail]) == (4, "interrupted")


def test_the_line_that_says_more_is_the_first_cause() -> None:
    """Of two that tell of one failure: the number of the descriptor that was one too many, the kernel's kill, the adapter's error, the barrier."""
    shm = [*TRACEBACK, "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode"]
    assert first([*shm, *TRACEBACK, "OSError: [Errno 24] Too many open files"]) == (8, "too_many_open_files")
    import_of_image = [
        "slurmstepd: error: pyxis:     /usr/lib/enroot/docker.sh: line 337: 12773 Killed                  enroot-mksquashovlfs",
        "slurmstepd: error: pyxis: couldn't start container",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1054.0. Some of the step tasks have been OOM Killed.",
    ]
    assert first(import_of_image) == (3, "slurm_oom")
    assert first(import_of_image[1:2]) == (1, "slurm_launch_failed")
    remote = [
        "[rank9]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 9] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.20.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:",
        "NET/IB : Got completion from peer 10.5.0.34<33956> with error 5, opcode 0, len 1, vendor err 244 (Recv)",
    ]
    assert first(remote) == (4, "net_ib_completion_error")
    barrier = ["[/x/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1200000ms for recv operation to complete", *TRACEBACK, "RuntimeError: Rank 1 failed to pass monitoredBarrier in 1200000 ms"]  # fmt: skip
    assert first(barrier) == (5, "monitored_barrier_timeout")
    named = next(f for f in joblog.read(barrier) if f.kind == "monitored_barrier_timeout")
    assert (named.detail["ranks"], named.detail["missing"]) == ([1], True)
    calloc = ["n1:1:2 [0] NCCL WARN Failed to CUDA calloc 536870912 bytes", "ncclUnhandledCudaError: Call to CUDA function failed."]  # fmt: skip
    assert first(calloc) == (1, "nccl_unhandled_cuda")


@every("label", ["2031-02-03 10:11:12,345 INFO utils.LineBufferedStream: ", "31/02/03 10:11:12 INFO org.apache.spark.launcher.app.bees: "])  # fmt: skip
def test_livys_label_is_only_taken_from_a_traceback(label: str) -> None:
    """Its child's other words are no error of the job's."""
    raised = ['Exception in thread "main" java.lang.IllegalStateException: no comb', "\tat a.B.c(B.java:3)"]
    assert first([*BEFORE, *(label + line for line in raised)]) == (6, "program_error")
    figures = ["Error: 0 of 3 combs", "over"]
    assert not [f for f in joblog.read([*BEFORE, *(label + line for line in figures)]) if f.first_cause]
