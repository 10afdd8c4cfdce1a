"""The sentences on excluded causes, limits, restarts, lost nodes and cancellations, as outside readers see them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.attribution.verdict import findings, rank_claims, view_builder
from probing_cluster.attribution.verdict.rules import links, user_error
from probing_cluster.core import records, vocabulary

C, D = records.Confidence, records.Domain


def test_a_fault_found_after_the_end_excludes_no_program(make):
    """The exit came before: the program is named as the weaker explanation, and nothing is said of the order."""
    v = make.judge(make.xid(79, 3, -180.0), watched={})
    assert (v.cause, v.confidence) == ("gpu_lost", C.POSSIBLE)
    assert "after the job ended" in v.summary
    assert not [s for s in v.excluded if s.startswith("user program")]
    assert [s for s in v.less_likely if s.startswith("user program (possible: exited with code 1")]


def test_a_gpu_that_may_be_a_neighbours_excludes_no_program(make):
    """The holder of the GPU is unknown: neither the exit nor a silent log clears the program."""
    mine = make.attempt(nodes=("n2",), n_gpus=1, gpus=None)
    shared = {"n2": ((make.start, None),)}
    v = make.judge(make.xid(79), attempt=mine, shared=shared)
    assert (v.cause, v.confidence) == ("gpu_lost", C.POSSIBLE)
    assert not [s for s in v.excluded if s.startswith("user program")]
    own = make.judge(make.xid(79), make.finding("cuda_launch_failure"), attempt=mine, shared=shared)
    assert not [s for s in own.excluded if s.startswith("user")]
    assert len([s for s in own.less_likely if s.startswith("user program")]) == 1


def test_what_is_weaker_is_not_ruled_out(make):
    """A lost GPU beside an error of the program's own stays a candidate."""
    error = make.finding(
        "python_traceback", node="n2", message="KeyError: 'lr'", detail={"first_cause": True}
    )
    v = make.judge(make.xid(79), error, attempt=make.attempt(nodes=("n2",), gpus=None), watched={})
    assert v.cause == "user_error"
    assert "gpu lost on n2 (possible: Xid 79)" in v.less_likely
    assert not [s for s in v.excluded if "gpu lost" in s]
    # Its own word would read as the verdict's.
    two = make.judge(make.xid(79, 6), make.event(8, kind="edac", code="UE", node="n2"))
    assert two.less_likely == ("main memory on n2 (by itself likely: memory error UE)",)


@pytest.mark.parametrize(
    ("ended", "then", "rival"),
    [
        (
            {"state": "CANCELLED", "cancelled_by": "alice"},
            "; then the job was cancelled by its user (alice).",
            "the cancellation alone (possible: was cancelled by alice)",
        ),
        (
            {"state": "TIMEOUT", "time_limit_s": 1102.0},
            "; then the job reached its time limit.",
            "the time limit alone (possible)",
        ),
    ],
)
def test_how_it_was_ended_is_not_ruled_out(make, ended, then, rival):
    """It happened: the summary says so, and that nothing else was behind it is the less likely tale."""
    v = make.judge(make.xid(79, 3, 300.0), attempt=make.attempt(exit_code=0, **ended))
    assert (v.cause, v.confidence) == ("gpu_lost", C.LIKELY)
    assert v.summary.endswith(then)
    assert v.less_likely == (rival,)


def test_what_lies_outside_the_window_is_not_ruled_out(make):
    """It came long before, and no evidence says that it did no harm."""
    v = make.judge(make.xid(79, 3, at=make.start - timedelta(hours=3)))
    assert [s for s in v.less_likely if "outside the window" in s]
    assert not [s for s in v.excluded if "outside the window" in s]


def test_a_gpu_that_it_did_not_hold_is_called_by_its_address(make):
    """If the log shows nothing else."""
    mine = make.attempt(nodes=("n2",), n_gpus=0, gpus=None)
    v = make.judge(make.xid(79, None, pci_bus_id="0000:41:00"), attempt=mine)
    assert "0000:41:00 of n2 (Xid 79, but the job did not hold it)" in v.excluded


def test_a_deadline_is_no_time_limit(make):
    """`sbatch --deadline` ended it after 18 minutes of 24 hours: more time would not help."""
    v = make.judge(attempt=make.attempt(state="DEADLINE", exit_code=0))
    assert v.summary == "The deadline of the job (sbatch --deadline) passed after it had run 18 min."
    assert "--deadline" in v.next_step
    assert "Ask for more time" not in v.next_step


def test_a_timeout_well_within_its_limit_is_called_a_contradiction(make):
    """Another limit ended it, or its own was changed: that it reached the recorded one is untrue."""
    v = make.judge(attempt=make.attempt(state="TIMEOUT", exit_code=0))
    assert (v.cause, v.confidence) == ("time_limit", C.LIKELY)
    assert (
        v.summary
        == "The job was ended by Slurm as TIMEOUT after 18 min, though its limit is recorded as 24 h."
    )
    assert "MaxTime" in v.next_step
    reached = make.judge(attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=1102.0))
    assert (reached.confidence, reached.summary) == (C.CERTAIN, "The job reached its time limit of 18 min.")


@pytest.mark.parametrize(("up_after_s", "cause"), [(3.0, "user_error"), (None, "ib_link")])
def test_a_kernel_line_of_a_link_that_came_up_excuses_it(make, up_after_s, cause):
    """Down for three seconds, nine minutes before the end: a flap ends no gang that goes on for minutes."""
    port = {"kind": "ib_link", "source": "import", "device": "ibs1", "pci_bus_id": "0000:18:00.0"}
    lines = [make.event(540.0, code="link_down", **port)]
    if up_after_s:
        lines.append(make.event(540.0 - up_after_s, code="link_up", severity=records.Severity.INFO, **port))
    v = make.judge(*lines, by_log=frozenset({"n1", "n2"}))
    assert v.cause == cause


def _boot(make, before_end_s, code="after_shutdown", node="n2", **detail):
    more = {
        "kind": "node_boot",
        "source": "import",
        "severity": records.Severity.INFO,
        "detail": detail,
        "node": node,
    }
    return make.event(before_end_s, code=code, **more)


@pytest.mark.parametrize("before_end_s", [120.0, -120.0])
def test_an_orderly_restart_is_no_fault_of_the_hardware(make, before_end_s):
    """Software asked for it: the verdict says so, and sends nobody to the baseboard's event log."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    boot = _boot(make, before_end_s, shut_down_s=240.0)
    v = make.judge(boot, attempt=lost, by_log=frozenset({"n1", "n2"}))
    assert (v.cause, v.node) == ("node_reboot" if before_end_s > 0 else "node_lost", "n2")
    assert v.domain is D.UNKNOWN
    assert "shut down in order" in v.summary
    assert "baseboard" not in v.next_step
    crash = make.judge(_boot(make, before_end_s, "kernel"), attempt=lost, by_log=frozenset({"n1", "n2"}))
    assert crash.domain is D.HARDWARE


def test_a_node_that_was_shut_down_in_order_after_the_end_had_lived_until_then(make):
    """Somebody restarted a healthy node of a job whose lost node is unknown."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0)
    logs = frozenset({"n1", "n2"})
    alive = make.judge(_boot(make, -400.0, shut_down_s=240.0), attempt=lost, by_log=logs)
    assert alive.node is None
    gone = make.judge(_boot(make, -200.0, shut_down_s=240.0), attempt=lost, by_log=logs)
    assert gone.node == "n2"


