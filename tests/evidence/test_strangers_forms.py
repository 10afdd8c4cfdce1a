"""Forms that strangers' files showed: dates of other languages, times taken out, warnings before errors, tools' last words."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from probing_cluster.evidence import dates, prefixes
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel
from tests.every_case import every

XID = "NVRM: Xid (PCI:0000:c2:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REFERENCE = datetime(2026, 12, 30, tzinfo=UTC)


def first(*lines: str) -> list[str]:
    return [f.kind for f in joblog.read(lines) if f.first_cause]


@every(
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


@every("date", ["0月 3 01:02:03", "13月 3 01:02:03", "xyz 3 01:02:03"])
def test_what_is_no_month_dates_nothing(date: str) -> None:
    """Never a guess."""
    assert dates.parse(date, REFERENCE) is None


@every("host", ["<redacted>", "<host name>", "***"])
def test_a_hosts_name_that_was_taken_out_hides_no_fault(host: str) -> None:
    """Who shows a log to others writes a word for its hosts; a program's line stays a program's."""
    found = kernel.KernelReader().read_line(f"Feb 11 16:19:40 {host} kernel: [  298.426757] {XID}")
    assert found is not None
    assert found[1].code == "79"
    assert kernel.KernelReader().read_line(f"Feb 11 16:19:40 {host} logger: [  298.426757] {XID}") is None


@every("taken_out", ["[...] ", "[ ... ] ", "[…] ", "[xxxx.xxxxxx] ", "[  T292] ", "[   C17] "])
def test_a_kernel_line_whose_time_was_taken_out(taken_out: str) -> None:
    """People who show a log to others do so."""
    found = kernel.KernelReader().read_line(taken_out + XID)
    assert found is not None
    assert found[1].code == "79"
    assert kernel.KernelReader().read_line(f"{taken_out}sudo: {XID}") is None


@every("tag", ["kernel[12]", "kernel[4711]", "kern[9]"])
def test_a_program_that_calls_itself_kernel_has_a_process(tag: str) -> None:
    """The kernel has none."""
    assert kernel.KernelReader().read_line(f"Jan 21 11:18:36 n1 {tag}: {XID}") is None
    assert kernel.KernelReader().read_line(f"Jan 21 11:18:36 n1 kernel[0]: {XID}") is not None


@every(
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


@every("kind, noise", itertools.product(CULPRITS, NOISE))
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


@every("call", ["ibv_query_ece", "ibv_query_gid_ex", "ibv_get_fw_ver"])
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


@every(
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


@every(
    ("line", "code"),
    [
        ("ena 0000:00:06.0 ens6: TX q 3 is paused for too long (threshold 5000000). Time since last napi 10 usec. napi scheduled: 0", "tx_timeout"),
        ("ena 0000:00:06.0 ens6: napi handler hasn't been called for a long time but is scheduled", "tx_timeout"),
        ("ena 0000:00:06.0 ens6: TX hasn't completed, qid 1, index 55. 6000 usecs have passed", "tx_timeout"),
        ("idpf 0000:00:05.0: Detected Tx timeout: count 1, queue 3", "tx_timeout"),
        ("mana 7870:00:00.0 enP30832s1: HWC: Request timed out!", "tx_timeout"),
        ("idpf 0000:83:00.0: Transaction timed-out (op:526 cookie:7700 vc_op:526 salt:77 timeout:60000ms)", "tx_timeout"),
        ("ionic 0000:b5:00.0 eth0: Tx Timeout triggered - txq 3", "tx_timeout"),
        ("vmxnet3 0000:0b:00.0 eth0: tx hang", "tx_timeout"),
        ("macb 20112000.ethernet eth1: NETDEV WATCHDOG: CPU: 2: transmit queue 1 timed out 5120 ms", "netdev_watchdog"),
        ("bonding: bond1: now running without any active interface !", "bond_down"),
        ("bonding: bond1: link status definitely down for interface eth2, disabling it", "bond_slave_down"),
        ("team0: Port device eth2 link down", "bond_slave_down"),
    ],
)  # fmt: skip
def test_queues_that_stand_still_and_bonds_by_other_drivers_words(line: str, code: str) -> None:
    """The same event, whichever driver or version wrote it."""
    found = kernel.KernelReader().read_message(line)
    assert found is not None
    assert (found.kind, found.code) == ("eth_link", code)


@every("space", ["", " ", "  "])
def test_a_syslog_priority_may_stand_apart_from_its_version(space: str) -> None:
    """RFC 5424 forbids the blank; daemons write it all the same."""
    line = prefixes.parse(f"<4>{space}1 2026-02-03T04:05:06Z n7 kernel - - - [ 10.1] {XID}")
    assert (line.message, line.host, line.is_kernel) == (XID, "n7", True)


def test_a_link_that_the_kernel_trained_at_the_first_speed_is_degraded() -> None:
    """Since 6.5 it retrains a link that does not work, slowly."""
    again = kernel.KernelReader().read_message(
        "pcieport 0000:64:00.0: broken device, retraining non-functional downstream link at 2.5GT/s"
    )
    assert again is not None
    assert again.code == "link_degraded"


def test_the_error_that_a_distributed_checkpoint_sums_up_is_the_cause() -> None:
    """The sum names ranks; their own errors stand below it."""
    sum_up = [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/opt/train.py", line 3, in load',
        "[rank0]:     dcp.load(state)",
        "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])",
    ]
    inner = [
        "[rank0]: Traceback (most recent call last): (RANK 0)",
        '[rank0]:   File "/opt/plan.py", line 9, in plan',
        "[rank0]:     check(key)",
        "[rank0]: ValueError: no key layers.3.weight in the checkpoint",
    ]
    assert first(*sum_up, *inner) == ["python_exception"]
    assert first(*sum_up) == ["checkpoint_failed"]


HELPER = [
    "Traceback (most recent call last):",
    '  File "/home/u/bin/tracker", line 5, in <module>',
    "    import dataclasses",
    "ModuleNotFoundError: No module named 'dataclasses'",
]


@every("label", ["{}: ", " {}: ", "[1,{}]<stderr>:"])
def test_a_helper_that_failed_before_the_step_is_not_its_cause(label: str) -> None:
    """A launcher that labels its tasks' lines labels all of them: what has none is the batch script's."""
    error = ['Traceback (most recent call last):', '  File "/opt/t.py", line 1, in <module>', "KeyError: 'lr'"]  # fmt: skip
    task = [label.format(1) + text for text in ("loading the model", *error)]
    assert first(*HELPER, *task) == ["python_exception"]


def test_what_a_step_lacks_because_of_a_command_before_it_is_left_to_that_command() -> None:
    """A file that the helper should have made; and a step without labels says nothing of whose line it is."""
    missing = [f"0: {text}" for text in ("Traceback (most recent call last):", '  File "/opt/t.py", line 1, in <module>', "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.json'")]  # fmt: skip
    assert first(*HELPER, *missing) == ["import_error"]
    assert first(*HELPER, "Traceback (most recent call last):", '  File "/opt/t.py", line 1, in <module>', "KeyError: 'lr'", "step failed") == ["import_error"]  # fmt: skip


@every(
    ("line", "kind"),
    [
        ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore met an issue. See stack trace (above) for the root cause.", "python_consequence"),
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "python_consequence"),
        ("RuntimeError: One or more background workers are no longer alive. Exiting. Please check the print statements above for the actual error message", "python_consequence"),
        ("RuntimeError: Some background worker is 6 feet under. Yuck.", "python_consequence"),
        ("distributed.comm.core.CommClosedError: in <TCP (closed) Worker->Scheduler>: Stream is closed", "python_consequence"),
        ("OSError: Timed out during handshake while connecting to tcp://10.0.3.7:8786 after 30 s", "python_consequence"),
        ("ray.exceptions.NodeDiedError: the node it was running on is dead or unavailable.", "python_consequence"),
        ("F0203 10:00:00.000000    1234 rendezvous.cc:42] Termination timeout for `initialize clique for rank 3` of 40 seconds exceeded.", "rendezvous_timeout"),
        ("2026-02-03 10:00:00.000000: F external/xla/xla/service/rendezvous.cc:42] Termination timeout for `first call to collective operation 7` of 40 seconds exceeded. Exiting to ensure a consistent program state.", "rendezvous_timeout"),
    ],
)  # fmt: skip
def test_what_a_dead_engine_a_lost_node_or_a_missing_rank_looks_like_is_not_the_program(
    line: str, kind: str
) -> None:
    """vLLM, Ray and XLA report what happened elsewhere."""
    assert first(line) == [kind]


NCCL = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/opt/t.py", line 1, in <module>',
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error",
    "[rank1]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    "[rank1]: Last error:",
]


@every(
    ("last", "kind"),
    [
        ("Error while creating shared memory segment /dev/shm/nccl-Ab3 (size 9637888)", "shm_full"),
        ("Failed to open libnvidia-ml.so.1", "nccl_system_error"),
        ("socketStartConnect: Connect to 10.0.0.1<4711> failed : Connection refused", "nccl_system_error"),
    ],
)
def test_what_nccl_tells_below_its_last_error_is_the_cause(last: str, kind: str) -> None:
    """Whether or not a form of ours fits it; also where a terminal's width cut the result off."""
    for lines in (NCCL, [*NCCL[:2], NCCL[2][:-14], "d system error", *NCCL[3:]]):
        found = [f for f in joblog.read([*lines, f"[rank1]: {last}"]) if f.first_cause]
        assert [(f.kind, f.line) for f in found] == [(kind, len(lines) + 1)]


