"""Which of several programs, tasks and lines of a log was the first to fail, and how much came behind it."""

from __future__ import annotations

from unittest import mock

import pytest

from probing_cluster.evidence.joblog import grammar, reader
from probing_cluster.evidence.joblog.messages import slurm
from tests.every_case import every

TRACE = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>'


def first(text: str) -> grammar.JobFinding | None:
    return next((f for f in reader.read(text.split("\n")) if f.first_cause), None)


def message(text: str) -> str:
    found = first(text)
    assert found is not None
    return found.message


def test_what_came_behind_an_exception_is_counted_without_launchers_and_frames():
    found = first(f"{TRACE}\nKeyError: 'lr'\nusing the slow path\nquality gate not met\nsrun: error: n1: task 0: Exited with exit code 3")  # fmt: skip
    assert found is not None
    assert (found.detail["behind"], found.detail["last_words"]) == (2, "quality gate not met")
    alone = first(f"{TRACE}\nKeyError: 'lr'")
    assert alone is not None
    assert "behind" not in alone.detail


@every(
    "line",
    ["step 40 loss 0.40", "main run ok", "result written", "final energy did not converge", "cache missing, computing from scratch"],
)  # fmt: skip
def test_a_line_of_the_jobs_own_work_after_an_exception_is_recorded(line):
    found = first(f"{TRACE}\nKeyError: 'lr'\n{line}\nJob finished at Sat Nov 28 19:54:59 UTC 2026")
    assert found is not None
    assert found.detail["went_on"] == line


@every(
    "lines",
    [
        "srun: error: n1: task 0: Exited with exit code 1",
        "make: *** [Makefile:3: all] Error 1",
        "Job finished",
        "Job 4711 finished at Sat Nov 28 19:54:59 UTC 2026\nDone.",
        "Sat Nov 28 19:54:59 UTC 2026",
        "# Ended (code 1) at Wed Apr  8 19:03:41 JST 2026, elapsed time 43 seconds",
        "ERROR conda.cli.main_run:execute(49): `conda run python t.py` failed.",
        "CondaError: Run 'conda init' before 'conda deactivate'",
        "Unloading cuda/12.4",
        "python exited with code 1\nexit status: 1",
        "wandb: Synced 5 W&B file(s)",
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
        "[2026-02-11 10:01:22,113] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 91211",
        "==== Epilog ====\nJob ID: 17\nState: FAILED (exit code 1)\nMemory Utilized: 1 GB",
        "real\t0m1.2s\nuser\t0m1.0s\nsys\t0m0.1s",
        "  size mismatch for head.weight: copying a param",
        "+ exit 1",
        "Command exited with non-zero status 1",
    ],
)
def test_what_wrappers_print_after_an_exception_is_no_work_of_the_job(lines):
    found = first(f"{TRACE}\nKeyError: 'lr'\n{lines}")
    assert found is not None
    assert "went_on" not in found.detail


def test_a_fallback_for_a_package_that_is_not_there_failed_and_ended_the_program():
    text = f"{TRACE}\nModuleNotFoundError: No module named 'flash_attn'\n\nDuring handling of the above exception, another exception occurred:\n\n{TRACE}\nFileNotFoundError: [Errno 2] No such file or directory: '/home/a/fallback.json'"
    assert message(text).startswith("FileNotFoundError")
    raised = text.replace("line 3, in <module>\nFile", 'line 5, in <module>\n    raise RuntimeError("x")\nFile').replace("FileNotFoundError: [Errno 2] No such file or directory: '/home/a/fallback.json'", "RuntimeError: x")  # fmt: skip
    assert message(raised).startswith("ModuleNotFoundError")


@every("complaint", ["tar: /scratch/x: No space left on device", "cat: /lustre/a: Input/output error"])  # fmt: skip
def test_a_script_that_printed_on_behind_a_command_lived_on(complaint):
    assert first(f"{complaint}\nfalling back to /tmp\nquality gate: 3 of 12 plots are blank") is None
    assert message(complaint) == complaint
    assert message(f"{complaint}\nsrun: error: n1: task 0: Exited with exit code 1") == complaint


