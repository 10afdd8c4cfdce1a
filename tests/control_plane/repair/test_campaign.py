"""A round of tests over fake steps: who is at fault, who gave no answer, what is held against the past."""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.control_plane.repair import campaign, round_findings
from probing_cluster.control_plane.terminal import diagnose_text
from probing_cluster.core import records, settings
from probing_cluster.diagnostics import evidence, machine, registry, slowness, wire
from probing_cluster.healthchecks import findings

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Steps:
    """Nodes with their faults, answering as probing-diagnose does."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.cut: set[str] = set()
        self.wrong: set[str] = set()
        self.silent: set[str] = set()
        self.torn: set[str] = set()
        self.torn_links: set[frozenset[str]] = set()
        self.torn_from, self.torn_until = 0, 1000
        """From the first to before the second of these steps the links are torn."""
        self.flaky: set[str] = set()
        """Nodes that fail in half of the steps."""
        self.draw = random.Random(4)
        self.slow: dict[str, float] = {}
        self.slow_small: dict[str, float] = {}
        """By how much an all-reduce of few bytes takes longer with a node, and of many."""
        self.slow_large: dict[str, float] = {}
        self.pair_s = 1.0
        self.quota: dict[str, float] = {}
        self.quick_from = 1000
        """From this step on nobody is slow."""
        self.calls: list[wire.WireStep] = []

    def step(self, job_id: int, nodes: Sequence[str], command: str, stdin: bytes, deadline_s: float) -> bytes:
        step = wire.WireStep.decode(stdin)
        self.calls.append(step)
        self.failing = {node for node in sorted(self.flaky) if self.draw.random() < 0.5}
        lines = []
        for label, node in enumerate(nodes):
            if node in self.silent:
                continue
            group = next((g for g in step.groups if node in g), ())
            lines += [f"{label}: {self._one(test, node, group, step.options)}" for test in step.tests]
        return "\n".join(lines).encode()

    def _one(self, test: str, node: str, group: Sequence[str], options: machine.Options) -> str:
        detail: dict[str, str | float] = {"model": "m", "engine": "e"}
        slow = self.slow if len(self.calls) < self.quick_from else {}
        if node in self.quota:
            detail[registry.QUOTA] = self.quota[node]
        device = "cpu" if test == "gemm" else None
        taken = slow.get(node, 1.0)
        if test == "pair":
            is_small = options.repeats == slowness.SMALL_REPEATS
            taken *= self.pair_s * (self.slow_small if is_small else self.slow_large).get(node, 1.0)
        found = findings.ok("fine", device=device, measured=taken, unit="s", detail=detail)
        if test == "gemm" and node in self.wrong:
            found = findings.fail("3 elements are wrong", detail=detail)
        if test == "pair" and node in self.cut:
            found = findings.unseen("port taken", detail={registry.UNTESTED: "port taken"})
        elif test == "pair" and self.cut & set(group):
            found = findings.fail("the other does not connect")
        elif test in self.torn or (group and (self._is_dead(group) or self._is_torn(group))):
            found = findings.fail("no answer from the other")
        return wire.line(test, node, found, 0.1, "1")

    def _is_torn(self, group: Sequence[str]) -> bool:
        is_now = self.torn_from <= len(self.calls) < self.torn_until
        return frozenset(group) in self.torn_links and is_now

    def _is_dead(self, group: Sequence[str]) -> bool:
        return bool((self.dead | self.failing) & set(group))


@pytest.fixture
def steps() -> Steps:
    return Steps()


def run(
    steps: Steps, *nodes: str, history: Sequence[records.DiagnosticResult] = (), **calls: Any
) -> round_findings.Findings:
    runner = campaign.Campaign(
        config=settings.Settings(cluster=settings.ClusterSettings(name="c")),
        steps=steps,
        command="x",
        now=lambda: NOW,
    )
    question = campaign.RoundRequest(
        round_id=uuid.uuid4(), job_id=1, nodes=nodes, **{"tests": ("gemm", "pair", "ring"), **calls}
    )
    return runner.run(question, history)


def test_a_healthy_set_passes_and_every_result_is_of_this_round(steps: Steps) -> None:
    found = run(steps, "a", "b", "c", "d")
    for node in "abcd":
        assert round_findings.against(found, node) + round_findings.unanswered(found, node) == []
    assert len({r.round_id for r in found.results}) == 1
    assert {r.test for r in found.results} == {"gemm", "pair", "ring"}


def test_a_repair_step_is_for_the_nodes_under_test_and_never_for_a_reference(steps: Steps) -> None:
    run(steps, "a", references=("b",), command="reset")
    assert [(s.command, s.command_nodes) for s in steps.calls if s.command] == [("reset", ("a",))]


def test_a_wrong_product_and_dead_links_are_told_apart(steps: Steps) -> None:
    steps.wrong, steps.dead = {"a"}, {"b"}
    found = run(steps, "a", "b", "c", "d")
    assert round_findings.against(found, "a") == ["gemm: 3 elements are wrong"]
    assert round_findings.against(found, "b") == ["pair: it fails with every node that is proven good"]
    assert round_findings.against(found, "c") == []
    assert list(diagnose_text.at_fault(found, "abcd")) == ["a", "b"]
    assert "2 of 4 nodes passed" in diagnose_text.text(found, list("abcd"))


def test_whoever_cannot_be_told_apart_stands_not_accused(steps: Steps) -> None:
    steps.dead = {"b"}
    found = run(steps, "a", "b", tests=("pair",))
    assert diagnose_text.at_fault(found, "ab") == {}
    assert not diagnose_text.is_clean(found, "ab")
    text = diagnose_text.text(found, ["a", "b"])
    assert text.startswith("a,b: proven neither bad nor well (a-b failed 4 of 4 times; an idle node as")
    assert "0 of 2 nodes passed" in text
    assert "not judged" not in text, "said once"
    assert round_findings.unanswered(found, "a")[0].startswith("pair: proven neither bad nor well"), (
        "and neither returns from a repair"
    )


def test_the_ends_of_a_bad_link_stand_not_accused(steps: Steps) -> None:
    steps.torn_links = {frozenset("ab")}
    found = run(steps, "a", "b", "c", "d", tests=("pair",))
    assert diagnose_text.at_fault(found, "abcd") == {}
    assert not diagnose_text.is_clean(found, "abcd")
    text = diagnose_text.text(found, list("abcd"))
    assert text.startswith("link a - b: bad, both nodes passed with others\n2 of 4 nodes passed")
    assert round_findings.against(found, "a") == ["pair: the link between a and b is bad"]


def test_a_pair_that_failed_once_accuses_nobody_and_proves_neither_well(steps: Steps) -> None:
    """By chance, or a fault of the one, the other or their link that does not show each time."""
    steps.torn_links, steps.torn_until = {frozenset("ab")}, 3
    found = run(steps, "a", "b", "c", "d", tests=("pair",))
    assert (found.bad_nodes, found.bad_links, found.open_nodes) == ((), (), ("a", "b"))
    assert round_findings.against(found, "a") == []
    assert "a-b failed 1 of " in round_findings.unanswered(found, "a")[0]
    assert round_findings.unanswered(found, "c") == []


def test_a_lone_node_is_held_against_references_that_are_tested_with_each_other(steps: Steps) -> None:
    """One is under test, and it fails with all: that its references are well, only they can show."""
    steps.dead = {"a"}
    for references in (("r", "s"), ("r", "s", "t")):
        found = run(steps, "a", references=references, tests=("pair",))
        assert (found.bad_nodes, found.open_nodes) == (("a",), ())
        assert round_findings.against(found, "a") == [f"pair: {round_findings.ALONE}"]
    steps.dead = {"r"}
    found = run(steps, "a", references=("r", "s"), tests=("pair",))
    assert found.bad_nodes == ("r",)
    assert round_findings.against(found, "a") + round_findings.unanswered(found, "a") == []
    alone = run(steps, "a", references=("r",), tests=("pair",))
    assert (alone.bad_nodes, alone.open_nodes) == ((), ("a", "r"))


def test_a_node_that_fails_at_times_is_no_bad_link(steps: Steps) -> None:
    steps.flaky = {"a"}
    found = run(steps, "a", references=("r", "s"), tests=("pair",), passes=24)
    assert (found.bad_nodes, found.bad_links) == (("a",), ())
    assert round_findings.against(found, "a") == [f"pair: {round_findings.AT_TIMES}"]


def test_a_node_that_failed_alone_is_not_tested_long_in_pairs(steps: Steps) -> None:
    def n_pairs() -> int:
        steps.calls.clear()
        run(steps, "a", references=("r",), passes=8)
        return sum(call.tests == ("pair",) for call in steps.calls)

    assert n_pairs() == 8
    steps.wrong = {"a"}
    assert n_pairs() == 2


def test_a_pair_that_fails_while_it_is_timed_is_a_failed_test(steps: Steps) -> None:
    steps.torn_links, steps.torn_from = {frozenset("ab")}, 4
    found = run(steps, "a", "b", "c", "d", tests=("pair",))
    assert "a-b failed" in round_findings.unanswered(found, "a")[0]


def test_a_node_whose_pairs_give_no_answer_is_not_proven_well(steps: Steps) -> None:
    """Its own tests pass: of its links nobody knows anything."""
    steps.cut = {"r", "s"}
    found = run(steps, "a", references=("r", "s"))
    assert found.bad_nodes == ()
    (words,) = round_findings.unanswered(found, "a")
    assert words.startswith("pair: proven neither bad nor well (a passed 0 of 2 tests with others; ")


def test_a_pair_that_passes_again_and_again_is_one_line_of_the_answer(steps: Steps) -> None:
    found = run(steps, "a", "b", "c", "d", tests=("pair",))
    passes = [r for r in found.results if (r.node, r.peer) == ("a", "b")]
    text = diagnose_text.text(found, list("abcd"))
    (line,) = [line for line in text.splitlines() if line.startswith("a-b ")]
    assert line.endswith(f"fine, the least of {len(passes)}")


def test_of_nodes_that_failed_parts_and_logs_are_collected_and_of_no_others(steps: Steps) -> None:
    steps.wrong = {"a"}
    found = run(steps, "a", "b", tests=("gemm", "parts", "kernel-log"))
    assert {(r.node, r.test) for r in found.results if r.test != "gemm"} == {
        ("a", "parts"),
        ("a", "kernel-log"),
    }
    assert round_findings.against(found, "a") == ["gemm: 3 elements are wrong"]
    alone = run(steps, "b", tests=("parts",))
    assert round_findings.unanswered(alone, "b") == ["no test ran"], "what is collected proves nothing"


def test_a_group_that_fails_accuses_no_node_and_keeps_none_well(steps: Steps) -> None:
    """Every pair passes and the ring does not: it may be any of them, or a link that no pair used."""
    steps.torn = {"ring"}
    found = run(steps, "a", "b", "c")
    assert round_findings.against(found, "a") == []
    assert "nobody can tell whose fault" in round_findings.unanswered(found, "a")[0]


def test_whose_fault_a_pair_is_is_a_result_of_its_own(steps: Steps) -> None:
    steps.dead = {"b"}
    found = run(steps, "a", "b", "c", "d")
    (event,) = evidence.events(found.results)
    assert (event.node, event.kind, event.severity.value) == ("b", "link_test", "high")


def test_a_node_that_passed_or_failed_something_is_not_said_to_be_untested(steps: Steps) -> None:
    """Pairs alone are tests, and so is the one that it failed."""
    found = run(steps, "a", "b", tests=("pair",))
    assert round_findings.unanswered(found, "a") + round_findings.unanswered(found, "b") == []
    assert "2 of 2 nodes passed" in diagnose_text.text(found, ["a", "b"])
    steps.wrong = {"a"}
    assert "not judged" not in diagnose_text.text(run(steps, "a", tests=("gemm",)), ["a"])


def test_a_quota_stands_out_where_the_times_of_products_are_noisy(steps: Steps) -> None:
    steps.slow, steps.quota = {"a": 1.0, "b": 1.5, "c": 1.1, "d": 1.9, "e": 1.3}, {"c": 1.1}
    assert run(steps, "a", "b", "c", "d", "e", tests=("gemm",)).slow_nodes == {"c": "compute"}
    steps.quota = dict.fromkeys("abcde", 1.1)
    assert run(steps, "a", "b", "c", "d", "e", tests=("gemm",)).slow_nodes == {}, "it is the site's way"


def test_a_node_that_says_nothing_is_not_judged_well(steps: Steps) -> None:
    """Its partners say that it does not answer; by itself it is missing."""
    steps.silent = {"d"}
    found = run(steps, "a", "b", "c", "d", tests=("gemm",))
    assert round_findings.unanswered(found, "d") == ["gemm: the node gave no answer in time"]
    assert round_findings.unanswered(found, "a") == []


def test_our_own_trouble_accuses_nobody(steps: Steps) -> None:
    """A port that is taken on one end: the pair says nothing."""
    steps.cut = {"a"}
    found = run(steps, "a", references=("r",))
    assert round_findings.against(found, "a") == []
    assert found.bad_nodes == ()


def test_slow_compute_is_named_only_beside_others(steps: Steps) -> None:
    steps.slow = {"b": 1.3}
    assert run(steps, "a", "b", "c", "d", "e", tests=("gemm",)).slow_nodes == {"b": "compute"}
    assert run(steps, "a", "b", tests=("gemm",)).slow_nodes == {}


def test_a_link_is_timed_by_large_and_by_small_transfers(steps: Steps) -> None:
    """A delay shows in small ones, lost packets in large ones."""
    steps.slow_small = {"b": 1.1}
    found = run(steps, "a", "b", "c", "d", "e", tests=("pair",))
    assert found.slow_nodes == {"b": "network"}
    assert found.slow_links == ()
    assert {s.options.bytes_moved for s in steps.calls} == {1 << 22, 1 << 15}, (
        "10 ms and less, of the 1 s that 4 MiB take"
    )
    repeats = [s.options.repeats for s in steps.calls]
    last = steps.calls[len(repeats) - repeats[::-1].index(slowness.SMALL_REPEATS) :]
    assert "b" not in {node for s in last for pair in s.groups for node in pair}, "it is known"
    steps.slow_small, steps.slow_large = {}, {"c": 1.1}
    assert run(steps, "a", "b", "c", "d", tests=("pair",)).slow_nodes == {"c": "network"}
    steps.calls.clear()
    steps.slow_large, steps.pair_s = {}, 0.003
    run(steps, "a", "b", "c", "d", tests=("pair",))
    sizes = {(s.options.bytes_moved, s.options.repeats) for s in steps.calls}
    assert sizes == {(1 << 22, 5), (1 << 22, slowness.SMALL_REPEATS)}, "4 MiB are few where they take 3 ms"
    assert len(steps.calls) == 2 + 6, "once for each partner, not for large and small"


def test_a_figure_is_held_against_its_past_and_only_equal_ones(steps: Steps) -> None:
    past = [
        dataclasses.replace(r, result_id=uuid.uuid4())
        for _ in range(6)
        for r in run(steps, "a", tests=("gemm",)).results
    ]
    steps.slow = {"a": 1.3}
    slow = run(steps, "a", tests=("gemm",), history=past)
    assert slow.slow_nodes == {"a": "gemm"}
    assert {(r.outcome, r.baseline) for r in slow.results} == {(records.Outcome.WARN, 1.0)}
    assert len(slow.results) == 3, "measured again, twice"
    other = [dataclasses.replace(r, version="2 e") for r in past]
    (alone,) = run(steps, "a", tests=("gemm",), history=other).results
    assert (alone.outcome, alone.baseline) == (records.Outcome.OK, None)


def test_slow_for_a_moment_is_measured_again_and_not_named(steps: Steps) -> None:
    """A neighbour was busy during the first measurement, or through the second."""
    for quick_at in (2, 3):
        steps.calls.clear()
        steps.slow, steps.quick_from = {"b": 1.3}, quick_at
        found = run(steps, "a", "b", "c", "d", "e", tests=("gemm",))
        assert found.slow_nodes == {}
        assert len(steps.calls) == quick_at


def test_where_all_are_slower_than_before_no_node_is(steps: Steps) -> None:
    """They share a disk or processors: a node is held against the others of its round as well as its past."""
    past = [
        dataclasses.replace(r, result_id=uuid.uuid4())
        for _ in range(6)
        for r in run(steps, "a", "b", tests=("gemm",)).results
    ]
    steps.slow = {"a": 1.32, "b": 1.3}
    assert run(steps, "a", references=("b",), tests=("gemm",), history=past).slow_nodes == {}
    steps.slow = {"a": 1.32}
    assert run(steps, "a", references=("b",), tests=("gemm",), history=past).slow_nodes == {"a": "gemm"}


def test_a_round_whose_times_differ_widely_judges_no_speed_and_says_so(steps: Steps) -> None:
    steps.slow = {"a": 1.0, "b": 1.4, "c": 1.1, "d": 1.9, "e": 1.3}
    found = run(steps, "a", "b", "c", "d", "e", tests=("gemm",))
    assert found.slow_nodes == {}
    assert "too noisy to judge speed" in found.noise[0]
    assert "too noisy to judge speed" in diagnose_text.text(found, list("abcde"))


def test_a_cancelled_round_judges_nobody(steps: Steps) -> None:
    runner = campaign.Campaign(
        config=settings.Settings(), steps=steps, command="x", now=lambda: NOW, stopped=lambda: True
    )
    found = runner.run(campaign.RoundRequest(round_id=uuid.uuid4(), job_id=1, nodes=("a",), tests=("gemm",)))
    assert steps.calls == []
    assert round_findings.unanswered(found, "a") == ["it was cancelled"]
