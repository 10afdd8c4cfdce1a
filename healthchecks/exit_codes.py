"""Exit codes of probing-check."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.core import records

OK, WARN, FAIL, ERROR, USAGE, CONFIG = 0, 1, 2, 3, 64, 78

EXIT_CODES = {
    OK: "every check run is ok or absent",
    WARN: "at least one warns, none fails, none is in error; genconf: something was left out",
    FAIL: "at least one fails",
    ERROR: "none fails, at least one could not be run or timed out",
    USAGE: "wrong arguments, or no check of that name",
    CONFIG: "a configuration or site file cannot be used",
}


def of(results: Iterable[records.CheckResult]) -> int:
    """The exit code for these results."""
    outcomes = {r.outcome for r in results}
    for outcome, code in (
        (records.Outcome.FAIL, FAIL),
        (records.Outcome.ERROR, ERROR),
        (records.Outcome.WARN, WARN),
    ):
        if outcome in outcomes:
            return code
    return OK