FALLBACKS = [
    "using sdpa instead",
    "flash_attn is not available, using sdpa instead",
    "Flash attention not found. Using eager attention.",
    "flash attention disabled",
    "defaulting to eager attention",
    "running without flash attention",
    "Flash attention is not installed; attention falls back to SDPA",
]


@every("fallback", FALLBACKS)
def test_a_program_that_states_its_fallback_below_an_exception_went_on(fallback):
    """`traceback.print_exc()` of an optional package, the program's own words, and a short training."""
    raised = f"{TRACE}\nModuleNotFoundError: No module named 'flash_attn'"
    steps = "\n".join(f"epoch {n} loss {2 / n}" for n in range(1, 5))
    assert first(f"{raised}\n{fallback}\n{steps}") is None
    assert first(f"{raised}\n{fallback}\ntraining").detail["goes_on"] is True
    assert "goes_on" not in first(f"{raised}\n[rank1]: {fallback}\ntraining").detail


@every(
    "line",
    ["using python 3.10", "You can fall back to sdpa instead", "will use 8 GPUs", "Exiting: flash attention is disabled",
     "please install it, running without it is not supported", "use sdpa instead", "Using TensorFlow backend.", "using bf16 instead of fp16"],
)  # fmt: skip
def test_other_words_below_an_exception_are_no_fallback(line):
    raised = f"{TRACE}\nModuleNotFoundError: No module named 'flash_attn'"
    assert "goes_on" not in first(f"{raised}\n{line}\ntraining").detail


@every(
    "raised",
    ["ValueError: attention backend 'flash' needs CUDA", "RuntimeError: Triton is not built for this GPU", "ImportError: cannot import name 'x' from 'xformers.ops'"],
)  # fmt: skip
def test_a_fallback_names_what_the_exception_lacked(raised):
    named = {"ValueError": "switching to eager attention", "RuntimeError": "Triton kernels are switched off", "ImportError": "running without xformers"}  # fmt: skip
    line = named[raised.partition(":")[0]]
    assert first(f"{TRACE}\n{raised}\n{line}\ntraining").detail["goes_on"] is True
    assert "goes_on" not in first(f"{TRACE}\nValueError: loss is nan\n{line}\ntraining").detail
    assert first(f"{TRACE}\n{raised}\nusing the slow path instead\ntraining").detail["goes_on"] is True


@pytest.mark.parametrize("raised", ["ValueError: loss is nan in the profiler's run", "ModuleNotFoundError: No module named 'wandb'", "ModuleNotFoundError: No module named 'scalers'"])  # fmt: skip
@pytest.mark.parametrize(
    "line",
    ["wandb: WARNING Symlinked 1 file; run will use dir wandb/latest", "Profiler output disabled", "[INFO] Saving crash dump, defaulting to /tmp/crash",
     "Loss scaler: dynamic scaling switched off.", "Switching to rank 0 for cleanup", "wandb: logging disabled"],
)  # fmt: skip
def test_a_setting_that_a_program_reports_at_any_time_is_no_fallback(raised, line):
    assert "goes_on" not in first(f"{TRACE}\n{raised}\n{line}\ntraining").detail


def test_a_script_that_shows_its_commands_went_on():
    lines = [
        "+ srun --wrap=x true",
        "srun: unrecognized option '--wrap=x'",
        "+ echo go",
        "go",
        "+ python a.py",
    ]
    assert first("\n".join(lines)) is not None
    assert first("\n".join([*lines, *(f"line {c} of the output" for c in "abcdefghijkl")])) is None
    assert first("\n".join([*lines[:2], "+ exit 1"])) is not None


LEFT = "srun: error: n1: task 0: Exited with exit code 13"


def test_the_task_that_left_first_is_the_first_cause():
    others = f"{TRACE}\nRuntimeError: barrier: only 1 of 2 ranks arrived\nsrun: error: n2: task 1: Exited with exit code 1"  # fmt: skip
    assert message(f"{LEFT}\n{others}") == LEFT
    assert message(f"{others}\n{LEFT}").startswith("RuntimeError")
    one = LEFT.replace("code 13", "code 1")
    assert message(f"{one}\n{others}").startswith("RuntimeError"), "Python's own code: its words may be lost"


