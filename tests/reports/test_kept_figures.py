"""The page draws what was kept of the caller's own job, and nothing where there is nothing."""

from pathlib import Path

import pytest

from probing_cluster.core import settings
from probing_cluster.evidence import kept_file
from probing_cluster.evidence.kept_file import Column, Table
from probing_cluster.reports import kept_figures


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    """Settings whose history has an attempt of job 7."""
    n = 1000
    train = Table(
        schema="python",
        name="</title><script>",
        columns=(
            Column(name="node", kind="text", values=["n1"] * n),
            Column(name="rank", kind="int", values=[i % 2 for i in range(n)]),
            Column(name="step", kind="int", values=[i // 2 for i in range(n)]),
            Column(name="loss", kind="float", values=[None if i == 7 else 5 / (1 + i) for i in range(n)]),
            Column(name="phase", kind="text", values=["x"] * n),
        ),
    )
    steps = Table(
        schema="torch",
        name="steps",
        columns=(
            Column(name="step", kind="int", values=[1, 2, 3]),
            Column(name="duration_s", kind="float", values=[None, 0.5, 0.7]),
        ),
    )
    for attempt, tables in (("c-7-0", [train]), ("c-7-1", [train, steps])):
        (tmp_path / attempt).mkdir()
        (tmp_path / attempt / "n1.kept").write_bytes(kept_file.write(tables, 1 << 20)[0])
    return settings.parse(f'[kept]\ndirectory = "{tmp_path}"\n')


def test_own_tables_and_steps_are_drawn(config: settings.Settings) -> None:
    """Numbers along the step, the time per step; of the last attempt; what a name holds is only text."""
    found = kept_figures.of_job(config, "c", 7)
    assert [f.title for f in found] == [
        "seconds per step along step",
        "</title><script>: loss along step",
    ]
    assert "from 0.5 at 2 to 0.7 at 3" in found[0].drawing
    assert "&lt;script&gt;" in found[1].drawing
    assert "<script>" not in found[1].drawing
    assert len(found[1].drawing.split('class="series"')[0].rpartition("points=")[2].split()) <= 301


def test_nothing_kept_draws_nothing(config: settings.Settings, tmp_path: Path) -> None:
    """No directory, no such job, a damaged file: the report is as it was."""
    assert kept_figures.of_job(settings.Settings(), "c", 7) == []
    assert kept_figures.of_job(config, "c", 8) == []
    (tmp_path / "c-9-0").mkdir()
    (tmp_path / "c-9-0" / "n1.kept").write_bytes(b"garbage")
    assert kept_figures.of_job(config, "c", 9) == []
