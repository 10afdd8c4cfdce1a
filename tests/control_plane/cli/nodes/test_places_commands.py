"""`probing-ctl places`, as a person uses it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.core import records
from probing_cluster.db import store as db_store

NOW = datetime.now(UTC)


@pytest.fixture
def ctl(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on the test's database: exit code, output, errors."""
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.url}"\n')

    def run(*words: str) -> tuple[int, str, str]:
        code = main.main(["places", *words, "--config", str(config)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_from_nothing_known_to_one_nodes_places(
    ctl: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Nothing says how to write a table; a table is loaded and shown; a node nobody knows is exit 3."""
    code, out, _ = ctl("list")
    assert (code, "docs/places.md" in out) == (0, True)
    table = tmp_path / "places.csv"
    table.write_text("node,rack,pdu\nn[1-4],r1,p1\nn[5-8],r2,p1\n")
    assert ctl("load", str(table))[1] == "8 nodes, rack, pdu: 16 places changed.\n"
    assert ctl("list")[1].split() == ["kind", "places", "nodes", "pdu", "1", "8", "rack", "2", "8"]
    assert json.loads(ctl("list", "--node", "n7", "--json")[1]) == [
        {"kind": "pdu", "place": "p1", "nodes": 8}, {"kind": "rack", "place": "r2", "nodes": 4},
    ]  # fmt: skip
    code, _, err = ctl("list", "--node", "n9")
    assert (code, "no place of n9 is known" in err) == (3, True)
    table.write_text("rack\n")
    assert ctl("load", str(table))[0] == 7


def test_the_scan_names_the_rack_that_fails_more(
    ctl: Callable[..., tuple[int, str, str]], store: db_store.Store
) -> None:
    """One rack with thirty incidents among fifty with one each; a wide incident counts once a place, a user's bug never."""
    store.save_places("c", ["rack"], [(f"n{i}", "rack", f"r{i // 8}") for i in range(400)], NOW)

    def verdict(job: int, node: str, incident: int, **changes: object) -> records.Verdict:
        values: dict[str, object] = {
            "cluster": "c", "job_id": job, "submit_at": NOW, "cause": "gpu_lost", "domain": records.Domain.HARDWARE,
            "node": node, "confidence": records.Confidence.LIKELY, "summary": "s", "rules_version": "1", "made_at": NOW,
            "incident_id": uuid.UUID(int=incident), "onset_at": NOW - timedelta(days=1),
        }  # fmt: skip
        return records.Verdict(**(values | changes))

    many = [verdict(i, f"n{i % 8}", i) for i in range(1, 31)]
    one_each = [verdict(100 + i, f"n{8 * i}", 100 + i) for i in range(1, 50)]
    wide = [verdict(200 + i, f"n{16 + i}", 999) for i in range(8)]
    bugs = [verdict(300 + i, "n24", 300 + i, domain=records.Domain.USER_PROGRAM) for i in range(40)]
    store.save_verdicts([*many, *one_each, *wide, *bugs])
    code, out, _ = ctl("scan", "--json")
    (row,) = json.loads(out)
    assert (code, row["place"], row["failures"], row["nodes"]) == (0, "r0", 30, 8)
    assert ctl("scan", "--since", "1h")[1].startswith("None of 50 places has more failures")
    assert ctl("scan", "--false-share", "2")[0] == 2