def test_numbers_of_launchers_are_no_ranks():
    """One torchrun a node below srun -l: what node 1 prints says nothing of rank 1, which runs on node 0."""
    lines = [
        "0: [rank1]: Traceback (most recent call last):",
        '0: [rank1]:   File "t.py", line 3, in <module>',
        "0: [rank1]: KeyError: 'lr'",
        "0: [rank3]: Traceback (most recent call last):",
        '0: [rank3]:   File "t.py", line 3, in <module>',
        "0: [rank3]: KeyError: 'lr'",
        *(f"1: Map:  {n}%|##  | {n}00/9000 [00:0{n}<00:14, 2680.45 examples/s]" for n in range(1, 9)),
    ]
    assert first("\n".join(lines)).rank == 1  # type: ignore[union-attr]


def test_a_warning_below_frames_raised_nothing():
    frames = 'Traceback (most recent call last):  File "t.py", line 4, in <module>\n    import torch\n'
    warned = (
        "/x/torch/nn/modules/transformer.py:20: UserWarning: Failed to initialize NumPy: _ARRAY_API not found"
    )
    assert first(f"{frames}{warned}\n  device = x\nHostname: n1, Rank: 0") is None


def test_an_exception_that_was_dropped_is_dropped_where_lines_of_two_processes_mix():
    lines = [
        "1: Exception ignored in atexit callback: <function f at 0x7f97>",
        "1: Traceback (most recent call last):",
        '1:   File "m.py", line 480, in f',
        "1: Exception ignored in atexit callback: <function f at 0x7fe6>",
        "1: Traceback (most recent call last):",
        '1:   File "m.py", line 480, in f',
        "1: FileNotFoundError: [Errno 2] No such file or directory: '/home/a/.triton/autotune/Fp16Matmul_2d_kernel.pickle.tmp'",
        '1:   File "m.py", line 457, in g',
        "1: FileNotFoundError: [Errno 2] No such file or directory: '/home/a/.triton/autotune/Fp16Matmul_2d_kernel.pickle.tmp'",
        "0: [rank0]: Traceback (most recent call last):",
        '0: [rank0]:   File "t.py", line 3, in <module>',
        "0: [rank0]: ValueError: min() arg is an empty sequence",
    ]
    assert message("\n".join(lines)).startswith("ValueError")


def test_conda_that_was_not_set_up_is_no_cause_where_the_script_ran():
    begin, end = "CondaError: Run 'conda init' before 'conda activate'", "CondaError: Run 'conda init' before 'conda deactivate'"  # fmt: skip
    assert first(f"{begin}\nepoch done\n{end}") is None
    assert message(begin) == begin


@every(
    ("text", "kind"),
    [
        ("Accelerator Fatal Error: call to cuCtxCreate returned error 214 (CUDA_ERROR_ECC_UNCORRECTABLE): uncorrectable ECC error encountered", "cuda_ecc"),
        ("E0905 17:34:36.549101 1188991 a.cc:414] cudaFreeAsync failed to free 268435456: CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error", "cuda_nvlink"),
        ("n1:1:2 [3] transport/net_ib.cc:1081 NCCL WARN NET/IB : req 0/1 tag 3 peer 172.17.1.13<48895> collective mismatch error, local size 78848 remote size 65536", "collective_mismatch"),
        ("srun: error: plugin_load_from_file: dlopen(/usr/lib64/slurm/switch_x.so): libjson-c.so.3: cannot open shared object file\nsrun: fatal: Can't find plugin for switch/x", "slurm_launch_failed"),
        ("MPICH ERROR [Rank 0] [job id 410301.1] [Thu Feb 13 12:42:18 2025] [nid005414] - Abort(-1) (rank 0 in comm 0): MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked\n\naborting job:\nMPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested", "program_error"),
        ("Fri Sep 25 16:52:35 2020[3]<stderr>:2020-09-25 16:52:35.948682: F tensorflow/stream_executor/lib/statusor.cc:34] Attempting to fetch value instead of handling error Internal: no supported devices found for platform CUDA", "program_error"),
    ],
)  # fmt: skip
def test_the_first_line_says_it(text, kind):
    found = first(text)
    assert found is not None
    assert (found.kind, found.line) == (kind, 1)


