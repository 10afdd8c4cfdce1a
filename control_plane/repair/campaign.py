"""One round of tests on a set of nodes: the steps in their job, who is at fault by them, and the results as rows.

Nothing here knows of drains or reservations: it is given a job that holds the nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from probing_cluster.core import records, settings
from probing_cluster.diagnostics import baseline, isolation, machine, registry, slowness, wire, worker

Announce = Callable[[str], None]
_REPORTED = (records.Outcome.OK, records.Outcome.WARN)
_MOST_STEPS = 200


class Steps(Protocol):
    """The part of Slurm's job steps that a round needs; slurm_plugins.acts.job_steps is the real one."""

    def step(
        self, job_id: int, nodes: Sequence[str], command: str, stdin: bytes, deadline_s: float
    ) -> bytes: ...


@records.record
class Asked:
    """What a round is to find out."""

    round_id: uuid.UUID = records.doc("its identity; results of another are never mixed in")
    job_id: int = records.doc("the job that holds the nodes")
    nodes: tuple[str, ...] = records.doc("nodes under test")
    references: tuple[str, ...] = records.doc("idle nodes to hold them against", default=())
    hosts: Mapping[str, str] = records.doc("node to host name or address", default_factory=dict)
    places: Mapping[str, str] = records.doc(
        "node to its leaf switch or block, where Slurm has one", default_factory=dict
    )
    tests: tuple[str, ...] = records.doc("tests to run; none = all", default=())
    command: str = records.doc("a repair step to run on the nodes first", default="")
    every_link: bool = records.doc("test every pair, so that every bad link is found", default=False)
    incident_id: uuid.UUID | None = records.doc("the repair it belongs to", default=None)