def test_of_several_nodes_it_is_told_what_is_known_of_each(make):
    """One log goes on, one ends, one node was not watched: only Slurm knows which one it gave up."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, nodes=("n1", "n2", "n3"), gpus=None)
    watched = {"n1": make.end + timedelta(hours=1), "n2": make.end - timedelta(minutes=15)}
    v = make.judge(attempt=lost, watched=watched, by_log=frozenset({"n1", "n2"}))
    assert v.node is None
    assert v.summary == (
        "A node of the job stopped answering Slurm, and it is not known which; the log of n1 continues past the end, without a "
        "restart within the hour; the log of n2 ends before; nobody watched n3."
    )
    assert "sinfo -R" in v.next_step


def test_a_log_that_ends_hours_before_is_no_witness(make):
    """That it holds nothing of the loss is then no news."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    logs = frozenset({"n2"})
    v = make.judge(attempt=lost, watched={"n2": make.end - timedelta(hours=5)}, by_log=logs)
    assert "; its log ends 5 h before and shows nothing of it." in v.summary
    near = make.judge(attempt=lost, watched={"n2": make.end - timedelta(minutes=5)}, by_log=logs)
    assert near.summary.endswith("; its log holds nothing of it.")


def test_a_fault_that_a_log_ends_with_long_before_is_named(make):
    """Slurm may wait longer for a node than the window reaches."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    fallen = make.event(2820, kind="xid", code="79", node="n2")
    ends = {"watched": {"n2": fallen.at + timedelta(seconds=20)}, "by_log": frozenset({"n2"})}
    v = make.judge(fallen, attempt=lost, **ends)
    assert "; its log ends 47 min before, with Xid 79" in v.summary
    went_on = {**ends, "watched": {"n2": fallen.at + timedelta(minutes=20)}}
    assert "Xid 79" not in make.judge(fallen, attempt=lost, **went_on).summary


def test_a_kill_for_memory_of_before_the_job_is_nothing_that_a_lost_node_showed(make):
    lost = make.attempt(
        state="NODE_FAIL", exit_code=0, failed_node="n2", start_at=make.end - timedelta(minutes=2)
    )
    old = make.event(300, kind="oom", code="memcg", node="n2", process="x")
    assert (
        "out-of-memory"
        not in make.judge(old, attempt=lost, watched={"n2": make.end - timedelta(minutes=5)}).summary
    )


@pytest.mark.parametrize(
    ("kind", "summary", "step"),
    [
        ("filesystem_unreachable", "A file system of n1 stopped answering", "Check the file system on n1:"),
        (
            "service",
            "A system service of n1 failed",
            "Check the system service on n1 (`systemctl --failed`, `journalctl -b -p err`).",
        ),
    ],
)
def test_a_part_without_a_name_is_called_by_what_it_is(make, kind, summary, step):
    """Never `file system a device of n1`."""
    one = make.attempt(nodes=("n1",), gpus=None)
    reader_findings = (
        make.event(kind=kind, node="n1")
        if kind == "service"
        else make.finding(kind, message="it said so", detail={"role": "root", "domains": ["system_software"]})
    )
    v = make.judge(reader_findings, attempt=one, watched={})
    assert v.summary.startswith(summary)
    assert v.next_step.startswith(step)


def test_several_nodes_were_not_watched(make):
    """And one was not."""
    bare = {"exit_code": 0, "exit_signal": 0}
    assert make.judge(attempt=make.attempt(**bare), watched={}).summary == "n[1-2] were not watched."
    one = make.attempt(**bare, nodes=("n1",))
    assert make.judge(attempt=one, watched={}).summary == "n1 was not watched."


def test_a_node_whose_log_is_at_hand_is_not_called_unwatched(make):
    """It ends before the job did, although one of its lines may be evidence."""
    logs = frozenset({"n2"})
    v = make.judge(watched={"n2": make.end - timedelta(minutes=2)}, by_log=logs)
    assert (
        v.summary
        == "The program exited with code 1, and nobody watched n1 then and the log of n2 ends before."
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Error(s) in loading state_dict for Net:", "state_dict for Net."),
        (f"ValueError: {'b' * 400}", f"{'b' * 78} … {'b' * 67}."),
    ],
)
def test_a_quoted_line_leaves_one_full_stop(make, message, words):
    """Neither `Net:.` nor four dots."""
    v = make.judge(make.finding("python_traceback", message=message))
    assert v.summary.endswith(words)


def test_more_evidence_of_a_kill_makes_nobody_less_sure(make):
    """Slurm's word, and the kernel's own of the job's group: a GPU lost long before on the node changes nothing."""
    one = make.attempt(state="OUT_OF_MEMORY", exit_code=0, nodes=("n2",), n_gpus=1, gpus=None)
    kill = make.event(2.0, kind="oom", code="memcg", job_id=4242, source="import")
    lost = make.xid(79, None, pci_bus_id="0000:41:00", at=make.start - timedelta(hours=1))
    v = make.judge(kill, lost, attempt=one, active_faults=(lost,))
    assert (v.cause, v.confidence) == ("oom_host", C.CERTAIN)
    assert v.less_likely


def test_who_cancelled_the_job_of_another_is_asked_why(make):
    """It was not on purpose of its owner."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by="bob"))
    assert v.summary == "The job was cancelled by bob, not by its user."
    assert v.next_step == "Ask bob why it was cancelled: the accounting does not say."
    own = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice"))
    assert own.next_step == "Nothing: it was cancelled on purpose."


def test_a_server_that_did_not_answer_for_hours_is_named_beside_the_cancellation(make):
    """It is among the evidence: the sentence says why."""
    start = make.end - timedelta(hours=6)
    nfs = make.event(19800.0, kind="nfs", code="not_responding", device="nas1", severity=records.Severity.LOW)
    mine = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice", start_at=start)
    v = make.judge(attempt=mine, stalls=(nfs,))
    assert v.cause == "user_cancelled"
    assert v.summary.endswith(
        "; NFS not responding (nas1) on n2 5 h 30 min before, and no line reports its end."
    )
    assert v.next_step.startswith("Find out whether it hung: look at NFS not responding on n2")


def test_several_nodes_that_restarted_are_named(make):
    """A rack that lost its power: Slurm names none, and the logs of several begin anew."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, nodes=("n1", "n2"), gpus=None)
    boots = [_boot(make, -1500.0, "kernel", node=n) for n in ("n1", "n2")]
    v = make.judge(*boots, attempt=lost, by_log=frozenset({"n1", "n2"}))
    assert (v.cause, v.node, v.domain) == ("node_lost", None, D.HARDWARE)
    assert v.summary == "A node of the job stopped answering Slurm; n[1-2] restarted within the hour."
    assert v.next_step.startswith("Look for a part that n[1-2] share: power")


def test_a_prolog_that_failed_says_not_what_it_found(make):
    """The accounting's word alone: a service, a GPU, a full disk."""
    v = make.judge(attempt=make.attempt(reason="Prolog", exit_code=1))
    assert (v.cause, v.confidence) == ("system_services", C.POSSIBLE)
    assert "its Prolog failed, and the accounting does not say why" in v.summary


