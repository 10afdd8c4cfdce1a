"""The figures of failures, and of what they cost, as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import vocabulary
from probing_cluster.reports import phrase
from probing_cluster.reports.fleet import amounts

Figure = Mapping[str, Any]
"""One figure as `probing-ctl fleet --json` prints it."""


def rates(figure: Figure) -> list[str]:
    """Failures (incidents) by component, and how many attempts they ended if it is more."""
    parts = sorted(figure["components"], key=lambda c: -c["n_failures"])
    if not parts:
        if without := _without_gpus(figure):
            return [*without, "No failure of others was attributed to it."]
        return ["No failure was attributed to infrastructure."]
    listed = []
    for part in parts[:4]:
        rate = part["per_gpu_h"]
        few = part["n_failures"] < amounts.FEW
        often = "" if not rate else " (too few for a rate)" if few else f" ({amounts.one_per_gpu_h(rate)})"
        listed.append(f"{part['component']} {part['n_failures']}{often}")
    more = f", and {vocabulary.plural(len(parts) - 4, 'more component')}" if len(parts) > 4 else ""
    made = [f"Failures by component: {', '.join(listed)}{more}."]
    n_faults, n_ended = (sum(part.get(key, 0) for part in parts) for key in ("n_failures", "n_attempts"))
    if n_ended > n_faults:
        ended = vocabulary.plural(n_ended, "attempt")
        made.append(f"They ended {ended}: a fault counts once, however many it ends.")
    return [*made, *_without_gpus(figure)]


def _without_gpus(figure: Figure) -> list[str]:
    n = figure.get("n_attempts_without_gpus")
    if not n:
        return []
    which = f"{vocabulary.plural(n, 'attempt')} without GPUs, or whose GPUs are not recorded"
    return [f"Infrastructure ended {which}: {'it is' if n == 1 else 'they are'} not counted here."]


def over_time(figure: Figure) -> list[str]:
    """The period with most failures and the last one; checks that came into force meanwhile."""
    buckets = [(b, sum(b["failures"].values())) for b in figure["buckets"]]
    if not any(n for _, n in buckets):
        if buckets and not any(b.get("gpu_h", 1) for b, _ in buckets):
            return ["Failures over time are not known: no GPU hours are on record."]
        if figure.get("n_attempts_without_gpus"):
            return ["Infrastructure ended no attempt with GPUs in any period."]
        return ["No infrastructure failure in any period."]
    (worst, n), (_, latest) = max(buckets, key=lambda b: b[1]), buckets[-1]
    period = phrase.span(figure["bucket_s"])
    if len(buckets) == 1:
        one = f"{vocabulary.plural(n, 'failure')} in the one period of {period} with jobs, from {worst['at'][:10]}."
        return [one, *_began(figure)]
    most = f"at most {vocabulary.plural(n, 'failure')} (from {worst['at'][:10]})"
    return [f"In periods of {period}: {most}, in the last {latest:,}.", *_began(figure)]


def _began(figure: Figure) -> list[str]:
    if not figure["checks_began"]:
        return []
    n_began = vocabulary.plural(len(figure["checks_began"]), "check")
    return [
        f"{n_began} came into force in this span; from then on more failures may be seen, although no more happen."
    ]


def large(figure: Figure) -> list[str]:
    """r_f: how often a node fails in large jobs."""
    size = f"jobs of more than {amounts.gpus(figure['above_gpus'])}"
    if not figure["n_attempts"]:
        return [f"No {size} are on record; their failure rate is not known."]
    if not figure["n_failures"]:
        return [f"No failure in {amounts.node_days(figure['node_days'])} of {size}."]
    rate, low, high = (figure[key] for key in ("per_node_day", "low_per_node_day", "high_per_node_day"))
    between = f" (likely {amounts.amount(1 / high)} to {amounts.amount(1 / low)})" if low and high else ""
    often = f"In {size} one node fails every {amounts.node_days(1 / rate)}{between}"
    n_faults = vocabulary.plural(figure["n_failures"], "fault")
    return [f"{often}: {n_faults}, counted once however many jobs each ended."]


def mttf(figure: Figure) -> list[str]:
    """How long the largest jobs of which enough failed ran until then, and the projection to larger ones."""
    failed = [s for s in figure["sizes"] if s["measured"] and s["measured"].get("mttf_h")]
    measured = [s for s in failed if s["measured"]["n_incidents"] >= amounts.FEW]
    made = []
    if failed and not measured:
        made.append("Too few faults ended jobs of any size for a mean time to failure.")
    if measured:
        largest = measured[-1]
        hours = phrase.span(largest["measured"]["mttf_h"] * 3600)
        n_failed, n_faults = (largest["measured"][key] for key in ("n_failures", "n_incidents"))
        of = vocabulary.plural(n_failed, "attempt") + (
            f" that {vocabulary.plural(n_faults, 'fault')} ended" if n_faults < n_failed else ""
        )
        made.append(
            f"A job of {amounts.gpus(largest['n_gpus'])} ran {hours} on average until it failed ({of})."
        )
    projected = [s for s in figure["sizes"] if s["projected_h"]]
    if projected:
        last = projected[-1]
        run = phrase.span(last["projected_h"] * 3600)
        made.append(
            f"By the failure rate of large jobs, in which a fault counts once however many jobs it ends, one of {amounts.gpus(last['n_gpus'])} would run {run}."
        )
    return made or ["The mean time to failure is not known: no job of recorded size failed."]


def goodput(figure: Figure) -> list[str]:
    """GPU hours that infrastructure cost, of first and second order."""
    lost, more = figure["first_gpu_h"], figure["second_gpu_h"]
    without = _without_gpus(figure)
    if not lost and not more and without:
        return ["No GPU hours are known to be lost to infrastructure.", *without]
    if not lost and not more:
        return [
            "No GPU hours were lost to infrastructure; jobs that failed by themselves are not counted here."
        ]
    also = f", and {amounts.amount(more)} by jobs preempted for their return" if more else ""
    return [
        f"Jobs that infrastructure ended lost {amounts.amount(lost)} GPU hours{also} (of each at most its last 30 minutes, and the time it hung).",
        *without,
    ]
