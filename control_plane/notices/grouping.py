"""Facts into groups: what happens alike and close together is one message, updated while it changes, over at its end.

The groups are one small document; a pass reads it, merges what it found, and writes it back before a message is made.
A message's key names group and revision, so a pass that dies anywhere and is begun again makes no second message.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.attribution.places import layout, scan
from probing_cluster.control_plane.notices import fact
from probing_cluster.core import clock, records

KEPT = timedelta(hours=72)
"""How long a group is remembered after its last fact; longer than any fact is looked for (picture.LOOK_BACK)."""
MOST_LINES = 20
Where = Callable[[], layout.NodeLayout]
"""Where nodes are now."""
_ORDER = (records.Severity.INFO, records.Severity.LOW, records.Severity.HIGH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoticeGroup:
    """One message in the making, and how far each route has got with it."""

    group_id: str
    kind: str
    cause: str
    severity: records.Severity
    opened_at: datetime
    last_at: datetime
    """When its newest fact happened."""
    facts: Mapping[str, fact.Fact]
    open_ids: frozenset[str]
    """Its facts that are still true."""
    lasting: bool
    """Whether it ends by something being over."""
    over_at: datetime | None = None
    revision: int = 1
    shown: str = ""
    """What the revision shows, as a hash."""
    sent: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Route to the revision it has got."""
    sent_at: Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Route to why it waits for the latest revision."""
    place: str = ""
    """What its nodes share beyond chance, as a sentence (attribution.places.scan); empty for nothing."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of its facts."""
        return tuple(sorted({p for f in self.facts.values() for p in f.partitions}))


def merge(
    groups: Sequence[NoticeGroup],
    kind: str,
    found: Iterable[fact.Fact],
    now: datetime,
    *,
    gap: timedelta,
    since: datetime,
    where: Where | None = None,
) -> list[NoticeGroup]:
    """The groups of one kind after a pass that found these facts; what ended before `since` is news to nobody.

    `where` nodes are now, for what those of a group share; None keeps what is known.
    """
    groups = list(groups)
    now_found = {f.fact_id: f for f in found}
    for one in sorted(now_found.values(), key=lambda f: (f.at, f.fact_id)):
        at = _place(groups, one, gap)
        if at is not None:
            groups[at] = _with(groups[at], one)
        elif (one.stands or one.at >= since) and not one.ends:
            groups.append(_begun(kind, one))
    merged = (_after(group, now_found, now, gap, where) for group in groups)
    return [g for g in merged if g.over_at is None or now - max(g.last_at, g.over_at) < KEPT]


def _place(groups: Sequence[NoticeGroup], one: fact.Fact, gap: timedelta) -> int | None:
    """The group that has this fact, else an open one that it joins; the latest of them."""
    for n in reversed(range(len(groups))):
        group = groups[n]
        # A thing of that name that stands once more, after its group was over, is another occurrence.
        if one.fact_id in group.facts and (group.over_at is None or not one.stands):
            return n
    if one.ends:
        return None
    for n in reversed(range(len(groups))):
        group = groups[n]
        if group.over_at is None and group.cause == one.cause and abs(one.at - group.last_at) <= gap:
            return n
    return None


def _begun(kind: str, one: fact.Fact) -> NoticeGroup:
    identity = "\0".join((kind, one.cause, one.fact_id, clock.iso_z(one.at)))
    return NoticeGroup(
        group_id=hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest(),
        kind=kind,
        cause=one.cause,
        severity=one.severity,
        opened_at=one.at,
        last_at=one.at,
        facts={one.fact_id: one},
        open_ids=frozenset([one.fact_id] if one.stands else []),
        lasting=one.stands,
    )


def _with(group: NoticeGroup, one: fact.Fact) -> NoticeGroup:
    known = group.facts.get(one.fact_id)
    new = known is None
    if known is not None:
        one = dataclasses.replace(one, at=known.at)  # an instant reckoned from an age moves by milliseconds
    return dataclasses.replace(
        group,
        facts={**group.facts, one.fact_id: one},
        severity=max(group.severity, one.severity, key=_ORDER.index),
        last_at=max(group.last_at, one.at) if new else group.last_at,
        lasting=group.lasting or one.stands,
    )


