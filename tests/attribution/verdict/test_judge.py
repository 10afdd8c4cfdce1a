"""The verdict of whole cases, small enough to check by hand."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from datetime import timedelta

import pytest

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge, taxonomy
from probing_cluster.core import records

C = records.Confidence
D = records.Domain


def test_completed_attempts_get_no_verdict(make):
    """A job that ended well has nothing to explain."""
    case = make.case(make.xid(79), attempt=make.attempt(state="COMPLETED", exit_code=0))
    assert judge.judge(case, made_at=make.end) is None


def test_running_attempts_get_no_verdict(make):
    """Nothing is judged before it has ended."""
    case = make.case(make.xid(79), attempt=make.attempt(state="RUNNING", end_at=None))
    assert judge.judge(case, made_at=make.end) is None


def test_never_started_attempts_get_no_verdict(make):
    """A job cancelled while pending had no attempt."""
    case = make.case(attempt=make.attempt(state="CANCELLED", start_at=None))
    assert judge.judge(case, made_at=make.end) is None


def test_gpu_off_the_bus_is_certain_and_says_so(make):
    """End-to-end case 2: Xid 79 on GPU 3 of n2, confirmed by NVML, requeued by us."""
    kernel = make.xid(79, 3, 4)
    nvml = make.event(3, kind="gpu_lost", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3))
    acts = (make.action("drain", -2, event_ids=(kernel.event_id,)), make.action("requeue", -1, job_id=4242))
    attempt = make.attempt(state="REQUEUED", exit_code=0)
    v = make.judge(kernel, nvml, attempt=attempt, actions=acts)
    assert (v.cause, v.domain, v.component, v.node, v.device) == ("gpu_lost", D.HARDWARE, "gpu", "n2", "gpu3")
    assert v.confidence is C.CERTAIN
    assert (
        v.summary
        == "GPU 3 of n2 fell off the bus (Xid 79) 4 s before the job ended; the job was requeued by us (probing: xid 79 gpu3)."
    )
    assert set(v.evidence) == {kernel.event_id, nvml.event_id}
    assert v.evidence[0] == kernel.event_id
    assert "user program (no error of its own before the fault)" in v.ruled_out
    assert any(s.startswith("network (no link fault on n[1-2])") for s in v.ruled_out)
    assert v.next_step.startswith("Reseat or replace GPU 3 of n2")


def test_one_kernel_line_is_enough(make):
    """End-to-end case 5: the verdict does not depend on a second source or on our action."""
    v = make.judge(make.xid(79, 3, 4))
    assert (v.cause, v.node, v.device, v.confidence) == ("gpu_lost", "n2", "gpu3", C.CERTAIN)


def test_serial_number_reaches_the_next_step(make):
    """The next step names the part's serial number, which the repair needs."""
    v = make.judge(make.xid(79, detail={"serial": "1650123456789"}))
    assert v.next_step.endswith("(serial 1650123456789).")


def test_a_node_that_did_not_boot_never_stopped_answering(make):
    """BOOT_FAIL: Slurm could not boot it for the job, so that it had answered nothing."""
    v = make.judge(attempt=make.attempt(state="BOOT_FAIL", exit_code=0, failed_node="n2"), watched={})
    assert (v.cause, v.node) == ("node_lost", "n2")
    assert v.summary == "n2 did not boot for the job, as Slurm says; nobody watched it."


def test_node_crash_is_told_as_lost(make):
    """End-to-end case 3: NODE_FAIL with nothing seen before, and the service's word that it listened and did not hear the node."""
    silent = make.event(0, kind="agent_silent", source="agent", node="n2", severity=records.Severity.INFO)
    v = make.judge(silent, attempt=make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2"))
    assert (v.cause, v.domain, v.node, v.confidence) == ("node_lost", D.HARDWARE, "n2", C.CERTAIN)


def test_slurms_word_for_a_lost_node_proves_no_broken_part(make):
    """No event of silence: the service had not heard the node yet, or had stood still with it."""
    v = make.judge(attempt=make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2"))
    assert (v.cause, v.domain, v.node) == ("node_lost", D.UNKNOWN, "n2")
    assert v.confidence is not C.CERTAIN


def test_node_crash_with_memory_error_before_names_the_memory(make):
    """Root evidence on the lost node wins over the catch-all."""
    ue = make.event(20, kind="edac", code="UE", device="DIMM_A1")
    v = make.judge(ue, attempt=make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2"))
    assert (v.cause, v.node, v.confidence) == ("main_memory", "n2", C.LIKELY)


@pytest.mark.parametrize(
    ("cure", "mentioned"),
    [
        ({"kind": "gpu_lost", "code": "GPU_IS_LOST", "detail": {"recovered": True}}, False),
        ({"kind": "gpu_lost", "code": "GPU_IS_LOST", "detail": {"recovered": True}, "gpu": 4}, True),
        ({"kind": "gpu_lost", "code": "GPU_IS_LOST", "detail": {"recovered": True}, "node": "n1"}, True),
        (
            {"kind": "gpu_lost", "code": "GPU_IS_LOST", "detail": {"recovered": True}, "after_start_s": 60},
            True,
        ),
        ({"kind": "node_boot"}, False),
        ({"kind": "driver"}, True),
    ],
)
def test_a_fault_that_was_cured_before_the_job_began_is_no_possibility(make, cure, mentioned):
    """Repaired, and back in service: it haunts no report of the node. One that another part's end follows does."""
    lost_at, cured_at = make.start - timedelta(minutes=36), make.start - timedelta(minutes=30)
    node, gpu = cure.pop("node", "n2"), cure.pop("gpu", 3)
    if after_s := cure.pop("after_start_s", 0):
        cured_at = make.start + timedelta(seconds=after_s)
    names = {"device": f"gpu{gpu}", "gpu_uuid": make.uuid("n2", gpu)} if cure["kind"] == "gpu_lost" else {}
    lost = make.event(
        at=lost_at,
        kind="gpu_lost",
        code="GPU_IS_LOST",
        source="nvml",
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
    )
    over = make.event(at=cured_at, node=node, source="nvml", severity=records.Severity.INFO, **names, **cure)
    v = make.judge(lost, over, make.finding("python_traceback", message="ValueError: bad shape"))
    assert any("outside the window" in s for s in v.ruled_out) == mentioned


def test_fault_on_another_node_does_not_explain_a_lost_node(make):
    """NODE_FAIL of n2 is not the fault of a GPU on n1."""
    v = make.judge(make.xid(79, 3, node="n1"), attempt=make.attempt(state="NODE_FAIL", failed_node="n2"))
    assert (v.cause, v.node) == ("node_lost", "n2")


def test_traceback_beside_an_old_xid_is_the_program(make):
    """End-to-end case 4: an unrelated Xid outside the window convicts nothing and is said to be outside."""
    old = make.xid(79, 3, at=make.start - timedelta(hours=3))
    v = make.judge(old, make.finding("python_traceback", message="ValueError: bad shape"))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)
    assert v.confidence is C.CERTAIN
    assert old.event_id not in v.evidence
    assert any("outside the window" in s for s in v.ruled_out)
    # Of a job that held no GPU an earlier fault of one is not worth a word.
    without = make.judge(old, make.finding("python_traceback"), attempt=make.attempt(n_gpus=0, gpus={}))
    assert not any("outside the window" in s for s in without.ruled_out)
    twice = make.xid(79, 3, at=old.at + timedelta(seconds=1), source="nvml")
    both = make.judge(old, twice, make.finding("python_traceback", message="ValueError: bad shape"))
    assert both.ruled_out == v.ruled_out


def test_exit_code_alone_is_likely_the_program(make):
    """Nothing seen on watched nodes: likely, not certain."""
    v = make.judge()
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)
    assert "exited with code 1" in v.summary


def test_failed_with_code_0_is_possibly_a_script_that_ended_with_128(make):
    """Slurm records 0:0 for 128; nodes that nobody watched, or Slurm's own signal, leave it unknown."""
    v = make.judge(attempt=make.attempt(exit_code=0))
    assert (v.cause, v.confidence) == ("user_error", C.POSSIBLE)
    assert "a script that ends with 128" in v.summary
    assert make.judge(attempt=make.attempt(exit_code=0), watched={}).cause == "unknown"


def test_exit_code_2_may_be_an_interrupt_where_the_output_names_one(make):
    """Slurm records 2 of a script's 130, SIGINT: a clause says so, and no advice is built on it."""
    v = make.judge(attempt=make.attempt(exit_code=2))
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)
    assert (
        v.summary
        == "The program exited with code 2 (of many tools: a wrong argument), with no fault beside it."
    )
    assert v.next_step == "Look at the program's own output."
    named = make.finding("task_exit", message="launcher: caught SIGINT, stopping", detail={"role": "exit"})
    assert "(of many tools: a wrong argument; or 130, SIGINT)" in make.judge(named, attempt=make.attempt(exit_code=2)).summary  # fmt: skip


def test_exit_code_on_unwatched_nodes_is_only_possible(make):
    """Not seeing is not health."""
    v = make.judge(watched={})
    assert (v.cause, v.confidence) == ("user_error", C.POSSIBLE)
    assert not any("network" in s or "GPUs" in s for s in v.ruled_out)
    assert v.summary == "The program exited with code 1, and nobody watched n[1-2] then."


def test_an_exit_code_is_no_output_to_look_at(make):
    """The next step quotes the program's own words; an exit code has none."""
    assert make.judge().next_step.startswith("Look at the program's own output. If it shows no error")


def test_an_agent_that_fell_silent_after_the_end_has_watched_it(make):
    """A silence bears the time of the last beat: minutes after the end it takes nothing back of the verdict."""
    silence = {"kind": "agent_silent", "source": "agent", "severity": records.Severity.INFO}
    before = make.judge()
    after = make.judge(*(make.event(-187, node=n, **silence) for n in ("n1", "n2")))
    assert (after.confidence, after.ruled_out) == (before.confidence, before.ruled_out) != (C.POSSIBLE, ())
    silent = [make.event(4, node=n, **silence) for n in ("n1", "n2")]
    during = make.judge(*silent, watched={e.node: e.at for e in silent})
    assert during.confidence is C.POSSIBLE
    answering = make.judge(
        *silent
    )  # both agents were heard at the end: the way to us was cut, and they have watched all the same
    assert (answering.confidence, answering.ruled_out) == (before.confidence, before.ruled_out)


def test_a_fault_on_a_gpu_of_the_other_job_leaves_this_one_alone(make):
    """End-to-end case 9: two 1-GPU jobs on one node, one Xid, one victim."""
    mine = make.attempt(nodes=("n1",), n_gpus=1, gpus=make.gpus("n1", indices=(0,)))
    other = make.attempt(nodes=("n1",), n_gpus=1, gpus=make.gpus("n1", indices=(1,)), job_id=4243)
    xid = make.xid(79, 1, node="n1")
    spared = make.judge(xid, attempt=mine, shared={"n1": ((make.start, None),)})
    assert spared.cause == "user_error"
    assert xid.event_id not in spared.evidence
    assert any("did not hold it" in s for s in spared.ruled_out)
    victim = make.judge(xid, attempt=other, shared={"n1": ((make.start, None),)})
    assert (victim.cause, victim.device, victim.confidence) == ("gpu_lost", "gpu1", C.CERTAIN)


def test_unknown_gpus_on_a_shared_node_are_at_most_possible(make):
    """Without identities a GPU event on a shared node proves little."""
    mine = make.attempt(nodes=("n2",), n_gpus=1, gpus=None)
    v = make.judge(make.xid(79), attempt=mine, shared={"n2": ((make.start, None),)})
    assert v.cause in ("gpu_lost", "user_error")
    if v.cause == "gpu_lost":
        assert v.confidence is C.POSSIBLE


