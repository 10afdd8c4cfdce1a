"""Every rule and every cause has a case that only it explains."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from probing_cluster.attribution.verdict import judge, rules, taxonomy, view_builder
from probing_cluster.attribution.verdict.rules import gang
from probing_cluster.core import records, vocabulary

LOW, INFO = records.Severity.LOW, records.Severity.INFO


def snapshots(make, **of_the_second):
    """Rank 0 waits in a collective that rank 1, elsewhere in the user's code (or as told), never entered."""

    def entry(rank: int, seq: int, left: bool, function: str, **more: object) -> dict:
        call = {"group": "world", "seq": seq, "op": "all_reduce", "numel": 8, "group_size": 2, "left": left}
        frame = {"function": function, "file": "/home/alice/train.py", "line": 7}
        return {
            "rank": rank,
            "pid": 10 + rank,
            "alive": True,
            "state": "R",
            "phase": "step",
            "calls": [call],
            "stack": [frame],
            **more,
        }

    ranks = [("n1", entry(0, 4, False, "wait")), ("n2", entry(1, 3, True, "preprocess", **of_the_second))]
    common = {"source": "probe"}
    return [
        make.finding("rank_snapshot", 20, node=n, detail={"ranks": [e], "world_size": 2}, **common)
        for n, e in ranks
    ]


def digests(make):
    """Flight-recorder digests of two nodes: rank 1 did not issue what rank 0 waits for."""
    call = {"group": "0", "seq": 4, "op": "all_reduce", "state": "scheduled", "created_ns": 9}
    entries = [(0, 4, [call]), (1, 3, [])]
    return [
        make.finding(
            "dump",
            2,
            node=f"n{rank + 1}",
            source="dump",
            detail={
                "rank": rank,
                "groups": {"0": {"enqueued": enqueued, "started": -1, "completed": 3, "size": 2}},
                "outstanding": waiting,
            },
        )
        for rank, enqueued, waiting in entries
    ]


def build(make, name):
    """(events, attempt, other fields) of the smallest case of a cause; None = every case by its cause."""
    sysfs = {"source": "sysfs"}
    failed = make.attempt()
    one = {
        "gpu_lost": ([make.xid(79)], failed, {}),
        "gpu_row_remap_failure": ([make.xid(64)], failed, {}),
        "gpu_memory_contained": ([make.xid(94, severity=LOW)], failed, {}),
        "gpu_memory_uncorrectable": ([make.xid(48)], failed, {}),
        "gpu_nvlink": ([make.xid(74)], failed, {}),
        "nvswitch": ([make.event(kind="sxid", code="20034", device="nvswitch0")], failed, {}),
        "gpu_gsp_timeout": ([make.xid(119)], failed, {}),
        "gpu_driver": ([make.xid(62, severity=LOW)], failed, {}),
        "gpu_xid": ([make.xid(57), make.finding("watchdog_timeout")], failed, {}),
        "pcie": ([make.event(kind="pcie_aer", code="fatal", pci_bus_id="0000:10:00.0")], failed, {}),
        "ib_link": ([make.event(kind="ib_link", code="port_down", device="mlx5_0", **sysfs)], failed, {}),
        "eth_link": (
            [
                make.event(kind="eth_link", code="link_down", device="eth0"),
                make.finding("tcpstore_disconnect"),
            ],
            failed,
            {},
        ),
        "filesystem_mount": ([make.event(kind="mount", device="/data", source="mount")], failed, {}),
        "disk": ([make.event(kind="block_io", code="nvme_disabled", device="nvme0")], failed, {}),
        "main_memory": ([make.event(kind="edac", code="UE")], failed, {}),
        "cpu_mce": ([make.event(kind="mce", code="uncorrected")], failed, {}),
        "thermal_power": ([make.event(kind="thermal", code="critical")], failed, {}),
        "kernel_panic": ([make.event(kind="panic", code="panic")], failed, {}),
        "node_lost": (
            [make.event(0, kind="agent_silent", source="agent", node="n2")],
            make.attempt(state="NODE_FAIL", failed_node="n2"),
            {},
        ),
        "node_reboot": ([make.event(kind="node_boot", source="agent")], failed, {}),
        "node_set_down": (
            [make.event(0, kind="node_set_down", source="slurm", severity=records.Severity.INFO)],
            make.attempt(state="NODE_FAIL", failed_node="n2"),
            {},
        ),
        "node_refused": (
            [],
            make.attempt(state="REQUEUED"),
            {"actions": (make.action("refuse", job_id=4242, after_end_s=0),)},
        ),
        "system_services": (
            [
                make.event(kind="service", code="nvidia-fabricmanager", source="service"),
                make.finding("watchdog_timeout"),
            ],
            failed,
            {},
        ),
        "oom_host": (
            [make.event(kind="oom", code="memcg", job_id=4242)],
            make.attempt(state="OUT_OF_MEMORY"),
            {},
        ),
        "oom_gpu": ([make.finding("cuda_oom")], failed, {}),
        "user_error": ([make.finding("python_traceback")], failed, {}),
        "collective_mismatch": ([make.finding("collective_mismatch")], failed, {}),
        "missing_rank": ([*snapshots(make), *digests(make)], failed, {}),
        "rank_killed": (snapshots(make, alive=False), failed, {}),
        "rank_stopped": (snapshots(make, state="T"), failed, {}),
        "time_limit": ([], make.attempt(state="TIMEOUT"), {}),
        "user_cancelled": ([], make.attempt(state="CANCELLED"), {}),
        "preempted": ([], make.attempt(state="PREEMPTED"), {}),
        "requeued_by_user": ([], make.attempt(state="REQUEUED"), {}),
        "unknown": ([make.finding("watchdog_timeout")], failed, {}),
    }
    return one if name is None else one[name]


def test_every_cause_has_a_case(make):
    """The one test that asks for the case of a new cause: a line in `build`."""
    assert taxonomy.load().causes.keys() - build(make, None).keys() == set()


@pytest.mark.parametrize("word", sorted(taxonomy.load().causes))
def test_each_cause_has_a_smallest_case(make, word):
    """The verdict of that case is the cause, with the taxonomy's domain and a filled-in next step."""
    if word not in build(make, None):
        pytest.skip("test_every_cause_has_a_case asks for it")
    events, attempt, more = build(make, word)
    verdict = make.judge(*events, attempt=attempt, **more)
    assert verdict.cause == word
    assert verdict.domain is taxonomy.cause(word).domain
    assert verdict.next_step
    assert "{" not in verdict.summary + verdict.next_step + "".join(verdict.ruled_out)
    assert verdict.summary.endswith(".")
    node_events = [e.event_id for e in events if e.source not in vocabulary.JOB_SIDE_SOURCES]
    if node_events:
        assert set(node_events) <= set(verdict.evidence)


@pytest.mark.parametrize("name", sorted(rules.registered()))
def test_every_rule_says_something_and_something_only_about_its_business(make, name):
    """Each rule file makes at least one claim among the smallest cases, and none for an empty COMPLETED scene."""
    rule = rules.registered()[name]
    made = set()
    blocked = make.event(
        9000, kind="hung_task", code="blocked", message="INFO: task python:7 blocked for more"
    )
    waited = {"stalls": (make.event(9100, kind="nfs", code="not_responding", device="home7"), blocked)}
    ended = make.attempt(state="TIMEOUT", start_at=make.end - timedelta(hours=4))
    for events, attempt, more in (*build(make, None).values(), ([], ended, waited)):
        made |= {c.cause for c in rule(view_builder.build(make.case(*events, attempt=attempt, **more)))}
    assert made
    uneventful = view_builder.build(make.case(attempt=make.attempt(state="COMPLETED", exit_code=0)))
    assert not list(rule(uneventful))


def test_flat_evidence_of_the_jobs_side_is_never_certain_hardware(make):
    """No finding alone, whatever its kind, makes a certain hardware verdict."""
    from probing_cluster.attribution.verdict import findings

    for kind in sorted(findings.kinds()):
        verdict = make.judge(make.finding(kind))
        if verdict.domain is records.Domain.HARDWARE:
            assert verdict.confidence is not records.Confidence.CERTAIN, kind