def test_a_launchers_exception_without_its_list_is_not_the_programs() -> None:
    """Two launchers wrote at once, or the log was cut: that the script FAILED is nobody's error."""
    exit_line = "E0126 00:09:21.061000 326422 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -7) local_rank: 0 (pid: 9) of binary: python"
    failed = [
        "Traceback (most recent call last):",
        '  File "/usr/bin/torchrun", line 7, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "pretrain.py FAILED",
    ]
    assert first(exit_line, *failed) == first(exit_line)
    assert first(*failed) != ["python_exception"]


def test_a_port_that_is_taken_where_the_last_line_is_cut() -> None:
    """The warning names the port."""
    taken = "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
    assert first(taken, "[E socket.cpp:462] [c10d] The server socket has failed to listen on any") == ["address_in_use"]  # fmt: skip
    assert first(taken) == []


def test_a_program_that_made_no_process_group_lost_no_peer() -> None:
    """A group that is gone is a consequence; one that never was is the program's own error."""
    head = ["Traceback (most recent call last):", '  File "/opt/t.py", line 1, in <module>']
    assert first(*head, "RuntimeError: Default process group has not been initialized, please make sure to call init_process_group.") == ["python_exception"]  # fmt: skip
    assert first(*head, "RuntimeError: The process group was aborted") == ["python_consequence"]


def test_a_nan_of_megatron_is_one_without_its_traceback_too() -> None:
    """As people copy it, with a blank in front."""
    assert first(" iteration 1/ 5000 | lm loss: 1.1E+01", " AssertionError: Rank 114: found NaN in local forward loss calculation. Device: 2,") == ["nan_loss"]  # fmt: skip


@every(
    "passed",
    [
        ["======== 41 passed, 2 xfailed, 3 warnings in 88.14s (0:01:28) ========"],
        ["-" * 70, "Ran 12 tests in 3.210s", "", "OK (skipped=2)"],
    ],
)
def test_an_exception_of_tests_that_all_passed_is_no_failure(passed: list[str]) -> None:
    """pytest shows what the code under test logs; one failure among them, and it may be the one."""
    error = ["Traceback (most recent call last):", '  File "/src/ckpt.py", line 84, in load', "RuntimeError: no central directory"]  # fmt: skip
    assert first("ERROR    ckpt:ckpt.py:88 could not read c.pt", *error, "PASSED", *passed) == []
    failed = [line.replace("41 passed", "1 failed, 40 passed").replace("OK (", "FAILED (") for line in passed]
    assert first(*error, *failed) == ["python_exception"]
    assert first("===== test session starts =====", *passed, *error) == ["python_exception"]


@every(
    "line",
    [
        'ERROR ANALYSIS: 41% of errors are names, 12% "failed to" vs "fail to"',
        "ERROR SUMMARY: see the table below",
        "n1:4:5 [0] ibvwrap.cc:201 NCCL WARN Call to ibv_reg_dmabuf_mr_iova2 failed with error Operation not supported",
        "template 12: 'ciod: LOGIN chdir(<*>) failed: Input/output error'  label=anomaly  n=512",
    ],
)
def test_headings_templates_and_questions_to_an_adapter_are_no_errors(line: str) -> None:
    """The last word of the log, too."""
    assert first("epoch 1 auc 0.971", line) == []


def test_what_a_model_answered_over_several_lines_is_no_error() -> None:
    """A traceback is the evaluation's own."""
    answer = "[eval] answer 118: The remote side did not acknowledge. A typical log goes on with"
    error = "RuntimeError: NCCL error: remote process exited or there was a network error"
    assert first(answer, error, "[eval] judge: 4/5") == []
    assert (
        first(answer, "Traceback (most recent call last):", '  File "/opt/e.py", line 3, in <module>', error)
        != []
    )


def test_what_a_tool_printed_below_a_wrapper_is_the_cause() -> None:
    """The wrapper only says that the tool failed."""
    head = [
        "Traceback (most recent call last):",
        '  File "/app/tool.py", line 142, in query',
        "    raise RuntimeError(",
    ]
    stderr = ["stderr:", "Fatal exception (source file write.c, line 1263):", "write failed", "system error: No space left on device"]  # fmt: skip
    assert first(*head, "RuntimeError: Jackhmmer failed", *stderr) == ["disk_full"]
    assert first(*head, "RuntimeError: Jackhmmer failed") == ["python_exception"]


def test_a_spawned_process_tells_its_own_error_below_its_parents() -> None:
    """The parent's exception has no words of its own, and a frame is no sentence."""
    parent = ["Traceback (most recent call last):", '  File "/lib/spawn.py", line 189, in join', "    raise ProcessRaisedException(msg)", "torch.multiprocessing.spawn.ProcessRaisedException: ", ""]  # fmt: skip
    child = ["-- Process 0 terminated with the following error:", "Traceback (most recent call last):", '  File "/lib/spawn.py", line 76, in _wrap', "    fn(i)"]  # fmt: skip
    in_use = "RuntimeError: The server socket has failed to listen on any local network address. code: -98, name: EADDRINUSE, message: address already in use"
    assert first(*parent, *child, in_use) == ["address_in_use"]
    assert first(*parent, *child, "KeyError: 'lr'") == ["python_exception"]


def test_an_exception_outside_of_a_julia_test_is_the_cause() -> None:
    """Not that the tests did not pass."""
    found = [
        f
        for f in joblog.read([
            "/home/u/model.jl: Error During Test at /home/u/model.jl:201",
            "  Got exception outside of a @test",
            "  GSL Error 11 (exceeded max number of iterations): gamma_inc at gamma_inc.c:720",
            "  Stacktrace:",
            "   [1] handler(::String) at /home/u/error_handling.jl:42",
            "ERROR: LoadError: Some tests did not pass: 0 passed, 0 failed, 1 errored, 0 broken.",
        ])
        if f.first_cause
    ]  # fmt: skip
    assert [(f.kind, f.line) for f in found] == [("program_error", 3)]


@every(
    ("lines", "kind", "line"),
    [
        (["ERROR: a exception was thrown during kernel execution.", "       Run Julia on debug level 2 for device stack traces.", "CUDA error: unspecified launch failure (code #719, ERROR_LAUNCH_FAILED)"], "program_error", 1),
        (["CUDA error !!!!! <out of memory> !!!!!", "at CUDA call error code: # 2402", "Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 1"], "cuda_oom", 1),
        (["terminate called after throwing an instance of 'CUDA::error'", "  what():  /opt/mallocMC/reservePoolPolicies/SimpleCudaMalloc_impl.hpp(42): error: out of memory", "[n6:58339] *** Process received signal ***", "[n6:58339] Signal: Aborted (6)"], "cuda_oom", 2),
        (["=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   EXIT CODE: 135", "APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)"], "bus_error", 3),
    ],
)  # fmt: skip
def test_the_line_that_says_most_is_the_cause(lines: list[str], kind: str, line: int) -> None:
    """Before what follows from it, or within a launcher's box."""
    assert [(f.kind, f.line) for f in joblog.read(lines) if f.first_cause] == [(kind, line)]


def test_the_end_of_a_signals_stack_is_no_error() -> None:
    """Open MPI ends its stack with these words; what was thrown stands below."""
    found = joblog.read(["[n8:65253] *** End of error message ***", "terminate called after throwing an instance of 'ToolError'"])  # fmt: skip
    assert [f.line for f in found if f.first_cause] == [2]