def test_slurms_lines_of_other_jobs_are_theirs():
    """Those right behind one that name no job belong to it; a task's array number may not be known."""
    own = slurm.OtherJobs([71])
    lines = {
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step tasks": True,
        "srun: error: n7: task 0: Out Of Memory": True,
        "step 5 loss 2.1": False,
        "srun: error: Unable to create step for job 71: More processors requested than permitted": False,
        "srun: error: Unable to create step for job 72: More processors requested than permitted": True,
        "step 6 loss 2.0": False,
        "srun: error: n1: task 0: Out Of Memory": False,
        "slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-05-01T10:00:00 ***": False,
        "slurmstepd: error: *** STEP 208_1.0 ON n1 CANCELLED AT 2026-05-01T10:00:00 ***": False,
        "slurmstepd: error: *** JOB 4711 ON n7 CANCELLED AT 2026-05-01T10:00:00 DUE TO TIME LIMIT ***": True,
    }
    assert {text: own.wrote(text) for text in lines} == lines
    task = slurm.OtherJobs([209, 208])
    assert not task.wrote("slurmstepd: error: *** STEP 208_1.0 ON n1 CANCELLED AT x ***")
    assert task.wrote("slurmstepd: error: *** STEP 300_1.0 ON n1 CANCELLED AT x ***")
    assert not slurm.OtherJobs([]).wrote("slurmstepd: error: *** JOB 4711 ON n7 CANCELLED AT x ***")


@every(
    ("line", "kind"),
    [
        ("x1.hsn.cm: rank 31 died from signal 11 and dumped core", "segfault"),
        ("x1.hsn.cm: rank 3 died from signal 6", "process_aborted"),
        ("Attempting to use an MPI routine before initializing MPICH", "program_error"),
        ("*** The MPI_Comm_rank() function was called after MPI_FINALIZE was invoked.", "program_error"),
        ("EJ0003: [PID: 7] 2025-06-17-06:11:32 Failed to bind the IP port. Reason: The IP address and port have been bound already.", "address_in_use"),
    ],
)  # fmt: skip
def test_launchers_and_libraries_name_the_end_and_make_only_passes_it_on(line, kind):
    found = first(f"{line}\nmake: *** [Makefile:54: test] Error 139")
    assert found is not None
    assert (found.kind, found.line) == (kind, 1)


def test_a_launchers_rank_and_host_are_kept():
    found = first("x1.hsn.cm: rank 31 exited with code 3")
    assert found is not None
    assert (found.kind, found.rank, found.host, found.detail.get("exit_code")) == ("task_exit", 31, "x1.hsn.cm", 3)  # fmt: skip


def test_a_loaders_note_in_a_steps_errors_is_no_error():
    block = "Command output:\n  MPI version must be used with 2 or more processors!\n\nCommand error:\n  ps: /lib/libuuid.so.1: no version information available (required by /lib64/libblkid.so.1)\n  MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"
    assert "libuuid" not in message(block)


def test_what_the_launchers_runtime_lives_on_with_yields_to_the_programs_error():
    warned = "[c001:4411] PMIX ERROR: UNREACHABLE in file pmix_server.c at line 2198"
    assert message(f"{warned}\nstep 5\nValueError: negative variance").startswith("ValueError")
    alone = first(warned)
    assert alone is not None
    assert alone.kind == "slurm_launch_failed"


def test_a_network_library_without_a_provider_blames_no_adapter():
    head = "Fatal error in PMPI_Init: Other MPI error, error stack:"
    line = "open_fabric(2653).....: OFI fi_getinfo() failed (ofi_init.c:2653:open_fabric:No data available)"
    found = [f for f in reader.read([head, line]) if f.line == 2]
    assert [f.kind for f in found] == ["program_error"]
    assert "provider" in found[0].meaning


def test_a_communicator_that_was_made_in_the_end_makes_up_for_one_that_was_not():
    process = "gpu-0109:2528901"
    failed = f"{process}:2528901 [0] init.cc:871 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3d000"
    made = "[0] NCCL INFO comm 0x175 rank 0 nranks 8 cudaDev 0 busId 3d000 commId 0x94 - Init COMPLETE"
    assert first(failed) is not None
    assert first(f"{failed}\n{process}:2528991 {made}\niter 1") is None
    assert first(f"{failed}\ngpu-0110:77:78 {made}\niter 1") is not None


