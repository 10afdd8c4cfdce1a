"""Figures of the whole fleet, search, health, and who one is."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.core import digits, errors
from probing_cluster.web import documents, fleet_figures
from probing_cluster.web.api import operation
from probing_cluster.web.live import now

SPANS = {"1d": 1, "7d": 7, "28d": 28, "90d": 90, "365d": 365}
_WORD = re.compile(r"[A-Za-z0-9._:+-]{1,80}")


class Span(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far back, and of which partition."""

    span: Annotated[str, msgspec.Meta(pattern="^(1d|7d|28d|90d|365d)$")] = "28d"
    partition: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None


def figures(ask: operation.Ask) -> dict[str, str]:
    """Every figure's name and meaning."""
    del ask
    return dict(fleet_commands.FIGURES)


def figure(ask: operation.Ask) -> dict[str, Any]:
    """One figure as `probing-ctl fleet FIGURE --json` prints it; raises NotFound."""
    name = ask.path["figure"]
    if name not in fleet_commands.FIGURES:
        raise errors.NotFound(f"there is no figure {name[:40]!r}; /fleet lists them")
    return ask.site.figures.wait_for(name, scope(ask.query))


def scope(span: Span) -> fleet_figures.FigureScope:
    """What the figures are of."""
    return fleet_figures.FigureScope(days=SPANS[span.span], partition=span.partition)


class Search(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is looked for: a job, node, user, GPU serial or Xid."""

    q: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


def search(ask: operation.Ask) -> list[documents.Found]:
    """Jobs, nodes, users, GPUs and Xids of that name, of those that the viewer may see."""
    word = re.sub(r"^(s?xid)[\s:]+", r"\1:", ask.query.q.strip(), flags=re.IGNORECASE)
    if not _WORD.fullmatch(word):
        return []
    found = _jobs(ask, word)
    return found + _hardware(ask, word) if ask.viewer.operator else found


def _number(text: str) -> int | None:
    return int(text) if digits.is_number(text) and int(text) < 2**40 else None


def _jobs(ask: operation.Ask, word: str) -> list[documents.Found]:
    array, _, task = (_number(part) for part in word.partition("_"))
    leader, _, component = (_number(part) for part in word.partition("+"))
    parameters = {"job_id": _number(word), "array_id": array, "task": task, "het_id": leader, "component": component}  # fmt: skip
    rows = ask.rows("search_jobs", **ask.scope, **parameters, word=word)
    made = []
    for row in rows:
        where = "" if row["cause"] is None else f", {row['cause']}"
        words = f"{row['name']} of {row['user']}, {row['state']}{where}"
        # The last task of an array bears the array's own number, which alone names all its tasks.
        named = row["ref"] if row["ref"].startswith(f"{row['job_id']}_") else row["job_id"]
        path = f"/jobs/{named}{_of(ask, row)}"
        made.append(documents.Found(kind="job", name=row["ref"], words=words + _in(ask, row), path=path))
    if any(row["user"] == word for row in rows):
        made.insert(0, documents.Found(kind="user", name=word, words="their jobs", path=f"/jobs?user={word}"))
    return made


def _hardware(ask: operation.Ask, word: str) -> list[documents.Found]:
    prefix = word.replace("\\", "").replace("%", "").replace("_", r"\_") + "%"
    rows = ask.rows("search_nodes", prefix=prefix, word=word)
    made = [
        documents.Found(
            kind=r["kind"],
            name=r["name"],
            words=r["words"] + _in(ask, r),
            path=f"/nodes/{r['name']}{_of(ask, r)}",
        )
        for r in rows
    ]
    code = re.fullmatch(r"(?:xid:?)?([0-9]{1,3})|xids?", word, re.IGNORECASE)
    if code:
        for event in ask.rows("search_xids", code=code[1]):
            words = f"{event['at']:%Y-%m-%d %H:%M:%S}Z {event['device'] or ''} {event['message'][:120]}"
            path = f"/nodes/{event['node']}{_of(ask, event)}"
            made.append(
                documents.Found(
                    kind=f"Xid {event['code']}", name=event["node"], words=words + _in(ask, event), path=path
                )
            )
    return made


def _of(ask: operation.Ask, row: Mapping[str, Any]) -> str:
    """The address's part that says the cluster; empty for that of this service."""
    return "" if row["cluster"] == ask.cluster else f"?{urllib.parse.urlencode({'cluster': row['cluster']})}"


def _in(ask: operation.Ask, row: Mapping[str, Any]) -> str:
    """The words that say the cluster; empty for that of this service."""
    return "" if row["cluster"] == ask.cluster else f", in {row['cluster']}"


def me(ask: operation.Ask) -> documents.Me:
    """Who is asking."""
    v = ask.viewer
    return documents.Me(
        user=v.user, operator=v.operator, acts=v.acts, accounts=sorted(v.accounts), came_by=v.kind
    )


def health(ask: operation.Ask) -> documents.Health:
    """Whether what is shown is of now."""
    return now.health(ask.site)