def test_unknown_gpus_on_a_node_of_its_own_are_likely(make):
    """Alone on the node, the GPU was most likely its own."""
    v = make.judge(make.xid(79), attempt=make.attempt(nodes=("n2",), gpus=None))
    assert (v.cause, v.confidence) == ("gpu_lost", C.LIKELY)


def test_pci_address_ties_a_raw_kernel_line_to_a_held_gpu(make):
    """A line with only a PCI address is resolved by what other events teach, whatever the spelling."""
    teach = make.event(
        400,
        kind="throttle",
        source="nvml",
        severity=records.Severity.INFO,
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
        pci_bus_id="00000000:5E:00.0",
    )
    raw = make.event(4, kind="xid", code="79", pci_bus_id="0000:5e:00")
    v = make.judge(teach, raw)
    assert (v.cause, v.device, v.confidence) == ("gpu_lost", "gpu3", C.CERTAIN)


def test_consequences_never_win(make):
    """Xid 45 and 43 are what the driver cleans up; the first fault is the cause and they are shown after it."""
    root, a, b = make.xid(79, 3, 10), make.xid(45, 3, 8), make.xid(43, 5, 7)
    v = make.judge(a, b, root)
    assert v.cause == "gpu_lost"
    assert v.evidence[0] == root.event_id
    assert {a.event_id, b.event_id} <= set(v.evidence)


def test_consequences_alone_are_no_fault(make):
    """Xid 45 alone leaves the exit code as the only evidence."""
    v = make.judge(make.xid(45, 3, 2, severity=records.Severity.INFO))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)


@pytest.mark.parametrize("code", [13, 31])
def test_user_xids_are_the_programs_own(make, code):
    """13 and 31 are a program's mistake unless a pattern says otherwise."""
    v = make.judge(make.xid(code, severity=records.Severity.INFO), make.finding("cuda_illegal_access"))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)


def test_user_xids_that_follow_the_gpu_are_hardware(make):
    """Three other users met Xid 31 on the same GPU: the GPU is suspect, though never certain."""
    xid = make.xid(31, severity=records.Severity.INFO)
    past = tuple(
        cases.PastFault(
            node="n2",
            gpu=make.uuid("n2", 3),
            code="31",
            at=make.start - timedelta(days=d),
            job_id=d,
            user=f"u{d}",
        )
        for d in (1, 2, 3, 4, 5)
    )
    v = make.judge(xid, past_faults=past)
    assert (v.cause, v.domain, v.node, v.device) == ("gpu_xid", D.HARDWARE, "n2", "gpu3")
    assert v.confidence in (C.POSSIBLE, C.LIKELY)


def test_one_users_repeated_xids_stay_the_users(make):
    """The same user's earlier jobs prove nothing about the GPU."""
    past = tuple(
        cases.PastFault(
            node="n2",
            gpu=make.uuid("n2", 3),
            code="31",
            at=make.start - timedelta(days=d),
            job_id=d,
            user="alice",
        )
        for d in (1, 2, 3)
    )
    assert make.judge(make.xid(31, severity=records.Severity.INFO), past_faults=past).cause == "user_error"


def test_illegal_access_after_a_lost_gpu_is_its_consequence(make):
    """The program's CUDA error follows the fault."""
    v = make.judge(make.xid(79, 3, 10), make.xid(31, 3, 8), make.finding("cuda_illegal_access"))
    assert v.cause == "gpu_lost"
    assert v.confidence is C.CERTAIN


@pytest.mark.parametrize("code", [62, 143])
def test_a_gpu_that_may_have_been_its_own_leaves_a_cuda_error_open(make, code):
    """On a shared node whose GPUs nobody knows, firmware halted: an illegal access may be its doing, or the program's."""
    attempt = make.attempt(nodes=("n2",), n_gpus=1, gpus=None)
    error = make.finding("cuda_illegal_access", node="n2")
    shared = {"n2": ((make.start, None),)}
    open_ = make.judge(make.xid(code, 3, 20), error, attempt=attempt, shared=shared)
    assert open_.confidence is C.POSSIBLE, open_
    alone = make.judge(error, attempt=attempt, shared=shared)
    assert (alone.cause, alone.confidence) == ("user_error", C.LIKELY)
    key = make.finding("python_exception", node="n2", message="KeyError: 'loss'")
    sure = make.judge(make.xid(code, 3, 20), key, attempt=attempt, shared=shared)
    assert (sure.cause, sure.confidence) == ("user_error", C.LIKELY)


def test_a_hard_fault_that_came_into_a_hang_is_named_but_only_possible(make):
    """The GPU was first seen lost 29 minutes after the collective began to wait: perhaps the cause, perhaps not."""
    start = make.end - timedelta(hours=2)
    hang = make.finding("watchdog_timeout", detail={"timeout_ms": 1800000}, message="ALLREDUCE timed out")
    v = make.judge(make.xid(79, 3, 60), hang, attempt=make.attempt(start_at=start))
    assert (v.cause, str(v.confidence)) == ("gpu_lost", "possible")
    assert "when it already hung" in v.summary
    soft = make.judge(make.xid(31, 3, 60), hang, attempt=make.attempt(start_at=start))
    assert soft.cause == "unknown"


def test_nccl_timeout_moves_the_onset_back(make):
    """A GPU fault hangs the gang; the watchdog ends it 30 minutes later."""
    start = make.end - timedelta(hours=5)
    xid = make.xid(79, 3, 1805)
    hang = make.finding("watchdog_timeout", detail={"timeout_ms": 1800000}, message="ALLREDUCE timed out")
    v = make.judge(xid, hang, attempt=make.attempt(start_at=start))
    assert (v.cause, v.confidence) == ("gpu_lost", C.CERTAIN)
    assert v.onset_at <= make.end - timedelta(seconds=1800)
    alone = make.judge(xid, attempt=make.attempt(start_at=start))
    assert alone.cause == "user_error"


def test_last_progress_moves_the_onset_back(make):
    """The probe saw the last step 40 minutes before the end."""
    start, stuck = make.end - timedelta(hours=5), make.end - timedelta(minutes=40)
    v = make.judge(make.xid(79, 3, 2405), attempt=make.attempt(start_at=start), last_progress_at=stuck)
    assert v.cause == "gpu_lost"


def test_nccl_timeout_with_a_link_down_elsewhere_in_the_gang(make):
    """The rank that timed out is on n1, the port that went down is on n2."""
    down = make.event(605, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    hang = make.finding("watchdog_timeout", detail={"timeout_ms": 600000}, node="n1")
    v = make.judge(down, hang)
    assert (v.cause, v.domain, v.node, v.device) == ("ib_link", D.HARDWARE, "n2", "mlx5_0")
    assert v.confidence in (C.LIKELY, C.CERTAIN)


def test_nccl_timeout_without_any_evidence_is_unknown(make):
    """An honest unknown, which says what was watched."""
    v = make.judge(
        make.finding("watchdog_timeout", detail={"timeout_ms": 600000}, message="ALLREDUCE seq 7 timed out")
    )
    assert (v.cause, v.confidence, v.domain) == ("unknown", C.UNKNOWN, D.UNKNOWN)
    assert "n[1-2]" in v.summary


def test_unknown_names_the_node_nobody_watched(make):
    """The summary names the unwatched nodes."""
    attempt = make.attempt(exit_code=0)
    v = make.judge(attempt=attempt, watched={"n1": make.end + timedelta(seconds=9)})
    assert v.cause == "unknown"
    assert "n2 was not watched" in v.summary


def test_missing_rank_points_at_the_program(make):
    """Rank 2 never entered, and its node is well."""
    v = make.judge(
        make.finding("missing_rank", message="rank 2 never entered ALLREDUCE 4", detail={"host": "n2"})
    )
    assert (v.cause, v.domain, v.confidence) == ("missing_rank", D.USER_PROGRAM, C.POSSIBLE)


def test_a_job_side_ecc_error_is_never_certain(make):
    """Anyone can write a log line: likely where nobody watched the node, possible where its watched node saw nothing."""
    v = make.judge(make.finding("cuda_ecc", node="n2"))
    assert (v.cause, v.domain, v.confidence) == ("gpu_memory_uncorrectable", D.HARDWARE, C.POSSIBLE)
    assert not [s for s in v.ruled_out if s.startswith("user program")]
    blind = make.judge(make.finding("cuda_ecc", node="n2"), watched={})
    assert (blind.cause, blind.confidence) == ("gpu_memory_uncorrectable", C.LIKELY)
    verdict = make.judge(make.finding("cuda_ecc", node="n2"), make.xid(48))
    assert verdict.confidence in (C.LIKELY, C.CERTAIN)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (48, "gpu_memory_uncorrectable"),
        (95, "gpu_memory_uncorrectable"),
        (94, "gpu_memory_contained"),
        (64, "gpu_row_remap_failure"),
        (74, "gpu_nvlink"),
        (119, "gpu_gsp_timeout"),
        (62, "gpu_driver"),
        (79, "gpu_lost"),
    ],
)
def test_each_xid_has_its_cause(make, code, cause):
    """The catalogue's hardware and driver Xids convict the GPU that showed them."""
    v = make.judge(make.xid(code))
    assert (v.cause, v.node, v.device) == (cause, "n2", "gpu3")


def test_contained_with_its_double_bit_error_stays_contained(make):
    """Xid 48 beside 94 is the same error seen twice."""
    assert make.judge(make.xid(48), make.xid(94, 3, 3)).cause == "gpu_memory_contained"


def test_uncontained_after_contained_is_uncorrectable(make):
    """Xid 95 says that containment failed."""
    assert make.judge(make.xid(94), make.xid(95, 3, 3)).cause == "gpu_memory_uncorrectable"


def test_failed_remap_after_its_error_is_certain(make):
    """48 then 64: the memory failed and cannot be repaired."""
    v = make.judge(make.xid(48, 3, 5), make.xid(64, 3, 4))
    assert (v.cause, v.confidence) == ("gpu_row_remap_failure", C.CERTAIN)


def test_overlapping_checks_on_one_bus_are_one_fault(make):
    """PCIe error, Xid 79 and the baseboard's critical interrupt: one lost GPU."""
    aer = make.event(
        5,
        kind="pcie_aer",
        code="fatal",
        pci_bus_id="0000:53:00.0",
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
    )
    ipmi = make.event(2, kind="ipmi", code="critical_interrupt", source="ipmi")
    v = make.judge(make.xid(79), aer, ipmi)
    assert (v.cause, v.device, v.confidence) == ("gpu_lost", "gpu3", C.CERTAIN)
    assert {aer.event_id, ipmi.event_id} <= set(v.evidence)
    assert not any("pcie" in s for s in v.ruled_out)


def test_several_devices_behind_one_bus_are_the_bus(make):
    """A GPU and an adapter gone together with a PCIe error above them: a shared switch."""
    aer = make.event(5, kind="pcie_aer", code="fatal", pci_bus_id="0000:50:00.0")
    hca = make.event(4, kind="ib_link", code="port_down", device="mlx5_3", source="sysfs")
    v = make.judge(aer, make.xid(79), hca)
    assert (v.cause, v.node) == ("pcie", "n2")


def test_corrected_errors_convict_nothing(make):
    """Corrected AER and ECC are kept, shown, and never guilty."""
    info = {"severity": records.Severity.INFO}
    v = make.judge(
        make.event(9, kind="pcie_aer", code="corrected", **info),
        make.event(8, kind="edac", code="CE", **info),
        make.xid(63, 3, 7, **info),
        make.xid(92, 3, 6, **info),
    )
    assert v.domain is D.USER_PROGRAM


def test_fatal_switch_error_explains_the_links_behind_it(make):
    """SXid fatal with Xid 74 on several GPUs is the switch."""
    v = make.judge(
        make.event(5, kind="sxid", code="20034", device="nvswitch0"), make.xid(74, 1, 4), make.xid(74, 2, 4)
    )
    assert (v.cause, v.node) == ("nvswitch", "n2")