@every(
    ("last", "first_line"),
    [
        (["/data/bold.dtseries.nii is not a 4D image", "Exiting."], 0),
        (["--mask: unknown file format", "exiting..."], 0),
        (["No new files were found in /data/in", "exiting..."], None),
        (["Early stopping: the loss did not improve", "Exiting."], None),
        (["the old checkpoint is not in the list", "Saved the model", "Exiting."], None),
    ],
)
def test_a_program_that_only_says_that_it_leaves_names_its_reason_above(
    last: list[str], first_line: int | None
) -> None:
    """A bare `Exiting.` is how programs end, well or badly: the line right above it decides."""
    found = [f for f in reader.read(["Loading the mask", "Processing bold", *last]) if f.first_cause]
    assert [f.line - 3 for f in found] == ([] if first_line is None else [first_line])


CRASH = "forrtl: severe (174): SIGSEGV, segmentation fault occurred"


@pytest.mark.parametrize(
    ("above", "below", "wanted"),
    [
        ([CRASH], "grep: *scf1*: No such file or directory", CRASH),
        ([CRASH], "ValueError: the result is empty", None),
        (['stack.size() INTERNAL ASSERT FAILED at "../torch/a.cpp":964, please report a bug'], "n1:1:2 [0] NCCL WARN NET/IB : req 0/1 tag 3 collective mismatch error, local size 8 remote size 4", None),
    ],
    ids=["a crash, and the script's next command", "another program's own error", "an assertion that the program printed itself"],
)  # fmt: skip
def test_which_of_two_errors_is_the_cause(above: list[str], below: str, wanted: str | None) -> None:
    """A later command that lacks a file follows from the crash; what a program printed and survived is weak."""
    lines = ["step 1 loss 0.5", *above, below]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert lines[found.line - 1] == (wanted or below)


@every(
    ("complaint", "death", "n"),
    [
        ("cat: tuning.txt: No such file or directory", "run.sh: line 9: 812 Segmentation fault ./relax", 1),
        ("head: cannot open 'tuning.txt' for reading: No such file or directory", "run.sh: line 9: 812 Killed ./relax", 1),
        ("wc: tuning.txt: Datei oder Verzeichnis nicht gefunden", "srun: error: n1: task 0: Aborted", 1),
        ("cat: tuning.txt: No such file or directory", "run.sh: line 9: 812 Segmentation fault ./relax in/tuning.txt", 0),
        ("cp: cannot stat 'tuning.txt': No such file or directory", "run.sh: line 9: 812 Segmentation fault ./relax", 0),
        ("cat: tuning.txt: No such file or directory", "srun: error: n1: tasks 0-3: Killed", 0),
    ],
)  # fmt: skip
def test_a_file_that_a_script_only_reads_kills_no_later_program(complaint: str, death: str, n: int) -> None:
    """Unless the program takes that file, or srun ends the other tasks."""
    lines = [complaint, death]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert found.line == n + 1


SUCCEEDED = (
    "torch.distributed.elastic.agent.server.api: [INFO] Local worker group finished (WorkerState.SUCCEEDED). Waiting 300 seconds for other agents to finish",
    "[2024-04-22 23:11:09,475] [INFO] [launch.py:350:main] Process 1383784 exits successfully.",
)


@every("well", SUCCEEDED)
def test_a_launcher_whose_workers_succeeded_had_no_failure(well: str) -> None:
    """Unless a worker's bad end follows."""
    error = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "KeyError: 'lr'"]
    assert not any(f.first_cause for f in reader.read([*error, "gpu time: 1725.0", well]))
    failed = "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 3 (pid: 1383787) of binary: python"
    (found,) = [f for f in reader.read([*error, well, failed]) if f.first_cause]
    assert found.message == "KeyError: 'lr'"


@every(
    ("last", "kind"),
    [
        ("httpcore.ConnectError: [Errno 111] Connection refused", "python_exception"),
        ("redis.exceptions.ConnectionError: Error 111 connecting to n1:6379. Connection refused.", "python_exception"),
        ("distributed.comm.core.CommError: Connection refused", "python_consequence"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "python_consequence"),
        ("RuntimeError: Connection closed by peer [127.0.0.1]:4242", "python_consequence"),
    ],
)  # fmt: skip
def test_a_clients_server_is_no_peer(last: str, kind: str) -> None:
    """The exception of a client library concerns its server; only ranks lose peers."""
    (found,) = reader.read(["Traceback (most recent call last):", '  File "a.py", line 3, in f', last])
    assert found.kind == kind


