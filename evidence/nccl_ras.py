"""Reading the status text of NCCL RAS (2.24 and later): which processes and ranks are dead, missing or apart.

Source: NCCL's src/ras/client_support.cc and the user guide's RAS chapter. The text is for people and varies
between releases, so only lines whose words have stood since 2.24 are read; everything else is passed over.
It comes from a port of the job's own processes, so it is untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_PROBLEMS = 64
MAX_RANKS = 64
"""Ranks and processes of one problem that are kept; RAS itself lists outliers only."""

_HEAD = re.compile(
    r"(?:#(?P<comm>\d+-\d+) \((?P<hash>[0-9a-f]{1,16})\) )?(?P<kind>INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)"
)
_PROCESS = re.compile(r"  Process (?P<pid>\d{1,18}) on node (?P<node>\S+) managing GPUs? (?P<gpus>\S+)")
_RANK = re.compile(
    r"  Rank (?P<rank>\d{1,18})(?P<words> (?:has|reported) .*?)? -- (?:GPU \S+ managed by process (?P<pid>\d{1,18}) on node (?P<node>\S+)"
    r"|\[process information not found\])"
)
_MISSING = re.compile(r"  The missing ranks?: (?P<ranks>[\d, ]+)")
_WORDS = re.compile(r"  (?P<words>\S.*)")
_VERSION = re.compile(r"NCCL version (?P<version>\S+)")


@dataclass(frozen=True, kw_only=True)
class RasProblem:
    """One thing RAS found wrong."""

    kind: str
    """dead, incomplete, error, mismatch or timeout."""
    communicator: str = ""
    """Group and number as RAS counts them, `0-0`; empty for a problem of the whole job."""
    ranks: tuple[int, ...] = ()
    """Ranks of that communicator, not of the job."""
    processes: tuple[tuple[str, int], ...] = ()
    """(node address, pid) of each process named."""
    words: str = ""
    """RAS's first line on it."""


@dataclass(frozen=True, kw_only=True)
class RasStatus:
    """The status that RAS reports for a job."""

    version: str
    problems: tuple[RasProblem, ...]

    @property
    def grave(self) -> tuple[RasProblem, ...]:
        """Dead, missing or failed; a mismatch of counts is normal while the job gets on."""
        return tuple(p for p in self.problems if p.kind in {"dead", "incomplete", "error"})


def parse(text: str) -> RasStatus | None:
    """The status in RAS's answer; None if the text is no such answer. Never raises."""
    if "Job summary" not in text and "Communicators..." not in text:
        return None
    found = _VERSION.search(text)
    problems = [p for _, p in zip(range(MAX_PROBLEMS), _problems(text.splitlines()), strict=False)]
    return RasStatus(version=found["version"][:40] if found else "", problems=tuple(problems))


def _problems(lines: Iterable[str]) -> Iterator[RasProblem]:
    head: re.Match[str] | None = None
    body: list[str] = []
    for line in (*lines, ""):
        started = _HEAD.fullmatch(line.rstrip())
        if started is None and head is not None and line.startswith("  "):
            body.append(line.rstrip())
            continue
        if head is not None:
            yield _problem(head, body)
        head, body = started, []


def _problem(head: re.Match[str], body: Iterable[str]) -> RasProblem:
    ranks: list[int] = []
    processes: list[tuple[str, int]] = []
    words = ""
    for line in body:
        if process := _PROCESS.fullmatch(line):
            processes.append((process["node"][:64], _pid(process["pid"])))
        elif rank := _RANK.fullmatch(line):
            ranks.append(_number(rank["rank"]))
            if rank["pid"]:
                processes.append((rank["node"][:64], _pid(rank["pid"])))
        elif missing := _MISSING.fullmatch(line):
            ranks += [_number(r) for r in missing["ranks"].replace(" ", "").split(",") if r]
        elif not words and (sentence := _WORDS.fullmatch(line)):
            words = sentence["words"][:200]
    return RasProblem(
        kind=head["kind"].lower(),
        communicator=head["comm"] or "",
        ranks=tuple(sorted(set(ranks))[:MAX_RANKS]),
        processes=tuple(dict.fromkeys(processes))[:MAX_RANKS],
        words=words,
    )


def _number(text: str) -> int:
    return min(int(text[:12]), 1 << 32)


def _pid(text: str) -> int:
    return min(int(text[:12]), 1 << 22)
