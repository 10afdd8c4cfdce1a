"""Ranks and stacks for a terminal: 80 columns, ten thousand ranks in a handful of lines."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.attribution.gang import stacks
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import digits, hostlist, sanitize
from probing_cluster.reports import phrase

LEAST_WIDTH = 60
ONE_MOMENT = timedelta(seconds=10)
"""Stacks are taken within this after a finding, or it is of another moment."""
WAITS_S = 10.0
"""A rank that has been inside one collective for so long waits for one that is not, stalled by its own history or not."""
MAX_LINES = 400
"""Lines of a tree of stacks; the rest is counted."""
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3[^/]*/")


def ranks(document: Mapping[str, Any], *, width: int = 80, everyone: bool = False) -> str:
    """The ranks of a job: who is how far, doing what; alike ones in one line unless `everyone`."""
    rows = [rank_rows.from_json(document["job_id"], row) for row in document["ranks"]]
    lines = [_title(document, _of(len(rows), document["world_size"]))]
    lines += _findings(document["findings"], width)
    if not rows and document["ended"]:
        lines.append("the job has ended and kept no pages of its ranks")
    elif not rows:
        lines.append("no probe page has been seen: its ranks are not (yet) training with torch, or")
        lines.append("the probe is off (--probing=off, PYTHONPATH replaced, python -I; docs/probe.md)")
    else:
        lines += [_pace(rows), ""]
        lines += _each(rows) if everyone else _alike(rows)
    past = {r.node: r.beat_age_s for r in rows if r.silent}
    nothing = {**document, "silent_nodes": [n for n in document["silent_nodes"] if n not in past]}
    return "\n".join(_fit(line, width) for line in (*lines, *_past(past), *_silent(nothing))) + "\n"


def tree(document: Mapping[str, Any], *, width: int = 80) -> str:
    """The merged stacks of a job's ranks, outermost frame first; where ranks part, the larger group comes first."""
    width = max(width, LEAST_WIDTH)
    if document["at"] is None:
        ended = "the job has ended and kept no stacks of its ranks"
        why = ended if document["ended"] else "no stacks have been taken of it yet"
        return "\n".join((_title(document, ""), why, *_silent(document))) + "\n"
    taken = datetime.fromisoformat(document["at"])
    age_s = max(0.0, (datetime.fromisoformat(document["made_at"]) - taken).total_seconds())
    ranks_text = _of(document["n_ranks"], document["world_size"])
    lines = [_title(document, ranks_text), f"stacks of {phrase.stamp_z(taken)}, {phrase.span(age_s)} ago"]
    if document["finding"] is not None:
        lines += ["", *_finding_lines(document["finding"], taken, width)]
    drawn = list(_branch(document["tree"], "", width))
    lines += ["", *drawn[:MAX_LINES]]
    if len(drawn) > MAX_LINES:
        lines.append(f"and {len(drawn) - MAX_LINES} more lines (--json has all)")
    for why, which in document["without"].items():
        lines += _wrapped(f"no Python stack of {_few(which)}: {sanitize.clean(why, 200)}", width)
    for why, which in document.get("without_native", {}).items():
        lines += _wrapped(f"C functions of {_few(which)} not all seen: {sanitize.clean(why, 200)}", width)
    return "\n".join(_fit(line, width) for line in (*lines, *_silent(document))) + "\n"


def _title(document: Mapping[str, Any], ranks_text: str) -> str:
    name = sanitize.clean(document["name"], 40)
    return "  ".join(part for part in (f"Job {document['job']}", name, document["state"], ranks_text) if part)


def _of(n_ranks: int, world: int | None) -> str:
    plural = "" if n_ranks == 1 else "s"
    return (
        f"{n_ranks} of {world} ranks" if world is not None and world != n_ranks else f"{n_ranks} rank{plural}"
    )


