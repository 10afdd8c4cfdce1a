"""The manual names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from probing_cluster.db import roles, tables

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "database.md").read_text(encoding="utf-8")


def test_every_table_and_group_is_in_the_manual() -> None:
    """Each table and each group of roles has its row, and no row names what is not there."""
    rows = set(re.findall(r"^\| `(\w+)` \|", MANUAL, re.MULTILINE))
    there = {table.name for table in tables.metadata.tables.values()} | set(roles.GROUPS)
    assert there == {name for name in rows if "/" not in name and name != "lock"}
