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
from typing import Any, Protocol

from probing_cluster.control_plane.repair import round_findings, speed
from probing_cluster.core import records, settings, vocabulary
from probing_cluster.diagnostics import isolation, machine, registry, slowness, wire, worker

Announce = Callable[[str], None]
_MOST_STEPS = 200
_AGAIN = 2
"""How often what is slow is measured again before it is named."""
_OF_ALL = {"ring": 3, "torch-allreduce": 2}
"""Tests over all nodes that passed in pairs, and how many it takes."""


class Steps(Protocol):
    """The part of Slurm's job steps that a round needs; slurm_plugins.acts.job_steps is the real one."""

    def step(
        self, job_id: int, nodes: Sequence[str], command: str, stdin: bytes, deadline_s: float
    ) -> bytes: ...


@records.record
class RoundRequest:
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
    command: str = records.doc(
        "a repair step to run on the nodes under test first, never on the references", default=""
    )
    every_link: bool = records.doc("test every pair, so that every bad link is found", default=False)
    passes: int = records.doc("tests in pairs that prove a node well", default=isolation.TWICE)
    incident_id: uuid.UUID | None = records.doc("the repair it belongs to", default=None)


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

    def run(
        self, request: RoundRequest, history: Sequence[records.DiagnosticResult] = ()
    ) -> round_findings.Findings:
        """The whole round, within [diagnostics] round_s; figures are held against `history`, earlier good results."""
        return _Round(self, request, history).run()


