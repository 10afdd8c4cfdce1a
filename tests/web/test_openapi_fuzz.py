"""Requests made from the API's own document, valid and not: never a 500, and only answers that the document promises."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import httpx2
import hypothesis
import pytest
import requests
from hypothesis import HealthCheck
from web_world import ACTOR, Browser, World

from probing_cluster.web.api import openapi, register

DOCUMENT = openapi.document(register.OPERATIONS)
FUZZER = "schemathesis"
"""Loaded by the one worker that runs this file, not by each that collects it: it takes as long as half of the files."""
SLOW = {"set_healthy"}
"""Waits for a node's agent; its parameters are those of `ack`."""


def ask(machine: Browser, case: Any) -> httpx2.Response:
    """Send one; fails where the answer is none that the document promises."""
    given = case.as_transport_kwargs(base_url=f"http://127.0.0.1:8780{openapi.BASE}")
    # Of other letters than ASCII's too: a header is bytes, and the client takes no such text.
    headers = {
        k: v.encode("latin-1") if isinstance(v, str) else v
        for k, v in (given.get("headers") or {}).items()
        if k.lower() != "user-agent"
    }
    options = {k: given[k] for k in ("params", "json", "data") if given.get(k) is not None}
    if isinstance(options.get("data"), bytes | str):
        options["content"] = options.pop("data")
    answer = machine(given["method"], given["url"], headers=headers, **options)
    promised = {int(code) for code in case.operation.definition.raw["responses"]}
    assert answer.status_code in promised, (given, answer.status_code, answer.text[:500])
    return answer


def bounds(n_examples: int) -> hypothesis.settings:
    """So many examples, however long each takes."""
    return hypothesis.settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )


def fuzz(world: World, n_examples: int, mode: str = "POSITIVE") -> set[tuple[str, int]]:
    """Send so many requests to every operation, such as the document describes or such as it does not; which answers came."""
    schema = importlib.import_module(FUZZER).openapi.from_dict(DOCUMENT)
    generation_mode = importlib.import_module(f"{FUZZER}.generation").GenerationMode[mode]
    machine = world.machine(ACTOR, acts=True)
    came: set[tuple[str, int]] = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in SLOW:
            continue

        @hypothesis.given(case=operation.as_strategy(generation_mode=generation_mode))
        @bounds(n_examples)
        def send(case: Any) -> None:
            came.add((case.operation.label, ask(machine, case).status_code))

        send()
    return came


def test_no_request_breaks_the_api(world: World) -> None:
    """A few of every operation, sent by somebody who may do everything."""
    came = fuzz(world, 4)
    assert len({label for label, _ in came}) >= len(register.OPERATIONS) - len(SLOW)
    assert {200, 400} <= {status for _, status in came}


def test_no_request_that_the_document_forbids_breaks_the_api(world: World) -> None:
    """Wrong types, wrong parameters, no body at all."""
    assert 400 in {status for _, status in fuzz(world, 2, "NEGATIVE")}


@pytest.mark.soak
def test_no_sequence_of_requests_breaks_the_api(world: World) -> None:
    """Requests made of what others answered: a node that was named is drained, a round that was begun is asked for."""
    machine = world.machine(ACTOR, acts=True)
    came: Counter[int] = Counter()
    schema = importlib.import_module(FUZZER).openapi.from_dict(DOCUMENT).exclude(operation_id=list(SLOW))
    transport = importlib.import_module(f"{FUZZER}.core.transport")

    class Sequence(schema.as_state_machine()):  # type: ignore[misc]  # made from the document
        def call(self, case: Any, **_: object) -> Any:
            answer = ask(machine, case)
            came[answer.status_code] += 1
            sent = requests.Request(case.method, f"http://127.0.0.1:8780{case.formatted_path}").prepare()
            return transport.Response(
                answer.status_code,
                {k: [v] for k, v in answer.headers.items()},
                answer.content,
                sent,
                0.0,
                False,
            )

        def validate_response(self, response: Any, case: Any, **_: object) -> None:
            """`call` has judged it."""

    Sequence.run(settings=hypothesis.settings(bounds(100), stateful_step_count=8))
    assert came[200] > came.total() / 10


@pytest.mark.soak
def test_no_request_of_very_many_breaks_the_api(world: World) -> None:
    """The same, sixty of every operation, as described and not."""
    assert fuzz(world, 60)
    assert fuzz(world, 60, "NEGATIVE")


def test_a_planted_fault_would_be_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer can fail: a handler that breaks is reported."""
    monkeypatch.setattr(type(world.site), "rows", lambda *_a, **_k: 1 / 0)
    with pytest.raises(AssertionError, match="500"):
        fuzz(world, 2)
