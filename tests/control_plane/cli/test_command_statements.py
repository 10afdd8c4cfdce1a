"""A command sends as many statements for twelve nodes, jobs and runs as for four: no query in a loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import fakes
import pytest

sys.path.append(str(Path(__file__).parents[2] / "web"))

import command_tree

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.policy import recheck
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store
from probing_cluster.reports import cli as report
from tests import statement_count
from tests.web import test_page_statements as pages

FEW, MANY = 4, 12
Argv = Callable[[Path, int], list[str]]


def words(*given: str) -> Argv:
    """A command whose words do not depend on how much there is."""
    return lambda _directory, _n: list(given)


def of_nodes(*given: str) -> Argv:
    """A command about every node."""
    return lambda _directory, n: [*given, *pages.nodes(n)]


def _lines(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def accounting(directory: Path, n: int) -> list[str]:
    """An import of `n` jobs that started and `n` that did not, and of as many events."""
    at = fakes.NOW.strftime("%Y-%m-%dT%H:%M:%S")
    head = "JobIDRaw|JobID|State|Submit|Start|End|NodeList|User|ExitCode"
    rows = [f"{9000 + i}|{9000 + i}|FAILED|{at}|{at}|{at}|n{i + 1}|root|1:0" for i in range(n)]
    rows += [f"{9500 + i}|{9500 + i}|CANCELLED|{at}|None|{at}|None assigned|root|0:0" for i in range(n)]
    events = [json.dumps({"at": f"{at}Z", "node": f"n{i}", "kind": "xid", "code": "79"}) for i in range(n)]
    given = ["--timezone", "UTC", "--sacct", _lines(directory / "sacct", [head, *rows])]
    return [*given, "--events", _lines(directory / "events", events)]


def tickets(directory: Path, n: int) -> list[str]:
    """A file of `n` tickets."""
    rows = [f"{node},T{node},{fakes.NOW:%Y-%m-%d}" for node in pages.nodes(n)]
    return ["lemon", "tickets", _lines(directory / "tickets", ["node,ticket,opened", *rows])]


COMMANDS: dict[str, list[Argv]] = {
    "ack": [of_nodes("ack", "--note", "x")],
    "attribute": [words("attribute", "--since", "2000-01-01"), words("attribute", "--since", "2000-01-01", "--dry-run"), words("attribute", "--job", "7")],
    "db status": [words("db", "status")],
    "db logins": [words("db", "logins")],
    "fleet": [words("fleet"), words("fleet", "--json"), words("fleet", "--tables"), words("fleet", "--html", "/dev/null")],
    "import": [lambda directory, n: ["import", "--rejects", str(directory), *accounting(directory, n)]],
    "lemon confirm": [of_nodes("lemon", "confirm")],
    "lemon deny": [of_nodes("lemon", "deny")],
    "lemon exclude-list": [words("lemon", "exclude-list")],
    "lemon list": [words("lemon", "list"), of_nodes("lemon", "list")],
    "lemon repaired": [of_nodes("lemon", "repaired")],
    "lemon report": [words("lemon", "report", "--again"), words("lemon", "report", "--html", "/dev/null")],
    "lemon tickets": [tickets],
    "nodes": [words("nodes"), words("nodes", "--faulty", "--json"), of_nodes("nodes")],
    "notices list": [words("notices", "list")],
    "places list": [words("places", "list")],
    "places scan": [words("places", "scan", "--since", "2000-01-01")],
    "policy simulate": [words("policy", "simulate", "--since", "2000-01-01")],
    "ranks": [words("ranks", str(pages.BIG), "--all")],
    "repair hold": [of_nodes("repair", "hold")],
    "repair list": [words("repair", "list", "--all")],
    "repair release": [of_nodes("repair", "release")],
    "repair done": [of_nodes("repair", "done")],
    "repair show": [words("repair", "show", "n1")],
    "stacks": [words("stacks", str(pages.BIG), "--last")],
    "verdict": [words("verdict", "7", "--cause", "gpu_lost")],
    "watch": [words("watch", str(pages.BIG), "--count", "2", "--interval", "1")],
}  # fmt: skip


UNCOUNTED = {
    "alerts": "a text of ours",
    "classify": "no database",
    "completion": "a text of ours",
    "dashboards": "texts of ours",
    "db add-agent": "a role and its password for each node",
    "db add-login": "one role",
    "db pgbouncer-users": "one statement",
    "db remove-agent": "a role for each node",
    "db remove-login": "one role",
    "db start": "no statement",
    "db stop": "no statement",
    "db upgrade": "the schema",
    "diagnose": "tests nodes",
    "doctor": "looks at rights and settings",
    "door serve": "no end; its batches are counted in tests/control_plane/node_door/test_batches.py",
    "drain": "each drain is written down before it is done, and then that it was",
    "eval": "asks the job's nodes",
    "lemon outbox": "a spool of files",
    "lemon thresholds": "reads what a night reads, which is counted in tests/control_plane/test_statements.py",
    "notices test": "no statement",
    "places load": "one table, loaded at once",
    "policy show": "settings",
    "query": "the person's own statement",
    "resume": "each drain is ended after Slurm has ended it",
    "serve": "its tasks are counted in tests/control_plane/test_statements.py",
    "set-healthy": "each drain is ended after Slurm has ended it; that agents are asked at once is counted below",
    "sql": "asks the job's nodes",
    "swap-search": "runs jobs",
    "web client": "a text of ours",
    "web login": "one key",
    "web revoke": "one statement",
    "web serve": "its pages are counted in tests/web/test_page_statements.py",
    "web token": "one key",
    "web tokens": "one statement",
}
"""Commands whose statements do not follow nodes, jobs or runs, or must be one each, and why."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> statement_count.Statements:
    return statement_count.Statements(monkeypatch)


