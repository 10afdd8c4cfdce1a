"""Pages of real processes beside forged ones: who is believed to be whom."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import rank_rig

from probing_cluster.probe_agent import page_child
from probing_cluster.probe_agent.inject.site._probing_probe import layout


def test_a_page_that_names_another_process_is_not_believed(rig: rank_rig.Rig) -> None:
    """A forged page with init's pid makes no rank alive and no rank dead."""
    process = rig.rank(0)
    raw = bytearray((rig.directory / f"p{process.pid}.page").read_bytes())
    raw[layout.H_PID * 8 : layout.H_PID * 8 + 8] = (1).to_bytes(8, "little")
    (rig.directory / "p1.page").write_bytes(raw)
    asyncio.run(rig.watch.look(7))
    assert [s for s in rig.taken if s.pid == 1] == []
    assert rig.watch.rows()["7:0"]["pid"] in {1, process.pid}
    asyncio.run(rig.watch.close())


def test_garbage_in_the_directory_changes_nothing(rig: rank_rig.Rig, tmp_path: Path) -> None:
    """Links, pipes, huge and short files, a flood: the one real rank is still seen."""
    process = rig.rank(0)
    (tmp_path / "secret").write_bytes(b"x" * layout.SIZE_BYTES)
    (rig.directory / "p100001.page").symlink_to(tmp_path / "secret")
    os.mkfifo(rig.directory / "p100002.page")
    (rig.directory / "p100003.page").write_bytes(b"\0" * 10)
    (rig.directory / "p100004.page").write_bytes(os.urandom(layout.SIZE_BYTES))
    os.link(tmp_path / "secret", rig.directory / "p100005.page")
    (rig.directory / "p100006.page").mkdir()
    with (rig.directory / "p100007.page").open("wb") as handle:
        handle.truncate(1 << 40)
    for number in range(200_000, 200_600):
        (rig.directory / f"p{number}.page").write_bytes(b"")

    async def look() -> dict[str, object]:
        await rig.watch.look(7)
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    rows = asyncio.run(look())
    assert set(rows) <= {"7:0"}
    direct = page_child.read_pages(str(rig.directory), os.getuid())
    assert "not a regular file" in str(direct) or direct["more"] > 0
    assert f"p{process.pid}.page" in direct["pages"] or direct["more"] > 0
    assert "p100001.page" not in direct["pages"]
    assert "p100005.page" not in direct["pages"]