def test_the_rank_is_named_where_the_log_only_knows_what_happened(make):
    """The log reports a mismatch, the pages show the rank: one verdict with both as evidence."""
    call = {"group": "world", "seq": 4, "op": "broadcast", "numel": 8, "group_size": 2, "left": False}
    found = snapshots(make, calls=[call])
    third = make.finding("rank_snapshot", 20, node="n1", source="probe", detail={"ranks": [{**found[0].detail["ranks"][0], "rank": 2, "pid": 12}, *found[0].detail["ranks"]], "world_size": 3})  # fmt: skip
    log = make.finding("collective_mismatch")
    verdict = make.judge(third, found[1], log)
    assert verdict.cause == "collective_mismatch"
    assert "rank 1 on n2" in verdict.summary
    assert {third.event_id, found[1].event_id, log.event_id} <= set(verdict.evidence)
    assert "n2" not in make.judge(log).summary


def test_a_missing_rank_that_slurm_says_was_killed(make):
    """Its death was too near to the others' to be told apart by time; srun's line names its task."""
    found = snapshots(make, stack=[])
    assert make.judge(*found).cause != "rank_killed"
    srun = make.finding(
        "oom_kill_suspected", detail={"rank": 1, "tasks": "1", "host": "n2", "first_cause": False}
    )
    peer = make.finding("gloo_connection_closed", detail={"rank": 0, "first_cause": True})
    verdict = make.judge(*found, srun, peer)
    assert (verdict.cause, verdict.node) == ("rank_killed", "n2")
    assert "rank 1 on n2" in verdict.summary
    terminated = make.finding("process_terminated", detail={"rank": 1, "tasks": "1", "host": "n2"})
    assert make.judge(*found, terminated).cause != "rank_killed"


def test_a_dead_rank_that_slurm_says_was_killed(make):
    """The pages show the death and srun's line the signal: the verdict quotes it."""
    found = snapshots(make, alive=False)
    assert "its log says" not in make.judge(*found).summary
    line = "srun: error: n2: task 1: Killed"
    detail = {"rank": 1, "tasks": "1", "host": "n2", "first_cause": False}
    srun = make.finding("oom_kill_suspected", message=line, detail=detail)
    peer = make.finding("gloo_connection_reset", detail={"rank": 0, "first_cause": True})
    verdict = make.judge(*found, srun, peer)
    assert (verdict.cause, verdict.node) == ("rank_killed", "n2")
    assert "killed (SIGKILL)" in verdict.summary
    assert verdict.summary.endswith(f"its log says: {line}.")
    assert srun.event_id in verdict.evidence
    other = make.finding(
        "oom_kill_suspected", 2, message="srun: error: n1: task 0: Killed", detail={"rank": 0, "tasks": "0", "host": "n1"}
    )  # fmt: skip
    both = make.judge(*found, other, srun, peer)
    assert both.summary == verdict.summary
    assert other.event_id not in both.evidence
    segfault = make.finding("segfault", message="srun: error: n2: task 1: Segmentation fault", detail=detail)
    assert "was ended by a signal" in make.judge(*found, segfault, peer).summary


@pytest.mark.parametrize(("code", "killed"), [(137, True), (139, True), (143, False), (1, False)])
def test_a_missing_rank_whose_shell_says_that_it_was_killed(make, code, killed):
    """`srun bash train.sh`: of the task Slurm knows only what the shell returned, 128 and the signal."""
    exited = make.finding("task_exit", detail={"rank": 1, "tasks": "1", "host": "n2", "exit_code": code})
    assert (make.judge(*snapshots(make, stack=[]), exited).cause == "rank_killed") is killed


def left_early(make, waited_s=0.1):
    """Pages after the end: rank 1 left Python in order after call 3, and closed its connection; call 4 of rank 0 raised an error."""
    first, second = snapshots(make, phase="ended", alive=False, state=None, stack=None)
    (entry,) = first.detail["ranks"]
    call = {**entry["calls"][0], "left": True, "raised": True, "waited_s": waited_s}
    torn = {**entry, "calls": [call], "phase": "ended", "alive": False, "state": None, "stack": None}
    pages = [
        dataclasses.replace(e, at=make.end + timedelta(seconds=2), detail={**e.detail, "ranks": [r], "last": True})
        for e, r in ((first, torn), (second, second.detail["ranks"][0]))
    ]  # fmt: skip
    return [*pages, make.finding("gloo_connection_closed", detail={"rank": 0, "first_cause": True})]


@pytest.mark.parametrize("waited_s", [0.1, 3.0], ids=["at once", "after a wait"])
def test_a_rank_that_left_early_is_named_with_its_exit_code(make, waited_s):
    """srun names every task with another code than 0: rank 1 is not among them."""
    events = left_early(make, waited_s)
    verdict = make.judge(*events)
    assert (verdict.cause, verdict.confidence) == ("missing_rank", records.Confidence.POSSIBLE)
    assert "rank 1 on n2 left the program while the others went on" in verdict.summary
    exited = {"rank": 0, "tasks": "0", "host": "n1", "exit_code": 1, "first_cause": False}
    verdict = make.judge(*events, make.finding("task_exit", detail=exited))
    assert "rank 1 on n2 left without an error (exit code 0) while the others went on" in verdict.summary
    assert "end early" in verdict.next_step
    both = make.judge(*events, make.finding("task_exit", detail={**exited, "tasks": "0-1"}))
    assert "exit code 0" not in both.summary
    launchers = [
        dataclasses.replace(e, detail={**e.detail, "world_size": 16} if e.source == "probe" else e.detail)
        for e in events
    ]
    several = make.judge(*launchers, make.finding("task_exit", detail=exited))
    assert "exit code 0" not in several.summary  # task 0 may be a launcher of eight ranks


def claims_of_the_gang(make, *events, **over):
    """The causes that the ranks' pages argue for."""
    view = view_builder.build(make.case(*events, **over))
    assert view is not None
    return [claim.cause for claim in gang.rule(view)]


def test_the_next_step_of_a_missing_rank_says_where_to_look(make):
    """Rank, node, line and the command; without a stack no line, and of a requeued job no command: it would show its next start."""
    shown = snapshots(make, moved=True)
    step = make.judge(*shown).next_step
    assert step == (
        "Look at what rank 1 on n2 did last: preprocess (/home/alice/train.py:7). "
        "`probing-ctl stacks 4242 --last` shows the stacks of all its ranks."
    )
    array = make.attempt(array_job_id=4200, array_task_id=3)
    assert "`probing-ctl stacks 4200_3 --last`" in make.judge(*shown, attempt=array).next_step
    again = make.attempt(state="NODE_FAIL", exit_code=0)
    (claim,) = gang.rule(view_builder.build(make.case(*shown, attempt=again)))
    assert claim.next_step == "Look at what rank 1 on n2 did last: preprocess (/home/alice/train.py:7)."
    assert make.judge(*left_early(make)).next_step == "Look at what rank 1 on n2 did last."


def test_a_rank_that_left_after_its_own_exception_did_not_leave_early(make):
    """Python writes `ended` after an exception, too; the log shows it."""
    raised = make.finding("python_exception", detail={"exception": "ValueError", "role": "root", "domains": ["user_program"], "first_cause": True})  # fmt: skip
    assert claims_of_the_gang(make, *left_early(make)) == ["missing_rank"]
    assert claims_of_the_gang(make, *left_early(make), raised) == []
    assert make.judge(*left_early(make), raised).cause == "user_error"


