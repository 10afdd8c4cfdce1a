"""One fact operators may want to be told of, and the sorts of such facts; foreign words made harmless."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from probing_cluster.control_plane.notices import picture
from probing_cluster.core import hostlist, records, sanitize

MOST_CHARS = 400
_SPLIT = "\u200b"
"""A space of no width: what it stands in is read as before, and is no mention, link or address any more."""
_LIVE = re.compile(r"@|://|\]\(|\bwww\.|\bmailto:", re.IGNORECASE)
_QUOTES = str.maketrans({"<": "‹", ">": "›", "`": "'"})


@records.record
class Fact:
    """One thing that happened, or stands."""

    fact_id: str = records.doc("identity: the same fact found by the next pass has the same")
    cause: str = records.doc("facts of one kind and cause that come close together are one message")
    at: datetime = records.doc("when it happened or began, UTC")
    severity: records.Severity = records.doc("how grave it is for operators")
    line: str = records.doc("one sentence; the words of jobs and users in it are made harmless")
    todo: str = records.doc("what to do while it stands; the end of the line until then", default="")
    nodes: tuple[str, ...] = records.doc("the nodes concerned", default=())
    partitions: tuple[str, ...] = records.doc("the partitions concerned", default=())
    stands: bool = records.doc(
        "true for what lasts: it is over once no pass finds it any more", default=False
    )
    title: str = records.doc(
        "begins the message's title if all of its facts have the same; else that of the kind does", default=""
    )
    about: str = records.doc("what the title names in brackets; empty = the cause", default="")
    after: str = records.doc(
        "what has become of what no longer stands, in place of `Over`; empty = it is over", default=""
    )
    ends: bool = records.doc(
        "true for the end of what stood: it changes the message that has it, and begins none", default=False
    )
    job: str = records.doc("the one job concerned, as its owner names it; empty for none", default="")


Find = Callable[[picture.NoticePicture], Iterable[Fact] | None]
"""The facts of one kind as they are now; None when nobody can tell just now."""


@records.record
class Kind:
    """One sort of notice: a file in kinds/ and a line in its register."""

    name: str = records.doc("its word, in routes and lists")
    meaning: str = records.doc("what it is about, for the manual")
    title: str = records.doc("begins the message's title where its facts do not agree on another")
    find: Find = records.doc("finds its facts")
    command: str = records.doc("where to look next; JOB in it stands for the job concerned")


def title(kind: Kind, facts: Sequence[Fact], *, over: bool, place: str = "") -> str:
    """`Node drained: gpu[17-18] (xid)`, with ` at leaf leaf12` where the nodes share that place."""
    nodes = hostlist.compress(sorted({n for f in facts for n in f.nodes}))
    cause = (facts[0].about or facts[0].cause) if facts else ""
    head = (facts[0].title if len({f.title for f in facts}) == 1 else "") or kind.title
    words = f"{head}: {nodes}" if nodes else head
    text = f"{words} ({cause})" if cause else words
    text += f" at {place}" if place and place != cause else ""
    after = facts[0].after if len({f.after for f in facts}) == 1 else ""
    return harmless(f"{after or 'Over'}: {text}" if over else text, 160)


def harmless(text: str, limit: int = MOST_CHARS) -> str:
    """Foreign text for chats, pagers and mail: no control characters, mentions, links or markup come alive in it."""
    plain = sanitize.clean(text, limit).translate(_QUOTES)
    return _LIVE.sub(lambda found: found[0][:1] + _SPLIT + found[0][1:], plain)
