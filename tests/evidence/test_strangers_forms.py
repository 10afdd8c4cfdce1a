"""Forms that strangers' files showed: dates of other languages, times taken out, warnings before errors, tools' last words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from probing_cluster.evidence import dates, prefixes
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel

XID = "NVRM: Xid (PCI:0000:c2:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REFERENCE = datetime(2026, 12, 30, tzinfo=UTC)


def first(*lines: str) -> list[str]:
    return [f.kind for f in joblog.read(lines) if f.first_cause]


@pytest.mark.parametrize(
    ("date", "month"),
    [
        ("6月 28", 6), ("12月 3", 12), ("6월 28", 6), ("2月 3日", 2), ("juin 28", 6), ("juil. 3", 7), ("Mär 3", 3), ("июн 28", 6), ("янв 1", 1),
        ("lis 3", 11), ("čen 3", 6), ("Haz 9", 6), ("maj 3", 5), ("ene 3", 1), ("dic 3", 12), ("ago 3", 8), ("março 3", 3), ("Dez 24", 12), ("márc 3", 3),
        ("жов 5", 10), ("syys 5", 9),
    ],
)  # fmt: skip
def test_a_month_of_any_language_dates_a_kernel_line(date: str, month: int) -> None:
    """The host, the tag and the fault behind it are found, too; sudo's words stay sudo's."""
    line = prefixes.parse(f"{date} 02:52:53 node7 kernel: {XID}", REFERENCE)
    assert (line.host, line.tag, line.at and line.at.month) == ("node7", "kernel", month)
    found = kernel.KernelReader().read_line(f"{date} 02:52:53 node7 kernel: {XID}")
    assert found is not None
    assert (found[1].kind, found[1].code) == ("xid", "79")
    assert kernel.KernelReader().read_line(f"{date} 02:52:53 node7 sudo: {XID}") is None


@pytest.mark.parametrize("date", ["0月 3 01:02:03", "13月 3 01:02:03", "xyz 3 01:02:03"])
def test_what_is_no_month_dates_nothing(date: str) -> None:
    """Never a guess."""
    assert dates.parse(date, REFERENCE) is None


@pytest.mark.parametrize("taken_out", ["[...] ", "[ ... ] ", "[…] ", "[xxxx.xxxxxx] "])
def test_a_kernel_line_whose_time_was_taken_out(taken_out: str) -> None:
    """People who show a log to others do so."""
    found = kernel.KernelReader().read_line(taken_out + XID)
    assert found is not None
    assert found[1].code == "79"
    assert kernel.KernelReader().read_line(f"{taken_out}sudo: {XID}") is None


@pytest.mark.parametrize("tag", ["kernel[12]", "kernel[4711]", "kern[9]"])
def test_a_program_that_calls_itself_kernel_has_a_process(tag: str) -> None:
    """The kernel has none."""
    assert kernel.KernelReader().read_line(f"Jan 21 11:18:36 n1 {tag}: {XID}") is None
    assert kernel.KernelReader().read_line(f"Jan 21 11:18:36 n1 kernel[0]: {XID}") is not None


@pytest.mark.parametrize(
    "line",
    [
        "An error occurred (AuthorizationError) when calling the Publish operation: not authorized",
        "Permission denied (publickey,gssapi-keyex,gssapi-with-mic).",
        "bob@login: Permission denied (publickey,password).",
        "Host key verification failed.",
        "ssh: connect to host h port 22: Connection refused",
        "scp: /x: No such file or directory",
        "curl: (7) Failed to connect to h port 80",
        "rsync error: some files could not be transferred (code 23) at main.c(1189)",
        "tar: Exiting with failure status due to previous errors",
        "/var/spool/slurm_script: 8: .: Can't open /x/project_home",
        "/var/spool/slurm_script: 8: cannot open /x: No such file",
        "/var/spool/slurm_script: line 8: ./run.sh: Permission denied",
        "/var/spool/slurm_script: line 9: /opt/x/bin/y: No such file or directory",
        "/var/spool/slurm_script: line 9: ./a.out: cannot execute binary file: Exec format error",
        "/var/spool/slurm_script: 12: Syntax error: end of file unexpected",
        "error: externally-managed-environment",
        "[n7:4711] *** MPI_ERR_TRUNCATE: message truncated",
        "Execution halted",
    ],
)
def test_the_last_word_of_a_tool_is_the_cause(line: str) -> None:
    """Where hardly anything follows; a script that went on lived with it."""
    assert first("starting", line) == ["program_error"]
    if "MPI_ERR" not in line:
        assert first("starting", line, *(f"step {n} loss 1.{n}" for n in range(9))) == []


NOISE = (
    "n1:10:20 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.2.3.6<54862> with status=12 opcode=0 len=0 vendor err 129 (Send)",
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
    "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4711",
    "[rank3]:[E601 03:40:12.001 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=991, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
    "[rank5]: BrokenPipeError: [Errno 32] Broken pipe",
    "[rank6]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (n1, 29500).",
    "n1:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2<4711>",
    "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "ORTE has lost communication with a remote daemon.",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "[rank4]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 4.",
    "[rank1]:[W601 TCPStore.cpp:106] [c10d] recvValue failed on SocketImpl(fd=3): failed to recv, got 0 bytes",
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
    "n1:1:2 [0] ofi_process_cq:1 NCCL WARN NET/OFI Request completed with error: 113",
    "[n1:123:0:1] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
)
"""What a peer's death looks like to the others, each of whom may print first."""
CULPRITS = {
    "python_exception": "KeyError: 'lr'",
    "import_error": "ModuleNotFoundError: No module named 'x'",
    "cuda_oom": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "cuda_device_assert": "RuntimeError: CUDA error: device-side assert triggered",
}


