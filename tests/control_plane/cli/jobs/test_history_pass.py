"""`probing-ctl attribute --engine`: the exported history judged again, here or on Dask, stores nothing and gives the same rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.attribution import generate
from probing_cluster.attribution.history import history
from probing_cluster.attribution.passes import attribute, distributed
from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.jobs import history_pass
from probing_cluster.core import errors, records, settings
from probing_cluster.db import store as db_store

SINCE = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=45)
SPAN = ("--since", "2025-01-01", "--until", "2025-02-15")
SCALE = generate.Scale(n_nodes=24, days=40, n_attempts=1500, n_events=8_000, seed=5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up history."""
    where = tmp_path_factory.mktemp("history")
    generate.generate(where, SCALE)
    return where


def call(*words: object) -> int:
    return main.main(["attribute", *map(str, words)])


def test_here_it_is_the_engines_own_rows(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has every verdict with its attempt's names; the counts are the file's; months or days, the same."""
    truth = pa.concat_tables(list(distributed.run(made, SINCE, UNTIL))).sort_by("attempt_id")
    assert (
        call(*SPAN, "--engine", "local", "--history", made, "--output", tmp_path / "a.parquet", "--json") == 0
    )
    printed = json.loads(capsys.readouterr().out)
    rows = pq.read_table(tmp_path / "a.parquet")
    assert rows.select(truth.column_names).sort_by("attempt_id").equals(truth.combine_chunks())
    assert rows["job_id"].null_count == 0
    assert printed["attempts"] == truth.num_rows > 100
    assert sum(printed["causes"].values()) == truth.num_rows
    assert len(printed["causes"]) > 3
    call(
        *SPAN, "--engine", "local", "--history", made, "--output", tmp_path / "b.parquet", "--slice-days", "7"
    )
    assert "nothing stored" in capsys.readouterr().out
    assert pq.read_table(tmp_path / "b.parquet").sort_by("attempt_id").equals(rows.sort_by("attempt_id"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)  # Dask's own start-up and end
def test_on_dask_it_is_the_same(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through a scheduler that runs; a history that its workers cannot see is one line."""
    dask = pytest.importorskip("distributed")
    call(*SPAN, "--engine", "local", "--history", made, "--output", tmp_path / "a.parquet")
    with dask.LocalCluster(n_workers=1, dashboard_address=None, silence_logs=50) as cluster:
        engine = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"
        code = call(*SPAN, "--engine", engine, "--history", made, "--output", tmp_path / "b.parquet")
        assert code == 0
        with pytest.raises(errors.UsageError, match="where all workers can read it"):
            list(distributed.run(tmp_path / "elsewhere", SINCE, UNTIL, engine=engine))
    assert pq.read_table(tmp_path / "b.parquet").equals(pq.read_table(tmp_path / "a.parquet"))


def test_an_exported_month_is_judged_as_it_was(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the service judged and exported comes out the same; a verdict that is no longer the rules' is counted; nothing is stored."""
    start = datetime(2025, 3, 3, tzinfo=UTC)
    attempts = [
        records.JobAttempt(
            cluster="c", job_id=n, submit_at=start, start_at=start, end_at=start + timedelta(hours=n), state=state,
            exit_code=1, nodes=("n1",), n_gpus=8, user="alice",
        )
        for n, state in ((1, "FAILED"), (2, "TIMEOUT"), (3, "OUT_OF_MEMORY"))
    ]  # fmt: skip
    store.upsert_attempts(attempts)
    attribute.attribute(store)
    where = tmp_path / "history"
    history.export(store, where, before=start + timedelta(days=60), since=start)
    before = {v.job_id: v.cause for v in store.verdicts()}
    config = tmp_path / "probing.toml"
    config.write_text(f'[attribution]\nhistory_directory = "{where}"\n')
    assert (
        call("--since", "2025-03-01", "--until", "2025-04-01", "--engine", "local", "--config", config) == 0
    )
    out = capsys.readouterr().out
    assert "3 attempts of the history (it ends at 2025-05-01) judged, 0 of another cause than it holds" in out
    table = pq.read_table(where / "attempts/month=2025-03/part.parquet", partitioning=None)
    wrong = pa.array(["gpu_lost"] * table.num_rows)
    changed = table.set_column(table.column_names.index("cause"), "cause", wrong)
    pq.write_table(changed, where / "attempts/month=2025-03/part.parquet")
    output = tmp_path / "v.parquet"
    call(
        "--since",
        "2025-03-01",
        "--until",
        "2025-04-01",
        "--engine",
        "local",
        "--config",
        config,
        "--output",
        output,
    )
    assert "3 of another cause than it holds" in capsys.readouterr().out
    rows = pq.read_table(output).to_pylist()
    assert {r["job_id"]: r["cause"] for r in rows} == before
    assert {r["cause_before"] for r in rows} == {"gpu_lost"}
    assert {v.job_id: v.cause for v in store.verdicts()} == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--engine", "local"), "give --since"),
        (("--engine", "local", "--since", "7d", "--job", "3"), "no --job"),
        (("--engine", "local", "--since", "7d"), "no history is named"),
        (("--engine", "local", "--since", "7d", "--history", "/"), "holds no history"),
        (("--engine", "local", "--since", "7d", "--slice-days", "-1"), "above 0"),
        (("--engine", "local", "--since", "7d", "--slice-days", "nan"), "above 0"),
        (("--engine", "local", "--since", "7d", "--worker", "gpus=2"), "names: n_jobs"),
        (("--engine", "local", "--since", "7d", "--worker", "cores=two"), "whole number"),
        (("--since", "7d", "--output", "x"), "go with --engine"),
        (("--engine", "spark", *SPAN, "--history", "MADE"), "valid: local, dask://HOST:PORT, slurm"),
        (("--engine", "local", "--since", "2025-02-01", "--until", "2025-01-01", "--history", "MADE"), "before it begins"),
        (("--engine", "local", *SPAN, "--history", "MADE", "--output", "/none/x.parquet"), "no directory"),
    ],
)  # fmt: skip
def test_slips_are_one_line(
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    """The fact and the way out, exit code 2."""
    (tmp_path / "probing.toml").write_text("[attribution]\n")
    monkeypatch.setenv("PROBING_CONFIG", str(tmp_path / "probing.toml"))
    assert call(*(str(made) if word == "MADE" else word for word in words)) == 2
    assert sentence in capsys.readouterr().err


def test_what_to_ask_slurm_for() -> None:
    """Lists are given word by word."""
    calls = history_pass.workers(
        ["n_jobs=8", "memory=16GiB", "directives=--account=ops", "directives=--gres=none"]
    )
    assert calls == distributed.SlurmWorkers(
        n_jobs=8, memory="16GiB", directives=("--account=ops", "--gres=none")
    )


def test_a_pass_that_fails_leaves_no_file(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file would look like a whole one."""

    def broken(*args: object, **options: object) -> object:
        yield from list(real(*args, **options))[:1]
        raise errors.ProbingError("the engine stopped")

    real = distributed.run
    monkeypatch.setattr(distributed, "run", broken)
    order = history_pass.PassOrder(
        engine="local", since=SINCE, until=UNTIL, directory=made, output=tmp_path / "v.parquet"
    )
    with pytest.raises(errors.ProbingError, match="stopped"):
        history_pass.run(order, settings.Settings())
    assert list(tmp_path.iterdir()) == []