def test_what_interrupted_a_launcher_comes_before_its_ranks_interruption() -> None:
    """A rank's KeyboardInterrupt alone is all there is otherwise."""
    steps = [f"Epoch 0 [{n}/1000] loss 1.2" for n in range(5)]
    launcher = "W1022 21:50:54.847000 16074 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGINT death signal, shutting down workers"
    rank = ["[rank0]: Traceback (most recent call last):", '[rank0]:   File "/opt/t.py", line 1, in <module>', "[rank0]: KeyboardInterrupt"]  # fmt: skip
    assert first(*steps, launcher, *rank) == ["process_terminated"]
    assert first(*steps, *rank) == ["interrupted"]


@every(
    ("before", "quoted", "behind"),
    [
        (['!!! warning "known issues"', "    If you get", "    ```console"], "    n1: Test NCCL failure common.cu:958 'invalid usage (run with NCCL_DEBUG=WARN for details)", ["    ```", "    load the module."]),
        (["Check the directory:", "```{ .bash .copy }", "ls /cvmfs", "```", "An error says that it is not there:", "```"], "id: 'cvmfs': no such user", ["```"]),
        (["+ tail -n 6 logs/slurm-918221.out", "epoch 3 step 1180 loss 1.774"], "slurmstepd: error: Detected 1 oom_kill event in StepId=918221.0. Some of the step tasks have been OOM Killed.", ["srun: Terminating StepId=918221.0", "+ srun python train.py", "epoch 4 step 1600 loss 1.702"]),
        (["--- sample 2 ---", "### Input:", "Traceback (most recent call last):", '  File "main.py", line 12, in <module>'], "KeyError: 'optimizer'", ["### Response:", "The checkpoint has no state.", "Done."]),
        (["*  Known problems of this week                        *"], '*   - "OSError: [Errno 5] Input/output error" on /scratch2 was mended on Monday*', ["Job 600412 on gpu-a01", "Job 600412 finished with exit code 0"]),
        ([f"commit {'5a' * 20} (HEAD -> main)", "Author: A. N. Other <a@example.org>", "Date:   Mon Mar 2 2026", ""], "    OSError: [Errno 28] No space left on device", ["", "    is no longer raised.", "done"]),
        (["[10:11] ana: did it end?"], "[10:12] bo: after that slurmstepd: error: Detected 1 oom_kill event in StepId=7.0", ["[10:13] ana: I see"]),
        (["Total wall time: 0:01:06"], "[1725067626.058353] [n1:89924:0]        mm_posix.c:291  UCX  ERROR shm_unlink(/ucx_shm_posix_44c883a2) failed: No such file or directory", []),
    ],
)  # fmt: skip
def test_pages_old_logs_samples_and_notices_are_shown_only(
    before: list[str], quoted: str, behind: list[str]
) -> None:
    """Where they stand; the same words of the program's own are the cause."""
    assert first(*before, quoted, *behind) == []


def test_below_a_commits_message_the_program_speaks_again() -> None:
    """Jobs print the commit that they run."""
    commit = [f"commit {'5a' * 20}", "Author: A. N. Other <a@example.org>", "", "    Mend the loader", ""]
    assert first(*commit, "start", "OSError: [Errno 28] No space left on device") == ["disk_full"]


