"""Digests of one rank's dump in a few hundred bytes, enough for a verdict over all nodes of a job, and their parser."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from probing_cluster.evidence.flight_recorder.model import CollectiveStatus, Entry, RankDump

MAX_GROUPS = 32
MAX_OUTSTANDING = 8
_MAX_TENSORS = 4
_MAX_RANKS = 1 << 20


def make(dump: RankDump) -> dict[str, Any]:
    """The digest: progress of each group, what is outstanding, the last collective with its Python frames."""
    groups = {
        name: {**dataclasses.asdict(status), "size": len(dump.members.get(name, ()))}
        for name, status in list(dump.status.items())[:MAX_GROUPS]
    }
    waiting = [_entry_json(e) for e in dump.entries if e.outstanding][:MAX_OUTSTANDING]
    last = max((e for e in dump.entries if not e.is_p2p), key=lambda e: (e.created_ns, e.seq), default=None)
    digest: dict[str, Any] = {"rank": dump.rank, "groups": groups, "outstanding": waiting}
    if last is not None:
        digest |= {"last": {**_entry_json(last), "retired": last.retired}, "frames": list(last.frames)}
    return digest


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "group": entry.group,
        "seq": entry.seq,
        "op": entry.op,
        "backend": entry.backend,
        "p2p": entry.is_p2p,
        "state": entry.state,
        "created_ns": entry.created_ns,
        "timeout_ms": entry.timeout_ms,
        "sizes": [list(s) for s in entry.input_sizes[:_MAX_TENSORS]],
        "dtypes": list(entry.dtypes[:_MAX_TENSORS]),
    }


def world_size(digests: list[Mapping[str, Any]]) -> int | None:
    """The size of the largest group in any digest; None without one."""
    sizes = [g.get("size") for d in digests for g in _dict(d.get("groups")).values() if isinstance(g, dict)]
    return max((s for s in sizes if isinstance(s, int) and 0 < s <= _MAX_RANKS), default=None)


def parse(digest: Mapping[str, Any]) -> RankDump | None:
    """The dump a digest stands for, without its finished collectives; None when it is no digest.

    A rank is a member of the groups whose progress its digest holds; other digests complete the group.
    """
    rank = digest.get("rank")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < _MAX_RANKS:
        return None
    status = {
        name: CollectiveStatus(**{k: _int(group.get(k)) for k in ("enqueued", "started", "completed")})
        for name, group in list(_dict(digest.get("groups")).items())[:MAX_GROUPS]
        if isinstance(group, dict)
    }
    frames = tuple(f for f in _list(digest.get("frames")) if isinstance(f, str))
    entries = [_entry(e) for e in _list(digest.get("outstanding"))[:MAX_OUTSTANDING] if isinstance(e, dict)]
    last = digest.get("last")
    if isinstance(last, dict):
        final = dataclasses.replace(_entry(last), frames=frames)
        same = (final.group, final.seq)
        entries = [e for e in entries if (e.group, e.seq) != same or e.is_p2p] + [final]
    return RankDump(
        rank=rank,
        version=(2, 0),
        members={name: frozenset({rank}) for name in status},
        descriptions={},
        status=status,
        entries=tuple(entries),
    )


def _entry(fields: Mapping[str, Any]) -> Entry:
    timeout = fields.get("timeout_ms")
    sizes = [s for s in _list(fields.get("sizes"))[:_MAX_TENSORS] if isinstance(s, list)]
    return Entry(
        group=str(fields.get("group", "")),
        pg_id=None,
        seq=_int(fields.get("seq")),
        op=str(fields.get("op", "")),
        backend=str(fields.get("backend", "")),
        is_p2p=fields.get("p2p") is True,
        state=str(fields.get("state", "")),
        retired=fields.get("retired") is True,
        created_ns=max(0, _int(fields.get("created_ns"))),
        input_sizes=tuple(tuple(_int(n) for n in s) for s in sizes),
        output_sizes=(),
        dtypes=tuple(str(d) for d in _list(fields.get("dtypes"))[:_MAX_TENSORS]),
        timeout_ms=timeout if isinstance(timeout, int) and timeout >= 0 else None,
    )


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