def test_a_rank_that_saves_while_its_peer_has_left_waits_for_nobody(make):
    """Rank 0 writes the last checkpoint until the limit ends it; rank 1 had nothing more to do."""
    pages = left_early(make)[:2]
    (entry,) = pages[0].detail["ranks"]
    saving = {
        **entry,
        "phase": "checkpointing",
        "alive": True,
        "calls": [{**entry["calls"][0], "raised": False}],
    }
    pages[0] = dataclasses.replace(pages[0], detail={**pages[0].detail, "ranks": [saving]})
    ended = make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=None)
    assert claims_of_the_gang(make, *pages, attempt=ended) == []
    assert make.judge(*pages, attempt=ended).cause == "time_limit"


def test_nobody_is_told_to_use_the_probe_that_ran(make):
    """The ranks' pages are there and explain nothing."""
    last = make.finding("last_progress", 2, source="probe", detail={"rank": 0, "steps": 9, "phase": "ended"})
    peer = make.finding("gloo_timeout", detail={"first_cause": True})
    assert "with the probe" in make.judge(peer).next_step
    assert "with the probe" not in make.judge(peer, last).next_step


def test_a_rank_that_stopped_itself_is_its_programs_doing(make):
    """Nobody looks for a debugger: the verdict is the user's, with the line."""
    native = [
        {"function": "kill", "file": "libc.so.6"},
        {"function": "os_kill", "file": "libpython3.11.so.1.0"},
    ]
    verdict = make.judge(*snapshots(make, state="T", native=native))
    assert (verdict.cause, verdict.domain) == ("missing_rank", records.Domain.USER_PROGRAM)
    assert "rank 1 on n2 stopped by a signal from the program itself" in verdict.summary
    assert "train.py:7" in verdict.summary


@pytest.mark.parametrize(
    ("held", "domain", "words"),
    [
        ({"state": "T"}, "unknown", "stopped by a signal"),
        ({"state": "t"}, "unknown", "held by a tracer"),
        ({"state": "t", "traced_by_owner": False}, "unknown", "held by a tracer"),
        ({"state": "t", "traced_by_owner": True}, "user_program", "held by a tracer of its own user"),
        ({"state": "t", "traced_by_owner": "yes"}, "unknown", "held by a tracer"),
    ],
)
def test_a_rank_that_somebody_holds_is_no_fault_of_the_cluster_where_it_may_be_its_users_own_doing(
    make, held, domain, words
):
    """A script of the job's own stops a rank as a site's tool does, and the kernel keeps no sender."""
    verdict = make.judge(*snapshots(make, **held))
    assert (verdict.cause, verdict.domain, verdict.confidence) == ("rank_stopped", domain, "likely")
    assert words in verdict.summary
    assert ("The kernel does not record" in verdict.next_step) is (domain == "unknown")


def test_the_ranks_of_a_node_that_died_at_once(make):
    """srun has one line for them. With others in it, it says nothing: Slurm kills so what does not obey."""
    first, last = snapshots(make, stack=[])
    gone = [*last.detail["ranks"], {**last.detail["ranks"][0], "rank": 2, "pid": 12}]
    deaths = [
        dataclasses.replace(e, detail={**e.detail, "ranks": ranks, "world_size": 3})
        for e, ranks in ((first, first.detail["ranks"]), (last, gone))
    ]

    def killed(tasks, host):
        return make.finding("oom_kill_suspected", detail={"rank": 0, "tasks": tasks, "host": host})

    assert make.judge(*deaths).cause != "rank_killed"
    verdict = make.judge(*deaths, killed("1-2", "n2"))
    assert (verdict.cause, verdict.domain, verdict.node) == ("rank_killed", "unknown", "n2")
    assert "ranks 1-2 on n2" in verdict.summary
    assert "they were killed" in verdict.summary
    assert make.judge(*deaths, killed("1-2", "n2"), killed("0,3-4", "n1")).cause != "rank_killed"
    assert make.judge(*deaths, killed("0-2", "n2")).cause != "rank_killed"
    assert make.judge(*deaths, killed("1", "n2"), killed("2", "n2"), killed("0", "n1")).cause == "rank_killed"
    assert make.judge(*deaths, killed("1-x", "n2")).cause != "rank_killed"


def stalled(make, minutes=25.0):
    """Told five minutes into a hang that began so long before the end."""
    return make.finding("rank_stall", minutes * 60 - 300, node="n1", source="probe", measured=300.0)


def hang(make, **over):
    """The verdict on a gang whose rank 1 sits in the user's code, and that somebody then ended."""
    events = [*snapshots(make), stalled(make)]
    attempt = {"state": "CANCELLED", "exit_code": 0, "cancelled_by": "alice", **over.pop("attempt", {})}
    progress = make.end - timedelta(minutes=25)
    attempt["start_at"] = make.end - timedelta(hours=1)
    return make.judge(*events, attempt=make.attempt(**attempt), last_progress_at=progress, **over)


@pytest.mark.parametrize(
    ("attempt", "then"),
    [
        ({}, "it was cancelled by its user (alice)."),
        ({"cancelled_by": "root"}, "it was cancelled by root: by an administrator, or by Slurm itself."),
        ({"state": "TIMEOUT", "cancelled_by": None, "time_limit_s": None}, "it reached its time limit."),
    ],
)
def test_a_hung_job_that_is_then_ended_is_the_story_of_its_hang(make, attempt, then):
    """Since when, which rank, where it was, and only then who ended it; the stacks are its evidence."""
    v = hang(make, attempt=attempt)
    assert (v.cause, v.confidence) == ("missing_rank", records.Confidence.POSSIBLE)
    assert v.summary.startswith("Hung since 13:55:36Z, 25 min before the end: ")
    assert "rank 1" in v.summary
    assert "train.py:7" in v.summary
    assert v.summary.endswith(then)
    assert "on purpose" not in v.next_step
    assert len(v.evidence) >= 2


def test_a_stall_nobody_can_be_named_for_is_still_the_story_of_a_cancellation(make):
    """Without stacks it hung all the same: the person did not end it for nothing."""
    progress = make.end - timedelta(minutes=25)
    attempt = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice", start_at=make.end - timedelta(hours=1))  # fmt: skip
    v = make.judge(stalled(make), attempt=attempt, last_progress_at=progress)
    assert v.cause == "user_cancelled"
    assert v.confidence is not records.Confidence.CERTAIN
    assert v.summary.startswith("Hung since 13:55:36Z")
    assert "Find out why it hung" in v.next_step


def loss_of_hung(make, *more, stalled_s=90.0, silent_s=40.0, looked=True, step_s=None, **over):
    """The verdict on a gang whose stall was reported so long before the end, and one of whose nodes then went away."""
    attempt = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n1", start_at=make.end - timedelta(hours=1))  # fmt: skip
    stall = make.finding("rank_stall", stalled_s, node="n1", source="probe", measured=30.0)
    look = [dataclasses.replace(e, at=stall.at + timedelta(seconds=1)) for e in snapshots(make)] if looked else []  # fmt: skip
    gone = [make.event(silent_s, kind=kind, node="n1", source="agent", severity=INFO) for kind in ("agent_silent", "node_down")]  # fmt: skip
    death = make.finding("rank_dead", 5, node="n2", source="probe", severity=records.Severity.HIGH, pid=11, detail={"rank": 1, "pid": 11, "world_size": 2})  # fmt: skip
    watched = {"n1": gone[0].at, "n2": make.end + timedelta(seconds=30)}
    progress = make.end - timedelta(seconds=stalled_s + 30 if step_s is None else step_s)
    return make.judge(*look, stall, *gone, death, *more, attempt=attempt, watched=watched, last_progress_at=progress, **over)  # fmt: skip


def test_a_hang_stays_the_story_of_a_job_that_then_lost_a_node(make):
    """The stall was reported before the node went away: the crash clears no rank, and those that died of it did not die first."""
    v = loss_of_hung(make)
    assert (v.cause, v.node) == ("missing_rank", None)
    assert v.summary.startswith("Hung since 14:18:36Z, 2 min before the end: rank 1 on n2")
    assert v.summary.endswith("; then n1 stopped answering Slurm.")
    assert "died while the others went on" not in v.summary
    assert not [s for s in (*v.ruled_out, *v.less_likely) if "user program" in s or "node lost" in s]


