"""What job-side bytes mean, through evidence.joblog and evidence.flight_recorder; runs in the collecting child only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_FINDINGS = 200


def log_findings(data: bytes, start: int) -> list[dict[str, Any]]:
    """The findings of a log's tail, each with the byte `offset` of its line in the file."""
    del data, start
    return []


def dump_findings(dumps: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """What the dumps of one node's ranks say together."""
    del dumps
    return []
