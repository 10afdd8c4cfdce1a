"""The fleet's figures as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from probing_cluster.core import vocabulary
from probing_cluster.reports import phrase
from probing_cluster.reports.fleet import amounts, column_heads, failure_words, left_out

Figure = Mapping[str, Any]
"""One figure as `probing-ctl fleet --json` prints it."""


def sentences(name: str, figure: Figure) -> list[str]:
    """The figure in sentences, one thought each; an empty figure gives a sentence, too."""
    return [*_SENTENCES[name](figure), *left_out.sentences(figure)] if name in _SENTENCES else []


def begin(figures: Mapping[str, Figure]) -> str:
    """A sentence on a span that begins before the first start on record; empty for others."""
    cut = next((f for f in figures.values() if f.get("requested_since")), None)
    if cut is None:
        return ""
    first, requested = (str(cut[key])[:16].replace("T", " ") for key in ("since", "requested_since"))
    return (
        f"Nothing is on record before {first} UTC: the figures of attempts begin there, not at {requested}."
    )


def is_of_the_cluster(name: str, figure: Figure) -> bool:
    """False for figures that rest on the default failure rate; only the expected ETTR shows that there is no other yet."""
    return name == "expected-ettr" or figure.get("rate_is_own") is not False


percent, _amount, _gpus, _node_days, FEW = (
    amounts.percent,
    amounts.amount,
    amounts.gpus,
    amounts.node_days,
    amounts.FEW,
)

_MOST_STATES = 5


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else percent(value)


def _jobs(n: int, word: str = "attempt") -> str:
    return vocabulary.plural(n, word)


def _states(figure: Figure) -> list[str]:
    if not figure["n_attempts"]:
        return ["No attempt ended in this span."]
    by_size = sorted(figure["states"], key=lambda s: -s["n_attempts"])
    # One state more is named rather than counted as another: it is no longer.
    shown = len(by_size) if len(by_size) == _MOST_STATES + 1 else _MOST_STATES
    rest = sum(s["n_attempts"] for s in by_size[shown:])
    listed = ", ".join(f"{s['n_attempts']:,} {s['state']}" for s in by_size[:shown])
    listed += f", {rest:,} in other states" if rest else ""
    after = "" if figure["gpu_h"] is None else f", after {_amount(figure['gpu_h'])} GPU hours"
    made = [f"{_jobs(figure['n_attempts'])} ended{after}: {listed}."]
    if (unknown := figure.get("n_unknown_gpus")) == figure["n_attempts"]:
        made.append("Accounting does not record their GPUs, so GPU hours are not known.")
    elif unknown:
        made.append(f"Of {_jobs(unknown)} the GPUs are not recorded: they are not in the GPU hours.")
    if figure["n_attempts"] < FEW:
        made.append("Too few for shares.")
    elif figure["infrastructure_attempts_frac"] is not None:
        share, of_time = (figure[f"infrastructure_{key}_frac"] for key in ("attempts", "gpu_time"))
        also = "" if of_time is None else f", with {_share(of_time)} of the GPU time"
        made.append(f"Infrastructure ended {_share(share)} of them{also}.")
    return made


def _sizes(figure: Figure) -> list[str]:
    if not figure["sizes"]:
        return ["No attempt of known size ran in this span."]
    top = max(figure["sizes"], key=lambda s: s["gpu_h"] or 0.0)
    if figure["n_unknown_gpus"] == sum(s["n_attempts"] for s in figure["sizes"]):
        return ["Job sizes are not known: accounting records no attempt's GPUs."]
    made = ["No attempt on record held a GPU."]
    if top["gpu_h"]:
        n, gpu_h = (sum(size[key] or 0 for size in figure["sizes"]) for key in ("n_attempts", "gpu_h"))
        made = [
            f"Of {_amount(gpu_h)} GPU hours of {_jobs(n)}, those that still run as well, most went to jobs of {_gpus(top['n_gpus'])}: {_share(top['gpu_time_frac'])}."
        ]
    if figure["n_unknown_gpus"]:
        made.append(f"Of {_jobs(figure['n_unknown_gpus'])} the number of GPUs is not known.")
    return made


def _ettr(figure: Figure) -> list[str]:
    n, n_unknown = figure["n_with_gpus"], figure["n_unknown_gpus"]
    if figure["ettr"] is None and n_unknown:
        return [f"ETTR is not known: the GPUs of {_jobs(n_unknown, 'run')} with an account are not recorded."]
    if figure["ettr"] is None and figure["n_runs"]:
        return [f"There is no ETTR: none of {_jobs(figure['n_runs'], 'run')} with an account held a GPU."]
    if figure["ettr"] is None:
        return ["No run has an account yet: ETTR is not known."]
    if n < FEW:
        return [
            f"{_jobs(n, 'run')} with GPUs and an account: too few for an ETTR of the fleet (each has its own in its report)."
        ]
    measured_frac = figure["measured_frac"]
    assumed = (
        ""
        if measured_frac == 1
        else f" (checkpoints and start-up seen in {_share(measured_frac)} of runs, else assumed as if each had trained)"
    )
    return [
        f"ETTR of {_jobs(n, 'run')} with GPUs: {_share(figure['ettr'])} of their time was productive{assumed}."
    ]


def _expected(figure: Figure) -> list[str]:
    if not figure["sizes"]:
        return []
    last = figure["sizes"][-1]
    size = f"of {_gpus(last['n_gpus'])}"
    if not figure["rate_is_own"]:
        often = f"{_node_days(1 / figure['failures_per_node_day'])}"
        return [
            (
                "The expected ETTR is not known: infrastructure has not yet ended any of the large jobs from which the failure rate is measured."
                f" (With one failure in {often}, the default, a job {size} would have {_share(last['renewal'])}.)"
            )
        ]
    if figure.get("rate_is_bound"):
        often = _node_days(1 / figure["failures_per_node_day"])
        return [
            f"Infrastructure has ended no large job yet. If one failure came in {often}, the most that fits, a job {size} would have an ETTR of {_share(last['renewal'])}: it is at least that."
        ]
    best = (
        f"; at best {_share(last['renewal_at_best'])}, with a checkpoint every {phrase.span(last['best_interval_s'])}"
        if last["best_interval_s"] is not None
        else "; the best checkpoint interval is not known without what one takes to write (--set write_s=…)"
    )
    return [
        f"By this cluster's own failure rate a job {size} has an ETTR of {_share(last['renewal'])}{best}."
    ]


def _by_size(figure: Figure) -> list[str]:
    if not figure["sizes"]:
        return [f"No run has trained for {figure['least_hours']:g} h yet."]
    last = figure["sizes"][-1]
    if last["n_runs"] < FEW:
        few = f"{_jobs(last['n_runs'], 'run')} of up to {_gpus(last['n_gpus'])}"
        return [f"{few} trained for {figure['least_hours']:g} h or more: too few for an ETTR by size."]
    expected = "" if last["expected"] is None else f", {_share(last['expected'])} expected"
    return [
        f"ETTR of {_jobs(last['n_runs'], 'run')} of up to {_gpus(last['n_gpus'])}: {_share(last['measured'])} measured{expected}."
    ]


def _grid(figure: Figure) -> list[str]:
    low, high = (f(c["ettr"] for c in figure["cells"]) for f in (min, max))
    least, most = (f(c["rate_factor"] for c in figure["cells"]) for f in (min, max))
    return [
        (
            f"With {least:g} to {most:g} times {_which(figure)}, and other checkpoints and restarts, the ETTR"
            f" of a job of {_gpus(figure['n_gpus'])} would lie between {_share(low)} and {_share(high)}."
        )
    ]


def _coverage(figure: Figure) -> list[str]:
    n, n_detected = (sum(c[k] for c in figure["causes"]) for k in ("n_attempts", "n_by_check"))
    if not (figure["checks"] or n_detected or figure.get("n_good_with_failed_check")):
        return ["The coverage of checks is not known: no check result is on record."]
    words = [f"A check saw {n_detected} of {_jobs(n)} that infrastructure ended."] if n else []
    if figure["good_with_failed_check_frac"] is not None:
        words.append(
            f"{_share(figure['good_with_failed_check_frac'])} of good jobs ran while a check failed on their nodes."
        )
    if figure["checks"]:
        idle = sum(not c["n_failed"] for c in figure["checks"])
        words.append(f"{idle} of {_jobs(len(figure['checks']), 'check')} found nothing.")
    return words


def _use(figure: Figure) -> list[str]:
    unknown = figure.get("n_unknown_gpus")
    if figure["utilisation_frac"] is None and unknown:
        return [
            f"How much of the GPU time was used is not known: the GPUs of {_jobs(unknown)} are not recorded."
        ]
    if figure["utilisation_frac"] is None:
        return ["No attempt ran on any node: nothing was used."]
    used, good, free = (_share(figure[f"{key}_frac"]) for key in ("utilisation", "goodput", "fragmented"))
    nodes = "the only node" if figure["n_nodes"] == 1 else _jobs(figure["n_nodes"], "node")
    size = f"{nodes} of {_gpus(figure['gpus_per_node'])}"
    return [
        f"Of {size} {used} of the time was used, {good} used and not lost, {free} free in parts of nodes.",
        *(
            [
                "This is more than the capacity: jobs overlap on nodes, or nodes have more GPUs than were counted."
            ]
            if figure["utilisation_frac"] > 1
            else []
        ),
        *([f"What {_jobs(unknown)} used is not among it: no GPUs are recorded there."] if unknown else []),
    ]


def _signals(figure: Figure) -> list[str]:
    if not figure["signals"]:
        return ["No day of this span has lemon scores."]
    known = [s for s in figure["signals"] if s["separation_frac"] is not None]
    if not known:
        return [f"On {figure['day'][:10]} no node was a lemon, or every one."]
    best, least = (pick(known, key=lambda s: s["separation_frac"]) for pick in (max, min))
    often = f"higher on a lemon than on another node in {_share(best['separation_frac'])} of pairs"
    return [
        f"On {figure['day'][:10]} {_jobs(best['n_lemons'], 'lemon')} of {_jobs(best['n_nodes'], 'node')}.",
        f"Best signal: {column_heads.head(best['signal'])} ({often}); least: {column_heads.head(least['signal'])} ({_share(least['separation_frac'])}).",
    ]


def _departures(figure: Figure) -> list[str]:
    size = f"jobs of {_gpus(figure['min_gpus'])} or more"
    if not figure["departures"]:
        return [f"No lemon left service in this span; {size} cannot be compared."]
    n = len(figure["departures"])
    shares = [f"{p['phase']} {_share(p['failed_frac'])} of {p['n_attempts']:,}" for p in figure["phases"]]
    return [f"{_jobs(n, 'lemon')} left service. Of {size} infrastructure ended: {', '.join(shares)}."]


def _swaps(figure: Figure) -> list[str]:
    unclear = (
        [
            f"{_jobs(figure['n_unclear'], 'node')} had too few jobs to tell a swap from a card that nobody was given."
        ]
        if figure["n_unclear"]
        else []
    )
    if not figure["n_watched"]:
        return unclear or ["Swaps cannot be counted: no node has a record of the GPUs that its jobs held."]
    some = f"of {_jobs(figure['n_watched'], 'node')} in {_node_days(figure['node_days'])}"
    if not figure["n_swaps"]:
        return [f"No GPU {some} was swapped.", *unclear]
    often = f"one in {_node_days(1 / figure['per_node_day'])}" if figure["per_node_day"] else "in no time"
    worst = figure["nodes"][0]
    return [
        f"{_jobs(figure['n_swaps'], 'GPU')} {some} replaced others ({often}), most on {worst['node']}: {worst['n_swaps']}.",
        *unclear,
    ]


def _what_if(figure: Figure) -> list[str]:
    if not figure["scenarios"]:
        return []
    today, best = figure["scenarios"][0], max(figure["scenarios"], key=lambda s: s["ettr"])
    if best["change"] < 0.0005:
        return [f"For {_gpus(figure['n_gpus'])} no other setting would gain 0.1 %."]
    gain = f"ETTR {_share(best['ettr'])} instead of {_share(today['ettr'])}"
    return [
        f"Against {_which(figure)} {best['name']} would gain a job of {_gpus(figure['n_gpus'])} most: {gain}."
    ]


def _which(figure: Figure) -> str:
    if figure.get("rate_is_bound"):
        return "the most failures that fit (none was seen)"
    return "the cluster's failures" if figure["rate_is_own"] else "the default rate's failures"


def _together(figure: Figure) -> list[str]:
    pairs = sorted(figure["pairs"], key=lambda p: -p["n"])
    if not pairs and figure.get("n_events") == 0:
        return ["Faults that come together are not known: no agent's event and no kernel log is on record."]
    if not pairs:
        return ["No two faults came together."]
    top = pairs[0]
    return [f"Most often together: {top['cause']} with {top['other']}, {_jobs(top['n'], 'time')}."]


def _tests(figure: Figure) -> list[str]:
    if not figure["nodes"]:
        return ["No node was tested."]
    n_tested = len(figure["nodes"])
    words = [f"{_jobs(n_tested, 'node')} {'was' if n_tested == 1 else 'were'} tested."]
    worse = [d for d in figure["drifts"] if d["worse"]]
    if worse:
        most = max(worse, key=lambda d: abs(d["change_frac"]))
        words.append(
            f"{most['node']} changed most: {most['test']} {abs(most['change_frac']):.1%} worse since {most['at'][:10]}."
        )
    return words


def _pace(figure: Figure) -> list[str]:
    if not figure["nodes"]:
        return ["No gang of three nodes or more reports its step times."]
    ratio, node, gang = max(
        (value, row["node"], key)
        for row in figure["nodes"]
        for key, value in row.items()
        if isinstance(value, float)
    )
    return [f"Slowest beside its gang: {node} in {gang}, {ratio - 1:.1%} above the median node's own time."]


def _storms(figure: Figure) -> list[str]:
    storms = figure["storms"]
    if not storms:
        return [f"No job was ended by infrastructure {figure['min_failures']} times or more."]
    worst = max(storms, key=lambda s: s["n_failures"])
    some = _jobs(len(storms), "job")
    return [
        f"{some} ended by infrastructure {figure['min_failures']} times or more; job {worst['job_id']} {_jobs(worst['n_failures'], 'time')}."
    ]


_SENTENCES: Mapping[str, Callable[[Figure], list[str]]] = {
    "state-breakdown": _states,
    "job-sizes": _sizes,
    "failure-rates": failure_words.rates,
    "failures-over-time": failure_words.over_time,
    "large-job-rate": failure_words.large,
    "mttf-by-size": failure_words.mttf,
    "goodput-loss": failure_words.goodput,
    "run-ettr": _ettr,
    "expected-ettr": _expected,
    "ettr-by-size": _by_size,
    "ettr-grid": _grid,
    "check-coverage": _coverage,
    "what-if": _what_if,
    "gpu-swaps": _swaps,
    "utilisation": _use,
    "lemon-signals": _signals,
    "lemon-departures": _departures,
    "cooccurrence": _together,
    "requeue-storms": _storms,
    "node-tests": _tests,
    "node-pace": _pace,
}
