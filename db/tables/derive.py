"""How a record becomes a table of schema `probing`: a field is a column, its `doc` the comment."""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

SCHEMA = "probing"


metadata = sa.MetaData(schema=SCHEMA)


_UTC = sa.DateTime(timezone=True)


_SCALARS: dict[type[Any], sa.types.TypeEngine[Any]] = {
    bool: sa.Boolean(),
    int: sa.BigInteger(),
    float: sa.Double(),
    str: sa.Text(),
    datetime: _UTC,
    uuid.UUID: sa.Uuid(),
}


def table_name(cls: type[Any]) -> str:
    """`HealthEvent` -> `health_event`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def meaning(cls: type[Any]) -> str:
    """The sentence that says what one row of this record is."""
    return (cls.__doc__ or "").strip().splitlines()[0]


def split_optional(hint: Any) -> tuple[Any, bool]:
    """The type inside `X | None` and whether None is allowed."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{hint} has no single column type")
        return inner[0], True
    return hint, False


def column_type(kind: Any) -> sa.types.TypeEngine[Any]:
    """The column type of a record field's type, None already taken off."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return pg.ARRAY(column_type(typing.get_args(kind)[0]), dimensions=1)
    if origin in (Mapping, dict):
        return pg.JSONB(none_as_null=True)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return sa.Text()
    return _SCALARS[kind]


def record_columns(cls: type[Any]) -> list[sa.Column[Any]]:
    """The columns of a record, in its field order."""
    hints = typing.get_type_hints(cls)
    columns = []
    for item in dataclasses.fields(cls):
        kind, optional = split_optional(hints[item.name])
        columns.append(
            sa.Column(
                item.name,
                column_type(kind),
                nullable=optional,
                comment=item.metadata["doc"],
            )
        )
    return columns


def of_record(cls: type[Any], key: tuple[str, ...], *extra: Any, name: str = "", **options: Any) -> sa.Table:
    """A record's table; `key` in the order of its index, what is asked for first leading."""
    comment = options.pop("comment", None) or meaning(cls)
    keyed = [sa.PrimaryKeyConstraint(*key)] if key else []
    return sa.Table(
        name or table_name(cls), metadata, *record_columns(cls), *keyed, *extra, comment=comment, **options
    )


def at_column(name: str, comment: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, _UTC, comment=comment, **options)


def text_column(name: str, comment: str, **options: Any) -> sa.Column[Any]:
    options.setdefault("nullable", False)
    return sa.Column(name, sa.Text(), comment=comment, **options)


def id_column(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), sa.Identity(always=True), primary_key=True, comment="identity")


NOW = sa.text("now()")


SUMMARIZED = {"autosummarize": "true"}
"""For indexes of ranges: without, the pages since the last vacuum (up to a fifth of a month) are read for every question."""