def test_a_hang_of_which_nobody_knows_the_cause_is_named_beside_the_loss(make):
    """No look at the ranks came before the crash: the node is lost, the program is not cleared."""
    v = loss_of_hung(make, looked=False)
    assert (v.cause, v.node, v.confidence) == ("node_lost", "n1", records.Confidence.LIKELY)
    assert v.summary.startswith("Hung since 14:18:36Z")
    assert "what it waited for" in v.next_step
    assert not [s for s in v.ruled_out if s.startswith("user program")]


def test_a_stall_that_a_lost_node_made_is_no_hang_before_it(make):
    """The others wait for the node that is gone: they are reported as stalled only after its last sign."""
    v = loss_of_hung(make, stalled_s=10.0)
    assert (v.cause, v.confidence) == ("node_lost", records.Confidence.CERTAIN)
    assert v.summary.startswith("n1 stopped answering Slurm")
    again = make.finding("rank_stall", 10, node="n2", source="probe", measured=30.0)
    v = loss_of_hung(make, again, step_s=45.0)
    assert (v.cause, v.confidence) == ("node_lost", records.Confidence.CERTAIN), "the first stall was over"


def test_a_fault_under_the_next_job_takes_nothing_from_a_hang(make):
    """The GPU that it held fell off its bus when another job had it: the missing rank stays the verdict. If no other job ran, it may be why."""
    gone = make.xid(79, gpu=3, before_end_s=-34)
    begun = make.end + timedelta(seconds=10)
    shown = snapshots(make, moved=True)
    before = make.judge(*shown)
    later = make.judge(*shown, gone, shared={"n2": ((begun, None),)})
    assert (before.cause, before.evidence) == ("missing_rank", later.evidence)
    assert (later.cause, later.confidence, later.summary) == (before.cause, before.confidence, before.summary)
    assert make.judge(*shown, gone).cause != "missing_rank"


FAULTS_AFTER = {
    "mount": {"kind": "mount", "code": "error", "device": "/data", "source": "mount"},
    "ib_link": {"kind": "ib_link", "code": "port_down", "device": "mlx5_3", "source": "sysfs"},
    "eth_link": {"kind": "eth_link", "code": "link_down", "device": "eth0"},
    "lost gpu": {"kind": "xid", "code": "79", "device": "gpu3", "gpu_uuid": "GPU-n2-3-5f3c9e10"},
}


def fault_beside_a_hang(
    make,
    fault,
    before_end_s,
    state,
    *,
    looked=True,
    gone=None,
    hung_s=55,
    of_nodes=("n1", "n2"),
    shown=(),
    more=(),
):
    """Rank 1 on n2 sits in the user's code for the job's last 55 s; a fault of its node so long before the end."""
    stall = make.finding("rank_stall", 40, node="n1", source="probe", measured=hung_s - 40.0)
    look = (
        [dataclasses.replace(e, at=stall.at + timedelta(seconds=1)) for e in snapshots(make, **dict(shown))]
        if looked
        else []
    )
    look = [e for e in look if e.node in of_nodes]
    event = make.event(before_end_s, **(gone or FAULTS_AFTER[fault]))
    ended = {"state": state, "exit_code": int(state == "FAILED"), "cancelled_by": "alice" if state == "CANCELLED" else None}  # fmt: skip
    return make.judge(*look, stall, event, *more, attempt=make.attempt(**ended), last_progress_at=make.end - timedelta(seconds=hung_s))  # fmt: skip


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "FAILED"])
@pytest.mark.parametrize("fault", ["mount", "ib_link", "eth_link"])
def test_a_fault_that_began_after_the_end_takes_nothing_from_a_hang_that_was_named(make, fault, state):
    """The rank was named while the job ran, and what its user can do about it comes first; the fault is mentioned at most."""
    v = fault_beside_a_hang(make, fault, -34, state)
    assert v.cause == "missing_rank"
    assert "rank 1 on n2 did not arrive" in v.summary
    assert "stopped answering" not in v.summary
    assert v.next_step.startswith("Look at what rank 1 on n2 did last")
    if fault == "mount":  # two readings find one that was gone before
        assert fault_beside_a_hang(make, fault, -12, state).cause == "filesystem_mount"
    # One that came into the hang may have made it.
    during = fault_beside_a_hang(make, fault, 30, state)
    assert during.cause != "missing_rank"


OF_TEARDOWN = {
    "gpu_lost": {**FAULTS_AFTER["lost gpu"], "kind": "gpu_lost", "code": "nvml", "source": "nvml"},
    **{
        f"xid {code}": {**FAULTS_AFTER["lost gpu"], "code": code}
        for code in ("48", "62", "74", "79", "95", "119")
    },
}


@pytest.mark.parametrize("hung_s", [55, 250, 900])
@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "FAILED"])
@pytest.mark.parametrize("fault", OF_TEARDOWN)
def test_a_gpus_fault_just_after_a_hang_is_named(make, fault, state, hung_s):
    """Its driver notices when the process that waited for it is killed; the rank's state D is no file system's then."""
    for held in ({}, {"state": "D", "wchan": "nvidia_ioctl"}):
        v = fault_beside_a_hang(make, fault, -28, state, gone=OF_TEARDOWN[fault], hung_s=hung_s, shown=held)
        assert v.cause.startswith("gpu_")
        assert "after the job ended" in v.summary
        likely = fault == "gpu_lost" and hung_s < 300
        assert v.confidence is (records.Confidence.LIKELY if likely else records.Confidence.POSSIBLE)


def test_a_gpus_fault_just_after_a_hang_is_named_although_nobody_saw_its_rank(make):
    """That a node's report is missing says nothing of its parts."""
    for fault in ("mount", "lost gpu", "ib_link"):
        v = fault_beside_a_hang(make, fault, -4, "FAILED", of_nodes=("n1",))
        assert v.cause not in ("missing_rank", "unknown")


def test_a_gpus_fault_on_another_node_just_after_a_long_hang_explains_no_missing_rank(make):
    """It is mentioned; that nothing explains the hang is not."""
    other = {**FAULTS_AFTER["lost gpu"], "node": "n1", "gpu_uuid": make.uuid("n1", 3)}
    v = fault_beside_a_hang(make, "", -28, "FAILED", gone=other, hung_s=900)
    assert v.cause == "missing_rank"
    assert "nothing on their nodes" not in v.summary
    assert "nothing on their nodes" in fault_beside_a_hang(make, "mount", -34, "FAILED", hung_s=900).summary


def test_a_machine_check_just_after_a_hang_is_named(make):
    """As of GPUs."""
    mce = {"kind": "mce", "code": "uncorrected", "device": "cpu0"}
    for hung_s in (55, 900):
        assert fault_beside_a_hang(make, "", -5, "FAILED", gone=mce, hung_s=hung_s).cause == "cpu_mce"


def test_a_late_fault_stands_behind_the_gang_alone(make):
    """It still stands before what stands behind the gang itself."""
    flap = make.event(50, node="n1", **FAULTS_AFTER["eth_link"])
    v = fault_beside_a_hang(make, "mount", -34, "CANCELLED", shown={"alive": False}, more=(flap,))
    assert v.cause == "rank_killed"
    assert [s.split(" on ")[0] for s in v.less_likely] == ["filesystem mount", "eth link"]


def test_a_fault_after_the_end_of_a_hang_that_nobody_was_named_for_is_named(make):
    """Nothing better is known."""
    v = fault_beside_a_hang(make, "mount", -34, "FAILED", looked=False)
    assert v.cause == "filesystem_mount"
    assert "after the job ended" in v.summary


def test_a_stall_that_was_over_is_not_why_a_job_was_cancelled(make):
    """It trained on until a person ended it."""
    attempt = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice", start_at=make.end - timedelta(hours=1))  # fmt: skip
    last = make.end - timedelta(seconds=3)
    v = make.judge(stalled(make), attempt=attempt, last_progress_at=last)
    assert (v.cause, v.confidence) == ("user_cancelled", records.Confidence.CERTAIN)
    assert "Hung" not in v.summary


