"""Faults of parts that the job did not use, or did not hold, are not why it ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.attribution.verdict import view_builder
from probing_cluster.attribution.verdict.rules import filesystem
from probing_cluster.core import records, vocabulary

SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)
SERVER = {"from": "fs1:/export", "type": "nfs4"}


def one_node(make, **over):
    """A job of one node without GPUs that exits after 28 s."""
    values = {"nodes": ("n2",), "n_gpus": 0, "gpus": None, "start_at": make.end - timedelta(seconds=28)}
    return make.attempt(**{**values, "exit_code": 2, "work_dir": "/home/alice", **over})


def hangs(make, before_end_s=15.0):
    """/scratch hangs: the agent's reading, its check, and the client's line about the server."""
    return (
        make.event(before_end_s, kind="mount", code="hanging", source="mount", device="/scratch", detail=SERVER),
        make.event(before_end_s - 2, kind="check", code="mount_responsive", source="check", device="/scratch"),
        make.event(
            before_end_s, kind="nfs", code="not_responding", device="fs1", severity=records.Severity.LOW,
            message="nfs: server fs1 not responding, still trying",
        ),
    )  # fmt: skip


def link_down(make, before_end_s=20.0):
    """An InfiniBand port is down by the agent's reading and by its check."""
    return (
        make.event(before_end_s, kind="ib_link", code="down", source="sysfs", device="mlx5_3"),
        make.event(before_end_s - 2, kind="check", code="ib_link", source="check", device="mlx5_3"),
    )


def io_error(make, path):
    """The log's first cause: an I/O error at the path."""
    message = f"cp: cannot stat '{path}': Input/output error"
    return make.finding("io_error", node="n2", message=message, detail={"role": "root", "first_cause": True})


@pytest.mark.parametrize(
    ("over", "sure"),
    [
        ({}, False),
        ({"work_dir": "/scratch/alice"}, True),
        ({"exit_code": 0, "exit_signal": 9}, True),
        ({"exit_code": 137}, True),
        ({"exit_code": 124}, True),
    ],
    ids=[
        "it exits by itself",
        "it works there",
        "it was killed",
        "a shell's code for it",
        "timeout(1) ended it",
    ],
)
def test_a_job_that_exits_by_itself_did_not_wait_for_a_mount_that_hangs(make, over, sure):
    """A process that uses the mount waits; it does not end with a code of its own."""
    v = make.judge(*hangs(make), attempt=one_node(make, **over))
    assert v.cause == "filesystem_mount"
    assert (v.confidence in SURE) is sure
    assert any(s.startswith("user program") for s in v.ruled_out) is sure


def test_an_exit_code_is_no_proof_against_a_mount_where_nobody_read_the_log(make):
    """It may hold the I/O errors of the mount."""
    assert make.judge(*hangs(make), attempt=one_node(make)).confidence not in SURE
    assert make.judge(*hangs(make), attempt=one_node(make), watched={}).confidence in SURE


def test_only_a_hard_mounts_silence_weighs_less_beside_an_exit_code(make):
    """Calls on a soft mount fail, so the program may have ended by them."""
    weights = {}
    for how in ("still trying", "timed out"):
        silent = make.event(
            15, kind="nfs", code="not_responding", device="fs1", message=f"nfs: server fs1 not responding, {how}"
        )  # fmt: skip
        view = view_builder.build(make.case(silent, attempt=one_node(make)))
        assert view is not None
        (weights[how],) = (claim.weight for claim in filesystem.rule(view))
    assert weights["still trying"] < weights["timed out"]


def test_a_mount_for_which_we_requeued_the_job_is_why_it_ended(make):
    """Also where the job's errors name files elsewhere: the requeue ended it, and not they."""
    mount, *others = hangs(make)
    requeue = make.action("requeue", -1, job_id=4242, event_ids=(mount.event_id,))
    ended = one_node(make, state="REQUEUED", exit_code=0)
    v = make.judge(mount, *others, io_error(make, "/data/x"), attempt=ended, actions=(requeue,))
    assert v.cause == "filesystem_mount"
    assert v.confidence in SURE


def test_a_mount_that_is_gone_ends_a_silent_job_as_before(make):
    """Calls on it fail, whatever the program makes of that."""
    gone = make.event(15, kind="mount", code="missing", source="mount", device="/scratch")
    assert make.judge(gone, attempt=one_node(make)).confidence in SURE


