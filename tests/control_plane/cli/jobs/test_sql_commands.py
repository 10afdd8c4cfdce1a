"""`probing-ctl sql` as a person calls it: formats, what is missing in words, exit codes, ways out."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from pyarrow import parquet

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.jobs import sql_commands
from probing_cluster.core import errors
from probing_cluster.evidence import kept_file
from probing_cluster.live.ways import jobs, streams
from probing_cluster.probe_agent import inject

RANK = """
import sys, time
from _probing_probe import page
page.open_page()
page.write_identity(rank=int(sys.argv[1]), world=2, backend="gloo")
for _ in range(3):
    page.step_done()
print("ready", flush=True)
time.sleep(600)
"""
RANKS = "SELECT rank, step, started_at < at AS sane FROM ranks ORDER BY rank"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of a node with a job of one living rank of two."""
    base = tmp_path_factory.mktemp("sql")
    directory = base / "jobs/7"
    directory.mkdir(parents=True)
    environment = {"PROBING_PAGE_DIR": str(directory), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", RANK, "0"], env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    path = base / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[agent]\nnode = "n1"\njob_directory = "{base}/jobs"\n[live]\ntimeout_s = 20.0\n'
    )
    yield path
    process.kill()
    process.wait()
    process.stdout.close()


def run(config: Path, capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[int, bytes, str]:
    code = main.main(["sql", "7", "--config", str(config), "--via", "local", *words])
    out, err = capfdbinary.readouterr()
    return code, out, err.decode()


def test_every_format(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The same rows in each; standard output is the answer alone, what is missing stands on standard error, exit code 8."""
    wanted = [{"rank": 0, "step": 3, "sane": True}]
    for form in ("table", "json", "csv", "arrow", "parquet"):
        code, out, err = run(config, capfdbinary, "--format", form, RANKS)
        assert (code, err) == (
            8,
            "probing-ctl: 1 of 2 ranks; rank 1: no node that was asked has a page of it\n",
        ), form
        if form == "json":
            assert json.loads(out) == wanted
        elif form == "csv":
            assert list(csv.reader(io.StringIO(out.decode()))) == [
                ["rank", "step", "sane"],
                ["0", "3", "True"],
            ]
        elif form == "arrow":
            assert pa.ipc.open_stream(out).read_all().to_pylist() == wanted
        elif form == "parquet":
            assert parquet.read_table(io.BytesIO(out)).to_pylist() == wanted
        else:
            assert out.decode().split() == ["rank", "step", "sane", "0", "3", "True"]


def test_a_job_without_the_probe_is_said_to_be_one(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """No rows, or a count of 0, would look as if it had no ranks."""
    (tmp_path / "jobs/7").mkdir(parents=True)
    path = tmp_path / "probing.toml"
    path.write_text(f'[cluster]\nname = "c"\n[agent]\nnode = "n1"\njob_directory = "{tmp_path}/jobs"\n')
    for statement in (RANKS, "SELECT count(*) FROM torch.steps"):
        _, _, err = run(path, capfdbinary, statement)
        assert "no process of the job has a page of the probe" in err, statement
    for statement in ("SELECT node FROM kernel.events", "SELECT * FROM cluster.missing"):
        _, _, err = run(path, capfdbinary, statement)
        assert "page of the probe" not in err, statement


def test_a_whole_answer_is_exit_code_0(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = run(config, capfdbinary, "SELECT 1 AS one", "--format", "csv")
    assert (code, out, err) == (0, b"one\n1\n", "")


def test_times_and_numbers_in_json(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """ISO in UTC; what JSON has no number for is null."""
    statement = "SELECT TIMESTAMP '2026-11-20T12:00:00.25Z' AS t, 0.0/0.0 AS n, NULL AS z, [1, 2] AS l"
    code, out, _ = run(config, capfdbinary, "--format", "json", statement)
    assert code == 0
    assert json.loads(out) == [{"t": "2026-11-20T12:00:00.250000Z", "n": None, "z": None, "l": [1, 2]}]


def test_explain_is_readable(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _, out, _ = run(config, capfdbinary, "EXPLAIN SELECT rank FROM ranks WHERE step > 2")
    assert (
        "asked of every node:\ncluster.ranks\n  columns: rank, step\n  condition: step > 2\n" in out.decode()
    )


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        (("SELECT nope FROM ranks",), 2, "no column nope in ranks; the nearest: node; "),
        (("SELECT nope FROM ranks",), 2, "DESCRIBE ranks lists all 27"),
        (("SELECT * FROM rankz",), 2, "no table cluster.rankz; the nearest: cluster.ranks, "),
        (("SELEC 1",), 2, "no SQL that is understood: Expected: an SQL statement, found: SELEC"),
        (("SELECT 1", "--timeout", "0"), 2, "above 0"),
        (("SELECT 1", "--watch", "-1"), 2, "above 0"),
        (("SELECT 1", "--timeout", "inf"), 2, "'inf' is no number of seconds above 0 and at most 86,400"),
        (("SELECT 1", "--watch", "nan"), 2, "'nan' is no number of seconds"),
    ],
)
def test_wrong_usage_says_the_way_out(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes], words: tuple[str, ...], code: int, advice: str
) -> None:
    found, _, err = run(config, capfdbinary, *words)
    assert found == code
    assert advice in err


def _unknown(text: str, *_: object) -> NoReturn:
    raise errors.NotFound(f"Slurm does not know job {text}")


def test_a_job_that_is_not_here(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this node alone it may run elsewhere; where Slurm does not know it, what was kept of it is looked for, too."""
    code = main.main(["sql", "9", "SELECT 1", "--via", "local", "--config", str(config)])
    assert code == 3
    err = capfdbinary.readouterr()[1].decode()
    assert "no pages on this host" in err
    assert "ask on a node where it runs" in err
    assert "over" not in err
    monkeypatch.setattr(jobs, "find", _unknown)
    assert main.main(["sql", "9", "SELECT 1", "--config", str(config)]) == 3
    err = capfdbinary.readouterr()[1].decode()
    assert "this site keeps no tables of ended jobs ([kept] directory)" in err
    assert err.endswith("probing-report 9 tells what is known of a job that is over\n")
    kept_in = config.with_name("kept.toml")
    kept_in.write_text(config.read_text() + '[kept]\ndirectory = "/nonexistent/kept"\n')
    assert main.main(["sql", "9", "SELECT 1", "--config", str(kept_in)]) == 3
    err = capfdbinary.readouterr()[1].decode()
    assert (
        "nothing of it was kept in /nonexistent/kept (kept are, for 30 days and for their owner alone" in err
    )
    assert main.main(["sql", "9_4", "SELECT 1", "--config", str(kept_in)]) == 3
    assert "by the raw job id (sacct -X -n -o JobIDRaw -j 9_4)" in capfdbinary.readouterr()[1].decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_a_folder_of_anothers_is_named(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a parent that all may write to, another user made it first."""
    monkeypatch.setattr(jobs, "find", _unknown)
    taken = config.with_name("taken")
    taken.mkdir()
    os.chown(taken, 65534, 65534)
    kept_in = config.with_name("kept.toml")
    kept_in.write_text(f'{config.read_text()}[kept]\ndirectory = "{taken}"\n')
    assert main.main(["sql", "9", "SELECT 1", "--config", str(kept_in)]) == 3
    err = capfdbinary.readouterr()[1].decode()
    assert (
        f"nothing of it was kept, for {taken} belongs to user nobody, not to user root: whoever runs" in err
    )
    assert main.main(["sql", "9_4", "SELECT 1", "--config", str(kept_in)]) == 3
    assert "by the raw job id" in capfdbinary.readouterr()[1].decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_root_asks_as_the_owner_and_another_user_is_refused(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    directory = config.parent / "jobs/11"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    code = main.main(
        ["sql", "11", "SELECT value FROM python.`1+1`", "--via", "local", "--config", str(config)]
    )
    assert code == 5
    err = capfdbinary.readouterr()[1].decode()
    assert "only the job's owner may evaluate" in err
    assert "holds the GIL" not in err  # refused first: nothing would have run


def missing(**fields: object) -> streams.Missing:
    return streams.Missing(**{"node": None, "reason": "no answer in 2 s", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], []),
        ([missing(node="n3")], ["7 of 8 ranks; n3: no answer in 2 s"]),
        (
            [missing(node=f"n{i}") for i in reversed(range(10))],
            ["7 of 8 ranks; n0, n1, n2, n3, n4, n5, n6, n7 and 2 more: no answer in 2 s"],
        ),
        ([missing(rank=4, reason="x"), missing(rank=2, reason="x")], ["7 of 8 ranks; ranks 2, 4: x"]),
        ([missing(node="n1", rank=1, table="a.b", reason="x")], ["7 of 8 ranks; rank 1 on n1, a.b: x"]),
        ([missing(reason="Slurm does not answer")], ["7 of 8 ranks; job: Slurm does not answer"]),
    ],
)
def test_what_is_missing_in_words(found: list[streams.Missing], words: list[str]) -> None:
    assert sql_commands.missing_words(found, 7, 8) == words


def test_a_question_ends_its_process_once_all_is_written(config: Path) -> None:
    """Rows, words and the exit code are there; its libraries are not taken down one by one."""
    code = (
        "import atexit, sys; atexit.register(print, 'taken down')\n"
        f"sys.argv = ['probing-ctl', 'sql', '7', {RANKS!r}, '--via', 'local', '--format', 'csv', '--config', {str(config)!r}]\n"
        f"from {main.__name__.rpartition('.')[0]} import main\nmain.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (8, "rank,step,sane\n0,3,True\n")
    assert "rank 1" in done.stderr


def test_a_job_without_the_probe_says_why_it_has_no_rows(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Its directory is there and no page in it: whatever is read of ranks, the reasons that this can have are named."""
    directory = config.parent / "jobs/8"
    directory.mkdir(mode=0o700)
    for table in ("ranks", "python.backtrace", "process.envs", "torch.steps"):
        assert (
            main.main(["sql", "8", f"SELECT * FROM {table}", "--via", "local", "--config", str(config)]) == 0
        )
        words = capfdbinary.readouterr().err.decode()
        assert "no process of the job has a page of the probe" in words, table
        assert "none has imported torch" in words
        assert "PROBING=off" in words
    directory.rmdir()


def test_a_job_that_is_over_is_asked_for_what_was_kept(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The last start's tables, with the same SQL; standard error says so."""
    for start, losses in ((0, [9.0]), (1, [0.5, 0.25])):
        columns = (
            kept_file.KeptColumn(name="step", kind="int", values=list(range(len(losses)))),
            kept_file.KeptColumn(name="loss", kind="float", values=losses),
        )
        attempt = tmp_path / f"kept/c-9-{start}"
        attempt.mkdir(parents=True)
        table = kept_file.KeptTable(schema="python", name="train", columns=columns)
        (attempt / "n1.kept").write_bytes(kept_file.write([table], 1 << 20)[0])
    config = tmp_path / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[agent]\njob_directory = "{tmp_path}/jobs"\n[kept]\ndirectory = "{tmp_path}/kept"\n'
    )
    words = ["sql", "9", "--via", "local", "--config", str(config), "--format", "csv"]
    assert main.main([*words, "SELECT step, loss FROM python.train ORDER BY step"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == "step,loss\n0,0.5\n1,0.25\n"
    assert err.decode() == "probing-ctl: job 9 is over: what was kept of its start 1\n"
    assert main.main([*words, "SELECT nope FROM python.train"]) == 2
    assert main.main([*words, "--watch", "1", "SELECT 1"]) == 2
    # A console, its lines from a file: as a person types them.
    typed = (
        "\\d\nSELECT nope FROM python.train\nSELECT max(step) AS most \\\n FROM python.train\n\\q\nSELECT 7\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", main.__name__, *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == "table_schema,table_name\npython,train\nmost\n1\n"
    assert "what was kept of its start 1" in done.stderr
    assert "nope" in done.stderr


@pytest.mark.parametrize(
    ("wanted_s", "least_s", "waited_s"), [(1.0, 3.0, 3.0), (5.0, 3.0, 5.0), (1.0, 0.0, 1.0)]
)
def test_through_the_agents_nobody_asks_more_often_than_the_service_allows(
    monkeypatch: pytest.MonkeyPatch, wanted_s: float, least_s: float, waited_s: float
) -> None:
    """Beyond 40 questions a minute the service refuses, and the watch would end."""
    waits: list[float] = []
    asking = types.SimpleNamespace(sql=lambda query: query, over=False)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        asking.over = True

    monkeypatch.setattr(sql_commands, "_show", lambda *_: 0)
    monkeypatch.setattr(sql_commands, "time", types.SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    args = argparse.Namespace(watch=wanted_s, format="csv")
    assert sql_commands._watch(args, asking, "SELECT 1", least_s) == 0  # type: ignore[arg-type]
    assert waits == [waited_s]