def test_mount_under_the_jobs_directory_is_named(make):
    """The job worked under /scratch, which went away."""
    gone = make.event(30, kind="mount", code="missing", device="/scratch", source="mount")
    v = make.judge(gone, attempt=make.attempt(work_dir="/scratch/alice/run7"))
    assert (v.cause, v.domain, v.device) == ("filesystem_mount", D.SYSTEM_SOFTWARE, "/scratch")
    assert v.confidence is C.CERTAIN


def test_out_of_memory_state_is_certain(make):
    """Slurm's own word, with the kernel's kill as evidence."""
    kill = make.event(3, kind="oom", code="memcg", job_id=4242)
    v = make.judge(kill, attempt=make.attempt(state="OUT_OF_MEMORY", exit_code=0, exit_signal=9))
    assert (v.cause, v.domain, v.confidence) == ("oom_host", D.USER_PROGRAM, C.CERTAIN)
    assert kill.event_id in v.evidence
    # The node that saw it is where memory ran out; without its word nobody knows, and no node is to blame for either.
    assert v.node == kill.node
    assert make.judge(attempt=make.attempt(state="OUT_OF_MEMORY", exit_code=0, exit_signal=9)).node is None


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "FAILED"])
def test_a_memory_kill_after_the_end_is_no_evidence(make, state):
    """The next job of the node ran out of memory, too: its kill, minutes later, does not stand beside this one's."""
    kill = make.event(3, kind="oom", code="memcg", job_id=4242)
    later = make.event(-240, kind="oom", code="global")
    v = make.judge(kill, later, attempt=make.attempt(state=state, exit_code=0, exit_signal=9))
    assert v.cause == "oom_host"
    assert v.evidence == (kill.event_id,)


@pytest.mark.parametrize(
    ("after_s", "victim", "words"),
    [(73, 7, "no fault beside it"), (73, None, "no fault beside it"), (-3, 7, "no fault beside it"), (-3, None, "it is unknown whether")],
)  # fmt: skip
def test_anothers_memory_kill_says_nothing_about_an_exit(make, after_s, victim, words):
    """The kernel names the group in one line about a kill, and none in the others; after the job's end no kill is its own."""
    lines = [
        make.event(-after_s, kind="oom", code="invoked", severity=records.Severity.INFO),
        make.event(-after_s, kind="oom", code="memcg", job_id=victim, pid=41, process="python3"),
        make.event(-after_s, kind="oom", code="killed", pid=41, process="python3"),
    ]
    shared = {"n2": ((make.start, None),)}
    attempt = make.attempt(exit_code=1, gpus=None, n_gpus=0)
    v = make.judge(*lines, attempt=attempt, shared=shared)
    alone = make.judge(attempt=attempt, shared=shared)
    assert words in v.summary
    assert (v.confidence == alone.confidence) is (words == "no fault beside it")


def test_killed_with_a_kernel_oom_line_is_out_of_memory(make):
    """FAILED with SIGKILL just as the kernel killed a process of it."""
    v = make.judge(make.event(3, kind="oom", code="memcg", job_id=4242), attempt=make.attempt(exit_code=137))
    assert v.cause == "oom_host"


def test_gpu_out_of_memory_is_the_program(make):
    """CUDA out of memory is a program's own."""
    v = make.judge(make.finding("cuda_oom"))
    assert (v.cause, v.domain, v.confidence) == ("oom_gpu", D.USER_PROGRAM, C.CERTAIN)


def test_time_limit(make):
    """TIMEOUT without a hang is the limit."""
    v = make.judge(attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=1100.0))
    assert (v.cause, v.confidence) == ("time_limit", C.CERTAIN)
    assert "18 min" in v.summary


def test_cancelled_by_a_person(make):
    """CANCELLED names who."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice"))
    assert (v.cause, v.domain, v.confidence) == ("user_cancelled", D.UNKNOWN, C.CERTAIN)
    assert v.summary == "The job was cancelled by its user (alice)."
    assert v.next_step.startswith("Nothing")


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("root", "by root: by an administrator, or by Slurm itself."),
        ("0", "by root: by an administrator, or by Slurm itself."),
        ("bob", "by bob, not by its user."),
        ("1001", "by user id 1001."),
    ],
)
def test_a_job_cancelled_by_another_was_not_cancelled_on_purpose_by_its_user(make, by, words):
    """A bare number is never called the user's own word, and root's act sends the user to the administrators."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by=by))
    assert v.summary == f"The job was cancelled {words}"
    assert v.next_step.startswith("Ask the administrators") == (by in ("root", "0"))


def test_who_cancelled_is_not_known_where_nobody_is_named(make):
    """CANCELLED alone shows neither the canceller nor the intent."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0))
    assert v.summary == "The job was cancelled; it is not recorded by whom."
    assert v.next_step.startswith("Nothing, if you cancelled it yourself; else ask the administrators")


def test_roots_name_is_told_as_an_administrators_or_slurms(make):
    """The next step does not know more than the summary: Slurm's own cancellations bear root's name."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by="root"))
    assert "whether one of them cancelled it" in v.next_step
    assert "root cancelled it" not in v.next_step


def test_cancelled_after_a_lost_gpu_names_the_gpu(make):
    """People cancel hung jobs: the fault is the cause, and not certain."""
    v = make.judge(make.xid(79, 3, 300), attempt=make.attempt(state="CANCELLED", exit_code=0))
    assert (v.cause, v.confidence) == ("gpu_lost", C.LIKELY)


def test_preempted_names_its_preemptor_and_what_is_behind_it(make):
    """Second-order loss: the preemptor was itself restarted by a fault. Of another user's or account's job only the number is shown."""
    ours, behind = make.attempt(state="PREEMPTED", exit_code=0), make.judge(make.xid(79))
    number = "A job of higher priority took its place; the next to start there was job 99"
    for changes, words in (
        ({}, f"{number}, which had to start again because of gpu_lost on n2."),
        ({"user": "bob"}, f"{number}."),
        ({"account": "secret"}, f"{number}."),
    ):
        by = make.attempt(job_id=99, name="private", state="RUNNING", end_at=None, **changes)
        v = make.judge(attempt=ours, preemptor=by, preemptor_verdict=behind)
        assert (v.cause, v.confidence, v.summary) == ("preempted", C.CERTAIN, words)


def test_requeued_by_a_person(make):
    """Without an action of ours and without a fault, a person did it."""
    v = make.judge(attempt=make.attempt(state="REQUEUED", exit_code=0))
    assert (v.cause, v.confidence) == ("requeued_by_user", C.LIKELY)
    assert taxonomy.name(v.cause, v.component) == "requeued by user"


def test_a_requeue_that_nobody_watched_is_possible_at_most(make):
    """Slurm itself requeues after a failed Prolog or node: without a watch, "no fault" proves nothing."""
    for unseen in ({"watched": {}}, {"watched": {"n1": make.end}}, {"by_log": frozenset({"n2"})}):
        v = make.judge(attempt=make.attempt(state="REQUEUED", exit_code=0), **unseen)
        assert (v.cause, v.confidence) == ("requeued_by_user", C.POSSIBLE)
        assert taxonomy.name(v.cause, v.component) == "requeued, by whom is unknown"
        assert "nobody watched n" in v.summary
        assert "a person or service" in v.summary, "whose requeue it was is not in accounting"
        assert "no fault was seen" not in v.summary
        assert not v.next_step.startswith("Nothing")


def test_refused_node(make):
    """End-to-end case 6: the Prolog refused, nothing was lost."""
    refusal = make.action("refuse", job_id=4242, at=make.start, reason="probing: gpu_lost gpu3")
    v = make.judge(
        attempt=make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=2)),
        actions=(refusal,),
    )
    assert (v.cause, v.node) == ("node_refused", "n2")
    assert "(probing: gpu_lost gpu3)" in v.summary


@pytest.mark.parametrize(("state", "by"), [("CANCELLED", "alice"), ("FAILED", None), ("REQUEUED", None)])
def test_a_job_that_our_prolog_refused_is_no_users_doing(make, state, by):
    """The agent's own event says so: whatever Slurm calls the end, we ended it."""
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, message="job 4242 was refused", detail={"fault": "gpu_lost:gpu3", "restart_count": 0})  # fmt: skip
    attempt = make.attempt(
        state=state, cancelled_by=by, exit_code=0, end_at=make.start + timedelta(seconds=2), restart_count=0
    )
    v = make.judge(refused, attempt=attempt)
    assert (v.cause, v.node, v.confidence) == ("node_refused", "n2", C.CERTAIN)
    assert v.evidence == (refused.event_id,)
    assert "(gpu_lost:gpu3)" in v.summary
    assert ("Submit the job again" in v.next_step) is (state != "REQUEUED")
    for other in ({"job_id": 7}, {"detail": {"fault": "x", "restart_count": 1}}, {"source": "import"}):
        assert make.judge(dataclasses.replace(refused, **other), attempt=attempt).cause != "node_refused"


@pytest.mark.parametrize(
    ("bound_by", "where", "step"),
    [
        ({"bound_by": ""}, "Slurm starts it elsewhere.", "Nothing for the job. Repair n2"),
        ({"bound_by": "nodelist"}, "it asks for that node by name (--nodelist) and waits for it.", "Nothing for the job but to wait for that node"),
        ({"bound_by": "reservation"}, "Slurm starts it elsewhere if its reservation has another node.", "Nothing for the job. Repair n2"),
        ({}, "Slurm starts it elsewhere if it may.", "Nothing for the job. Repair n2"),
        ({"bound_by": ["x"]}, "Slurm starts it elsewhere if it may.", "Nothing for the job. Repair n2"),
    ],
)  # fmt: skip
def test_where_a_refused_job_starts_again_is_said_as_far_as_it_is_known(make, bound_by, where, step):
    """Agents of earlier releases do not tell; what asks for that very node does not start elsewhere."""
    detail = {"fault": "gpu_lost:gpu3", "restart_count": 0, **bound_by}
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail=detail)  # fmt: skip
    attempt = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=2), restart_count=0)  # fmt: skip
    v = make.judge(refused, attempt=attempt)
    assert v.summary.endswith(f"; {where}")
    assert v.next_step.startswith(step)
    assert ("scontrol update JobId=4242 ReqNodeList=" in v.next_step) is ("nodelist" in bound_by.values())


def test_a_start_that_its_limit_ended_had_begun_though_our_prolog_refused_it(make):
    """The site's own Prolog may go on; nor is a refusal before the start of a program that ran its end."""
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"fault": "xid:gpu0", "restart_count": 0})  # fmt: skip
    lost = make.xid(79, 3, before_end_s=4)
    v = make.judge(lost, refused, attempt=make.attempt(state="TIMEOUT", exit_code=0, restart_count=0))
    assert v.confidence is not C.CERTAIN
    assert any("fell off the bus" in words or "gpu lost" in words for words in (v.summary, *v.ruled_out))
    again = make.judge(lost, refused, attempt=make.attempt(state="REQUEUED", exit_code=0, restart_count=0))
    assert again.confidence is not C.CERTAIN, "a fault came long after the refusal: it had begun"
    early = dataclasses.replace(refused, at=make.end - timedelta(seconds=65))
    ran = make.attempt(start_at=make.end - timedelta(seconds=40), restart_count=0)
    own = make.finding("python_exception", detail={"exception": "KeyError"})
    assert make.judge(early, own, attempt=ran).cause == "user_error"