def test_a_gang_whose_watchdog_ended_it_hung_at_the_mount(make):
    """The rank that waited at the mount is why the others timed out."""
    watchdog = make.finding("watchdog_timeout", detail={"timeout_ms": 600_000})
    v = make.judge(*hangs(make, 700), watchdog)
    assert v.cause == "filesystem_mount"
    assert v.confidence in SURE


@pytest.mark.parametrize(("path", "sure"), [("/data/x", False), ("/scratch/x", True)])
def test_an_error_at_another_path_is_no_proof_against_a_mount(make, path, sure):
    """Neither against the mount point, nor against the server from which only that is mounted."""
    v = make.judge(*hangs(make), io_error(make, path), attempt=one_node(make, exit_code=1))
    assert v.cause == "filesystem_mount"
    assert (v.confidence in SURE) is sure


def test_a_job_on_one_node_has_no_peers_to_lose_by_a_link(make):
    """Nothing shows that its files were behind the link either."""
    v = make.judge(*link_down(make), attempt=one_node(make))
    assert (v.cause, v.confidence) == ("user_error", records.Confidence.LIKELY)
    assert "with no fault beside it that explains this" in v.summary
    assert any("mlx5_3" in s and "has no peers" in s and s.startswith("less likely: ") for s in v.ruled_out)


def test_a_component_of_a_heterogeneous_job_has_peers(make):
    """The others of its job run on nodes of their own."""
    part = one_node(make, het_job_id=4241, het_offset=1)
    v = make.judge(*link_down(make), attempt=part)
    assert v.cause == "ib_link"
    assert not any("no peers" in s for s in v.ruled_out)
    well = make.judge(attempt=part)
    assert not any("no peers" in s for s in well.ruled_out)


def test_a_link_stays_suspect_where_a_gang_or_storage_is_behind_it(make):
    """A gang needs it; and an I/O error of a file may come from it."""
    assert make.judge(*link_down(make), attempt=one_node(make, nodes=("n1", "n2"))).cause == "ib_link"
    assert (
        make.judge(*link_down(make), io_error(make, "/lustre/x"), attempt=one_node(make)).cause == "ib_link"
    )


MISSED = (
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "OSError: [Errno 101] Network is unreachable",
    "TimeoutError: [Errno 110] Connection timed out",
    'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.local/x"',
    "requests.exceptions.ConnectTimeout: HTTPConnectionPool(host='minio', port=9000): Max retries exceeded with url: /1 (Caused by ConnectTimeoutError())",
    "redis.exceptions.ConnectionError: Error 113 connecting to db:6379. No route to host.",
    'psycopg.OperationalError: connection to server at "db", port 5432 failed: No route to host',
)


def raised(make, message):
    """The log's first cause: an exception."""
    detail = {"role": "root", "first_cause": True, "exception": message.partition(":")[0]}
    return make.finding("python_exception", node="n2", message=message, detail=detail)


@pytest.mark.parametrize("message", MISSED)
@pytest.mark.parametrize("kind", ["ib_link", "eth_link"])
def test_a_job_on_one_node_that_reached_no_host_lost_its_link(make, message, kind):
    """Its own error shows that it used the network; without a fault beside it nobody is accused for sure."""
    by = {"code": "down", "source": "sysfs", "device": "mlx5_3"}
    by = by if kind == "ib_link" else {"code": "link_down", "source": "kernel", "device": "eth0"}
    v = make.judge(
        make.event(40, kind=kind, **by), raised(make, message), attempt=one_node(make, exit_code=1)
    )
    assert (v.cause, v.confidence) == (kind, records.Confidence.POSSIBLE)
    alone = make.judge(raised(make, message), attempt=one_node(make, exit_code=1))
    assert (alone.cause, alone.confidence) == ("user_error", records.Confidence.POSSIBLE)
    assert "n2" in alone.next_step


@pytest.mark.parametrize(
    ("message", "ruled_out"),
    [
        ("ConnectionResetError: [Errno 104] Connection reset by peer", False),
        (
            "urllib3.exceptions.NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused",
            False,
        ),
        ("KeyError: 'lr'", True),
    ],
)
def test_a_link_is_not_ruled_out_beside_an_error_of_the_network(make, message, ruled_out):
    """The other side reset or refused the connection, so the link is not accused either."""
    v = make.judge(*link_down(make), raised(make, message), attempt=one_node(make, exit_code=1))
    assert v.cause == "user_error"
    assert any("has no peers" in s for s in v.ruled_out) is ruled_out


