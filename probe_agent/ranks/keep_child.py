"""Keeps what the processes of an ended job left in its page directory: their own tables and the last steps and collectives.

A process of its own that becomes the job's owner before it opens anything, reads as page_child does, and writes one file into
the owner's history directory, with the owner's rights and quota. There it also removes what is too old or too much. One JSON request on
standard input, one JSON answer on standard output: `{"kept": bytes, "tables": n, "left_out": n, "removed": n}` or `{"refused": why}`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.core import errors
from probing_cluster.evidence import kept_file
from probing_cluster.probe_agent import bandwidth
from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.ranks import page_child, pages, ring

SUFFIX = ".kept"
PLACE = ("node", "rank", "pid", "at")
_MEMORY_BYTES = 1024 * 1024 * 1024
_CPU_S = 60
_MAX_JOBS = 100_000
_NAME = re.compile(r"[^/]*-[0-9]{1,20}-[0-9]{1,10}")
"""A directory of an attempt: cluster, job id, restarts before it."""


def tables(directory: str, uid: int, node: str) -> list[kept_file.KeptTable]:
    """The tables of a job on this node, the program's own first; raises OSError where the directory cannot be read."""
    return [*_own(directory, uid, node), *_of_pages(directory, uid, node)]


def _own(directory: str, uid: int, node: str) -> Iterator[kept_file.KeptTable]:
    by_name: dict[str, list[ring.RingTable]] = {}
    for table in ring.read_rings(directory, uid).tables:
        by_name.setdefault(table.name, []).append(table)
    for name, found in by_name.items():
        kinds: dict[str, kept_file.Kind] = {}
        for column in (c for table in found for c in table.columns):
            own = _own_name(column.name)
            kind: kept_file.Kind = next(k for k in kept_file.KINDS if k == column.type)
            # Processes that disagree about a column's type: as text it holds what each has.
            kinds[own] = kind if kinds.get(own, kind) == kind else "text"
        values: dict[str, list[Any]] = {n: [] for n in (*PLACE, *kinds)}
        for table in found:
            n_rows = len(table.times_ns)
            own_values = {_own_name(c.name): c.values for c in table.columns}
            for column_name, kind in kinds.items():
                given = own_values.get(column_name, [None] * n_rows)
                values[column_name] += [_as(kind, value) for value in given]
            for place, value in (("node", node), ("rank", table.rank), ("pid", table.pid)):
                values[place] += [value] * n_rows
            values["at"] += table.times_ns
        note = {"dropped": sum(t.dropped for t in found), "unfit": sum(t.unfit for t in found)}
        made = _table("python", name, {**_PLACE_KINDS, **kinds}, values, note)
        yield _traced(made) if name in ring.TRACED else made


def _traced(found: kept_file.KeptTable) -> kept_file.KeptTable:
    """A ring of the probe's tracer as the table of torch's that it is while the job runs."""
    name = ring.TRACED[found.name]
    columns = {c.name: c for c in found.columns}
    if name == "transfers" and set(columns) >= _RECORDED:
        rows = [
            dict(zip(columns, row, strict=True))
            for row in zip(*(c.values for c in columns.values()), strict=True)
        ]
        renamed = {"role": ("group_role", "text"), "begin_ns": ("begin_at", "time")}
        for old, (new, kind) in renamed.items():
            columns[new] = kept_file.KeptColumn(name=new, kind=kind, values=columns.pop(old).values)  # type: ignore[arg-type]
        speed = [bandwidth.of_recorded(row) for row in rows]
        columns["bus_bytes_per_s"] = kept_file.KeptColumn(name="bus_bytes_per_s", kind="float", values=speed)
        columns["timed_by"] = kept_file.KeptColumn(name="timed_by", kind="text", values=["gpu"] * len(rows))
    return kept_file.KeptTable(schema="torch", name=name, columns=tuple(columns.values()), note=found.note)


_RECORDED = {"role", "begin_ns", "bytes", "transfer_s", "group_size", "op"}


_PLACE_KINDS: dict[str, kept_file.Kind] = {"node": "text", "rank": "int", "pid": "int", "at": "time"}


def _own_name(name: str) -> str:
    """A column of the program's that is called like one of ours gets an underscore, as in `probing-ctl sql`."""
    return f"{name}_" if name in PLACE else name


def _as(kind: kept_file.Kind, value: Any) -> Any:
    return str(value) if kind == "text" and value is not None and not isinstance(value, str) else value


_STEPS: dict[str, kept_file.Kind] = {
    "step": "int",
    "end_at": "time",
    "duration_s": "float",
    "input_s": "float",
    "collective_s": "float",
    "backward_s": "float",
    "checkpoint_s": "float",
}
_COLLECTIVES: dict[str, kept_file.Kind] = {
    "group": "text",
    "group_role": "text",
    "seq": "int",
    "op": "text",
    "group_size": "int",
    "numel": "int",
    "dtype": "text",
    "bytes": "int",
    "enter_at": "time",
    "duration_s": "float",
    "bus_bytes_per_s": "float",
    "done": "bool",
    "async": "bool",
    "point_to_point": "bool",
    "raised": "bool",
}


def _of_pages(directory: str, uid: int, node: str) -> Iterator[kept_file.KeptTable]:
    found = []
    for raw in page_child.read_pages(directory, uid)["pages"].values():
        with contextlib.suppress(errors.MalformedInput):
            found.append(pages.parse(bytes.fromhex(raw)))
    now_ns = time.time_ns()
    for name, kinds, rows_of in (("steps", _STEPS, _steps), ("collectives", _COLLECTIVES, _collectives)):
        values: dict[str, list[Any]] = {n: [] for n in (*PLACE, *kinds)}
        for page in found:
            for row in rows_of(page):
                place = {"node": node, "rank": page.rank, "pid": page.pid, "at": now_ns}
                for column, value in {**place, **row}.items():
                    values[column].append(value)
        if values["node"]:
            yield _table("torch", name, {**_PLACE_KINDS, **kinds}, values, {})