def test_a_job_whose_prolog_slurmd_reports_as_failed_did_not_begin(make):
    """As the node's syslog says it, which is likely at most: of this job, and beside a GPU that was lost before for that."""
    failed = make.event(at=make.start, kind="slurmd", code="prolog_failed", source="import", severity=records.Severity.INFO, detail={"job": 4242})  # fmt: skip
    attempt = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=2))
    lost = make.xid(79, at=make.start - timedelta(hours=3))
    for faults, domain, words in (
        ((), records.Domain.UNKNOWN, "does not say why"),
        ((lost,), records.Domain.HARDWARE, "had lost a GPU before (Xid 79)"),
    ):
        v = make.judge(failed, attempt=attempt, active_faults=faults)
        assert (v.cause, v.node, v.confidence, v.domain) == ("node_refused", "n2", C.LIKELY, domain)
        assert words in v.summary
        assert v.next_step.startswith("Run the site's Prolog by hand on n2") is (not faults)
    other = dataclasses.replace(failed, detail={"job": 7})
    assert make.judge(other, attempt=attempt).cause == "requeued_by_user"
    by_slurm = dataclasses.replace(failed, source="slurm", detail={})
    assert make.judge(by_slurm, attempt=attempt).cause == "node_refused"
    later = dataclasses.replace(by_slurm, at=make.start + timedelta(seconds=40))
    assert make.judge(later, attempt=attempt).cause == "requeued_by_user"


def test_a_fatal_pcie_error_that_stopped_the_kernel_is_the_cause(make):
    """The firmware's report, the machine check that it is, and the panic it ends in are one fault."""
    at = make.end - timedelta(minutes=4)
    chain = [
        make.event(at=at, kind="mce", code="detail"),
        make.event(at=at, kind="pcie_aer", code="fatal", pci_bus_id="0000:01:00.0"),
        make.event(at=at, kind="panic", code="panic"),
    ]
    attempt = make.attempt(state="NODE_FAIL", failed_node="n2")
    v = make.judge(*chain, attempt=attempt)
    assert (v.cause, v.node, v.domain, v.confidence) == ("pcie", "n2", records.Domain.HARDWARE, C.LIKELY)
    v = make.judge(chain[0], chain[2], attempt=attempt)
    assert (v.cause, v.node, v.domain) == ("cpu_mce", "n2", records.Domain.HARDWARE)


def test_an_ethernet_link_that_went_down_a_tcp_timeout_before_is_the_cause(make):
    """An open connection fails only after TCP has repeated for a quarter of an hour; a refused one at once."""
    down = make.event(1050, kind="eth_link", code="link_down", device="ens5f0")
    lost = make.finding("gloo_connection_reset", detail={"unanswered_ms": 924_600})
    v = make.judge(down, lost)
    assert (v.cause, v.node, v.confidence) == ("eth_link", "n2", C.LIKELY)
    assert make.judge(down, dataclasses.replace(lost, detail={})).cause != "eth_link"


def test_only_what_was_done_to_this_start_is_named(make):
    """Refusals and drains of the same node for other jobs and at other times lend no words."""
    other = make.action("refuse", job_id=7, at=make.start, reason="probing: another's")
    mine = make.action("refuse", job_id=4242, at=make.start, reason="probing: its own")
    requeued = make.attempt(state="REQUEUED", exit_code=0)
    for actions in ((other, mine), (mine, other)):
        assert "(probing: its own)" in make.judge(attempt=requeued, actions=actions).summary
    before = make.action("drain", at=make.start - timedelta(days=2), reason="probing: long ago")
    failed = make.action("requeue", -5, job_id=4242, state="failed", reason="probing: in vain")
    done = make.action("requeue", -2, job_id=4242, reason="probing: its own")
    for actions in ((before, failed, done), (done, failed, before)):
        assert "requeued by us (probing: its own)" in make.judge(attempt=requeued, actions=actions).summary


def test_a_start_that_the_policy_ended_is_called_so(make):
    """Its cause is unknown; another unknown end, and one by a person, keep their cause's name."""
    done = make.action("requeue", -2, job_id=4242, reason="probing: its own")
    requeued = make.attempt(state="REQUEUED", exit_code=0)
    for actions, name in (((done,), "requeued by the policy"), ((), "requeued by user")):
        v = make.judge(attempt=requeued, actions=actions)
        assert taxonomy.name(v.cause, v.component) == name
    assert taxonomy.name("unknown", "") == "unknown"


def test_what_the_next_start_wrote_moves_no_onset(make):
    """A timeout hours later, in the log of the same job's next start, is not this one's."""
    alone = make.judge(attempt=make.attempt(exit_signal=6))
    later = make.finding("nccl_timeout", at=make.end + timedelta(hours=2), detail={"timeout_ms": 600_000})
    assert make.judge(later, attempt=make.attempt(exit_signal=6)) == alone


def test_an_adapter_that_died_is_not_well_because_its_port_reads_up(make):
    """Whatever was under way on it is lost, also where its driver brings it back."""
    dead = {"kind": "ib_link", "node": "n2", "code": "health_compromised", "pci_bus_id": "0000:18:00.0"}
    up = {**dead, "source": "sysfs", "severity": records.Severity.INFO, "detail": {"recovered": True}}
    log = make.finding("watchdog_timeout", detail={"timeout_ms": 1000, "first_cause": True})
    v = make.judge(make.event(4, **dead), make.event(2, **up), log)
    assert (v.cause, v.node, v.confidence) == ("ib_link", "n2", C.LIKELY)


def test_a_fault_that_went_while_the_job_ran_on_is_not_why_it_failed(make):
    """An NVLink that was down as the job began and came back: its exit code is its own."""
    begin = make.end - timedelta(seconds=60)
    job = make.attempt(start_at=begin, nodes=("n2",))
    link = {"kind": "nvlink", "code": "inactive", "source": "nvml", "device": "gpu3", "gpu_uuid": make.uuid("n2", 3)}  # fmt: skip
    down = make.event(62, **link)
    assert make.judge(down, attempt=job).cause == "gpu_nvlink"
    up = make.event(50, **{**link, "severity": records.Severity.INFO, "detail": {"recovered": True}})
    assert make.judge(down, up, attempt=job).cause == "user_error"


def test_a_missing_gpu_among_several_is_not_surely_the_jobs(make):
    """A count says that one is gone, not which: where others are known on the node it may be theirs."""
    gone = {"kind": "check", "code": "gpu_count", "source": "check", "message": "7 of 8 GPUs", "node": "n2"}
    own = {"n2": (make.uuid("n2", 2),)}
    one = make.attempt(start_at=make.end - timedelta(seconds=60), nodes=("n2",), n_gpus=1, gpus=own)
    before = make.event(71, **gone)
    assert make.judge(before, attempt=one).cause == "gpu_lost"
    others = make.xid(48, 5, 300, node="n2")
    v = make.judge(before, others, attempt=one)
    assert v.cause == "user_error"
    assert any("did not hold it" in words for words in v.ruled_out)


def test_what_we_requeued_for_is_why_it_ended(make):
    """A job on one node may never feel a dead link: left alone it is not the link's victim, requeued for it it is."""
    down = {"kind": "check", "code": "ib_link", "device": "mlx5_2", "source": "check"}
    event = make.event(300, node="n2", severity=records.Severity.HIGH, **down)
    alone = make.attempt(state="REQUEUED", exit_code=0, nodes=("n2",))

    def verdict(*actions):
        v = make.judge(event, attempt=alone, actions=actions)
        return v.cause, v.domain, v.node, v.confidence

    for_it = make.action("requeue", -1, job_id=4242, event_ids=(event.event_id,))
    assert verdict(for_it) == ("ib_link", "hardware", "n2", C.LIKELY)
    others = (
        make.action("drain", -1, event_ids=(event.event_id,)),
        make.action("requeue", -1, job_id=4242, event_ids=(make.xid(79).event_id,)),
        make.action("requeue", -1, job_id=4242, event_ids=(event.event_id,), state="failed"),
        make.action("requeue", 20, job_id=4242, event_ids=(event.event_id,)),
    )
    assert {verdict(other)[0] for other in others[:2]} == {"unknown"}
    assert verdict(others[2])[0] == "requeued_by_user"
    assert verdict(others[3])[0] == "unknown", "that one ended the job's next start"
    by_itself = make.attempt(state="FAILED", exit_code=1, nodes=("n2",))
    assert make.judge(event, attempt=by_itself, actions=(for_it,)).cause == "user_error", (
        "it had ended already"
    )


def test_a_job_that_we_requeued_is_not_said_to_have_died_of_a_fault_that_it_may_not_have_felt(make):
    """A link of a job on one node, which ran on until an operator's drain let the policy requeue it; the link came back after that."""
    link = {"kind": "ib_link", "node": "n2", "source": "sysfs", "device": "mlx5_3"}
    down = make.event(24, code="port_down", **link)
    up = make.event(-46, code="port_down", **link, severity=records.Severity.INFO, message="recovered after 70 s", detail={"recovered": True})  # fmt: skip
    attempt = make.attempt(state="REQUEUED", exit_code=0, nodes=("n2",))
    by_hand = make.action("drain", -5, owner="ada", reason="probing: fan (ada)")
    requeue = make.action(
        "requeue", -1, job_id=4242, event_ids=(down.event_id,), reason="probing: ib_link mlx5_3"
    )
    v = make.judge(down, up, attempt=attempt, actions=(by_hand, requeue))
    assert (v.cause, v.evidence) == ("ib_link", (down.event_id,))
    assert v.summary.endswith(
        "; the job was requeued by us (probing: ib_link mlx5_3, after an operator drained n2), and nothing shows that it felt the fault."
    )
    v = make.judge(attempt=attempt, actions=(by_hand, requeue))
    assert v.cause == "unknown"
    assert "explains the end" not in v.summary
    assert "requeued by us (probing: ib_link mlx5_3, after an operator drained n2)" in v.summary
    assert v.next_step.startswith("Nothing for the job")
    drained = make.judge(attempt=attempt, actions=(make.action("drain", -5),))
    assert "by us" not in drained.summary, "a drain ends no job"


def test_a_refusal_beside_another_fault_names_what_makes_it_doubtful(make):
    """One step less sure, and the verdict says why; alone, the refusal is certain and lists nothing."""
    ended = make.attempt(
        state="FAILED", exit_code=1, nodes=("n1",), start_at=make.end - timedelta(seconds=20)
    )
    acts = (make.action("refuse", -30, job_id=4242, node="n1", reason="probing: xid 79 gpu3"),)
    fault = make.event(-1, node="n1", kind="filesystem", severity=records.Severity.HIGH, source="kernel")
    alone, beside = (
        judge.judge(make.case(*events, attempt=ended, actions=acts), made_at=make.end)
        for events in ((), (fault,))
    )
    assert (alone.cause, alone.confidence, alone.ruled_out) == ("node_refused", "certain", ())
    assert (beside.cause, beside.confidence) == ("node_refused", "likely")
    assert [text.split(" (")[0] for text in beside.less_likely] == ["filesystem mount on n1"]


@pytest.mark.parametrize("action", ["requeue", "drain"])
def test_a_start_that_we_sent_away_as_it_began_was_refused(make, action):
    """Of a refusal, accounting has a start of no length, and the drain that Slurm made of it is ours."""
    lost = make.xid(79, 3, at=make.start - timedelta(hours=3))
    began = make.attempt(state="REQUEUED", exit_code=0, nodes=("n2",), end_at=make.start)
    act = make.action(action, at=make.start + timedelta(seconds=1), job_id=4242 if action == "requeue" else None, event_ids=(lost.event_id,), reason="probing: gpu_lost gpu3")  # fmt: skip
    for events in ((lost,), ()):
        v = make.judge(*events, attempt=began, actions=(act,))
        assert (v.cause, v.node, v.confidence, v.ruled_out) == ("node_refused", "n2", C.LIKELY, ())
        assert "(probing: gpu_lost gpu3)" in v.summary
        assert ("requeued by us" in v.summary) is (action == "requeue")
        assert v.next_step.startswith("Nothing for the job")


def test_a_refusal_after_the_recorded_end_of_a_start_of_no_length_is_its_own(make):
    """Slurm dates its end to its begin, and the Prolog answers seconds later."""
    refused = make.event(at=make.start + timedelta(seconds=6), kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, node="n2", detail={"fault": "gpu_lost:gpu3", "restart_count": 0})  # fmt: skip
    began = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start, restart_count=0)
    assert make.judge(refused, attempt=began).cause == "node_refused"
    ran_on = make.attempt(state="REQUEUED", exit_code=0, end_at=make.start + timedelta(seconds=3))
    assert make.judge(refused, attempt=ran_on).cause != "node_refused"


