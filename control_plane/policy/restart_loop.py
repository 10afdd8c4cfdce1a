"""Restart loops: a run whose starts die of the same thing at the same step is ended by its program, whatever the verdicts say."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import records, sanitize

STARTS = 3
"""This many deaths in a row that are alike make a loop."""
_NEAR = 1
"""Ranks count the step at which they end; they may differ by one."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@records.record
class Death:
    """The end of one start of a run."""

    cause: str = records.doc("cause of its verdict")
    step: int | None = records.doc("its last training step; null where the probe saw none", default=None)
    word: str = records.doc("the program's own error, as its log names it: KeyError", default="")


def loop(deaths: Sequence[Death]) -> str:
    """Words about the loop in which a run is, by its deaths with the newest last; empty when it is in none."""
    last = deaths[-1] if deaths else None
    if last is None or last.step is None:
        return ""
    alike = 0
    for death in reversed(deaths):
        if death.cause != last.cause or death.step is None or abs(death.step - last.step) > _NEAR:
            break
        if death.word != last.word:
            break
        alike += 1
    if alike < STARTS:
        return ""
    count = _NUMBERS[alike] if alike < len(_NUMBERS) else str(alike)
    what = sanitize.clean(last.word, 60) or last.cause.replace("_", " ")
    return f"{count} starts in a row died at step {last.step} with the same {what}: it is the program"
