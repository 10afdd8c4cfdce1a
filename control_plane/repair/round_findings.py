"""What a round of tests found, and what it means for one node: failed, not judged, or well."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Iterable, Mapping

from probing_cluster.core import records
from probing_cluster.diagnostics import isolation, registry, worker

REPORTED = (records.Outcome.OK, records.Outcome.WARN)
"""Outcomes of a test that ran to its end and found no failure."""
ALONE = "it fails with every node that is proven good"
NEITHER = "proven neither bad nor well"
AT_TIMES = "it fails with several nodes that are proven good, though not each time"
_ANEW = uuid.UUID(int=0)
"""The round under which results are judged once more."""


@records.record
class Findings:
    """What a round found."""

    results: tuple[records.DiagnosticResult, ...] = records.doc("every result, as it is stored")
    bad_nodes: tuple[str, ...] = records.doc("proven bad between nodes", default=())
    bad_links: tuple[tuple[str, str], ...] = records.doc("links proven bad", default=())
    open_nodes: tuple[str, ...] = records.doc("nodes that are proven neither bad nor well", default=())
    slow_nodes: Mapping[str, str] = records.doc(
        "slow node to compute, network or the test that says so", default_factory=dict
    )
    slow_links: tuple[tuple[str, str], ...] = records.doc("links proven slow", default=())
    noise: tuple[str, ...] = records.doc("of which speeds this round was too noisy to judge", default=())
    why: str = records.doc("what is missing to tell of the open ones", default="")
    cut: str = records.doc("why the round ended early; empty when it did not", default="")


def proven(found: Findings, node: str) -> list[str]:
    """What is proven against the node itself, in words."""
    words = [
        f"{r.test}{f' on {r.device}' if r.device else ''}: {r.message}"
        for r in found.results
        if r.node == node and not r.peer and r.outcome is records.Outcome.FAIL and is_of_one(r.test)
    ]
    if node in found.bad_nodes and not any(w.startswith("pair: ") for w in words):
        words.append(f"pair: {ALONE}")
    return words


def failed_alone(results: Iterable[records.DiagnosticResult]) -> set[str]:
    """The nodes that failed a test of their own."""
    return {r.node for r in results if r.outcome is records.Outcome.FAIL and not r.peer and is_of_one(r.test)}


def against(found: Findings, node: str, void: Collection[str] = ()) -> list[str]:
    """What is proven against the node or a link of it, in words; tests with the partners of `void` prove nothing."""
    found = _without(found, node, void) if void else found
    words = proven(found, node)
    words += [f"pair: the link between {a} and {b} is bad" for a, b in found.bad_links if node in (a, b)]
    return words


def _without(found: Findings, node: str, partners: Collection[str]) -> Findings:
    """The round as it would be judged without its tests in pairs with these partners."""
    pairs = [r for r in found.results if r.test == "pair" and r.peer and not _is_conclusion(r)]
    pairs = [
        r for r in pairs if r.outcome is not records.Outcome.ERROR and not {r.node, r.peer} & {*partners}
    ]
    others = {end for r in pairs for end in (r.node, r.peer)} - {node}
    case = isolation.IsolationCase(_ANEW, (node,), sorted(others))
    case.add(
        isolation.PairResult(
            round_id=_ANEW, pair=(r.node, r.peer), passed=r.outcome is not records.Outcome.FAIL
        )
        for r in pairs
    )
    ends = case.outcome()
    return dataclasses.replace(
        found,
        results=tuple(r for r in found.results if not _is_conclusion(r) or r.node in ends.bad_nodes),
        bad_nodes=ends.bad_nodes,
        bad_links=ends.bad_links,
    )


def _is_conclusion(result: records.DiagnosticResult) -> bool:
    """Whether it is what all tests in pairs together say of one node or link."""
    return result.test == "pair" and "conclusion" in result.detail


def unanswered(found: Findings, node: str) -> list[str]:
    """Why the node is not proven well: tests without an answer, none that ran, or a failure of which nobody can tell whose it is."""
    if found.cut:
        return [found.cut]
    mine = [r for r in found.results if r.node == node and not r.peer]
    known = registry.load()
    mine = [r for r in mine if r.test not in known or known[r.test].scope != "after"]
    words = [f"{r.test}: {r.message}" for r in mine if r.outcome is records.Outcome.ERROR]
    # A group that fails names nobody: any of its nodes or links may be it.
    words += [
        f"{r.test} fails, and nobody can tell whose fault it is: {r.message}"
        for r in mine
        if r.outcome is records.Outcome.FAIL and not is_of_one(r.test)
    ]
    if not words and not any(_is_answer(r, node) for r in found.results):
        words.append("no test ran")
    if node in found.open_nodes:
        words.append(f"pair: {NEITHER} ({found.why})")
    return words


def _is_answer(result: records.DiagnosticResult, node: str) -> bool:
    """Whether a test of this node, or of a pair that it is one of, ran to its end; a repair step and what is collected prove nothing."""
    known = registry.load()
    proves = result.test != worker.REPAIR and (
        result.test not in known or known[result.test].scope != "after"
    )
    return (
        proves and node in (result.node, result.peer) and result.outcome in (*REPORTED, records.Outcome.FAIL)
    )


def is_of_one(test: str) -> bool:
    """Whether a test's failure is the node's own."""
    known = registry.load()
    return test not in known or known[test].scope not in ("group", "after")


def is_of_a_test(words: str) -> bool:
    """Whether words on what fails at a node are of a test: not the agent's, nor of a round that did not run or a step that did not help."""
    slow = {test.judged for test in registry.load().values() if test.judged}
    return words.partition(":")[0].partition(" ")[0] in slow.union(registry.load())