def test_a_link_that_was_down_all_the_time_needs_no_mention(make):
    """Only one that failed while the job ran might be taken for its end."""
    down, _ = link_down(make, 3600)
    v = make.judge(attempt=one_node(make), active_faults=(down,))
    assert v.cause == "user_error"
    assert not any("mlx5_3" in s for s in v.ruled_out)


def test_a_link_among_the_rivals_is_not_called_unused(make):
    """The job's I/O error makes it possible, beside a certain loss of a GPU."""
    attempt = one_node(make, n_gpus=8, gpus=make.gpus("n2"))
    v = make.judge(*link_down(make), io_error(make, "/lustre/x"), make.xid(79, 3, 10), attempt=attempt)
    assert v.cause == "gpu_lost"
    assert any(s.startswith("less likely: ib link on n2") for s in v.ruled_out)
    assert not any("no peers" in s for s in v.ruled_out)


def test_a_lost_peer_may_be_a_link_of_a_node_that_nobody_watched(make):
    """A watched job of one node has neither a peer nor, by its agent, a link that failed."""
    message = "NET/IB : Got completion from peer"
    nccl = make.finding("net_ib_completion_error", node="n2", message=message, detail={"first_cause": True})
    attempt = one_node(make, n_gpus=8)
    assert make.judge(nccl, attempt=attempt).cause == "unknown"
    assert make.judge(nccl, attempt=attempt, watched={}).cause == "ib_link"


