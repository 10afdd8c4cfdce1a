"""`probing-ctl ranks`, `stacks`, `watch` on a real database, and through the door of a real service."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import gang_rows
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.door import report_door
from probing_cluster.core import peer, settings
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store


@pytest.fixture
def config(store: db_store.Store, tmp_path: Path) -> Path:
    """Settings of somebody who may open the database; no service runs."""
    path = tmp_path / "probing.toml"
    path.write_text(
        f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n[service]\nsocket = "{tmp_path}/s"\n'
    )
    store.upsert_attempts([gang_rows.attempt(7, "n1", "n2")])
    gang_rows.beat(store, 7, {r: gang_rows.row(r) for r in range(4)})
    return path


def test_ranks_as_text_and_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same ranks for people and for programs."""
    assert main.main(["ranks", "7", "--config", str(config)]) == 0
    assert "0-3" in capsys.readouterr().out
    assert main.main(["ranks", "7", "--json", "--config", str(config)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(r["rank"], r["node"]) for r in printed["ranks"]] == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]


def test_nodes_without_ranks_are_not_called_silent(
    config: Path, store: db_store.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their agents are heard: there is no rank of which they could tell."""
    store.upsert_attempts([gang_rows.attempt(8, "n1", "n2")])
    for words in (["ranks", "8"], ["watch", "8", "--count", "1"]):
        assert main.main([*words, "--config", str(config)]) == 0
        out = capsys.readouterr().out
        assert "no probe page has been seen" in out
        assert "nothing about this job came" not in out


def test_stacks_waits_for_every_node_that_is_asked(
    config: Path, store: db_store.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes answer while the command waits; it ends with them, not with its deadline."""

    def nodes_answer() -> None:
        for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
            while not calls(store, node):  # an answer of before the question counts for nothing
                time.sleep(0.05)
            entries = [gang_rows.entry(r, gang_rows.REDUCE) for r in ranks]
            gang_rows.snapshot(store, 7, node, entries, at=datetime.now(UTC))

    later = threading.Thread(target=nodes_answer, daemon=True)
    later.start()
    try:
        assert main.main(["stacks", "7", "--wait", "100000", "--config", str(config)]) == 0
    finally:
        later.join()
    printed = capsys.readouterr().out
    assert "4 ranks" in printed
    assert "all_reduce  torch/distributed/distributed_c10d.py:2825" in printed


def test_stacks_last_asks_nobody(
    config: Path, store: db_store.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--last` shows what there is, at once."""
    assert main.main(["stacks", "7", "--last", "--config", str(config)]) == 0
    assert "no stacks have been taken of it yet" in capsys.readouterr().out
    assert calls(store, "n1") == []


def calls(store: db_store.Store, node: str) -> list[str]:
    """What a node's agent would be asked."""
    return [r.verb for r in delivery.Delivery(store.connection_uri(), "c", node).deliver(events=[]).requests]


def test_watch_ends_with_the_job_or_its_count(
    config: Path, store: db_store.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two looks as two lines of JSON; of a job that has ended a single one."""
    assert (
        main.main(["watch", "7", "--json", "--count", "2", "--interval", "0.01", "--config", str(config)])
        == 0
    )
    assert [json.loads(line)["job_id"] for line in capsys.readouterr().out.splitlines()] == [7, 7]
    store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", end=True)])
    assert main.main(["watch", "7", "--interval", "0.01", "--config", str(config)]) == 0
    assert capsys.readouterr().out.count("Job 7") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["ranks", "99"], 3),
        (["stacks", "99"], 3),
        (["watch", "99"], 3),
        (["ranks", "seven"], 2),
        (["watch", "7", "--interval", "0"], 2),
        (["watch", "7", "--count", "-1"], 2),
    ],
)
def test_exit_codes(config: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int) -> None:
    """No such job and wrong usage are told by the code, in one line."""
    assert main.main([*words, "--config", str(config)]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture
def door(service: context.Context, tmp_path: Path) -> Iterator[Path]:
    """The settings of a user who has only the service's socket; job 7 is alice's."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2")])
    gang_rows.beat(service.store, 7, {r: gang_rows.row(r) for r in range(4)})
    with tempfile.TemporaryDirectory(prefix="probing-door-") as directory:
        Path(directory).chmod(0o755)
        socket = Path(directory) / "report.sock"
        service.config = dataclasses.replace(
            service.config, service=settings.ServiceSettings(socket=str(socket), operators=("daemon",))
        )
        config = Path(directory) / "probing.toml"
        config.write_text(
            f'[cluster]\nname = "c"\n[database]\ndirectory = "{directory}/none"\n[service]\nsocket = "{socket}"\n'
        )
        config.chmod(0o644)
        with report_door.serving(service):
            yield config


@pytest.mark.parametrize(("uid", "code"), [(0, 0), (1, 0), (65534, 5), (23456, 5)])
@pytest.mark.parametrize("command", ["ranks", "stacks", "watch"])
def test_through_the_door_only_owner_and_operators(
    door: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    uid: int,
    code: int,
) -> None:
    """root and an operator are answered; another user and a uid without a name leave with exit code 5."""
    monkeypatch.setattr(peer, "uid_of", lambda _: uid)
    more = {"stacks": ["--last"], "watch": ["--count", "1"]}.get(command, [])
    assert main.main([command, "7", *more, "--config", str(door)]) == code
    assert bool(capsys.readouterr().out) is (code == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that any user may run")
@pytest.mark.parametrize("uid", [65534, 23456])
@pytest.mark.parametrize("op", ["ranks", "stacks"])
def test_the_kernel_says_who_asks(door: Path, op: str, uid: int) -> None:
    """A real process of another uid, whatever it claims in its request, sees nothing of alice's ranks."""
    script = textwrap.dedent(
        """
        import json, socket, sys
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
        request = {"v": 1, "op": sys.argv[2], "job": "7", "uid": 0, "user": "alice", "fresh": True}
        s.sendall(json.dumps(request).encode() + b"\\n")
        print(s.makefile().read())
        """
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", script, str(door.parent / "report.sock"), op],
        check=False, capture_output=True, text=True, user=uid, group=uid, extra_groups=[], timeout=30,
    )  # fmt: skip
    assert json.loads(done.stdout)["error"] == "not_permitted", done.stderr
    assert "n1" not in done.stdout
