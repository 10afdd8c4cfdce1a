"""Errors of a statement name what is near and where the rest is listed, whatever DataFusion's own words are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.live.session import wording

FIELDS = 'r.node, r.rank, r.step_at, s.step, s."Duration"'


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "DataFusion error: Schema error: No field named stp. Did you mean 's.step'?\nValid fields are s.rank, s.step, s.at.",
            "no column stp in s; the nearest: step; information_schema.columns lists all 3",
        ),
        (
            f"Schema error: No field named r.duration. Valid fields are {FIELDS}.",
            "no column duration in r and s; the nearest: s.Duration; information_schema.columns lists all 5",
        ),
        (
            "Schema error: No field named nope.\nValid fields are ranks.node, ranks.rank.",
            "no column nope in ranks; the nearest: node; DESCRIBE ranks lists all 2",
        ),
        (
            "Error during planning: table 'live.cluster.rankz' not found",
            "no table cluster.rankz; the nearest: cluster.ranks; information_schema.tables lists them",
        ),
        (
            "Error during planning: table 'kept.cluster.rankz' not found",
            "no table cluster.rankz; the nearest: cluster.ranks; information_schema.tables lists them",
        ),
        (
            'SQL error: ParserError("Expected: x, found: y")',
            "this is no SQL that is understood: Expected: x, found: y",
        ),
        ("Internal error", "Internal error (n1 is silent)"),
        ("Arrow error: Divide by zero error", "Arrow error: Divide by zero error"),
        ("Error during planning: Invalid qualifier x", f"Error during planning: Invalid qualifier x; {wording.HINT}"),
        (
            "Error during planning: table 'live.cluster.steps' not found",
            "no table cluster.steps; the nearest: torch.steps, cluster.ranks; information_schema.tables lists them",
        ),
    ],
)  # fmt: skip
def test_words(text: str, wanted: str) -> None:
    """Only a statement that names what is not there is sent to the lists of what is."""
    found = wording.words(
        Exception(text), ["cluster.ranks", "torch.steps"], ["n1 is silent"] if "Internal" in text else []
    )
    assert found == wanted


def test_a_table_that_is_not_there_is_answered_with_the_programs_own() -> None:
    """A name without a schema may be one of those, and is looked up elsewhere."""
    missing = Exception("Error during planning: table 'live.cluster.evals' not found")
    tables, own = ["cluster.nodes", "cluster.ranks", "python.train"], ["python.train"]
    assert wording.words(missing, tables, written=own) == (
        "no table cluster.evals; the nearest: cluster.ranks, cluster.nodes; the job's own: python.train; "
        "information_schema.tables lists them"
    )
    near = Exception("Error during planning: table 'live.cluster.train' not found")
    assert wording.words(near, tables, written=own) == (
        "no table cluster.train; the nearest: python.train, cluster.ranks, cluster.nodes; information_schema.tables lists them"
    )


def test_a_silent_node_is_said_beside_a_table_that_is_not_there() -> None:
    """It may be that node's own table; the words of nodes that merely do not have it are not repeated."""
    found = wording.words(
        Exception("table 'live.python.mine' not found"),
        ["python.tables"],
        ["no answer in 2 s", "no table python.mine here"],
    )
    assert found.startswith("no table python.mine (no answer in 2 s); ")
    assert "here" not in found


def test_a_table_like_none_is_looked_for_in_its_schema() -> None:
    """Of `gpu.gpus` nobody is helped by the tables of ranks."""
    found = wording.words(
        Exception("table 'live.gpu.gpus' not found"),
        ["cluster.nodes", "cluster.ranks", "gpu.devices", "gpu.processes", "gpu.samples", "torch.steps"],
    )
    near = found.partition("the nearest: ")[2].partition(";")[0].split(", ")
    assert sorted(near) == ["gpu.devices", "gpu.processes", "gpu.samples"]


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=4))
def test_whatever_comes_is_one_bounded_line(text: str, tables: list[str]) -> None:
    """Names are the user's own words, and tables those of strangers' packages."""
    for whole in (
        text,
        f"Schema error: No field named {text}. Valid fields are {text}.",
        f"table '{text}' not found",
    ):
        found = wording.words(Exception(whole), tables)
        assert "\n" not in found
        assert len(found) < 2 * wording.MAX_CHARS
