"""The runner: periods, memory, severities, results, heartbeat, change."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from probing_cluster.core import errors, processes, records
from probing_cluster.healthchecks import checkresults, findings, nodeview, registry, runner

MakeRunner = Callable[..., runner.CheckRunner]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two checks only: `quick` (every sweep) and `rare` (every hour); both say what `said` holds."""
    kept: dict[str, Any] = {"finding": findings.ok("fine")}

    def read(node: nodeview.NodeView) -> int:
        node.memory["runs"] = node.memory.get("runs", 0) + 1
        return int(node.memory["runs"])

    def judge(runs: int, _: registry.Limits) -> findings.Finding:
        return dataclasses.replace(kept["finding"], detail={"runs": runs})

    pattern = registry.get("uptime")
    quick = dataclasses.replace(pattern, name="quick", read=read, judge=judge, severity=records.Severity.HIGH)
    rare = dataclasses.replace(quick, name="rare", period_s=3600.0)
    monkeypatch.setattr(registry, "load", lambda: {"quick": quick, "rare": rare})
    return kept


def runs(results: tuple[records.CheckResult, ...]) -> dict[str, int]:
    return {r.name: r.detail["runs"] for r in results}


def test_a_result_stands_for_its_period(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """A rare check is measured once an hour; its result is there in every sweep between, with its own time."""
    engine = sweep_on()
    first = engine.run()
    second = engine.run()
    assert (first.ran, second.ran) == (2, 1)
    assert runs(second.results) == {"quick": 2, "rare": 1}
    assert checkresults.by_name(second.results)["rare"].at == checkresults.by_name(first.results)["rare"].at
    assert runs(engine.run(force=True).results) == {"quick": 3, "rare": 2}


def test_what_is_unwell_is_looked_at_in_every_sweep(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """A rare check that failed is measured again at once: recovery must not wait for an hour."""
    engine = sweep_on()
    counting["finding"] = findings.fail("broken")
    engine.run()
    counting["finding"] = findings.ok("repaired")
    assert runs(engine.run().results)["rare"] == 2
    assert runs(engine.run().results)["rare"] == 2


def test_named_checks_are_measured_at_once(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """Asked by name a check is measured now, alone, and the others' results are kept."""
    engine = sweep_on()
    engine.run()
    swept = engine.run(["rare"])
    assert runs(swept.results) == {"rare": 2}
    assert set(engine.results) == {"quick", "rare"}
    with pytest.raises(errors.UsageError, match="did you mean: rare"):
        engine.run(["raer"])


def test_severity_is_the_sites_lowered_by_the_finding(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """The site's severity replaces the check's; a finding may only lower it."""
    counting["finding"] = findings.fail("x", severity=records.Severity.LOW)
    assert {r.severity for r in sweep_on().run().results} == {records.Severity.LOW}
    counting["finding"] = findings.fail("x", severity=records.Severity.HIGH)
    results = sweep_on('[checks.quick]\nseverity = "info"').run().results
    assert {r.name: r.severity for r in results} == {
        "quick": records.Severity.INFO,
        "rare": records.Severity.HIGH,
    }


def test_a_check_switched_off_has_no_result(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """Off means not run, not shown, and its old result gone."""
    engine = sweep_on()
    engine.run()
    assert engine.site_file.path is not None
    engine.site_file.path.write_text("[checks.rare]\nenabled = false\n# changed")
    assert [r.name for r in engine.run().results] == ["quick"]
    assert "rare" not in engine.results


def test_memory_outlives_the_runner_within_a_boot(
    counting: dict[str, Any], node: Any, sweep_on: MakeRunner
) -> None:
    """What a check remembers is there for the next agent, and forgotten after a reboot."""
    node.put("proc/sys/kernel/random/boot_id", "boot-1")
    state = node.root / "state/checks.json"
    sweep_on(state_file=state).run()
    assert runs(sweep_on(state_file=state).run().results)["quick"] == 2
    kept = sweep_on(state_file=state)
    assert runs(kept.run().results)["quick"] == 3
    node.put("proc/sys/kernel/random/boot_id", "boot-2")
    assert runs(sweep_on(state_file=state).run().results)["quick"] == 1
    assert runs(kept.run().results)["quick"] == 2  # one that lived on follows the boot, and the file
    (node.root / "proc/sys/kernel/random/boot_id").unlink()
    assert runs(kept.run().results)["quick"] == 3  # not being told is no reboot


def test_clearing_keeps_the_last_counts_as_the_new_zero(node: Any, sweep_on: MakeRunner) -> None:
    """After clear() the same uncorrected count is no failure any more, also for the next agent."""
    base = "sys/devices/system/edac/mc/mc0"
    node.put(f"{base}/ue_count", "2")
    node.put("proc/sys/kernel/random/boot_id", "boot-1")
    engine = sweep_on(state_file=node.root / "checks.json")
    assert engine.run(["edac"]).results[0].outcome is records.Outcome.FAIL
    engine.clear(["edac"])
    assert engine.run(["edac"]).results[0].outcome is records.Outcome.OK
    later = sweep_on(state_file=node.root / "checks.json")
    assert later.run(["edac"]).results[0].outcome is records.Outcome.OK
    node.put(f"{base}/ue_count", "3")
    assert later.run(["edac"]).results[0].measured == 1


def test_clearing_covers_what_no_sweep_has_seen_yet(node: Any, sweep_on: MakeRunner) -> None:
    """An Xid between the last sweep and the person's word is repaired like those before; one after it is not."""
    node.put("proc/driver/nvidia/version", "550")
    lost = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1, GPU has fallen off the bus."
    node.log(lost)
    engine = sweep_on()
    engine.clear()
    assert engine.run(["gpu_xid"]).results[0].outcome is records.Outcome.OK
    node.log(lost)
    assert engine.run(["gpu_xid"]).results[0].outcome is records.Outcome.FAIL


def test_heartbeat_sums_up(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """One result named sweep tells the numbers and the worst outcome."""
    counting["finding"] = findings.warn("warm")
    beat = sweep_on().run().heartbeat
    assert (beat.name, beat.outcome, beat.detail["warn"], beat.detail["ran"]) == (
        "sweep",
        records.Outcome.WARN,
        2,
        2,
    )
    assert beat.message == "2 checks: 2 warn"


def test_changed_is_about_what_matters(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """A new outcome, device or severity is a change; a measured value that moved is none."""
    engine = sweep_on()
    counting["finding"] = findings.warn("45 °C", measured=45.0, device="gpu1")
    first = checkresults.by_name(engine.run(force=True).results)
    assert len(checkresults.changed({}, first.values())) == 2
    counting["finding"] = findings.warn("46 °C", measured=46.0, device="gpu1")
    assert checkresults.changed(first, engine.run(force=True).results) == []
    counting["finding"] = findings.warn("46 °C", measured=46.0, device="gpu2")
    assert len(checkresults.changed(first, engine.run(force=True).results)) == 2
    counting["finding"] = findings.fail("46 °C", measured=46.0, device="gpu1")
    assert len(checkresults.changed(first, engine.run(force=True).results)) == 2


def test_messages_are_made_safe(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """Terminal escapes and endless texts from foreign tools do not reach the result."""
    counting["finding"] = findings.fail("\x1b[31mred\x1b[0m\n" + "x" * 5000)
    message = sweep_on().run().results[0].message
    assert "\x1b" not in message
    assert "\n" not in message
    assert len(message) <= runner.MAX_MESSAGE_CHARS


def test_a_stuck_tool_is_shown_by_agent_self(
    node: Any, sweep_on: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang in the kernel is one check's error and agent_self's warning; everything else runs."""
    fifo = node.root / "fifo"
    os.mkfifo(fifo)

    def hang(_: nodeview.NodeView) -> None:
        os.open(fifo, os.O_RDONLY)

    checks = dict(registry.load())
    checks["dns"] = dataclasses.replace(checks["dns"], read=hang, deadline_s=0.2)
    monkeypatch.setattr(registry, "load", lambda: checks)
    found = checkresults.by_name(sweep_on().run().results)
    assert found["dns"].timed_out
    assert found["dns"].outcome is records.Outcome.ERROR
    assert found["agent_self"].outcome is records.Outcome.WARN
    assert "dns" in found["agent_self"].message
    assert found["uptime"].outcome is records.Outcome.OK
    assert len(found) == len(checks)


@pytest.mark.parametrize(
    ("slow", "apart"),
    [("dns", ["dns"]), ("gpu_ecc", ["nvml", "gpu_clocks"]), ("disk_space", ["mount /", "disk_inodes"])],
)
def test_what_timed_out_runs_apart_next_time(
    node: Any, sweep_on: MakeRunner, slow: str, apart: list[str]
) -> None:
    """A check that hung last time gets a child of its own, with all that share its reading, and delays nobody."""
    node.mount("/", "ext4")
    engine = sweep_on()
    engine.run()
    engine.results[slow] = dataclasses.replace(engine.results[slow], timed_out=True)
    plans = list(engine.site_file.current().plan("n1").values())
    chains = [[s.key for s in chain] for chain in engine._lanes(plans)]
    assert len(chains) == 2
    alone = next(c for c in chains if slow in c)
    assert alone[: len(apart)] == apart
    assert "uptime" not in alone
    assert sorted(k for c in chains for k in c if not k.startswith(("nvml", "mount /"))) == sorted(
        set(registry.load()) - {"agent_self"}
    )


def test_cpu_and_wall_are_told(counting: dict[str, Any], sweep_on: MakeRunner) -> None:
    """A sweep tells what it cost, its children included."""
    swept = sweep_on().run()
    assert swept.cpu_s > 0
    assert swept.wall_s > 0
    assert swept.heartbeat.detail["cpu_s"] == round(swept.cpu_s, 4)


def test_the_next_process_of_this_boot_knows(
    counting: dict[str, Any], node: Any, sweep_on: MakeRunner
) -> None:
    """Periods hold over a restart of the sweep process, and end with the boot."""
    node.put("proc/sys/kernel/random/boot_id", "boot-1")
    state = node.root / "state/checks.json"
    sweep_on(state_file=state).run()
    again = sweep_on(state_file=state).run()
    assert again.ran == 1
    assert runs(again.results) == {"quick": 2, "rare": 1}
    node.put("proc/sys/kernel/random/boot_id", "boot-2")
    assert sweep_on(state_file=state).run().ran == 2


def test_a_child_is_not_stuck_for_less_than_no_time(
    node: Any, sweep_on: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed in vain while the sweep ran, after the instant at which the sweep began."""
    engine = sweep_on()
    child = processes.identify(os.getpid())
    assert child is not None
    monkeypatch.setattr(processes.time, "monotonic", lambda: engine.spec.clock.monotonic_s() + 6.0)
    engine.lanes.stuck.hold("dns", child)
    monkeypatch.undo()
    (result,) = engine.run(["agent_self"]).results
    assert "for 0 s" in result.message


def test_a_stuck_child_is_known_to_the_next_process(
    node: Any, sweep_on: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that outlived its sweep process is still counted, and its check not started again."""
    node.put("proc/sys/kernel/random/boot_id", "boot-1")
    state = node.root / "checks.json"
    engine = sweep_on(state_file=state)
    child = processes.identify(os.getpid())  # a process that lives: ourselves
    assert child is not None
    monkeypatch.setattr(processes.Edge, "waits_in", lambda *_: "nfs4_wait")
    engine.lanes.stuck.hold("dns", child)
    engine.run(["uptime"])
    kept = json.loads(state.read_text())["runner"]["stuck"]["dns"]
    assert (kept["who"]["pid"], kept["waits_in"]) == (child.pid, "nfs4_wait")  # an older version reads it so
    later = sweep_on(state_file=state)
    result = later.run(["dns"]).results[0]
    assert result.timed_out
    assert f"pid {child.pid}) is stuck in the kernel (in nfs4_wait)" in result.message


def test_an_unreadable_state_is_started_anew(node: Any, sweep_on: MakeRunner) -> None:
    """State of another shape is a problem to show, never an exception."""
    node.put("proc/sys/kernel/random/boot_id", "b")
    broken = {"boot_id": "b", "checks": {}, "runner": {"results": [{"name": 1}], "stuck": []}}
    state = node.put("checks.json", json.dumps(broken))
    engine = sweep_on(state_file=state)
    assert "unreadable" in str(engine.memory.problem)
    assert engine.run(["uptime"]).results[0].outcome is records.Outcome.OK
