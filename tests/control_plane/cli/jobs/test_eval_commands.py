"""`probing-ctl eval` on a node of a live job: values, what was raised and what is silent, each with its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.probe_agent import inject

PROGRAM = """
import os, sys, time
from _probing_probe import page, responder
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=2, backend="gloo")
if rank < 2:
    responder.start()
touched = []
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
Run = Callable[..., int]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ranks 0 and 1 of job 7, live; rank 2 is not. The path of the settings."""
    base = tmp_path_factory.mktemp("eval")
    directory = base / "jobs" / "7"
    directory.mkdir(parents=True, mode=0o700)
    (base / "train.py").write_text(PROGRAM)
    (base / "probing.toml").write_text(
        f'[cluster]\nname = "c"\n[agent]\nnode = "n1"\njob_directory = "{base / "jobs"}"\n'
    )
    environment = {
        "PROBING_PAGE_DIR": str(directory),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING": "live",
        "SLURM_JOB_ID": "7",
        "PATH": os.environ["PATH"],
    }
    ranks = []
    for rank in range(3):
        argv = [sys.executable, "-S", str(base / "train.py"), str(rank)]
        ranks.append(
            subprocess.Popen(argv, env=environment | {"SLURM_PROCID": str(rank)}, stdout=subprocess.PIPE)
        )
    for process in ranks:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    yield base / "probing.toml"
    for process in ranks:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def run(job: Path) -> Run:
    """The command on the node of the job."""
    return lambda *argv: main.main(["--config", str(job), "eval", "7", *argv, "--local", "--quiet"])


def test_a_value_of_one_rank_and_of_all(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Of rank 2, which is not live, is said that it is not and how it would be; the others are there."""
    assert run("rank * 10 + 1", "--rank", "1", "--json") == 0
    (answer,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (answer["rank"], answer["node"], answer["columns"], answer["rows"], answer["error"]) == (
        1, "n1", ["value"], [[11]], None,
    )  # fmt: skip
    assert (
        run("rank", "--rank", "1", "--json") == 0
    )  # a variable, where SQL would take the name for a table's
    assert json.loads(capsys.readouterr().out)["rows"] == [[1]]
    assert run("{'rank': rank, 'twice': rank * 2}", "--json") == 8
    found = capsys.readouterr()
    assert [json.loads(line)["rows"] for line in found.out.splitlines()] == [[[0, 0]], [[1, 2]]]
    assert "rank 2 on n1: not live" in found.err
    assert "--probing=live" in found.err


def test_only_the_rank_that_is_named_evaluates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """An expression may stop a training: no other rank runs it."""
    assert run("touched.append(1)", "--rank", "0") == 0
    assert run("len(touched)", "--rank", "0", "--json") == 0
    assert run("len(touched)", "--rank", "1", "--json") == 0
    values = [json.loads(line)["rows"] for line in capsys.readouterr().out.splitlines() if line[:1] == "{"]
    assert values == [[[1]], [[0]]]


def test_what_is_raised_has_an_exit_code_of_its_own(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """All answered: 9. The error is a column for people and a field for programs."""
    assert run("1 / (rank - 1)", "--rank", "1", "--json") == 9
    (answer,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (answer["error"], answer["rows"]) == ("ZeroDivisionError: division by zero", [])
    assert run("1 / rank", "--rank", "0") == 9
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert run("1 / rank") == 8  # rank 2 is silent besides


def test_what_cannot_be_asked_is_said(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """No expression, no such rank, no such time."""
    assert run("import os") == 2
    assert run("1", "--rank", "77") == 3
    assert "rank 77 has no page" in capsys.readouterr().err
    assert run("1", "--timeout", "0") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_a_refusal_comes_before_the_warning(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a job that is not here, and of another user's: nothing will run, so nothing is said about what it might do."""
    assert main.main(["--config", str(job), "eval", "8", "1 + 1", "--local"]) == 3
    assert "holds the GIL" not in capsys.readouterr().err
    directory = job.parent / "jobs/9"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    assert main.main(["--config", str(job), "eval", "9", "1 + 1", "--local"]) == 5
    err = capsys.readouterr().err
    assert "only the job's owner may evaluate" in err
    assert "holds the GIL" not in err
    assert main.main(["--config", str(job), "eval", "7", "1 + 1", "--local", "--rank", "0"]) == 0
    assert "holds the GIL" in capsys.readouterr().err


TABLES_ALONE = """
import time, probing_tables
loss = 0.5
train = probing_tables.table("train", step=int)
train.append(step=1)
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""


@contextlib.contextmanager
def without_torch(base: Path, python: str, probing: str) -> Iterator[list[str]]:
    """A process of job 9 that has a table and no page, rank 4; the words of `eval` for it."""
    directory = base / "jobs/9"
    directory.mkdir(parents=True, mode=0o700)
    (base / "tables.py").write_text(TABLES_ALONE)
    config = base / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[agent]\nnode = "n1"\njob_directory = "{base / "jobs"}"\n[live]\ntimeout_s = 20.0\n'
    )
    environment = {
        "PROBING_PAGE_DIR": str(directory),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING": probing,
        "SLURM_PROCID": "4",
    }
    process = subprocess.Popen([python, str(base / "tables.py")], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield [
            "--config",
            str(config),
            "eval",
            "9",
            "loss",
            "--local",
            "--quiet",
            "--json",
            "--timeout",
            "20",
        ]
    finally:
        process.kill()
        process.communicate()


def test_a_program_without_torch_is_known_by_its_tables(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has no page: a table of its own is enough to be asked; and its rows are no reason to say that the probe is absent."""
    with without_torch(tmp_path, sys.executable, "live") as words:
        assert main.main([*words, "--rank", "4"]) == 0
        answer = json.loads(capfd.readouterr().out)
        assert (answer["rank"], answer["rows"]) == (4, [[0.5]])
        query = ["sql", "9", "SELECT rank, step FROM python.train", "--via", "local", "--format", "csv"]
        assert main.main([*words[:2], *query]) == 0
        assert capfd.readouterr() == ("rank,step\n4,1\n", "")


@pytest.mark.skipif(not shutil.which("python3.14"), reason="needs a python3.14 on PATH")
def test_a_process_is_made_live_from_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not live at first, with the way out; then it answers, and goes on answering."""
    with without_torch(tmp_path, shutil.which("python3.14") or "", "on") as words:
        assert main.main(words) == 8
        assert "--make-live" in capfd.readouterr().err
        for more in (["--make-live"], []):
            assert main.main([*words, *more]) == 0
            assert json.loads(capfd.readouterr().out)["rows"] == [[0.5]]
