"""Rows that another release of ours may have written: a site goes back to an older one, and its files stay."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

LOG = logging.getLogger("probing.other_release")


def known_fields(kind: type, row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row of which the dataclass `kind` has a field; the log names the others once."""
    names = {field.name for field in dataclasses.fields(kind)}
    if unknown := row.keys() - names:
        _log_unknown(kind.__name__, ", ".join(sorted(unknown)))
    return {name: value for name, value in row.items() if name in names}


@functools.lru_cache(maxsize=64)  # some files are read every other second
def _log_unknown(record: str, names: str) -> None:
    LOG.info(
        "fields of another release are ignored", extra={"fields": {"record": record, "names": names[:200]}}
    )