def test_a_prolog_that_hung_is_no_file_that_could_not_be_opened(make):
    """Slurm gives 0:53 for both; the log says which."""
    hung = make.finding(
        "slurm_launch_failed", message="slurmstepd: error: Prolog hung on node n2", detail={"role": "root", "domains": ["system_software"]}
    )  # fmt: skip
    v = make.judge(hung, attempt=make.attempt(exit_code=0, exit_signal=53))
    assert (v.cause, v.confidence) == ("system_services", C.POSSIBLE)


def test_pytorchs_report_of_who_did_not_join_names_the_rank(make):
    """It convicts no node; without the list it says nothing of who."""
    detail = {"role": "observation", "ranks": [5], "missing": True, "seq": 9001}
    waited = make.finding("watchdog_timeout", detail={"role": "symptom", "domains": ["user_program", "system_software", "hardware"]})  # fmt: skip
    v = make.judge(waited, make.finding("desync_report", message="a report", detail=detail))
    assert (v.cause, v.node, v.confidence) == ("missing_rank", None, C.POSSIBLE)
    assert "PyTorch's report says that rank 5 did not join collective #9001" in v.summary
    stuck = make.judge(waited, make.finding("desync_report", message="a report", detail={**detail, "missing": False}))  # fmt: skip
    assert stuck.cause == "unknown"


def test_a_rank_without_a_watchdogs_word_is_named_where_every_other_has_one(make):
    """The reader counts them; the verdict says what the count rests on, and no more than "possible"."""
    detail = {"role": "symptom", "first_cause": True, "rank": 1, "ranks": [0], "missing": True, "seq": 48211}
    v = make.judge(make.finding("watchdog_timeout", detail=detail))
    assert (v.cause, v.node, v.confidence) == ("missing_rank", None, C.POSSIBLE)
    assert (
        "the watchdogs of all other ranks timed out on collective #48211, and rank 0 had no such timeout"
        in v.summary
    )


@pytest.mark.parametrize(
    "ranks",
    [[10**5000], [[5]], ["5", None], [True], {"5": 1}, 10**5000],
    ids=["huge", "nested", "words", "truth", "object", "no list"],
)
def test_a_forged_report_names_nobody_and_harms_nothing(make, ranks):
    """Job-side events hold what their owner wrote."""
    detail = {"role": "observation", "ranks": ranks, "missing": True, "seq": 10**5000}
    v = make.judge(make.finding("desync_report", message="a report", detail=detail))
    assert "PyTorch's report says" not in v.summary


def test_a_monitored_barrier_names_whom_it_waited_for(make):
    """The rank that it names is the one that is missing, not one that waited."""
    detail = {"role": "symptom", "rank": 1, "ranks": [1], "missing": True, "domains": ["user_program", "system_software", "hardware"]}  # fmt: skip
    gloo = make.finding("gloo_timeout", detail={"role": "symptom", "rank": 0, "first_cause": True})
    v = make.judge(gloo, make.finding("monitored_barrier_timeout", message="a barrier", detail=detail))
    assert (v.cause, v.node, v.confidence) == ("missing_rank", None, C.POSSIBLE)
    assert "PyTorch says that rank 1 did not reach its monitored barrier in time" in v.summary
    assert "1 waited in vain" not in (v.next_step or "")
    unnamed = make.judge(gloo, make.finding("monitored_barrier_timeout", message="a barrier", detail={"role": "symptom", "rank": 3}))  # fmt: skip
    assert unnamed.cause == "unknown"
    for forged in ([1], {"1": 1}, True, 10**400):
        assert (
            make.judge(make.finding("gloo_timeout", detail={"role": "symptom", "rank": forged})).cause
            == "unknown"
        )


def test_a_node_whose_network_went_away_was_lost_by_it(make):
    """slurmctld gives a node up minutes after its last word; where the node itself went down, its links go along."""
    down = make.event(600.0, kind="eth_link", code="bond_down", device="bond0")
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    last_signs = {"n1": make.end + timedelta(minutes=9), "n2": make.end + timedelta(minutes=9)}
    v = make.judge(down, attempt=lost, watched=last_signs)
    assert (v.cause, v.node, v.domain) == ("eth_link", "n2", D.HARDWARE)
    gone = {**last_signs, "n2": down.at + timedelta(seconds=5)}
    assert make.judge(down, attempt=lost, watched=gone).cause == "node_lost"
    killed = make.finding("slurm_node_fail", message="CANCELLED DUE TO NODE FAILURE", detail={"first_cause": True, "role": "observation"})  # fmt: skip
    alike = make.judge(down, killed, attempt=lost, watched=last_signs)
    assert (alike.cause, alike.confidence) == (v.cause, v.confidence)


def test_of_a_gpu_on_a_shared_node_the_failed_repair_is_named(make):
    """Nobody knows whose it was; what happened to it is as sure as elsewhere."""
    one = make.attempt(nodes=("n2",), gpus=None, n_gpus=1)
    shared = {"n2": ((make.start, None),)}
    at = [make.xid(code, 3, 6) for code in (48, 64)]
    contained = make.xid(94, 3, 6, severity=records.Severity.LOW)
    v = make.judge(*at, contained, attempt=one, shared=shared)
    assert (v.cause, v.node, v.confidence) == ("gpu_row_remap_failure", "n2", C.POSSIBLE)
    elsewhere = make.xid(64, 5, 6)
    v = make.judge(at[0], elsewhere, contained, attempt=one, shared=shared)
    assert v.cause == "gpu_memory_contained"


def test_causes_that_explain_each_other_leave_one(make, monkeypatch):
    """Whatever the table of causes says: there is a verdict, and it is the strongest."""
    monkeypatch.setattr(rank_claims, "_explains", lambda *_: True)
    v = make.judge(make.xid(79), make.event(20, kind="eth_link", code="link_down", device="eth0"))
    assert v.cause == "gpu_lost"


@pytest.mark.parametrize(
    "words",
    ["NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch", "Error 803: system has unsupported display driver / cuda driver combination"],
)  # fmt: skip
def test_a_driver_of_another_release_than_its_libraries_is_the_drivers_fault(make, words):
    """Not a service's, as other words for a system that is not ready are."""
    detail = {"unavailable": "not_ready", "role": "root", "first_cause": True, "domains": ["system_software"]}
    v = make.judge(make.finding("cuda_unavailable", message=words, detail=detail))
    assert (v.cause, v.confidence) == ("gpu_driver", C.POSSIBLE)
    assert (v.next_step or "").startswith("See which libcuda the program loaded"), (
        "a container may bring its own"
    )
    other = make.judge(make.finding("cuda_unavailable", message="Error 802: system not yet initialized", detail=detail))  # fmt: skip
    assert other.cause == "system_services"


def test_a_collective_that_computes_wrongly_accuses_no_program(make):
    """Which part corrupts the data, the test does not say: the advice is how to find it."""
    v = make.judge(make.finding("wrong_result", message="# Out of bounds values : 2 FAILED", detail={"role": "root", "first_cause": True}))  # fmt: skip
    assert v.cause == "unknown"
    assert "probing-ctl diagnose" in (v.next_step or "")


def test_a_process_that_was_told_to_end_accuses_no_program(make):
    """The exit code is an effect of the signal, whose sender is unknown."""
    text = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGTERM"
    ended = make.finding("process_terminated", message=text, detail={"first_cause": True, "role": "exit"})
    v = make.judge(ended)
    assert (v.cause, v.domain) == ("unknown", D.UNKNOWN)
    assert "ended by SIGTERM" in v.summary