UCX = "[1588956223.719348] [n1:55453:0]       ib_iface.c:623  UCX  ERROR iface=0x2535490: failed to create UD QP TX wr:256 sge:2 inl:64: Invalid argument"
QUERY = "[1728047268.066920] [n1:1159291:0]       ib_verbs.h:84   UCX  ERROR ibv_exp_query_device(mlx5_0) returned 38: No space left on device"
BOX = ["-" * 74, "No components were able to be opened in the pml framework.", "-" * 74]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([UCX, *BOX], UCX),
        ([QUERY, *(f"Step {n} energy -12.{n}" for n in range(9))], None),
        ([QUERY, *(f"particles: {n}" for n in "abcdefgh")], None),
        ([QUERY], QUERY),
    ],
    ids=["MPI needed it", "the run went on", "it did something else", "nothing else"],
)
def test_an_adapter_that_ucx_could_not_set_up_counts_if_mpi_could_not_start(
    lines: list[str], wanted: str | None
) -> None:
    """UCX goes on with other transports; errno's words for the adapter are about no disk."""
    found = [f for f in reader.read(["Loading modules", *lines]) if f.first_cause]
    assert [(f.message.strip(), f.kind) for f in found] == (
        [] if wanted is None else [(wanted, "net_ib_error")]
    )


@every(
    ("line", "kind"),
    [
        ("MPI Error 15: MPI_ERR_TRUNCATE: message truncated", "program_error"),
        ("[E socket.cpp:753] [c10d] The client socket has failed to connect to any network address of (6841231, 47389).", "rendezvous_failed"),
    ],
)  # fmt: skip
def test_what_a_library_says_last_is_read(line: str, kind: str) -> None:
    """Forms of MPI's error classes and of torch's store that end a program."""
    (found,) = [f for f in reader.read(["starting", line]) if f.first_cause]
    assert found.kind == kind


@every(
    "line",
    ["socket.gaierror: [Errno -2] Name or service not known", "socket.herror: [Errno 1] Unknown host", "socket.timeout: timed out"],
)  # fmt: skip
def test_an_exception_whose_name_begins_with_a_small_letter_is_one(line):
    """Right below the frames; Python 3.9 and older print socket.timeout."""
    found = first(f"{TRACE}\n{line}")
    assert found is not None
    assert (found.kind, found.message) == ("python_exception", line)
    assert first(f"{TRACE}\nKeyError: 'lr'\n{line}").message == "KeyError: 'lr'"


def test_what_tensorflow_tries_again_with_less_is_no_failure() -> None:
    """Unless a library of CUDA's then finds no memory."""
    tried = "2023-01-04 12:55:45.147689: I tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:735] failed to allocate 28.06G (30127030272 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    loaded = "2023-01-04 12:55:50.809667: I tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:428] Loaded cuDNN version 8101"
    assert not any(f.first_cause for f in reader.read([tried, loaded]))
    handle = "2023-01-04 12:55:51.809667: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:389] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED"
    (found,) = [f for f in reader.read([tried, loaded, handle]) if f.first_cause]
    assert found.kind == "cuda_oom"
    (found,) = [f for f in reader.read([f"[rank0]: {tried}", f"[rank1]: {handle}"]) if f.first_cause]
    assert found.kind == "cuda_library_error", "another rank's memory is another GPU's"