@pytest.mark.parametrize(
    ("n_gpus", "cause"),
    [(0, "user_error"), (8, "gpu_memory_uncorrectable"), (None, "gpu_memory_uncorrectable")],
)
def test_the_text_of_a_job_without_gpus_accuses_no_gpu(make, n_gpus, cause):
    """It can print anything, and no GPU was its own."""
    ecc = make.finding(
        "cuda_ecc", node="n2", message="RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )
    nccl = make.finding("net_ib_completion_error", node="n2", message="NET/IB : Got completion from peer")
    v = make.judge(ecc, nccl, attempt=one_node(make, n_gpus=n_gpus))
    assert v.cause == cause
    assert ("GPUs (the job held none)" in v.ruled_out) is (n_gpus == 0)


def test_a_gpu_that_a_program_filled_was_its_own_whatever_accounting_has(make):
    """Only faults of GPUs need one that the job held: this error is the program's."""
    filled = make.finding("cuda_oom", node="n2", message="CUDA out of memory", detail={"first_cause": True})
    assert make.judge(filled, attempt=one_node(make, exit_code=1)).cause == "oom_gpu"


def test_a_fault_from_before_the_window_is_dated_by_its_event(make):
    """The window begins ten minutes before the start; the fault began 19 minutes before it."""
    start_at = make.end - timedelta(seconds=28)
    gpu = {"device": "gpu0", "gpu_uuid": make.uuid("n2", 0)}
    at = start_at - timedelta(minutes=19)
    ecc = make.event(at=at, kind="ecc", code="uncorrectable", source="nvml", **gpu)
    attempt = one_node(make, n_gpus=8, gpus=make.gpus("n2"), start_at=start_at)
    v = make.judge(attempt=attempt, active_faults=(ecc,))
    assert v.cause == "gpu_memory_uncorrectable"
    assert "19 min before the job started" in v.summary


@pytest.mark.parametrize("code", [4, 6, 7, 8, 9, 11, 15, 24, 25])
def test_a_code_alone_is_no_signal(make, code):
    """A script may end with any code: the signal is a clause, and no advice is built on it, with an agent on the node or without."""
    attempt = one_node(make, exit_code=code)
    for v in (make.judge(attempt=attempt), make.judge(attempt=attempt, watched={})):
        assert f"exited with code {code} (or {128 + code}, SIG" in v.summary
        assert v.next_step == "Look at the program's own output."


@pytest.mark.parametrize(
    ("code", "signal", "hedged"), [(vocabulary.OF_TIMEOUT, 0, True), (0, 4, False), (0, 25, False)]
)
def test_advice_from_a_code_alone_is_only_a_possibility(make, code, signal, hedged):
    """A script may end with any code; a signal that Slurm recorded is one."""
    v = make.judge(attempt=one_node(make, exit_code=code, exit_signal=signal))
    assert v.next_step.startswith("Look at the program's own output first") is hedged
    assert v.next_step != "Look at the program's own output."


def test_advice_from_what_the_program_lacked_speaks_of_no_code(make):
    """The program reports that it found no GPU; the job holds none."""
    line = make.finding("cuda_unavailable", message="Found no NVIDIA driver on your system")
    v = make.judge(line, attempt=one_node(make, n_gpus=0, gpus=(), exit_code=1))
    assert v.next_step.startswith("Ask for GPUs when you submit")
    assert "any code" not in v.next_step


def test_advice_from_a_line_of_the_log_needs_no_hedge(make):
    """The shell printed what the code means."""
    line = make.finding(
        "process_crashed", message="line 3: 42 File size limit exceeded ./run", detail={"role": "exit"}
    )
    v = make.judge(line, attempt=one_node(make, exit_code=25))
    assert v.next_step.startswith("Raise the limit on a file's size")


def became_read_only(make, device="/scratch"):
    """The mount is read-only now: the agent's reading and its check."""
    return (
        make.event(15, kind="mount", code="read_only", source="mount", device=device),
        make.event(12, kind="check", code="mount_writable", source="check", device=device),
    )


@pytest.mark.parametrize(
    ("over", "sure"),
    [
        ({}, False),
        ({"work_dir": "/scratch/alice"}, True),
        ({"stdout_path": "/scratch/alice/slurm-1.out"}, True),
    ],
    ids=["it works elsewhere", "it works there", "it prints there"],
)
def test_a_job_that_had_no_error_did_not_write_to_a_mount_that_became_read_only(make, over, sure):
    """Whoever writes there gets an error that says so; the words do not accuse a server of silence."""
    v = make.judge(*became_read_only(make), attempt=one_node(make, exit_code=1, **over))
    assert v.cause == "filesystem_mount"
    assert (v.confidence in SURE) is sure
    assert any(s.startswith("user program") for s in v.ruled_out) is sure
    assert "/scratch of n2 became read-only" in v.summary


def test_a_mount_that_became_read_only_is_no_sure_reason_for_a_kill(make):
    """A write fails; nobody waits for it."""
    killed = one_node(make, exit_code=0, exit_signal=9)
    assert make.judge(*became_read_only(make), attempt=killed).confidence is records.Confidence.POSSIBLE


@pytest.mark.parametrize("after_s", [1, 20, 200])
def test_that_the_mount_was_writable_again_after_the_end_changes_nothing(make, after_s):
    """Equal jobs have equal verdicts, whenever somebody heals the node."""
    healed = make.event(
        -after_s, kind="mount", code="recovered", source="mount", device="/scratch",
        severity=records.Severity.INFO, detail={"recovered": True},
    )  # fmt: skip
    found = [make.judge(*became_read_only(make), *more, attempt=one_node(make)) for more in ([], [healed])]
    assert len({(v.cause, v.domain, v.confidence, v.summary) for v in found}) == 1


@pytest.mark.parametrize(("path", "sure"), [("/data/x", False), ("/scratch/x", True)])
def test_an_error_of_a_read_only_path_convicts_the_mount_above_it(make, path, sure):
    """EROFS of another path is of another mount."""
    message = f"OSError: [Errno 30] Read-only file system: '{path}'"
    met = make.finding("io_error", node="n2", message=message, detail={"role": "root", "first_cause": True})
    v = make.judge(*became_read_only(make), met, attempt=one_node(make, exit_code=1))
    assert (v.cause == "filesystem_mount" and v.confidence in SURE) is sure


def test_a_mount_that_is_gone_did_not_stop_answering(make):
    """It is not in the node's table of mounts any more."""
    gone = make.event(15, kind="mount", code="missing", source="mount", device="/scratch")
    summary = make.judge(gone, attempt=one_node(make)).summary
    assert "/scratch of n2 was no longer mounted" in summary


@pytest.mark.parametrize(
    "message",
    [
        "TypeError: connect() got an unexpected keyword argument 'timeout'",
        "NameError: name 'ReadTimeout' is not defined",
        "AttributeError: module 'requests' has no attribute 'ConnectTimeoutError'",
    ],
)
def test_a_mistake_in_the_code_that_names_a_time_out_accuses_no_link(make, message):
    """The exception's name decides, not a word in its text."""
    mistake = make.finding(
        "python_exception",
        node="n2",
        message=message,
        detail={"first_cause": True, "role": "root", "exception": message.partition(":")[0]},
    )
    v = make.judge(*link_down(make), mistake, attempt=one_node(make, exit_code=1))
    assert (v.cause, str(v.confidence)) == ("user_error", "likely")
    assert "curl" not in v.next_step