def test_ranks_that_lost_their_peer_accuse_no_program(make):
    """Their exit code is an effect of the loss; the first process left no message."""
    closed = make.finding("gloo_connection_closed", message="Connection closed by peer", detail={"first_cause": True, "role": "remote"})  # fmt: skip
    v = make.judge(closed, watched={})
    assert (v.cause, v.domain) == ("unknown", D.UNKNOWN)
    assert "Connection closed by peer" in v.summary
    own = make.finding("python_exception", 2.0, message="KeyError: 'lr'", detail={"first_cause": True, "role": "root", "domains": ["user_program"]})  # fmt: skip
    later = make.finding("gloo_connection_closed", detail={"first_cause": False, "role": "remote"})
    assert make.judge(own, later, watched={}).cause == "user_error"


def test_a_job_on_one_node_is_lost_with_its_nodes_network(make):
    """It needs none itself, but Slurm does; a link that came back at once was none."""
    down = make.event(310.0, kind="eth_link", code="bond_down", device="bond0")
    alone = make.attempt(nodes=("n2",), state="NODE_FAIL", exit_code=0)
    last_signs = {"n2": make.end + timedelta(minutes=9)}
    assert make.judge(down, attempt=alone, watched=last_signs).cause == "eth_link"
    up = make.event(300.0, kind="eth_link", code="link_up", device="bond0", severity=records.Severity.INFO)
    assert make.judge(down, up, attempt=alone, watched=last_signs).cause == "node_lost"


def test_a_link_that_went_down_is_why_ranks_lost_each_other_though_somebody_ended_the_job_much_later(make):
    """The port never came up again; a job that its ranks did not call broken is the one who cancelled it."""
    down = make.event(2100.0, kind="ib_link", code="port_down", device="mlx5_4", source="kernel")
    attempt = make.attempt(state="CANCELLED", cancelled_by="root", exit_code=0, start_at=make.end - timedelta(hours=9))  # fmt: skip
    lost = make.finding("net_ib_completion_error", message="NET/IB : Got completion with status=12", detail={"first_cause": True, "role": "root"})  # fmt: skip
    v = make.judge(down, lost, attempt=attempt)
    assert (v.cause, v.node) == ("ib_link", "n2")
    assert make.judge(down, attempt=attempt).cause == "user_cancelled"


def test_a_gpu_that_fell_silent_with_the_log_is_named_though_nobody_counted_gpus(make):
    """Accounting without its column of resources: "possible", since the job may have used none; beside another job nothing."""
    stalled = make.finding(
        "log_stall", 0.0, measured=540.0, unit="s", detail={"before_s": 30.0, "gap_s": 30.0}
    )
    xid = make.event(500.0, kind="xid", code="119", pci_bus_id="0000:9b:00", source="kernel")
    one = {"nodes": ("n2",), "gpus": None, "state": "CANCELLED", "cancelled_by": "5007", "exit_code": 0}
    v = make.judge(xid, stalled, attempt=make.attempt(**one, n_gpus=None))
    assert (v.cause, v.node, v.confidence) == ("gpu_gsp_timeout", "n2", C.POSSIBLE)
    beside = make.judge(
        xid, stalled, attempt=make.attempt(**one, n_gpus=None), shared={"n2": ((make.start, None),)}
    )
    assert beside.cause != "gpu_gsp_timeout"
    assert make.judge(xid, stalled, attempt=make.attempt(**one, n_gpus=8)).confidence is C.LIKELY


def test_a_gpu_that_fell_silent_with_the_log_of_a_job_of_one_gpu_is_its_own_where_it_never_went_on(make):
    """Of eight GPUs it held one: minutes of silence prove little; hours from that very minute make it "possible"."""
    start = make.end - timedelta(hours=4)
    one = make.attempt(
        nodes=("n2",),
        gpus=None,
        n_gpus=1,
        state="CANCELLED",
        cancelled_by="5007",
        exit_code=0,
        start_at=start,
    )

    def judge(stood_s: float, gap_s: float = 60.0, **over):
        detail = {"before_s": 60.0, "gap_s": gap_s}
        stalled = make.finding("log_stall", 0.0, measured=stood_s, unit="s", detail=detail)
        xid = make.event(stood_s - 8, kind="xid", code="119", pci_bus_id="0000:9b:00", source="kernel")
        at = make.end - timedelta(seconds=stood_s)
        return make.judge(xid, stalled, attempt=one, last_progress_at=at, **over)

    made = judge(7200.0)
    assert (made.cause, made.node, made.confidence) == ("gpu_gsp_timeout", "n2", C.POSSIBLE)
    assert judge(540.0).cause == "user_cancelled"
    assert judge(7200.0, gap_s=900.0).cause == "user_cancelled", "eight of its own gaps are no silence"
    made = judge(7200.0, shared={"n2": ((start, None),)})
    assert (made.cause, made.confidence) == ("gpu_gsp_timeout", C.POSSIBLE)


def test_an_account_that_nobody_knows_is_no_sure_mistake(make):
    """A KeyError of Python's own, but of the node's or container's accounts: "possible", and the site's where the lookup was ill."""
    missed = make.finding("python_exception", node="n2", message="KeyError: 'getpwuid(): uid not found: 50123'", detail={"exception": "KeyError", "role": "root", "domains": ["user_program"], "first_cause": True})  # fmt: skip
    v = make.judge(missed)
    assert (v.cause, v.confidence) == ("user_error", C.POSSIBLE)
    assert "getent passwd" in (v.next_step or "")
    ill = {"kind": "name_service", "code": "offline", "source": "kernel", "severity": records.Severity.INFO, "message": "sssd: Backend is offline"}  # fmt: skip
    v = make.judge(missed, make.event(30, **ill))
    assert (v.cause, v.node, v.confidence) == ("system_services", "n2", C.LIKELY)
    assert "Backend is offline" in v.summary
    assert make.judge(missed, make.event(-60, **ill)).cause == "user_error", (
        "it fell ill when the job had ended"
    )
    assert not findings.is_surely_own(missed)
    own = make.finding("python_exception", node="n2", message="KeyError: 'lr'", detail={"exception": "KeyError", "role": "root", "domains": ["user_program"], "first_cause": True})  # fmt: skip
    assert make.judge(own, make.event(30, **ill)).cause == "user_error"


CAUGHT = {"exception": "ImportError", "role": "root", "domains": ["user_program"], "first_cause": True, "behind": 2, "last_words": "quality gate not met"}  # fmt: skip


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (
            {"exit_code": 3},
            "exited with code 3, which an exception does not cause; its last line: quality gate not met",
        ),
        (
            {"exit_code": 0, "exit_signal": 11},
            "was ended by signal 11 (SIGSEGV), which an exception does not cause",
        ),
    ],
)
def test_an_exception_that_the_program_lived_on_behind_is_not_how_it_ended(make, end, words):
    """Python ends with 1 of one that nobody catches; what was printed behind it says that it went on."""
    caught = make.finding(
        "import_error", node="n2", message="ImportError: No module named 'x'", detail=CAUGHT
    )
    v = make.judge(caught, attempt=make.attempt(nodes=("n2",), n_gpus=1, gpus=None, **end))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)
    assert words in v.summary
    assert "the exception above it: ImportError" in v.summary