def test_vllm_names_the_signal_that_ended_it() -> None:
    """Its clients' errors come behind it."""
    ended = "(EngineCore pid=30070) INFO 08-01 23:37:28 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM"
    dead = [
        "(APIServer pid=29938) ERROR 08-01 23:37:28 [async_llm.py:704] Traceback (most recent call last):",
        '(APIServer pid=29938) ERROR 08-01 23:37:28 [async_llm.py:704]   File "core_client.py", line 1061, in get',
        "(APIServer pid=29938) ERROR 08-01 23:37:28 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    ]
    (found,) = [f for f in reader.read([ended, *dead]) if f.first_cause]
    assert found.kind == "process_terminated"


def test_lightnings_exception_for_sigterm_is_no_error_of_the_program() -> None:
    """It raises one in the training loop once the signal came."""
    lines = [
        "[rank: 0] Received SIGTERM: 15",
        *TRACE.split("\n"),
        "lightning.pytorch.utilities.exceptions.SIGTERMException",
    ]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert found.kind in ("process_terminated", "interrupted")


def test_a_table_of_counted_messages_reports_none_of_them() -> None:
    """What pandas prints of old failures."""
    rows = [
        "message",
        "CUDA out of memory                                         11833",
        "RuntimeError: NCCL error: unhandled system error            2201",
        "RuntimeError: CUDA error: unspecified launch failure         811",
        "Segmentation fault (core dumped)                             790",
        "Name: count, dtype: int64",
        "done in 14.2 s",
    ]
    assert not any(f.first_cause for f in reader.read(rows))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["Error in rule align:", "    jobid: 2", "", "Will exit after finishing currently running jobs (scheduler).", "WorkflowError:", "At least one job did not complete successfully."], 0),
        (["Will exit after finishing currently running jobs.", "Error in rule align:", "    jobid: 2"], 0),
        (["----- CABS information -----", "[file orca_main/maininp2.cpp, line 2348]:    The basis set was not assigned - Aborting the run"], 1),
        (["2020-06-28 13:59:19,123 exception_handler: An unexpected ArgumentTypeError exception occurred: Cannot open 'x': [Errno 2] No such file or directory", "srun: error: n1: task 0: Exited with exit code 2"], 0),
    ],
    ids=["a rule failed", "Snakemake was stopped", "ORCA's place in its source", "a handler that prints and leaves"],
)  # fmt: skip
def test_which_line_of_a_programs_own_report_is_the_reason(lines: list[str], wanted: int) -> None:
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert found.line - 1 == wanted


def test_an_account_that_the_host_does_not_know_is_the_sites() -> None:
    (found,) = [
        f for f in reader.read(["srun: error: task 0 launch failed: User not found on host"]) if f.first_cause
    ]
    assert (found.kind, found.domains) == ("slurm_launch_failed", ("system_software",))


FRAMES = [
    "Timeout (0:05:00)!",
    *(f"{head} (most recent call first):\n{frame}\n" for head, frame in (
        ("Thread 0x00007f1234567890 [pt_data_pin]", '  File "a.py", line 10 in wait'),
        ("Thread 0x00007f1234567891", '  File "a.py", line 12 in wait'),
        ("Thread 0x00007f1234567892", '  File "a.py", line 14 in wait'),
        ("Thread 0x00007f1234567893", '  File "a.py", line 16 in wait'),
        ("Current thread 0x00007f1234567894", '  File "t.py", line 10 in step\n  File "t.py", line 20 in <module>'),
    )),
]  # fmt: skip
STACKS = "\n".join(FRAMES).splitlines()
"""What faulthandler prints, each few minutes or once before it ends the program."""
EXITED = "srun: error: n1: task 0: Exited with exit code 1"


def kind_of_cause(*lines: str) -> str | None:
    return next((f.kind for f in reader.read(lines) if f.first_cause), None)


def test_the_stacks_of_a_slow_program_are_no_error_where_it_goes_on() -> None:
    for stacks in (STACKS, STACKS[:3], STACKS + STACKS[:3]):
        assert kind_of_cause(*stacks, "saved model") is None
        assert kind_of_cause(*stacks, "| step 7 | loss 2.5 |") is None
        assert kind_of_cause(*stacks, "saved model", EXITED) == "task_exit"


def test_the_stacks_of_a_program_that_its_deadline_ended_are_its_error() -> None:
    """Nothing but them, and what a launcher and a batch script add, stands below."""
    for last in ([], [EXITED], ["Job finished at Mon"], [*STACKS, EXITED]):
        assert kind_of_cause(*STACKS, *last) == "program_error"