def link_into_the_hang(make, after_s, state):
    """Rank 1 sleeps in the user's code for 15 minutes; so long after its last progress a link of its node goes down."""
    began = make.end - timedelta(minutes=15)
    stall = make.finding("rank_stall", 14.5 * 60, node="n1", source="probe", measured=30.0)
    look = [dataclasses.replace(e, at=stall.at) for e in snapshots(make)]
    down = make.event(kind="ib_link", code="port_down", device="mlx5_3", source="sysfs", at=began + timedelta(seconds=after_s))  # fmt: skip
    ended = {"state": state, "exit_code": int(state == "FAILED"), "start_at": make.end - timedelta(hours=1)}
    if state == "REQUEUED":
        requeue = (make.action("requeue", -1, job_id=4242, event_ids=(down.event_id,)),)
        return make.judge(*look, stall, down, attempt=make.attempt(**ended), last_progress_at=began, actions=requeue)  # fmt: skip
    return make.judge(*look, stall, down, attempt=make.attempt(**ended), last_progress_at=began)


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "FAILED"])
def test_a_link_that_fails_into_a_hang_is_not_its_cause(make, state):
    """The ranks' own stall dates the last progress; a link is found down within seconds of its failure."""
    assert link_into_the_hang(make, 20, state).cause == "ib_link"
    for after_s in (107, 129, 600):
        v = link_into_the_hang(make, after_s, state)
        assert v.cause == "missing_rank"
        assert "rank 1 on n2 did not arrive" in v.summary


@pytest.mark.parametrize(
    ("bound_s", "after_s", "cause"),
    [(450, 90, "ib_link"), (450, 200, "ib_link"), (450, 300, "time_limit"), (30, 90, "time_limit")],
)
def test_a_link_may_fail_within_a_long_step_after_the_last_progress(make, bound_s, after_s, cause):
    """Steps of 150 s: the gang needs the link only when it has computed. Of fast steps, or minutes later, it already hung."""
    detail = {"phase": "training", "steps": 400}
    stall = make.finding("rank_stall", 900, node="n1", source="probe", measured=bound_s, threshold=bound_s, detail=detail)  # fmt: skip
    began = stall.at - timedelta(seconds=bound_s)
    down = make.event(kind="ib_link", code="port_down", device="mlx5_3", source="sysfs", at=began + timedelta(seconds=after_s))  # fmt: skip
    attempt = make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=20 * 3600.0, start_at=make.end - timedelta(hours=20))  # fmt: skip
    v = make.judge(stall, down, attempt=attempt, last_progress_at=began)
    assert v.cause == cause


def test_a_link_for_which_we_requeued_a_hanging_job_does_not_clear_its_program(make):
    """Our requeue ended the job. It already hung then, so nothing is certain and the program is not ruled out."""
    for after_s in (129, 600):
        v = link_into_the_hang(make, after_s, "REQUEUED")
        assert (v.cause, v.confidence) == ("ib_link", records.Confidence.LIKELY)
        assert "when it already hung" in v.summary
        assert not any(line.startswith("user program") for line in v.ruled_out)


def test_a_hang_that_nobody_is_named_for_does_not_clear_the_program_either(make):
    """The ranks' stacks are missing: what they waited for before the link failed may be their program. The step is the link's."""
    began = make.end - timedelta(minutes=15)
    stall = make.finding("rank_stall", 14.5 * 60, node="n1", source="probe", measured=30.0)
    down = make.event(kind="ib_link", code="port_down", device="mlx5_3", source="sysfs", at=began + timedelta(minutes=5))  # fmt: skip
    requeue = make.action("requeue", -1, job_id=4242, event_ids=(down.event_id,))
    ended = make.attempt(state="REQUEUED", exit_code=0, start_at=make.end - timedelta(hours=1))
    v = make.judge(stall, down, attempt=ended, last_progress_at=began, actions=(requeue,))
    assert v.cause == "ib_link"
    assert not any("user program" in line for line in v.ruled_out)
    assert v.next_step.startswith("Check cable, optics and switch port of mlx5_3")


def test_a_gpu_may_be_found_lost_minutes_into_a_hang(make):
    """Only links are found down within seconds: the driver reports a GPU after its own timeouts."""
    began = make.end - timedelta(minutes=15)
    stall = make.finding("rank_stall", 14.5 * 60, node="n1", source="probe", measured=30.0)
    ended = make.attempt(state="TIMEOUT", exit_code=0, start_at=make.end - timedelta(hours=1))
    for after_s, confidence in ((120, records.Confidence.LIKELY), (400, records.Confidence.POSSIBLE)):
        v = make.judge(stall, make.xid(79, 3, 15 * 60 - after_s), attempt=ended, last_progress_at=began)
        assert (v.cause, v.confidence) == ("gpu_lost", confidence)


def test_a_gang_that_stalled_again_hangs_since_its_last_progress(make):
    """It went on after the first stall, and not after the second."""
    first, second = stalled(make, 25), stalled(make, 15)
    ended = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice", start_at=make.end - timedelta(hours=1))  # fmt: skip
    v = make.judge(first, second, attempt=ended, last_progress_at=make.end - timedelta(minutes=15))
    assert v.summary.startswith("Hung since 14:05:36Z, 15 min before the end")


def gone_after(make, after_s, source="mount", device="/scratch"):
    """A mount that its node's agent, or a check, found gone after the job's end."""
    kind, code = ("mount", "missing") if source == "mount" else ("check", "mount_present")
    return make.event(-after_s, kind=kind, code=code, source=source, device=device)


@pytest.mark.parametrize("source", ["mount", "check"])
@pytest.mark.parametrize("after_s", [1, 3, 9, 20])
def test_a_mount_found_gone_soon_after_the_job_that_worked_under_it_ended_it(make, after_s, source):
    """Nothing but an exit code is left of it: readings take their time, and the job's own directory was there."""
    attempt = make.attempt(work_dir="/scratch/alice")
    found = make.judge(gone_after(make, after_s, source), attempt=attempt)
    assert (found.cause, found.node) == ("filesystem_mount", "n2")
    assert found.confidence in (records.Confidence.LIKELY, records.Confidence.CERTAIN)


@pytest.mark.parametrize(
    ("after_s", "work_dir", "device", "error"),
    [
        (20, "/home/alice", "/scratch", None),
        (90, "/scratch/alice", "/scratch", None),
        (9, "/scratchy", "/scratch", None),
        (1, "/scratch/alice", "/scratch", "KeyError: 'labels'"),
        (9, "/scratch/alice", "/scratch", "KeyError: 'labels'"),
    ],
    ids=["another mount", "long after", "a name like it", "its own bug", "its own bug, later"],
)
def test_a_mount_that_went_by_chance_after_the_end_brings_nobody_back(make, after_s, work_dir, device, error):
    """Of a mount it did not work under, or that went later, or beside a bug of the program's own, nobody is sure."""
    own = (
        [make.finding("python_exception", 2, message=error, detail={"exception": "KeyError"})]
        if error
        else []
    )
    found = make.judge(
        gone_after(make, after_s, device=device), *own, attempt=make.attempt(work_dir=work_dir)
    )
    sure = found.confidence in (records.Confidence.LIKELY, records.Confidence.CERTAIN)
    assert not (found.cause == "filesystem_mount" and sure)
    assert error is None or found.cause == "user_error"


