"""Kept tables become Parquet once, however often and by however many readers."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from probing_cluster.attribution.history import kept, kept_sql
from probing_cluster.core import errors, settings
from probing_cluster.evidence import kept_file
from probing_cluster.evidence.kept_file import KeptColumn, KeptTable


def keep(attempt: Path, node: str, *steps: int, **more: list[str | None]) -> None:
    """A node's file."""
    attempt.mkdir(exist_ok=True)
    n = len(steps)
    columns = (
        KeptColumn(name="node", kind="text", values=[node] * n),
        KeptColumn(name="at", kind="time", values=[10**18] * n),
        KeptColumn(name="step", kind="int", values=list(steps)),
        KeptColumn(name="loss", kind="float", values=[s / 2 for s in steps]),
        *(KeptColumn(name=name, kind="text", values=values) for name, values in more.items()),
    )
    table = KeptTable(schema="python", name="a b/c.d", columns=columns)
    (attempt / f"{node}.kept").write_bytes(kept_file.write([table], 1 << 20)[0])


def steps(attempt: Path) -> list[int]:
    """The column of the one table."""
    return sorted(kept.tables(attempt)["python", "a b/c.d"]["step"].to_pylist())


def test_nodes_files_become_one_table(tmp_path: Path) -> None:
    """Also those that come later, and with columns that others lack; the raw files are gone, the directory's age stays."""
    attempt = tmp_path / "c-7-0"
    keep(attempt, "n1", 1, 2)
    keep(attempt, "n2", 3, why=["x"])
    os.utime(attempt, (1000, 1000))
    found = kept.tables(attempt)["python", "a b/c.d"]
    assert sorted(found["step"].to_pylist()) == [1, 2, 3]
    assert sorted(map(str, found["why"].to_pylist())) == ["None", "None", "x"]
    assert found["at"][0].as_py() == datetime.fromtimestamp(10**9, UTC)
    assert sorted(p.suffix for p in attempt.iterdir()) == [".nodes", ".parquet"]
    assert attempt.stat().st_mtime == 1000
    keep(attempt, "n3", 4)
    keep(attempt, "n1", 99)  # a copy that was not removed is not read again
    assert steps(attempt) == [1, 2, 3, 4]
    assert steps(attempt) == [1, 2, 3, 4]


def test_numbers_are_delta_coded_and_floats_split(tmp_path: Path) -> None:
    """The encodings are in the file."""
    keep(tmp_path / "a", "n1", *range(1000))
    kept.tables(tmp_path / "a")
    (path,) = (tmp_path / "a").glob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in found["step"].encodings
    assert "BYTE_STREAM_SPLIT" in found["loss"].encodings
    assert {c.compression for c in found.values()} == {"ZSTD"}


@pytest.mark.parametrize("at", ["table", "mark"])
def test_an_interruption_loses_and_doubles_nothing(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is, the next reader has every row once."""
    attempt = tmp_path / "a"
    keep(attempt, "n1", 1)
    keep(attempt, "n2", 2)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(
            *((kept, "write_parquet", fail) if at == "table" else (Path, "replace", fail))  # type: ignore[call-overload]
        )
        with pytest.raises(KeyboardInterrupt):
            kept.tables(attempt)
    assert steps(attempt) == [1, 2]


def test_the_same_sql_as_of_a_running_job(tmp_path: Path) -> None:
    """Tables under their schemas, names quoted where they must be."""
    keep(tmp_path / "a", "n1", 1, 2, 3)
    calls = kept_sql.context(kept.tables(tmp_path / "a"))
    rows = calls.sql('SELECT node, avg(loss) AS loss FROM python."a b/c.d" GROUP BY node').to_pylist()
    assert rows == [{"node": "n1", "loss": 1.0}]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another's directory")
def test_attempts_of_a_job_in_order(tmp_path: Path) -> None:
    """Of this cluster and job, the caller's own; neither files nor links nor others'."""
    for name in ("c-7-0", "c-7-10", "c-7-2", "c-70-0", "d-7-0", "c-7-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "c-7-4").write_text("")
    (tmp_path / "c-7-5").symlink_to(tmp_path / "c-7-0")
    (tmp_path / "c-7-6").mkdir()
    os.chown(tmp_path / "c-7-6", 12345, 12345)
    assert [p.name for p in kept.attempts(tmp_path, "c", 7)] == ["c-7-0", "c-7-2", "c-7-10"]
    assert kept.attempts(tmp_path / "none", "c", 7) == []


def test_the_directory_is_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name and the home are put in; none where the site keeps nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "eva")
    assert kept.directory_of(settings.KeptSettings()) is None
    assert kept.directory_of(settings.KeptSettings(directory="%h/.probing/%u")) == tmp_path / ".probing/eva"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """And stays where it is."""
    keep(tmp_path / "a", "n1", 1)
    (tmp_path / "a" / "n2.kept").write_bytes(b"garbage")
    with pytest.raises(errors.MalformedInput, match="n2"):
        kept.tables(tmp_path / "a")
    assert (tmp_path / "a" / "n2.kept").exists()