def test_a_small_tool_that_ends_with_another_code_did_not_end_the_job(make):
    """`grep` ends with 2 for a file that is not there; the code that it may have is not excluded."""
    line = "grep: tuning.cfg: No such file or directory"
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True}
    missed = make.finding("program_error", node="n2", message=line, detail=detail)
    alone = {"nodes": ("n2",), "n_gpus": 1, "gpus": None}
    v = make.judge(missed, attempt=make.attempt(**alone, exit_code=42))
    assert "exited with code 42 (or 170), which the complaint in its log does not cause" in v.summary
    by_it = make.judge(missed, attempt=make.attempt(**alone, exit_code=2))
    assert by_it.summary.startswith("The program failed by itself: grep: ")


@pytest.mark.parametrize(
    "detail", [{"behind": 0}, {"rank": 3}], ids=["nothing came behind it", "other ranks printed more"]
)
def test_an_exception_that_may_have_ended_it_is_named_whatever_the_code(make, detail):
    """A script passes on what code it likes."""
    raised = make.finding("import_error", node="n2", message="ImportError: No module named 'x'", detail={**CAUGHT, **detail})  # fmt: skip
    v = make.judge(raised, attempt=make.attempt(nodes=("n2",), n_gpus=1, gpus=None, exit_code=3))
    assert "ImportError" in v.summary
    assert "no exception does" not in v.summary


def test_who_cancels_a_job_that_went_on_behind_an_exception_cancelled_it(make):
    """Of one process that printed more nobody waits for the exception; of eight GPUs the other ranks may."""
    caught = make.finding("python_exception", node="n2", message="KeyError: 'x'", detail={**CAUGHT, "exception": "KeyError"})  # fmt: skip
    cancelled = {"nodes": ("n2",), "gpus": None, "state": "CANCELLED", "cancelled_by": "5007", "exit_code": 0}
    assert make.judge(caught, attempt=make.attempt(**cancelled, n_gpus=1)).cause == "user_cancelled"
    assert make.judge(caught, attempt=make.attempt(**cancelled, n_gpus=8)).cause == "user_error"


def test_the_task_that_left_first_is_named_and_not_the_signal_that_ended_the_others(make):
    """srun's --kill-on-bad-exit and --wait: Slurm records how the others ended."""
    left = make.finding("task_exit", node="n2", message="srun: error: n2: task 1: Exited with exit code 42", detail={"role": "exit", "first_cause": True, "tasks": "1", "rank": 1, "exit_code": 42})  # fmt: skip
    for end in ({"exit_code": 143}, {"exit_code": 0, "exit_signal": 15}, {"exit_code": 137}):
        v = make.judge(left, attempt=make.attempt(**end))
        assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)
        assert "exited with code 42 (task 1 on n2, before any other)" in v.summary


def test_the_failing_task_of_another_component_is_on_the_node_that_srun_names(make):
    """The output of a heterogeneous job lies on the first component's node."""
    detail = {"role": "exit", "first_cause": True, "tasks": "0", "rank": 0, "host": "n3", "exit_code": 7}
    line = "srun: error: n3: task 0: Exited with exit code 7"
    v = make.judge(make.finding("task_exit", node="n4", message=line, detail=detail), attempt=make.attempt(nodes=("n4",), exit_code=7))  # fmt: skip
    assert "exited with code 7 (task 0 on n3, before any other)" in v.summary


@pytest.mark.parametrize(
    ("code", "cause"), [("evicted", "filesystem_mount"), ("connection_lost", "user_error")]
)
def test_a_server_that_threw_the_client_out_failed_its_calls(make, code, cause):
    """It lets the client in again a second later, which saves no open file; a connection that comes back loses nothing."""
    lustre = {"kind": "lustre", "device": "scratch-OST001c", "node": "n2"}
    out = make.event(20, code=code, **lustre)
    again = make.event(19, code="recovered", severity=records.Severity.INFO, **lustre)
    write = make.finding("checkpoint_failed", node="n2", message="file write failed", detail={"first_cause": True, "role": "root"})  # fmt: skip
    assert make.judge(out, again, write).cause == cause
    plain = make.finding("python_exception", node="n2", message="KeyError: 'x'", detail={"first_cause": True, "role": "root", "exception": "KeyError"})  # fmt: skip
    assert make.judge(out, again, plain).cause == "user_error"


def test_a_program_that_called_mpi_abort_was_ended_by_no_signal(make):
    """Its code is what it gave the call: 9 is SIGKILL's of a script only."""
    left = make.finding("process_aborted", node="n2", message="MPI_ABORT was invoked on rank 2", detail={"role": "exit", "first_cause": True, "called_abort": True, "rank": 2})  # fmt: skip
    v = make.judge(left, attempt=make.attempt(exit_code=9))
    assert (v.cause, "called MPI_Abort in rank 2 and exited with code 9" in v.summary) == ("user_error", True)
    assert "SIGKILL" not in v.summary


def test_an_exit_code_says_what_shells_mean_by_it(make):
    v = make.judge(attempt=make.attempt(exit_code=13))
    assert "13 (or 141, SIGPIPE: the reader of a pipe ended first, such as `head` or `grep -q`, which `set -o pipefail` reports)" in v.summary  # fmt: skip
    for code, signal in (13, 0), (141, 0), (0, 13):
        v = make.judge(attempt=make.attempt(exit_code=code, exit_signal=signal))
        assert "end that line with `|| true`" in v.next_step
    assert "2 (of many tools: a wrong argument)" in make.judge(attempt=make.attempt(exit_code=2)).summary
    assert "timeout(1)" in make.judge(attempt=make.attempt(exit_code=124)).summary
    for watched in ({}, {"n1": make.end, "n2": make.end}):
        unread = make.judge(attempt=make.attempt(exit_code=127), watched=watched).summary
        assert "127 (of the shell: a command was not found; or 255" in unread
    other = make.finding("interrupted", message="SystemExit: 127", detail={"line": 4})
    read = make.judge(other, attempt=make.attempt(exit_code=127)).summary
    assert "127 (or 255, as of ssh and exit -1; its log names no missing command)" in read
    missing = make.finding("command_not_found", message="run.sh: line 5: conda: command not found")
    shell = make.judge(missing, attempt=make.attempt(exit_code=127)).summary
    assert ("(of the shell: a command was not found)" in shell, "255" in shell) == (True, False)
    crashed = make.finding("process_crashed", message="run.sh: line 7: 30822 Floating point exception ./f44", detail={"role": "exit"})  # fmt: skip
    assert "ended by signal 8 (SIGFPE)" in make.judge(crashed, attempt=make.attempt(exit_code=8)).summary