@pytest.mark.parametrize(
    ("address", "again", "is_over"),
    [
        (None, {"kind": "service", "code": "recovered"}, False),
        ("0000:50:00.0", {"kind": "service", "code": "recovered"}, False),
        ("0000:50:00.0", {"kind": "pcie_aer", "code": "recovered", "pci_bus_id": "0000:51:00.0"}, False),
        ("0000:50:00.0", {"kind": "pcie_aer", "code": "recovered", "pci_bus_id": "0000:50:00.0"}, True),
        ("0000:50:00.0", {"kind": "pcie_aer", "code": "recovered"}, True),
    ],
)
def test_only_a_recovery_of_the_same_fault_ends_it(make, address, again, is_over):
    """Of before the start: a service that runs again says nothing of a PCIe link, nor does another slot."""
    fault = make.event(400, kind="pcie_aer", code="fatal", pci_bus_id=address)
    info = {"severity": records.Severity.INFO, "detail": {"recovered": True}}
    back = make.event(390, **again, **info)
    case = {"attempt": make.attempt(start_at=make.end - timedelta(seconds=300))}
    assert make.judge(fault, **case).cause == "pcie"
    found = make.judge(fault, back, **case)
    assert (found.cause == "user_error") is is_over, found.summary


@pytest.mark.parametrize("work_dir", ["/home/alice", "/scratch/alice"])
@pytest.mark.parametrize("end", [{"exit_code": 0, "exit_signal": 11}, {"exit_code": 139}, {"exit_code": 136}])
def test_a_crash_is_not_explained_by_what_broke_after_it(make, end, work_dir):
    """Neither while the mount hangs nor once it answers again; beside an exit code that explains nothing it stays possible."""
    disk = make.event(-30, kind="block_io", code="nvme_disabled", device="nvme0")
    again = make.event(-90, kind="mount", code="recovered", source="mount", device="/scratch", severity=records.Severity.INFO)  # fmt: skip
    attempt = make.attempt(work_dir=work_dir, **end)
    for events in ((), (gone_after(make, 18), disk), (gone_after(make, 18), disk, again)):
        found = make.judge(*events, attempt=attempt)
        assert (found.cause, found.confidence) == ("user_error", records.Confidence.LIKELY)
    plain = make.attempt(work_dir=work_dir, exit_code=1)
    assert make.judge(gone_after(make, 18), make.finding("segfault"), attempt=plain).cause == "user_error"
    assert make.judge(gone_after(make, 18), attempt=plain).cause == "filesystem_mount"


def test_a_part_lost_after_an_error_of_the_language_leaves_it_as_sure_as_it_was(make):
    """A KeyError that ended the job is certain, whatever its GPU does ten seconds later; bad memory makes a program crash."""
    detail = {"exception": "KeyError", "first_cause": True, "role": "root", "domains": ["user_program"]}
    error = make.finding("python_exception", 2, message="KeyError: 'labels'", detail=detail)
    lost = make.event(-10, kind="gpu_lost", code="GPU_IS_LOST", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3))  # fmt: skip
    alone, beside = make.judge(error), make.judge(error, lost)
    assert (beside.cause, beside.confidence) == (alone.cause, alone.confidence)
    memory = make.event(-10, kind="edac", code="UE", source="ipmi", device="DIMM_A1")
    assert make.judge(memory, attempt=make.attempt(exit_code=139)).cause == "main_memory"


def test_a_neighbour_that_began_just_before_the_end_does_not_take_what_came_after_it(make):
    """Only an event from the end or later may be its effect."""
    found = {}
    for before_s in (2, 0):
        begun = make.end - timedelta(seconds=before_s)
        case = make.case(gone_after(make, 4), attempt=make.attempt(), shared={"n2": ((begun, None),)})
        found[before_s] = judge.judge(case, made_at=make.end + timedelta(minutes=1)).cause
    assert found == {2: "filesystem_mount", 0: "user_error"}


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"exit_code": 137}, "rank_killed"),
        ({"exit_code": 9}, "user_error"),
        ({"exit_code": 0, "exit_signal": 9}, "rank_killed"),
        ({"exit_code": 143}, "rank_killed"),
        ({"exit_code": 0, "exit_signal": 15}, "rank_killed"),
        ({"exit_code": 0, "exit_signal": 2}, "rank_killed"),
        ({"exit_code": 139}, "user_error"),
        ({"exit_code": 134}, "user_error"),
        ({"exit_code": 1}, "user_error"),
    ],
)
def test_a_signal_that_somebody_sends_is_no_mistake_of_the_program(make, end, cause):
    """Nothing else is known, not even the sender: the confidence is low."""
    verdict = make.judge(attempt=make.attempt(**end))
    assert verdict.cause == cause
    assert cause == "user_error" or verdict.confidence is records.Confidence.POSSIBLE


@pytest.mark.parametrize(
    ("end", "launcher", "cause"),
    [
        ({"exit_code": 143}, True, "unknown"),
        ({"exit_code": 0, "exit_signal": 15}, True, "unknown"),
        ({"exit_code": 143}, False, "rank_killed"),
        ({"exit_code": 137}, True, "rank_killed"),
    ],
)
def test_a_launcher_that_was_told_to_end_lost_no_process(make, end, launcher, cause):
    """Who ends the launcher ends them all; a rank's own word of a signal, or a kill behind it, says no such thing."""
    ended = make.finding("process_terminated", detail={"told_to_end": True} if launcher else {})
    verdict = make.judge(ended, attempt=make.attempt(**end))
    assert verdict.cause == cause
    assert cause != "unknown" or "launcher got SIGTERM" in verdict.summary


@pytest.mark.parametrize(
    ("by_log", "ends_s", "cause"),
    [
        (False, 60, "rank_killed"),
        (False, None, "oom_host"),
        (True, 60, "rank_killed"),
        (True, -60, "rank_killed"),
        (True, -86400, "oom_host"),
    ],
)
def test_a_bare_killed_is_memory_only_where_the_kernel_was_not_watched(make, by_log, ends_s, cause):
    """A kernel that kills for memory says so: to an agent, and in a log that holds something of the job's time."""
    at = None if ends_s is None else make.end + timedelta(seconds=ends_s)
    state = {"watched": {} if at is None else dict.fromkeys(("n1", "n2"), at), "by_log": frozenset({"n1", "n2"} if by_log else ())}  # fmt: skip
    killed = make.finding("oom_kill_suspected", detail={"first_cause": True})
    assert make.judge(killed, attempt=make.attempt(exit_code=137), **state).cause == cause
    oom = make.finding("slurm_oom", detail={"first_cause": True})
    assert make.judge(oom, attempt=make.attempt(exit_code=137)).cause == "oom_host"


@pytest.mark.parametrize(
    ("detail", "attempt", "cause"),
    [
        ({"rank": 3}, {}, "user_error"),
        ({"rank": 3}, {"state": "DEADLINE"}, "user_error"),
        ({"rank": 3, "survived": True}, {}, "time_limit"),
        ({}, {}, "time_limit"),
        ({"rank": 0}, {"nodes": ("n1",), "n_gpus": 1}, "time_limit"),
    ],
)
def test_an_exception_of_one_rank_is_why_the_others_waited_to_the_limit(make, detail, attempt, cause):
    """Without other ranks, or if the training went on, the limit ended it."""
    raised = make.finding("python_traceback", detail={"first_cause": True, **detail})
    verdict = make.judge(raised, attempt=make.attempt(**{"state": "TIMEOUT", **attempt}))
    assert verdict.cause == cause
    assert cause == "time_limit" or verdict.confidence is not records.Confidence.CERTAIN


