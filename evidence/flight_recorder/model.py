"""One rank's dump as typed, bounded values, whatever the schema's minor version left out or renamed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.core.errors import MalformedInput
from probing_cluster.core.record import doc, record
from probing_cluster.evidence.flight_recorder import load

_MAX_ENTRIES = 200_000
_MAX_GROUPS = 20_000
_MAX_RANKS = 1 << 20
_MAX_DIMENSIONS = 64
_MAX_FRAMES = 16
_KNOWN_MAJOR = (1, 2)
_RANKS = re.compile(r"-?\d{1,9}")
_P2P = re.compile(r"\b(?:send|recv)\b")


@record
class Entry:
    """One operation a rank recorded."""

    group: str = doc("process group name")
    pg_id: int | None = doc("the group's number on this rank")
    seq: int = doc("collective sequence number in the group")
    op: str = doc("operation without its backend: all_reduce, send 0->3 …")
    backend: str = doc("nccl, gloo, …")
    is_p2p: bool = doc("true for send and recv")
    state: str = doc("scheduled, started or completed")
    retired: bool = doc("no longer in the work list")
    created_ns: int = doc("when the host enqueued it, nanoseconds since the epoch; 0 unknown")
    input_sizes: tuple[tuple[int, ...], ...] = doc("shapes in")
    output_sizes: tuple[tuple[int, ...], ...] = doc("shapes out")
    dtypes: tuple[str, ...] = doc("input types")
    timeout_ms: int | None = doc("timeout of the group, milliseconds")
    frames: tuple[str, ...] = doc(
        "innermost Python frames as 'function file:line', when recorded", default=()
    )

    @property
    def outstanding(self) -> bool:
        """Whether the rank still waits for it."""
        return self.state != "completed" and not self.retired


@record
class CollectiveStatus:
    """How far one group got on one rank; -1 where it is not recorded."""

    enqueued: int = doc("last collective the host issued")
    started: int = doc("last collective that began; -1 unless timing is on")
    completed: int = doc("last collective that ended")


@record
class RankDump:
    """One rank's dump."""

    rank: int = doc("global rank")
    version: tuple[int, int] = doc("schema version as two integers")
    members: Mapping[str, frozenset[int]] = doc("group name to global ranks, where the dump says it")
    descriptions: Mapping[str, str] = doc("group name to description")
    status: Mapping[str, CollectiveStatus] = doc("group name to progress")
    entries: tuple[Entry, ...] = doc("operations in the order recorded")


def _int(value: Any, default: int = -1) -> int:
    """Numbers come as numbers in pickles and as text in JSON."""
    if isinstance(value, bool):
        return default
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else default
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return int(value)
    return default


def _text(value: Any, limit: int = 200) -> str:
    return sanitize.clean(value, limit) if isinstance(value, str) else ""


def _version(value: Any) -> tuple[int, int]:
    found = (
        re.fullmatch(r"(\d{1,4})\.(\d{1,4})(?:\.\d+)?", value, re.ASCII) if isinstance(value, str) else None
    )
    version = (int(found[1]), int(found[2])) if found else (1, 0)
    if version[0] not in _KNOWN_MAJOR:
        msg = f"flight-recorder schema {version[0]}.{version[1]}; this release reads {_KNOWN_MAJOR}"
        raise MalformedInput(msg)
    return version


def _shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        return ()
    inner = [v for v in value[:_MAX_DIMENSIONS] if isinstance(v, list)]
    return tuple(tuple(_int(n, 0) for n in shape[:_MAX_DIMENSIONS]) for shape in inner)


