"""Mounts: missing though once there, turned read-only, or hanging (found by a child, so that the agent never hangs)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import mounts
from probing_cluster.probe_agent import baseline, children
from probing_cluster.probe_agent.conditions import Condition, Judgement
from probing_cluster.probe_agent.sources import polled

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
TABLES = ("/proc/1/mounts", "/proc/self/mounts", "/proc/mounts")
"""Process 1's first: the agent's own view may be narrowed by its service manager."""
FSTAB = "/etc/fstab"
LASTING = 2
TOUCH_EVERY = 6
"""Readings between two touches: reading the table costs nothing, touching every mount costs a child each."""
MAX_TOUCHED = 16
BOOT_GRACE_S = 600.0
"""After a boot file systems come late: until first seen in this boot they are not missed."""


async def read(reach: polled.Reach, memory: Mapping[str, Any], _: polled.Context) -> Mapping[str, Any]:
    """The mount table, fstab, and in its turn what each expected network mount answers."""
    raw = await reach.files([*TABLES, FSTAB])
    answers: dict[str, Mapping[str, Any]] = {}
    if int(memory.get("round", 0)) % TOUCH_EVERY == 0 or memory.get("troubled"):
        paths = [m.path for m in parse(raw) if m.network][:MAX_TOUCHED]
        told = await asyncio.gather(*(_touch(reach, p) for p in paths))
        answers = dict(zip(paths, told, strict=True))
    return {**raw, "touched": answers}


def parse(raw: Mapping[str, Any]) -> list[mounts.Mount]:
    """The mount table."""
    text = next((raw["files"][t] for t in TABLES if t in raw["files"]), "")
    return mounts.parse(text)


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.Context) -> Judgement:
    """What is missing, read-only or silent of what should be there."""
    table = {m.path: m for m in parse(raw)}
    if not table:
        return Judgement(unknown=frozenset({"*"}), memory=memory, state="no mount table")
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})))
    expected = _expected(table, raw, memory, context)
    before = memory.get("arrived", ()) if memory.get("boot_id") == context.boot_id else ()
    arrived = set(before) | (set(expected) & set(table))
    present: list[Condition] = []
    unknown: set[str] = set()
    for path, told in expected.items():
        mount = table.get(path)
        early = path not in arrived and context.uptime_s is not None and context.uptime_s < BOOT_GRACE_S
        missing = streaks.at_least(f"{path}:missing", LASTING, holds=mount is None and not early)
        if missing:
            present.append(_condition(path, "missing", HIGH, f"{path} ({told['type']}) is not mounted", told))
        turned = mount is not None and mount.read_only and not told["read_only"]
        if streaks.at_least(f"{path}:read_only", LASTING, holds=turned):
            present.append(
                _condition(path, "read_only", HIGH, f"{path} ({told['type']}) has become read-only", told)
            )
    known = {m.path: _told(m) for m in table.values()}
    silent = dict(memory.get("silent", {}))
    for path, answer in raw["touched"].items():
        silent[path] = answer.get("error")
        streaks.at_least(f"{path}:silent", LASTING, holds=answer.get("error") is not None)
    for path, word in silent.items():
        if word is None or path not in known:
            continue
        if streaks.counts.get(f"{path}:silent", 0) >= LASTING:
            present.append(_silent(path, word, known[path]))
        else:
            unknown.add(path)
    bad = {c.device for c in present}
    well = [m for m in table.values() if m.path not in bad and not m.read_only and silent.get(m.path) is None]
    answered = [m for m in well if m.path in raw["touched"] or not m.network]
    return Judgement(
        present=tuple(present),
        unknown=frozenset(unknown),
        healthy=frozenset(n for m in answered for n in _names(m)),
        memory={
            "boot_id": context.boot_id,
            "arrived": sorted(arrived),
            "expected": expected,
            "streaks": streaks.counts,
            "silent": {p: w for p, w in silent.items() if w is not None and p in known},
            "troubled": any(w is not None for w in silent.values()),
            "round": (int(memory.get("round", 0)) + 1) % TOUCH_EVERY,
        },
    )


async def _touch(reach: polled.Reach, path: str) -> Mapping[str, Any]:
    try:
        return await reach.touch(path, remote=True)
    except children.ChildHung:
        return {"error": "hanging"}
    except children.ChildFailed as exc:
        return {"error": str(exc)}


def _expected(
    table: Mapping[str, mounts.Mount],
    raw: Mapping[str, Any],
    memory: Mapping[str, Any],
    context: polled.Context,
) -> dict[str, dict[str, Any]]:
    """What must be there: the site's list, or what was seen there and is meant to stay.

    Meant to stay: what fstab names, and network mounts that no automounter may take away again.
    """
    known: dict[str, dict[str, Any]] = {} if context.relearn else dict(memory.get("expected", {}))
    if context.expect_mounts:
        # Read-only from the start is how the site wants it; later turns are told.
        return {p: known.get(p) or _told(table.get(p)) for p in context.expect_mounts}
    automounted = [m.path for m in table.values() if m.type == "autofs"]
    listed = _fstab(raw["files"].get(FSTAB, ""))
    for path, mount in table.items():
        by_autofs = any(path == a or path.startswith(f"{a.rstrip('/')}/") for a in automounted)
        if (
            path not in known
            and mount.type != "autofs"
            and (path in listed or (mount.network and not by_autofs))
        ):
            known[path] = _told(mount)
    return known


def _fstab(text: str) -> set[str]:
    """Mount points fstab wants mounted at boot."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {r[1] for r in rows if len(r) >= 4 and r[1].startswith("/") and "noauto" not in r[3].split(",")}


def _told(mount: mounts.Mount | None) -> dict[str, Any]:
    if mount is None:
        return {"type": "unknown", "read_only": False, "device": ""}
    return {"type": mount.type, "read_only": mount.read_only, "device": mount.device}


def _silent(path: str, word: str, told: Mapping[str, Any]) -> Condition:
    if word == "hanging":
        return _condition(
            path,
            "hanging",
            HIGH,
            f"{path} ({told['type']}) does not answer: a call on it never returned",
            told,
        )
    return _condition(path, "error", HIGH, f"{path} ({told['type']}) answers every call with {word}", told)


def _condition(
    path: str, code: str, severity: records.Severity, message: str, told: Mapping[str, Any]
) -> Condition:
    detail = {"type": told["type"], "from": told["device"]}
    return Condition(kind="mount", code=code, device=path, severity=severity, message=message, detail=detail)


def _names(mount: mounts.Mount) -> list[str]:
    server = mount.device.partition(":")[0]
    return [n for n in (mount.path, mount.device, server) if n]


SOURCE = polled.Polled(name="mounts", source="mount", read=read, judge=judge)
