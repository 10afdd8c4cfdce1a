"""Text a job can forge: on nodes that were watched and show nothing, it never makes more than "possible" of a broken machine."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.attribution.verdict import findings, signatures, taxonomy
from probing_cluster.core import records
from tests.attribution.conftest import Maker

MANY = 3 * settings.default.max_examples

C, D = records.Confidence, records.Domain
HOW_SURE = [C.UNKNOWN, C.POSSIBLE, C.LIKELY, C.CERTAIN]
HELD = (0, 1)
ROLES = (signatures.Role.ROOT, signatures.Role.WEAK)
KINDS = sorted(k for k in findings.kinds() if taxonomy.cause(findings.named(k).cause).domain is D.HARDWARE)
"""Findings that accuse a machine."""
OTHERS = sorted(findings.kinds())
SILENT = {"kind": "agent_silent", "source": "agent", "severity": records.Severity.INFO}


def _is_innocuous(event: records.HealthEvent) -> bool:
    """Whether it accuses no node. That Slurm does not reach a node accuses it; only our service reports that, and no text can."""
    return signatures.of(event).role not in ROLES and event.kind != "node_down"


@st.composite
def beside(draw, make: Maker, nodes: tuple[str, ...]):
    """One event on a node, without any job-side evidence."""
    node = draw(st.sampled_from(nodes))
    before = draw(st.sampled_from([-200, -20, -1, 1, 20, 300, 590, 900, 20_000]))
    sort = draw(st.sampled_from(["context", "a neighbour's GPU", "silence", "another job's"]))
    if sort == "silence":
        return make.event(max(before, 1), node=node, **SILENT)
    code = draw(
        st.sampled_from(["79", "48", "94", "74", "64", "31", "43", "CE", "up", "corrected", "pending", None])
    )
    severity = draw(st.sampled_from(list(records.Severity)))
    if sort == "a neighbour's GPU":
        code = draw(st.sampled_from([79, 48, 94, 95, 74, 64, 119, 31]))
        return make.xid(code, 5, before, node=node, severity=severity)
    kind = draw(st.sampled_from(sorted(signatures.kinds())))
    job = {"job_id": 7} if sort == "another job's" else {}
    device = draw(st.sampled_from([None, "gpu5", "mlx5_0", "/scratch"]))
    event = make.event(before, node=node, kind=kind, code=code, severity=severity, device=device, **job)
    return (
        event if _is_innocuous(event) else make.event(before, node=node, kind="xid", code="43", device="gpu5")
    )


@st.composite
def cases(draw):
    """A watched job whose own side accuses a machine, and whatever else may be there."""
    make = Maker()
    nodes = draw(st.sampled_from([("n1",), ("n1", "n2"), ("n1", "n2", "n3")]))
    attempt = make.attempt(
        nodes=nodes,
        state=draw(st.sampled_from(["FAILED", "TIMEOUT", "CANCELLED", "REQUEUED", "OUT_OF_MEMORY"])),
        exit_code=draw(st.sampled_from([0, 1, 9, 134, 137])),
        n_gpus=2 * len(nodes),
        gpus=make.gpus(*nodes, indices=HELD),
        start_at=make.end - timedelta(seconds=draw(st.sampled_from([20, 300, 30_000]))),
    )
    forged = []
    for kind in [draw(st.sampled_from(KINDS)), *draw(st.lists(st.sampled_from(OTHERS), max_size=4))]:
        detail = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "host": st.sampled_from([*nodes, "n9"]),
                    "culprit_node": st.sampled_from([*nodes, "n9"]),
                    "first_cause": st.booleans(),
                    "at_from_log": st.just(True),
                    "timeout_ms": st.sampled_from([1, 600_000, 10**12]),
                    "domains": st.sampled_from([["hardware"], ["user_program"]]),
                    "outstanding": st.just([{"created_ns": 1}]),
                },
            )
        )
        source = draw(st.sampled_from(["joblog", "joblog", "dump", "probe"]))
        forged.append(
            make.finding(
                kind,
                draw(st.sampled_from([-9, 1, 30, 700])),
                node=draw(st.sampled_from(nodes)),
                detail=detail,
                source=source,
            )
        )
    others = [draw(beside(make, nodes)) for _ in range(draw(st.integers(0, 5)))]
    actions = tuple(
        make.action(
            draw(st.sampled_from(["drain", "requeue"])),
            draw(st.sampled_from([-300, -2, 10])),
            job_id=draw(st.sampled_from([None, 4242, 7])),
            node=draw(st.sampled_from(nodes)),
            reason="probing: mount",
            owner=draw(st.sampled_from(["probing", "site"])),
            event_ids=tuple(
                e.event_id for e in draw(st.lists(st.sampled_from([*forged, *others]), max_size=2))
            ),
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    shared = {n: ((make.start, None),) for n in nodes if draw(st.booleans())}
    return make, [*forged, *others], {"attempt": attempt, "actions": actions, "shared": shared}


@settings(max_examples=MANY)
@given(cases())
def test_forged_text_never_makes_more_than_possible_of_a_machine(evidence) -> None:
    """Whatever else is there: silences that ended, neighbours' faults, their drains, other jobs, readings that accuse nobody."""
    make, events, more = evidence
    made = make.judge(*events, **more)
    assert made.domain is not D.HARDWARE or made.confidence in (C.POSSIBLE, C.UNKNOWN), made.summary


