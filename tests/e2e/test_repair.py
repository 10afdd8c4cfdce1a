"""Drained, tested, back or to a ticket: on a real Slurm cluster, with services killed on the way."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.core import digits
from probing_cluster.sandbox import diagnosed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

INCIDENT = "SELECT state, why, detail, steps_done, opened_at, changed_at FROM probing.repair_incident WHERE node = %s ORDER BY opened_at DESC LIMIT 1"


def incident(up: Any, node: str) -> dict[str, Any]:
    rows = up.rows(INCIDENT, node)
    return rows[0] if rows else {"state": "", "why": "", "detail": {}, "steps_done": 0}


def drained_and_healed(up: Any, node: str) -> float:
    """A link goes down until the node is drained, and comes back; when it began to, in seconds since 1970."""
    up.sandbox.fault(node, "ib-down", hca="mlx5_0")
    up.until(f"drain of {node}", lambda: up.drained(node))
    began = time.time()
    up.sandbox.fault(node, "ib-up", hca="mlx5_0")
    return began


def ended(up: Any, node: str, *states: str) -> dict[str, Any]:
    return up.until(
        f"{node} at {' or '.join(states)}",
        lambda: incident(up, node) if incident(up, node)["state"] in states else None,
        timeout_s=150,
    )


def free_of_us(up: Any) -> bool:
    listed = up.sandbox.run(["scontrol", "-o", "show", "reservation"]).stdout
    return "probing-" not in listed


def test_the_curable_return_tested_and_the_incurable_do_not(up: Any) -> None:
    """Two nodes at once: one is well, the other calculates wrongly until its GPUs are reset; a third for ever."""
    well, wrong, never = up.sandbox.layout.node_names[:3]
    up.sandbox.fault(wrong, "hidden-fault", what="wrong_product", cured_by="reset")
    drained_and_healed(up, well)
    assert ended(up, well, "returned", "ticket")["state"] == "returned"
    tests = up.rows(
        "SELECT DISTINCT test FROM probing.diagnostic_result WHERE node = %s AND outcome = 'ok'", well
    )
    assert {"gemm", "memory", "disk", "intra", "loopback", "pair"} <= {row["test"] for row in tests}
    assert up.drained(well) is None

    up.sandbox.run(["probing-ctl", "drain", wrong, "--reason", "x"])
    done = up.sandbox.run(["probing-ctl", "diagnose", wrong], check=False)
    assert done.returncode == 5, done.stderr
    assert "repair" in done.stderr
    up.sandbox.run(["probing-ctl", "resume", wrong])
    done = up.sandbox.run(["probing-ctl", "diagnose", wrong, well, "--json"], check=False, timeout_s=240)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    # The nodes of a sandbox share its cores: another may be named beside it for its speed, never for its results.
    incorrect = {node for node, why in answer["at_fault"].items() if any("wrong" in words for words in why)}
    assert incorrect == {wrong}
    assert "elements are wrong" in answer["at_fault"][wrong][0]
    assert not up.sandbox.run(["squeue", "-h"]).stdout.strip()

    up.sandbox.fault(never, "hidden-fault", what="wrong_product", cured_by="never")
    drained_and_healed(up, never)
    found = ended(up, never, "returned", "ticket")
    assert found["state"] == "ticket", found
    assert "elements are wrong" in found["detail"]["failing"][0]
    assert up.drained(never), "an incurable node is never resumed"
    assert "still failing" in up.sandbox.run(["probing-ctl", "repair", "show", never]).stdout
    up.until("no reservation of ours", lambda: free_of_us(up))


EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class Patient:
    """One node through repair after repair, each with a fate drawn for it."""

    up: Any
    node: str
    draw: random.Random
    fate: str = ""
    stage: str = "idle"
    since: float = field(default_factory=time.monotonic)
    began: datetime = EPOCH
    ends: list[str] = field(default_factory=list)

    @property
    def home(self) -> Any:
        return self.up.sandbox.layout.node(self.node)

    def now(self) -> dict[str, Any]:
        """Its repair of this turn."""
        rows = self.up.rows(INCIDENT, self.node)
        return rows[0] if rows and rows[0]["opened_at"] > self.began else {}

    def begin(self) -> None:
        self.fate = self.draw.choice(("well", "cured by a reset", "incurable", "incurable"))
        if self.fate != "well":
            cured_by = "reset" if self.fate == "cured by a reset" else "never"
            self.up.sandbox.fault(self.node, "hidden-fault", what="wrong_product", cured_by=cured_by)
        self.began = self.up.rows("SELECT now() AS now")[0]["now"]
        self.up.sandbox.fault(self.node, "ib-down", hca="mlx5_0")
        self.enter("falling")

    def enter(self, stage: str) -> None:
        self.stage, self.since = stage, time.monotonic()

    def tick(self, *, more: bool) -> None:
        """One look at it; a healthy one falls ill again while there are to be `more`."""
        assert time.monotonic() - self.since < 900, (self.node, self.fate, self.stage, self.now())
        state = self.now().get("state", "")
        if self.stage == "idle" and more:
            self.begin()
        elif self.stage == "falling" and self.up.drained(self.node):
            self.up.sandbox.fault(self.node, "ib-up", hca="mlx5_0")
            self.enter("under repair")
        elif state == "ticket" and self.is_healthy() and is_only_slow(self.now()):
            # The nodes of a sandbox share their processors with all else: a person gives it back.
            self.ends.append("slow by its neighbours")
            self.up.sandbox.run(["probing-ctl", "repair", "release", self.node])
            self.up.until("its release", lambda: self.now()["state"] != "ticket")
        elif self.stage == "under repair" and state in {"returned", "ticket", "lifted", "closed"}:
            assert state == ("ticket" if self.fate == "incurable" else "returned"), (self.fate, self.now())
            self.ends.append(self.fate)
            self.enter("idle")
            if self.fate == "incurable":
                diagnosed.cure(self.home, "never")
                self.up.sandbox.run(["probing-ctl", "repair", "release", self.node])
                self.enter("mended")
        elif self.stage == "mended" and state == "returned":
            self.ends.append("mended")
            self.enter("idle")

    def is_healthy(self) -> bool:
        return self.stage == "mended" or (self.stage == "under repair" and self.fate != "incurable")

    def open_to_users(self) -> bool:
        """Neither drained nor reserved by Slurm's word alone, which says the same after the look at reservations."""
        if self.is_drained():
            return False
        listed = self.up.sandbox.run(["scontrol", "-o", "show", "reservation"]).stdout
        held = any(f"ReservationName=probing-{self.node}-" in line for line in listed.splitlines())
        return not held and not self.is_drained()

    def is_drained(self) -> bool:
        return "DRAIN" in self.up.node_state(self.node)[0]


