"""The sweep as the agent embeds it: a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import processes, records
from probing_cluster.healthchecks import nodeview, sweep


@pytest.fixture
def embedded(node: Any) -> Iterator[sweep.Sweep]:
    """A sweep of the fixture node, in its own process."""
    node.put("proc/sys/kernel/random/boot_id", "b")
    config = sweep.Config(
        node="n1",
        cluster="c1",
        root=str(node.root),
        site_file=str(node.root / "site.toml"),
        state_file=str(node.root / "state.json"),
        nvml_library="/none.so",
        command_dirs=(str(node.root / "tools"),),
    )
    made = sweep.Sweep(config)
    yield made
    made.close()


def test_results_and_heartbeat(node: Any, embedded: sweep.Sweep) -> None:
    """Every check's result arrives as a record, with one heartbeat."""
    results = {r.name: r for r in embedded.run()}
    assert results["uptime"].outcome is records.Outcome.OK
    assert (results["uptime"].cluster, results["uptime"].node) == ("c1", "n1")
    assert embedded.heartbeat is not None
    assert embedded.heartbeat.name == "sweep"
    assert set(embedded.latest) == set(results)


def test_what_slurm_told_arrives(node: Any, embedded: sweep.Sweep) -> None:
    """Expectations cross to the child whole: counts, allocations and uids."""
    expected = nodeview.Expectations(
        cpu_count=8,
        allocated={42: ("GPU-0",)},
        uids=frozenset({7}),
        running=frozenset({42}),
        ended=frozenset({41}),
        sluids={"s5K1KKYAYG5D00": 42},
    )
    row = sweep.expectations_to_json(expected)
    assert sweep.expectations_from_json(row) == expected
    assert (
        sweep.expectations_from_json(sweep.expectations_to_json(nodeview.Expectations()))
        == nodeview.Expectations()
    )
    node.put("sys/devices/system/cpu/online", "0-3")
    assert embedded.run(names=["cpu_count"], expected=expected)[0].outcome is records.Outcome.FAIL
    assert embedded.run(names=["cpu_count"])[0].outcome is records.Outcome.OK


def test_the_agents_own_trouble_is_shown(embedded: sweep.Sweep) -> None:
    """What the agent says about itself is judged by agent_self."""
    result = embedded.run(names=["agent_self"], agent={"agent_problem": "the spool is full"})[0]
    assert (result.outcome, result.message) == (records.Outcome.WARN, "the spool is full")


def test_changed_is_what_to_store(node: Any, embedded: sweep.Sweep) -> None:
    """Everything is new at first, nothing when nothing changed, one row when one check did."""
    embedded.run()
    first = dict(embedded.latest)
    assert len(embedded.changed({})) == len(first)
    assert embedded.changed(first) == []
    node.put("proc/sys/kernel/tainted", "128")
    embedded.run(force=True)
    names = {r.name for r in embedded.changed(first)}
    assert "kernel_taint" in names


def test_a_broken_push_keeps_the_old_site_file(node: Any, embedded: sweep.Sweep) -> None:
    """A new site file is in force without a restart; a broken one is not, and agent_self warns."""
    node.put("site.toml", "[checks.uptime]\nold_warn_s = 10.0")
    assert embedded.run(names=["uptime"])[0].outcome is records.Outcome.WARN
    node.put("site.toml", "[checks.uptime]\nold_warn = 1000000.0")
    results = {r.name: r for r in embedded.run(names=["uptime", "agent_self"])}
    assert results["uptime"].outcome is records.Outcome.WARN
    assert results["agent_self"].outcome is records.Outcome.WARN
    assert "unknown key 'old_warn'" in results["agent_self"].message


def test_the_process_is_replaced_when_killed(node: Any, embedded: sweep.Sweep) -> None:
    """Killed from outside, one sweep is an error named sweep and the next is whole; memory outlives it."""
    node.hca("mlx5_0")
    embedded.run(names=["ib_link"])
    pid = embedded.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    failed = embedded.run(names=["ib_link"])
    assert [(r.name, r.outcome) for r in failed] == [("sweep", records.Outcome.ERROR)]
    node.hca("mlx5_0", state="1: DOWN")
    assert embedded.run(names=["ib_link"])[0].outcome is records.Outcome.FAIL


def test_clear(node: Any, embedded: sweep.Sweep) -> None:
    """A person's clearing reaches the check."""
    node.put("sys/devices/system/edac/mc/mc0/ue_count", "1")
    assert embedded.run(names=["edac"])[0].outcome is records.Outcome.FAIL
    embedded.clear(["edac"])
    assert embedded.run(names=["edac"])[0].outcome is records.Outcome.OK


def test_from_many_threads(embedded: sweep.Sweep) -> None:
    """Threads that ask at once each get their own whole answer."""
    answers: list[list[records.CheckResult]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(embedded.run(names=["uptime"]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[r.name for r in a] for a in answers] == [["uptime"]] * 4


def test_closing_leaves_nothing(node: Any, embedded: sweep.Sweep) -> None:
    """After close the process is gone, and a later run starts another."""
    embedded.run(names=["uptime"])
    pid = embedded.pid
    assert pid is not None
    embedded.close()
    assert processes.identify(pid) is None
    assert embedded.run(names=["uptime"])[0].name == "uptime"


def test_it_ends_with_its_agent(node: Any, tmp_path: Path) -> None:
    """When the agent's end of the pipe closes, the process ends by itself."""
    child = sweep.Sweep(sweep.Config(node="n1", root=str(node.root)))
    child.run(names=["uptime"])
    process = child._child._child
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    child.close()


FORKED = """
import json, os, signal, sys, time
from probing_cluster.healthchecks import sweep
held = open(sys.argv[2], "w")
made = sweep.Sweep(sweep.Config(node="n1", root=sys.argv[1], nvml_library="/none.so"))
made.fork()
first, report = made.pid, {}
report["answers"] = [len(made.run(names=["uptime"])) for _ in range(2)]
report["kept"] = (made.forked, made.pid == first)
report["open"] = sorted(os.listdir(f"/proc/{first}/fd"))
report["leads"] = os.getpgid(first) == first
os.kill(first, signal.SIGKILL)
report["dead"] = made.run(names=["uptime"])[0].outcome
report["again"] = (made.run(names=["uptime"])[0].name, made.forked)
made.close()
made.fork()
second = made.pid
made._child._child.stdin.close()
report["ends"] = os.waitpid(second, 0)[1]
print(json.dumps(report))
"""


def test_a_fork_of_the_agent_is_kept_holds_nothing_of_it_and_is_replaced_when_it_dies(
    node: Any, tmp_path: Path
) -> None:
    """It costs no import and holds neither lock nor socket; without it the sweep goes on in a program of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", FORKED, str(node.root), str(tmp_path / "lock")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == {
        "answers": [1, 1],
        "kept": [True, True],
        "open": ["0", "1", "2"],
        "leads": True,
        "dead": "error",
        "again": ["uptime", False],
        "ends": 0,
    }