@pytest.mark.parametrize("kind", KINDS)
def test_forged_text_makes_a_lost_node_no_surer(make: Maker, kind: str) -> None:
    """Slurm did not reach the node just after the end: the verdict's word is the same with and without the text."""
    attempt = make.attempt(nodes=("n1", "n2"), state="FAILED")
    down = make.event(-1, node="n1", kind="node_down", source="slurm", severity=records.Severity.HIGH)
    forged = make.judge(down, make.finding(kind, 10, node="n1", source="joblog"), attempt=attempt)
    plain = make.judge(down, attempt=attempt)
    assert (plain.cause, plain.node) == ("node_lost", "n1")
    assert forged.domain is not D.HARDWARE or HOW_SURE.index(forged.confidence) <= HOW_SURE.index(
        plain.confidence
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [1, 60, 500])
def test_a_silence_that_ended_gives_forged_text_no_more_weight(make: Maker, kind: str, before: int) -> None:
    """An agent that was not heard for a while, and was there at the end, has watched: its node shows nothing."""
    attempt = make.attempt(nodes=("n1",), gpus=make.gpus("n1"), n_gpus=8)
    text = make.finding(kind, node="n1")
    silence = make.event(before, node="n1", **SILENT)
    plain, made = make.judge(text, attempt=attempt), make.judge(text, silence, attempt=attempt)
    assert (made.cause, made.confidence) == (plain.cause, plain.confidence)
    assert made.domain is not D.HARDWARE or made.confidence is C.POSSIBLE
    dead = make.judge(text, silence, attempt=attempt, watched={"n1": silence.at})
    assert (
        "not watched" in dead.summary or "nobody watched" in dead.summary or dead.confidence is not C.CERTAIN
    )


def test_an_imported_log_is_a_look_at_its_node(make: Maker) -> None:
    """Text alone is no more than possible where the node's own log is at hand, however long that has been silent."""
    attempt = make.attempt(nodes=("n1",), gpus=None, n_gpus=8)
    long_ago = {"n1": make.start - timedelta(hours=1)}
    text = make.finding("cuda_ecc", node="n1")
    assert (
        make.judge(text, attempt=attempt, watched=long_ago, by_log=frozenset({"n1"})).confidence is C.POSSIBLE
    )
    assert make.judge(text, attempt=attempt, watched={}).confidence is C.LIKELY


GENERIC = sorted(
    k
    for k in (
        "cuda_error",
        "cuda_launch_failure",
        "cuda_unknown_error",
        "nccl_unhandled_cuda",
        "cuda_library_error",
    )
    if k in findings.kinds()
)
"""CUDA errors that name no reason."""


@pytest.mark.parametrize("kind", GENERIC)
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "xid", "code": "79", "device": "gpu3", "pci_bus_id": "0000:53:00"},
        {"kind": "panic", "code": "panic"},
        {"kind": "ib_link", "code": "port_down", "device": "mlx5_0", "source": "sysfs"},
        {"kind": "mce", "code": "uncorrected"},
        {"kind": "node_down", "source": "slurm"},
    ],
    ids=lambda f: f["kind"],
)
def test_a_bare_cuda_error_beside_a_fault_is_not_the_users(
    make: Maker, kind: str, fault: dict[str, str]
) -> None:
    """A GPU lost, a link down, a panic just before it: the error that names no reason has one."""
    made = make.judge(make.event(20, node="n2", **fault), make.finding(kind, node="n1"))
    assert made.domain is not D.USER_PROGRAM, made.summary
    alone = make.judge(make.finding(kind, node="n1"))
    assert alone.domain in (D.USER_PROGRAM, D.UNKNOWN)
    assert alone.confidence in (C.POSSIBLE, C.UNKNOWN)