@pytest.fixture
def config(store: db_store.Store, tmp_path: Path) -> Path:
    made = tmp_path / "probing.toml"
    made.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n'
        f'[slurm]\nbin_directory = "{tmp_path}/none"\n[service]\nsocket = "{tmp_path}/s"\n'
    )
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_not_ask_once_for_each(
    name: str, config: Path, store: db_store.Store, tmp_path: Path, statements: statement_count.Statements
) -> None:
    """As many statements and connections for three times the nodes, jobs and runs."""
    for number, argv in enumerate(COMMANDS[name]):
        sent = {}
        for n in (FEW, MANY):
            pages.history(store, n)
            directory = tmp_path / f"{number}-{n}"
            directory.mkdir()
            given = [*argv(directory, n), "--config", str(config)]
            codes: list[int] = []
            sent[n] = statements.of(lambda given=given, codes=codes: codes.append(main.main(given)))
            assert codes == [6 if name == "nodes" else 0], given  # there is no Slurm here
        assert 0 < sent[MANY] <= sent[FEW], argv(tmp_path, MANY)


def test_every_command_is_counted_or_says_why_not() -> None:
    names = {name for name, _ in command_tree.commands(main.parser())}
    assert COMMANDS.keys().isdisjoint(UNCOUNTED)
    assert names == COMMANDS.keys() | UNCOUNTED.keys()


@pytest.mark.parametrize("job", ["7", "5000", f"{pages.BIG}"])
def test_a_report_is_one_question(
    config: Path, store: db_store.Store, statements: statement_count.Statements, job: str
) -> None:
    """Of a job of many starts, of an array of many tasks, of a running job on many nodes."""
    sent = {}
    for n in (FEW, MANY):
        pages.history(store, n)
        sent[n] = statements.of(lambda: report.main([job, "--config", str(config)]))
    assert 0 < sent[MANY] <= sent[FEW]


def test_a_file_costs_the_storing_of_what_it_says(
    config: Path, store: db_store.Store, tmp_path: Path, statements: statement_count.Statements
) -> None:
    """Of many jobs' logs and many nodes' kernel logs: each is read and stored by itself, and nothing is asked about each."""
    at = fakes.NOW.strftime("%Y-%m-%dT%H:%M:%S")
    xid = f"{at}Z n1 kernel: NVRM: Xid (PCI:0000:5e:00): 79, pid=1, GPU has fallen off the bus."
    log, kernel = _lines(tmp_path / "log", ["ValueError: bad"]), _lines(tmp_path / "kern.log", [xid])
    sent = {}
    for n in (FEW, MANY):
        pages.history(store, n)
        given = [
            word for i in range(n) for word in ("--joblog", f"{100 + i}={log}", "--kernel", f"n{i}={kernel}")
        ]
        argv = ["import", *given, "--timezone", "UTC", "--config", str(config)]
        sent[n] = statements.of(lambda argv=argv: main.main(argv))
    one = statements.of(lambda: bulk.load_events(store.connection_uri(), [pages._event("n1", "xid")]))
    stored = 3  # findings, a kernel log's events, and from when to when it was written
    assert sent[MANY] - sent[FEW] <= stored * one * (MANY - FEW)


def test_many_agents_are_asked_to_look_again_at_once(
    store: db_store.Store, statements: statement_count.Statements
) -> None:
    """Nobody is waited for."""
    sent = {}
    for n in (FEW, MANY):
        pages.history(store, n)
        sent[n] = statements.of(
            lambda n=n: recheck.look_again(store, pages.nodes(n), "op", cluster="c", wait_s=0.0)
        )
        assert len(store.rows("SELECT 1 FROM probing.node_request WHERE verb = 'recheck'", {})) == n
    assert 0 < sent[MANY] <= sent[FEW]
