"""The whole agent on a simulated node and a real Postgres: killed, rebooted, stormed, and never wrong about the count."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.nodetree import build, identity, kmsg

PATIENCE_S = 60.0

KILL_ROUNDS = int(os.environ.get("PROBING_KILL_ROUNDS", "2"))
"""As in tests/db/test_kill.py, which kills the server; the long version has 200."""


class Node:
    """A simulated node with an agent that can be started, asked and killed."""

    def __init__(self, home: Path, short: Path, url: str, library: Path) -> None:
        self.home, self.root, self.url = home, home / "root", url
        self.hardware = identity.identity("n1", 1, 8)
        self.state = home / build.NVML_STATE
        self.socket = short / "agent.sock"
        self.config = home / "probing.toml"
        self.config.write_text(
            f'[cluster]\nname = "c"\n[agent]\nroot = "{self.root}"\nnode = "n1"\nsocket = "{self.socket}"\n'
            f'spool_directory = "{home}/spool"\njob_directory = "{home}/jobs"\nnvml_library = "{library}"\n'
            f'database_url = "{url}"\npoll_s = 1.0\nbeat_s = 2.0\njob_beat_s = 1.0\nsweep_s = 3600.0\n'
            f'gpu_numbering = "minor"\n[checks]\nstate_file = "{home}/checks.json"\n'
            f'[slurm]\nbin_directory = "{home}"\n'
        )
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--config", str(self.config)]
        environment = {**os.environ, "PROBING_NVML_STATE": str(self.state)}
        self.socket.unlink(missing_ok=True)
        # As systemd starts it: the variable names the very process.
        watched = ["/bin/sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", *argv]
        self.agent = subprocess.Popen(watched, env=environment)
        self.wait(self._listens)

    def _listens(self) -> bool:
        """The socket's name is there a moment before anybody listens on it."""
        with (
            socket.socket(socket.AF_UNIX) as peer,
            contextlib.suppress(FileNotFoundError, ConnectionRefusedError),
        ):
            peer.connect(str(self.socket))
            return True
        return False

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.agent is not None
        self.agent.send_signal(number)
        return self.agent.wait(timeout=PATIENCE_S)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(str(self.socket))
            peer.sendall(json.dumps({"v": 1, "op": op, **fields}).encode() + b"\n")
            reply = b""
            while not reply.endswith(b"\n"):
                reply += peer.recv(65536)
        return json.loads(reply)

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def wait(self, until: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if found := until():
                return found
            time.sleep(0.05)
        raise AssertionError("it did not happen in time")

    def line(self, text: str) -> None:
        kmsg.append(self.root, text)

    def xid(self, code: int, gpu: int, pid: int = 1) -> str:
        address = self.hardware.gpus[gpu].pci.rpartition(".")[0]
        return f"NVRM: Xid (PCI:{address}): {code}, pid={pid}, name=python3, what happened"


@pytest.fixture
def node(
    home: Path, postgres_url: str, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    made = Node(home, tmp_path_factory.mktemp("s"), postgres_url, nvml_library)
    yield made
    if made.agent is not None and made.agent.poll() is None:
        made.kill()


def test_gpu_that_falls_off_the_bus_is_two_rows_of_evidence_and_a_standing_fault(node: Node) -> None:
    """The kernel's line and NVML's word both arrive, named after the same GPU; the fault stands in the heartbeat."""
    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    node.line(node.xid(79, 3))
    nvml_state.set_gpu(node.state, 3, {"lost": 1})
    nvml_state.add_event(node.state, 3, 79)
    query = "select kind, code, source, device, gpu_uuid from probing.health_event where severity = 'high'"
    node.wait(lambda: len(node.rows(query)) >= 3)
    uuid = node.hardware.gpus[3].uuid
    assert {tuple(r) for r in node.rows(query)} == {
        ("xid", "79", "kernel", "gpu3", uuid),
        ("xid", "79", "nvml", "gpu3", uuid),
        ("gpu_lost", "GPU_IS_LOST", "nvml", "gpu3", uuid),
    }
    beat = "select faults from probing.agent_heartbeat order by at desc limit 1"
    faults = node.wait(lambda: (f := node.rows(beat)[0][0]) and "gpu_lost:gpu3" in f and f)
    assert {"xid:gpu3", "gpu_lost:gpu3"} <= faults.keys()


@pytest.mark.longer
def test_sigkill_at_random_moments_under_load_loses_no_line_and_repeats_none(node: Node) -> None:
    """Lines written while the agent lives, dies and starts again: one sighting each, whatever is folded."""
    rng = random.Random(11)
    written = 0
    for _ in range(KILL_ROUNDS):
        node.start()
        for _ in range(5):
            for _ in range(rng.randrange(1, 60)):
                node.line(node.xid(31, rng.randrange(8), pid=rng.randrange(3)))
                written += 1
            time.sleep(rng.uniform(0, 0.1))
        node.kill()
    node.start()
    query = "select coalesce(sum(count), 0), count(*), count(distinct event_id) from probing.health_event where source = 'kernel'"
    node.wait(lambda: node.rows(query)[0][0] >= written)
    assert node.kill(signal.SIGTERM) == 0
    total, n_rows, n_ids = node.rows(query)[0]
    assert total == written
    assert n_rows == n_ids
    print(f"{KILL_ROUNDS} kills, {written} lines, {n_rows} rows")


def test_storm_keeps_its_count_and_does_not_delay_what_is_grave(node: Node) -> None:
    """Twenty thousand lines of noise with one Xid 79 in the middle."""
    node.start()
    noise = "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:833:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed"
    aer = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:1b:00.0"
    kmsg.append(node.root, *([aer, noise] * 5000), node.xid(79, 2), *([aer, noise] * 5000))
    high = "select count(*) from probing.health_event where severity = 'high' and source = 'kernel'"
    node.wait(lambda: node.rows(high)[0][0] == 1)
    query = "select coalesce(sum(count), 0), count(*) from probing.health_event where kind = 'pcie_aer'"
    node.wait(lambda: node.rows(query)[0][0] >= 10_000)
    node.kill(signal.SIGTERM)
    total, n_rows = node.rows(query)[0]
    assert total == 10_000
    assert n_rows < 200


def test_stopping_agent_drains_its_spool(node: Node) -> None:
    """SIGTERM delivers what waits, open folds included, before it ends well."""
    node.start()
    node.wait(lambda: node.ask("status")["delivered_total"] >= 0)
    for _ in range(20):
        node.line(node.xid(13, 1))
    node.wait(lambda: node.ask("status")["sources"].get("kernel_log", {}).get("lines_total", 0) >= 20)
    assert node.kill(signal.SIGTERM) == 0
    assert node.rows("select sum(count) from probing.health_event where source = 'kernel'") == [(20,)]


def test_prolog_and_epilog_leave_an_allocation_with_gpu_identities(node: Node) -> None:
    """From Slurm's numbers to UUIDs, released at the end, with a page directory in between."""
    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    minor = node.hardware.gpus[5].minor
    request = {"job_id": 42, "uid": os.getuid(), "gid": os.getgid(), "gpus": str(minor), "restart_count": 0}
    answer = node.ask("prolog", **request)
    assert answer["fit"] is True
    assert Path(answer["page_directory"]).is_dir()
    assert node.ask("status")["jobs"] == [42]
    node.ask("epilog", **request)
    query = "select gpu_uuids, released_at is not null from probing.job_allocation where job_id = 42"
    node.wait(lambda: node.rows(query) == [([node.hardware.gpus[5].uuid], True)])
    node.wait(lambda: not Path(answer["page_directory"]).exists())


def test_what_began_and_ended_while_no_agent_ran_is_caught_up(node: Node) -> None:
    """The hooks leave notes; the next agent tells of the start and the end at their own times, and reads the job's output."""
    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    minor = node.hardware.gpus[5].minor
    mine = {"uid": os.getuid(), "gid": os.getgid(), "work_dir": str(node.home)}
    node.ask("prolog", job_id=42, gpus=str(minor), stdout=str(node.home / "of-42.out"), **mine)
    node.kill()
    (node.home / "of-42.out").write_text("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'lr'\n")  # fmt: skip
    notes = Path(f"{node.socket}.missed")
    left = [
        ("epilog", {"op": "epilog", "job_id": 42, "gpus": str(minor), **mine}),
        ("prolog", {"op": "prolog", "job_id": 43, "gpus": str(minor), **mine}),
        ("epilog", {"op": "epilog", "job_id": 43, "gpus": str(minor), **mine}),
        ("prolog", {"op": "prolog", "job_id": 44, "gpus": str(minor), **mine}),
        ("epilog", ["no object"]),
    ]
    began = time.time()
    for n, (op, request) in enumerate(left):
        (notes / f"{n}.7.{op}").write_text(json.dumps(request))
        os.utime(notes / f"{n}.7.{op}", (began + n / 100, began + n / 100))
    node.start()
    node.wait(lambda: node.ask("status")["jobs"] == [44] and not list(notes.iterdir()))
    query = "select job_id, gpu_uuids, extract(epoch from released_at) from probing.job_allocation order by job_id"
    uuids = [node.hardware.gpus[5].uuid]
    node.wait(lambda: len(node.rows(query)) == 3 and node.rows(query)[0][2])
    assert [
        (j, u, None if at is None else round(100 * (float(at) - began))) for j, u, at in node.rows(query)
    ] == [
        (42, uuids, 0),
        (43, uuids, 2),
        (44, uuids, None),
    ]
    logs = "select kind, job_id from probing.health_event where source = 'joblog'"
    node.wait(lambda: ("python_exception", 42) in node.rows(logs))


def test_a_note_changes_nothing_of_a_job_that_was_heard_of_since(node: Node) -> None:
    """A hook may be answered before the notes are read: a job that ended runs no more, a later start of it goes on."""
    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    mine = {"uid": os.getuid(), "gid": os.getgid(), "work_dir": str(node.home)}
    for op, job_id in (("prolog", 50), ("epilog", 50), ("prolog", 51)):
        node.ask(op, job_id=job_id, restart_count=1, **mine)
    node.kill()
    notes = Path(f"{node.socket}.missed")
    (notes / "directory.1.prolog").mkdir()
    for op, job_id in (("prolog", 50), ("epilog", 51)):
        note = notes / f"{job_id}.1.{op}"
        note.write_text(json.dumps({"op": op, "job_id": job_id, "restart_count": 0, **mine}))
        os.utime(note, (time.time() - 600, time.time() - 600))
    node.start()
    node.wait(lambda: [p.name for p in notes.iterdir()] == ["directory.1.prolog"])
    assert node.ask("status")["jobs"] == [51]
    older = "select job_id, released_at is not null from probing.job_allocation where restart_count = 0 order by job_id"
    assert node.wait(lambda: len(node.rows(older)) == 2 and node.rows(older)) == [(50, False), (51, True)]


def test_the_end_of_what_a_person_declares_repaired_is_reported(node: Node) -> None:
    """A memory error is an event that no reading ends: without a report of its end, it would explain the ends of later jobs."""
    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    nvml_state.add(node.state, 2, "ecc.volatile.uncorrected.dram", 1)
    node.line(node.xid(48, 2))
    node.wait(lambda: {"ecc:gpu2", "xid:gpu2"} <= node.ask("status")["faults"].keys())
    assert node.ask("recheck", clear=True)["cleared"] == 2
    query = "select kind, code, source, device, severity from probing.health_event where detail -> 'recovered' = 'true'"
    ends = node.wait(lambda: len(found := node.rows(query)) == 2 and found)
    assert sorted(ends) == [
        ("ecc", "uncorrectable", "agent", "gpu2", "info"),
        ("xid", "48", "agent", "gpu2", "info"),
    ]


def test_permitted_refusal_of_the_broken_gpu_and_of_nothing_else(node: Node) -> None:
    """Without a permission the job starts; with one, only the job that would get the lost GPU is refused, if Slurm requeues it."""
    from probing_cluster.db import store

    node.start()
    node.wait(lambda: node.ask("status")["sources"].get("nvml", {}).get("state") == "ok")
    nvml_state.set_gpu(node.state, 3, {"lost": 1})
    node.wait(lambda: "gpu_lost:gpu3" in node.ask("status")["faults"])
    broken, well = node.hardware.gpus[3].minor, node.hardware.gpus[4].minor
    account = {"uid": os.getuid(), "gid": os.getgid()}
    assert node.ask("prolog", job_id=1, gpus=str(broken), **account)["fit"] is True
    with store.Store.open(node.url) as service:
        service.request("n1", "refusal_permission", ttl_s=300.0, cluster="c")
    scontrol = node.home / "scontrol"
    flags = "JobId=$3 JobName=x\n   Requeue=%d Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
    scontrol.write_text(f"#!/bin/sh\ncat <<END\n{flags % 0}END\n")
    scontrol.chmod(0o755)
    spared = node.wait(lambda: (reply := node.ask("prolog", job_id=5, gpus=str(broken), **account))["reason"].endswith("cancel the job") and reply)  # fmt: skip
    assert spared["fit"] is True
    named = "   ReqNodeList=n[1-4] ExcNodeList=(null)\n"
    scontrol.write_text(f"#!/bin/sh\ncat <<END\n{flags % 1}{named}END\n")
    node.wait(lambda: node.ask("prolog", job_id=2, gpus=str(broken), **account)["fit"] is False)
    assert node.ask("prolog", job_id=3, gpus=str(well), **account)["fit"] is True
    assert node.ask("prolog", job_id=4, gpus="", **account)["fit"] is True
    query = "select job_id, detail ->> 'bound_by' from probing.health_event where code = 'prolog_refused'"
    assert node.wait(lambda: node.rows(query)) == [(2, "nodelist")]


def test_an_agent_that_works_reports_to_systemd(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start, and from the loop in which it works."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        node.start()
        assert {notify.recv(99) for _ in range(3)} == {b"WATCHDOG=1"}


def test_second_agent_with_the_same_spool_is_turned_away(node: Node) -> None:
    """Two agents by mistake: one lives."""
    node.start()
    argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--config", str(node.config)]
    second = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert second.returncode == 2
    assert "another agent" in second.stderr


def test_once_reads_everything_delivers_and_says_what_it_saw(node: Node) -> None:
    """For a person at the node: one pass, JSON, done."""
    node.line(node.xid(79, 0))
    argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--config", str(node.config), "--once"]
    environment = {**os.environ, "PROBING_NVML_STATE": str(node.state)}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment
    )
    printed = json.loads(done.stdout)
    assert "xid:gpu0" in printed["faults"]
    assert printed["sources"]["nvml"]["state"] == "ok"
    assert node.rows("select count(*) from probing.health_event where code = '79'") == [(1,)]
    assert node.rows("select count(*) from probing.agent_heartbeat") == [(0,)], "it promises no further beat"
    assert printed["delivered_total"] > 0


def test_reboot_ends_the_faults_of_the_boot_before(node: Node) -> None:
    """A new boot id under a living agent: old faults are over, numbers begin anew, old evidence stays."""
    node.start()
    node.line(node.xid(79, 3))
    node.wait(lambda: "xid:gpu3" in node.ask("status")["faults"])
    build.reboot(node.home, "n1", number=1, gpus=8)
    node.line(node.xid(31, 1))
    node.wait(lambda: not node.ask("status")["faults"])
    node.wait(
        lambda: node.rows("select count(*) from probing.health_event where source = 'kernel'") == [(2,)]
    )


@pytest.mark.parametrize("wrong", ['kernel_log = "dmesg"', 'gpu_numbering = "pci"', "no_such_key = 1"])
def test_setting_that_is_wrong_ends_the_agent_with_the_way_out(tmp_path: Path, wrong: str) -> None:
    """A typing error is said at once, in one line, with the words that are valid."""
    config = tmp_path / "probing.toml"
    config.write_text(f'[agent]\nspool_directory = "{tmp_path}/spool"\n{wrong}\n')
    argv = [sys.executable, "-m", "probing_cluster.probe_agent.cli", "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert wrong.split()[0] in done.stderr
    assert done.stderr.count("\n") == 1


def test_agent_whose_part_dies_ends_instead_of_pretending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blind agent must not go on sending heartbeats; its supervisor starts a new one."""
    import asyncio

    from probing_cluster.core import settings
    from probing_cluster.probe_agent import daemon

    text = (
        f'[agent]\nroot = "{tmp_path}"\nnode = "n1"\nsocket = "{tmp_path}/s"\nspool_directory = "{tmp_path}/spool"\n'
        f'job_directory = "{tmp_path}/jobs"\n[checks]\nstate_file = "{tmp_path}/checks.json"\n'
    )

    async def die(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(daemon.Agent, "_tick_for_ever", die)

    async def work() -> None:
        await daemon.Agent(settings.parse(text)).run()

    with pytest.raises(daemon.PartFailed):
        asyncio.run(work())


def test_a_job_that_began_just_before_the_agent_is_looked_at_for_its_output_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks of the agent before it ended with it: what the job's steps write to would never be read."""
    import asyncio
    from datetime import UTC, datetime, timedelta

    from probing_cluster.core import settings
    from probing_cluster.probe_agent import daemon
    from probing_cluster.probe_agent.jobs import collect, jobs

    text = (
        f'[agent]\nroot = "{tmp_path}"\nnode = "n1"\nsocket = "{tmp_path}/s"\nspool_directory = "{tmp_path}/spool"\n'
        f'job_directory = "{tmp_path}/jobs"\n[checks]\nstate_file = "{tmp_path}/checks.json"\n'
    )
    looked_at: list[int] = []
    looked = asyncio.Event()

    async def find_logs(_: collect.Collector, job: jobs.NodeJob) -> None:
        looked_at.append(job.job_id)
        looked.set()

    async def work() -> None:
        agent = daemon.Agent(settings.parse(text))
        now = datetime.now(UTC)
        for job_id, age_s in ((7, 20), (8, 36000)):
            agent.parts.node.book.start(
                jobs.NodeJob(job_id=job_id, started_at=now - timedelta(seconds=age_s), uid=os.getuid())
            )

        async def end(_: daemon.Agent) -> None:
            await looked.wait()
            raise ZeroDivisionError

        monkeypatch.setattr(daemon.Agent, "_tick_for_ever", end)
        async with asyncio.timeout(PATIENCE_S):
            await agent.run()

    monkeypatch.setattr(collect.Collector, "find_logs", find_logs)
    with pytest.raises(daemon.PartFailed):
        asyncio.run(work())
    assert looked_at == [7]


def test_what_cannot_be_delivered_is_seen_to_wait(node: Node) -> None:
    """With the database away the lag grows in the status and in node_exporter's file, and both know of the delivery."""
    text = node.config.read_text().replace(node.url, "postgresql://nobody@/none?host=/nonexistent")
    prom = node.home / "probing.prom"
    node.config.write_text(text.replace("[agent]", f'[agent]\ntextfile = "{prom}"'))
    node.start()
    node.line(node.xid(79, 3))
    node.wait(lambda: node.ask("status")["lag_s"] > 2)

    def lag_in_file() -> float:
        lines = prom.read_text().splitlines() if prom.exists() else []
        return next((float(x.split()[1]) for x in lines if x.startswith("probing_local_lag_seconds ")), 0)

    node.wait(lambda: lag_in_file() > 2)
    assert 'probing_local_source_up{source="delivery"} 0.0' in prom.read_text()
    assert 'probing_local_faults{severity="high"} 1' in prom.read_text()