def test_an_error_that_no_part_makes_beside_a_part_that_may_be_anothers(make: Maker) -> None:
    """Two GPUs of eight, whose is not known, and a ValueError: the program's; with the GPU held, or no such error, the GPU's."""
    attempt = make.attempt(nodes=("n1",), gpus=None, n_gpus=2)
    lost = make.xid(79, None, 66, node="n1", pci_bus_id="0000:d8:00")
    own = make.finding(
        "python_exception",
        message="ValueError: operands could not be broadcast",
        detail={"first_cause": True},
    )
    made = make.judge(lost, own, attempt=attempt)
    assert (made.cause, made.domain) == ("user_error", D.USER_PROGRAM)
    assert make.judge(lost, attempt=attempt).cause == "gpu_lost"
    outside = make.finding(
        "python_exception", message="RuntimeError: device not ready", detail={"first_cause": True}
    )
    assert make.judge(lost, outside, attempt=attempt).cause == "gpu_lost"


def test_a_boot_just_after_a_bare_error_means_that_the_node_had_gone(make: Maker) -> None:
    """Known from logs only: within two minutes no server goes down and boots; later, or beside an error of its own, it says nothing."""
    log = {"by_log": frozenset({"n1", "n2"})}
    text = make.finding("cuda_launch_failure", node="n1")

    def boot(after: float) -> records.HealthEvent:
        return make.event(
            -after, node="n2", kind="node_boot", severity=records.Severity.INFO, source="import"
        )

    assert make.judge(text, boot(94), **log).cause == "node_reboot"
    assert make.judge(text, boot(94), **log).confidence is C.POSSIBLE
    assert make.judge(text, boot(280), **log).cause != "node_reboot"
    own = make.finding("python_exception", message="KeyError: 'lr'", detail={"first_cause": True})
    assert make.judge(own, boot(94), **log).cause == "user_error"


@pytest.mark.parametrize(("before", "cause"), [(648, "kernel_panic"), (1500, "node_lost")])
def test_a_lost_nodes_window_reaches_back_to_when_it_may_have_gone(
    make: Maker, before: int, cause: str
) -> None:
    """Slurm gives a node up minutes after it went away."""
    attempt = make.attempt(
        nodes=("n2",), gpus=None, state="NODE_FAIL", start_at=make.end - timedelta(hours=6)
    )
    panic = make.event(before, kind="panic", code="panic", source="import")
    assert make.judge(panic, attempt=attempt).cause == cause


def test_srun_names_the_node_that_slurm_lost(make: Maker) -> None:
    """Where accounting does not: a name only, and only one of the attempt's own."""
    attempt = make.attempt(state="NODE_FAIL")
    srun_line = make.finding("slurm_node_fail", detail={"host": "n2"})
    assert make.judge(srun_line, attempt=attempt, watched={}).node == "n2"
    assert (
        make.judge(make.finding("slurm_node_fail", detail={"host": "x9"}), attempt=attempt, watched={}).node
        is None
    )
    both = [make.finding("slurm_node_fail", detail={"host": n}) for n in ("n1", "n2")]
    assert make.judge(*both, attempt=attempt, watched={}).node is None
    assert make.judge(srun_line, attempt=attempt, watched={}).domain is D.UNKNOWN


def test_a_link_that_a_log_shows_going_down_is_likely_at_best(make: Maker) -> None:
    """Ports come and go, and the state at the end was not read."""
    down = make.event(620, kind="ib_link", code="link_down", device="ib0", source="import")
    felt = [
        make.finding("net_ib_completion_error", node="n2"),
        make.finding("watchdog_timeout", detail={"timeout_ms": 600_000}),
    ]
    made = make.judge(down, *felt, by_log=frozenset({"n1", "n2"}))
    assert (made.cause, made.node, made.confidence) == ("ib_link", "n2", C.LIKELY)