def is_only_slow(now: dict[str, Any]) -> bool:
    return all("slower than nodes of its kind" in words for words in now["detail"]["failing"])


def with_a_budget_for_all(up: Any) -> None:
    """Every node may be out at once, and no cure is one too many."""
    path = up.sandbox.layout.probing_toml
    text = path.read_text()
    for old, new in (
        ("budget_frac = 0.5", "budget_frac = 1.0"),
        ("budget_partition_frac = 0.5", "budget_partition_frac = 1.0"),
        ("budget_nodes = 2", "budget_nodes = 10000\nescalate_cures = 1000"),
    ):
        assert old in text
        text = text.replace(old, new)
    # What drains a node here is a link; a reset is what cures it.
    table = path.with_name("steps.toml")
    table.write_text('[[cause]]\nname = "any"\nsteps = ["reset"]\n')
    text = text.replace("[repair]\n", f'[repair]\nsteps_file = "{table}"\n')
    path.write_text(text)
    up.sandbox.fault("-", "service-crash")
    up.sandbox.fault("-", "service-start")


def figures(kills: int, struck: Counter[str], patients: list[Patient]) -> str:
    """What has been shown by now."""
    ends = Counter(end for one in patients for end in one.ends)
    return f"{kills} kills, nodes then: {dict(struck)}; repairs that ended: {dict(ends)}"