@pytest.mark.parametrize(("code", "name"), [(4, "SIGILL"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (9, "SIGKILL"), (11, "SIGSEGV"), (24, "SIGXCPU"), (25, "SIGXFSZ")])  # fmt: skip
def test_only_lines_that_were_read_exclude_a_signal_that_an_exit_code_may_mean(make, code, name):
    """An agent on the node, or an empty output, shows nothing; a line that names the signal excludes nothing."""
    clause = f"exited with code {code} (or {128 + code}, {name})"
    for watched in ({}, {"n1": make.end, "n2": make.end}):
        assert clause in make.judge(attempt=make.attempt(exit_code=code), watched=watched).summary
    other = make.finding("interrupted", message="SystemExit: 1", detail={"line": 4})
    v = make.judge(other, attempt=make.attempt(exit_code=code))
    assert (f"exited with code {code}, " in v.summary, name in v.summary) == (True, False), v.summary
    empty = make.finding(vocabulary.OUTPUT_STALL, 0.0, measured=600.0, unit="s", message="output")
    assert clause in make.judge(empty, attempt=make.attempt(exit_code=code)).summary
    for words in (f"handler: {name} caught", f"worker got signal {code}"):
        named = make.finding("interrupted", message=words, detail={"line": 4})
        assert clause in make.judge(named, attempt=make.attempt(exit_code=code)).summary


def test_slurm_records_254_as_126(make):
    """sacct takes 128 from a larger code, so the shell's reason decides."""
    other = make.finding("interrupted", message="SystemExit: 254", detail={"line": 4})
    denied = make.finding(
        "task_exit", message="run.sh: line 5: ./a.sh: Permission denied", detail={"line": 5}
    )
    attempt = make.attempt(exit_code=126)
    assert "126 (of the shell: a command is not executable; or 254" in make.judge(attempt=attempt).summary
    read = make.judge(other, attempt=attempt).summary
    assert "126 (or 254, as of exit -2; its log names no command that could not be run)" in read
    shell = make.judge(denied, attempt=attempt).summary
    assert ("(of the shell: a command is not executable)" in shell, "254" in shell) == (True, False)
    for words in ("PermissionError: [Errno 13] Permission denied: '/a'", "cp: cannot open '/a' for reading: Permission denied"):  # fmt: skip
        own = make.finding("permission_denied", message=words, detail={"line": 5})
        assert "254" in make.judge(own, attempt=attempt).summary


def test_sigterm_needs_no_line_of_the_shell(make):
    """`wait` returns 143 for a process that the script ended, and the shell prints nothing."""
    other = make.finding("interrupted", message="SystemExit: 1", detail={"line": 4})
    assert "15 (or 143, SIGTERM)" in make.judge(other, attempt=make.attempt(exit_code=15)).summary


def test_a_failure_whose_code_the_accounting_does_not_tell_is_possible_at_most(make):
    v = make.judge(attempt=make.attempt(exit_code=None, exit_signal=None))
    assert (v.cause, v.confidence) == ("user_error", C.POSSIBLE)
    assert "a code other than 0" in v.summary


@pytest.mark.parametrize(
    ("kind", "message", "happened"),
    [
        ("io_error", "OSError: [Errno 5] Input/output error: '/scratch/a'", "Reading or writing a file failed on n2 with an input/output error"),
        ("stale_file_handle", "OSError: [Errno 116] Stale file handle: '/home/a'", "A file handle went stale on n2"),
        ("filesystem_unreachable", "Transport endpoint is not connected", "A file system of n2 stopped answering"),
    ],
)  # fmt: skip
def test_a_file_error_that_only_the_log_reports_is_called_what_it_is(make, kind, message, happened):  # fmt: skip
    met = make.finding(
        kind,
        node="n2",
        message=message,
        detail={"role": "root", "first_cause": True, "domains": ["system_software"]},
    )
    one = make.attempt(nodes=("n2",))
    v = make.judge(met, attempt=one)
    assert (v.cause, v.confidence) == ("filesystem_mount", C.POSSIBLE)
    assert v.summary == f"{happened} (reported only by the job itself: {message})."


READ_ONLY = "OSError: [Errno 30] Read-only file system: '/opt/app/cache/index.json'"


@pytest.mark.parametrize("watched", [None, {}], ids=["watched", "unwatched"])
def test_a_read_only_path_is_the_programs_unless_its_drive_says_otherwise(make, watched):
    """A container's image is read-only; a file system with errors is made so, which the kernel reports."""
    met = make.finding("io_error", node="n2", message=READ_ONLY, detail={"role": "root", "first_cause": True})
    v = make.judge(met) if watched is None else make.judge(met, watched=watched)
    assert (v.cause, v.domain, v.confidence) == ("user_error", D.USER_PROGRAM, C.POSSIBLE)
    assert "a container's image" in v.next_step
    assert "/opt/app/cache/index.json" in v.summary
    broken = make.event(30, kind="block_io", code="remount_ro", device="sda1", node="n2", source="kernel")
    assert make.judge(met, broken).cause == "disk"


@pytest.mark.parametrize(
    ("domains", "cause"),
    [
        (["hardware", "system_software"], "filesystem_mount"),
        (["user_program", "system_software"], "user_error"),
    ],
)
def test_a_read_only_path_that_no_job_mounts_is_not_the_programs(make, domains, cause):
    """A node's own disk is read-only after an error; the evidence excludes the user."""
    message = "OSError: [Errno 30] Read-only file system: '/tmp/u/a'"
    met = make.finding("io_error", node="n2", message=message, detail={"role": "root", "first_cause": True, "domains": domains})  # fmt: skip
    v = make.judge(met)
    assert (v.cause, v.confidence) == (cause, C.POSSIBLE)


def test_text_alone_blames_no_file_system_of_a_watched_node(make):
    """Anybody may have printed an input/output error that the kernel does not report."""
    printed = make.finding("io_error", node="n2", message="cat: /lustre/a: Input/output error", detail={"role": "root", "first_cause": True})  # fmt: skip
    assert make.judge(printed).confidence is C.POSSIBLE
    assert make.judge(printed, watched={}).confidence is C.LIKELY


@pytest.mark.parametrize(
    ("before_end_s", "word", "unseen"),
    [(-30, C.POSSIBLE, False), (300, C.POSSIBLE, True), (86_400, C.LIKELY, True)],
)
def test_an_agent_that_was_away_for_a_moment_makes_text_no_surer(make, before_end_s, word, unseen):
    """It reads on in the kernel log where it stopped, and reports what is mounted; that nobody watched then is stated."""
    printed = make.finding("io_error", node="n2", message="cat: /lustre/a: Input/output error", detail={"role": "root", "first_cause": True})  # fmt: skip
    last = make.end - timedelta(seconds=before_end_s)
    v = make.judge(printed, attempt=make.attempt(nodes=("n2",)), watched={"n2": last})
    assert (v.cause, v.confidence) == ("filesystem_mount", word)
    assert ("nobody watched n2 then)" in v.summary) is unseen
    went_on = make.finding("io_error", node="n2", message="cat: /lustre/a: Input/output error", detail={"role": "root", "first_cause": True, "goes_on": True})  # fmt: skip
    assert make.judge(went_on).cause == "user_error"


def test_what_the_program_asked_for_needs_no_watched_node(make):
    """That nobody watched is stated where a machine is accused."""
    printed = make.finding("host_oom", message="slurmstepd: error: Detected 1 oom_kill event", detail={"role": "root", "first_cause": True})  # fmt: skip
    v = make.judge(printed, attempt=make.attempt(nodes=("n2",)), watched={})
    assert v.cause == "oom_host"
    assert "reported only by Slurm in the job's log" in v.summary
    assert "nobody watched" not in v.summary


def test_a_node_whose_slurmd_crashed_is_not_lost(make):
    """Nor is one whose power failed another's; of a node that nobody names the report itself says which."""
    crash = make.event(300.0, kind="slurmd", code="crashed", source="kernel", severity=records.Severity.INFO, message="slurmd[2291]: segfault at 18 ip 0")  # fmt: skip
    one = make.attempt(nodes=("n2",), state="NODE_FAIL", exit_code=0, n_gpus=0, gpus=None)
    v = make.judge(crash, attempt=one, watched={})
    assert (v.cause, v.node, v.confidence) == ("system_services", "n2", C.LIKELY)
    assert "slurmd had crashed there" in v.summary
    assert make.judge(make.event(3600.0, kind="slurmd", code="crashed", source="kernel", severity=records.Severity.INFO), attempt=one, watched={}).cause == "node_lost"  # fmt: skip


def test_a_link_error_behind_a_watchdog_accuses_no_link(make):
    """A link's own retries end minutes before a watchdog does: later they only miss a peer that has left."""
    waited = make.finding("heartbeat_monitor", detail={"role": "symptom", "first_cause": True})
    lost = make.finding("net_ib_completion_error", message="status=12", detail={"role": "root"})
    first = make.finding("net_ib_completion_error", message="status=12", detail={"role": "root", "first_cause": True})  # fmt: skip

    def claimed(*found):
        view = view_builder.build(make.case(*found, watched={}))
        return [c.cause for c in links.rule(view)]

    assert claimed(waited, lost) == []
    assert claimed(first) == ["ib_link"]


def test_a_link_takes_the_mount_behind_it_along(make):
    link = make.event(83.0, node="n2", kind="eth_link", code="link_down", device="em3", source="kernel")
    mount = make.event(9.0, node="n2", kind="gpfs", code="expelled", source="kernel", severity=records.Severity.HIGH)  # fmt: skip
    stale = make.finding("stale_file_handle", node="n2", message="Stale file handle", detail={"role": "root", "first_cause": True})  # fmt: skip
    v = make.judge(link, mount, stale, attempt=make.attempt(nodes=("n2",), n_gpus=0, gpus=None))
    assert (v.cause, v.node) == ("eth_link", "n2")


def test_who_had_not_entered_a_collective_is_named_by_pytorchs_count(make):
    detail = {"first_cause": True, "ranks": [3], "missing": True, "by_count": True, "seq": 48211}
    v = make.judge(make.finding("watchdog_timeout", detail=detail), attempt=make.attempt(exit_code=134))
    assert "rank 3 had not entered collective #48211, by PyTorch's own count" in v.summary


def test_a_node_that_went_on_being_heard_was_set_down(make):
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    v = make.judge(attempt=lost, watched={"n2": make.end + timedelta(minutes=5)})
    assert "kept reporting" in v.summary
    ended = make.judge(attempt=lost, watched={"n2": make.end + timedelta(seconds=30)})
    assert "kept reporting" not in ended.summary


@pytest.mark.parametrize(("kind", "code", "is_over"), [("xid", "79", True), ("pcie_aer", "fatal", False)])
def test_a_driver_that_was_loaded_again_brings_back_lost_gpus_only(make, kind, code, is_over):
    """A link of the PCIe bus recovers by no driver."""
    fault = make.xid(79, before_end_s=400) if kind == "xid" else make.event(400, kind=kind, code=code)
    load = make.event(390, kind="driver_load", code="nvidia", severity=records.Severity.INFO)
    attempt = make.attempt(start_at=make.end - timedelta(seconds=300))
    assert make.judge(fault, attempt=attempt).cause != "user_error"
    assert (make.judge(fault, load, attempt=attempt).cause == "user_error") is is_over


def test_a_recovery_after_the_onset_takes_nothing_from_a_fault(make):
    """What works again once the job had ended did not work before."""
    fault = make.event(400, kind="pcie_aer", code="fatal")
    info = {
        "kind": "pcie_aer",
        "code": "recovered",
        "severity": records.Severity.INFO,
        "detail": {"recovered": True},
    }
    attempt = make.attempt(start_at=make.end - timedelta(seconds=300))
    alone = make.judge(fault, attempt=attempt)
    after = make.judge(fault, make.event(-5, **info), attempt=attempt)
    while_it_ran = make.judge(fault, make.event(100, **info), attempt=attempt)
    assert alone.cause == "pcie"
    assert (after.cause, after.confidence) == (alone.cause, alone.confidence)
    assert (while_it_ran.cause, while_it_ran.confidence) != (alone.cause, alone.confidence)


@pytest.mark.parametrize(
    ("kind", "code", "before_end_s", "detail", "cause"),
    [
        ("lustre", "evicted", 20, {"first_cause": True}, "filesystem_mount"),
        ("lustre", "167-0", 20, {"first_cause": True}, "filesystem_mount"),
        ("gpfs", "expelled", 20, {"first_cause": True}, "filesystem_mount"),
        ("lustre", "evicted", 320, {"first_cause": True}, "user_error"),
        ("lustre", "evicted", 20, {}, "user_error"),
    ],
)
def test_which_evictions_outlast_the_return(make, kind, code, before_end_s, detail, cause):
    """The server lets the client in again a second later, which saves no open file."""
    mount = {"kind": kind, "device": "scratch-OST001c", "node": "n2"}
    back = {"code": "recovered", "severity": records.Severity.INFO, "detail": {"recovered": True}}
    out, again = make.event(before_end_s, code=code, **mount), make.event(before_end_s - 1, **back, **mount)
    write = make.finding(
        "checkpoint_failed", node="n2", message="file write failed", detail={"role": "root", **detail}
    )
    assert make.judge(out, again, write).cause == cause


@pytest.mark.parametrize(
    ("exit_signal", "words"), [(6, "was ended by signal 6 (SIGABRT)"), (53, "never began")]
)
def test_mpi_abort_is_not_named_where_a_signal_ended_the_program(make, exit_signal, words):
    """MPI_Abort ends a program with a code."""
    detail = {"role": "exit", "first_cause": True, "called_abort": True, "rank": 2}
    left = make.finding(
        "process_aborted", node="n2", message="MPI_ABORT was invoked on rank 2", detail=detail
    )
    v = make.judge(left, attempt=make.attempt(exit_code=0, exit_signal=exit_signal))
    assert words in v.summary
    assert "MPI_Abort" not in v.summary


def test_a_peer_that_did_not_answer_over_infiniband_leaves_the_exit_to_nobody(make):
    """The exit code only follows from the loss."""
    detail = {"first_cause": True, "role": "root"}
    lost = make.finding(
        "net_ib_completion_error", message="NET/IB : Got completion with status=12", detail=detail
    )
    claims = list(user_error.rule(view_builder.build(make.case(lost))))
    found = [(c.cause, c.words.partition(",")[0]) for c in claims]
    assert found == [("unknown", "got no answer from a peer over InfiniBand")]


def test_a_signal_is_not_explained_by_wrong_values(make):
    """They end a program with a code."""
    wrong = make.finding("wrong_result", detail={"first_cause": True, "role": "root"})
    assert make.judge(wrong).cause == "unknown"
    assert make.judge(wrong, attempt=make.attempt(exit_code=0, exit_signal=9)).cause == "rank_killed"


@pytest.mark.parametrize(
    ("ran_s", "drained_s", "cause"),
    [
        (2, 0, "node_refused"),
        (40, 38, "node_refused"),
        (40, 0, "requeued_by_user"),  # Slurm ends a start at once when its Prolog fails
        (90, 88, "requeued_by_user"),
        (600, 0, "requeued_by_user"),
    ],
)
def test_a_start_that_ran_on_was_not_refused_by_its_prolog(make, ran_s, drained_s, cause):
    """A Prolog ends a start before its script begins."""
    at = make.start + timedelta(seconds=drained_s)
    info = records.Severity.INFO
    failed = make.event(at=at, kind="slurmd", code="prolog_failed", source="slurm", severity=info)
    attempt = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=ran_s))
    assert make.judge(failed, attempt=attempt).cause == cause


