"""Real PyTorch gangs under real Slurm that stop, or only seem to: who is at fault is named while they still run.

One sandbox for all cases, a few jobs at a time; 4 nodes x 2 ranks on gloo.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.sandbox import gangs as cases

pytestmark = [pytest.mark.alone, pytest.mark.cluster, pytest.mark.torch, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
ENDS_AFTER_S = 30
"""How long the hang lasts that gloo's own timeout ends: it is named after about half of that."""
AT_ONCE = 3
"""Gangs at a time: most of each is waiting."""
STARTING = threading.Lock()
"""They begin one after the other: the rest of each is importing torch eight times, which uses every core."""

NAMED = {**cases.HANGS, **cases.BROKEN}
IN_THE_GATE = {"python_loop", "rank_dead", "checkpoint_long", cases.SLOW}
"""One of each sort: a hang, an end, what takes long and is no hang, a slow rank."""

Done = dict[str, Any]


def gated(names: Iterable[str]) -> list[Any]:
    """The cases as parameters; those that the gate leaves to `make soak` are marked."""
    return [name if name in IN_THE_GATE else pytest.param(name, marks=pytest.mark.soak) for name in names]


def gang_verdicts(up: Any, job: int) -> list[dict[str, Any]]:
    """What the service says of the job's gang."""
    return list(up.rows("SELECT * FROM probing.gang_verdict WHERE job_id = %s ORDER BY made_at", job))


def events(up: Any, job: int, kind: str) -> list[dict[str, Any]]:
    """Events of the job's ranks."""
    wanted = "SELECT * FROM probing.health_event WHERE job_id = %s AND kind = %s ORDER BY at"
    return list(up.rows(wanted, job, kind))


def judged(report: dict[str, Any]) -> bool:
    """Its last attempt has ended and is explained."""
    last = report["attempts"][-1]
    return bool(last["end_at"] and (last["verdict"] or last["state"] == "COMPLETED"))


def accounted(report: dict[str, Any]) -> bool:
    """It is explained and its time accounted, which is the service's next pass."""
    return judged(report) and report["ettr"]["assumed"] is not None


def measured(report: dict[str, Any]) -> bool:
    """Its time is accounted as measured."""
    return accounted(report) and report["ettr"]["assumed"] is False


def culprits(case: str) -> str:
    """The ranks at fault, as a person is told of them."""
    ranks = cases.culprits(case)
    return "rank 5" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def explained(report: dict[str, Any]) -> bool:
    """The last snapshots reach the service a little after the end: the first verdict may not know them."""
    return bool(report["attempts"][-1]["verdict"]["cause"] != "unknown")


def train(up: Any, case: str, **options: Any) -> tuple[int, Path]:
    """A gang whose ranks train; its job and its directory."""
    directory = cases.new_directory(up.sandbox, case)
    with STARTING:
        job = cases.submit(up.sandbox, case, directory=directory, **options)
        up.until(f"training of job {job}", lambda: list(directory.glob("steps.*")), PATIENCE_S)
    return job, directory


def hang(up: Any, case: str) -> Done:
    """Until its kind is named; what a person is told meanwhile."""
    third = cases.third_node(up.sandbox)
    if case == "checkpoint_io":
        up.sandbox.fault(third, "directory-hang", path=cases.CHECKPOINTS)
    variables = {"GLOO_TIMEOUT_S": ENDS_AFTER_S} if case == "python_loop" else {}
    job, directory = train(up, case, variables=variables)
    if case in cases.BROKEN:
        up.until("hang", lambda: cases.hangs(directory), PATIENCE_S)
        cases.strike(up.sandbox, case)
    wanted = NAMED[case][0]

    def named() -> dict[str, Any] | None:
        return next((v for v in gang_verdicts(up, job) if v["kind"] == wanted), None)

    found = up.until(f"{wanted} of job {job}", named, PATIENCE_S)
    report = up.report(job)
    if case == "checkpoint_io":
        up.sandbox.fault(third, "directory-free")
    if case == "python_loop":  # gloo's own timeout ends it
        report = up.reported(job, lambda r: accounted(r) and explained(r), PATIENCE_S)
    else:
        up.sandbox.run(["scancel", str(job)])
    if case in cases.BROKEN:
        cases.mend(up.sandbox, case)
    return {"found": found, "report": report}


def end(up: Any, case: str) -> Done:
    """Until the failure is explained."""
    job, _ = train(up, case)
    if case == "node_lost":
        up.until("steps", lambda: events(up, job, "first_step"), PATIENCE_S)
        up.sandbox.fault(cases.third_node(up.sandbox), "node-crash")

    def right(report: dict[str, Any]) -> bool:
        verdict = report["attempts"][-1]["verdict"]
        right_cause = judged(report) and verdict["cause"] == cases.ENDS[case][0]
        return right_cause and (case == "node_lost" or culprits(case) in verdict["summary"])

    report = up.reported(job, right, PATIENCE_S)
    if case == "node_lost":
        cases.mend(up.sandbox, case)
    return {"report": report, "dead": events(up, job, "rank_dead")}


def complete(up: Any, case: str) -> Done:
    """Until it has ended and its time is accounted as measured."""
    job, _ = train(up, case, steps=40)
    report = up.reported(job, measured, PATIENCE_S)
    return {"report": report, "verdicts": gang_verdicts(up, job)}


