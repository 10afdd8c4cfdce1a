"""A node that goes away under a job whose processes elsewhere then end it: Slurm says FAILED, the node's own evidence says why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.attribution.verdict import node_faults
from probing_cluster.core import records

C = records.Confidence


def _watched(make, last_s):
    """Both nodes' last signs of life, seconds after the end."""
    return {"n1": make.end + timedelta(seconds=30), "n2": make.end + timedelta(seconds=last_s)}


def _boot(make, after_end_s=90.0):
    return make.event(-after_end_s, kind="node_boot", source="agent", severity=records.Severity.INFO)


def _silent(make, before_end_s, node="n2"):
    return make.event(
        before_end_s, kind="agent_silent", source="agent", node=node, severity=records.Severity.INFO
    )


def _log(make, name):
    """The findings of the job's log, if any."""
    kinds = {"peer": "nccl_remote_error", "cuda": "cuda_launch_failure"}
    return [make.finding(kinds[name])] if name in kinds else []


@pytest.mark.parametrize("log", ["peer", "cuda", "nothing"])
def test_a_node_that_fell_silent_and_booted_anew_took_the_job_with_it(make, log):
    """Whatever the survivors print; the verdict rests on the node's own evidence and names it."""
    boot = _boot(make)
    v = make.judge(boot, *_log(make, log), watched=_watched(make, -10))
    assert (v.cause, v.node, v.confidence) == ("node_reboot", "n2", C.LIKELY)
    assert v.evidence[0] == boot.event_id


def test_a_silent_node_whose_peers_lost_it_is_lost(make):
    """While every other node went on beating; silence and a bare CUDA error are too little."""
    assert make.judge(_silent(make, 6), *_log(make, "peer"), watched=_watched(make, -6)).cause == "node_lost"
    weak = make.judge(_silent(make, 6), *_log(make, "cuda"), watched=_watched(make, -6))
    assert (weak.cause, weak.confidence) == ("user_error", C.POSSIBLE)


def test_a_reboot_by_hand_after_the_end_convicts_nothing(make):
    """The node still answered when the job had ended."""
    v = make.judge(_boot(make), *_log(make, "peer"), watched=_watched(make, 40))
    assert v.cause not in ("node_reboot", "node_lost")


def test_silence_of_every_node_is_ours(make):
    """A database or a network that was away silences all agents at once."""
    both = {n: make.end - timedelta(seconds=6) for n in ("n1", "n2")}
    v = make.judge(_silent(make, 6), _silent(make, 6, "n1"), *_log(make, "peer"), watched=both)
    assert v.cause not in ("node_reboot", "node_lost")


def test_an_error_of_the_programs_own_is_not_the_nodes(make):
    """A KeyError is the program's, whatever became of a node."""
    detail = {"role": "root", "first_cause": True, "exception": "KeyError", "domains": ["user_program"]}
    error = make.finding("python_exception", message="KeyError: 'lr'", detail=detail)
    assert make.judge(error, _boot(make), watched=_watched(make, -5)).cause == "user_error"


def test_where_only_logs_are_known_a_boot_just_after_is_a_hint(make):
    """Nobody saw the silence: possible at most."""
    names = frozenset({"n1", "n2"})
    v = make.judge(_boot(make), *_log(make, "peer"), watched=_watched(make, -6), by_log=names)
    assert (v.cause, v.node, v.confidence) == ("node_reboot", "n2", C.POSSIBLE)


def test_an_agent_that_fell_silent_names_the_lost_node_and_a_log_that_ends_does_not(make):
    """NODE_FAIL that names no node: an agent beats every few seconds, a kernel that meets nothing writes nothing."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0)
    silent = _watched(make, -300)
    assert make.judge(attempt=lost, watched=silent).node == "n2"
    assert make.judge(attempt=lost, watched=silent, by_log=frozenset({"n2"})).node is None


def _given_up(make, last_s, *events):
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    return make.judge(*events, attempt=lost, watched=_watched(make, last_s))


def _unreached(make, before_end_s):
    return make.event(before_end_s, kind="node_down", source="agent", severity=records.Severity.INFO)


def test_what_befell_the_node_after_it_was_given_up_is_no_evidence(make):
    """It came back and was lost again minutes after the job's end."""
    first = [_silent(make, 40), _unreached(make, 40)]
    again = [_silent(make, -180), _unreached(make, -180)]
    v = _given_up(make, -40, *first, *again)
    assert set(v.evidence) == {e.event_id for e in first}
    failed = make.judge(*first, again[1], watched=_watched(make, -40))
    assert again[1].event_id not in failed.evidence