@pytest.mark.parametrize("ended_s", [0, 5, 300, 1800])
def test_a_refused_start_is_no_older_faults_doing_whenever_slurm_ended_it(make, ended_s):
    """The agent names the job and the fault; an older error of another GPU and the requeue itself explain nothing beside it."""
    end_at = make.start + timedelta(seconds=ended_s)
    attempt = make.attempt(state="REQUEUED", exit_code=0, nodes=("n2",), gpus=None, end_at=end_at)
    lost = make.xid(79, 0, at=make.start - timedelta(minutes=6))
    old = make.xid(95, 4, at=make.start - timedelta(minutes=17))
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"fault": "xid:gpu0", "restart_count": 0})  # fmt: skip
    v = make.judge(lost, refused, attempt=attempt, active_faults=(old, lost))
    assert (v.cause, v.node) == ("node_refused", "n2")
    assert not [s for s in v.ruled_out if s.startswith("Less likely: requeued")]
    counted = dataclasses.replace(attempt, restart_count=1)
    assert make.judge(lost, refused, attempt=counted).cause == "node_refused", (
        "the row's count is a later start's"
    )
    others = dataclasses.replace(refused, job_id=7)
    assert make.judge(lost, others, attempt=attempt, active_faults=(old, lost)).cause != "node_refused"
    wrote = make.finding("python_error", at=end_at, message="KeyError: 'x'")
    if ended_s > 120:
        assert make.judge(refused, wrote, attempt=attempt).cause != "node_refused", "its program ran"


@pytest.mark.parametrize("nodes", [("n2",), ("n1", "n2")])
def test_nothing_that_its_nodes_met_ended_a_start_that_was_refused(make, nodes):
    """Not even the fault it was refused for, in its window and of a GPU that it was to hold: it had not begun."""
    refused = make.event(at=make.start, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"fault": "xid:gpu0", "restart_count": 0})  # fmt: skip
    attempt = make.attempt(state="REQUEUED", exit_code=0, nodes=nodes, end_at=make.start + timedelta(seconds=1), restart_count=1)  # fmt: skip
    at = make.start - timedelta(seconds=76)
    ways = [("xid", "79", "kernel"), ("xid", "79", "nvml"), ("gpu_lost", "GPU_IS_LOST", "nvml"), ("check", "gpu_count", "check")]  # fmt: skip
    lost = [dataclasses.replace(make.xid(79, 0, at=at), kind=k, code=c, source=s) for k, c, s in ways]
    others = make.xid(95, 4, node=nodes[0], at=make.start - timedelta(minutes=2))
    v = make.judge(*lost, others, refused, attempt=attempt, active_faults=(others, *lost))
    assert (v.cause, v.node, v.confidence, v.ruled_out) == ("node_refused", "n2", C.CERTAIN, ())
    neighbours = dataclasses.replace(refused, job_id=7)
    assert make.judge(*lost, neighbours, attempt=attempt, active_faults=tuple(lost)).cause == "gpu_lost"


@pytest.mark.parametrize(("restarts", "known"), [(0, True), (1, False), (None, False)])
def test_a_refusal_by_a_clock_that_is_a_little_behind_is_this_starts(make, restarts, known):
    """A clock counts as wrong beyond half a minute; a job that was refused may start again within seconds, so only the count tells."""
    attempt = make.attempt(state="REQUEUED", exit_code=0, nodes=("n2",), gpus=None, end_at=make.start + timedelta(seconds=3), restart_count=restarts)  # fmt: skip
    lost = make.xid(79, 0, at=make.start - timedelta(minutes=6))
    refused = make.event(at=make.start - timedelta(seconds=25), kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"fault": "xid:gpu0", "restart_count": 0})  # fmt: skip
    assert (make.judge(lost, refused, attempt=attempt).cause == "node_refused") is known
    long_before = dataclasses.replace(refused, at=make.start - timedelta(seconds=45))
    assert make.judge(lost, long_before, attempt=attempt).cause != "node_refused"


def test_what_we_requeued_for_counts_however_early_it_began(make):
    """Held back for hours, then requeued: the fault is the reason, and the verdict's window reaches to it."""
    lost = make.xid(79, 3, at=make.end - timedelta(hours=3))
    requeued = make.attempt(state="REQUEUED", exit_code=0)
    act = make.action("requeue", -1, job_id=4242, event_ids=(lost.event_id,))
    v = make.judge(lost, attempt=requeued, actions=(act,))
    assert (v.cause, v.device, v.evidence) == ("gpu_lost", "gpu3", (lost.event_id,))
    assert v.window_start_at <= lost.at


def test_what_our_own_handling_caused_does_not_count(make):
    """Events after our requeue do not add a second cause, even high ones."""
    root = make.xid(48, 3, 20)
    act = make.action("requeue", -10, job_id=4242, event_ids=(root.event_id,))
    after = make.xid(79, 5, 5)
    v = make.judge(root, after, attempt=make.attempt(state="REQUEUED", exit_code=0), actions=(act,))
    assert (v.cause, v.device) == ("gpu_memory_uncorrectable", "gpu3")


def test_a_drain_makes_no_later_fault_ours(make):
    """The job runs on, on its drained node and on others: what breaks a quarter of an hour later ended it."""
    for node in ("n1", "n2"):
        drain = make.action("drain", -900, node=node)
        v = make.judge(make.xid(79, 3, 4), actions=(drain,))
        assert (v.cause, v.node, v.confidence) == ("gpu_lost", "n2", C.CERTAIN)


def test_what_drained_the_node_is_seen_better_a_moment_later(make):
    """A check that found the mount missing drained the node as the job died; the agent's own reading followed."""
    check = make.event(
        0,
        kind="check",
        code="mount_present",
        source="check",
        device="/scratch",
        severity=records.Severity.LOW,
    )
    mount = make.event(-3, kind="mount", code="missing", source="mount", device="/scratch")
    drain = make.action("drain", 0.5, node="n2", event_ids=(check.event_id,))
    v = make.judge(check, mount, actions=(drain,))
    assert (v.cause, v.confidence) == ("filesystem_mount", C.LIKELY)


def test_what_a_repair_of_the_drained_node_does_is_ours(make):
    """A minute after the end its links go down for a reboot."""
    drain = make.action("drain", -1, node="n2")
    down = make.event(-60, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    assert make.judge(down, actions=(drain,)).cause == "user_error"
    assert make.judge(down).cause == "ib_link"


def test_a_fault_before_the_start_is_at_most_possible(make):
    """A lost GPU stays lost, but the next attempt is not certainly its victim; a transient error ends no later attempt."""
    begin = make.end - timedelta(seconds=60)
    early = begin - timedelta(seconds=60)
    aborted = make.attempt(start_at=begin, exit_signal=6, exit_code=0)
    lost = make.judge(make.xid(79, at=early), attempt=aborted)
    assert lost.cause == "gpu_lost"
    assert lost.confidence is C.POSSIBLE
    assert make.judge(make.xid(94, at=early), attempt=make.attempt(start_at=begin)).cause == "user_error"


def test_user_error_before_the_fault_is_the_user(make):
    """The log's own clock says that the program failed first."""
    own = make.finding("python_traceback", 60, message="KeyError: 'x'", detail={"at_from_log": True})
    v = make.judge(own, make.xid(79, 3, 4))
    assert v.cause == "user_error"


def test_a_flapping_link_beside_a_traceback_is_noise(make):
    """A link that came back and a program's own exception: the program."""
    down = make.event(30, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    up = make.event(
        25, kind="ib_link", code="up", device="mlx5_0", source="sysfs", severity=records.Severity.INFO
    )
    v = make.judge(down, up, make.finding("python_traceback", message="ValueError"))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)


def test_link_faults_do_not_concern_single_node_jobs_much(make):
    """A one-node job's traffic does not leave the node."""
    down = make.event(30, kind="ib_link", code="port_down", device="mlx5_0", source="sysfs")
    assert make.judge(down, attempt=make.attempt(nodes=("n2",))).cause == "user_error"


def test_the_papers_window_is_fixed_to_the_end(make):
    """With the paper's window a hang's root lies outside and only its states are judged."""
    paper = cases.WindowPolicy(paper=True)
    hang = make.finding("watchdog_timeout", detail={"timeout_ms": 1800000})
    long = make.attempt(start_at=make.end - timedelta(hours=5))
    assert make.judge(make.xid(79, 3, 1805), hang, attempt=long, policy=paper).cause == "unknown"
    case = make.case(attempt=make.attempt(state="TIMEOUT"), policy=paper)
    assert judge.judge(case, made_at=make.end) is None


def test_only_the_first_cause_of_a_log_is_the_programs_own(make):
    """Errors that echo the first one do not argue against the hardware."""
    first = make.finding("cuda_ecc", node="n2", detail={"first_cause": True, "role": "root"})
    echo = make.finding("python_exception", message="RuntimeError", detail={"role": "root"})
    v = make.judge(make.xid(94, severity=records.Severity.LOW), first, echo)
    assert (v.cause, v.confidence) == ("gpu_memory_contained", C.CERTAIN)
    assert make.judge(first, echo).cause == "gpu_memory_uncorrectable"


# ---- what the campaign taught --------------------------------------------------------------------------------


def test_an_error_the_training_went_on_after_ended_nothing(make):
    """A traceback that was survived neither convicts the program nor doubts the hardware."""
    caught = make.finding("python_exception", detail={"survived": True, "exception": "ConnectionError"})
    v = make.judge(caught, make.xid(79))
    assert (v.cause, v.confidence) == ("gpu_lost", C.CERTAIN)
    assert make.judge(caught).evidence == ()


def test_an_exit_line_of_the_launcher_says_no_more_than_the_exit_code(make):
    """Beside a hang the watchdog ended it, and the reason is unknown."""
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 600_000})
    v = make.judge(hung, make.finding("process_aborted"), attempt=make.attempt(exit_code=134))
    assert v.cause == "unknown"
    alone = make.judge(make.finding("task_exit"))
    assert (alone.cause, alone.confidence) == ("user_error", C.LIKELY)


def test_an_exit_code_gives_way_to_a_fault_that_may_have_been_its_own(make):
    """GPUs unknown on a shared node, an uncorrectable error there, and nothing but an exit code: possible, and hardware."""
    mine = make.attempt(nodes=("n2",), n_gpus=1, gpus=None)
    v = make.judge(make.xid(48), attempt=mine, shared={"n2": ((make.start, None),)})
    assert (v.cause, v.confidence) == ("gpu_memory_uncorrectable", C.POSSIBLE)
    own = make.finding("python_exception", detail={"exception": "ValueError"})
    v = make.judge(make.xid(48), own, attempt=mine, shared={"n2": ((make.start, None),)})
    assert v.cause == "user_error"


def counted_down(make, before_end_s: float, device: str) -> records.HealthEvent:
    """The agent's counter of a port that went down and came back."""
    return make.event(
        before_end_s,
        kind="ib_link",
        code="link_downed",
        device=device,
        source="sysfs",
        severity=records.Severity.LOW,
    )


def test_a_flap_minutes_before_the_end_convicts_nobody(make):
    """The kernel saw the port go, the agent counted it and did not find it down: it came back."""
    down = make.event(300, kind="ib_link", code="port_down", device="mlx5_0")
    counted = counted_down(make, 295, "mlx5_0")
    assert make.judge(down, counted).cause == "user_error"
    stays = make.event(285, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 290_000})
    assert make.judge(down, counted, stays, hung).cause == "ib_link"