UNTESTED = """
SELECT i.node, i.opened_at FROM probing.repair_incident i WHERE i.state = 'returned' AND NOT EXISTS (
  SELECT 1 FROM probing.diagnostic_result r WHERE r.round_id = (i.detail->>'passed')::uuid AND r.node = i.node
  AND r.test = 'gemm' AND r.outcome = 'ok' AND r.at > i.opened_at)
"""


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_a_service_killed_100_times_loses_no_node_and_resumes_none_untested(up: Any) -> None:
    """Four nodes at once through drawn fates on real Slurm; `PROBING_KILL_ROUNDS` sets how often the service is killed, `PROBING_SEED` the draw."""
    kills, most = 0, int(os.environ.get("PROBING_KILL_ROUNDS", "100"))
    draw, struck = random.Random(int(os.environ.get("PROBING_SEED", "1"))), Counter[str]()
    with_a_budget_for_all(up)
    patients = [Patient(up, name, draw) for name in up.sandbox.layout.node_names]
    strike_at = time.monotonic() + 20
    while kills < most or any(p.stage != "idle" for p in patients):
        for one in patients:
            one.tick(more=kills < most)
            if one.stage in {"under repair", "mended"} and one.open_to_users():
                now = one.now()
                # Killed between its return and the row's end, the service closes the row with its next pass.
                passed = now["state"] == "returning" and now["detail"].get("passed")
                assert now["state"] == "returned" or passed, (one.node, one.fate, one.stage, now)
                assert one.fate != "incurable" or one.stage == "mended", "an incurable node was resumed"
        if kills < most and time.monotonic() > strike_at:
            struck.update(one.now().get("state", "in service") for one in patients)
            up.sandbox.fault("-", "service-crash")
            up.sandbox.fault("-", "service-start")
            kills += 1
            print(figures(kills, struck, patients), flush=True)
            # Often at once again, and now and then long enough for a round to end.
            strike_at = time.monotonic() + draw.choice((draw.uniform(1, 6), draw.uniform(12, 35)))
        time.sleep(0.3)
    print(figures(kills, struck, patients))
    assert up.rows(UNTESTED) == []
    up.until("no reservation of ours", lambda: free_of_us(up))
    assert not up.sandbox.run(["squeue", "-h"]).stdout.strip()
    assert [one.node for one in patients if up.drained(one.node)] == []


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_of_100_incurable_repairs_no_node_is_resumed(up: Any) -> None:
    """Four nodes whose fault nothing cures, given back again and again by a person who believes it is mended; `PROBING_KILL_ROUNDS` repairs."""
    most = int(os.environ.get("PROBING_KILL_ROUNDS", "100"))
    with_a_budget_for_all(up)
    names = up.sandbox.layout.node_names
    patients = [Patient(up, name, random.Random(1), fate="incurable") for name in names]
    for one in patients:
        up.sandbox.fault(one.node, "hidden-fault", what="wrong_product", cured_by="never")
        up.sandbox.fault(one.node, "ib-down", hca="mlx5_0")
    for one in patients:
        up.until(f"drain of {one.node}", lambda n=one.node: up.drained(n))
        up.sandbox.fault(one.node, "ib-up", hca="mlx5_0")
    ended = looks = 0
    since = dict.fromkeys(names, EPOCH)
    while ended < most:
        for one in patients:
            looks += 1
            assert not one.open_to_users(), (one.node, one.now())
            now = one.now()
            if now.get("state") == "ticket" and now["changed_at"] > since[one.node]:
                ended, since[one.node] = ended + 1, now["changed_at"]
                up.sandbox.run(["probing-ctl", "repair", "release", one.node])
            assert now.get("state") not in {"returned", "lifted", "closed"}, now
        time.sleep(0.3)
    print(
        f"{ended} repairs of incurable nodes ended at a ticket, none of {looks} looks found one open to users"
    )
    passed = "SELECT node FROM probing.repair_incident WHERE state = 'returned'"
    assert up.rows(passed) == []


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_curable_nodes_are_back_within_their_tests_time_and_60_s(up: Any) -> None:
    """From the end of the fault to the return, less the time in which a job of the tests ran by Slurm's own accounting."""
    with_a_budget_for_all(up)
    beyond: list[float] = []
    names = up.sandbox.layout.node_names
    for turn in range(int(os.environ.get("PROBING_KILL_ROUNDS", "12"))):
        node = names[turn % len(names)]
        if turn % 2:
            up.sandbox.fault(node, "hidden-fault", what="wrong_product", cured_by="reset")
        (before,) = up.rows("SELECT now() AS now")
        began = drained_and_healed(up, node)
        row = up.until(f"the end of {node}'s repair", lambda n=node, b=before: repaired(up, n, b["now"]), 150)
        assert row["state"] == "returned"
        closed = row["closed_at"].timestamp()
        spans = up.until("the tests' jobs in accounting", lambda name=row["reservation"]: accounted(up, name))
        beyond.append(closed - began - together_s(spans, began, closed))
    print(f"beyond the tests' time: {sorted(round(s) for s in beyond)} s")
    assert max(beyond) <= 60


def repaired(up: Any, node: str, after: datetime) -> dict[str, Any] | None:
    """A repair of the node that was opened after an instant and has ended, or stands at a ticket: the one before is another's."""
    rows = up.rows(
        "SELECT state, closed_at, reservation FROM probing.repair_incident WHERE node = %s AND opened_at > %s"
        " AND (closed_at IS NOT NULL OR state = 'ticket') ORDER BY opened_at DESC LIMIT 1",
        node,
        after,
    )
    return rows[0] if rows else None


def accounted(up: Any, name: str) -> list[tuple[float, float]]:
    """When Slurm's accounting says that the jobs of this name began and ended; empty while one of them has not."""
    sacct = ["sacct", "-X", "-n", "-P", "-S", "now-1hour", f"--name={name}", "-o", "Start,End"]
    lines = up.sandbox.run(["env", "SLURM_TIME_FORMAT=%s", *sacct]).stdout.split()
    spans = [line.split("|") for line in lines if not line.startswith(("Unknown", "None"))]
    if any(not digits.is_number(end) for _, end in spans):
        return []
    return [(float(start), float(end)) for start, end in spans]


def together_s(spans: list[tuple[float, float]], began: float, closed: float) -> float:
    """How long at least one of them lasted between two instants: jobs side by side count once."""
    found, until = 0.0, began
    for start, end in sorted(spans):
        start, end = max(start, until), min(end, closed)
        found += max(0.0, end - start)
        until = max(until, end)
    return found


def test_jobs_side_by_side_count_once() -> None:
    assert together_s([(0, 4), (2, 6), (20, 30), (25, 28), (90, 200)], 1, 100) == 5 + 10 + 10
