"""What a round of tests found, and what it means for one node: failed, not judged, or well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probing_cluster.core import records
from probing_cluster.diagnostics import registry, worker

REPORTED = (records.Outcome.OK, records.Outcome.WARN)
"""Outcomes of a test that ran to its end and found no failure."""
ALONE = "it fails with every node that is proven good"


@records.record
class Findings:
    """What a round found."""

    results: tuple[records.DiagnosticResult, ...] = records.doc("every result, as it is stored")
    bad_nodes: tuple[str, ...] = records.doc("proven bad between nodes", default=())
    bad_links: tuple[tuple[str, str], ...] = records.doc("links proven bad", default=())
    open_nodes: tuple[str, ...] = records.doc("nodes of which nobody can tell", default=())
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


def against(found: Findings, node: str) -> list[str]:
    """Why the node must not return, in words, proven or not; empty when every test that ran passed."""
    words = proven(found, node)
    if node in found.open_nodes:
        words.append(f"pair: it fails, and nobody can tell whose fault it is ({found.why})")
    words += [f"pair: the link between {a} and {b} is bad" for a, b in found.bad_links if node in (a, b)]
    return words


def unanswered(found: Findings, node: str) -> list[str]:
    """What kept the node from being judged: tests without an answer, or none that said it is well."""
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


def of_tests(failing: Sequence[str]) -> tuple[str, ...]:
    """Of a repair's words on what fails those that a test found: not the agent's, nor a test that did not run, nor a step that did not help."""
    slow = {test.judged for test in registry.load().values() if test.judged}
    tests = slow.union(registry.load())
    return tuple(words for words in failing if words.partition(":")[0].partition(" ")[0] in tests)