def slow(up: Any, case: str) -> Done:
    """Until some rank is called slow."""
    job, _ = train(up, case)
    up.until("a slow rank", lambda: events(up, job, "rank_slow"), PATIENCE_S)
    up.sandbox.run(["scancel", str(job)])
    return {"slow": events(up, job, "rank_slow")}


Start = Callable[[Any, str], Done]
TOGETHER: dict[str, Start] = {
    **dict.fromkeys(cases.HANGS, hang),
    **dict.fromkeys(cases.HEALTHY, complete),
    **dict.fromkeys(("rank_dead", "node_killed", "other_shape"), end),
}
ALONE: dict[str, Start] = {cases.SLOW: slow, **dict.fromkeys(cases.BROKEN, hang), "node_lost": end}
"""The slow rank wants quiet cores, a broken or lost node is the others', too."""


@pytest.fixture(scope="module")
def outcome(gangs: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Done]]:
    """What came of a case; those that are asked for, a few at a time."""
    specs = [
        item.callspec
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    wanted = {spec.params.get("case") for spec in specs}
    with futures.ThreadPoolExecutor(AT_ONCE) as pool, futures.ThreadPoolExecutor(1) as single:
        started = {case: pool.submit(work, gangs, case) for case, work in TOGETHER.items() if case in wanted}

        def after(work: Start, case: str) -> Done:
            futures.wait(list(started.values()))
            return work(gangs, case)

        last = {case: single.submit(after, work, case) for case, work in ALONE.items() if case in wanted}
        yield lambda case: (started | last)[case].result()
        for one in (*started.values(), *last.values()):
            one.cancel()


@pytest.mark.parametrize("case", gated(NAMED))
def test_a_hang_is_named_while_it_lasts(gangs: Any, outcome: Callable[[str], Done], case: str) -> None:
    """Right kind, rank, node, domain and line; and the report of the running job says so."""
    kind, domain, function = NAMED[case]
    done = outcome(case)
    found, ranks = done["found"], cases.culprits(case)
    assert (found["ranks"], found["nodes"], found["domain"]) == (
        ranks,
        [cases.third_node(gangs.sandbox)],
        domain,
    )
    assert f"{function} (" in found["location"]
    assert cases.JOB.name in found["location"]
    assert found["confidence"] != "certain"
    verdicts = done["report"]["attempts"][-1]["gangs"]
    assert [(g["kind"], g["ranks"]) for g in verdicts] == [(kind, ranks)]
    if case == "gil_held" and platform.machine() == "x86_64":
        assert [line for line in found["proof"] if line.startswith("rank 5: in C, ") and "sleep" in line]


@pytest.mark.parametrize("case", ["python_loop"])
def test_the_verdict_of_a_hang_that_a_watchdog_ended(
    gangs: Any, outcome: Callable[[str], Done], case: str
) -> None:
    """The same rank, from the snapshots taken while it hung; it wrote no checkpoint, so what it lost is assumed."""
    report = outcome(case)["report"]
    assert report["ettr"]["assumed"]
    verdict = report["attempts"][-1]["verdict"]
    assert (verdict["cause"], verdict["domain"]) == ("missing_rank", "user_program")
    assert f"rank 5 on {cases.third_node(gangs.sandbox)}" in verdict["summary"]


@pytest.mark.parametrize("case", gated(cases.ENDS))
def test_a_gang_that_is_ended_is_explained(gangs: Any, outcome: Callable[[str], Done], case: str) -> None:
    """Killed rank, all ranks of a node killed at once, other shape, lost node: right cause, domain, node and rank."""
    cause, domain = cases.ENDS[case]
    done, third = outcome(case), cases.third_node(gangs.sandbox)
    verdict = done["report"]["attempts"][-1]["verdict"]
    # A node is at fault only where the program is not.
    node = None if domain == "user_program" else third
    assert (verdict["cause"], verdict["domain"], verdict["node"]) == (cause, domain, node)
    if case != "node_lost":
        assert f"{culprits(case)} on {third}" in verdict["summary"]
        # Told live unless its sibling died too near to it; never of anybody else.
        dead = {(e["node"], e["detail"]["rank"]) for e in done["dead"]}
        assert dead <= {(third, rank) for rank in cases.culprits(case)}


@pytest.mark.parametrize("case", gated(cases.HEALTHY))
def test_what_takes_long_is_no_hang(outcome: Callable[[str], Done], case: str) -> None:
    """A checkpoint and a compilation of several bounds: nobody is named, the job completes, its time is measured."""
    done = outcome(case)
    assert done["verdicts"] == []
    assert done["report"]["state"] == "COMPLETED", json.dumps(done["report"]["attempts"][-1])
    assert done["report"]["attempts"][-1]["gangs"] == []


@pytest.mark.parametrize("case", [cases.SLOW])
def test_a_slow_rank_is_named_and_nobody_else(gangs: Any, outcome: Callable[[str], Done], case: str) -> None:
    """1.2 times slower at 2 % noise."""
    slow = {(e["detail"]["rank"], e["node"]) for e in outcome(case)["slow"]}
    assert slow == {(5, cases.third_node(gangs.sandbox))}
