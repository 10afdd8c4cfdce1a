"""The lines that Slurm and the shell write into a job's output when it is ended: they say that it ended, not why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SHELLS_CHILD = r"line \d{1,9}: {1,6}\d{1,10} "
"""Regular expression: how a shell begins its report that a signal ended a command of its script. bash pads the process's number to five
places; in a container it may have one digit."""
_NOISE = re.compile(
    r"\s*$"
    r"|(?:\d{1,6}: )?(?:slurmstepd(?:-[\w.-]{1,253})?|srun|slurmd): .{0,80}(?:CANCELLED AT|\*\*\* (?:JOB|STEP)|got SIGCONT|forcing job termination|Force Terminated|Job step aborted|Terminated)"
    rf"|(?:\S{{0,256}}: {SHELLS_CHILD})?Terminated\b"
)


def is_closing(line: str) -> bool:
    """Whether a line is blank or only reports that the job or a step was ended."""
    return _NOISE.match(line) is not None


_OF_SLURM = re.compile(r"(?:\d{1,6}: )?(?:slurmstepd(?:-[\w.-]{1,253})?|srun|slurmd|sbatch|salloc): ")
_CANCELLED = "CANCELLED AT"
_A_WORD = re.compile(r"[^\W\d_]{2}")


END_OF_NODE = re.compile(r"Node\.js v\d{1,3}\.\d{1,3}\.\d{1,3}\S{0,40}\s*$")
"""The last line of Node.js's report of an uncaught error; frames and fields of the error stand above it."""
CARET = re.compile(r"\s{0,4000}\^{1,4000}\s*$")
"""The line of carets below a line of source, which says where in it the error is."""
_LEFT_OUT = "…"


def last_of_program(lines: Sequence[str]) -> str:
    """The last line with a word in it that none of Slurm's own programs wrote; empty without one.

    Node.js ends its report of an uncaught error with frames, fields and its version: the line below the caret names the error.
    """
    own = [line for line in lines if not is_closing(line) and not _OF_SLURM.match(line)]
    last = next((i for i in reversed(range(len(own))) if _A_WORD.search(own[i])), None)
    if last is None:
        return ""
    if END_OF_NODE.match(own[last]):
        caret = next((i for i in reversed(range(last)) if CARET.match(own[i])), -1)
        below = range(caret + 1, last) if caret >= 0 else reversed(range(last))
        last = next((i for i in below if _A_WORD.search(own[i])), last)
    return own[last].strip()


def last_lines(lines: Sequence[str], most: int, own: int) -> tuple[str, ...]:
    """The last `most` lines, among them the last `own` of the program's, each in its order; `…` stands for lines left out between.

    The lines may have been chosen so before: their own `…` are no lines.
    """
    there = [i for i, line in enumerate(lines) if line != _LEFT_OUT]
    kept = there[-most:] if most > 0 else []
    mine = [i for i in there if not is_closing(lines[i]) and not _OF_SLURM.match(lines[i])][-own:]
    above = [i for i in mine if kept and i < kept[0]]
    # As many of the others make room: closing lines first, and last of those what says why it was cancelled; of each sort the oldest.
    others = [i for i in kept if i not in mine]
    by_worth = sorted(
        others, key=lambda i: (not is_closing(lines[i]), _CANCELLED in lines[i], bool(lines[i].strip()))
    )
    spare = by_worth[: len(above)]
    shown = sorted({*above, *kept} - set(spare))
    rows: list[str] = []
    for at, i in enumerate(shown):
        left_out = any(lines[n].strip() for n in range(shown[at - 1] + 1, i)) if at else False
        marked = next((row for row in reversed(rows) if row.strip()), "") == _LEFT_OUT
        rows += [_LEFT_OUT, lines[i]] if left_out and not marked else [lines[i]]
    return tuple(rows)


_OF_ARRAY = re.compile(
    r" (?P<event>Ended|Failed), (?P<state>\w+)(?:, (?:Max)?(?:ExitCode|Signal) \[?\d+(?:-\d+)?\]?)?(?:, with requeued tasks)?$"
)
"""How Slurm's subject of an array's summary ends: `Failed, Mixed, ExitCode [0-3]`, `Ended, Mixed, MaxSignal [9]`."""


@dataclass(frozen=True, kw_only=True)
class ArrayEnding:
    """What Slurm's subject of an array's summary says of its tasks."""

    mixed: bool
    """They ended in several ways."""
    failed: bool
    """Not all ended well."""


def array_ending(subject: str) -> ArrayEnding | None:
    """How the subject of a mail says that an array ended; None for one that says nothing of it."""
    if (found := _OF_ARRAY.search(subject)) is None:
        return None
    mixed = found["state"].upper() == "MIXED"
    return ArrayEnding(mixed=mixed, failed=mixed or found["event"] == "Failed")
