"""Rows of another release: what this one does not know is left out, and named once."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from probing_cluster.core import records
from probing_cluster.core.records import other_release


@dataclasses.dataclass(kw_only=True)
class Kept:
    """What this release keeps."""

    uuid: str
    index: int = 0


def test_unknown_fields_are_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the row is read."""
    caplog.set_level(logging.INFO, other_release.LOG.name)
    for _ in range(2):
        row = {"uuid": "GPU-1", "of_2041": 1, "of_2040": None}
        assert Kept(**records.known_fields(Kept, row)) == Kept(uuid="GPU-1")
    assert [vars(record)["fields"] for record in caplog.records] == [
        {"record": "Kept", "names": "of_2040, of_2041"}
    ]
