"""The columns: their Arrow types and meanings, from the records and from the figures' own classes."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from probing_cluster.attribution.reliability import fleet
from probing_cluster.attribution.reliability.fleet import base
from probing_cluster.db import arrow, tables
from probing_cluster.frames import meanings

_JSON = b"json"
"""Metadata of a text column that holds JSON."""


def of_record(record: type[Any]) -> pa.Schema:
    """A record's columns; ids are text, and so is JSON."""
    return pa.schema([_plain(field) for field in arrow.schema(record)])


def selected(record: type[Any], alias: str) -> str:
    """The record's columns for SELECT, in the types of `of_record`."""
    casts = {True: "::text[]", False: "::text"}
    names = []
    for field in arrow.schema(record):
        column = f'{alias}."{field.name}"'
        if not _plain(field).type.equals(field.type):
            column = f'{column}{casts[pa.types.is_list(field.type)]} AS "{field.name}"'
        names.append(column)
    return ", ".join(names)


def json_columns(schema: pa.Schema) -> list[str]:
    """The columns that hold JSON."""
    return [field.name for field in schema if _JSON in (field.metadata or {})]


def figures() -> Mapping[str, pa.Schema]:
    """Every fleet figure with its columns."""
    return {
        name: _of_figure(typing.get_type_hints(getattr(fleet, name))["return"])[1] for name in fleet.__all__
    }


def figure_table(figure: base.Figure) -> pa.Table:
    """A figure's rows; what holds for all of them is JSON in the metadata's `figure`."""
    part, schema = _of_figure(type(figure))
    rows = getattr(figure, part) if part else (figure,)
    plain = [dict(_flat(row)) for row in rows]
    for name in json_columns(schema):
        for row in plain:
            row[name] = json.dumps(row[name])
    whole = {k: v for k, v in figure.to_json().items() if k != part}
    made = pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in plain], schema=schema)
    return made.replace_schema_metadata({"figure": json.dumps(whole)})


def _of_figure(cls: type[Any]) -> tuple[str | None, pa.Schema]:
    """The field that holds a figure's rows (None: it is one row itself) and their columns."""
    hints = typing.get_type_hints(cls)
    for name, hint in hints.items():
        inner = typing.get_args(hint)[:1]
        if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(inner[0]):
            return name, pa.schema(list(_fields(typing.cast("type[Any]", inner[0]))))
    return None, pa.schema(list(_fields(cls, about_span=False)))


def _fields(cls: type[Any], prefix: str = "", *, about_span: bool = True) -> Iterator[pa.Field]:
    """A row class's columns; a class inside it gives columns with its name in front."""
    hints = typing.get_type_hints(cls)
    left_out = () if about_span else {field.name for field in dataclasses.fields(base.Figure)}
    for field in dataclasses.fields(cls):
        if field.name in left_out:
            continue
        kind, optional = tables.split_optional(hints[field.name])
        name = prefix + field.name
        if dataclasses.is_dataclass(kind):
            yield from _fields(typing.cast("type[Any]", kind), f"{name}_")
            continue
        metadata: dict[bytes, str | bytes] = {
            b"doc": field.metadata.get("doc") or meanings.of_figure_column(name)
        }
        if typing.get_origin(kind) is dict or _is_of_mappings(kind):
            yield pa.field(name, pa.string(), metadata={**metadata, _JSON: b""})
        else:
            yield pa.field(name, arrow.arrow_type(kind), nullable=optional or bool(prefix), metadata=metadata)


def _is_of_mappings(kind: Any) -> bool:
    """Whether it is a tuple of rows whose columns only the rows know."""
    inner = typing.get_args(kind)[:1]
    return bool(inner) and typing.get_origin(inner[0]) is Mapping


def _flat(row: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value, f"{prefix}{field.name}_")
        else:
            yield prefix + field.name, value


def _plain(field: pa.Field) -> pa.Field:
    """The column as notebooks want it: an id or JSON as text."""
    if field.type == pa.uuid():
        return field.with_type(pa.string())
    if field.type == pa.list_(pa.uuid()):
        return field.with_type(pa.list_(pa.string()))
    if field.type == pa.json_(pa.string()):
        return field.with_type(pa.string()).with_metadata({**(field.metadata or {}), _JSON: b""})
    return field
