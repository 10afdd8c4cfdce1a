"""How a record is declared: units in the fields' `doc`, UTC times. Apart from the records, which take ten times as long to load."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, dataclass_transform

from probing_cluster.core.clock import require_utc

_T = TypeVar("_T")


def doc(text: str, **kwargs: Any) -> Any:
    """A dataclass field whose meaning becomes the column's comment."""
    return field(metadata={"doc": text}, **kwargs)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(doc, field))
def record(cls: type[_T]) -> type[_T]:
    """A frozen, keyword-only dataclass that refuses naive datetimes."""

    def __post_init__(self: Any) -> None:
        # Millions are made: the instance's own dictionary instead of `fields`, and nothing for what is UTC already.
        for name, value in self.__dict__.items():
            if isinstance(value, datetime) and value.tzinfo is not UTC:
                object.__setattr__(self, name, require_utc(f"{cls.__name__}.{name}", value))

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)
