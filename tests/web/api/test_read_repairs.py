"""Tests of nodes and repairs over the API, asked for by the client that `probing-ctl web client` prints."""

from __future__ import annotations

import re
import urllib.error
import uuid
from datetime import timedelta

import fakes
import pytest
from web_world import ACTOR, OPERATOR, OWNER, World

from probing_cluster.control_plane.repair import campaign, rounds
from probing_cluster.core import records
from probing_cluster.web.live import now

INCIDENT = uuid.UUID(int=1)


def result(n: int, **changes: object) -> records.DiagnosticResult:
    """One result on n1, n minutes ago."""
    values = {
        "result_id": uuid.UUID(int=100 + n), "cluster": "c", "round_id": uuid.UUID(int=7), "node": "n1", "test": "gemm",
        "outcome": records.Outcome.OK, "at": fakes.NOW - timedelta(minutes=n), "incident_id": INCIDENT,
    }  # fmt: skip
    return records.DiagnosticResult(**values | changes)


def under_repair(world: World) -> None:
    """n1 is drained and in the middle of its tests, of which the memory's failed."""
    world.store.open_incident(
        records.RepairIncident(
            incident_id=INCIDENT, cluster="c", node="n1", drain_id=uuid.UUID(int=2), reason="probing: xid 79 on gpu3",
            cause="gpu", state="ticket", why="memory failed on gpu3", opened_at=fakes.NOW - timedelta(hours=1),
            changed_at=fakes.NOW, detail={"failing": ["memory on gpu3: 3 wrong words"]},
        )
    )  # fmt: skip
    bad = result(3, test="memory", outcome=records.Outcome.FAIL, device="gpu3", message="3 wrong words")
    world.store.add_results([result(1), result(2, test="pcie"), bad])


def test_repairs_and_tests_are_read(world: World) -> None:
    """Lists with their filters and pages, one node's repair with its tests, a round; not for who is no operator."""
    under_repair(world)
    client = world.client(OPERATOR)
    assert [r["state"] for r in client.repairs(open="true")["items"]] == ["ticket"]
    assert client.repairs(node="n2")["items"] == []
    assert [r["test"] for r in client.pages(client.diagnostics, limit=1)] == ["gemm", "pcie", "memory"]
    assert [r["device"] for r in client.diagnostics(outcome="fail")["items"]] == ["gpu3"]
    found = client.repair("n1")
    assert (found["repair"]["why"], len(found["tests"])) == ("memory failed on gpu3", 3)
    assert client.round(uuid.UUID(int=7)) == {
        "round_id": str(uuid.UUID(int=7)), "state": "ended", "why": "", "n_results": 3,
    }  # fmt: skip
    for ask in (lambda: client.repair("n2"), lambda: client.round(uuid.UUID(int=8))):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        world.client(OWNER).repairs()


def test_a_word_about_a_repair_is_the_commands(world: World) -> None:
    """hold, release and done leave the note that the repair workflow reads, with the person's name; of no other node."""
    under_repair(world)
    client = world.client(ACTOR, acts=True)
    for word in ("hold", "release", "done"):
        assert "the service does it" in getattr(client, word)("n1", note="mine")["outcome"]
    notes = [(n.action, n.author, n.subject, n.note) for n in world.store.notes()]
    assert notes == [(word, ACTOR, "node:n1", "mine") for word in ("hold", "release", "done")]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        client.hold("n2")