def test_a_restart_under_a_later_job_says_nothing_of_this_loss(make):
    """The node had come back and run that job by then."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    boot, later = _boot(make, 120), {"n2": ((make.end + timedelta(seconds=60), None),)}
    own, others = (
        make.judge(boot, attempt=lost, watched=_watched(make, -40), shared=shared) for shared in ({}, later)
    )
    assert boot.event_id in own.evidence
    assert boot.event_id not in others.evidence


def test_a_node_that_nobody_reached_and_whose_agent_lived_on_was_cut_off(make):
    """Neither set DOWN nor known to have a broken part: the same agent reports again."""
    v = _given_up(make, 300, _silent(make, 40), _unreached(make, 40))
    assert (v.cause, v.domain, v.confidence) == ("node_lost", records.Domain.UNKNOWN, C.LIKELY)
    assert "kept reporting" not in v.summary
    assert "network" in v.next_step


def test_a_living_node_that_was_rebooted_later_has_no_certain_fault(make):
    """Somebody set it DOWN and rebooted it after minutes in which its agent reported."""
    v = _given_up(make, 280, _boot(make, 290))
    assert "kept reporting" in v.summary
    assert (v.domain, v.confidence) == (records.Domain.UNKNOWN, C.LIKELY)


def _requeued_for_mount(make, *lost, last_s=-40.0, ours=True):
    """The verdict on a job whose mount of n1 hangs, for which we requeued it; `lost` are signs of n2's loss."""
    gone = make.event(41, kind="mount", code="hung", device="/scratch", node="n1", source="mount")
    requeue = make.action("requeue", -1, job_id=4242, node="n1", event_ids=(gone.event_id,), reason="probing: mount /scratch")  # fmt: skip
    acts, events = ((requeue,), (gone, *lost)) if ours else ((), lost)
    attempt = make.attempt(state="REQUEUED", exit_code=0)
    return make.judge(*events, attempt=attempt, actions=acts, watched=_watched(make, last_s))


def test_a_node_that_went_away_beside_the_fault_we_requeued_for_is_named(make):
    """Either may have ended the job: the second is not denied, and makes the first less sure."""
    down = make.event(38, kind="node_down", source="slurm", severity=records.Severity.INFO)
    v, alone = _requeued_for_mount(make, _silent(make, 40), down), _requeued_for_mount(make, last_s=30)
    assert (v.cause, v.node) == (alone.cause, alone.node) == ("filesystem_mount", "n1")
    assert "node lost on n2" in [s.partition(" (")[0] for s in v.less_likely]
    assert (alone.confidence, v.confidence) == (C.LIKELY, C.POSSIBLE)
    assert not [s for s in alone.less_likely if "node lost" in s]


def test_a_requeue_after_a_node_went_away_is_no_persons_doing(make):
    """Slurm requeues the job of a node that it lost."""
    v = _requeued_for_mount(make, _silent(make, 40), ours=False)
    assert (v.cause, v.node) == ("node_lost", "n2")
    assert v.confidence is records.Confidence.POSSIBLE  # only the agent's silence is known


@pytest.mark.parametrize("ours", [True, False])
def test_a_silence_that_ended_or_came_later_is_no_loss_before_a_requeue(make, ours):
    """The agent was heard long after the requeue, or fell silent only behind it."""
    for silence, last_s in ((_silent(make, 40), 300), (_silent(make, -20), -20)):
        v = _requeued_for_mount(make, silence, last_s=last_s, ours=ours)
        assert v.cause == ("filesystem_mount" if ours else "requeued_by_user")
        assert not [s for s in v.less_likely if "node lost" in s]


def _down(make, before_end_s, node="n2"):
    return make.event(before_end_s, kind="node_down", source="agent", node=node, severity=records.Severity.INFO)  # fmt: skip


def _unnamed(make, *events, last_s, **over):
    """The verdict on a NODE_FAIL for which accounting names no node; `last_s`: each node's last sign, seconds after the end."""
    names = tuple(last_s)
    lost = make.attempt(state="NODE_FAIL", exit_code=0, nodes=names, **over)
    signs = {n: make.end + timedelta(seconds=s) for n, s in last_s.items() if s is not None}
    return make.judge(*events, attempt=lost, watched=signs)


