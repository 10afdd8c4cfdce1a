"""Mounts: missing though once there, turned read-only, or hanging (found by a child, so that the agent never hangs)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

from probing_cluster.core import processes, records
from probing_cluster.healthchecks.readers import mounts
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.faults import baseline
from probing_cluster.probe_agent.faults.conditions import Condition, Judgement
from probing_cluster.probe_agent.sources import file_child, polled

TABLES = ("/proc/1/mounts", "/proc/self/mounts", "/proc/mounts")
"""Process 1's first: the agent's own view may be narrowed by its service manager."""
FSTAB = mounts.FSTAB
UNITS = ("/etc/systemd/system/*.mount", "/run/systemd/system/*.mount")
"""What the site's own units mount."""
BEEGFS = "/etc/beegfs/beegfs-mounts.conf"
"""What BeeGFS's own service mounts."""
_WHERE = re.compile(r"^\s*Where\s*=\s*(/.*?)/*\s*$", re.MULTILINE)
LASTING = 2
TOUCH_EVERY = 6
"""Readings between two touches: reading the table costs nothing, touching every mount costs a child each."""
MAX_TOUCHED = 16
BOOT_GRACE_S = 600.0
"""After a boot file systems come late: until first seen in this boot they are not missed."""


async def read(
    reader: polled.NodeReader, memory: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The mount table, what names mounts, and in its turn what each network mount of the node answers."""
    raw = await reader.files([*TABLES, FSTAB, *UNITS, BEEGFS])
    answers: dict[str, Mapping[str, Any]] = {}
    if int(memory.get("round", 0)) % TOUCH_EVERY == 0 or memory.get("troubled"):
        table = parse(raw, context.expect_mounts)
        paths = [m.path for m in table if m.network and not m.covered][:MAX_TOUCHED]
        async with asyncio.TaskGroup() as group:
            touches = {p: group.create_task(_touch(reader, p)) for p in paths}
        answers = {p: task.result() for p, task in touches.items()}
    return {**raw, "touched": answers}


def parse(raw: Mapping[str, Any], named: Collection[str] = ()) -> list[mounts.Mount]:
    """The mount table without what users mount; `named`: paths that the site's settings name."""
    text = next((raw["files"][t] for t in TABLES if t in raw["files"]), "")
    return mounts.parse(text, raw["files"].get(FSTAB, ""), {*named, *_listed(raw)})


def _was_cut(raw: Mapping[str, Any]) -> bool:
    """Whether a table was too long to be read whole: a thousand mounts of users' must not make one of the node's missing."""
    return any(len(raw["files"].get(t, "").encode()) >= file_child.MAX_BYTES for t in TABLES)


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """The expected mounts that are missing, read-only or do not answer."""
    table = {m.path: m for m in parse(raw, context.expect_mounts)}
    if not table or _was_cut(raw):
        state = "the mount table is too long" if table else "no mount table"
        return Judgement(unknown=frozenset({"*"}), memory=memory, state=state)
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})))
    expected = _expected(table, raw, memory, context)
    before = memory.get("arrived", ()) if memory.get("boot_id") == context.boot_id else ()
    arrived = set(before) | (set(expected) & set(table))
    early = context.uptime_s is not None and context.uptime_s < BOOT_GRACE_S
    due = {p: t for p, t in expected.items() if p in arrived or not early}
    silent = _listen(raw["touched"], memory, streaks, table)
    present = [*_gone(due, table, streaks), *_silent(silent, table, streaks)]
    bad = {c.device for c in present}
    well = [m for m in table.values() if not (m.path in bad or m.path in silent or m.read_only or m.covered)]
    return Judgement(
        present=tuple(present),
        unknown=frozenset(silent.keys() - bad),
        healthy=frozenset(n for m in well if m.path in raw["touched"] or not m.network for n in _names(m)),
        memory={
            "boot_id": context.boot_id,
            "arrived": sorted(arrived),
            "expected": expected,
            "streaks": streaks.counts,
            "silent": silent,
            "troubled": bool(silent),
            "round": (int(memory.get("round", 0)) + 1) % TOUCH_EVERY,
        },
    )


def _gone(
    due: Mapping[str, Mapping[str, Any]], table: Mapping[str, mounts.Mount], streaks: baseline.Streaks
) -> list[Condition]:
    """Expected mounts that are not in the table, and those that have turned read-only."""
    found: list[Condition] = []
    for path, entry in due.items():
        mount = table.get(path)
        if streaks.at_least(f"{path}:missing", LASTING, holds=mount is None):
            found.append(_condition(path, "missing", f"{path} ({entry['type']}) is not mounted", entry))
        # One of another type is another file system: a node's image that is read-only now.
        same = mount is not None and entry["type"] in (mount.type, "unknown")
        turned = same and mount is not None and mount.read_only and not entry["read_only"]
        if streaks.at_least(f"{path}:read_only", LASTING, holds=turned):
            found.append(
                _condition(path, "read_only", f"{path} ({entry['type']}) has become read-only", entry)
            )
    return found