def _after(
    group: NoticeGroup,
    found: Mapping[str, fact.Fact],
    now: datetime,
    gap: timedelta,
    where: Where | None,
) -> NoticeGroup:
    """The group once every fact of the pass is in it: what still stands, whether it is over, and its revision."""
    if group.over_at is not None:
        return group
    open_ids = frozenset(i for i in group.facts if i in found and found[i].stands)
    over = not open_ids if group.lasting else now - group.last_at > gap
    group = dataclasses.replace(
        group, open_ids=open_ids, over_at=now if over else None, place=_shared(group, where)
    )
    shown = _shown(group)
    if group.shown in {"", shown}:
        return dataclasses.replace(group, shown=shown)
    return dataclasses.replace(group, shown=shown, revision=group.revision + 1)


def _shared(group: NoticeGroup, where: Where | None) -> str:
    """What the group's nodes share; those that are well again are asked of, too: the story is theirs as well."""
    nodes = {n for f in group.facts.values() for n in f.nodes}
    if where is None or len(nodes) < scan.LEAST:
        return group.place
    found = scan.shared(nodes, where())
    return found.sentence if found is not None else ""


def _shown(group: NoticeGroup) -> str:
    """What people see of it; that nothing more happens alike is no news."""
    ended = group.lasting and group.over_at is not None
    parts = [f"{i} {i in group.open_ids} {f.line}{f.todo}" for i, f in sorted(group.facts.items())]
    text = "\n".join([str(ended), group.severity, *parts, *([group.place] if group.place else [])])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def to_rows(groups: Iterable[NoticeGroup]) -> list[dict[str, Any]]:
    """The groups as JSON."""
    return [_row(g) for g in groups]


def _row(group: NoticeGroup) -> dict[str, Any]:
    facts = {i: _fact_row(f) for i, f in group.facts.items()}
    return {
        **records.json_fields(group, "group_id", "kind", "cause", "lasting", "revision", "shown", "place"),
        **records.json_fields(group, "severity", "opened_at", "last_at", "over_at"),
        "facts": facts,
        "open_ids": sorted(group.open_ids),
        **records.json_fields(group, "sent", "sent_at", "held"),
    }


def _fact_row(one: fact.Fact) -> dict[str, Any]:
    return {
        "cause": one.cause,
        "at": clock.iso_z(one.at),
        "severity": str(one.severity),
        "line": one.line[: fact.MOST_CHARS],
        "nodes": list(one.nodes[:1000]),
        "partitions": list(one.partitions[:100]),
        "stands": one.stands,
        **records.json_fields(one, "title", "about", "job", "todo", "after"),
    }


def from_rows(rows: Iterable[Mapping[str, Any]]) -> list[NoticeGroup]:
    """The groups that `to_rows` wrote."""
    return [_group(row) for row in rows]


def _group(row: Mapping[str, Any]) -> NoticeGroup:
    at = datetime.fromisoformat
    return NoticeGroup(
        group_id=row["group_id"],
        kind=row["kind"],
        cause=row["cause"],
        severity=records.Severity(row["severity"]),
        opened_at=at(row["opened_at"]),
        last_at=at(row["last_at"]),
        facts={i: _fact(i, f) for i, f in row["facts"].items()},
        open_ids=frozenset(row["open_ids"]),
        lasting=row["lasting"],
        over_at=at(row["over_at"]) if row["over_at"] else None,
        revision=row["revision"],
        shown=row["shown"],
        sent=row["sent"],
        sent_at={route: at(text) for route, text in row["sent_at"].items()},
        held=row["held"],
        place=row.get("place", ""),
    )


def _fact(fact_id: str, row: Mapping[str, Any]) -> fact.Fact:
    return fact.Fact(
        fact_id=fact_id,
        cause=row["cause"],
        at=datetime.fromisoformat(row["at"]),
        severity=records.Severity(row["severity"]),
        line=row["line"],
        nodes=tuple(row["nodes"]),
        partitions=tuple(row["partitions"]),
        stands=row["stands"],
        title=row.get("title", ""),
        about=row.get("about", ""),
        job=row.get("job", ""),
        todo=row.get("todo", ""),
        after=row.get("after", ""),
    )