class _Round:
    """One round on its way."""

    def __init__(
        self, campaign: Campaign, request: RoundRequest, history: Sequence[records.DiagnosticResult]
    ) -> None:
        self._c = campaign
        self._request = request
        self._given = campaign.config.diagnostics
        self._chosen = {test.name: test for test in registry.chosen(request.tests or self._given.tests)}
        self._token = wire.new_token()
        self._everyone = (*request.nodes, *request.references)
        self._until = time.monotonic() + self._given.round_s
        self._results: dict[uuid.UUID, records.DiagnosticResult] = {}
        self._slow: dict[str, str] = {}
        self._noise: list[str] = []
        self._speed = speed.SpeedJudge(self._results, self._chosen, history)
        self._cut = ""
        self._n_steps = 0

    def run(self) -> round_findings.Findings:
        single = tuple(name for name, test in self._chosen.items() if test.scope == "node")
        if single:
            self._alone(single)
        all_failed = round_findings.failed_alone(self._results.values()) >= set(self._request.nodes)
        case = isolation.IsolationCase(
            self._request.round_id,
            self._request.nodes,
            self._request.references,
            every_link=self._request.every_link,
            # Who has failed alone returns by no number of passes.
            passes=isolation.TWICE if all_failed else self._request.passes,
        )
        slow_links: tuple[isolation.Pair, ...] = ()
        in_pairs = "pair" in self._chosen and len(self._everyone) > 1
        if in_pairs:
            self._isolate(case)
            slow_links = self._time(case)
            # A pair that failed while it was timed failed a test like any other.
            self._isolate(case)
        self._together(case)
        self._compare()
        isolated = case.outcome() if in_pairs else None
        if isolated:
            self._conclude(isolated, slow_links)
        self._collect()
        return round_findings.Findings(
            results=tuple(self._results.values()),
            bad_nodes=isolated.bad_nodes if isolated else (),
            bad_links=isolated.bad_links if isolated else (),
            open_nodes=isolated.open_nodes if isolated else (),
            slow_nodes=dict(self._slow),
            slow_links=slow_links,
            noise=(*self._noise, *self._speed.noise),
            why=isolated.why if isolated else "",
            cut=self._cut,
        )

    def _alone(self, names: tuple[str, ...]) -> None:
        self._c.announce(f"{', '.join(names)} on {vocabulary.plural(len(self._everyone), 'node')}")
        deadline_s = sum(min(self._chosen[n].deadline_s, self._given.test_s) + 6 for n in names)
        if self._request.command:
            deadline_s += self._given.test_s
        reports = self._step(self._everyone, names, (), deadline_s, command=self._request.command)
        answered = {(r.node, r.test) for r in reports}
        self._keep(reports)
        for node in self._everyone:
            for name in names:
                if (node, name) not in answered:
                    self._lost(node, name)

    def _lost(self, node: str, test: str) -> None:
        message = self._cut or "the node gave no answer in time"
        self._add(node, test, records.Outcome.ERROR, message=message)

    def _isolate(self, case: isolation.IsolationCase) -> None:
        while not self._cut and (pairs := case.next_pairs()):
            self._c.announce(f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''}: {_names(pairs)}")
            case.add(self._pairs(case, pairs))

    def _pairs(
        self,
        case: isolation.IsolationCase,
        pairs: Sequence[isolation.Pair],
        options: machine.Options | None = None,
    ) -> list[isolation.PairResult]:
        nodes = tuple(node for pair in pairs for node in pair)
        deadline_s = min(self._chosen["pair"].deadline_s, self._given.test_s) + 6
        reports = self._step(nodes, ("pair",), pairs, deadline_s, options=options)
        by_node = {r.node: r for r in reports}
        made = []
        for pair in pairs:
            answers = [by_node[node] for node in pair if node in by_node]
            outcomes = {r.outcome for r in answers}
            # An end with a stranger on its port was not met: that the other says it failed proves nothing.
            met = all(registry.UNTESTED not in r.detail for r in answers)
            if met and records.Outcome.FAIL in outcomes:
                failing = next(r for r in answers if r.outcome is records.Outcome.FAIL)
                self._pair_row(pair, failing.outcome, failing)
                made.append(isolation.PairResult(round_id=self._request.round_id, pair=pair, passed=False))
            elif len(answers) == 2 and outcomes <= set(round_findings.REPORTED):
                slowest = max(answers, key=lambda r: r.measured or 0.0)
                self._pair_row(pair, records.Outcome.OK, slowest)
                made.append(
                    isolation.PairResult(
                        round_id=self._request.round_id, pair=pair, passed=True, seconds=slowest.measured
                    )
                )
            else:
                # Nothing is known, and nobody is accused.
                case.void(pair)
                words = "; ".join(r.message for r in answers) or "neither node gave an answer"
                self._add(pair[0], "pair", records.Outcome.ERROR, peer=pair[1], message=words)
        return made

    def _time(self, case: isolation.IsolationCase) -> tuple[isolation.Pair, ...]:
        """Large transfers suffer from lost packets, small ones from a delay; many small ones are the finer measure as well."""
        proven, large = case.outcome().proven, self._options()
        of_large = (min(times) for times in case.seconds.values())
        moved = slowness.small_bytes(large.bytes_moved, of_large)
        small = dataclasses.replace(large, bytes_moved=moved, repeats=slowness.SMALL_REPEATS)
        slow: set[isolation.Pair] = set()
        # Where a large one is short already, the small ones are it.
        sizes = {small.bytes_moved: ("small", small)}
        sizes.setdefault(large.bytes_moved, ("large", large))
        for kind, options in sizes.values():
            # Who is slow by one size needs no other.
            timing = slowness.Timing([n for n in proven if self._slow.get(n) != "network"])
            while not self._cut and (pairs := timing.next_pairs()):
                self._c.announce(f"timing {len(pairs)} pair{'s' if len(pairs) > 1 else ''}, {kind} transfers")
                case.add(results := self._pairs(case, pairs, options))
                for result in results:
                    if result.passed and result.seconds is not None:
                        timing.add(result.pair, result.seconds)
            nodes, links = timing.outcome()
            self._noise += [f"pair, {kind} transfers: {words}"] if (words := timing.noise()) else []
            self._slow |= {node: "network" for node in nodes if node in self._request.nodes}
            slow |= {link for link in links if set(link) & set(self._request.nodes)}
        return tuple(sorted(link for link in slow if not any(self._slow.get(n) == "network" for n in link)))

    def _collect(self) -> None:
        """For tickets: the parts, logs and the vendor's report of nodes that failed, while their job still runs."""
        failed = round_findings.failed_alone(self._results.values())
        nodes = [node for node in self._request.nodes if node in failed]
        names = tuple(name for name, test in self._chosen.items() if test.scope == "after")
        deadline_s = sum(min(self._chosen[n].deadline_s, self._given.test_s) + 6 for n in names)
        # What was found stands without it: a round is not cut short for what is only collected.
        if nodes and names and self._until - time.monotonic() > deadline_s and not self._c.stopped():
            self._c.announce(f"{', '.join(names)} of {' '.join(nodes)}, for a ticket")
            self._keep(self._step(nodes, names, (), deadline_s))

    def _conclude(self, isolated: isolation.Isolation, slow_links: Sequence[isolation.Pair]) -> None:
        """Adds a row for each node and link found at fault, so that the stored rows say it without the whole round."""
        self._n_steps += 1
        for node in isolated.bad_nodes:
            self._add(
                node,
                "pair",
                records.Outcome.FAIL,
                message=round_findings.AT_TIMES if node in isolated.unsteady else round_findings.ALONE,
                detail={"conclusion": "node"},
            )
        bad_words = "is bad, both nodes passed with others"
        for ends, outcome, words in (
            *((link, records.Outcome.FAIL, bad_words) for link in isolated.bad_links),
            *((link, records.Outcome.WARN, "is slow, both nodes are well") for link in slow_links),
        ):
            for node, peer in (ends, ends[::-1]):
                message = f"the link between {ends[0]} and {ends[1]} {words}"
                self._add(node, "pair", outcome, peer=peer, message=message, detail={"conclusion": "link"})
        for node, by in self._slow.items():
            if by == "network":
                message = "its links are slower than those of the others, with every partner"
                self._add(node, "pair", records.Outcome.WARN, message=message, detail={"conclusion": "slow"})

    def _together(self, case: isolation.IsolationCase) -> None:
        proven = [n for n in self._everyone if not case.answered or n in case.proven]
        for name, least in _OF_ALL.items():
            if name in self._chosen and len(proven) >= least:
                self._group(name, [tuple(proven)])
        leaves: dict[str, list[str]] = {}
        for node in proven:
            if node in self._request.places:
                leaves.setdefault(self._request.places[node], []).append(node)
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
        options: machine.Options | None = None,
    ) -> list[wire.Reported]:
        left = self._until - time.monotonic()
        self._n_steps += 1
        if self._c.stopped():
            self._cut = "it was cancelled"
        elif left < 1 or self._n_steps > _MOST_STEPS:
            self._cut = f"the round's {self._given.round_s:g} s were over"
        if self._cut:
            return []
        step = wire.WireStep(
            round_id=self._request.round_id,
            token=self._token,
            tests=tests,
            groups=tuple(groups),
            # Every step has ports of its own: those of the one before may not be free yet.
            addresses=wire.addresses(
                {n: self._request.hosts.get(n, n) for n in nodes},
                self._given.base_port,
                uuid.uuid5(self._request.round_id, str(self._n_steps)),
            ),
            options=options or self._options(),
            test_s=self._given.test_s,
            command=command,
            command_nodes=self._request.nodes,
        )
        output = self._c.steps.step(
            self._request.job_id,
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
            seed=self._request.round_id.int % (1 << 31),
        )

    def _keep(self, reports: Iterable[wire.Reported]) -> list[uuid.UUID]:
        """Their rows' ids."""
        return [self._keep_one(one) for one in reports]

    def _keep_one(self, one: wire.Reported, **changes: Any) -> uuid.UUID:
        given = {
            "node": one.node,
            "test": one.test,
            "outcome": one.outcome,
            "device": one.device,
            "measured": one.measured,
            "unit": one.unit,
            "message": one.message,
            "duration_s": one.duration_s,
            "version": f"{one.version} {one.detail.get('engine', '')}".strip(),
            "model": str(one.detail.get("model", "")),
            "detail": one.detail,
        }
        return self._add(**(given | changes))

    def _pair_row(self, pair: isolation.Pair, outcome: records.Outcome, one: wire.Reported) -> None:
        words = one.message if outcome is records.Outcome.OK else f"{one.node}: {one.message}"
        self._keep_one(one, node=pair[0], peer=pair[1], outcome=outcome, message=words)

    def _add(
        self, node: str, test: str, outcome: records.Outcome, *, peer: str = "", **more: object
    ) -> uuid.UUID:
        position = "\0".join(
            (str(self._request.round_id), test, node, peer, str(more.get("device")), str(self._n_steps))
        )
        result_id = uuid.UUID(bytes=hashlib.blake2b(position.encode(), digest_size=16).digest())
        self._results[result_id] = records.DiagnosticResult(
            result_id=result_id,
            cluster=self._c.config.cluster.name,
            round_id=self._request.round_id,
            node=node,
            peer=peer,
            test=test,
            outcome=outcome,
            job_id=self._request.job_id,
            incident_id=self._request.incident_id,
            at=self._c.now(),
            **more,  # type: ignore[arg-type]
        )
        return result_id

    def _compare(self) -> None:
        """Speed, against the past and between the nodes of this round; what stands out is measured again, and only what
        stands out each time is named: a neighbour that was busy for a moment makes no node slow."""
        names = [n for n, test in self._chosen.items() if test.scope == "node"]
        found = self._speed.judge(list(self._results), note=True)
        for _ in range(_AGAIN if found else 0):
            again = tuple(n for n in names if any(test == n for _, test in found))
            deadline_s = sum(min(self._chosen[n].deadline_s, self._given.test_s) + 6 for n in again)
            if not found or self._c.stopped() or self._until - time.monotonic() < deadline_s:
                found = {}
                break
            self._c.announce(
                f"{', '.join(again)} once more: {' '.join(sorted({n for n, _ in found}))} stood out"
            )
            fresh = self._keep(self._step(self._everyone, again, (), deadline_s))
            stands = self._speed.judge(fresh)
            found = {key: word for key, word in found.items() if key in stands}
        for (node, test), word in found.items():
            if word != speed.COMPUTE:
                self._speed.warn(node, test)
            if node in self._request.nodes:
                self._slow[node] = (
                    speed.COMPUTE
                    if speed.COMPUTE in (word, self._slow.get(node))
                    else self._slow.get(node, word)
                )


def _names(pairs: Sequence[isolation.Pair]) -> str:
    shown = " ".join(f"{a}-{b}" for a, b in pairs[:8])
    return f"{shown} …" if len(pairs) > 8 else shown
