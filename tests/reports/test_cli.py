from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import conftest_story as example
import pytest
from test_query import fill

from probing_cluster.core import errors
from probing_cluster.db import store as db_store
from probing_cluster.reports import cli, rows
from probing_cluster.reports.asking import door
from probing_cluster.reports.charts import paint

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(store: db_store.Store, story: rows.ReportRows, tmp_path: Path) -> Path:
    """Settings that name a database with the story in it."""
    fill(store, story)
    path = tmp_path / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n[service]\nsocket = "{tmp_path}/none"\n'
    )
    return path


@pytest.fixture
def run(config: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; its exit code, output and error."""

    def one(*words: str) -> tuple[int, str, str]:
        code = cli.main([*words, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


def test_the_terminal_report_is_printed_without_colour_into_a_pipe(run: Run) -> None:
    """The spine's question, answered from a real database."""
    code, out, err = run("4242")
    assert (code, err) == (0, "")
    assert "GPU 3 of n2 fell off the bus" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("72", 72), ("9", 72), ("x", 80), ("", 80)])
def test_columns_sets_the_width(run: Run, monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    """In a pipe too, as far as a report can be read; 80 where it names none."""
    monkeypatch.setenv("COLUMNS", columns)
    lines = run("4242")[1].splitlines()
    assert len(lines[0]) == width
    assert max(map(len, lines)) <= width


def test_json_is_one_document(run: Run) -> None:
    """--json prints the keys and nothing else."""
    code, out, _ = run("4242", "--json")
    assert (code, json.loads(out)["job_id"]) == (0, 4242)


def test_one_attempt_of_several(run: Run) -> None:
    """--attempt keeps that attempt; one that never was is not found."""
    assert [a["attempt"] for a in json.loads(run("4242", "--attempt", "2", "--json")[1])["attempts"]] == [2]
    code, out, err = run("4242", "--attempt", "3")
    assert (code, out) == (3, "")
    assert "job 4242 has no attempt 3; it has 1 to 2" in err


@pytest.mark.parametrize(("job", "code", "words"), [("999", 3, "job 999"), ("nonsense", 2, "not a job id")])
def test_a_mistake_is_one_line_and_its_code(run: Run, job: str, code: int, words: str) -> None:
    """Unknown job and bad form: nothing on standard output, one line that says what, the documented code."""
    got, out, err = run(job)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert words in err


def test_the_page_is_written_beside_the_report(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--html FILE writes the page whole; a directory that is not there is one clear line."""
    target = tmp_path / "job.html"
    code, out, err = run("4242", "--html", str(target))
    assert (code, err) == (0, f"probing-report: wrote {target}\n")
    assert "Why attempt 1 was requeued" in out
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".toml"] == ["job.html"]
    code, _, err = run("4242", "--html", str(tmp_path / "no" / "x.html"))
    assert (code, "cannot be written" in err) == (2, True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    for place in (".", "directory"):
        code, _, err = run("4242", "--html", place)
        assert (code, "cannot be written" in err) == (2, True)
    assert not list(tmp_path.glob(".probing.*")), "no half page is left"
    assert run("4242", "--html", "-")[1].startswith("<!DOCTYPE html>")


def test_no_database_and_no_service_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a directory nor a socket: exit 4 and the places looked at."""
    path = tmp_path / "p.toml"
    path.write_text(f'[database]\ndirectory = "{tmp_path}/pg"\n[service]\nsocket = "{tmp_path}/s"\n')
    assert cli.main(["1", "--config", str(path)]) == 4
    captured = capsys.readouterr().err
    assert captured.count("\n") == 1
    assert f"{tmp_path}/pg" in captured


def test_a_database_without_our_tables_says_how_to_make_them(
    postgres_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reachable server with an empty database: exit 4 and the command."""
    from probing_cluster.db.server import embedded

    path = tmp_path / "p.toml"
    url = embedded.url(postgres_directory, database="postgres")
    path.write_text(f'[database]\nurl = "{url}"\n[service]\nsocket = "{tmp_path}/s"\n')
    assert cli.main(["1", "--config", str(path)]) == 4
    assert "probing-ctl db upgrade" in capsys.readouterr().err


def test_a_wrong_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the key."""
    path = tmp_path / "p.toml"
    path.write_text("[cluster]\nnmae = 'x'\n")
    assert cli.main(["1", "--config", str(path)]) == 2
    assert "nmae" in capsys.readouterr().err


def test_an_array_by_its_number_is_an_overview(store: db_store.Store, run: Run) -> None:
    """Its tasks, in text and JSON; a page wants one task."""
    first = example.attempt(1, start_at=example.at("14:03:00"), array_job_id=500)
    store.upsert_attempts(
        [
            dataclasses.replace(first, job_id=501, array_task_id=1),
            dataclasses.replace(first, job_id=502, array_task_id=2, state="FAILED"),
        ]
    )
    assert "Job array 500: 2 tasks started" in run("500")[1]
    for task in ("502", "500_2"):  # a task's own job id, as the node's logs have it, is that task
        assert run(task)[1].startswith("Job 500_2 (502)  ")
    assert [t["job"] for t in json.loads(run("500", "--json")[1])["tasks"]] == ["500_2", "500_1"]
    assert run("500", "--html", "-")[0] == 2


def test_the_command_never_loads_what_is_slow(config: Path) -> None:
    """A report starts without DataFusion, Arrow, numpy, pandas, SQLAlchemy, matplotlib or Jinja."""
    slow = "datafusion pyarrow numpy pandas sqlalchemy matplotlib jinja2 scipy rich".split()  # noqa: SIM905
    script = (
        "import sys; from probing_cluster.reports import cli; "
        f"assert cli.main(['4242', '--config', {str(config)!r}]) == 0; "
        f"sys.exit(' '.join(m for m in {slow} if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_service_that_hangs_or_lies_does_not_keep_the_owner_from_the_database(
    run: Run, config: Path, tmp_path: Path
) -> None:
    """A socket nobody answers, or one of another database, costs a moment; the database answers."""
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "none"))
        assert run("4242")[0] == 0
        listener.listen(1)
        assert run("4242")[0] == 0


def test_a_refusal_stays_one_where_the_database_refuses_too(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another user's job is "not your job" also for one whose settings name a database that does not let them in."""

    def refuse(*_: object, **__: object) -> None:
        raise errors.NotPermitted("job 4242 is not yours")

    (tmp_path / "none").touch()
    monkeypatch.setattr(door, "ask", refuse)
    assert cli.main(["4242", "--config", str(config)]) == 0, "who may open the database may read it"
    config.write_text(
        config.read_text().replace('url = "postgresql', 'url = "postgresql://nobody@/none?host=/nowhere" # ')
    )
    capsys.readouterr()
    assert cli.main(["4242", "--config", str(config)]) == 5
    assert capsys.readouterr().err == "probing-report: job 4242 is not yours\n"


def test_a_pager_that_is_left_early_is_no_error(config: Path) -> None:
    """`probing-report … | head -1` prints its line and no traceback."""
    command = f"{sys.executable} -m probing_cluster.reports.cli 4242 --config {config} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Job 4242")
    assert done.stderr == ""


def test_colour_follows_the_choice_and_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """always and never are obeyed; auto means a terminal, without NO_COLOR and not dumb."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert paint.wanted("always", sys.stdout)
    assert not paint.wanted("never", Terminal())  # type: ignore[arg-type]
    assert paint.wanted("auto", Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not paint.wanted("auto", Terminal())  # type: ignore[arg-type]
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not paint.wanted("auto", Terminal())  # type: ignore[arg-type]