def test_behind_what_is_shown_the_program_speaks_again() -> None:
    """A command traced after it, an answer, a blank line, the fence's end; and a job's own log may be printed by it."""
    error = [
        "Traceback (most recent call last):",
        '  File "/opt/t.py", line 1, in <module>',
        "KeyError: 'lr'",
    ]
    assert first("+ cat old/slurm-918221.out", "epoch 3", "+ srun python train.py", *error) == [
        "python_exception"
    ]
    assert first("+ cat train.log", *error) == ["python_exception"]
    assert first("+ tail -f slurm-918221.out", *error) == ["python_exception"]
    assert first("### Input:", "What is a GPU?", "", *error) == ["python_exception"]
    assert first("### Input:", "What is a GPU?", "### Response:", "A processor.", *error) == [
        "python_exception"
    ]
    assert first("    ```console", "    oom", "    ```", *error) == ["python_exception"]
    assert first('error: "No space left on device" while writing the file') == ["disk_full"]


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        ("cxi3[hsn3] CXI_EVENT_LINK_DOWN", "port_down", "high"),
        ("cxi3[hsn3]: C_EC_CRIT: C_PCT_EXT error: tct_tbl_dealloc (18)", "health_fatal", "high"),
        ("cxi3[hsn3]: (sbl): 0: serdes fw corruption alert", "health_fatal", "high"),
        ("cxi3[hsn3]: uC: ATT1_SENSOR_ALERT: sensor 'ASIC' (3) in fatal state: 121 not in [0..120]", "health_fatal", "high"),
        ("cxi3[hsn3]: uC: ATT1_SENSOR_ALERT: sensor 'ASIC' (3) in critical state: 101 not in [0..100]", "high_temp", "low"),
        ("cxi3[hsn3]: C_EC_UNCOR_NS: C1_HNI error: llr_eopb (32) (was first error at 16:3)", "cable_error", "low"),
        ("cxi3[hsn3]: C_EC_CRIT: C_PI_IPD_EXT error: pri_rbyp_abort (44)", None, None),
        ("cxi3[hsn3]: C_EC_BADCON_S: C_RMU error: ptl_invld_vni (49)", None, None),
        ("cxi3[hsn3]: C_EC_TRNSNT_NS: C1_HNI_PML error: pcs_link_down (48)", None, None),
        ("cxi3[hsn3] CXI_EVENT_LINK_UP", None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("driver", ["cxi_core", "cxi_ss1"])
def test_slingshots_driver_tells_of_its_link_and_its_health(
    driver: str, text: str, code: str | None, severity: str | None
) -> None:
    """What its documentation calls critical; a bypass that PCIe aborted, and packets for nobody, are no fault."""
    found = kernel.KernelReader().read_line(f"[Wed Nov  8 13:26:51 2023] {driver} 0000:c3:00.0: {text}")
    assert (found and (found[1].code, str(found[1].severity), found[1].device)) == (
        (code, severity, "cxi3") if code else None
    )
    assert kernel.KernelReader().read_line(f"x1 logger: {driver} 0000:c3:00.0: {text}") is None


def test_a_facility_and_a_severity_in_front_of_the_host() -> None:
    """As some templates of rsyslog write them, without a date."""
    found = kernel.KernelReader().read_line(f"kern.err gpu-9b kernel: {XID}")
    assert found is not None
    assert (found[0].host, found[1].code) == ("gpu-9b", "79")
    assert kernel.KernelReader().read_line(f"user.err gpu-9b logger: {XID}") is None


def test_a_list_in_source_code_and_a_tables_rows_are_no_errors() -> None:
    """A constant's texts, and the codes that a manual lists."""
    assert first("LIMIT_WARNINGS = [': Exceeded job memory limit at some point.',", "                  ': Exceeded step memory limit at some point.']") == []  # fmt: skip
    assert first("| Exit Code | Condition |", "|---|---|", "| WARN (1) | Command execution failed |", "| CRITICAL (2) | Critical errors detected |") == []  # fmt: skip


ERROR = ["Traceback (most recent call last):", '  File "/opt/t.py", line 1, in <module>', "KeyError: 'lr'"]


def test_a_log_that_was_copied_out_of_a_page_is_read() -> None:
    """With the fence or the marks that stood around it; what follows a block that is closed speaks for itself."""
    assert first("```", *ERROR, "```") == ["python_exception"]
    assert first("```text", *ERROR) == ["python_exception"]
    assert first(*(f"> {line}" for line in ERROR)) == ["python_exception"]
    assert first("```", *ERROR, "```", "", "Any idea?") == ["python_exception"]
    assert first("```", "Killed", "```", *ERROR) == ["python_exception"]
    assert first("Steps:", "```", *ERROR, "```") == []


def test_progress_of_rays_workers_is_not_the_drivers() -> None:
    """The driver's error ended it; its workers print for a while."""
    worker = [f"(train pid=77) Batch {n} of 900 loss 1.2" for n in range(600)]
    assert first(*worker[:5], *ERROR, *worker[5:]) == ["python_exception"]
    assert first("RuntimeError: Job 7 failed: Task failed because the node it was running on is dead or unavailable.") == ["peer_lost"]  # fmt: skip


def test_a_module_that_did_not_load_gives_way_to_an_error_of_the_programs_own() -> None:
    """A script goes on without it; what is missing because of it is its doing."""
    lmod = ["Lmod has detected the following error: These module(s) or extension(s) exist", "but cannot be loaded as requested: \"cuda\"", "srun: error: n2: task 1: Exited with exit code 1"]  # fmt: skip
    assert first(*lmod, *ERROR) == ["python_exception"]
    assert first(*lmod, *ERROR[:2], "ModuleNotFoundError: No module named 'torch'") == first(*lmod)


def test_advice_to_the_reader_is_no_recovery() -> None:
    """The compiler says how one could go on; the program did not."""
    advice = "You can suppress this exception and fall back to eager by setting:"
    steps = [f"Epoch {n}/9 loss 1.2" for n in range(2)]
    assert first(*ERROR, "", advice, *steps) == ["python_exception"]
    assert first(*ERROR, "falling back to eager", *steps) == []


@every(
    "before",
    [
        ["usage: conda [-h] COMMAND ...", "conda: error: argument COMMAND: invalid choice: 'deactivate' (choose from 'clean')"],
        ["/apps/Anaconda3/bin/conda: line 3: import: command not found", "/apps/Anaconda3/bin/conda: line 6: syntax error near unexpected token `sys.argv'"],
    ],
)  # fmt: skip
def test_an_environment_that_was_not_switched_on_gives_way_to_the_programs_error(before: list[str]) -> None:
    """A script goes on in the one it has; a package that lacks a part was not left out by it."""
    head = ERROR[:2]
    assert first(*before, *ERROR) == ["python_exception"]
    found = [
        f
        for f in joblog.read([*before, *head, "ModuleNotFoundError: No module named 'numpy._core'"])
        if f.first_cause
    ]
    assert [(f.kind, f.line) for f in found] == [("import_error", len(before) + 3)]


def test_a_traceback_below_a_servers_warning_is_handled() -> None:
    """Set in below the logger's line, as notebook servers write a refused request; Slurm's limit is the end."""
    refused = [
        "[W 2026-04-19 16:16:09.897 ServerApp] wrote error: 'Forbidden'",
        "    Traceback (most recent call last):",
        '      File "/lib/tornado/web.py", line 1788, in _execute',
        "    tornado.web.HTTPError: HTTP 403: Forbidden",
        "[W 2026-04-19 16:16:09.901 ServerApp] 403 GET /api/kernelspecs 4.64ms",
    ]
    limit = "slurmstepd: error: *** JOB 7 ON n2 CANCELLED AT 2026-04-20T16:07:10 DUE TO TIME LIMIT ***"
    assert first(*refused, limit) == ["slurm_timeout"]
    assert first(*(line.removeprefix("    ") for line in refused[1:4])) == ["python_exception"]


def test_loggings_own_report_behind_a_bar_and_a_closed_queue_are_no_causes() -> None:
    """Python's logging writes where the bar stands; a writer's thread loses its queue when the process dies."""
    report = ["100%|███| 5/5 [00:00<00:00, 5.12it/s]--- Logging error ---", *ERROR[:2], "TypeError: not all arguments converted during string formatting"]  # fmt: skip
    assert first(*report) == []
    assert first(*ERROR[:2], "OSError: handle is closed", *ERROR) == ["python_exception"]
    assert first(*ERROR[:2], "OSError: handle is closed") == ["python_consequence"]


def test_what_a_worker_overwrote_is_the_workers_too() -> None:
    """A bar of Ray's worker has the worker's name in front of its first part alone."""
    bar = "(train pid=77) " + "\r".join(f"Batch {n} of 900 loss 1.2" for n in range(600))
    assert first(*ERROR, bar) == ["python_exception"]


@every("mark", ["- ", "* ", ""])
def test_a_lists_mark_in_front_of_a_kernel_line(mark: str) -> None:
    """And the oldest driver's words of a lost GPU."""
    line = f"{mark}Sep 18 20:58:08 laptop kernel: [ 1936.510073] NVRM: GPU at 0000:01:00.0 has fallen off the bus."
    found = kernel.KernelReader().read_line(line)
    assert found is not None
    assert (found[0].host, found[1].kind, found[1].pci_bus_id) == ("laptop", "gpu_lost", "0000:01:00.0")


def test_a_long_list_of_one_complaint_ends_nothing() -> None:
    """A program that goes through a list and misses most of it; the last of a few is its end."""
    missing = [f"Could not find /data/video/{n}.png" for n in range(300)]
    assert first(*missing, "we good") == []
    assert first(*missing[:2]) == ["program_error"]


def line_of(*lines: str) -> list[tuple[str, int]]:
    return [(f.kind, f.line) for f in joblog.read(lines) if f.first_cause]


STEPD = "slurmstepd: error: pyxis: "
SPANK = "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"


@pytest.mark.parametrize("label", ["", "2: "])
@pytest.mark.parametrize(
    ("printed", "kind", "line"),
    [
        (["    [ERROR] Could not write the library cache", "    [ERROR] /etc/enroot/hooks.d/44-site.sh exited with return code 1"], "slurm_launch_failed", 4),
        (["    id: cannot find name for user ID 7001", "    id: cannot find name for user ID 7001", "    mkdir: cannot create directory '/work/7001': Permission denied"], "slurm_launch_failed", 6),
        (["    id: cannot find name for user ID 7001", "    id: cannot find name for user ID 7001"], "slurm_launch_failed", 4),
        (["    [INFO] Creating the image", "    Write failed because No space left on device", "    FATAL ERROR: Failed to write the image"], "disk_full", 5),
    ],
)  # fmt: skip
def test_what_a_containers_engine_logged_is_the_cause(
    label: str, printed: list[str], kind: str, line: int
) -> None:
    """Not the plugin's words around it, nor a name that `id` did not find where more follows."""
    log = ["container start failed with error code: 1", "container exited too soon", "printing engine log file:", *printed, "couldn't start container"]  # fmt: skip
    found = line_of(*(label + STEPD + text for text in log), label + SPANK)
    assert found == [(kind, line)]
    assert line_of(*(label + STEPD + text for text in log[:3]), label + SPANK)[0][0] == "slurm_launch_failed"


IMAGE = "FATAL:   While making image from oci registry: error fetching image:"


@every(
    ("words", "kind"),
    [
        ("create command failed: exit status 1: Write failed because No space left on device", "disk_full"),
        ("open /home/u/.apptainer/cache/blob: disk quota exceeded", "disk_full"),
        ("create command failed: exit status 1: FATAL ERROR: Out of memory (queue_init)", "host_memory_error"),
        ("fork/exec /usr/bin/unsquashfs: cannot allocate memory", "host_memory_error"),
        ("create command failed: signal: killed:", "oom_kill_suspected"),
        ("tls: failed to verify certificate: x509: certificate has expired or is not yet valid", "slurm_launch_failed"),
        ("toomanyrequests: too many pulls from this address", "slurm_launch_failed"),
    ],
)  # fmt: skip
def test_an_image_that_was_not_made_is_judged_by_its_last_words(words: str, kind: str) -> None:
    """In one line, or under headings under headings where a terminal or a report broke it."""
    assert line_of("INFO:    Creating SIF file...", f"{IMAGE} {words}") == [(kind, 2)]
    broken = ["while building SIF from layers: conveyor failed to get:", 'Get "https://auth.example.org/token?scope=pull":']  # fmt: skip
    assert line_of(IMAGE, *broken, words) == [(kind, 4)]
    assert line_of(IMAGE, *broken) == [("slurm_launch_failed", 1)]


def test_a_registry_that_was_asked_too_often_is_the_jobs_own_doing() -> None:
    """An account or a kept image helps."""
    for words in ("toomanyrequests: too many pulls", "x509: certificate has expired"):
        found = [f for f in joblog.read([f"{IMAGE} {words}"]) if f.first_cause]
        assert (found[0].domains == ("user_program",)) is words.startswith("toomany")


def test_a_workflow_engines_headings_give_way_to_what_the_pull_said() -> None:
    """One after the other; alone each is all there is."""
    heads = ["WorkflowError:", "Failed to pull singularity image from docker://site/tool:3:"]
    fatal = f"{IMAGE} Error reading manifest 3: toomanyrequests: too many pulls"
    assert line_of("Building DAG of jobs...", *heads, fatal) == [("slurm_launch_failed", 4)]
    assert line_of(*heads) == [("program_error", 2)]
    assert line_of(heads[0], "Config file must be given as JSON or YAML.") == [("program_error", 2)]


IGNORED = [
    "Exception ignored in: <function Loader.__del__ at 0x7f11>",
    "Traceback (most recent call last):",
    '  File "/lib/loader.py", line 41, in __del__',
    "    self.shutdown()",
]


@every(
    "killed",
    [
        "RuntimeError: DataLoader worker (pid 771) is killed by signal: Aborted. ",
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: CUDA error: invalid device ordinal",
    ],
)
def test_what_was_raised_while_an_object_was_deleted_is_not_the_cause(killed: str) -> None:
    """In front of the program's own exception or behind it; it is all that is known of a bad exit, and of none without one."""
    assert line_of(*IGNORED, killed, *ERROR) == [("python_exception", len(IGNORED) + 1 + len(ERROR))]
    assert line_of(*ERROR, *IGNORED, killed) == [("python_exception", len(ERROR))]
    assert line_of(*IGNORED, killed) == []
    exited = "srun: error: n4: task 0: Exited with exit code 1"
    assert [line for _, line in line_of(*IGNORED, killed, exited)] == [len(IGNORED) + 1]
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed."
    assert line_of(*IGNORED, oom, killed) == [("slurm_oom", len(IGNORED) + 1)]


JAX = "For simplicity, JAX has removed its internal frames from the traceback of the following exception. Set JAX_TRACEBACK_FILTERING=off to include these."


@every("name", ["KeyboardInterrupt:", "KeyboardInterrupt", "AssertionError:", "AssertionError"])
def test_what_jax_says_of_frames_is_no_exceptions_text(name: str) -> None:
    """It stands below an exception, with or without words; an interruption stays one."""
    kind = "interrupted" if name.startswith("Keyboard") else "python_exception"
    assert line_of(*ERROR[:2], name, "-" * 20, JAX) == [(kind, 3)]
    assert line_of(*ERROR[:2], "AssertionError: batch of 7", "-" * 20, JAX) == [("python_exception", 3)]


def test_the_signals_name_in_torchelastics_box_is_the_first_line() -> None:
    """Not its number above it; what was told before the box stays first."""
    box = ["Root Cause (first observed failure):", "[0]:", "  time      : 2026-04-05_10:11:12", "  host      : n4", "  rank      : 5 (local_rank: 1)", "  exitcode  : -9 (pid: 4096)", "  error_file: <N/A>", "  traceback : Signal 9 (SIGKILL) received by PID 4096"]  # fmt: skip
    found = [f for f in joblog.read(box) if f.first_cause]
    assert [(f.kind, f.line, f.rank, f.host) for f in found] == [("oom_kill_suspected", 8, 5, "n4")]
    launcher = "E0405 10:11:12.001 77 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -9) local_rank: 1 (pid: 4096) of binary: python"
    assert line_of(launcher, *box) == [("oom_kill_suspected", 1)]
    assert line_of(*ERROR, *box) == [("python_exception", 3)]


@every(
    ("line", "kind"),
    [
        ("HW Exception by GPU node-3 (Agent handle: 0x11d0) reason :GPU Hang", "gpu_hang"),
        (" 12%|##   | 12/99 [01:02<07:30,  5.2s/it]HW Exception by GPU node-3 (Agent handle: 0x11d0) reason :GPU Hang", "gpu_hang"),
        ("HW Exception by GPU node-3 (Agent handle: 0x11d0) reason :ECC", "cuda_ecc"),
        ("Memory access fault by GPU node-3 (Agent handle: 0x11d0) on address 0x7f10. Reason: ECC failure (if supported by HW).", "cuda_ecc"),
        ("Memory access fault by GPU node-3 (Agent handle: 0x11d0) on address 0x7f10. Reason: Page not present or supervisor privilege.", "cuda_illegal_access"),
        ("Memory critical error by agent node-0 (Agent handle: 0x11d0) on address 0x7f10. Reason: Uncorrectable error.", "cuda_ecc"),
        ("Memory critical error by agent node-0 (Agent handle: 0x11d0) on address 0x7f10. Reason: Memory in use. ", "cuda_error"),
    ],
)  # fmt: skip
def test_rocms_runtime_says_whose_a_fault_is(line: str, kind: str) -> None:
    """A hang is the driver's or the hardware's side; memory in use says only that the driver did not take it back."""
    watchdog = "[rank2]:[E405 10:22:33.4 ProcessGroupNCCL.cpp:600] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=6, NumelOut=8, Timeout(ms)=600000) ran for 600123 milliseconds before timing out."
    assert line_of("start", line, "Aborted (core dumped)", watchdog) == [(kind, 2)]
    found = next(f for f in joblog.read([line]) if f.first_cause)
    assert ("user_program" in found.domains) is (kind in ("cuda_error", "cuda_illegal_access"))
    assert first(f'answer: they saw "{line}" in the log') == []


OUT_OF_IT = "2026-04-05 10:11:12.1: E tensorflow/stream_executor/cuda/cuda_driver.cc:936] failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"


@every(
    "line",
    [
        "2026-04-05 10:11:14.2: E tensorflow/stream_executor/cuda/cuda_blas.cc:462] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
        "tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(9, 7), b.shape=(7, 3), m=9, n=3, k=7",
    ],
)
def test_a_library_that_got_no_memory_of_the_gpu_is_out_of_memory(line: str) -> None:
    """Also where TensorFlow tried less in between; alone it says nothing of memory, and what lived on is no cause."""
    steps = [f"Epoch {n}/9 loss: 1.2" for n in range(1, 9)]
    assert line_of(OUT_OF_IT, *steps, line) == [("cuda_oom", 1)]
    assert line_of(*steps, line) == [("cuda_library_error", 9)]
    assert line_of(OUT_OF_IT, *steps, *ERROR) == [("python_exception", 12)]


def ucx(place: str, text: str) -> str:
    return f"[1700000001.1] [n2:77 :0]     {place}  UCX  ERROR {text}"


def test_what_ucx_could_not_reach_comes_before_what_mpi_makes_of_it() -> None:
    """An address that each machine has for itself is the job's setting; behind another one a peer may be gone."""
    mpi = ["[n2:00077] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: Destination is unreachable", "[n2:00077] pml_ucx.c:472  Error: Failed to resolve UCX endpoint for rank 0"]  # fmt: skip
    bridge = ucx("sock.c:325", "connect(fd=31, dest_addr=172.17.0.1:40111) failed: Connection refused")
    assert line_of(bridge, *mpi) == [("program_error", 1)]
    peer = bridge.replace("172.17.0.1", "10.1.2.3")
    assert line_of(peer, *mpi) == [("peer_lost", 1)]
    assert line_of(peer, *mpi, *ERROR) == [("python_exception", 6)]
    assert line_of(*mpi) == [("rendezvous_failed", 1)]


def test_an_input_output_error_of_a_network_adapter_is_no_file_servers() -> None:
    """Where a terminal's width cut UCX's name from it, too."""
    cut = [
        ucx("ib_md.c:282", "ibv_reg_mr(address=0x31000, length=4096,"),
        "                access=0x10000f) failed: Bad address",
        ucx("ucp_mm.c:76", "failed to register address 0x31000 (host)"),
        "                length 4096 on md[1]=mlx5_2: Input/output error",
        "                (md supports: host|cuda)",
        "pml_ucx.c:934  Error: ucx send failed: Input/output error",
    ]
    assert line_of(*cut) == [("program_error", 1)]
    assert first("length 4096 on md[3]=mlx5_0: Input/output error") == []
    assert first("read of block 7: Input/output error") == ["io_error"]


def test_ipythons_head_of_a_traceback_is_no_exceptions_line() -> None:
    """papermill prints a cell's traceback below an exception without words."""
    cell = [
        "papermill.exceptions.PapermillExecutionError: ",
        "-" * 75,
        'Exception encountered at "In [4]":',
        "-" * 75,
        "NotImplementedError                       Traceback (most recent call last)",
        "Cell In[4], line 5",
        "----> 5 from tool import Model",
        "",
        "File /lib/tool/__init__.py:105",
        "--> 105     import tool_core",
        "",
        "NotImplementedError: tool runs on Linux only",
    ]
    assert line_of(*ERROR[:2], *cell) == [("python_exception", 14)]


WATCHDOG = "[rank1]:[E405 10:22:33.4 ProcessGroupNCCL.cpp:600] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=900000) ran for 900123 milliseconds before timing out."


@every(
    "log",
    [
        [f"                ^^^^^^{WATCHDOG}", WATCHDOG, 'api.cpp":27, please report a bug to PyTorch. Can\'t find nvmlDeviceGetX: /lib64/libnvidia-ml.so.1: undefined symbol: nvmlDeviceGetX'],
        [WATCHDOG, *ERROR[:2], "ImportError: /opt/lib/ext.so: undefined symbol: _ZN3c105ErrorE"],
        [WATCHDOG, "start", *ERROR[:2], f"ImportError: /opt/lib/ext.so: undefined symbol: _ZN3c105ErrorE{WATCHDOG}"],
    ],
)  # fmt: skip
def test_a_symbol_that_a_library_lacks_is_found_among_its_peers_timeouts(log: list[str]) -> None:
    """Whoever's line it was glued to."""
    assert line_of(*log, "terminate called after throwing an instance of 'c10::DistBackendError'") == [
        ("import_error", len(log))
    ]


def test_two_ranks_in_one_line_are_read_one_after_the_other() -> None:
    """The exception's rank stays its own; a logger's line that speaks of an exception is one line."""
    found = list(
        joblog.read([*(f"[rank0]: {line}" for line in ERROR[:2]), f"[rank0]: KeyError: 'lr'{WATCHDOG}"])
    )
    assert [(f.kind, f.rank) for f in found] == [("python_exception", 0), ("watchdog_timeout", 1)]
    assert first(WATCHDOG) == ["watchdog_timeout"]


RULE = f" {'-' * 60}"
WAITS = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds."
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
SUM = "flux-job: task(s) exited with exit code"
PLEXEC = "[ERR.] PLE 0611 plexec One of MPI processes was aborted.(rank=4)(nid=0x1)(CODE=1938,79"
BUILDER = "[E] Error[4]: [net.cpp::check::51] Error Code 4: Internal Error (Relu_3 needs a shape)"


@every(
    ("lines", "line"),
    [
        (["  Error in routine c_bands (1):", "  too many bands did not converge"], 2),
        (["  Error in routine read_upf (1)", "  H.upf was written by another program", "  stopping ..."], 2),
        (["FATAL CALLED FROM FILE:  <stdin>  LINE:     44", " WARNING: the soil column has a hole"], 2),
        (["Error using mldivide (line 12)", "Matrix sizes 3 and 4 differ."], 2),
        (["Error using ==> load at 12", "the file x.mat was saved by a newer release"], 2),
        (["Error using solve: the matrix has no rank"], 1),
        (["Error using  * ", "Incorrect dimensions for matrix multiplication.", "", "Error in sim (line 12)", "y = A*x;"], 2),
        (["gzip: stdin: not in gzip format", "tar: Child returned status 1", "tar: Error is not recoverable: exiting now"], 1),
        (["xz: (stdin): File format not recognized", "tar: Child returned status 1", "tar: Error is not recoverable: exiting now"], 1),
        (["tar (child): a.tgz: Cannot open: No such file or directory", "tar (child): Error is not recoverable: exiting now", "tar: Child returned status 2", "tar: Error is not recoverable: exiting now"], 1),
        (["tar: This does not look like a tar archive", "tar: Exiting with failure status due to previous errors"], 1),
        (["unpacking", "tar: Error is not recoverable: exiting now"], 2),
        (["--> FOAM FATAL IO ERROR: ", "while parsing the dictionary of line 3", "nCells was given twice"], 3),
        (["******** myDFT-Error ********", "Error message:the basis could not be kept"], 2),
        (["12:01:02:WU01:FS00:0xa8:ERROR:Fatal error:", "12:01:02:WU01:FS00:0xa8:ERROR:The cell is smaller than two cut-offs"], 2),
        (["io layer met -17 on part.3", "------------- Processor 0 Exiting: Called CmiAbort ------------", "Reason: [io] no stripe"], 3),
        (["io layer error -17 on part.3", "------------- Processor 0 Exiting: Called CmiAbort ------------", "Reason: [io] no stripe"], 1),
        ([RULE, " scf: a row is zero        7", RULE, RULE, "  current input line : ", "    12: task dft"], 2),
        (["Assert failed: 12 ranks do not divide the grid", "done"], 1),
        (["/src/dev/control.cpp::71(open): The condition [ n > 0 ] failed. There is no card of this kind.", "demo: closing"], 1),
        (["MPICH ERROR: Unable to use a MAP_POLICY of 'SOCKET'.", "MPICH ERROR [Rank 0] [job id 1.0] [n1] - Abort(1) (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Other MPI error, error stack:"], 1),
        (["[n1:7] [[1,1],3] selected pml ob1, but peer [[1,1],0] on n0 selected pml cm", "[n1:7] pml_ucx.c:178  Error: Failed to receive UCX worker address: Not found (-13)"], 1),
        (["A requested component was not found, or was unable to be opened.  This", "Component: none", "It looks like pmix_init failed for some reason; your parallel process is"], 1),
        (["[n1:77] PMIX ERROR: OUT-OF-RESOURCE in file dstore_segment.c at line 7", "[n1:77] PMIX ERROR: OUT-OF-RESOURCE in file dstore_base.c at line 9", "*** An error occurred in MPI_Init_thread", "*** on a NULL communicator"], 1),
        ([f"[01/02/2023-15:12:06] {BUILDER}", *[f"input: {n}" for n in "abcdef"], "&&&& FAILED TensorRT.trtexec # ./trtexec"], 1),
        ([f"{SUM} 1", "reading the mesh", "mesh.c: the list of cells is invalid"], 3),
        ([f"{PLEXEC},256)", "the input deck is invalid"], 2),
    ],
)  # fmt: skip
def test_a_heading_or_a_sum_gives_way_to_what_went_wrong(lines: list[str], line: int) -> None:
    """Whether the heading has a name of its own or is only a place."""
    assert line_of(*lines) == [("program_error", line)]


@every(
    ("lines", "kind", "line"),
    [
        ([f"{SUM} 139", "[n1:22] Signal: Segmentation fault (11)"], "segfault", 2),
        ([f"{SUM} 137", "[n1:22] Signal: Aborted (6)"], "oom_kill_suspected", 1),
        (["1.2s: job.exception type=exec severity=0 MPI_Abort: N/A", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "Assertion Failed: the grid has no owner"], "program_error", 3),
        (["1.2s: job.exception type=exec severity=0 MPI_Abort: N/A"], "process_aborted", 1),
        (["1.2s: job.exception type=exec severity=0 task 3 (host n2): start failed: solve: No such file or directory"], "slurm_launch_failed", 1),
        (["1.2s: job.exception type=alloc severity=0 alloc denied due to type=\"unsatisfiable\""], "slurm_launch_failed", 1),
        (["1.2s: job.exception type=exec severity=0 node failure on n2"], "peer_lost", 1),
        (["step 3", "1.2s: job.exception type=cancel severity=0 by its owner", "flux-job: task(s) Terminated"], "slurm_cancelled", 2),
        ([f"{PLEXEC},9)"], "oom_kill_suspected", 1),
        ([f"{PLEXEC},256)(DETAIL=N/A)"], "process_aborted", 1),
        (["[WARN] PLE 0610 plexec The process terminated with the signal.(rank=2)(nid=0x1)(sig=11)"], "segfault", 1),
        (["   Exit Status:        137 (Linux Signal 9 SIGKILL Kill, unblockable)"], "oom_kill_suspected", 1),
        (["2026-01-02 10:00:00.123456: I ext/svc.cc:18]   device (0): Host, <undefined>", "run.sh: line 3: 77 Aborted      ./a"], "process_aborted", 2),
        (["srun: error: n1: tasks 0-3: Bus error", "ERROR (unhandled task failure): BoundsError: attempt to read [2]"], "bus_error", 1),
        (["[Fri Jan  2 10:00:00 2026] [unknown] Fatal error in MPI_Init: Other MPI error, error stack:", "MPID_Init(71)........:  PMI init failed: -1 "], "slurm_launch_failed", 1),
        (["MPICH ERROR [Rank 3] [job id 1.0] [Fri Jan  2 10:00:00 2026] [n1] - Abort(1) (rank 3 in comm 0): Fatal error in PMPI_Alltoall: Other MPI error, error stack:", "MPIDI_OFI_inject(72)..: OFI inject failed (ofi_send.h:72:MPIDI_OFI_inject:Resource temporarily unavailable)"], "process_aborted", 1),
        (["terminate called after throwing an instance of 'own::Error'", "  what():  [10:00:00] /src/pool/the_manager_of_memory.cc:88: hipMallocAsyn", "c failed: out of memory"], "cuda_oom", 2),
        (["FATAL:   container creation failed: while extracting: exit status 1", "write /tmp/rootfs/a: no space left on device"], "disk_full", 2),
        ([*ERROR[:2], "joblib.my_exceptions.JoblibKeyError: JoblibKeyError", "_" * 40, "Multiprocessing exception:", *["    frame of the parent"] * 200, "KeyError: 'lr'", "_" * 40], "python_exception", 206),
        (["[rank1]: RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)", "n1:14:15 [0] misc/ibvwrap.cc:182 NCCL WARN Call to ibv_reg_mr failed with error Invalid argument"], "net_ib_error", 2),
    ],
)  # fmt: skip
def test_a_launchers_sum_and_a_wrapper_give_way_to_what_says_more(
    lines: list[str], kind: str, line: int
) -> None:
    """Where nothing says more, they are the first cause; and who sums up a killed rank knows more than the ranks that aborted over it."""
    assert line_of(*lines) == [(kind, line)]


@every(
    ("lines", "found"),
    [
        ([WAITS, "Stalled ranks:", "1: [grad_0, grad_1 ...]"], [("watchdog_timeout", 1)]),
        ([f"[1,0]<stderr>:W[1,0]<stderr>: [1,0]<stderr>:{WAITS}", "[1,0]<stderr>:0: [grad][1,0]<stderr>:", WAITS], [("watchdog_timeout", 1)]),
        ([WAITS, "[missing ranks: 3]", WAITS, "[missing ranks: 3]", LIMIT], [("watchdog_timeout", 1)]),
        ([WAITS, LIMIT], [("slurm_timeout", 2)]),
        ([WAITS, "Stalled ranks:", "1: [grad_0, grad_1 ...]", "model saved"], []),
        ([WAITS, *[f"note {n}: all is well" for n in "abcd"]], []),
        ([f"I quote: `{WAITS}`", *ERROR], [("python_exception", 4)]),
        (["Aborted.", *[f"the next of the runs, {n}" for n in "abcdef"], "finished in 3 s"], []),
        ([BUILDER, "[W] the tactic is left out", "the engine was built", "&&&& PASSED TensorRT.trtexec # ./trtexec"], []),
        (["A requested component was not found, or was unable to be opened.  This", "Component: none", "step 1 of 2"], []),
        (["[n1:77] PMIX ERROR: OUT-OF-RESOURCE in file dstore_segment.c at line 7", "step 1 of 2", "step 2 of 2", "done"], []),
        (["1.2s: job.exception type=exec severity=1 a shell was slow"], []),
        (["   Exit Status:        0"], []),
    ],
)  # fmt: skip
def test_a_stall_an_aborted_prompt_or_a_tactic_that_failed_counts_only_at_the_end(
    lines: list[str], found: list[tuple[str, int]]
) -> None:
    """Behind them the program went on, or another line tells of the end."""
    assert line_of(*lines) == found


STEPS = [f" time step {n}  energy -1.0{n}" for n in range(1, 8)]


@every(
    ("lines", "line"),
    [
        (["Caught exception:", "  the file has no header"], 2),
        (["The following error occurred:", "", "  there is no material 'steel'"], 3),
        (["Simulation failed with the following error:", "there is no material 'steel'"], 2),
        (["ERROR: the run cannot go on:", "the file of weights was cut short"], 2),
        (["Abort called by PE:  3", "   ocean_model: the sea is dry"], 2),
        (["### FATAL ERROR in function [Mesh::Mesh]", "the root grid has no cell"], 2),
        (["  --- SEVERE ERROR, PROGRAM WILL BE ABORTED ---", "     Date  : Mon Jan  1", "   Reason: two atoms lie at one place"], 3),
        (["card_open(&h, nullptr) failed with driver error: 20"], 1),
        (["job 12 failed: there is no material 'steel'"], 1),
        (["Code termination on task=3, function run(), file run.c, line 77: the time step is zero"], 1),
        (["FIO-F-217/formatted read/unit=5/attempt to read past end of file.", " File name = 'stdin'"], 1),
        (["Error in L2 norm:", "  0.00123"], 0),
        (["Error estimates of the run:", "  energy  0.1 eV  force 0.2"], 0),
        (["Error handling mode is set:", "  the run goes on after each of them"], 0),
        (["Early stopping. Reason: no gain in ten epochs"], 0),
        (["Simulation stopped early.", "Reason: converged"], 0),
        (["solver(x) returned status 1"], 0),
        (["Jan  1 10:00:00 n1 kernel: [   1.5] NVRM: dev_open: minor 0, module->open() failed, error -5"], 0),
    ],
)  # fmt: skip
def test_a_heading_that_a_log_ends_with_gives_way_to_its_sentence(lines: list[str], line: int) -> None:
    """What it announces stands below; a heading of numbers, or a reason to be content, is no error."""
    assert line_of(*STEPS, *lines) == ([("program_error", len(STEPS) + line)] if line else [])


@every(
    ("line", "kind"),
    [
        ("sqlite3.OperationalError: database or disk is full", "disk_full"),
        ("OSError: 1048576 requested and 524288 written", "disk_full"),
        ("OSError: [Errno 110] Connection timed out: '/nfs/data/a.npy'", "filesystem_unreachable"),
        ("OSError: [Errno 110] Connection timed out", "python_exception"),
        ("ERROR: LoadError: OutOfMemoryError()", "host_memory_error"),
        ("ERROR on proc 3: Failed to allocate 123456 bytes for array atom:x", "host_memory_error"),
    ],
)
def test_disks_memory_and_servers_in_other_words(line: str, kind: str) -> None:
    """numpy's short write, SQLite's, a path that does not answer, Julia's and LAMMPS's memory."""
    assert [f.kind for f in joblog.read([line]) if f.first_cause] == [kind]


@every(
    "front",
    [
        "[0] ", "[0]<stderr>:", "[1,0]<stderr>:", "0: ", "n1: ", "n1: [rank0]: ", "[default0]:", "[trainer0|0]:", "worker-1: [default0]:",
        "worker-0 | ", "[n1:0] ", "rank 0: ", "(RayTrainWorker pid=1, ip=1.2.3.4) ", "ERROR 01-01 10:00:00 [x.py:33] ", "2025-01-01T10:00:00.123Z ",
        "2025-01-01 10:00:00,123 - root - ERROR - ", "Jan 01 10:00:00 n1 python[123]: ", "    ",
    ],
)  # fmt: skip
def test_a_traceback_is_read_behind_whatever_a_launcher_puts_in_front_of_each_line(front: str) -> None:
    """Intel MPI, Horovod, srun -l, pdsh, torchrun, Ray, vLLM, docker compose, journald."""
    trace = [
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 8, in <module>',
        '    x = cfg["lr"]',
        "KeyError: 'lr'",
    ]
    (found,) = [f for f in joblog.read(["step 1 loss 2", *(front + line for line in trace)]) if f.first_cause]
    assert (found.kind, found.line) == ("python_exception", 5)


@every(
    ("lines", "kind", "line"),
    [
        (["[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory (/src/tllmBuffers.h:112)"], "cuda_oom", 1),
        (["ERROR: out of memory in /src/acc/acc_projector_impl.h at line 38 (error-code 2)", "ERROR: ", "A GPU-function failed to execute."], "cuda_oom", 1),
        (["ERROR: HipCustomAllocator out of memory", "ERROR:", "You ran out of memory on the GPU(s)."], "cuda_oom", 1),
        (["CUDA Error:", "    Error code: 700", "    Error text: an illegal memory access was encountered"], "cuda_illegal_access", 3),
        (["tensorflow.python.framework.errors_impl.UnknownError: 2 root error(s) found.", "  (0) Unknown: Failed to get convolution algorithm. This is probably because cuDNN failed"], "cuda_library_error", 2),
        (["Range checking error (possible bug):", "Device ID 0 did not correspond to any of the 0 detected device(s)"], "program_error", 2),
    ],
)  # fmt: skip
def test_gpu_codes_and_headings_of_round_24(lines: list[str], kind: str, line: int) -> None:
    """TensorRT-LLM, RELION, GPUMD, TensorFlow's sum of errors, GROMACS."""
    (found,) = [f for f in joblog.read(lines) if f.first_cause]
    assert (found.kind, found.line) == (kind, line)


def test_an_exception_that_says_nothing_gives_way_to_what_nccl_said() -> None:
    """Old torch's spawn raises one with its worker's traceback below, which the excerpt cuts."""
    log = ["n1:1:2 [7] include/socket.h:387 NCCL WARN Connect to 10.0.0.2<52473> failed : Connection refused", "Traceback (most recent call last):",
           '  File "spawn.py", line 114, in join', "    raise Exception(msg)", "Exception: ", "", "-- Process 3 terminated with the following error:"]  # fmt: skip
    (found,) = [f for f in joblog.read(log) if f.first_cause]
    assert (found.kind, found.line) == ("nccl_system_error", 1)


@every(
    ("log", "kind", "line"),
    [
        (["Epoch: [0] [ 0/65] loss: 2.97 (2.97)", "Loss is nan, stopping training", "{'loss_a': tensor(nan)}", "", "SystemExit: 1"], "nan_loss", 2),
        (["[NID 00177] 2026-08-07 04:23:23 Apid 640: Error detected during page fault processing.  Process terminated via bus error.", "Application 640 exit signals: Killed"], "bus_error", 1),
        (["Step 1", "### HCC STATUS_CHECK Error: HSA_STATUS_ERROR_INVALID_ALLOCATION (0x1003) at file:m.cpp line:1194", "[n3:07988] *** Process received signal ***"], "cuda_error", 2),
        (["Total size: 12884.9 MB", "Libomptarget fatal error 1: failure of target construct while offloading is mandatory"], "program_error", 2),
        (["+ srun ./solve task.xml", "[XmlReader] ** Error when loading XML file /w/task.xml: Failed to open file at 0:0", "+ exit 0"], "program_error", 2),
        (["  % Total    % Received", "  0     0    0     0    0     0      0      0 --:--:--  0:00:04 --:--:--     0curl: (6) Could not resolve host: hub.example.org"], "program_error", 2),
        (["ERROR ~ Error executing process > 'call (5)'", "", "Caused by:", "  Process `call (5)` terminated with an error exit status (137)", "", "Command error:", "  .command.sh: line 2: 31330 Killed"], "oom_kill_suspected", 7),
        (["Traceback (most recent call last):", '  File "gpu.py", line 81, in allocate', "MemoryError: cuMemAlloc failed: out of memory"], "cuda_oom", 3),
        (["Traceback (most recent call last):", '  File "gpu.py", line 34, in wait', "LaunchError: cuStreamSynchronize failed: the launch timed out and was terminated"], "cuda_launch_timeout", 3),
        (["  [1] throw_api_error(res::CUDA.cudaError_enum)", "ERROR: Out of GPU memory"], "cuda_oom", 2),
        (["RuntimeError: MPS backend out of memory (MPS allocated: 33.48 GB)."], "cuda_oom", 1),
        (["[oo]KERNEL_ERROR: no kernel image is available for execution on the device in /x/ml.cu at line 292 (error-code 48)", "[n2:148942] Signal: Segmentation fault (11)"], "cuda_version", 1),
        (["No devices were found", "Error: Process completed with exit code 6."], "cuda_unavailable", 1),
        (['Exception in thread "main" java.lang.reflect.InvocationTargetException', "\tat a.b.C(D.java:1)", "Caused by: java.lang.ExceptionInInitializerError", "\tat a.b.C(D.java:2)", "Caused by: org.x.LoggingException: a cannot be present with b", "\tat a.b.C(D.java:3)"], "program_error", 5),
        (["Error in rule map:", "    message: SLURM-job '13562883' failed, SLURM status is: 'NODE_FAIL'. For further error details see the log"], "slurm_node_fail", 2),
        (["align.sh ERROR: REF  DOES NOT EXIST"], "program_error", 1),
        (["job deleted", "job 3132467 exceeded MEM usage hard limit (2528 > 1126)"], "slurm_oom", 2),
        (["job 88 exceeded WALLTIME usage hard limit (3700 > 3600)"], "slurm_timeout", 1),
        (["*** ABAQUS/standard rank 0 encountered a SEGMENTATION FAULT", "", "*** ERROR CATEGORY:  ELEMENT LOOP"], "segfault", 1),
    ],
)  # fmt: skip
def test_the_line_that_names_the_trouble_is_the_first_cause(log: list[str], kind: str, line: int) -> None:
    """Of launchers, runtimes and tools that print it in a form of their own."""
    assert line_of(*log) == [(kind, line)]


@every(
    "after",
    [
        ["[n1:07065] PMIX ERROR: NO-PERMISSIONS in file dstore_base.c at line 234"],
        ["Loss is nan, stopping training? no: skipping this batch", "step 4 loss 2.1", "step 5 loss 2.0"],
        ["# Some Heading: an Error: of old"],
        [
            "INFO web: the request failed",
            "Caused by: java.io.IOException: closed",
            "step 3 loss 2.1",
            "step 4 loss 2.0",
            "step 5 loss 1.9",
        ],
    ],
)
def test_words_after_a_good_end_are_no_error(after: list[str]) -> None:
    """PMIx cannot remove a file of another user; a loss that was skipped; a heading."""
    assert first("step 1 loss 2.3", "step 2 loss 2.2", "This test is considered PASSED", *after) == []


@every(
    ("error", "waited_ms"),
    [
        ("TimeoutError: worker 2", 1_800_000), ("TimeoutError: no answer after 600 s", 600_000), ("concurrent.futures.TimeoutError: gave up in 2.5 minutes", 150_000),
        ("ray.exceptions.GetTimeoutError: Get timed out after 500 ms", 500), ("TimeoutError: after 9999999 h", 7_200_000), ("KeyError: 'after 600 s'", None),
    ],
)  # fmt: skip
def test_how_long_an_exception_waited(error: str, waited_ms: int | None) -> None:
    """A fault of its node that long before may be why; a text cannot reach further back than two hours."""
    (found,) = joblog.read(
        ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', error]
    )
    assert found.detail.get("unanswered_ms") == waited_ms


PAGE = "## Support\n\nSee [the guide](https://docs.example.org/a) first.\n\n## Building\n\nIf a library that you\nrequire is not available then please contact the\n[desk](https://desk.example.org/)\n"


@pytest.mark.parametrize(
    "text",
    [
        "--- Stop Module:  gateway at Sun Mar 1 10:00:00 2026 /rc=0 ---\n     Happy landing!",
        "--- Stop Module: alaska at Sun Mar 1 10:00:00 2026 /rc=_RC_INVOKED_OTHER_MODULE_ ---\n--- Start Module: mclr ---",
        " ERROR IS A FRIEND OF THE PATIENT.\n            NOBODY\n Job cpu time:       0 days\n Normal termination of Gaussian 16 at Sun Mar 1.",
        "EXECUTION OF GAMESS TERMINATED NORMALLY\nFiles used on the master node:\nls: No match.\nls: No match.\nSun Mar 1",
        "start\nError: 9.707030e-01, GPU Time: 5914.9\nError: 8.700410e-01, GPU Time: 11451.1",
        "     total cpu time spent up to now is      777.1 secs\n     c_bands:  1 eigenvalues not converged",
        "epoch 7 saved\nmv: cannot stat 'parts/*.pt': No such file or directory\n\nreal\t7m1s\nuser\t7m2s",
        "(APIServer pid=7) INFO 08-01 model.py:7] Using max model len 7\n(APIServer pid=7) [transformers] Unrecognized keys in `rope_parameters`: {'full'}",
        "configure:77: cc -V\ncc: error: argument to '-V' is missing (expected 1 value)\nconfigure: exit 0",
        " writing\n SEARCH: can't locate minimum, use default step\n step:   0.7182\n writing wavefunctions",
        PAGE,
    ],
    ids=["Molcas", "Molcas, further", "Gaussian's words", "csh's ls", "numbers", "bands", "a pattern", "keys", "configure", "a default", "a page"],
)  # fmt: skip
def test_a_run_that_ended_well_has_no_first_cause(text: str) -> None:
    """Strangers' runs that ended well printed such lines."""
    assert first(*text.split("\n")) == []


@every(
    ("text", "kind"),
    [
        ("--- Stop Module: scf at Sun Mar 1 10:00:00 2026 /rc=_RC_GENERAL_ERROR_ ---", "task_exit"),
        ("start\nmv: cannot stat 'best.pt': No such file or directory", "program_error"),
        (
            " ERROR IS A FRIEND OF THE PATIENT.\n            NOBODY\n Error termination request processed by link 9999.",
            "program_error",
        ),
        ("Primary job  terminated normally, but 1 process returned\nError: no such mesh", "program_error"),
        ("## Setting up\n## Loading\n## Running\nError: the mesh has no cells", "program_error"),
    ],
)
def test_what_only_looks_like_a_good_end_hides_no_error(text: str, kind: str) -> None:
    """The counterparts of the lines above."""
    assert first(*text.split("\n")) == [kind]