@pytest.mark.parametrize(
    ("ran_s", "failed_s", "job", "cause"),
    [
        (40, 0, 4242, "node_refused"),
        (90, 88, 4242, "node_refused"),
        (3000, 2990, 4242, "node_refused"),
        (600, 0, 4242, "requeued_by_user"),  # of this job, but it ran on
        (90, 88, 4243, "requeued_by_user"),
    ],
)
def test_a_prolog_that_failed_for_this_job_by_its_number_refused_it_however_long_it_took(make, ran_s, failed_s, job, cause):  # fmt: skip
    """A Prolog may wait for minutes, on one node while those of the others were ready."""
    at = make.start + timedelta(seconds=failed_s)
    failed = make.event(at=at, kind="slurmd", code="prolog_failed", source="syslog", severity=records.Severity.INFO, detail={"job": job})  # fmt: skip
    attempt = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=ran_s))
    assert make.judge(failed, attempt=attempt).cause == cause


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ({"state": "TIMEOUT", "exit_code": 0}, ""),
        ({"state": "CANCELLED", "cancelled_by": "alice", "exit_code": 0}, ""),
        ({"state": "PREEMPTED", "exit_code": 0}, ""),
        ({"state": "OUT_OF_MEMORY", "exit_code": 0}, ""),
        ({"state": "FAILED", "exit_code": 1}, ""),
        ({"state": "FAILED", "exit_code": 3}, ""),
        ({"state": "FAILED", "exit_code": 0, "exit_signal": 53}, ""),
        ({"state": "FAILED", "exit_code": 0, "exit_signal": 6}, ""),
        ({"state": "REQUEUED", "exit_code": 3}, ""),  # RequeueExit=3
        ({"state": "FAILED", "exit_code": 0}, "python_traceback"),
        ({"state": "REQUEUED", "exit_code": 0}, "watchdog_timeout"),
        ({"state": "NODE_FAIL", "exit_code": 0}, "rank_stall"),
    ],
)
def test_a_failed_prolog_says_nothing_of_a_job_that_began(make, named, end, kind):
    """The Prolog that failed was another job's, or a person wrote that reason by hand."""
    at = make.start + timedelta(seconds=9)
    info = records.Severity.INFO
    failed = make.event(at=at, kind="slurmd", code="prolog_failed", source="slurm", severity=info, detail={"job": 4242} if named else {})  # fmt: skip
    wrote = [make.finding(kind, at=at)] if kind else []
    attempt = make.attempt(**end, end_at=make.start + timedelta(seconds=10))
    v = make.judge(failed, *wrote, attempt=attempt)
    assert v.cause != "node_refused"
    assert "Prolog" not in f"{v.summary} {v.next_step}"