def test_a_node_is_tested_from_the_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round in one job of ours under its own name; its state is told; a node that takes no job is refused."""
    began: list[tuple[object, campaign.RoundRequest]] = []
    ends: dict[uuid.UUID, rounds.RoundEnd | None] = {}

    def start(self: rounds.Rounds, wanted: object, calls: object, round_id: uuid.UUID) -> None:
        noted = [n.note for n in world.store.notes() if n.action == "diagnose"]
        assert noted == [f"round {round_id}"], "every action is a row first"
        began.append((wanted, calls(4242)))
        ends[round_id] = None

    monkeypatch.setattr(rounds.Rounds, "start", start)
    monkeypatch.setattr(rounds.Rounds, "state", lambda self, round_id: ends[round_id])
    client = world.client(ACTOR, acts=True)
    outcome = client.diagnose("n2", tests=["gemm"], reference="n[3-4]", idempotency_key="test-of-n2")
    again = client.diagnose("n2", tests=["gemm"], reference="n[3-4]", idempotency_key="test-of-n2")
    assert outcome == again
    ((wanted, calls),) = began
    assert (wanted.nodes, wanted.partition) == (("n2", "n3", "n4"), "gpu")
    assert (calls.nodes, calls.references, calls.tests, calls.job_id) == (
        ("n2",),
        ("n3", "n4"),
        ("gemm",),
        4242,
    )
    round_id = re.search(r"[0-9a-f-]{36}", outcome["outcome"])[0]
    assert client.round(round_id)["state"] == "running"
    ends[uuid.UUID(round_id)] = rounds.RoundEnd(why="the test's job did not start within 90 s")
    found = client.round(round_id)
    assert (found["state"], found["why"]) == ("failed", "the test's job did not start within 90 s")
    client.drain("n1", reason="smells")
    for node, given, code in (("n1", {}, 403), ("n9", {}, 404), ("n2", {"tests": ["no-such"]}, 400)):
        with pytest.raises(urllib.error.HTTPError, match=str(code)):
            client.diagnose(node, **given)
    assert len(began) == 1


def test_now_says_what_the_repair_waits_for(world: World) -> None:
    """A ticket needs a person, whatever the node's last fault would have one do; a repair under way needs nobody."""

    def next_steps() -> dict[str, str]:
        return {node.node: node.next_step for node in now.gather(world.site).nodes}

    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=fakes.NOW, observed_at=fakes.NOW, kind="xid", source="kernel",
        severity=records.Severity.HIGH, message="Xid 79", device="gpu3", code="79",
    )  # fmt: skip
    fakes.deliver(world.store, "n1", event)
    assert "repair gave up" not in next_steps()["n1"].lower()
    under_repair(world)
    mended, _, rest = next_steps()["n1"].partition(" Then ")
    assert "gpu3" in mended.replace("GPU 3", "gpu3"), "what the standing fault asks for comes first"
    assert rest == "probing-ctl repair release n1 tests it. Repair gave up: memory failed on gpu3"
    world.store.update_incident(INCIDENT, state="testing", why="under test")
    assert next_steps()["n1"] == (
        "Under repair, testing: under test. It returns by itself when every test passes."
    )
    world.store.update_incident(INCIDENT, held_by="bob")
    assert next_steps()["n1"].startswith("bob holds its repair; probing-ctl repair release n1")


def test_what_failed_stands_before_what_passed(world: World) -> None:
    """An operator sees the failure on the first screen: passed tests and the older timeline are folded away."""
    under_repair(world)
    for n in range(30):
        event = records.HealthEvent(
            event_id=uuid.UUID(int=n + 1), cluster="c", node="n1", at=fakes.NOW - timedelta(minutes=n), observed_at=fakes.NOW,
            kind="xid", source="kernel", severity=records.Severity.LOW, message=f"event number {n}.", device="gpu3",
        )  # fmt: skip
        fakes.deliver(world.store, "n1", event)
    text = world.as_user(ACTOR).get("/nodes/n1").text
    assert text.index("3 wrong words") < text.index("<summary>2 passed")
    tables = text[text.index("<caption>Latest first") :]  # the drawing above names every event
    assert (
        tables.index("event number 3.")
        < tables.index(" earlier</summary>")
        < tables.index("event number 29.")
    )


def test_the_node_page_tells_of_repair_tests_and_parts(world: World) -> None:
    """State and failing test of the repair, the tests themselves, and each GPU with its serial number; and Repairs lists them."""
    under_repair(world)
    gpu = "GPU-11111111-2222-3333-4444-555555555555"
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=fakes.NOW, observed_at=fakes.NOW, kind="gpu_lost", source="nvml",
        severity=records.Severity.HIGH, message=f"{gpu} (gpu3, serial 1650123456789) is gone", device="gpu3", gpu_uuid=gpu,
    )  # fmt: skip
    held = records.JobAllocation(cluster="c", node="n1", job_id=7, at=fakes.NOW, gpu_uuids=("GPU-of-job-7",))
    fakes.deliver(world.store, "n1", event, allocations=[held])
    actor = world.as_user(ACTOR)
    text = actor.get("/nodes/n1").text
    for words in (
        "Under repair",
        "memory on gpu3: 3 wrong words",
        "1650123456789",
        "GPU-of-job-7",
        "test memory fail",
    ):
        assert words in text, words
    assert 'action="/act/hold/n1"' in text
    assert 'action="/act/hold/n1"' not in world.as_user(OPERATOR).get("/nodes/n1").text
    text = actor.get("/repairs").text
    assert "ticket" in text
    assert "3 wrong words" in text
    for word in ("1650123456789", gpu, "GPU-of-job-7"):
        found = world.as_user(OPERATOR).get("/api/v1/search", params={"q": word}).json()
        assert [(f["kind"], f["path"]) for f in found] == [("gpu", "/nodes/n1")], word
    assert world.as_user(OWNER).get("/api/v1/search", params={"q": gpu}).json() == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("ticket", f'class="high">Still failing at {fakes.NOW:%Y-%m-%d %H:%M}Z: memory'),
        ("queued", "<p>Failed at its last tests: memory"),
        ("returned", "<p>Failed before its repair: memory"),
    ],
)
def test_the_node_page_says_when_it_failed(world: World, state: str, words: str) -> None:
    """A node that waits for new tests, or that passed them, fails nothing now."""
    under_repair(world)
    ended = {"closed_at": fakes.NOW, "why": "every test passed"} if state == "returned" else {}
    world.store.update_incident(INCIDENT, state=state, **ended)
    text = world.as_user(OPERATOR).get("/nodes/n1").text
    assert words in text
    assert ("waits for" in text) == (state != "returned")