@records.record
class Found:
    """What a round found."""

    results: tuple[records.DiagnosticResult, ...] = records.doc("every result, as it is stored")
    bad_nodes: tuple[str, ...] = records.doc("proven bad between nodes", default=())
    bad_links: tuple[tuple[str, str], ...] = records.doc("links proven bad", default=())
    open_nodes: tuple[str, ...] = records.doc("nodes of which nobody can tell", default=())
    slow_nodes: Mapping[str, str] = records.doc(
        "slow node to compute, network or the test that says so", default_factory=dict
    )
    slow_links: tuple[tuple[str, str], ...] = records.doc("links proven slow", default=())
    why: str = records.doc("what is missing to tell of the open ones", default="")
    cut: str = records.doc("why the round ended early; empty when it did not", default="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Campaign:
    """Runs rounds of tests."""

    config: settings.Settings
    steps: Steps
    command: str
    """probing-diagnose on the nodes."""
    now: Callable[[], datetime]
    announce: Announce = lambda _: None
    """Told what is being done, in a few words."""
    stopped: Callable[[], bool] = lambda: False

    def run(self, asked: Asked, history: Sequence[records.DiagnosticResult] = ()) -> Found:
        """The whole round, within [diagnostics] round_s; figures are held against `history`, earlier good results."""
        return _Round(self, asked, history).run()


class _Round:
    """One round on its way."""

    def __init__(self, campaign: Campaign, asked: Asked, history: Sequence[records.DiagnosticResult]) -> None:
        self._c = campaign
        self._asked = asked
        self._history = history
        self._given = campaign.config.diagnostics
        self._chosen = {test.name: test for test in registry.chosen(asked.tests or self._given.tests)}
        self._token = wire.new_token()
        self._everyone = (*asked.nodes, *asked.references)
        self._until = time.monotonic() + self._given.round_s
        self._results: dict[uuid.UUID, records.DiagnosticResult] = {}
        self._slow: dict[str, str] = {}
        self._cut = ""
        self._n_steps = 0

    def run(self) -> Found:
        single = tuple(name for name, test in self._chosen.items() if test.scope == "node")
        if single:
            self._alone(single)
        case = isolation.Case(
            self._asked.round_id, self._asked.nodes, self._asked.references, every_link=self._asked.every_link
        )
        slow_links: tuple[isolation.Pair, ...] = ()
        if "pair" in self._chosen and len(self._everyone) > 1:
            self._isolate(case)
            slow_links = self._time(case)
        self._together(case)
        self._compare()
        isolated = case.outcome() if case.results else None
        return Found(
            results=tuple(self._results.values()),
            bad_nodes=isolated.bad_nodes if isolated else (),
            bad_links=isolated.bad_links if isolated else (),
            open_nodes=isolated.open_nodes if isolated else (),
            slow_nodes=dict(self._slow),
            slow_links=slow_links,
            why=isolated.why if isolated else "",
            cut=self._cut,
        )

    def _alone(self, names: tuple[str, ...]) -> None:
        self._c.announce(f"{', '.join(names)} on {len(self._everyone)} nodes")
        deadline_s = sum(min(self._chosen[n].deadline_s, self._given.test_s) + 6 for n in names)
        if self._asked.command:
            deadline_s += self._given.test_s
        reports = self._step(self._everyone, names, (), deadline_s, command=self._asked.command)
        answered = {(r.node, r.test) for r in reports}
        self._keep(reports)
        for node in self._everyone:
            for name in names:
                if (node, name) not in answered:
                    self._lost(node, name)

    def _lost(self, node: str, test: str) -> None:
        message = self._cut or "the node gave no answer in time"
        self._add(node, test, records.Outcome.ERROR, message=message)

    def _isolate(self, case: isolation.Case) -> None:
        while not self._cut and (pairs := case.next_pairs()):
            self._c.announce(f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}: {_names(pairs)}")
            case.add(self._pairs(case, pairs))

    def _pairs(self, case: isolation.Case, pairs: Sequence[isolation.Pair]) -> list[isolation.PairResult]:
        nodes = tuple(node for pair in pairs for node in pair)
        deadline_s = min(self._chosen["pair"].deadline_s, self._given.test_s) + 6
        reports = self._step(nodes, ("pair",), pairs, deadline_s)
        by_node = {r.node: r for r in reports}
        made = []
        for pair in pairs:
            heard = [by_node[node] for node in pair if node in by_node]
            outcomes = {r.outcome for r in heard}
            if records.Outcome.FAIL in outcomes:
                self._pair_row(
                    pair, records.Outcome.FAIL, next(r for r in heard if r.outcome is records.Outcome.FAIL)
                )
                made.append(isolation.PairResult(round_id=self._asked.round_id, pair=pair, passed=False))
            elif len(heard) == 2 and outcomes <= set(_REPORTED):
                slowest = max(heard, key=lambda r: r.measured or 0.0)
                self._pair_row(pair, records.Outcome.OK, slowest)
                made.append(
                    isolation.PairResult(
                        round_id=self._asked.round_id, pair=pair, passed=True, seconds=slowest.measured
                    )
                )
            else:
                # Neither end says that the other failed: nothing is known, and nobody is accused.
                case.void(pair)
                words = "; ".join(r.message for r in heard) or "neither node gave an answer"
                self._add(pair[0], "pair", records.Outcome.ERROR, peer=pair[1], message=words)
        return made

    def _time(self, case: isolation.Case) -> tuple[isolation.Pair, ...]:
        proven = case.outcome().proven
        timing = slowness.Timing(proven)
        while not self._cut and (pairs := timing.next_pairs()):
            self._c.announce(f"timing {len(pairs)} pair{'s' if len(pairs) > 1 else ''}")
            for result in self._pairs(case, pairs):
                if result.passed and result.seconds is not None:
                    timing.add(result.pair, result.seconds)
        nodes, links = timing.outcome()
        self._slow |= {node: "network" for node in nodes if node in self._asked.nodes}
        return tuple(link for link in links if set(link) & set(self._asked.nodes))

    def _together(self, case: isolation.Case) -> None:
        proven = [n for n in self._everyone if not case.results or n in case.proven]
        if "ring" in self._chosen and len(proven) > 2:
            self._group("ring", [tuple(proven)])
        leaves: dict[str, list[str]] = {}
        for node in proven:
            if node in self._asked.places:
                leaves.setdefault(self._asked.places[node], []).append(node)
        groups = [tuple(members) for members in leaves.values() if len(members) > 1]
        if "leaf" in self._chosen and groups:
            self._group("leaf", groups)

    def _group(self, name: str, groups: Sequence[tuple[str, ...]]) -> None:
        nodes = tuple(node for group in groups for node in group)
        self._c.announce(f"{name} over {len(nodes)} nodes")
        deadline_s = min(self._chosen[name].deadline_s, self._given.test_s) + 6
        self._keep(self._step(nodes, (name,), groups, deadline_s))

    def _step(
        self,
        nodes: Sequence[str],
        tests: tuple[str, ...],
        groups: Sequence[tuple[str, ...]],
        deadline_s: float,
        command: str = "",
    ) -> list[wire.Reported]:
        left = self._until - time.monotonic()
        self._n_steps += 1
        if self._c.stopped():
            self._cut = "it was cancelled"
        elif left < 1 or self._n_steps > _MOST_STEPS:
            self._cut = f"the round's {self._given.round_s:g} s were over"
        if self._cut:
            return []
        step = wire.Step(
            round_id=self._asked.round_id,
            token=self._token,
            tests=tests,
            groups=tuple(groups),
            # Every step has ports of its own: those of the one before may not be free yet.
            addresses=wire.addresses(
                {n: self._asked.hosts.get(n, n) for n in nodes},
                self._given.base_port,
                uuid.uuid5(self._asked.round_id, str(self._n_steps)),
            ),
            options=self._options(),
            test_s=self._given.test_s,
            command=command,
        )
        output = self._c.steps.step(
            self._asked.job_id,
            nodes,
            self._c.command,
            step.encode(),
            min(deadline_s, left),
        )
        return wire.parse(output, nodes, (*tests, worker.REPAIR))

    def _options(self) -> machine.Options:
        given = self._given
        return machine.Options(
            torch_python=given.torch_python,
            disk_directory=given.disk_directory,
            mounts=given.mounts,
            seed=self._asked.round_id.int % (1 << 31),
        )

    def _keep(self, reports: Iterable[wire.Reported]) -> None:
        for one in reports:
            self._add(
                one.node,
                one.test,
                one.outcome,
                device=one.device,
                measured=one.measured,
                unit=one.unit,
                message=one.message,
                duration_s=one.duration_s,
                version=f"{one.version} {one.detail.get('engine', '')}".strip(),
                model=str(one.detail.get("model", "")),
                detail=one.detail,
            )

    def _pair_row(self, pair: isolation.Pair, outcome: records.Outcome, one: wire.Reported) -> None:
        self._add(
            pair[0],
            "pair",
            outcome,
            peer=pair[1],
            measured=one.measured,
            unit=one.unit,
            message=one.message if outcome is records.Outcome.OK else f"{one.node}: {one.message}",
            duration_s=one.duration_s,
            version=f"{one.version} {one.detail.get('engine', '')}".strip(),
            detail=one.detail,
        )

    def _add(self, node: str, test: str, outcome: records.Outcome, *, peer: str = "", **more: object) -> None:
        position = "\0".join(
            (str(self._asked.round_id), test, node, peer, str(more.get("device")), str(self._n_steps))
        )
        result_id = uuid.UUID(bytes=hashlib.blake2b(position.encode(), digest_size=16).digest())
        self._results[result_id] = records.DiagnosticResult(
            result_id=result_id,
            cluster=self._c.config.cluster.name,
            round_id=self._asked.round_id,
            node=node,
            peer=peer,
            test=test,
            outcome=outcome,
            job_id=self._asked.job_id,
            incident_id=self._asked.incident_id,
            at=self._c.now(),
            **more,  # type: ignore[arg-type]
        )

    def _compare(self) -> None:
        """Figures against the past, and compute between the nodes of this round."""
        for result in list(self._results.values()):
            test = self._chosen.get(result.test)
            if (
                test is None
                or test.scope != "node"
                or result.measured is None
                or result.outcome is not records.Outcome.OK
            ):
                continue
            alike = [h for h in self._history if _alike(h, result)]
            own = [h.measured for h in alike if h.node == result.node and h.measured is not None]
            others = [h.measured for h in alike if h.node != result.node and h.measured is not None]
            held = baseline.hold(result.measured, own, others, lower_is_better=test.lower_is_better)
            words = (
                f"{result.message}; slower than this {held.against}'s {held.baseline:.4g}"
                if held.slow
                else result.message
            )
            self._results[result.result_id] = dataclasses.replace(
                result,
                outcome=records.Outcome.WARN if held.slow else result.outcome,
                baseline=held.baseline,
                threshold=held.threshold,
                message=words,
            )
            if held.slow and result.node in self._asked.nodes:
                self._slow.setdefault(result.node, result.test)
        self._compare_compute()

    def _compare_compute(self) -> None:
        for test in (t for t in self._chosen.values() if t.judged == "compute"):
            figures: dict[tuple[str, str], dict[str, float]] = {}
            for result in self._results.values():
                if result.test == test.name and result.measured is not None:
                    part = "gpu" if (result.device or "").startswith("gpu") else str(result.device)
                    values = figures.setdefault((part, result.model), {})
                    values[result.node] = max(values.get(result.node, 0.0), result.measured)
            for values in figures.values():
                for node in slowness.slow(values) & set(self._asked.nodes):
                    self._slow[node] = "compute"


def _alike(past: records.DiagnosticResult, result: records.DiagnosticResult) -> bool:
    """Whether two figures may be compared: one test, one kind of part, one version of what measured it."""
    return (
        past.round_id != result.round_id
        and past.test == result.test
        and past.model == result.model
        and past.version == result.version
        and past.unit == result.unit
        and (past.device or "").rstrip("0123456789") == (result.device or "").rstrip("0123456789")
        and past.outcome is records.Outcome.OK
    )


def _names(pairs: Sequence[isolation.Pair]) -> str:
    shown = " ".join(f"{a}-{b}" for a, b in pairs[:8])
    return f"{shown} …" if len(pairs) > 8 else shown


def against(found: Found, node: str) -> list[str]:
    """Why the node must not return, in words; empty when every test that ran passed."""
    words = [
        f"{r.test}{f' on {r.device}' if r.device else ''}: {r.message}"
        for r in found.results
        if r.node == node and not r.peer and r.outcome is records.Outcome.FAIL
    ]
    if node in found.bad_nodes:
        words.append("pair: it fails with every node that is proven good")
    if node in found.open_nodes:
        words.append(f"pair: it fails, and nobody can tell whose fault it is ({found.why})")
    words += [f"pair: the link between {a} and {b} is bad" for a, b in found.bad_links if node in (a, b)]
    return words


def unanswered(found: Found, node: str) -> list[str]:
    """What kept the node from being judged: tests without an answer, or none that said it is well."""
    if found.cut:
        return [found.cut]
    mine = [r for r in found.results if r.node == node and not r.peer]
    words = [f"{r.test}: {r.message}" for r in mine if r.outcome is records.Outcome.ERROR]
    if not words and not any(r.outcome in _REPORTED for r in mine if r.test != worker.REPAIR):
        words.append("no test ran")
    return words
