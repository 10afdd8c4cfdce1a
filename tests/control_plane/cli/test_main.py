from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main, span
from probing_cluster.control_plane.cli.history import fleet_commands, import_commands
from probing_cluster.control_plane.terminal import fleet_text, progress
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import store as db_store

Run = Callable[..., tuple[int, str, str]]
XID = "n2 kernel: NVRM: Xid (PCI:0000:5e:00): 79, pid=1, GPU has fallen off the bus."


@pytest.fixture
def config(store: db_store.Store, tmp_path: Path) -> Path:
    path = tmp_path / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n'
        f'[slurm]\nbin_directory = "{tmp_path}/none"\n[service]\nsocket = "{tmp_path}/s"\n'
    )
    return path


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: what standard error holds is what the command had to say."""
    monkeypatch.setattr(progress, "SILENT_S", 3600.0)


@pytest.fixture
def run(config: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs probing-ctl with the test's settings."""

    def one(*words: str) -> tuple[int, str, str]:
        code = main.main([*words, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


@pytest.fixture
def history(tmp_path: Path) -> list[str]:
    """The arguments of an import: a job that died with its GPU, one that was its user's own fault."""
    (tmp_path / "sacct.txt").write_text(
        "JobIDRaw|JobID|State|Submit|Start|End|NodeList|User|Partition|JobName|AllocTRES|ExitCode\n"
        "7|7|FAILED|2026-11-20T10:00:00|2026-11-20T10:01:00|2026-11-20T11:00:00|n2|alice|gpu|sft|gres/gpu=8|1:0\n"
        "8|8|FAILED|2026-11-20T10:00:00|2026-11-20T10:01:00|2026-11-20T10:02:00|n3|bob|gpu|bad|gres/gpu=8|1:0\n"
        "9|9|COMPLETED|2026-11-20T10:00:00|2026-11-20T10:01:00|2026-11-20T10:02:00|n4|bob|gpu|ok|gres/gpu=8|0:0\n"
    )
    (tmp_path / "kern.log").write_text(f"2026-11-20T10:59:57Z {XID}\n")
    (tmp_path / "out.log").write_text(
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: bad\n'
    )
    return [
        "import", "--sacct", f"{tmp_path}/sacct.txt", "--kernel", f"n2={tmp_path}/kern.log",
        "--joblog", f"8={tmp_path}/out.log",
    ]  # fmt: skip


def test_files_become_verdicts_and_reports_offline(
    run: Run, history: list[str], store: db_store.Store, config: Path
) -> None:
    """import, attribute, then the report says hardware for one and user program for the other."""
    code, out, err = run(*history)
    assert (code, err) == (0, "")
    assert "3 attempts; 0 kept aside" in out
    code, out, _ = run("attribute")
    assert code == 0
    assert "2 attempts judged, 2 verdicts new or changed, 3 run accounts" in out
    domains = {v.job_id: v.domain for v in store.verdicts()}
    assert domains == {7: records.Domain.HARDWARE, 8: records.Domain.USER_PROGRAM}
    from probing_cluster.reports import cli as report

    assert report.main(["7", "--config", str(config)]) == 0


def test_a_second_import_says_what_was_there_already(run: Run, history: list[str]) -> None:
    """New is what the database had not; one of a thing is called one."""
    _, out, _ = run(*history)
    assert "kern.log (node n2): 1 event of 1 line; 0 kept aside\n" in out
    assert ": 1 finding\n" in out
    assert out.endswith("stored 3 new attempts and 2 new events\n")
    _, out, _ = run(*history)
    assert ": 0 findings (1 already known)\n" in out
    assert out.endswith(
        "stored 0 new attempts and 0 new events; 3 attempts and 2 events were there already\n"
    )


@pytest.mark.parametrize(
    ("row", "job", "words"),
    [
        ("9|9|CANCELLED by 1000", "9", "it was cancelled by its owner ada at 2026-11-20 08:30:00Z, while it waited"),
        ("9|9|CANCELLED by 0", "9", "it was cancelled by root at 2026-11-20"),
        ("9|9|CANCELLED", "9", "while it waited (accounting does not say by whom)"),
        ("9|9|DEADLINE", "9", "it ended DEADLINE at 2026-11-20 08:30:00Z"),
        ("12|11_4|CANCELLED by 77", "11_4", "job 11_4 never started: it was cancelled by 77 at"),
        ("11|11_[5-9,20%2]|CANCELLED by 77", "11_7", "job 11_7 never started: it was cancelled by 77 at"),
        ("11|11_[5-9,20%2]|CANCELLED by 77", "11_10", "job 11_10 is not known"),
        ("9|9|PENDING", "9", "job 9 is not known: no start of it"),
    ],
)  # fmt: skip
def test_the_report_of_a_job_that_never_started_says_so_and_by_whom(
    run: Run, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, job: str, words: str
) -> None:
    """There is no attempt of it to judge, but accounting knows what became of it."""
    from probing_cluster.reports import cli as report

    (tmp_path / "sacct.txt").write_text(
        "JobIDRaw|JobID|State|Submit|Start|End|NodeList|User|UID\n"
        f"{row}|2026-11-20T08:00:00|None|2026-11-20T08:30:00|None assigned|ada|1000\n"
    )
    code, out, err = run("import", "--sacct", f"{tmp_path}/sacct.txt")
    assert (code, err) == (0, "")
    assert "left out: 1 job that never started" in out
    if job == "9":
        assert "no agent's event and no kernel log is on record" in " ".join(
            run("fleet", "cooccurrence")[1].split()
        )
    assert report.main([job, "--config", str(config)]) == 3
    assert words in capsys.readouterr().err


def test_files_that_are_not_there_are_named_before_the_others_are_read(
    run: Run, history: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them at once: minutes of reading would come before the second."""
    from probing_cluster.control_plane.imports import load

    monkeypatch.setattr(load, "read", lambda *_: pytest.fail("it read first"))
    code, _, err = run(*history, "--kernel", f"n3={tmp_path}/no3", "--events", f"{tmp_path}")
    assert code == 7
    assert f"{tmp_path} cannot be read: Is a directory; {tmp_path}/no3 cannot be read: No such file" in err


def test_an_unsure_hour_is_said_in_the_summary(run: Run, tmp_path: Path) -> None:
    """The end of daylight saving, in a log that does not tell its passes apart."""
    (tmp_path / "kern.log").write_text(f"2024-10-27 02:19:00 {XID}\n")
    _, out, _ = run("import", "--timezone", "Europe/Berlin", "--kernel", f"n2={tmp_path}/kern.log")
    assert "note: in an hour the clocks repeated" in out
    assert "an hour too early: 1 finding\n" in out


def test_a_persons_verdict_stands_against_the_rules(
    run: Run, history: list[str], store: db_store.Store
) -> None:
    """`verdict` replaces, is noted, and judging again does not undo it; a wrong word lists the right ones."""
    run(*history)
    run("attribute")
    code, out, _ = run("verdict", "8", "--cause", "gpu_lost", "--note", "seen on site", "--node", "n3")
    assert code == 0
    assert "-> gpu_lost" in out
    run("attribute", "--job", "8")
    (verdict,) = store.verdicts(job_ids=[8])
    assert (verdict.cause, verdict.domain, verdict.node) == ("gpu_lost", records.Domain.HARDWARE, "n3")
    assert verdict.author != "rules"
    assert len(store.verdict_histories([8])) >= 2
    (note,) = store.notes(action="verdict")
    assert note.note == "seen on site"
    code, _, err = run("verdict", "8", "--cause", "gremlins")
    assert (code, "gpu_lost" in err) == (3, True)


@pytest.mark.parametrize("place", [(), ("--node", "n1"), ("--node", "n1", "--device", "gpu3")])
def test_every_cause_set_by_hand_gives_a_step_without_braces(
    run: Run, history: list[str], store: db_store.Store, place: tuple[str, ...]
) -> None:
    """Names are filled in as the rules fill them in; what the person did not name is named generally."""
    from probing_cluster.attribution.verdict import taxonomy
    from probing_cluster.control_plane.cli.jobs import manual_verdict

    run(*history)
    store.upsert_attempts([dataclasses.replace(a, nodes=("n1", "n2")) for a in store.attempts(job_ids=[7])])
    _, node, _, device = (*place, None, None, None, None)[:4]
    for cause in taxonomy.load().causes.values():
        given = manual_verdict.ManualVerdict(
            job="7", attempt=None, cause=cause.word, note="", node=node, device=device, author="ada"
        )
        if node is None and cause.domain is records.Domain.HARDWARE and "{node}" in cause.next_step:
            with pytest.raises(errors.UsageError, match="--node"):
                manual_verdict.set_verdict(store, given)
            continue
        manual_verdict.set_verdict(store, given)
        (made,) = store.verdicts(job_ids=[7])
        assert not set("{}") & set(made.next_step), made.next_step
        assert "JOBID -o" not in made.next_step, "the job's own number"
        assert device is None or "GPU 3" in made.next_step or "{device}" not in cause.next_step


def test_a_verdict_by_hand_is_refused_where_it_would_say_nothing(
    run: Run, history: list[str], store: db_store.Store
) -> None:
    """An attempt that completed has no failure; a fault of hardware is a node's, and with one node it is that one's."""
    run(*history)
    store.upsert_attempts([dataclasses.replace(a, nodes=("n1", "n2")) for a in store.attempts(job_ids=[7])])
    code, _, err = run("verdict", "9", "--cause", "gpu_lost", "--node", "n4")
    assert (code, "attempt 1 of job 9 completed" in err, "--attempt N" in err) == (2, True, True)
    code, _, err = run("verdict", "7", "--cause", "gpu_lost")
    assert (code, "--node NODE, one of n[1-2]" in err) == (2, True)
    code, _, _ = run("verdict", "8", "--cause", "gpu_lost")
    assert (code, [v.node for v in store.verdicts(job_ids=[8])]) == (0, ["n3"])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", ["with", "without"])
def test_a_start_of_two_exports_is_one_attempt(
    run: Run, tmp_path: Path, store: db_store.Store, first: str, together: bool
) -> None:
    """One export has Submit and the other has not: the same start is no requeue."""
    rows = {
        "with": "JobID|State|Submit|Start|End|NodeList\n"
        "7|FAILED|2026-11-20T10:00:00|2026-11-20T10:01:00|2026-11-20T11:00:00|n2\n",
        "without": "JobID|State|Start|End|NodeList\n7|FAILED|2026-11-20T10:01:00|2026-11-20T11:00:00|n2\n",
    }
    orders = []
    for name in sorted(rows, key=lambda name: name != first):
        (tmp_path / name).write_text(rows[name])
        orders.append(("--sacct", f"{tmp_path}/{name}"))
    for words in [(*orders[0], *orders[1])] if together else orders:
        code, out, _ = run("import", *words)
        assert code == 0
    assert "with another submit time, or without: 1; each is kept once" in out
    (attempt,) = store.attempts(job_ids=[7])
    assert (attempt.attempt, attempt.nodes) == (1, ("n2",))


def test_a_dry_run_stores_nothing(run: Run, history: list[str], store: db_store.Store) -> None:
    """--dry-run shows what would change."""
    run(*history)
    code, out, _ = run("attribute", "--since", "2026-11-01", "--dry-run")
    assert code == 0
    assert "2 verdicts would change; nothing stored" in out
    assert store.verdicts() == []
    assert len(json.loads(run("attribute", "--job", "7", "--dry-run", "--json")[1])["changes"]) == 1


def test_the_policy_can_be_replayed_over_history(run: Run, history: list[str]) -> None:
    """What it would have done with the imported Xid: one drain, no requeue of a job whose GPUs are unknown."""
    run(*history)
    found = json.loads(run("policy", "simulate", "--since", "2026-11-01", "--json")[1])
    assert [(d["action"], d["node"], d["state"]) for d in found["decisions"]] == [
        ("drain", "n2", "would act"),
        ("requeue", "n2", "skipped"),
    ]
    assert (
        "1 drains and 0 requeues would be carried out, 1 are held back"
        in run("policy", "simulate", "--since", "2026-11-01")[1]
    )
    shown = tomllib.loads(run("policy", "show")[1])
    assert settings.PolicySettings(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in shown.items()}
    ) == settings.PolicySettings(observe_only=shown["observe_only"])
    assert json.loads(run("policy", "show", "--json")[1])["observe_only"] is True


def test_a_figure_within_a_figure_is_told_in_words_and_columns() -> None:
    """Neither a person nor a terminal reads Python."""
    figure = {
        "since": "a", "until": "b",
        "sizes": [
            {"n_gpus": 8, "measured": None, "projected_h": None},
            {"n_gpus": 16, "measured": {"mttf_h": 2.5, "n_failures": 5, "n_incidents": 5}, "projected_h": None},
        ],
        "buckets": [{"at": "x", "failures": {"gpu": 3, "link": 1}}, {"at": "y", "failures": {}}],
        "rate": {"since": "a", "until": "b", "per_node_day": 0.00001},
    }  # fmt: skip
    lines = fleet_text.one("mttf-by-size", "meaning", figure)
    assert "{" not in lines
    assert "A job of 16 GPUs ran 2 h 30 min on average until it failed (5 attempts)." in lines
    assert "rate, per node day: 0.00001" in lines
    sizes, buckets = lines.index("MEASURED MTTF H"), lines.index("gpu 3, link 1")
    assert next(line.split() for line in lines[sizes:].splitlines() if line.strip().startswith("16")) == [
        "16",
        "2.5",
        "5",
        "5",
    ]
    assert sizes < buckets


def test_every_fleet_figure_prints_and_is_json(run: Run, history: list[str]) -> None:
    """Each figure of the attribution room has its command, on a database with a little history."""
    run(*history)
    run("attribute")
    for figure in (*fleet_commands.FIGURES, "all"):
        words = ("fleet", figure, "--since", "2026-11-01", "--until", "2026-12-01")
        code, out, err = run(*words)
        assert (code, err) == (0, ""), figure
        assert out, figure
        assert json.loads(run(*words, "--json")[1]), figure


def test_a_span_that_begins_before_the_first_record_begins_there(
    run: Run, history: list[str], tmp_path: Path
) -> None:
    """Of a cluster that was installed yesterday 28 days would be 27 days of unused capacity; text, page and JSON say where they begin."""
    run(*history)
    run("attribute")
    requested, until = ("2026-10-01", "2026-12-01")
    plain = json.loads(run("fleet", "--since", requested, "--until", until, "--json")[1])
    found = plain["utilisation"]
    assert found["requested_since"] == "2026-10-01T00:00:00Z" < found["since"]
    (first,) = {f["since"] for f in plain.values() if "requested_since" in f}
    assert first == "2026-11-20T10:01:00Z"
    assert {name for name, f in plain.items() if "requested_since" not in f} >= {
        "node-tests",
        "lemon-signals",
    }
    hours = (
        59 / 60 + 1 / 3600
    )  # to where the imported accounting ends: of what came after it nothing is known
    assert found["until"] == "2026-11-20T11:00:01Z"
    assert found["capacity_gpu_h"] == pytest.approx(found["n_nodes"] * 8 * hours)
    words = f"Nothing is on record before {first[:16].replace('T', ' ')} UTC: the figures of attempts begin there, not at 2026-10-01 00:00."
    for figure in ("all", "utilisation"):
        assert words in " ".join(run("fleet", figure, "--since", requested, "--until", until)[1].split())
    target = tmp_path / "fleet.html"
    run("fleet", "--since", requested, "--until", until, "--html", str(target))
    assert words in target.read_text()
    # A span within the records, and one before all of them, are what was asked for.
    for since, end in ((first, until), ("2026-09-01", requested)):
        within = json.loads(run("fleet", "utilisation", "--since", since, "--until", end, "--json")[1])
        assert "requested_since" not in within


def test_a_span_does_not_reach_beyond_what_is_known(run: Run, store: db_store.Store) -> None:
    """`--until` the end of today: a job that runs has not yet run until then, and no GPU was idle or in use."""
    store.remember("accounting.until c", "2026-11-20T11:00:00Z")  # a service reads accounting
    start = clock.SYSTEM.now() - timedelta(hours=4)
    store.upsert_attempts([
        records.JobAttempt(
            cluster="c", job_id=7, submit_at=start, start_at=start, end_at=None, state="RUNNING", nodes=("n1",), n_gpus=8, user="alice"
        )
    ])  # fmt: skip
    later = f"{clock.SYSTEM.now() + timedelta(days=2):%Y-%m-%d}"
    found = json.loads(run("fleet", "utilisation", "--since", "28d", "--until", later, "--json")[1])
    assert found["capacity_gpu_h"] == pytest.approx(32, rel=0.05)
    assert found["utilisation_frac"] == pytest.approx(1)
    code, _, err = run("fleet", "--since", later, "--until", f"{later}T12:00Z")
    assert code == 2
    assert "what is on record ends" in err


def test_the_fleet_commands_are_the_fleet_figures() -> None:
    """No figure without a command, no command without a figure."""
    from probing_cluster.attribution.reliability import fleet

    assert {name.replace("-", "_") for name in fleet_commands.FIGURES} == set(fleet.__all__)


def test_parameters_of_a_figure_are_checked(run: Run) -> None:
    """An unknown one names the known, a wrong type is refused."""
    assert run("fleet", "large-job-rate", "--set", "above_gpus=8")[0] == 0
    code, _, err = run("fleet", "large-job-rate", "--set", "gpus=8")
    assert (code, "above_gpus" in err) == (2, True)
    assert run("fleet", "large-job-rate", "--set", "above_gpus=many")[0] == 2
    code, _, err = run("fleet", "lemon-departures", "--set", "attempts=x")
    assert (code, "attempts" in err.partition("it has:")[2]) == (2, False)
    assert run("fleet", "large-job-rate", "--set", "above_gpus")[0] == 2


def test_a_query_is_answered_and_can_change_nothing(run: Run, store: db_store.Store) -> None:
    """Rows in three forms; INSERT, DROP and several statements are refused by the server."""
    assert run("query", "select 1 as one, 'x' as two")[1] == "ONE  TWO\n1    x\n".lower()
    assert run("query", "select 1 as one", "--format", "csv")[1].splitlines() == ["one", "1"]
    assert json.loads(run("query", "select 1 as one", "--format", "json")[1]) == [{"one": 1}]
    odd = (
        "select 'NaN'::float8 f, '-Infinity'::float8 i, 'NaN'::numeric n, 1.50 half, 3::numeric three, sum(2::bigint) total, "
        "array[1.5, 'NaN'::numeric] several, '{\"a\": 0.1}'::jsonb j, 0.1234567890123456789 long, 1e30::numeric large, 1e400::numeric huge"
    )
    _, out, _ = run("query", odd, "--format", "json")
    (row,) = json.loads(out, parse_constant=pytest.fail)
    assert row == {
        "f": None, "i": None, "n": None, "half": 1.5, "three": 3, "total": 2, "several": [1.5, None], "j": {"a": 0.1},
        "long": "0.1234567890123456789", "large": 1e30, "huge": f"1{'0' * 400}",
    }  # fmt: skip
    for hostile in (
        "insert into probing.state(key, value) values ('x', '1')",
        "drop table probing.verdict",
        "select 1; commit; drop schema probing cascade",
        "not sql",
    ):
        assert run("query", hostile)[0] in {2, 5}
    assert store.verdicts() == []
    code, out, err = run("query", "select generate_series(1, 10) as n", "--limit", "3")
    assert (code, out.split(), "more than 3 rows" in err) == (0, ["n", "1", "2", "3"], True)


def test_values_are_written_as_the_manual_says(run: Run) -> None:
    """Bytes and composites as psql prints them, an instant with its Z, a span as Postgres writes it; in each form."""
    sql = (
        "select '\\x00ff'::bytea as b, row(1, 'a') as c, timestamptz '2026-11-30 23:57:58.5+00' as at, "
        "interval '1 month 90 minutes' as span, array[timestamptz '2026-11-30 23:57:58+00'] as times"
    )
    at = "2026-11-30T23:57:58.500000Z"
    own = ["\\x00ff", "(1,a)", at, "1 mon 01:30:00", '["2026-11-30T23:57:58Z"]']
    assert run("query", sql)[1].splitlines()[1].split("  ") == own
    assert next(csv.reader(run("query", sql, "--format", "csv")[1].splitlines()[1:])) == own
    (row,) = json.loads(run("query", sql, "--format", "json")[1])
    assert list(row.values()) == [*own[:4], ["2026-11-30T23:57:58Z"]]
    found = run(
        "query", "select ops.node_timeline('n1') as line from (values (1)) as one", "--format", "json"
    )
    assert found[0] == 0
    for sql in ("select 1 as one; -- one", "select ';--' as one;"):
        assert run("query", sql)[0] == 0, sql


def test_json_values_are_json_and_leave_the_line_readable(run: Run) -> None:
    """A table cuts them; the other forms have them whole."""
    value = {"gpu": "gpu3", "said": "x" * 200}
    sql = (
        f"select '{json.dumps(value)}'::jsonb as faults, '{{\"a\": [1]}}'::jsonb as short, array[1, 2] as two"
    )
    lines = run("query", sql)[1].splitlines()
    assert lines[1].startswith('{"gpu":"gpu3","said":"xx')
    assert lines[1].endswith('…  {"a":[1]}  [1,2]')
    assert max(map(len, lines)) < 100
    whole = run("query", sql, "--format", "csv")[1]
    assert json.loads(next(csv.DictReader(io.StringIO(whole)))["faults"]) == value
    assert json.loads(run("query", sql, "--format", "json")[1])[0]["faults"] == value


def test_the_doctor_names_what_is_wrong_and_the_fix(run: Run) -> None:
    """No Slurm, no agents: two fails with their fixes, and the database in order; exit 1."""
    code, out, _ = run("doctor", "--all")
    assert code == 1
    assert "fail  slurmctld: no answer" in out
    assert "fail  agents: none was ever heard" in out
    assert "ok    database: schema" in out
    assert "note  policy: observe-only" in out
    assert out.count("fix: ") >= 3


def test_the_schema_has_its_commands(run: Run) -> None:
    """upgrade and status of a server of one's own; start and stop are refused for it."""
    assert "schema " in run("db", "upgrade")[1]
    code, out, _ = run("db", "status")
    assert (code, "up to date" in out) == (0, True)
    assert run("db", "start")[0] == 2


def test_nodes_are_listed_without_slurm(run: Run, store: db_store.Store) -> None:
    """What agents say is shown though Slurm does not answer."""
    from probing_cluster.db import delivery

    beat = records.AgentHeartbeat(
        cluster="c", node="n2", at=records_now(), faults={"xid:gpu3": {"severity": "high"}}
    )
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(events=[], heartbeat=beat)
    (row,) = json.loads(run("nodes", "--json")[1])
    assert (row["node"], row["slurm"], row["faults"]) == ("n2", "unknown", ["xid:gpu3 (high)"])
    assert "Xid gpu3 (high)" in run("nodes", "--faulty")[1]
    code, out, err = run("nodes", "n[5-9]", "--json")
    assert (code, out, "n[5-9] is not known" in err) == (3, "", True)


def records_now() -> object:
    from probing_cluster.core import clock

    return clock.SYSTEM.now()


def test_acts_without_slurm_are_not_tried(run: Run, store: db_store.Store, tmp_path: Path) -> None:
    """drain and resume say once that Slurm does not answer, exit 6, and record nothing."""
    scontrol = tmp_path / "none" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(
        "#!/bin/sh\necho 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1\n"
    )
    scontrol.chmod(0o755)
    for words in (("drain", "n[1-2]", "--reason", "test"), ("resume", "n1")):
        code, out, err = run(*words)
        assert (code, out, err.count("Slurm does not answer")) == (6, "", 1)
    assert store.drains() == []


def test_an_acknowledgement_is_kept(run: Run, store: db_store.Store) -> None:
    """ack stores who and what for the node."""
    assert run("ack", "n2", "--note", "RMA opened\x1b[31m")[0] == 0
    (note,) = store.notes(subject="node:n2")
    assert (note.action, note.note) == ("ack", "RMA opened")


def test_classify_streams_and_obeys_the_pipe(tmp_path: Path) -> None:
    """One object a line from a file and from standard input; `head` ends it without a word."""
    log = tmp_path / "kern.log"
    log.write_text(f"2026-11-20T10:59:57Z {XID}\n" * 1000)
    command = [sys.executable, "-m", "probing_cluster.control_plane.cli.main", "classify", "--kind", "kernel"]
    done = subprocess.run([*command, str(log)], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (len(found), found[0]["kind"]) == (1000, "xid")
    with log.open("rb") as stream:
        piped = subprocess.run([*command, "-"], stdin=stream, capture_output=True, text=True, check=True)
    assert piped.stdout == done.stdout
    shell = subprocess.run(
        ["sh", "-c", f"{' '.join(command)} {log} | head -1"], capture_output=True, text=True, check=False
    )
    assert (shell.stdout.count("\n"), shell.stderr) == (1, "")


@pytest.mark.parametrize(
    "data",
    [
        b"step 1\n\0\0\0 x\nall done\n",
        b"step 1\n\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\nstep 2 of many\nall done, nothing to report\n",
        b"\0" * 20_000 + b"epoch 3 done\n",
        "nothing here\nat all\n".encode("utf-16-le"),
    ],
    ids=["zeros", "an image", "truncated while it grew", "UTF-16 without its mark"],
)
def test_classify_reads_a_log_with_bytes_that_are_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    """The agent reads such a log, and so does classify: nothing is found in it, and an error behind those bytes is."""
    trace = b'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: bad\n'
    for more, kinds in ((b"", []), (trace, ["python_exception"])):
        (tmp_path / "f").write_bytes(data + more)
        assert main.main(["classify", "--kind", "joblog", f"{tmp_path}/f"]) == 0
        assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == kinds


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (bytes(range(256)), "is no text"),
        (Path(sys.executable).read_bytes()[:100_000], "is no text"),
    ],
    ids=["empty", "every byte", "a program"],
)
def test_classify_refuses_what_is_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str
) -> None:
    """Silence would read as a clean log."""
    (tmp_path / "f").write_bytes(data)
    assert main.main(["classify", f"{tmp_path}/f"]) == errors.MalformedInput.exit_code
    assert main.main(["classify", f"{tmp_path}/none"]) == errors.MalformedInput.exit_code
    assert words in capsys.readouterr().err
    (tmp_path / "f").write_text("2026-11-20T10:59:57Z n1 kernel: usb 1-1: new device\n")
    assert main.main(["classify", f"{tmp_path}/f"]) == 0


def test_classify_tells_what_it_took_the_file_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node's syslog is no job's output, whatever its daemons complain of; and nothing found is not silence."""
    daemons = "".join(f"Apr 01 10:00:0{n} gpu03 slurmd[99]: error: whatever {n}\n" for n in range(9))
    log = tmp_path / "messages"
    log.write_text(f"Apr 01 10:00:00 gpu03 kernel: {XID}\n{daemons}")
    assert main.main(["classify", str(log)]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["kind"] for line in shown.out.splitlines()] == ["xid"]
    assert "1 finding, read as a kernel log (--kind joblog: as a job's output)" in shown.err
    log.write_text("starting\nepoch 1 loss 2.3\n")
    assert main.main(["classify", str(log)]) == 0
    assert "0 findings, read as a job's output" in capsys.readouterr().err
    own = ["Traceback (most recent call last):", '  File "t.py", line 3, in f', "KeyError: 'lr'"]
    log.write_text("".join(f"Apr 01 10:00:00 gpu03 finetune[77]: {line}\n" for line in own))
    assert main.main(["classify", str(log)]) == 0
    assert "read as a job's output" in capsys.readouterr().err, (
        "a journal of one program may be the job's own"
    )


@pytest.mark.timeout(60)
def test_classify_follows_a_pipe_line_by_line() -> None:
    """A finding is printed when its line has come, not when the pipe is full."""
    command = [
        sys.executable,
        "-m",
        "probing_cluster.control_plane.cli.main",
        "classify",
        "--kind",
        "kernel",
        "-",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"2026-11-20T10:59:57Z {XID}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["code"] == "79"
        process.stdin.close()


def test_help_is_there_for_everything_and_loads_nothing_slow() -> None:
    """--help of every command works; the command line alone imports no database, no engine."""
    script = (
        "import sys; from probing_cluster.control_plane.cli import main; main.parser(); "
        "slow = 'sqlalchemy psycopg datafusion pyarrow numpy apscheduler jinja2'.split(); "
        "sys.exit(' '.join(m for m in slow if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "classify" in main.parser().format_help()


@pytest.mark.parametrize(
    ("text", "directory", "url"),
    [("./x", os.path.realpath("x"), ""), ("postgresql://h/d", "/d", "postgresql://h/d"), (None, "/d", "u")],
)
def test_where_an_import_goes(text: str | None, directory: str, url: str) -> None:
    """A directory means the embedded server there, a URL a server, nothing what is configured."""
    base = settings.Settings(database=settings.DatabaseSettings(url="u", directory="/d"))
    found = import_commands.database_of(base, text)
    assert (found.directory, found.url) == (directory, url)


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "2026-13-01", "tomorrow"])
def test_bad_spans_are_refused(text: str) -> None:
    """A typo in --since is no span of nothing."""
    from probing_cluster.core import clock

    with pytest.raises(errors.UsageError):
        span.instant(text, clock.SYSTEM.now())


@pytest.mark.parametrize(
    ("text", "at"),
    [("today", "2026-11-22"), ("Yesterday", "2026-11-21"), ("2 days ago", "2026-11-20T14:02"), ("2d", "2026-11-20T14:02"), ("90 minutes ago", "2026-11-22T12:32")],
)  # fmt: skip
def test_days_in_words_are_times(text: str, at: str) -> None:
    now = datetime(2026, 11, 22, 14, 2, tzinfo=UTC)
    assert span.instant(text, now) == datetime.fromisoformat(at).replace(tzinfo=UTC)


def test_what_is_no_time_is_answered_with_every_form() -> None:
    with pytest.raises(errors.UsageError, match=r"today, yesterday .* 7d .* 2026-01-31T14:02Z"):
        span.instant("monday", datetime(2026, 11, 22, tzinfo=UTC))


@pytest.mark.parametrize("option", ["--partition", "--user"])
def test_an_empty_name_is_refused(run: Run, history: list[str], option: str) -> None:
    """An empty shell variable would ask for everybody, and be answered with nothing."""
    code, _, err = run("fleet", "job-sizes", option, "", "--since", "2026-11-01", "--until", "2026-12-01")
    assert (code, f"{option} '' names nothing" in err) == (2, True)


def test_the_fleet_as_a_page(run: Run, history: list[str], tmp_path: Path) -> None:
    """--html writes every figure drawn, self-contained; a place that cannot be written is one clear line."""
    run(*history)
    run("attribute")
    target = tmp_path / "fleet.html"
    code, out, err = run("fleet", "--html", str(target), "--since", "2026-11-01", "--until", "2026-12-01")
    assert (code, out, err) == (0, "", f"probing-ctl: wrote {target}\n")
    text = target.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert [name for name in fleet_commands.FIGURES if f'<section id="{name}"' not in text] == []
    assert text.count("<svg") >= 6
    assert run("fleet", "--html", str(tmp_path / "no" / "x.html"))[0] == 2


READING = (
    ("nodes",),
    ("drain", "n1", "--reason", "x"),
    ("resume", "n1"),
    ("ack", "n1"),
    ("set-healthy", "n1"),
    ("attribute",),
    ("verdict", "7", "--cause", "time_limit"),
    ("fleet", "all"),
    ("lemon", "report"),
    ("lemon", "list"),
    ("lemon", "confirm", "n1"),
    ("policy", "simulate"),
    ("query", "SELECT 1"),
    ("db", "status"),
    ("db", "start"),
    ("db", "logins"),
    ("db", "add-agent", "n1"),
)


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A settings file whose database nobody has made."""
    path = tmp_path / "probing.toml"
    path.write_text(
        f'[database]\ndirectory = "{tmp_path}/db"\n[slurm]\nbin_directory = "{tmp_path}/none"\n'
        f'[service]\nsocket = "{tmp_path}/s"\n'
    )
    return path


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_makes_no_database(
    words: tuple[str, ...], nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says that there is none and what makes one, exit 4; nothing is created and no server is started."""
    assert main.main([*words, "--config", str(nowhere)]) == errors.DatabaseUnavailable.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{nowhere.parent}/db" in captured.err
    assert "probing-ctl db upgrade" in captured.err
    assert [p.name for p in nowhere.parent.iterdir()] == ["probing.toml"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--sacct", "{}/none"), errors.MalformedInput.exit_code),
        (("--sacct", "{}/garbage"), errors.MalformedInput.exit_code),
        (("--sacct", "{}/good", "--events", "{}/none"), errors.MalformedInput.exit_code),
        (("--sacct", "{}/good", "--kernel", "n1={}/broken"), errors.MalformedInput.exit_code),
        (("--events", "{}/garbage"), errors.MalformedInput.exit_code),
        (("--kernel", "n1={}/garbage"), errors.MalformedInput.exit_code),
        (("--sacct", "{}/good", "--kernel", "n1={}/garbage"), errors.MalformedInput.exit_code),
        (("--kernel", "n1={}/empty"), errors.MalformedInput.exit_code),
        (("--events", "{}/empty"), errors.MalformedInput.exit_code),
        (("--kernel", "n1={}/uptime"), errors.MalformedInput.exit_code),
        (("--joblog", "7={}/garbage"), errors.DatabaseUnavailable.exit_code),
        (("--sacct", "{}/good", "--joblog", "7={}/none"), errors.MalformedInput.exit_code),
        (("--sacct", "{}/good", "--joblog", "9={}/garbage"), errors.NotFound.exit_code),
        (("--sacct", "{}/good", "--joblog", "7={}/broken"), errors.MalformedInput.exit_code),
        (("--kernel", "{}/uptime"), errors.MalformedInput.exit_code),
    ],
)
def test_an_import_that_fails_makes_no_database(
    words: tuple[str, ...], code: int, nowhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file is read before anything is made; the error names the file."""
    home = tmp_path / "files"
    home.mkdir()
    (home / "good").write_text("JobID|State|Start|End\n7|FAILED|1700000000|1700000060\n")
    (home / "garbage").write_bytes(bytes(range(256)) * 4)
    (home / "broken").write_bytes(b"\x1f\x8b broken")
    (home / "empty").touch()
    (home / "uptime").write_text("[   12.5] NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n")
    given = [word.format(home) for word in words]
    assert main.main(["import", *given, "--config", str(nowhere)]) == code
    assert not (tmp_path / "db").exists()
    assert (f"{home}/" in capsys.readouterr().err) == (code != errors.DatabaseUnavailable.exit_code)


def test_a_database_whose_import_failed_is_stopped_and_removed(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it fails while it stores; what was in the directory before stays."""
    from probing_cluster.control_plane.imports import load

    (tmp_path / "good").write_text("JobID|State|Start|End\n7|FAILED|1700000000|1700000060\n")

    def broken(*_: object, **__: object) -> None:
        raise errors.MalformedInput("broken")

    monkeypatch.setattr(load, "save", broken)
    with tempfile.TemporaryDirectory(prefix="probing-pg-") as text:
        home = Path(text)
        home.chmod(0o755)  # the server's account walks through it
        (home / "mine").mkdir()
        (home / "mine" / "kept").touch()
        for directory in (home / "new" / "db", home / "mine"):
            given = ["import", "--sacct", f"{tmp_path}/good", "--database", str(directory)]
            assert main.main([*given, "--config", str(nowhere)]) == errors.MalformedInput.exit_code
        assert sorted(path.relative_to(home) for path in home.rglob("*")) == [Path("mine"), Path("mine/kept")]


def test_fleet_looks_at_what_an_export_shows(run: Run, tmp_path: Path) -> None:
    """Its span ends with the newest row, not today: a job that ran then is not counted as running since."""
    (tmp_path / "sacct.txt").write_text(
        "JobIDRaw|State|Submit|Start|End|NodeList|AllocTRES\n"
        "7|COMPLETED|2020-01-02T00:00:00|2020-01-02T00:00:00|2020-01-02T10:00:00|n1|gres/gpu=8\n"
        "8|RUNNING|2020-01-02T00:00:00|2020-01-02T00:00:00|Unknown|n2|gres/gpu=8\n"
    )
    run("import", "--sacct", f"{tmp_path}/sacct.txt", "--timezone", "UTC")
    out = run("fleet")[1]
    assert "2020-01-02 00:00 to 2020-01-02 10:00 UTC" in out
    assert "1 attempt ended" in out


def test_nothing_is_stored_of_an_import_whose_output_has_no_job(
    run: Run, history: list[str], tmp_path: Path, store: db_store.Store
) -> None:
    """The error names the file; the same import without it then finds nothing there already."""
    code, _, err = run(*history, "--joblog", f"4711={tmp_path}/out.log")
    assert (code, f"{tmp_path}/out.log is given as output of job 4711" in err) == (3, True)
    assert (store.attempts(), store.events()) == ([], [])


@pytest.mark.parametrize(
    "text", ["99999999999999d", "9" * 400 + "d", "800000d", "21000d", "0001-01-01", "9999-12-31T23:59-14:00"]
)
def test_a_span_longer_than_time_is_wrong_usage(text: str) -> None:
    """A sentence, not a traceback."""
    with pytest.raises(errors.UsageError):
        span.instant(text, datetime(2026, 11, 22, tzinfo=UTC))


def test_bad_questions_are_sentences(run: Run) -> None:
    """A limit below nothing, a question that takes too long, one that changes something: each says what is wrong."""
    assert run("query", "select 1", "--limit", "-5")[0] == 2
    code, _, err = run("query", "select pg_sleep(30)", "--timeout", "0.2")
    assert (code, "no answer within 0.2 s" in err) == (1, True)
    code, _, err = run("query", "delete from verdict")
    assert (code, "one SELECT is answered" in err) == (2, True)
    for sql, why in (
        ("with x as (delete from probing.job_attempt returning 1) select * from x", "data-modifying"),
        ("select (repeat('[', 3000) || repeat(']', 3000))::json", "nested too deep"),
        ("select (repeat('[', 100000) || repeat(']', 100000))::json", "cannot answer this: stack depth"),
        ("select repeat('x', 2000000000)", "cannot answer this: requested length too large"),
    ):
        code, _, err = run("query", sql)
        assert (code, why in err) == (2, True), err
    code, _, err = run("query", "select 1 as x where false")
    assert (code, "no rows" in err) == (0, True)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select * from ops.node_nwo", "did you mean ops.node_now? docs/sql.md has every view"),
        ("select * from verdicts", "did you mean verdict"),
        ("select * from qqqqqq", 'relation "qqqqqq" does not exist; docs/sql.md'),
        ("select nod from drain", 'column "nod" does not exist; docs/sql.md'),
    ],
)
def test_a_slip_in_a_question_is_helped(run: Run, sql: str, hint: str) -> None:
    """The views are in the manual, and a name that is nearly one of them is told."""
    code, _, err = run("query", sql)
    assert (code, hint in err) == (2, True), err


def test_a_login_that_is_refused_is_no_database_that_is_away(
    store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server answers, and says no: 5, not 4."""
    url = store.connection_uri().replace("probing_owner", "nobody_at_all", 1)
    path = tmp_path / "other.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{url}"\n[slurm]\nbin_directory = "{tmp_path}"\n'
    )
    assert main.main(["nodes", "--config", str(path)]) == errors.NotPermitted.exit_code
    err = capsys.readouterr().err
    assert "does not let you in" in err
    assert "as the service's account, or with a login of your own" in err


@pytest.mark.parametrize("act", ["start", "stop"])
def test_a_server_that_a_url_names_is_said_to_be_whose(
    act: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It need not be the caller's own: the socket's directory shows the account."""
    path = tmp_path / "url.toml"
    path.write_text(f'[database]\nurl = "postgresql:///probing?host={tmp_path}"\n')
    assert main.main(["db", act, "--config", str(path)]) == 2
    err = capsys.readouterr().err
    assert f"of {tmp_path.owner()}, which db start and db stop do not run" in err
    assert "of your own" not in err
    assert "settings that name its directory" in err


def test_fleet_asks_whether_it_is_let_in_before_it_works(
    store: db_store.Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The figures' libraries alone take seconds to load."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("a figure was begun")

    monkeypatch.setattr(fleet_commands, "read_once", work)
    url = store.connection_uri().replace("probing_owner", "nobody_at_all", 1)
    path = tmp_path / "other.toml"
    path.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{url}"\n')
    assert main.main(["fleet", "--config", str(path)]) == errors.DatabaseRefused.exit_code
    assert "does not let you in" in capsys.readouterr().err


def test_a_task_of_an_array_is_no_job_of_another_number(run: Run, store: db_store.Store) -> None:
    """Python's `int` takes 8_4 for 84: another user's job was judged, and its nodes were to be tested."""
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    failed = {
        "cluster": "c",
        "start_at": at,
        "end_at": at + timedelta(hours=1),
        "state": "FAILED",
        "exit_code": 1,
    }
    store.upsert_attempts(
        [
            records.JobAttempt(job_id=84, submit_at=at, user="eve", nodes=("n9",), **failed),
            records.JobAttempt(
                job_id=812, array_job_id=8, array_task_id=4, submit_at=at, user="bob", nodes=("n3",), **failed
            ),
        ]
    )  # fmt: skip
    assert run("attribute", "--job", "8_4")[0] == 0
    assert [v.job_id for v in store.verdicts()] == [812]
    code, _, err = run("attribute", "--job", "8_4_4")
    assert (code, "is not a job id" in err) == (2, True)
    assert run("attribute", "--job", "20_2")[0] == 3
    code, out, err = run("diagnose", "--job", "8_4", "--dry-run")
    assert "n9" not in out + err
    assert "no step time of job 812" in run("swap-search", "8_4")[2]


def test_a_job_that_nobody_knows_is_not_judged(run: Run) -> None:
    """attribute ends with 3 rather than with nothing judged."""
    code, out, err = run("attribute", "--job", "99999")
    assert (code, out) == (3, "")
    assert "job 99999 is not known" in err


def test_an_import_of_an_empty_file_says_that_it_is(
    nowhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody who imports is sent to import; and nothing is made of nothing."""
    (tmp_path / "empty").touch()
    assert main.main(["import", "--sacct", f"{tmp_path}/empty", "--config", str(nowhere)]) == 7
    assert "hold no attempt and no event" in capsys.readouterr().err
    assert not (tmp_path / "db").exists()


def test_a_quiet_kernel_log_is_a_good_one(run: Run, tmp_path: Path) -> None:
    """A log of a node on which nothing happened is read and holds no event: no error where the database is there."""
    (tmp_path / "quiet").write_text("2026-11-21T10:00:00+00:00 n1 kernel: usb 1-1: new device\n")
    code, out, _ = run("import", "--kernel", f"n1={tmp_path}/quiet")
    assert (code, "0 events of 1 line" in out) == (0, True)


def test_classify_gives_its_process_the_signal_of_a_closed_pipe_back(tmp_path: Path) -> None:
    """Kept at its default, any closed socket ended whoever had called it: a server, or the tests' own workers."""
    (tmp_path / "log").write_text("Traceback (most recent call last):\nKeyError: 'lr'\n")
    before = signal.getsignal(signal.SIGPIPE)
    assert main.main(["classify", str(tmp_path / "log")]) == 0
    assert signal.getsignal(signal.SIGPIPE) == before


def test_an_arrays_number_names_all_its_tasks_and_a_tasks_name_one(run: Run, store: db_store.Store) -> None:
    """Slurm's raw ids of the tasks are others."""
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=812 + task, array_job_id=8, array_task_id=task, submit_at=at, start_at=at,
                end_at=at + timedelta(hours=1), state="FAILED", exit_code=1, user="bob", nodes=("n3",),
            )
            for task in (4, 5)
        ]
    )  # fmt: skip
    assert run("attribute", "--job", "8_4")[0] == 0
    assert [v.job_id for v in store.verdicts()] == [816]
    assert run("attribute", "--job", "8")[0] == 0
    assert sorted(v.job_id for v in store.verdicts()) == [816, 817]
