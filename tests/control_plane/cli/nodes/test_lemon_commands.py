from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lemon_fleet as fleet
import mail_server
import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.policy import exclude_list
from probing_cluster.core import clock, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.reports.charts import lemon_charts
from probing_cluster.slurm_plugins.live import live_records
from tests.set_clock import SetClock

Run = Callable[..., tuple[int, str, str]]
LATER = fleet.END + timedelta(hours=9)


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a night takes a second of processor: one test does, the others' charts are a word."""
    if request.function.__name__ != "test_report_scores_the_last_whole_day_once":
        for name in ("_nodes", "_fleet"):
            monkeypatch.setattr(lemon_charts, name, lambda *_: None)
        monkeypatch.setattr(lemon_charts, "_png", lambda _: b"drawn")


@pytest.fixture
def config(tmp_path: Path, store: db_store.Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings on the story's database; Slurm's commands are not there."""
    fleet.story(store)
    monkeypatch.setattr(clock, "SYSTEM", SetClock(LATER))
    path = tmp_path / "probing.toml"
    write(path, store)
    return path


def write(path: Path, store: db_store.Store, mail: str = "") -> None:
    spool = path.parent / "mail"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n[slurm]\nlive = "cli"\n'
        f'bin_directory = "{path.parent}/nothing"\n[mail]\nspool_directory = "{spool}"\n{mail}'
    )


@pytest.fixture
def run(config: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs probing-ctl lemon."""

    def one(*words: str) -> tuple[int, str, str]:
        code = main.main(["lemon", *words, "--config", str(config)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


def test_report_scores_the_last_whole_day_once(run: Run, store: db_store.Store, tmp_path: Path) -> None:
    """Text, JSON and page of the same night; a second call reads what is stored."""
    code, out, err = run("report")
    assert (code, err) == (0, "")
    assert "c, 2026-11-20: 1 new lemon: n07 (40 nodes scored)" in out
    made = {s.made_at for s in store.lemon_scores()}
    page = tmp_path / "night.html"
    code, out, _ = run("report", "--day", "2026-11-20", "--json", "--html", str(page))
    assert [s["node"] for s in json.loads(out)["new"]] == ["n07"]
    assert "data:image/png;base64," in page.read_text()
    assert {s.made_at for s in store.lemon_scores()} == made
    code, out, _ = run("report", "--html", "-")
    assert out.startswith("<!DOCTYPE html>")


def test_of_an_imported_history_the_last_day_is_its_own(run: Run, store: db_store.Store) -> None:
    """Nothing is known of yesterday: "a quiet night" would be untrue."""
    store.remember(vocabulary.ACCOUNTING_EXPORTED, "2026-11-19T15:00:00Z")
    code, out, _ = run("report")
    assert (code, out.partition(":")[0]) == (0, "c, 2026-11-19")
    store.remember(f"{vocabulary.ACCOUNTING_READ} c", "2026-11-21T03:00:00Z")
    assert run("report")[1].startswith("c, 2026-11-20")


def test_only_whole_days_that_have_passed(run: Run) -> None:
    """Half a day would be scored again under the same name."""
    for day in ("2026-11-21", "2027-01-01", "yesterday", "0001-01-01", "2026-11-20T10:00"):
        assert run("report", "--day", day)[0] == 2, day


def test_send_mails_a_night_once(run: Run, config: Path, store: db_store.Store) -> None:
    """--send goes through the outbox at once; a second one says so; --again does send it again."""
    box = mail_server.Box()
    with mail_server.running(box) as port:
        write(
            config,
            store,
            f'host = "localhost"\nport = {port}\nsecurity = "none"\nrecipients = ["ops@example.org"]\n',
        )
        code, _, err = run("report", "--send")
        assert (code, err) == (0, "probing-ctl: mail lemon.c.2026-11-20.mail: sent\n")
        code, _, err = run("report", "--send")
        assert (code, "was sent before" in err) == (0, True)
        assert run("report", "--send", "--again")[0] == 0
    assert len(box.mails) == 2


def test_a_refused_mail_fails_the_command_and_stays_in_the_outbox(
    run: Run, config: Path, store: db_store.Store
) -> None:
    """5xx: exit 1, kept with its reason; `outbox --retry` delivers it once the server takes it."""
    box = mail_server.Box()
    box.replies = ["550 5.1.1 no such user"]
    with mail_server.running(box) as port:
        write(
            config,
            store,
            f'host = "localhost"\nport = {port}\nsecurity = "none"\nrecipients = ["ops@example.org"]\n',
        )
        code, _, err = run("report", "--send")
        assert (code, "550 5.1.1 no such user" in err) == (1, True)
        (waiting,) = json.loads(run("outbox", "--json")[1])
        assert (waiting["state"], waiting["recipients"]) == ("failed", ["ops@example.org"])
        assert "550" in run("outbox")[1]
        assert run("outbox", "--retry")[1] == "nothing waits\n"
    assert len(box.mails) == 1


def test_send_without_anywhere_to_send_to(run: Run) -> None:
    """Said, not swallowed."""
    code, _, err = run("report", "--send")
    assert (code, "[mail] host and recipients are empty" in err) == (2, True)


def test_list_shows_lemons_and_one_node_in_full(run: Run) -> None:
    """Without a night it says so; then the table, a node's card, JSON, and an unknown node is named."""
    assert run("list")[0] == 3
    run("report")
    code, out, _ = run("list")
    assert code == 0
    (row,) = [line for line in out.splitlines() if line.startswith("n07")]
    assert row.split()[1:3] == ["lemon", "over"]
    out = run("list", "n07")[1]
    assert "probing-report 1 " in out
    assert "probing-ctl lemon confirm n07" in out
    assert [s["node"] for s in json.loads(run("list", "n07,n2[0-1]", "--json")[1])] == ["n07", "n20", "n21"]
    code, _, err = run("list", "n99")
    assert (code, "n99" in err) == (3, True)


def test_thresholds_from_the_sites_own_distribution(run: Run) -> None:
    """The paper's way: percentiles of this fleet, the thresholds, and whom two of seven name (n20 on one failure)."""
    found = json.loads(run("thresholds", "--json")[1])
    assert (found["n_nodes"], found["named"]) == (40, ["n07", "n20"])
    assert found["distribution"]["multi_node_node_fails"]["p100"] == 5
    assert found["thresholds"]["multi_node_node_fails"] == pytest.approx(3.05)
    assert found["outages_by_slurm"] is False
    out = run("thresholds", "--percentile", "95", "--votes", "3")[1]
    assert out.splitlines()[0] == "40 nodes, 28 days until 2026-11-20"
    assert run("thresholds", "--percentile", "0")[0] == 2


def test_what_people_say_counts_from_the_next_night(run: Run, store: db_store.Store) -> None:
    """confirm, deny, repaired: a note with author and words, about the lemon and not about a fault."""
    run("report")
    assert "n20: noted" in run("confirm", "n20", "--note", "bad riser")[1]
    (note,) = json.loads(run("deny", "n07", "--note", "was the switch", "--json")[1])
    assert (note["node"], note["action"], note["note"]) == ("n07", "deny", "was the switch")
    code, _, err = run("confirm", "n20,n99")
    assert (code, "n99 is not known" in err) == (3, True)
    notes = {n.subject: n for n in store.notes()}
    assert notes["node:n20"].action == "confirm"
    assert notes["node:n07"].detail == {"lemon": True}
    run("report", "--again")
    assert {s.node: s.verdict for s in store.lemon_scores(day=fleet.DAY)}["n07"] == "lemon"
    # Said in the morning after the day scored: it changes the next night, not the one it answers.
    assert store.lemon_scores(node="n20")[0].verdict != "lemon"


def test_tickets_come_in_once(run: Run, tmp_path: Path, store: db_store.Store) -> None:
    """CSV with hostlists; read twice counts once; a bad row is told and stops no other."""
    path = tmp_path / "tickets.csv"
    path.write_text(
        "ticket,node,opened,note\nT-1,n07,2026-11-18,GPU\nT-2,n0[7-8],2026-11-19T10:00:00+01:00,\nT-3,,2026-11-18,\nT-4,n1,soon,\n"
    )
    code, out, _ = run("tickets", str(path))
    assert code == 1
    assert out.splitlines()[0] == "3 tickets new, 0 known, 2 rows rejected"
    assert json.loads(run("tickets", str(path), "--json")[1]) | {"rejected": 0} == {
        "new": 0,
        "known": 3,
        "rejected": 0,
    }
    assert {n.at for n in store.notes("node:n08")} == {datetime(2026, 11, 19, 9, tzinfo=UTC)}
    run("report")
    assert store.lemon_scores(node="n07")[0].tickets == 2
    path.write_text("node,id\n")
    assert run("tickets", str(path))[0] == 7
    assert run("tickets", str(tmp_path / "none.csv"))[0] == 7


def test_the_exclude_list(run: Run) -> None:
    """A hostlist for --exclude; features and weights need Slurm, which is away here."""
    run("report")
    assert run("exclude-list") == (0, "n07\n", "")
    assert json.loads(run("exclude-list", "--suspects", "--json")[1]) == ["n07"]
    assert run("exclude-list", "--format", "features")[0] == 6


def node(name: str, *features: str) -> live_records.LiveNode:
    return live_records.LiveNode(name=name, state="IDLE", features=features)


def test_features_mark_the_sound_and_keep_the_rest() -> None:
    """Lemons lose the word, everybody else has it once, other features stay; what is right already is left alone."""
    nodes = [
        node("n1", "a100"),
        node("n2", "a100"),
        node("n3", "a100", "sound"),
        node("n4", "sound"),
        node("n5"),
    ]
    assert exclude_list.features(["n2", "n3"], nodes) == [
        "scontrol update NodeName=n3 AvailableFeatures=a100 ActiveFeatures=a100",
        "scontrol update NodeName=n1 AvailableFeatures=a100,sound ActiveFeatures=a100,sound",
        "scontrol update NodeName=n5 AvailableFeatures=sound ActiveFeatures=sound",
    ]
    assert exclude_list.weights(["n2", "n9"], nodes) == ["scontrol update NodeName=n2 Weight=1000000"]
    assert exclude_list.weights(["n9"], nodes) == []
