"""Space and inodes of the local file systems the node itself needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import processes, records
from probing_cluster.healthchecks.readers import mounts as tables
from probing_cluster.probe_agent.faults.conditions import Condition, Judgement
from probing_cluster.probe_agent.sources import mounts, polled

WATCHED = ("/", "/var", "/var/log", "/var/spool", "/var/lib", "/tmp", "/run", "/dev/shm")  # noqa: S108 - names of mounts
OF_USERS = frozenset({"/tmp", "/dev/shm"})  # noqa: S108
"""Where every user may write. A memory file system there is the running jobs' to fill, and their memory limit's to bound."""
WARN_FRAC, FULL_FRAC = 0.95, 0.99


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    """What the local mounts among the watched ones answer."""
    raw = await reader.files(mounts.TABLES)
    local = [m for m in mounts.parse(raw) if m.path in WATCHED and m.type in tables.REAL_LOCAL]
    answers: dict[str, Any] = {}
    for mount in local:
        try:
            answers[mount.path] = {**await reader.touch(mount.path, remote=False), "type": mount.type}
        except processes.ChildFailed as exc:
            answers[mount.path] = {"error": str(exc)}
    return answers


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], _: polled.PollContext) -> Judgement:
    """Nearly full is worth knowing; full stops the node's daemons."""
    present: list[Condition] = []
    unknown: set[str] = set()
    for path, answer in raw.items():
        if "error" in answer:
            unknown.add(path)
            continue
        if answer.get("read_only"):
            continue  # an image (composefs, overlay) is always full, and nobody can fill it
        for code, total, free in (
            ("space", answer["bytes_total"], answer["bytes_free"]),
            ("inodes", answer["inodes_total"], answer["inodes_free"]),
        ):
            used = 1.0 - free / total if total else 0.0
            if used >= WARN_FRAC:
                theirs = path in OF_USERS and answer.get("type") == "tmpfs"
                present.append(_condition(path, code, used, acts=not theirs))
    return Judgement(
        present=tuple(present), unknown=frozenset(unknown), memory=memory, state="ok" if raw else "absent"
    )


def _condition(path: str, code: str, used: float, *, acts: bool) -> Condition:
    full = used >= FULL_FRAC
    return Condition(
        kind="disk",
        code=f"{code}_full" if full else f"{code}_low",
        device=path,
        severity=records.Severity.LOW if full and acts else records.Severity.INFO,
        message=f"{path}: {used:.1%} of its {code} is used",
        measured=used,
        threshold=FULL_FRAC if full else WARN_FRAC,
        unit="frac",
    )


SOURCE = polled.Polled(
    name="disk",
    source="sysfs",
    read=read,
    judge=judge,
    every=6,
    reads="space and inodes of the node's own file systems",
    stands="– · 99 % used · 95 % used, and a tmpfs at `/tmp` or `/dev/shm`",
)
