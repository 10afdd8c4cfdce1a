"""The page draws what was kept of the caller's own job, and nothing where there is nothing."""

from pathlib import Path

import pytest

from probing_cluster.core import settings
from probing_cluster.evidence import kept_file
from probing_cluster.evidence.kept_file import KeptColumn, KeptTable
from probing_cluster.reports.charts import kept_figures


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    """Settings whose history has an attempt of job 7."""
    n = 1000
    train = KeptTable(
        schema="python",
        name="</title><script>",
        columns=(
            KeptColumn(name="node", kind="text", values=["n1"] * n),
            KeptColumn(name="rank", kind="int", values=[i % 2 for i in range(n)]),
            KeptColumn(name="step", kind="int", values=[i // 2 for i in range(n)]),
            KeptColumn(name="loss", kind="float", values=[None if i == 7 else 5 / (1 + i) for i in range(n)]),
            KeptColumn(name="phase", kind="text", values=["x"] * n),
        ),
    )
    steps = KeptTable(
        schema="torch",
        name="steps",
        columns=(
            KeptColumn(name="step", kind="int", values=[1, 2, 3]),
            KeptColumn(name="duration_s", kind="float", values=[None, 0.5, 0.7]),
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


@pytest.mark.parametrize("peak", [100.0, None])
def test_utilisation_is_drawn_where_a_table_tells_tokens_and_parameters(
    tmp_path: Path, peak: float | None
) -> None:
    """Two ranks, 1e12 parameters, 5 tokens each a step of a second: 30 TFLOP/s per GPU, 30 % of 100; without a peak the rate alone."""
    columns = [
        KeptColumn(name="rank", kind="int", values=[0, 1] * 3),
        KeptColumn(name="step", kind="int", values=[0, 0, 1, 1, 2, 2]),
        KeptColumn(name="tokens", kind="int", values=[5] * 6),
        KeptColumn(name="parameters", kind="float", values=[1e12] * 6),
        KeptColumn(name="duration_s", kind="float", values=[1.0] * 6),
    ]
    if peak is not None:
        columns.append(KeptColumn(name="peak_tflops", kind="float", values=[peak] * 6))
    (tmp_path / "c-7-0").mkdir()
    table = KeptTable(schema="python", name="train", columns=tuple(columns))
    (tmp_path / "c-7-0" / "n1.kept").write_bytes(kept_file.write([table], 1 << 20)[0])
    first, *_ = kept_figures.of_job(settings.parse(f'[kept]\ndirectory = "{tmp_path}"\n'), "c", 7)
    assert first.title.startswith("model FLOPs utilisation" if peak else "model TFLOP/s per GPU")
    assert f"from {0.3 if peak else 30} at 0 to {0.3 if peak else 30} at 2" in first.drawing