def _srun(make, host):
    """Slurm's lines in a log on n1: the step's cancellation names nobody, srun's names the lost node."""
    return [make.finding("slurm_node_fail"), make.finding("slurm_node_fail", detail={"host": host})]


@pytest.mark.parametrize("gone", ["n1", "n2", "n3"])
def test_a_silence_from_before_the_job_does_not_name_the_lost_node(make, gone):
    """Any of its nodes had crashed before and was started again; the log lies on n1."""
    last = {n: -40 if n == gone else 300 for n in ("n1", "n2", "n3")}
    before = [e for n in last for e in (_silent(make, 280, n), _down(make, 280, n))]
    now = [_silent(make, 40, gone), _down(make, 40, gone)]
    v = _unnamed(make, *before, *now, *_srun(make, gone), last_s=last, start_at=make.end - timedelta(seconds=180))  # fmt: skip
    assert (v.cause, v.node, v.domain, v.confidence) == ("node_lost", gone, records.Domain.HARDWARE, C.CERTAIN)  # fmt: skip
    assert set(v.evidence) == {e.event_id for e in now}


@pytest.mark.parametrize("own", [False, True])
def test_a_silence_of_before_that_lasted_until_a_later_one_names_nothing(make, own):
    """An agent that was silent for a while during the job, and was heard again, had lost no node."""
    earlier = [_silent(make, 400, "n1"), _down(make, 400, "n1")]
    earlier += [_silent(make, 40)] if own else []
    v = _unnamed(make, *earlier, last_s={"n1": 300, "n2": -40 if own else 300})
    assert v.node == ("n2" if own else None)
    assert not {earlier[0].event_id, earlier[1].event_id} & set(v.evidence)


def test_the_node_that_slurm_does_not_reach_was_lost_not_the_one_whose_agent_alone_died(make):
    """Two agents are silent; slurmctld still reached one of the nodes."""
    silent = [_silent(make, 40, n) for n in ("n1", "n2")]
    v = _unnamed(make, *silent, _down(make, 40), last_s={"n1": -40, "n2": -40, "n3": 300})
    assert v.node == "n2"


def test_of_two_lost_nodes_srun_names_the_one_and_without_it_both_are_named(make):
    """A rack without power: no single node is blamed, least of all one that lived on."""
    gone = [e for n in ("n2", "n3") for e in (_silent(make, 40, n), _down(make, 40, n))]
    last = {"n1": 300, "n2": -40, "n3": -40}
    both = _unnamed(make, *gone, last_s=last)
    assert (both.cause, both.node, both.confidence) == ("node_lost", None, C.LIKELY)
    assert both.summary == "n[2-3] stopped answering Slurm."
    assert set(both.evidence) == {e.event_id for e in gone}
    assert _unnamed(make, *gone, *_srun(make, "n3"), last_s=last).node == "n3"
    assert _unnamed(make, *gone, *_srun(make, "n[2-3]"), last_s=last).node is None
    fault = _unnamed(make, *gone, make.xid(79, node="n1", before_end_s=60), last_s=last)
    assert fault.cause == "node_lost"  # n1 was not lost, whatever befell it


@pytest.mark.parametrize("host", ["n1", "n9", "n[", "n[1-99999999]", 7])
def test_a_name_in_the_log_names_no_node_that_lived_on_while_another_was_unreached(make, host):
    """Anybody can print srun's line."""
    gone = [_silent(make, 40), _down(make, 40)]
    v = _unnamed(make, *gone, *_srun(make, host), last_s={"n1": 300, "n2": -40})
    assert (v.node, v.confidence) == ("n2", C.CERTAIN)


def test_srun_and_a_silent_agent_that_contradict_each_other_name_nobody(make):
    """The agent may have died by itself; a node without an agent may be the one."""
    contradiction = _unnamed(make, _silent(make, 40), *_srun(make, "n3"), last_s={"n1": 300, "n2": -40, "n3": None})  # fmt: skip
    assert contradiction.node is None
    agentless = _unnamed(make, *_srun(make, "n3"), last_s={"n1": 300, "n2": 300, "n3": None})
    assert (agentless.node, agentless.confidence) == ("n3", C.LIKELY)