def _listen(
    answers: Mapping[str, Mapping[str, Any]],
    memory: Mapping[str, Any],
    streaks: baseline.Streaks,
    table: Mapping[str, mounts.Mount],
) -> dict[str, str]:
    """Path to what was wrong with its last answer, of the mounts that are still there."""
    silent: dict[str, str] = dict(memory.get("silent", {}))
    for path, answer in answers.items():
        word = answer.get("error")
        word = None if word in mounts.REFUSALS else word
        streaks.at_least(f"{path}:silent", LASTING, holds=word is not None)
        silent.pop(path, None)
        if word is not None:
            silent[path] = word
    return {p: w for p, w in silent.items() if p in table and not table[p].covered}


def _silent(
    silent: Mapping[str, str], table: Mapping[str, mounts.Mount], streaks: baseline.Streaks
) -> list[Condition]:
    """Mounts that have gone on hanging or failing."""
    found: list[Condition] = []
    for path, word in silent.items():
        if streaks.counts.get(f"{path}:silent", 0) < LASTING:
            continue
        entry = _entry(table[path])
        if word == "hanging":
            text = f"{path} ({entry['type']}) does not answer: a call on it never returned"
            found.append(_condition(path, "hanging", text, entry))
        else:
            text = f"{path} ({entry['type']}) answers every call with {word}"
            found.append(_condition(path, "error", text, entry))
    return found


async def _touch(reader: polled.NodeReader, path: str) -> Mapping[str, Any]:
    try:
        return await reader.touch(path, remote=True)
    except children.ChildHung:
        return {"error": "hanging"}
    except processes.ChildFailed as exc:
        return {"error": str(exc)}


def _expected(
    table: Mapping[str, mounts.Mount],
    raw: Mapping[str, Any],
    memory: Mapping[str, Any],
    context: polled.PollContext,
) -> dict[str, dict[str, Any]]:
    """The mounts that are watched: the site's list, or those that were found and are the node's own.

    Of these only what the site names stays watched once it is gone: it is missing then. What root mounted besides (by a
    provisioning tool, for a login, for one job) is watched while it stands. What an automounter may take away is not.
    """
    known: dict[str, dict[str, Any]] = {} if context.relearn else dict(memory.get("expected", {}))
    if context.expect_mounts:
        # Read-only from the start is how the site wants it; a later turn is reported.
        return {p: known.get(p) or _entry(table.get(p)) for p in context.expect_mounts}
    automounted = [m.path for m in table.values() if m.type == "autofs"]
    by_fstab, listed = _of_fstab(raw), _listed(raw)
    for path, mount in table.items():
        by_autofs = any(path == a or path.startswith(f"{a.rstrip('/')}/") for a in automounted)
        if (
            path not in known
            and mount.type != "autofs"
            and (path in by_fstab or (mount.network and not by_autofs))
        ):
            known[path] = _entry(mount)
    unread = any(name not in TABLES for name in raw["errors"])
    known = {p: {**e, "named": p in listed or (unread and e.get("named", False))} for p, e in known.items()}
    return {p: entry for p, entry in known.items() if p in table or entry["named"]}


def _listed(raw: Mapping[str, Any]) -> set[str]:
    """Paths that fstab, the site's systemd units or BeeGFS's own list want mounted without anyone's asking."""
    units = [_WHERE.search(text) for name, text in raw["files"].items() if name.endswith(".mount")]
    words = [line.split() for line in raw["files"].get(BEEGFS, "").splitlines()]
    return {
        *_of_fstab(raw),
        *(where[1] for where in units if where),
        *(w[0].rstrip("/") for w in words if w and w[0].startswith("/")),
    }


def _of_fstab(raw: Mapping[str, Any]) -> set[str]:
    rows = mounts.fstab_rows(raw["files"].get(FSTAB, ""))
    # GPFS writes noauto: its own daemon mounts it.
    return {r.path for r in rows if not r.for_users and ("noauto" not in r.options or r.type == "gpfs")}


def _entry(mount: mounts.Mount | None) -> dict[str, Any]:
    if mount is None:
        return {"type": "unknown", "read_only": False, "device": ""}
    return {"type": mount.type, "read_only": mount.read_only, "device": mount.device}


def _condition(path: str, code: str, message: str, entry: Mapping[str, Any]) -> Condition:
    detail = {"type": entry["type"], "from": entry["device"]}
    return Condition(
        kind="mount", code=code, device=path, severity=records.Severity.HIGH, message=message, detail=detail
    )


def _names(mount: mounts.Mount) -> list[str]:
    server = mount.device.partition(":")[0]
    return [n for n in (mount.path, mount.device, server) if n]


SOURCE = polled.Polled(
    name="mounts",
    source="mount",
    read=read,
    judge=judge,
    reads="the mount table, fstab, mount units, and a `statvfs` + one directory entry per network mount of the node's own, each in a child",
    stands="missing, turned read-only, hanging, failing · – · –",
    period="table: poll; touch: 6 polls",
)