@pytest.mark.parametrize("state", ["TIMEOUT", "DEADLINE", "CANCELLED"])
def test_a_part_that_failed_long_before_the_limit_and_stayed_so_leaves_nothing_certain(make, state):
    """It lies outside the window; unless it was seen to come back, nobody can say that it did no harm."""
    ended = make.attempt(
        state=state, start_at=make.end - timedelta(hours=9), submit_at=make.end - timedelta(hours=9)
    )
    down = make.event(8 * 3600, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    back = make.event(8 * 3600 - 60, kind="ib_link", code="port_up", device="mlx5_0", source="sysfs", severity=INFO)  # fmt: skip
    word = records.Confidence.CERTAIN
    assert make.judge(down, attempt=ended).confidence is not word
    assert make.judge(down, back, attempt=ended).confidence == make.judge(attempt=ended).confidence


def test_a_rank_that_tells_of_the_fault_itself_had_not_hung_before_it(make):
    """Its peers gave up right away, so the timeout that they print is not how long they had waited."""
    felt = make.finding("cuda_ecc", 12, detail={"rank": 13, "first_cause": True})
    peers = make.finding("watchdog_timeout", detail={"timeout_ms": 600_000})
    verdict = make.judge(make.xid(94, severity=LOW), felt, peers)
    assert verdict.cause in ("gpu_memory_contained", "gpu_memory_uncorrectable")
    assert verdict.confidence is not records.Confidence.UNKNOWN


@pytest.mark.parametrize(
    ("other", "cause"), [("nvme0n1", "disk"), ("nvme3", "pcie")], ids=["one drive", "two drives"]
)
def test_a_drive_that_vanished_is_no_fault_of_the_bus(make, other, cause):
    """One drive tells of itself as controller and name space; two that go at once have a part above them."""
    gone = [make.event(kind="block_io", code="nvme_disabled", device=name) for name in ("nvme0", other)]
    link = make.event(kind="pcie_link", code="inaccessible", device="0000:e1:00.0")
    attempt = make.attempt(state="FAILED", exit_code=1)
    assert make.judge(*gone, link, attempt=attempt).cause == cause


def test_a_node_that_others_filled_as_well_makes_no_job_certain(make):
    """The kernel chose its process when the whole node ran out of memory: that accuses no job."""
    killed = make.event(2, kind="oom", code="global", job_id=4242)
    whole = {"n2": ((make.start, None),)}
    shared = make.judge(killed, attempt=make.attempt(exit_code=137), shared=whole)
    assert (shared.cause, shared.node, str(shared.confidence)) == ("oom_host", "n2", "likely")
    assert "other jobs ran there as well" in shared.summary
    alone = make.judge(killed, attempt=make.attempt(exit_code=137))
    assert (alone.cause, str(alone.confidence)) == ("oom_host", "certain")
    own = make.judge(make.event(2, kind="oom", code="memcg", job_id=4242), attempt=make.attempt(exit_code=137), shared=whole)  # fmt: skip
    assert str(own.confidence) == "certain"


def test_a_process_of_the_system_that_the_kernel_killed_was_not_the_jobs(make):
    """A whole node's memory ran out: more memory for the job would not have helped."""
    detail = {"task_memcg": "/system.slice/prometheus.service"}
    daemon = make.event(2, kind="oom", code="global", process="prometheus", detail=detail)
    verdict = make.judge(daemon, attempt=make.attempt(exit_code=0, exit_signal=9))
    assert (verdict.cause, verdict.domain, str(verdict.confidence)) == ("oom_host", "unknown", "possible")
    assert "not the job's (prometheus)" in verdict.summary
    assert verdict.next_step.startswith("Find what filled the node")
    own = make.event(2, kind="oom", code="global", job_id=4242, detail={"task_memcg": "/slurm/job_4242"})
    assert make.judge(daemon, own, attempt=make.attempt(exit_code=0, exit_signal=9)).domain == "user_program"


@pytest.mark.parametrize(
    ("group", "exit_code", "cause", "word"),
    [
        ("/system.slice/backup.service", 1, "user_error", "likely"),
        ("/system.slice/docker-ab12.scope", 1, "oom_host", "possible"),
        ("/system.slice/backup.service", 137, "rank_killed", "possible"),
    ],
)
def test_a_service_that_met_its_own_limit_ended_no_job(make, group, exit_code, cause, word):
    killed = make.event(2, kind="oom", code="memcg", process="rsync", detail={"task_memcg": group})
    verdict = make.judge(killed, attempt=make.attempt(exit_code=exit_code))
    assert (verdict.cause, str(verdict.confidence)) == (cause, word)
    assert "main memory as a whole" not in verdict.summary


def test_an_old_error_that_the_kernel_repeats_daily_is_no_cause(make):
    """ext4 names what it recorded, maybe years ago, once a day until somebody checks the file system."""
    old = make.event(-30, kind="block_io", code="fs_recorded", severity=records.Severity.INFO, device="sda1")
    ended = make.attempt(exit_code=3)
    with_it, alone = make.judge(old, attempt=ended), make.judge(attempt=ended)
    assert (with_it.cause, with_it.summary, with_it.less_likely) == (
        alone.cause,
        alone.summary,
        alone.less_likely,
    )


def test_a_file_system_that_went_read_only_convicts_no_drive(make):
    damaged = make.event(2, kind="block_io", code="remount_ro", device="nvme0n1p2")
    verdict = make.judge(damaged, attempt=make.attempt())
    assert (verdict.cause, str(verdict.confidence)) == ("disk", "likely")
    assert "file system" in verdict.summary
    assert "fsck" in verdict.next_step
    # Two witnesses of the file system are none of the drive.
    met = make.finding("io_error", message="cat: /x: Input/output error", detail={"first_cause": True})
    assert str(make.judge(damaged, met, attempt=make.attempt()).confidence) == "likely"
    drive = make.event(3, kind="block_io", code="io_error", device="nvme0n1p2")
    both = make.judge(damaged, drive, attempt=make.attempt())
    assert "Disk nvme0n1p2" in both.summary


@pytest.mark.parametrize(
    ("holder", "words"), [({"held_by": 990011}, "process (pid 990011) held"), ({}, "another process held")]
)
def test_a_gpu_that_was_full_of_another_process_is_not_the_programs_wish(make, holder, words):
    """A smaller batch does not help where there are no bytes at all."""
    full = make.finding(
        "cuda_oom", detail={"first_cause": True, "held_gib": 78.9, "gpu_gib": 79.15, **holder}
    )
    verdict = make.judge(full)
    assert (verdict.cause, verdict.domain, str(verdict.confidence)) == ("oom_gpu", "unknown", "possible")
    assert words in verdict.summary
    assert "nvidia-smi" in verdict.next_step
    own = make.judge(make.finding("cuda_oom", detail={"first_cause": True}))
    assert (own.domain, str(own.confidence)) == ("user_program", "certain")


def test_a_node_that_srun_names_as_lost_ended_a_step_that_may_go_on_without(make):
    """Slurm says FAILED of a job with --no-kill; a node that was heard afterwards is possible at most."""
    gone = make.finding("slurm_node_fail", detail={"host": "n2"})
    unseen = make.judge(gone, watched={})
    assert (unseen.cause, unseen.node, unseen.domain, str(unseen.confidence)) == (
        "node_lost",
        "n2",
        "unknown",
        "likely",
    )
    several = make.finding("slurm_node_fail", detail={"host": "n[2,9]"})
    assert make.judge(several, watched={}).node == "n2"
    last_signs = {"n1": make.end + timedelta(seconds=60), "n2": make.end + timedelta(seconds=600)}
    living = make.judge(gone, watched=last_signs)
    assert str(living.confidence) in ("possible", "unknown")
    assert "stopped answering" not in living.summary
    assert "agent kept reporting" in living.summary or living.cause != "node_lost"
    elsewhere = make.finding("slurm_node_fail", detail={"host": "n77"})
    assert make.judge(elsewhere, watched={}).cause != "node_lost"


def test_a_bare_kill_is_not_called_proven(make):
    """The sentence says what was seen: a signal."""
    killed = make.finding("oom_kill_suspected", detail={"first_cause": True})
    verdict = make.judge(killed, attempt=make.attempt(exit_code=137), watched={})
    assert verdict.cause == "oom_host"
    assert "no evidence here confirms it" in verdict.summary


def test_a_launcher_that_lost_a_process_did_not_fail_by_itself(make):
    """Its exit code is the launcher's own; a program's exit beside it stays possible."""
    lost = make.finding(
        "peer_lost",
        detail={"first_cause": True, "role": "remote"},
        message="ORTE has lost communication with a remote daemon.",
    )
    verdict = make.judge(lost, attempt=make.attempt(exit_code=255), watched={})
    assert (verdict.cause, str(verdict.confidence)) != ("user_error", "possible")
    assert "lost communication" in verdict.summary
    later = make.finding("peer_lost", detail={"first_cause": False})
    assert make.judge(later, attempt=make.attempt(exit_code=255), watched={}).cause == "user_error"


TERMINATED = "srun: error: n1: task 0: Terminated"


@pytest.mark.parametrize(
    ("code", "kind", "line", "cause", "words"),
    [
        (15, "process_terminated", TERMINATED, "rank_killed", "ended by signal 15 (SIGTERM)"),
        (143, "process_terminated", TERMINATED, "rank_killed", "ended by signal 15 (SIGTERM)"),
        (2, "interrupted", "KeyboardInterrupt", "rank_killed", "ended by signal 2 (SIGINT)"),
        (130, "interrupted", "KeyboardInterrupt", "rank_killed", "ended by signal 2 (SIGINT)"),
        (
            2,
            "interrupted",
            "SystemExit: 2",
            "user_error",
            "exited with code 2 (of many tools: a wrong argument), ",
        ),
        (
            1,
            "interrupted",
            "KeyboardInterrupt",
            "rank_killed",
            "interrupted by signal 2 (SIGINT) and exited with code 1",
        ),
        (15, None, "", "user_error", "exited with code 15 (or 143, SIGTERM), "),
        (3, None, "", "user_error", "exited with code 3, "),
        (72, None, "", "user_error", "exited with code 72 (or 200), "),
        (200, None, "", "user_error", "exited with code 200, "),
        (120, None, "", "user_error", "exited with code 120 (of Python: its standard output"),
    ],
)
def test_an_exit_code_may_be_a_signals(make, code, kind, line, cause, words):
    """Of a script that ends with 143 Slurm records 15; what the log says of the process decides."""
    found = [make.finding(kind, message=line, detail={"first_cause": True})] if kind else []
    v = make.judge(*found, attempt=make.attempt(exit_code=code))
    assert (v.cause, words in v.summary) == (cause, True), v.summary
    assert ("ind out who interrupted it" in v.next_step) is (line == "KeyboardInterrupt")
    assert "usual meaning" not in v.next_step or cause == "user_error"


def test_the_traceback_of_an_interrupt_shows_where_it_met_the_program(make):
    """It shows no sender; without a frame the log only names the exception."""
    place = {"frame": "/w/train.py, line 33, in main", "code": "time.sleep(60)"}
    for code in (2, 130, 1):
        shown = make.finding(
            "interrupted", message="KeyboardInterrupt", detail={"first_cause": True, **place}
        )
        v = make.judge(shown, attempt=make.attempt(exit_code=code))
        assert (
            "its traceback ends in `time.sleep(60)` (/w/train.py, line 33, in main), and does not show who sent the signal"
            in v.summary
        )
        assert "nothing shows" not in v.summary
        assert shown.event_id in v.evidence
    bare = make.finding("interrupted", message="KeyboardInterrupt", detail={"first_cause": True})
    v = make.judge(bare, attempt=make.attempt(exit_code=130))
    assert v.summary.endswith("; its log says KeyboardInterrupt, not who sent the signal.")


@pytest.mark.parametrize(
    ("line", "limit", "step"),
    [
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', "the heap that Java was given", "-Xmx"),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded", "the heap that Java was given", "spark.executor.memory"),
        ("java.lang.OutOfMemoryError: Metaspace", "the metaspace that Java was given", "-XX:MaxMetaspaceSize"),
        ("java.lang.OutOfMemoryError: Direct buffer memory", "the direct memory that Java was given", "-XX:MaxDirectMemorySize"),
        ("java.lang.OutOfMemoryError: unable to create new native thread", "", "ulimit -u"),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "the heap that JavaScript's engine was given", "--max-old-space-size"),
        ("PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted (tried to allocate 20480 bytes)", "PHP's memory_limit", "php -d memory_limit"),
        ("Error: cannot allocate vector of size 7.5 Gb", "", "ulimit -v"),
        ("MemoryError: Unable to allocate 8.00 TiB for an array", "", "ulimit -v"),
    ],
)  # fmt: skip
def test_the_limit_of_a_runtime_is_raised_there(make, line, limit, step):
    """Slurm's memory is not what ran out."""
    refused = make.finding("host_memory_error", message=line, detail={"first_cause": True})
    v = make.judge(refused)
    assert v.cause == "oom_host"
    assert v.summary.startswith(
        f"The program used up {limit}, and ended: "
        if limit
        else "The program asked for more main memory than"
    )
    assert step in v.next_step
    assert ("ulimit -v" in v.next_step) is (step == "ulimit -v")