def _frames(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    kept = [f for f in value[:_MAX_FRAMES] if isinstance(f, dict)]
    return tuple(f"{_text(f.get('name'))} {_text(f.get('filename'))}:{_int(f.get('line'), 0)}" for f in kept)


def _entry(raw: Any) -> Entry | None:
    if not isinstance(raw, dict):
        return None
    pair = raw.get("process_group")
    group = _text(pair[0]) if isinstance(pair, (tuple, list)) and pair else ""
    backend, _, op = _text(raw.get("profiling_name")).rpartition(":")
    dtypes = raw.get("input_dtypes")
    timeout = _int(raw.get("timeout_ms"))
    return Entry(
        group=group,
        pg_id=_int(raw["pg_id"]) if "pg_id" in raw else None,
        seq=_int(raw.get("collective_seq_id", raw.get("seq_id"))),
        op=op,
        backend=backend,
        is_p2p=raw.get("is_p2p") is True or _P2P.search(op) is not None,
        state=_text(raw.get("state")),
        retired=raw.get("retired") is True,
        created_ns=_int(raw.get("time_created_ns"), 0),
        input_sizes=_shapes(raw.get("input_sizes")),
        output_sizes=_shapes(raw.get("output_sizes")),
        dtypes=tuple(_text(d, 32) for d in dtypes[:_MAX_DIMENSIONS]) if isinstance(dtypes, list) else (),
        timeout_ms=timeout if timeout >= 0 else None,
        frames=_frames(raw.get("frames")),
    )


def _groups(raw: Any) -> tuple[dict[str, frozenset[int]], dict[str, str]]:
    """Membership and descriptions; `ranks` is the text of a list. Gloo's empty entry says nothing."""
    members, descriptions = dict[str, frozenset[int]](), dict[str, str]()
    if not isinstance(raw, dict):
        return members, descriptions
    for key, value in list(raw.items())[:_MAX_GROUPS]:
        if not isinstance(value, dict):
            continue
        name = _text(value.get("name")) or _text(key)
        listed = value.get("ranks")
        found = (
            listed if isinstance(listed, list) else _RANKS.findall(listed) if isinstance(listed, str) else []
        )
        ranks = frozenset(_int(r) for r in found[:_MAX_RANKS]) - {-1}
        if name and ranks:
            members[name] = ranks
        if name and (desc := _text(value.get("desc"))):
            descriptions[name] = desc
    return members, descriptions


def _by_number(names: Mapping[str, Any]) -> list[str]:
    return sorted(names, key=lambda n: (_int(n, 1 << 40), n))


def _status(
    raw: Any, entries: tuple[Entry, ...], members: Mapping[str, frozenset[int]]
) -> dict[str, CollectiveStatus]:
    """Progress by group name: the dump keys it by the rank's own number, which its entries (or order) translate."""
    if not isinstance(raw, dict):
        return {}
    numbers = sorted(n for key in list(raw)[:_MAX_GROUPS] if (n := _int(key)) >= 0)
    names = {e.pg_id: e.group for e in entries if e.pg_id is not None and e.group}
    ordered = _by_number(members)
    if len(ordered) == len(numbers):
        guessed = dict(zip(numbers, ordered, strict=True))
        if all(guessed.get(n) == name for n, name in names.items()):
            names = {**guessed, **names}
    found = {}
    for key, value in list(raw.items())[:_MAX_GROUPS]:
        name = names.get(_int(key))
        if name is not None and isinstance(value, dict):
            found[name] = CollectiveStatus(
                enqueued=_int(value.get("last_enqueued_collective")),
                started=_int(value.get("last_started_collective")),
                completed=_int(value.get("last_completed_collective")),
            )
    return found


def parse(rank: int, data: bytes) -> RankDump:
    """The dump of `rank`; raises MalformedInput when it is none."""
    raw = load.loads(data)
    if isinstance(raw, list):
        raw = {"entries": raw}
    if not isinstance(raw, dict):
        msg = f"rank {rank}: a dump is a dictionary, this is a {type(raw).__name__}"
        raise MalformedInput(msg)
    listed = raw.get("entries")
    entries = tuple(
        e for r in (listed if isinstance(listed, list) else [])[-_MAX_ENTRIES:] if (e := _entry(r))
    )
    members, descriptions = _groups(raw.get("pg_config"))
    for item in (listed if isinstance(listed, list) else [])[-_MAX_ENTRIES:]:
        pair = item.get("process_group") if isinstance(item, dict) else None
        if isinstance(pair, (tuple, list)) and len(pair) > 1 and _text(pair[0]) and _text(pair[1]):
            descriptions.setdefault(_text(pair[0]), _text(pair[1]))
    return RankDump(
        rank=rank,
        version=_version(raw.get("version")),
        members=members,
        descriptions=descriptions,
        status=_status(raw.get("pg_status"), entries, members),
        entries=entries,
    )
