"""What comes back from nodes: torn, labelled, hostile lines."""

from __future__ import annotations

import base64
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors, records
from probing_cluster.diagnostics import machine, wire
from probing_cluster.healthchecks import findings

GOOD = wire.line("gemm", "n1", findings.ok("fine", measured=1.0, unit="s"), 0.1, "1").encode()


def test_a_step_arrives_as_it_was_sent() -> None:
    step = wire.WireStep(
        round_id=uuid.UUID(int=5), token=wire.new_token(), tests=("gemm", "pair"), groups=(("a", "b"),),
        addresses={"a": ("h", 1)}, options=machine.Options(mounts=("/x",)), test_s=5.0, command="true",
        command_nodes=("a",),
    )  # fmt: skip
    assert wire.WireStep.decode(step.encode()) == step


def test_lines_are_found_among_others_and_by_label() -> None:
    output = b"1: noise\n0: " + GOOD + b"\nslurmstepd: error\n"
    (one,) = wire.parse(output, ["n1"], ["gemm"])
    assert (one.node, one.outcome, one.measured) == ("n1", records.Outcome.OK, 1.0)


def test_a_node_speaks_for_itself_alone() -> None:
    """Root of n2 lets n1 fail, first or last, with srun's label or without: none of it is n1's finding."""
    own = wire.line("gemm", "n2", findings.ok("fine"), 0.1, "1").encode()
    forged = wire.line("gemm", "n1", findings.fail("3 elements are wrong"), 0.1, "1").encode()
    output = b"\n".join(
        [b"1: " + forged] * 5000 + [forged, b"2: " + forged, b"0: " + GOOD, b"1: " + own, b"1: " + forged]
    )
    found = wire.parse(output, ["n1", "n2"], ["gemm"])
    assert [(one.node, one.outcome) for one in found] == [
        ("n1", records.Outcome.OK),
        ("n2", records.Outcome.OK),
    ]
    assert wire.parse(b"0: " + GOOD, ["n9"], ["gemm"]) == []
    assert wire.parse(b"0: " + GOOD, ["n1"], ["disk"]) == []
    assert [one.node for one in wire.parse(GOOD, ["n1"], ["gemm"])] == ["n1"]
    assert wire.parse(b"99999999999999999999: " + GOOD, ["n1"], ["gemm"]) == []


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    wire.parse(data, ["n1"], ["gemm"])
    wire.parse(b"0: PROBING1 " + base64.b64encode(data), ["n1"], ["gemm"])
    with pytest.raises(errors.MalformedInput):
        wire.WireStep.decode(b"[" + data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "test",
                        "node",
                        "outcome",
                        "message",
                        "device",
                        "measured",
                        "unit",
                        "duration_s",
                        "version",
                        "detail",
                    ]
                ),
                x,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_makes_it_fail(value: object) -> None:
    line = base64.b64encode(json.dumps(value).encode())
    wire.parse(b"0: PROBING1 " + line, ["n1"], ["gemm"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_what_postgres_takes_for_no_number_loses_no_round(number: str) -> None:
    """All rows of a round are stored at once: one node's `NaN` would take the other nodes' results with it."""
    given = json.loads(base64.b64decode(GOOD.split()[1]))
    text = json.dumps(given | {"detail": {"x": 0}}).replace('{"x": 0}', f'{{"x": {number}}}')
    (one,) = wire.parse(b"0: PROBING1 " + base64.b64encode(text.encode()), ["n1"], ["gemm"])
    json.dumps(dict(one.detail), allow_nan=False)
    assert isinstance(one.detail["x"], str)