def _steps(page: pages.ProbePage) -> Iterator[Mapping[str, Any]]:
    before: pages.PageStep | None = None
    for step in page.recent_steps:
        follows = before is not None and before.step + 1 == step.step
        yield {
            "step": _int64(step.step),
            "end_at": _at(page, step.end_ns),
            "duration_s": (step.end_ns - before.end_ns) / 1e9 if follows and before is not None else None,
            "input_s": step.input_ns / 1e9,
            "collective_s": step.collective_ns / 1e9,
            "backward_s": step.backward_ns / 1e9,
            "checkpoint_s": step.checkpoint_ns / 1e9,
        }
        before = step


def _collectives(page: pages.ProbePage) -> Iterator[Mapping[str, Any]]:
    for call in page.recent_collectives:
        left = call.leave_ns
        yield {
            "group": call.group,
            "group_role": call.role or None,
            "seq": _int64(call.seq),
            "op": call.op,
            "group_size": call.group_size or None,
            "numel": _int64(call.numel),
            "dtype": bandwidth.dtype_of(call),
            "bytes": _int64(bandwidth.bytes_of(call) or 0) or None,
            "enter_at": _at(page, call.enter_ns),
            "duration_s": None if left is None else (left - call.enter_ns) / 1e9,
            "bus_bytes_per_s": bandwidth.of_call(call, page.backend),
            "done": left is not None,
            "async": call.is_async,
            "point_to_point": call.is_p2p,
            "raised": call.raised,
        }


def _at(page: pages.ProbePage, monotonic_ns: int) -> int | None:
    return _int64(page.realtime_ns + monotonic_ns - page.monotonic_ns)


def _int64(value: int) -> int | None:
    return value if -(1 << 63) <= value < 1 << 63 else None


def _table(
    schema: str,
    name: str,
    kinds: Mapping[str, kept_file.Kind],
    values: Mapping[str, Sequence[Any]],
    note: Mapping[str, int],
) -> kept_file.KeptTable:
    columns = tuple(kept_file.KeptColumn(name=n, kind=kind, values=values[n]) for n, kind in kinds.items())
    return kept_file.KeptTable(schema=schema, name=name, columns=columns, note=note)


def keep(request: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the node's file of one attempt, and prunes; the answer."""
    found = tables(request["directory"], request["uid"], request["node"])
    if not any(table.n_rows for table in found):
        return {"kept": 0, "tables": 0, "left_out": 0, "removed": 0}
    data, left_out = kept_file.write(found, request["most_bytes"])
    base = Path(request["history"])
    _make_own(base, request["uid"])
    removed = prune(base, days=request["days"], most_bytes=request["most_bytes_in_all"])
    home = base / request["attempt"]
    _make_own(home, request["uid"])
    fresh = home / f".{request['node']}.{os.getpid()}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as handle:
            handle.write(data)
        fresh.rename(home / f"{request['node']}{SUFFIX}")
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return {"kept": len(data), "tables": len(found) - left_out, "left_out": left_out, "removed": removed}


def of_user(pattern: str, uid: int) -> str:
    """The history directory of one user: %u is the name, %h the home; raises Refused for a user without."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError as exc:
        raise collect_child.Refused(f"uid {uid} has no account on this node") from exc
    if "/" in user.pw_name or user.pw_name in (".", "..") or not user.pw_dir.startswith("/"):
        raise collect_child.Refused(f"uid {uid} has an odd name or home")
    return pattern.replace("%u", user.pw_name).replace("%h", user.pw_dir)


def _make_own(directory: Path, uid: int) -> None:
    """Makes it where it is not there; raises Refused where it is another's, OSError where it cannot be made."""
    failed = None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        failed = exc
    # Somebody else's directory in the place of ours would hand them the rows.
    if why := kept_file.why_not_own(directory, uid):
        raise collect_child.Refused(why)
    if failed is not None:
        raise failed


def prune(base: Path, *, days: float, most_bytes: int) -> int:
    """Removes attempts older than `days`, then the oldest until the rest is at most `most_bytes`; how many.

    Several nodes may do so at once: what another has removed is gone, which is what was wanted.
    """
    sizes = []
    with os.scandir(base) as entries:
        for entry, _ in zip(entries, range(_MAX_JOBS), strict=False):
            if entry.is_dir(follow_symlinks=False) and _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    sizes.append(
                        (entry.stat(follow_symlinks=False).st_mtime, _size(Path(entry.path)), entry.path)
                    )
    sizes.sort(reverse=True)
    oldest_s, total, removed = time.time() - days * 86400, 0, 0
    for at_s, size, path in sizes:
        total += size
        if at_s < oldest_s or total > most_bytes:
            total -= size
            removed += _remove(Path(path))
    return removed


def _size(attempt: Path) -> int:
    return sum(path.lstat().st_size for path in attempt.iterdir())


def _remove(attempt: Path) -> int:
    try:
        for path in attempt.iterdir():
            path.unlink(missing_ok=True)
        attempt.rmdir()
    except OSError:
        return 0
    return 1


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What was kept, as the job's user."""
    request["history"] = of_user(request["history"], request["uid"])
    collect_child.become(request["uid"], request["gid"])
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_FSIZE, 2 * request["most_bytes"] + (1 << 20)),
    ):
        resource.setrlimit(which, (most, most))
    os.umask(0o077)
    return keep(request)


if __name__ == "__main__":
    sys.exit(collect_child.serve(answer))