@pytest.mark.parametrize(
    "end",
    [
        {"state": "REQUEUED", "exit_code": 0},
        {"state": "NODE_FAIL", "exit_code": 1},
        {"state": "FAILED", "exit_code": 0},
        {"state": "FAILED", "exit_code": 1, "reason": "JobLaunchFailure"},
    ],
)
def test_a_start_that_slurm_ended_as_it_drained_its_node_was_refused(make, end):
    """Slurm's launch failure has a code of its own at times."""
    at = make.start + timedelta(seconds=3)
    info = records.Severity.INFO
    failed = make.event(at=at, kind="slurmd", code="prolog_failed", source="slurm", severity=info)
    attempt = make.attempt(**end, end_at=make.start + timedelta(seconds=5))
    assert make.judge(failed, attempt=attempt).cause == "node_refused"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("timeout --signal=KILL 3 python3 -c 'x'", "user_error"),
        ("timeout -k 5 3 ./solve", "user_error"),
        ("timeout 3 ./solve", "rank_killed"),
        ("./timeout.sh -k 5 3", "rank_killed"),
    ],
)
def test_a_timeout_that_kills_with_sigkill_is_named_as_the_killer(make, command, cause):
    """timeout(1) kills itself with its command then, and the shell's message quotes it."""
    line = f"run.sh: line 3:  8396 Killed                  {command}"
    killed = make.finding("oom_kill_suspected", node="n2", message=line, detail={"first_cause": True})
    v = make.judge(killed, attempt=make.attempt(nodes=("n2",), exit_code=137))
    assert v.cause == cause
    assert f"`{command}`" in v.summary
    assert ("timeout(1)" in v.summary) is (cause == "user_error")


def test_an_end_by_a_sent_signal_alone_is_a_whole_sentence(make):
    v = make.judge(attempt=make.attempt(nodes=("n2",), exit_code=0, exit_signal=9))
    assert v.summary == "The program was ended by signal 9 (SIGKILL), with no fault beside it; nothing shows who sent the signal."  # fmt: skip


def test_an_exception_is_quoted_with_the_one_that_was_raised_from_it(make):
    """The first says why, the second is the program's own word for it."""
    detail = {"exception": "KeyError", "role": "root", "domains": ["user_program"], "first_cause": True}
    both = make.finding("python_exception", node="n2", message="KeyError: 'a'", detail={**detail, "raised_as": "DataExhausted: shard 7 empty"})  # fmt: skip
    v = make.judge(both, attempt=make.attempt(exit_code=1))
    assert (
        v.summary
        == "The program failed by itself: KeyError: 'a', which it raised on as DataExhausted: shard 7 empty."
    )


def test_an_exception_of_java_is_quoted_with_the_last_cause_of_its_stack(make):
    """There its readers look first."""
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True, "caused_by": "java.io.IOException: no input"}  # fmt: skip
    found = make.finding("program_error", node="n2", message="org.x.JobException: failed", detail=detail)
    v = make.judge(found, attempt=make.attempt(exit_code=1))
    assert v.summary == "The program failed by itself: org.x.JobException: failed, caused by java.io.IOException: no input."  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "tasks", "where"),
    [
        (5, {5: "n2"}, " in rank 5 on n2:"),
        (1, {1: "n1", 6: "n2"}, " in rank 1 on n1:"),
        (1, {1: "n2"}, " in rank 1:"),
        (5, {}, " in rank 5:"),
        (None, {5: "n2"}, " by itself:"),
    ],
)
def test_the_rank_of_an_error_is_named_and_its_node_where_each_rank_is_a_task(make, rank, tasks, where):
    """A line of one task a node may be of a launcher, whose ranks have other numbers."""
    error = make.finding("python_exception", message="KeyError: 'lr'", detail={"role": "root", "domains": ["user_program"], "first_cause": True} | ({} if rank is None else {"rank": rank}))  # fmt: skip
    lines = [make.finding("task_exit", message=f"srun: error: {n}: task {t}: Exited with exit code 1", detail={"role": "exit", "rank": t, "tasks": str(t), "host": n, "exit_code": 1}) for t, n in tasks.items()]  # fmt: skip
    assert f"{where} KeyError: 'lr'." in make.judge(error, *lines).summary


def test_a_rank_that_an_errors_words_name_is_named_once(make):
    error = make.finding("python_exception", message="RuntimeError: rank 5: bad shape", detail={"role": "root", "domains": ["user_program"], "first_cause": True, "rank": 5})  # fmt: skip
    assert make.judge(error).summary.count("rank 5") == 1
