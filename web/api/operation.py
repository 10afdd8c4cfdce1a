"""One operation of the API: what it is called with, what it does, what it answers; its OpenAPI description is made from it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web import site as web_site

MOST_ROWS = 200
Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


_ONE_OF = re.compile(r"Expected `str` matching regex '\^\((?P<words>[^()]*)\)\$' - at `\$\.?(?P<name>\w*)`")


def one_of(words: Iterable[str]) -> str:
    """The pattern of a parameter that is one of these words, which its refusal then lists."""
    return f"^({'|'.join(sorted(words))})$"


def refusal(exc: Exception) -> str:
    """What msgspec says of a request, with the words that a parameter may be where it is of a few."""
    found = _ONE_OF.fullmatch(str(exc))
    return f"{found['name']} is none of {', '.join(found['words'].split('|'))}" if found else str(exc)


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class OfCluster(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Of which cluster, where the database holds several; that of this service where not said."""

    cluster: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None


class Paged(OfCluster, kw_only=True, forbid_unknown_fields=True):
    """A part of a list."""

    limit: Limit = 50
    cursor: Annotated[str, msgspec.Meta(max_length=500)] | None = None


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request as a handler gets it."""

    site: web_site.Site
    viewer: web_keys.Viewer
    path: Mapping[str, str]
    query: Any
    body: Any = None

    @property
    def cluster(self) -> str:
        """The cluster that is asked about."""
        return getattr(self.query, "cluster", None) or self.site.service.cluster

    def rows(self, name: str, /, **given: Any) -> list[dict[str, Any]]:
        """The rows of `sql/NAME.sql` of that cluster that the viewer may see."""
        return self.site.rows(self.viewer, name, cluster=self.cluster, **given)

    @property
    def scope(self) -> dict[str, Any]:
        """Parameters by which SQL asks for the viewer's own rows, beside what the row policies hold."""
        return {
            "everything": self.viewer.operator,
            "viewer": self.viewer.user,
            "accounts": sorted(self.viewer.accounts),
        }


@dataclass(frozen=True, kw_only=True)
class Raw:
    """An answer that is no JSON."""

    body: bytes
    media_type: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A line of the register."""

    name: str
    meaning: str
    path: str
    handle: Callable[[Ask], Any]
    answer: Any
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    operators: bool = False
    """Whether only operators may ask: everything that is of no one job."""
    acts: bool = False
    """Whether it changes something: needs an idempotency key and a viewer who may act."""

    @property
    def method(self) -> str:
        """GET, or POST where it has a body."""
        return "GET" if self.body is None else "POST"


def cursor_of(values: list[Any]) -> str:
    """The end of a page of results, as an opaque word."""
    text = json.dumps([v.isoformat() if isinstance(v, datetime) else v for v in values])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_values(cursor: str | None, kinds: tuple[type, ...]) -> list[Any] | None:
    """The values in a cursor; None for the first page. Raises UsageError for a word that is no cursor of ours."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        return [_value(kind, value) for kind, value in zip(kinds, found, strict=True)]
    except (binascii.Error, ValueError, TypeError, RecursionError, OverflowError) as exc:
        raise errors.UsageError("the cursor is none that a page gave; ask again from the first page") from exc


def _value(kind: type, value: Any) -> Any:
    if kind is datetime:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None:
            raise ValueError(value)
        return found
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(value)
    return value
