"""Requests made from the API's own document, valid and not: never a 500, and only answers that the document promises."""

from __future__ import annotations

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from web_world import ACTOR, World

from probing_cluster.web.api import openapi, register

DOCUMENT = openapi.document(register.OPERATIONS)
SLOW = {"set_healthy"}
"""Waits for a node's agent; its parameters are those of `ack`."""


def fuzz(world: World, n_examples: int) -> set[tuple[str, int]]:
    """Send so many requests to every operation; which answers came."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    machine = world.machine(ACTOR, acts=True)
    came: set[tuple[str, int]] = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in SLOW:
            continue

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=n_examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        )
        def send(case: schemathesis.Case) -> None:
            given = case.as_transport_kwargs(base_url=f"http://127.0.0.1:8780{openapi.BASE}")
            headers = {k: v for k, v in (given.get("headers") or {}).items() if k.lower() != "user-agent"}
            options = {k: given[k] for k in ("params", "json", "data", "cookies") if given.get(k) is not None}
            if isinstance(options.get("data"), bytes | str):
                options["content"] = options.pop("data")
            options.pop("cookies", None)
            answer = machine(given["method"], given["url"], headers=headers, **options)
            promised = {int(code) for code in case.operation.definition.raw["responses"]}
            assert answer.status_code in promised, (given, answer.status_code, answer.text[:500])
            came.add((case.operation.label, answer.status_code))

        send()
    return came


def test_no_request_breaks_the_api(world: World) -> None:
    """A few of every operation, sent by somebody who may do everything."""
    came = fuzz(world, 4)
    assert len({label for label, _ in came}) >= len(register.OPERATIONS) - len(SLOW)
    assert {200, 400} <= {status for _, status in came}


@pytest.mark.soak
def test_no_request_of_very_many_breaks_the_api(world: World) -> None:
    """The same, sixty of every operation."""
    assert fuzz(world, 60)


def test_a_planted_fault_would_be_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer can fail: a handler that breaks is reported."""
    monkeypatch.setattr(type(world.site), "rows", lambda *_a, **_k: 1 / 0)
    with pytest.raises(AssertionError, match="500"):
        fuzz(world, 2)