def test_where_every_agent_fell_silent_the_way_to_us_may_be_at_fault(make):
    """None is named by its silence alone; srun may."""
    silent, last = [_silent(make, 40, n) for n in ("n1", "n2")], {"n1": -40, "n2": -40}
    assert _unnamed(make, *silent, last_s=last).node is None
    assert _unnamed(make, *silent, *_srun(make, "n2"), last_s=last).node == "n2"


def test_what_fell_silent_after_the_end_is_not_what_ended_the_job(make):
    """The next attempt's loss, half a minute later, with srun's line in the same file."""
    now = [_silent(make, 40), _down(make, 40)]
    then = [_silent(make, -45, "n1"), _down(make, -45, "n1")]
    v = _unnamed(make, *now, *then, *_srun(make, "n1"), last_s={"n1": 45, "n2": -40})
    assert (v.node, set(v.evidence)) == ("n2", {e.event_id for e in now})


_OWN = {"first_cause": True, "exception": "RuntimeError"}


def _restarted_slurmctld(make, *events, last_s=300.0, **over):
    """NODE_FAIL of a job whose agents all reported on."""
    last = {"n1": last_s, "n2": last_s}
    return _unnamed(make, *events, last_s=last, **over)


def _raised(make, **detail):
    return make.finding("python_exception", message="RuntimeError: no such shard", detail={**_OWN, **detail})


def test_a_program_that_had_ended_before_slurm_missed_it_failed_by_itself(make):
    """A restarted slurmctld does not find the job's batch script on its node; that node is no lost one."""
    exit_line = make.finding("task_exit", message="srun: error: n2: task 1: Exited with exit code 1", detail={"exit_code": 1, "tasks": "1", "host": "n2"})  # fmt: skip
    v = _restarted_slurmctld(make, _raised(make), exit_line)
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)
    assert "no such shard" in v.summary
    assert any("node lost" in s for s in v.less_likely)
    bare = _restarted_slurmctld(make, exit_line)
    assert (bare.cause, bare.confidence, bare.domain) == ("node_lost", C.POSSIBLE, records.Domain.UNKNOWN)
    assert "Exited with exit code 1" in bare.summary


@pytest.mark.parametrize(
    "what", ["slurm's line", "went on", "terminated", "silent", "set down", "rebooted", "unwatched"]
)
def test_a_program_that_slurm_ended_did_not_fail_by_itself(make, what):
    """The step was ended for the node, the program survived its error, or a node went away."""
    raised = _raised(make, went_on="step 12") if what == "went on" else _raised(make)
    beside = {
        "slurm's line": [make.finding("slurm_node_fail")],
        "silent": [_silent(make, 40), _down(make, 40)],
        "set down": [make.event(1, kind="node_set_down", source="slurm", severity=records.Severity.INFO)],
        "rebooted": [make.event(30, kind="node_boot", source="agent", severity=records.Severity.INFO)],
    }
    if what == "terminated":
        raised = make.finding("task_exit", detail={"exit_code": 143, "tasks": "1", "host": "n2"})
    v = _restarted_slurmctld(make, raised, *beside.get(what, []), last_s=-300 if what == "unwatched" else 300)
    assert v.cause in ("node_lost", "node_set_down", "node_reboot")


def test_where_every_agent_reported_on_no_node_stopped_answering(make):
    """Nothing names the node, and none was lost; right after the end that is not known yet."""
    late = _restarted_slurmctld(make)
    assert (late.node, late.domain) == (None, records.Domain.UNKNOWN)
    assert "the agents of n[1-2] kept reporting" in late.summary
    assert "restarted slurmctld" in late.summary
    soon = _restarted_slurmctld(make, last_s=2)
    assert "not known yet" in soon.summary
    assert "stopped answering" not in late.summary + soon.summary


def test_forged_lists_of_lost_nodes_are_not_all_expanded(make, monkeypatch):
    """Any program may print srun's line; one list can stand for hundreds of thousands of hosts."""
    expanded = []
    real = node_faults.hostlist.expand
    monkeypatch.setattr(node_faults.hostlist, "expand", lambda text: expanded.append(text) or real(text))
    forged = [make.finding("slurm_node_fail", detail={"host": f"x{i}[0-9]"}) for i in range(200)]
    make.judge(*forged, attempt=make.attempt(state="NODE_FAIL", exit_code=0))
    assert len(expanded) <= 64