def test_memory_that_a_program_did_not_get_killed_nobody(make):
    """std::bad_alloc: it ended itself, and one absurd size can do that."""
    refused = make.finding("host_memory_error", message="terminate called after throwing an instance of 'std::bad_alloc'", detail={"first_cause": True})  # fmt: skip
    v = make.judge(refused)
    assert v.cause == "oom_host"
    assert "more main memory than it could get" in v.summary
    assert "killed" not in v.summary
    assert "ulimit -v" in v.next_step
    heap = make.finding("program_error", message="java.lang.OutOfMemoryError: Java heap space", detail={"first_cause": True})  # fmt: skip
    assert not any("out of memory" in s for s in make.judge(heap).ruled_out)
    other = make.finding("program_error", message="java.io.IOException: x", detail={"first_cause": True})
    assert any("out of memory" in s for s in make.judge(other).ruled_out)


def test_what_we_know_of_a_kill_stands_outside_of_what_is_quoted(make):
    """A command of several lines was cut inside our own remark."""
    line = 'slurm_script: line 8: 28620 Killed                  python3 -u -c "'
    killed = make.finding("oom_kill_suspected", message=line, detail={"first_cause": True})
    v = make.judge(killed, attempt=make.attempt(exit_code=137))
    assert v.summary.endswith(
        'the kernel killed nothing for lack of memory; its log says: Killed in `python3 -u -c "`.'
    )


@pytest.mark.parametrize(("code", "nodes", "quoted"), [(1, 1, True), (137, 1, False), (1, 2, False)])
def test_the_last_line_stands_beside_a_kill_that_the_job_printed_on_after(make, code, nodes, quoted):
    """A script that ends with a code of its own may have ended for another reason than its killed helper."""
    line = "slurm_script: line 3: 4242 Killed                  ./helper"
    detail = {"first_cause": True, "went_on": "validation failed: loss is too high", "behind": 2}
    killed = make.finding("oom_kill_suspected", message=line, detail=detail)
    one = make.attempt(exit_code=code, nodes=("n2", "n3")[:nodes])
    v = make.judge(killed, attempt=one, watched={})
    assert v.confidence == "possible"
    assert ("the job went on, and its last line is: validation failed" in v.summary) is quoted


@pytest.mark.parametrize("code", ["memcg", "global"])
@pytest.mark.parametrize(
    ("group", "pid", "cause"),
    [
        ("/system.slice", 99999, "rank_killed"),
        ("/system.slice", 19728, "oom_host"),
        ("/system.slice/docker-ab12.scope", 17, "oom_host"),
    ],
    ids=["another process", "the same process", "a container"],
)
def test_a_kill_of_another_process_than_the_log_names_ended_no_job(make, code, group, pid, cause):
    """The shell names the process that was killed, and the kernel another one outside of every job."""
    line = "slurm_script: line 3: 19728 Killed                  python3 train.py"
    shell = make.finding(
        "oom_kill_suspected", node="n2", message=line, pid=19728, detail={"first_cause": True}
    )
    kernel = {"kind": "oom", "code": code, "pid": pid, "process": "firefox", "severity": INFO}
    kills = [make.event(8, detail={"task_memcg": group}, **kernel), make.event(8, **kernel)]
    attempt = make.attempt(nodes=("n2",), exit_code=137)
    v = make.judge(shell, *kills, attempt=attempt)
    assert v.cause == cause
    if cause == "rank_killed":
        alone = make.judge(shell, attempt=attempt)
        assert (v.summary, v.next_step) == (alone.summary, alone.next_step)