@pytest.mark.parametrize("kind", CULPRITS)
@pytest.mark.parametrize("noise", NOISE)
def test_peers_that_speak_first_give_way_to_the_culprit(noise: str, kind: str) -> None:
    """With the traceback of the rank behind them, in one stream or mixed with the noise of others."""
    culprit = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', CULPRITS[kind]]
    lines = [f"[rank2]: {line}" for line in culprit]
    assert first("start", noise, *lines, "srun: error: n1: task 2: Exited with exit code 1") == [kind]
    assert first("start", noise, lines[0], noise, *lines[1:], noise) == [kind]


def test_a_warning_gives_way_to_the_error_it_announced() -> None:
    """TensorFlow warns of an allocation that failed, then raises; a warning without an error stays what is known."""
    warned = "2019-05-09 14:49:11.318542: W tensorflow/core/framework/op_kernel.cc:1273] OP_REQUIRES failed at p.cc:160 : Resource exhausted: OOM when allocating tensor with shape[2,64]"
    raised = "ResourceExhaustedError: OOM when allocating tensor with shape[2,64]"
    log = [warned, "Traceback (most recent call last):", '  File "a.py", line 1, in <module>', raised]
    assert [f.line for f in joblog.read(log) if f.first_cause] == [4]
    assert [f.line for f in joblog.read([warned]) if f.first_cause] == [1]
    assert [f.line for f in joblog.read([raised, warned]) if f.first_cause] == [1]


@pytest.mark.parametrize("call", ["ibv_query_ece", "ibv_query_gid_ex", "ibv_get_fw_ver"])
def test_a_question_an_adapter_has_no_answer_to_is_no_fault(call: str) -> None:
    """NCCL goes on without; a call that sets something up and fails is one."""
    line = f"n1:1:2 [0] misc/ibvwrap.cc:262 NCCL WARN Call to {call} failed with error Operation not supported errno 95"
    assert first(line) == []
    assert first(line.replace(call, "ibv_modify_qp")) == ["net_ib_error"]


def test_a_lost_node_is_the_one_that_srun_names() -> None:
    """slurmstepd tells of it from another node."""
    step = "slurmstepd: error: *** STEP 8.0 ON b201 CANCELLED AT 2026-03-02T19:41:07 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    found = list(joblog.read([step, "srun: error: Node failure on b203"]))
    assert [(f.kind, f.host) for f in found if f.first_cause] == [("slurm_node_fail", "b203")]


def test_line_ends_of_windows_change_nothing() -> None:
    """A carriage return at the end of a line overwrites nothing: steps flushed late stay what they are."""
    log = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "KeyError: 'lr'"]
    log += [f"loss 1.{n} at step {n}" for n in range(1, 9)]
    plain, windows = (first(*(line + end for line in log)) for end in ("", "\r"))
    assert plain == windows == ["python_exception"]
    assert first("\ufeffTraceback (most recent call last):", *log[1:3]) == ["python_exception"]


def test_ranks_that_print_into_one_line_leave_the_assertion() -> None:
    """File and assertion remain of it."""
    line = "../aten/src/ATen/native/cuda/Indexing.cu: block: [106,0:1308: f: block: [36,0], thread: [3,0,0], thread: [37,0,0,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    assert first(line, "[rank1]: RuntimeError: CUDA error: device-side assert triggered") == [
        "cuda_device_assert"
    ]
    assert [f.line for f in joblog.read([line]) if f.first_cause] == [1]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "cuda_unavailable"),
        ("Failed to initialize NVML: Unknown Error", "cuda_unavailable"),
        ("Failed to initialize NVML: GPU is lost", "cuda_device_lost"),
    ],
)
def test_nvidia_smi_without_its_library(line: str, kind: str) -> None:
    """As it prints it."""
    assert [f.kind for f in joblog.read([line])] == [kind]