def test_a_flap_in_the_last_second_convicts_nobody_once_the_port_was_seen_up(make):
    """A port that is back within seconds ends no gang that soon; the reading that shows it comes after the end."""
    down = make.event(1, kind="ib_link", code="link_down", device="ib5")
    assert make.judge(down).cause == "ib_link"
    up = make.event(
        -9, kind="ib_link", code="link_down", device="ib5", source="sysfs", severity=records.Severity.INFO,
        detail={"recovered": True},
    )  # fmt: skip
    assert make.judge(down, up).cause == "user_error"


def test_a_port_that_went_again_has_not_come_back(make):
    """Its going down is one event from the first to the last time; it came up in between."""
    down = make.event(
        20, kind="ib_link", code="link_down", device="ib5", last_at=make.end - timedelta(seconds=5)
    )
    up = {"kind": "ib_link", "code": "up", "device": "ib5", "severity": records.Severity.INFO}
    assert make.judge(down, make.event(18, **up)).cause == "ib_link"
    assert (
        make.judge(down, make.event(18, last_at=make.end - timedelta(seconds=3), **up)).cause == "user_error"
    )


@pytest.mark.parametrize("port_up", [True, False])
def test_a_counter_that_rose_while_the_port_is_up_convicts_nobody(make, port_up):
    """The reading that finds `link_downed` risen sees whether the port came back."""
    counted = make.event(
        2, kind="ib_link", code="link_downed", device="mlx5_5", source="sysfs", severity=records.Severity.LOW,
        detail={"port_up": port_up},
    )  # fmt: skip
    assert make.judge(counted).cause == ("user_error" if port_up else "ib_link")


def test_a_port_is_one_under_its_interfaces_and_its_adapters_name(make):
    """The kernel saw ib5 go, the reading saw mlx5_5 come back: one PCI function. Another function is another port."""
    down = make.event(1, kind="ib_link", code="link_down", device="ib5", pci_bus_id="0000:c0:00.0")

    def back(function):
        return make.event(
            -9, kind="ib_link", code="down", device="mlx5_5", pci_bus_id=function, source="sysfs",
            severity=records.Severity.INFO, detail={"recovered": True},
        )  # fmt: skip

    assert make.judge(down, back("0000:c0:00.0")).cause == "user_error"
    assert make.judge(down, back("0000:c0:00.1")).cause == "ib_link"


@pytest.mark.parametrize("how", [{"exit_signal": 11, "exit_code": 0}, {"exit_code": 139}])
def test_a_segmentation_fault_is_not_laid_at_a_link(make, how):
    """Calls on a lost link fail or wait; a segmentation fault is the program's own."""
    flapping = make.event(
        1, kind="ib_link", code="flapping", device="mlx5_5", source="sysfs", severity=records.Severity.LOW
    )
    down = make.event(1, kind="ib_link", code="link_down", device="ib5")
    mine = make.attempt(**how)
    assert make.judge(flapping, down, attempt=mine).cause == "user_error"
    lost = make.xid(79, 3, 4)
    assert make.judge(lost, attempt=mine).cause == "gpu_lost"


def test_a_fault_that_came_well_into_a_hang_did_not_begin_it(make):
    """The gang hung for half an hour; the port went down in its last minute."""
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 1_000_000})
    late = make.event(60, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
    early = make.event(1_010, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
    assert make.judge(hung, late).cause == "unknown"
    assert make.judge(hung, early).cause == "ib_link"


def test_a_short_stall_of_a_file_server_ends_no_job(make):
    """Not responding, then OK half a minute later; a server that stays away is another matter."""
    stall = make.event(200, kind="nfs", code="not_responding", device="stor9", severity=records.Severity.INFO)
    again = make.event(170, kind="nfs", code="recovered", device="stor9", severity=records.Severity.INFO)
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 190_000})
    assert make.judge(stall, again, hung).cause == "unknown"
    assert make.judge(stall, hung).cause == "filesystem_mount"


@pytest.mark.parametrize("after_s", [10, 60, 240])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "xid", "code": "79", "device": "gpu3"},
        {"kind": "mount", "code": "missing", "source": "mount", "device": "/scratch"},
        {"kind": "ib_link", "code": "down", "source": "sysfs", "device": "mlx5_0"},
    ],
    ids=["gpu", "mount", "link"],
)
def test_a_repair_after_the_end_says_nothing_about_the_end(make, fault, after_s):
    """A person declares the part repaired minutes after the job died of it: it was gone when the job ended."""
    down = make.event(100, **fault)
    fixed = {"source": "agent", "severity": records.Severity.INFO, "detail": {"recovered": True}}
    repaired = make.event(-after_s, **(fault | fixed), message="declared repaired by a person after 200 s: x")
    alone, declared = make.judge(down), make.judge(down, repaired)
    assert alone.confidence in (C.CERTAIN, C.LIKELY)
    assert (declared.cause, declared.confidence) == (alone.cause, alone.confidence)


def test_a_file_server_that_went_again_has_not_come_back(make):
    """Equal lines are one event: what counts is which of the two was said last."""
    at = {s: make.end - timedelta(seconds=s) for s in (160, 170, 180, 200, 210)}
    low = {"kind": "nfs", "device": "stor9", "severity": records.Severity.INFO}
    again = make.event(200, code="recovered", last_at=at[180], **low)
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 190_000})
    stayed = make.event(210, code="not_responding", last_at=at[170], **low)
    assert make.judge(stayed, again, hung).cause == "filesystem_mount"
    over = make.event(200, code="recovered", last_at=at[160], **low)
    assert make.judge(stayed, over, hung).cause == "unknown"


def test_a_stall_of_after_the_job_does_not_lengthen_the_one_within(make):
    """Answered again at once; minutes later the next stall, of as little weight, has an end of its own."""
    low = {"kind": "nfs", "device": "stor9", "severity": records.Severity.INFO}
    found = [
        make.event(before, code=code, **low)
        for before in (1.0, -200.0)
        for before, code in ((before, "not_responding"), (before - 0.1, "recovered"))
    ]
    assert make.judge(*found).cause == "user_error"


def test_a_file_that_cannot_be_opened_may_have_gone_with_its_mount(make):
    """FileNotFoundError alone is the program's; beside a mount that is missing it is the mount."""
    missing = make.finding("python_exception", detail={"exception": "FileNotFoundError"})
    gone = make.event(20, kind="mount", code="missing", device="/scratch", source="mount")
    assert make.judge(missing).cause == "user_error"
    assert make.judge(missing, gone).cause == "filesystem_mount"


def test_a_denied_file_is_the_servers_where_it_threw_the_client_out(make):
    """Every call fails then, often with EACCES. A server that only does not answer denies nothing."""
    denied = make.finding("python_exception", detail={"exception": "PermissionError"})
    assert make.judge(denied).cause == "user_error"
    ceph = {"kind": "filesystem", "device": "mds0", "source": "kernel"}
    evicted = make.event(100, code="evicted", severity=records.Severity.LOW, **ceph)
    made = make.judge(denied, evicted)
    assert (made.cause, made.node, made.confidence) == ("filesystem_mount", "n2", records.Confidence.LIKELY)
    silent = make.event(100, code="not_responding", severity=records.Severity.INFO, **ceph)
    assert make.judge(denied, silent).cause == "user_error"
    soft = make.event(20, kind="nfs", code="not_responding", device="home7", message="nfs: server home7 not responding, timed out")  # fmt: skip
    assert make.judge(denied, soft, attempt=make.attempt(nodes=("n2",))).cause == "user_error"


@pytest.mark.parametrize(("before_end", "node", "cause"), [(360, "n2", "thermal_power"), (360, "n1", "node_reboot"), (800, "n2", "node_reboot")])  # fmt: skip
def test_a_node_whose_supplies_lost_their_input_went_away_for_it(make, before_end, node, cause):
    """The BMC's line alone convicts nobody; where the node went away just after, it is why, likely."""
    line = {"kind": "hardware_report", "code": "power", "source": "kernel", "severity": records.Severity.INFO}
    report = make.event(before_end, node=node, message="ipmievd: Power Supply sensor PSU1 Status - Power Supply AC lost Asserted", **line)  # fmt: skip
    boot = make.event(37, kind="node_boot", source="kernel", severity=records.Severity.INFO)
    lost = make.attempt(state="NODE_FAIL", exit_code=0)
    made = make.judge(report, boot, attempt=lost)
    assert (made.cause, made.node) == (cause, "n2")
    if cause == "thermal_power":
        assert made.confidence is records.Confidence.LIKELY
        assert "PSU1" in made.summary
    assert make.judge(report).cause == "user_error"