def _silent(document: Mapping[str, Any]) -> list[str]:
    # Of an ended job no node has anything to report.
    nodes = [] if document["ended"] else document["silent_nodes"]
    return ["", f"nothing about this job came from {hostlist.compress(nodes)}"] if nodes else []


def _past(ages_s: Mapping[str, float]) -> list[str]:
    """Of which nodes the rows are old, by the last one heard."""
    if not ages_s:
        return []
    nodes = hostlist.compress(list(ages_s))
    return [
        "",
        f"{nodes} silent for {phrase.span(min(ages_s.values()))}: the ranks there are shown as they were",
    ]


def _findings(findings: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    lines: list[str] = []
    for found in findings:
        at = phrase.clock_z(datetime.fromisoformat(found["at"]))
        node = f"{found['node']}  " if found["node"] else ""
        lines += _wrapped(sanitize.clean(found["words"], 400), width, f"  {at}  {node}")
    return lines


def _finding_lines(finding: Mapping[str, Any], taken: datetime, width: int) -> list[str]:
    """The finding and its proof, with its time if that is another moment than the stacks'."""
    found_at = datetime.fromisoformat(finding["at"])
    then = f", as of {phrase.clock_z(found_at)}" if taken - found_at > ONE_MOMENT else ""
    where = f" ({_short(finding['where'], 60)})" if finding["where"] else ""
    sure = ", ".join(dict.fromkeys((finding["domain"].replace("_", " "), finding["confidence"])))
    lines = _wrapped(f"{sanitize.clean(finding['summary'], 400)}{where}: {sure}{then}", width)
    for proof in finding["proof"][:8]:
        lines += _wrapped(sanitize.clean(proof, 300), width, "  ")
    return lines


def _wrapped(text: str, width: int, lead: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    )


def _pace(rows: Sequence[rank_rows.RankNow]) -> str:
    windows = [r.window for r in rows if r.window is not None and r.alive]
    if not windows:
        return "no pace yet: it takes the first 16 steps"
    parts = (
        ("computing", [w.compute_s for w in windows]),
        ("waiting for others", [w.waiting_s for w in windows]),
        ("for input", [w.input_s for w in windows]),
        ("checkpoints", [w.checkpoint_s for w in windows]),
    )
    text = ", ".join(f"{name} {statistics.median(s):.3g}" for name, s in parts if statistics.median(s) > 0)
    return f"{statistics.median(w.total_s for w in windows):.3g} s a step: {text}"


_HEADS = ("RANKS", "NODES", "PHASE", "STEP", "SINCE", "ST", "INSIDE")


def _alike(rows: Sequence[rank_rows.RankNow]) -> list[str]:
    """One line per group of ranks that do the same, those in trouble first."""
    groups: dict[tuple[Any, ...], list[rank_rows.RankNow]] = {}
    for row in rows:
        groups.setdefault(_kind(row), []).append(row)
    cells = []
    for _, members in sorted(groups.items(), key=lambda item: (item[0][0], len(item[1]), item[0])):
        cells.append(
            (
                _few(stacks.ranges(m.rank for m in members if m.rank is not None) or _pids(members), 18),
                _few(hostlist.compress(list(dict.fromkeys(m.node for m in members))), 16),
                _phase(members[0]),
                _between([m.steps for m in members]),
                _since(members),
                members[0].state,
                _inside(members),
            )
        )
    return table.render(_HEADS, cells, right=frozenset({"STEP", "SINCE"})).splitlines()


def _kind(row: rank_rows.RankNow) -> tuple[Any, ...]:
    """What makes ranks alike; trouble sorts first."""
    trouble = 0 if not row.alive else 1 if row.stalled or row.state in {"T", "t", "D", "Z"} else 2
    # Of a gang that gets on, each rank is somewhere else at each moment: that says nothing, unless it stays there.
    inside = row.inside if row.stalled or (row.inside_s or 0.0) >= WAITS_S else ""
    return (trouble, row.silent, row.phase, row.stalled, row.state if trouble < 2 else "", inside)


def _phase(row: rank_rows.RankNow) -> str:
    if not row.alive:
        return "ended" if row.phase == "ended" else f"dead ({row.phase})"
    return f"stalled ({row.phase})" if row.stalled else row.phase


def _between(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}-{max(values)}"


def _since(members: Sequence[rank_rows.RankNow]) -> str:
    """How long ago the last step (or the phase) was, by the one that waits longest."""
    ages = [
        a + m.beat_age_s for m in members if (a := m.step_age_s if m.steps else m.phase_age_s) is not None
    ]
    return phrase.span(max(ages)) if ages else "-"


def _inside(members: Sequence[rank_rows.RankNow]) -> str:
    names = sorted({m.inside for m in members if m.inside})
    return names[0] if len(names) == 1 and all(m.inside for m in members) else ("" if not names else "…")


def _pids(members: Sequence[rank_rows.RankNow]) -> str:
    return ",".join(m.name for m in members)


_EACH = ("RANK", "NODE", "PID", "PHASE", "STEP", "SINCE", "ST", "OWN", "WAITS", "INSIDE")


def _each(rows: Sequence[rank_rows.RankNow]) -> list[str]:
    cells = [
        (
            r.name, r.node, r.pid, _phase(r), r.steps, _since([r]), r.state,
            "-" if r.window is None else f"{r.window.compute_s:.3g}",
            "-" if r.window is None else f"{r.window.waiting_s:.3g}",
            r.inside,
        )
        for r in rows
    ]  # fmt: skip
    return table.render(_EACH, cells, right=frozenset({"PID", "STEP", "SINCE", "OWN", "WAITS"})).splitlines()


def _branch(fork: Mapping[str, Any], lead: str, width: int) -> Iterator[str]:
    """A stretch of common frames, then each group of ranks that part from it."""
    for frame in fork["frames"]:
        yield f"{lead}{_short(frame, width - len(lead))}"
    forks = fork["forks"]
    for i, below in enumerate(forks):
        last = i == len(forks) - 1
        ours, deeper = ("└ ", "  ") if last else ("├ ", "│ ")
        yield f"{lead}{ours}{_ranks_words(below['ranks'])}"
        # Beyond half of the line the tree goes straight down: the ranks say who is meant.
        inner = lead + deeper if len(lead) < width // 2 else lead
        yield from _branch(below, inner, width)


def _ranks_words(which: str) -> str:
    return f"rank {which}" if digits.is_number(which) else f"ranks {_few(which)}"


def _few(which: str, room: int = 40) -> str:
    """A long list cut to what fits, and how many there are in all where they are ranks."""
    return which if len(which) <= room else f"{which[: room - 1].rpartition(',')[0] or which[: room - 1]}…"


def _short(frame: str, room: int) -> str:
    """`function  file:line` in `room` characters; installed files from their package on, long paths from the left."""
    frame = sanitize.clean(frame, 600)
    found = _FRAME.fullmatch(frame)
    if found is None:
        return frame[:room]
    path = _INSTALLED.sub("", found["file"])
    place = f"{path}:{found['line']}" if found["line"] else path
    function = found["function"]
    if function.startswith("[C"):
        mark, _, name = function.partition(" ")
        spare = max(room - len(mark) - len(place) - 3, 12)
        return f"{mark} {name if len(name) <= spare else '…' + name[1 - spare :]}  {place}"
    spare = room - len(function) - 2
    if len(place) > spare:
        place = f"…{place[-max(spare - 1, 12) :]}"
    return f"{function}  {place}"


def _fit(line: str, width: int) -> str:
    line = line.rstrip()
    return line if len(line) <= width else f"{line[: width - 1]}…"


def changes(lines: Iterable[str]) -> str:
    """What a screen shows on the next look: from its first line, nothing left of the last look."""
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"