@every("text", ["x.sh: line 12: 123 Segmentation fault ./a", "[rank7]: task 7: Aborted", EXITED])
def test_exits_behind_the_settled_cause_are_passed_on(text: str) -> None:
    """The cause is named after so many findings; the largest jobs print more exits than that."""
    crash = "x.sh: line 12: 123 Segmentation fault ./a"
    held = 100
    lines = [crash] * (held + 1) + [text, crash]
    with mock.patch.object(reader, "MAX_HELD", held):
        found = list(reader.read(lines))
    assert [f.line for f in found if f.line <= held + 1] == list(range(1, held + 2))
    assert found[-1].line == len(lines), "the last one was lost"
    assert [f.line for f in found if f.first_cause] == [1]


@pytest.mark.parametrize(
    "reason",
    ["OFI fi_getinfo() failed (ofi_init.c:7:open_fabric:No data available)", "**ofid_getinfo ofi_init.h 7 hook No data available"],
)  # fmt: skip
def test_mpi_that_found_no_provider_did_not_start_for_that(reason: str) -> None:
    start = "Abort(7) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:"
    found = first(f"{start}\nMPIR_Init_thread(9)..: \nhook(7)......: {reason}")
    assert found is not None
    assert (found.line, found.kind) == (1, "program_error")
    assert "provider" in found.meaning
    assert found.domains == grammar.ALL_DOMAINS, "an adapter that is down has none, either"
    apart = first("\n".join([start, *["MPID_Init(7).....: no more"] * 20, f"hook(7)......: {reason}"]))
    assert apart is not None
    assert apart.kind == "rendezvous_failed", "not in the stack of the start"


def test_a_model_that_stops_by_itself_comes_before_the_ranks_that_it_tears_down() -> None:
    stops = " FINISH PE:    7 mo_solver::run: too many substeps, the wind is unstable"
    torn = "3: Accelerator Fatal Error: call to cuStreamSynchronize returned error 700: Illegal address during kernel execution"
    assert message(f"0: step 1\n7: {stops}\n7: MPI_ABORT was invoked on rank 7 in communicator MPI_COMM_WORLD\n{torn}").endswith("unstable")  # fmt: skip
    assert first("FINISH PE layout: 4 x 8\nFINISH PE: 3 all of it: well\nx = 3") is None
    for word in ("the run is finished", "Successful end", "All done, status 0"):
        assert first(f"FINISH PE:    7 mo_solver::run: {word}") is None


GONE = "0: preparing the cells\nsrun: error: n4: task 0: Exited with exit code 1"
LIMIT = "slurmstepd: error: *** STEP 31.0 ON n4 CANCELLED AT 2031-07-02T08:00:00 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    "behind",
    [
        "1: joining the others",
        "0: e = -7.1 eV\n1: e = -7.2 eV\n0: e = -7.3 eV",
        "1: the second part begins",
        "1: wrote x/a.npz\n3: wrote x/b.npz",
        "2: 0.4 s, dt 0.01\n1: 0.4 s, dt 0.01",
        "0: RMM:   7    -0.731E+02   -0.4E-02",
    ],
)  # fmt: skip
@pytest.mark.parametrize("unit", ["STEP 31.0", "STEP 31.1", "JOB 31"])
def test_ranks_that_print_until_the_time_limit_may_have_worked(behind: str, unit: str) -> None:
    """No line shows that they only waited for a task that had left."""
    above = f"{GONE}\n{behind}\n"
    limit = LIMIT.replace("STEP 31.0", unit)
    found = first(f"{above}{limit}\nsrun: error: n4: tasks 1-7: Terminated")
    assert found is not None
    assert (found.kind, found.line) == ("slurm_timeout", above.count("\n") + 1)


RAISED_BY_FIRST = f"+ python a.py\n{TRACE}\nValueError: no root"
WORKS = "\n".join(f"epoch {n} loss {1 / n:.2f}" for n in range(1, 6))


@pytest.mark.parametrize(
    "raised",
    [
        RAISED_BY_FIRST,
        "+ ./look\nCUDA error: unspecified launch failure",
    ],
)
@pytest.mark.parametrize(
    "last", ["FileNotFoundError: [Errno 2] No such file or directory: 'x.npz'", "KeyError: 'lr'"]
)
def test_a_traced_command_that_worked_on_failed_by_itself(raised: str, last: str) -> None:
    """The shell traces its next command right below the error, and that one works for a long time."""
    text = f"{raised}\n+ python b.py\n{WORKS}\n{TRACE}\n{last}"
    found = first(text)
    assert found is not None
    assert found.line == text.count("\n") + 1