@pytest.mark.parametrize("boot", [[], [{}]])
def test_a_node_that_was_too_hot_went_away_for_it(make, boot):
    """Where another node rebooted, that one was lost; what befell the node after the heat comes first, and so does a person's order."""
    hot = {"kind": "thermal", "code": "critical", "source": "kernel"}
    booted = [make.event(37, kind="node_boot", source="kernel", severity=records.Severity.INFO) for _ in boot]
    lost = make.attempt(state="NODE_FAIL", exit_code=0)
    heat = make.event(360, node="n2", **hot)
    made = make.judge(heat, *booted, attempt=lost)
    assert (made.cause, made.node, made.confidence) == ("thermal_power", "n2", records.Confidence.LIKELY)
    assert "critical temperature" in made.summary
    other = make.judge(make.event(360, node="n1", **hot), *booted, attempt=lost)
    assert ("critical temperature" in other.summary) == (not boot)
    panic = make.event(300, node="n2", kind="panic", code="panic", source="kernel")
    assert make.judge(heat, panic, *booted, attempt=lost).cause == "kernel_panic"
    order = make.event(0, node="n2", kind="node_set_down", source="slurm", message="root set n2 DOWN: update", detail={"by": "root", "reason": "update"}, severity=records.Severity.INFO)  # fmt: skip
    set_down = make.judge(heat, order, *booted, attempt=make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2"))  # fmt: skip
    assert set_down.cause == "node_set_down"
    assert sum("thermal" in words for words in set_down.ruled_out) <= 1


def test_a_fault_repaired_before_the_job_began_is_none_of_its(make):
    """Lost, then seen again (or the node restarted) before the start."""
    before = make.start - timedelta(seconds=120)
    attempt = make.attempt(start_at=make.end - timedelta(seconds=60))
    lost = make.xid(79, at=make.end - timedelta(seconds=200))
    again = make.event(
        100,
        kind="gpu_lost",
        source="nvml",
        device="gpu3",
        gpu_uuid=make.uuid("n2", 3),
        severity=records.Severity.INFO,
        detail={"recovered": True},
    )
    boot = make.event(100, kind="node_boot", source="agent", severity=records.Severity.LOW)
    assert before < lost.at
    assert make.judge(lost, attempt=attempt).cause == "gpu_lost"
    assert make.judge(lost, again, attempt=attempt).cause == "user_error"
    assert make.judge(lost, boot, attempt=attempt).cause == "user_error"


def test_the_log_of_a_gang_names_no_node(make):
    """It is written on the first node, whichever rank speaks."""
    v = make.judge(make.finding("cuda_ecc", node="n1"))
    assert (v.cause, v.node) == ("gpu_memory_uncorrectable", None)
    alone = make.judge(make.finding("cuda_ecc", node="n2"), attempt=make.attempt(nodes=("n2",)))
    assert alone.node == "n2"


def test_the_check_that_reads_the_whole_boots_log_tells_an_old_xid_again(make):
    """A GPU that was lost and came back before the attempt began; a check that is the first to tell of one is believed."""
    attempt = make.attempt(start_at=make.end - timedelta(seconds=5))
    device = {"device": "gpu3", "gpu_uuid": make.uuid("n2", 3)}
    again = make.event(1, kind="check", code="gpu_xid", source="check", pci_bus_id="0000:53:00", **device)
    lost = make.xid(79, before_end_s=60)
    back = make.event(
        10,
        kind="gpu_lost",
        source="nvml",
        severity=records.Severity.INFO,
        detail={"recovered": True},
        **device,
    )
    assert make.judge(lost, back, again, attempt=attempt).cause == "user_error"
    assert make.judge(again, attempt=attempt).cause == "gpu_xid"


@pytest.mark.parametrize(("held", "cause"), [((0,), "user_error"), ((3,), "gpu_lost")])
def test_a_check_of_the_node_that_names_a_gpu_is_about_that_gpu(make, held, cause):
    """gpu_count of a shared node finds a neighbour's GPU lost."""
    found = make.event(
        3, kind="check", code="gpu_count", source="check", device="gpu3", gpu_uuid=make.uuid("n2", 3)
    )
    mine = make.attempt(nodes=("n2",), n_gpus=1, gpus=make.gpus("n2", indices=held))
    assert make.judge(found, attempt=mine).cause == cause


def test_what_a_look_of_before_the_start_found_was_there_before(make):
    """A reading of a second before it found a GPU lost: possible at most; a line of the kernel may be off by as much."""
    short = make.attempt(start_at=make.end - timedelta(seconds=60))
    values = {"device": "gpu3", "gpu_uuid": make.uuid("n2", 3), "before_end_s": 61}
    read = make.judge(make.event(kind="gpu_lost", code="GPU_IS_LOST", source="nvml", **values), attempt=short)
    assert (read.cause, read.confidence) == ("gpu_lost", records.Confidence.POSSIBLE)
    verdict = make.judge(make.event(kind="xid", code="79", **values), attempt=short)
    assert (verdict.cause, verdict.confidence) == ("gpu_lost", records.Confidence.LIKELY)


def test_an_uncorrected_machine_check_bank_convicts(make):
    """The bank's own status says that it was not corrected."""
    bank = make.event(60, kind="mce", code="bank", device="cpu17")
    v = make.judge(bank, attempt=make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2"))
    assert v.cause == "cpu_mce"


def test_one_bad_port_and_a_flap_elsewhere_are_no_shared_switch(make):
    """A lost GPU with its PCIe error, and a counted flap of an adapter, are the GPU."""
    aer = make.event(5, kind="pcie_aer", code="fatal", pci_bus_id="0000:50:00.0")
    flap = make.event(
        20, kind="ib_link", code="link_downed", device="mlx5_3", source="sysfs", severity=records.Severity.LOW
    )
    assert make.judge(aer, make.xid(79), flap).cause == "gpu_lost"


def test_what_the_next_job_on_the_node_met_is_not_ours(make):
    """The GPU was lost half a minute after the end, ten seconds after another job had begun there."""
    after = make.event(-30, kind="gpu_lost", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3))
    assert make.judge(after).cause == "gpu_lost"
    following = {"n2": ((make.end + timedelta(seconds=20), None),)}
    assert make.judge(after, shared=following).cause == "user_error"


def lost_after(make, after_s):
    """What kernel and NVML report of a GPU that is lost so many seconds after the end."""
    part = {"device": "gpu3", "gpu_uuid": make.uuid("n2", 3)}
    return [
        make.event(-after_s, kind="xid", code="79", source="kernel", **part),
        make.event(-after_s, kind="gpu_lost", source="nvml", **part),
    ]


@pytest.mark.parametrize(
    ("kind", "message", "after_s", "cause"),
    [
        ("python_exception", "KeyError: 'checkpoint_dir'", 20, "user_error"),
        ("python_exception", "RuntimeError: no sample left", 20, "gpu_lost"),
        ("python_exception", "RuntimeError: no sample left", 90, "user_error"),
        ("program_error", "solver: the mesh has no cells", 90, "user_error"),
    ],
)
def test_a_gpu_lost_long_after_an_own_error_is_not_its_cause(make, kind, message, after_s, cause):
    """A job's own error needs no fault that nobody saw until a minute after the end."""
    own = make.finding(kind, message=message, detail={"first_cause": True, "role": "root"})
    assert make.judge(*lost_after(make, after_s), own).cause == cause


def test_where_no_agent_read_the_gpu_an_own_error_long_before_stands(make):
    """Without an error of the job's own, a log that shows the loss later may have noticed it only then."""
    own = make.finding(
        "python_exception",
        message="RuntimeError: no sample left",
        detail={"first_cause": True, "role": "root"},
    )
    by_log = frozenset({"n1", "n2"})
    assert make.judge(*lost_after(make, 90), by_log=by_log).cause == "gpu_lost"
    assert make.judge(*lost_after(make, 90), own, by_log=by_log).cause == "user_error"


def test_a_gpu_that_was_read_well_after_the_end_did_not_cause_it(make):
    """Its agent reads it every few seconds; without an agent, or after a hang, the loss may only be noticed then."""
    assert make.judge(*lost_after(make, 20)).cause == "gpu_lost"
    assert make.judge(*lost_after(make, 90)).cause == "user_error"
    ended = make.attempt(state="CANCELLED")
    assert make.judge(*lost_after(make, 150), attempt=ended).cause == "user_cancelled"
    crashed = make.attempt(exit_code=11)
    assert make.judge(*lost_after(make, 20), attempt=crashed).cause == "user_error"
    timeout = make.attempt(state="TIMEOUT")
    assert make.judge(*lost_after(make, 90), attempt=timeout).cause == "gpu_lost"


def test_slurm_tells_an_exit_by_sigkill_without_its_128(make):
    """`exit 137` of a batch script is 9:0 in accounting: with the kernel's kill beside it, it is memory."""
    kill = make.event(2, kind="oom", code="memcg", node="n1")
    v = make.judge(kill, attempt=make.attempt(nodes=("n1",), exit_code=9))
    assert (v.cause, v.confidence) == ("oom_host", C.LIKELY)


def test_an_adapter_whose_firmware_died_is_no_flap(make):
    """Another port of the node was counted down and came back; the adapter did not."""
    dead = make.event(300, kind="ib_link", code="health_compromised", device="mlx5_0")
    counted = counted_down(make, 280, "mlx5_4")
    hung = make.finding("watchdog_timeout", detail={"timeout_ms": 290_000})
    v = make.judge(dead, counted, hung)
    assert (v.cause, v.confidence) == ("ib_link", C.LIKELY)


def test_a_reboot_before_the_job_does_not_date_the_loss_of_its_node(make):
    """The node restarted, the job began, the kernel panicked, the node was lost: the panic."""
    attempt = make.attempt(
        state="NODE_FAIL", exit_code=0, failed_node="n2", start_at=make.end - timedelta(seconds=90)
    )
    boot = make.event(300, kind="node_boot", source="agent", severity=records.Severity.INFO)
    panic = make.event(60, kind="panic", code="panic")
    later = make.event(-30, kind="node_boot", source="agent", severity=records.Severity.INFO)
    v = make.judge(boot, panic, later, attempt=attempt)
    assert (v.cause, v.node) == ("kernel_panic", "n2")


def test_an_uncontained_error_of_before_the_job_leaves_its_own_contained(make):
    """Xid 95 hit the job before on this GPU; this one met Xid 94."""
    attempt = make.attempt(start_at=make.end - timedelta(seconds=60))
    before, own = make.xid(95, 3, 200), make.xid(94, 3, 4)
    assert make.judge(before, own, attempt=attempt).cause == "gpu_memory_contained"


@pytest.mark.parametrize(
    ("by", "word"),
    [("alice", C.CERTAIN), ("1000", C.CERTAIN), ("0", C.LIKELY), ("root", C.LIKELY), (None, C.LIKELY)],
)
def test_a_cancellation_is_certain_only_of_a_person(make, by, word):
    """Slurm cancels in root's name, too: a failed Prolog, a lost dependency."""
    v = make.judge(attempt=make.attempt(state="CANCELLED", exit_code=0, cancelled_by=by))
    assert (v.cause, v.confidence) == ("user_cancelled", word)


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT"])
def test_an_end_beside_a_fault_is_not_certain(make, state):
    """A memory error on a GPU of its own node, then somebody ended it: why is not sure."""
    attempt = make.attempt(state=state, exit_code=0, gpus=None, cancelled_by="alice")
    v = make.judge(make.xid(95, 3, 200), attempt=attempt)
    assert v.confidence is not C.CERTAIN
    assert "gpu memory uncorrectable" in " ".join((v.cause, *v.ruled_out)).replace("_", " ")


def test_a_refusal_of_the_start_before_is_not_this_ones(make):
    """Without a restart count, the time decides: a start that ran on was not refused."""
    refused = make.event(at=make.start - timedelta(seconds=30), kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=4242, detail={"restart_count": 0})  # fmt: skip
    late = dataclasses.replace(refused, at=make.start + timedelta(seconds=1))
    for event in (refused, late):
        assert make.judge(event, attempt=make.attempt()).cause == "user_error"


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("KeyError: 'lr'", C.CERTAIN),
        ("[rank2]: TypeError: forward() missing 1 required positional argument", C.CERTAIN),
        ("ModuleNotFoundError: No module named 'flash_attn'", C.CERTAIN),
        ("ValueError: loss is nan", C.LIKELY),
        ("AssertionError: CUDA device count 7 != 8", C.LIKELY),
        ("TimeoutError: [Errno 110] Connection timed out", C.LIKELY),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/lustre/x'", C.LIKELY),
        ("ValueError: could not read header of shard 7", C.LIKELY),
        ("ray.exceptions.NodeDiedError: Task failed due to the node", C.LIKELY),
        ("RuntimeError: Triton Error [CUDA]: an illegal memory access", C.LIKELY),
    ],
)
def test_only_the_languages_own_exceptions_are_certainly_the_programs(make, message, word):
    """An error that a network, a file system, a GPU or another node can cause, too, is at most likely the program's."""
    trace = make.finding("traceback", message=message, detail={"first_cause": True})
    v = make.judge(trace)
    assert (v.cause, v.confidence) == ("user_error", word)


@pytest.mark.parametrize(
    ("kind", "detail", "over", "cause", "at_most"),
    [
        ("cuda_unavailable", {}, {}, "user_error", "possible"),
        ("cuda_unavailable", {}, {"n_gpus": 0, "gpus": None}, "user_error", "likely"),
        ("cuda_unavailable", {"unavailable": "ordinal"}, {}, "user_error", "possible"),
        ("cuda_unavailable", {"unavailable": "not_ready", "domains": ["system_software"]}, {}, "system_services", "possible"),
        ("slurm_launch_failed", {"domains": ["user_program"]}, {}, "user_error", "likely"),
        ("slurm_launch_failed", {"domains": ["system_software"]}, {}, "system_services", "possible"),
        ("slurm_launch_failed", {"domains": ["user_program", "system_software"]}, {}, "user_error", "possible"),
        ("stale_file_handle", {"domains": ["system_software"], "locks": True}, {}, "user_error", "possible"),
        ("stale_file_handle", {"domains": ["system_software"]}, {}, "filesystem_mount", "possible"),
    ],
)  # fmt: skip
def test_what_only_the_log_says_of_the_machine(make, kind, detail, over, cause, at_most):
    """Without the node's own word no GPU is lost and no service is surely at fault; the log's words are in the sentence."""
    text = "what the library printed"
    found = make.finding(kind, detail={"role": "root", "first_cause": True, **detail}, message=text)
    v = make.judge(found, attempt=make.attempt(**over))
    assert (v.cause, str(v.confidence)) == (cause, at_most)
    assert text in v.summary
    lost = make.judge(make.xid(79), found, attempt=make.attempt(**over))
    if over.get("n_gpus") != 0:
        assert lost.cause == "gpu_lost"


def test_output_that_could_not_be_opened_is_told(make):
    """Slurm writes 0:53 for it: the program never ran, and the sentence says why."""
    v = make.judge(attempt=make.attempt(exit_code=0, exit_signal=53))
    assert (v.cause, str(v.confidence)) == ("user_error", "possible")
    assert "could not open its output" in v.summary
    assert "Look at" not in v.next_step, "there is no output to look at"
    assert v.next_step.startswith("Give --output, --error")


