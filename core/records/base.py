"""What every stored record has: its enums, and how it comes from a row."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, TypeVar

from probing_cluster.core import clock

_T = TypeVar("_T")


class Severity(StrEnum):
    """How bad a fact is for the node it concerns (arXiv 2410.21680, section on health checks)."""

    INFO = "info"
    """Kept as evidence; no action."""
    LOW = "low"
    """The node should be looked at once its running jobs have ended."""
    HIGH = "high"
    """The node cannot run jobs now."""


class Outcome(StrEnum):
    """What a health check found; not seeing is not health."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    """The check itself could not run or did not end in time."""
    ABSENT = "absent"
    """The hardware or software the check is about is not on this node."""


class Domain(StrEnum):
    """The failure domain a cause belongs to (Table I of arXiv 2410.21680)."""

    USER_PROGRAM = "user_program"
    SYSTEM_SOFTWARE = "system_software"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"
    """Nobody can tell, or no failure domain applies (cancelled, preempted)."""


class Confidence(StrEnum):
    """How sure a verdict is: of "certain" at least 99 % are right, "likely" 90 %, "possible" 60 %."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


def json_fields(record: Any, *names: str) -> dict[str, Any]:
    """These fields of a record, in this order, as JSON has them: an enum's word, an instant in UTC, an id as text, a list."""
    return {name: _json(getattr(record, name)) for name in names}


def _json(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return clock.iso_z(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, tuple | list):
        return [_json(one) for one in value]
    return {key: _json(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def of_checked(cls: type[_T], values: Mapping[str, Any]) -> _T:
    """The record of values that need no second look: every field is given and every time is UTC already.

    Without `__init__`, which takes longer than all else where thousands are made a second.
    """
    made = object.__new__(cls)
    made.__dict__.update(values)
    return made


class FromRow:
    """Records know how to come from a row."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The record of a row whose keys are the field names; other keys are ignored."""
        names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in row.items() if k in names})


def make_event_id(cluster: str, node: str, source: str, position: str) -> uuid.UUID:
    """The 128-bit identity of an event: the same fact read twice has the same id.

    `position` is where the source saw it, never wall time: `<boot id>:<kmsg sequence>` for
    kernel lines, `<boot id>:<device>:<counter>:<value>` for NVML and sysfs. `node` is empty for what
    several nodes can see (a line of a job's log on a network file system).
    """
    digest = hashlib.blake2b(digest_size=16, person=b"probing-event-v1")
    for part in (cluster, node, source, position):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return uuid.UUID(bytes=digest.digest())
