"""Search by all that people have in hand, by an operator and by a user; and the client that asks."""

from __future__ import annotations

import dataclasses
import uuid

import fakes
from web_world import OPERATOR, OWNER, World

from probing_cluster.core import records
from probing_cluster.web.api import openapi, register


def test_whatever_one_has_in_hand_is_found(world: World) -> None:
    """A job's number, a user, the beginning of a node's name, an Xid; a user finds their own jobs and nothing of the hardware."""
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=fakes.NOW, observed_at=fakes.NOW, kind="xid", source="kernel",
        severity=records.Severity.HIGH, message="NVRM: Xid 79", device="gpu3", code="79",
    )  # fmt: skip
    fakes.deliver(world.store, "n1", event)
    operator, owner = world.client(OPERATOR), world.client(OWNER)

    def found(client: object, word: str) -> list[tuple[str, str]]:
        return [(f["kind"], f["path"]) for f in client.search(q=word)]

    assert found(operator, "8") == [("job", "/jobs/8")]
    assert found(operator, OWNER) == [("user", f"/jobs?user={OWNER}"), ("job", "/jobs/7")]
    assert found(operator, "n1") == [("node", "/nodes/n1")]
    minor = dataclasses.replace(event, event_id=uuid.uuid4(), code="13", severity=records.Severity.LOW)
    fakes.deliver(world.store, "n1", minor)
    for word in ("79", "xid:79", "xid79", "Xid 79", "xid: 79", "xid", "Xids"):
        assert found(operator, word) == [("Xid 79", "/nodes/n1")], word
    assert found(owner, "7") == [("job", "/jobs/7")]
    for word in ("8", "root", "n1", "79"):
        assert found(owner, word) == [], word


def test_the_client_is_a_page() -> None:
    """Short enough to be read before it is trusted."""
    assert len(openapi.client(register.OPERATIONS).splitlines()) <= 80
