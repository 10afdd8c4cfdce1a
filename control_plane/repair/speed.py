"""Which nodes of a round are slow: held against their past, and against the other nodes of the same round."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from statistics import median

from probing_cluster.core import records
from probing_cluster.diagnostics import baseline, registry, slowness

COMPUTE = "compute"
"""What a node is slow by when it computes slower than the others of its round."""
_QUOTA_OF = "cpu quota"


class SpeedJudge:
    """Judges the figures of one round; it writes baselines and warnings into the round's own results."""

    def __init__(
        self,
        results: dict[uuid.UUID, records.DiagnosticResult],
        tests: Mapping[str, registry.Test],
        history: Sequence[records.DiagnosticResult],
    ) -> None:
        """`results` by their ids, which it changes; `tests` by name; `history`, earlier good results of any node."""
        self._results = results
        self._tests = tests
        self._history = history
        self.noise: list[str] = []
        """The speeds that the round was too noisy to judge, in words."""

    def judge(self, fresh: Sequence[uuid.UUID], *, note: bool = False) -> dict[tuple[str, str], str]:
        """(node, test) to compute, or to the test by which it is slower than its past, among one measurement's results."""
        results = [
            r
            for r in (self._results[i] for i in fresh)
            if r.measured is not None
            and r.outcome is records.Outcome.OK
            and r.test in self._tests
            and self._tests[r.test].scope == "node"
        ]
        found = {key: key[1] for key in self._slower_than_before(results)}
        return found | dict.fromkeys(self._slower_than_others(results, note=note), COMPUTE)

    def _slower_than_before(self, results: Sequence[records.DiagnosticResult]) -> set[tuple[str, str]]:
        """What is slower than its own or its model's past, and more so than the others of this round are than theirs."""
        ratios: dict[uuid.UUID, float] = {}
        slow = []
        for result in results:
            lower = self._tests[result.test].lower_is_better
            alike = [h for h in self._history if _alike(h, result)]
            own = [h.measured for h in alike if h.node == result.node and h.measured is not None]
            others = [h.measured for h in alike if h.node != result.node and h.measured is not None]
            held = baseline.hold(result.measured or 0.0, own, others, lower_is_better=lower)
            self._results[result.result_id] = dataclasses.replace(
                result, baseline=held.baseline, threshold=held.threshold
            )
            if held.baseline and result.measured:
                ratio = result.measured / held.baseline
                ratios[result.result_id] = ratio if lower else 1 / ratio
            slow += [result] if held.slow else []
        found = set()
        for one in slow:
            # Where the others are slower today by as much it is not this node: they share processors, a disk or a file server.
            beside = [
                ratios[r.result_id]
                for r in results
                if r.test == one.test and r.node != one.node and r.result_id in ratios
            ]
            if not beside or ratios[one.result_id] > (1 + baseline.FLOOR) * max(1.0, median(beside)):
                found.add((one.node, one.test))
        return found

    def _slower_than_others(
        self, results: Sequence[records.DiagnosticResult], *, note: bool
    ) -> set[tuple[str, str]]:
        """Compute between the nodes of this round."""
        found = set()
        figures: dict[tuple[str, str, str], dict[str, float]] = {}
        for result in results:
            if self._tests[result.test].judged == COMPUTE and result.measured is not None:
                part = "gpu" if (result.device or "").startswith("gpu") else str(result.device)
                values = figures.setdefault((result.test, part, result.model), {})
                values[result.node] = max(values.get(result.node, 0.0), result.measured)
                # A quota that held it back is known exactly, however noisy the products' own times are.
                longer = result.detail.get(registry.QUOTA, 1.0)
                if result.device == "cpu" and isinstance(longer, int | float):
                    figures.setdefault((result.test, _QUOTA_OF, result.model), {})[result.node] = longer
        for (test, part, _), values in figures.items():
            found |= {(node, test) for node in slowness.slow(values)}
            held = slowness.limit(values.values())
            if note and held is not None and part != _QUOTA_OF and (words := slowness.noise_of(held)):
                self.noise.append(f"{test} on {part}: {words}")
        return found

    def warn(self, node: str, test: str) -> None:
        for key, result in self._results.items():
            if (
                result.node == node
                and result.test == test
                and result.outcome is records.Outcome.OK
                and _worse(result)
            ):
                words = f"{result.message}; slower than the usual {result.baseline:.4g} {result.unit or ''}".rstrip()
                self._results[key] = dataclasses.replace(result, outcome=records.Outcome.WARN, message=words)


def _worse(result: records.DiagnosticResult) -> bool:
    """Whether a figure lies on the bad side of its threshold."""
    if result.threshold is None or result.baseline is None or result.measured is None:
        return False
    above = result.measured > result.threshold
    return above if result.threshold > result.baseline else result.measured < result.threshold


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