def test_a_cancellation_beside_a_fault_is_not_certain(make):
    """Who cancelled is known; that nothing else made them do it is not, until the fault is over."""
    attempt = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice")
    assert make.judge(attempt=attempt).confidence is C.CERTAIN
    hang = make.event(60, kind="nfs", code="not_responding", device="nas2", severity=records.Severity.INFO)
    beside = make.judge(hang, attempt=attempt)
    assert beside.confidence is not C.CERTAIN
    unkillable = make.finding("slurm_unkillable")
    verdict = make.judge(unkillable, attempt=attempt)
    assert (verdict.cause, verdict.confidence) == ("user_cancelled", C.LIKELY)


def test_a_programs_own_error_beside_a_small_fault_is_likely(make):
    """A bond that lost one of its links twenty seconds before leaves a doubt."""
    trace = make.finding("python_exception", message="ValueError: 3 is not 4", detail={"first_cause": True})
    assert make.judge(trace).confidence is C.CERTAIN
    link = make.event(
        20, kind="eth_link", code="bond_slave_down", device="eno1", severity=records.Severity.LOW
    )
    v = make.judge(trace, link)
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)


def test_a_job_that_is_not_known_to_hold_gpus_keeps_its_own_error(make):
    """Another program's GPU was lost on the same node; nobody counts GPUs there."""
    attempt = make.attempt(nodes=("n2",), n_gpus=None, gpus=None)
    trace = make.finding("python_exception", node="n2", message="NameError: name 'a' is not defined")
    assert (
        make.judge(make.xid(79, None, pci_bus_id="0000:3b:00"), trace, attempt=attempt).cause == "user_error"
    )


def test_a_refused_command_line_was_not_killed_for_memory(make):
    """Another process of the node was; exit code 2 is the program's own word."""
    kill = make.event(3, kind="oom", code="global", severity=records.Severity.INFO)
    v = make.judge(kill, attempt=make.attempt(exit_code=2))
    assert (v.cause, v.confidence) == ("user_error", C.POSSIBLE)


def test_a_log_that_names_a_lost_gpu_beats_its_generic_error(make):
    """Nobody watched the node: the machine is possible, the program is not blamed for what followed."""
    texts = (make.finding("cuda_device_lost", 2, detail={"first_cause": True}), make.finding("cuda_error", 1))
    assert make.judge(*texts, watched={}).cause == "gpu_lost"


def test_an_attempt_without_nodes_says_so_and_rules_nothing_out(make):
    """Imported accounting without NodeList: no node was watched."""
    bare = {"nodes": (), "n_gpus": 0, "gpus": None, "exit_code": None, "exit_signal": None}
    v = make.judge(attempt=make.attempt(**bare, time_limit_s=None))
    assert (v.cause, v.summary, v.ruled_out) == ("unknown", "Its nodes are not in the accounting.", ())
    exited = make.judge(attempt=make.attempt(**bare | {"exit_code": 1}, time_limit_s=None))
    assert (exited.cause, exited.confidence, exited.ruled_out) == ("user_error", C.POSSIBLE, ())
    assert exited.summary == "The program exited with code 1, and its nodes are not in the accounting."


def test_the_program_is_ruled_out_only_where_its_log_was_read(make):
    """NODE_FAIL known from accounting alone: no output was read; an agent, or a line found in it, changes that."""
    lost = make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2")
    cleared = "user program (no error of its own before the fault)"
    log_only = {"by_log": frozenset({"n1", "n2"})}
    assert cleared not in make.judge(attempt=lost, watched={}).ruled_out
    assert cleared not in make.judge(attempt=lost, **log_only).ruled_out
    assert cleared in make.judge(attempt=lost, watched={"n1": make.end}).ruled_out


@pytest.mark.parametrize(
    ("before_end_s", "cleared"), [(4.0, True), (1700.0, True), (1900.0, False), (4 * 3600.0, False)]
)
def test_an_exit_long_after_a_fault_or_a_fault_before_the_job_clears_no_program(make, before_end_s, cleared):
    """Nobody read its log: that it exited after a fault of half an hour ago, or of before it began, rules nothing out."""
    start = make.end - timedelta(hours=1)
    old = make.xid(79, 3, before_end_s)
    active = {"active_faults": (old,)} if before_end_s > 600 else {}
    v = make.judge(*(() if active else (old,)), attempt=make.attempt(start_at=start), **active)
    assert v.cause == "gpu_lost"
    assert any(s.startswith("user program") for s in v.ruled_out) is cleared


def test_gpus_it_may_not_have_held_are_not_ruled_out_beside_an_error_of_one(make):
    """Xid 13 is the evidence and its GPU's holder is unknown: `the ones it held` cannot be named."""
    clean = "GPUs (no fault that ends a job on the ones it held)"
    unknown = make.attempt(gpus=None)
    assert clean not in make.judge(make.xid(13), attempt=unknown).ruled_out
    assert clean in make.judge(attempt=unknown).ruled_out


def test_an_error_that_programs_cause_is_not_denied_beside_itself(make):
    """Xid 31 on a GPU that it held stands in the evidence: there is a fault on it, and not the GPU's."""
    excepted = "GPUs (no fault that ends a job but Xid 31, which programs cause, on the ones it held)"
    assert excepted in make.judge(make.xid(31)).ruled_out
    after = make.judge(make.xid(31, before_end_s=-200))
    assert "GPUs (no fault that ends a job on the ones it held)" in after.ruled_out, "it is no evidence"
    assert not any(s.startswith("GPUs") for s in make.judge(make.xid(31), make.xid(79)).ruled_out)


def test_a_log_that_does_not_cover_the_run_rules_nothing_out(make):
    """Four lines of a kernel log say nothing of the hours around them; a log of the whole run does."""
    names = frozenset({"n1", "n2"})
    part = make.judge(by_log=names)
    whole = make.judge(by_log=names, by_whole_log=names)
    assert part.cause == whole.cause == "user_error"
    assert [s for s in part.ruled_out if not s.startswith("time limit")] == []
    assert {"loss of a node (n[1-2] kept answering)", "out of memory (no process was killed for it)"} <= set(
        whole.ruled_out
    )


def test_a_next_step_does_not_say_that_a_node_is_drained(make):
    """An imported failure had no drain of ours."""
    step = make.judge(make.xid(79)).next_step
    assert "keep the node out of service until it passes a GPU check" in step


@pytest.mark.parametrize(("signal", "name"), [(11, "11 (SIGSEGV)"), (9, "9 (SIGKILL)"), (63, "63")])
def test_a_signal_is_called_by_its_name(make, signal, name):
    """As people know it, where it has one."""
    v = make.judge(attempt=make.attempt(state="FAILED", exit_code=0, exit_signal=signal))
    assert f"ended by signal {name}" in v.summary


def test_a_gpu_that_the_job_did_not_hold_is_named_once(make):
    """Whatever else was reported of it."""
    mine = make.attempt(nodes=("n1",), n_gpus=1, gpus=make.gpus("n1", indices=(0,)))
    faults = (make.xid(79, 1, node="n1"), make.xid(48, 1, 90, node="n1"))
    v = make.judge(*faults, attempt=mine, shared={"n1": ((make.start, None),)})
    assert sum("did not hold it" in s for s in v.ruled_out) == 1, v.ruled_out


_JUDGING = """
import sys
from pathlib import Path
import probing_cluster
from probing_cluster.attribution.passes import attribute
from probing_cluster.attribution.verdict import rules
rules.registered()
for name, module in sys.modules.items():
    if name.startswith(("probing_cluster.attribution.", "probing_cluster.evidence.")):
        print(Path(module.__file__).relative_to(Path(probing_cluster.__path__[0])).as_posix())
"""


def test_the_rules_version_is_of_every_file_that_judging_needs():
    """The judge's imports, and the tables and queries beside them: any change must change the version."""
    found = judge.rules_files()
    run = subprocess.run([sys.executable, "-c", _JUDGING], check=True, capture_output=True, text=True)
    imported = set(run.stdout.split())
    assert {"attribution/verdict/wording.py", "attribution/gang/snapshots.py", "evidence/flight_recorder/verdict.py"} <= imported  # fmt: skip
    assert imported - {"attribution/__init__.py", "evidence/__init__.py"} <= found.keys()
    assert {"attribution/verdict/taxonomy.toml", "attribution/passes/sql/case_events.sql"} <= found.keys()


def test_a_change_of_any_of_these_files_changes_the_rules_version(tmp_path, monkeypatch):
    """Its text or its name."""
    files = {f"attribution/verdict/{name}": tmp_path / name for name in ("claims.py", "wording.py")}
    versions = []
    for given, words in itertools.product(
        [files, {"attribution/verdict/eliminate.py": tmp_path / "claims.py"}], "ab"
    ):
        for path in given.values():
            path.write_text(words)
        monkeypatch.setattr(judge, "rules_files", lambda given=given: given)
        judge.rules_version.cache_clear()
        versions.append(judge.rules_version())
    judge.rules_version.cache_clear()
    assert len(set(versions)) == 4


def _rare_faults(make, n_nodes, *, code=74, gap_min=10.0, on=None, per_node_hour=0.006):
    """A job of a day on so many nodes, each of which has such a fault at this rate; the last one just before the end."""
    nodes = tuple(f"n{n}" for n in range(1, n_nodes + 1))
    held = make.attempt(nodes=nodes, start_at=make.end - timedelta(hours=24))
    every_min = max(gap_min, 60 / (per_node_hour * n_nodes))
    before = [
        make.xid(code, before_end_s=60 * minute, node=on or nodes[n % n_nodes])
        for n, minute in enumerate(range(20, 23 * 60, round(every_min)), 1)
        if every_min < 23 * 60
    ]
    return [*before, make.xid(code, before_end_s=5, node="n1")], held


@pytest.mark.parametrize(("n_nodes", "confidence"), [(1, "likely"), (8, "likely"), (1000, "possible")])
def test_what_comes_often_to_a_large_job_and_is_survived_is_no_sure_cause(make, n_nodes, confidence):
    """At one rate a node: to one node the fault came once, to a thousand every ten minutes, and they trained on."""
    events, attempt = _rare_faults(make, n_nodes)
    verdict = make.judge(*events, attempt=attempt)
    assert (verdict.cause, verdict.confidence) == ("gpu_nvlink", confidence)


@pytest.mark.parametrize("n_nodes", [1, 8, 1000])
@pytest.mark.parametrize(
    ("code", "severity", "sure"),
    [
        (74, "high", {"likely"}),
        (79, "high", {"certain"}),
        (109, "high", {"possible"}),
        (62, "low", {"likely"}),
    ],
)
def test_the_size_alone_changes_nothing(make, n_nodes, code, severity, sure):
    """Faults that end a job become as many more with its nodes as those that meet it by accident; a weak sign is possible at most."""
    nodes = tuple(f"n{n}" for n in range(1, n_nodes + 1))
    verdict = make.judge(
        make.xid(code, node="n1", severity=records.Severity(severity)), attempt=make.attempt(nodes=nodes)
    )
    assert (verdict.node, {verdict.confidence.value}) == ("n1", sure)


@pytest.mark.parametrize("why", ["one bad node", "one moment", "two moments", "lethal", "named by the job"])
def test_what_is_no_accident_stays_as_sure(make, why):
    """The part's own earlier faults, a wave over many nodes, too few to be a rate, a lost GPU, and what the job's output names itself."""
    events, attempt = _rare_faults(
        make, 1000, code=79 if why == "lethal" else 74, on="n1" if why == "one bad node" else None
    )
    last = events[-1]
    if why == "one moment":
        events = [make.xid(74, before_end_s=1800 + n, node=f"n{n}") for n in range(2, 102)] + [last]
    elif why == "two moments":
        events = [*events[:2], last]
    elif why == "named by the job":
        events.append(make.finding("cuda_nvlink"))
    verdict = make.judge(*events, attempt=attempt)
    assert verdict.confidence in ("likely", "certain"), verdict
