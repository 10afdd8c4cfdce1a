"""Which faults stand: latched by grave lines, confirmed by readings, ended only by what really ends them."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import conditions, faults

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
GPU = {"gpu_uuid": "GPU-1", "device": "gpu3", "pci_bus_id": "0000:5e:00"}


@pytest.fixture
def state() -> faults.Faults:
    return faults.Faults("boot-1")


def keys(state: faults.Faults) -> list[str]:
    return [f.key for f in state.active()]


def active(kind: str = "mount", device: str = "/scratch", **fields: Any) -> conditions.ActiveCondition:
    usual = {"severity": records.Severity.HIGH, "message": "gone"} | fields
    condition = conditions.Condition(kind=kind, device=device, **usual)
    return conditions.ActiveCondition(condition=condition, since=NOW, event_id="e1", confirmed_at=NOW)


def test_grave_kernel_line_stands_and_names_its_events(state: faults.Faults, event: Any) -> None:
    """Two lines of one fault are one fault with both events."""
    assert state.fold(event("b:1", **GPU), now=NOW)
    state.fold(event("b:2", **GPU), now=NOW)
    (row,) = state.rows().values()
    assert keys(state) == ["xid:gpu3"]
    assert row["event_id"] == str(event("b:1").event_id)
    assert row["event_ids"] == [str(event("b:1").event_id), str(event("b:2").event_id)]
    assert row["severity"] == "high"


def test_old_line_read_late_is_history(state: faults.Faults, event: Any) -> None:
    """A line from before the agent's time is evidence, not the present."""
    assert not state.fold(event(at=NOW - timedelta(minutes=6), **GPU), now=NOW)
    assert keys(state) == []


@pytest.mark.parametrize("source", ["joblog", "probe", "dump", "agent", "import", "mount"])
def test_other_sources_latch_nothing(state: faults.Faults, event: Any, source: str) -> None:
    """Least of all what a user's process can write."""
    assert not state.fold(event(source=source, **GPU), now=NOW)


def test_information_and_recoveries_latch_nothing(state: faults.Faults, event: Any) -> None:
    """Only what is wrong stands."""
    assert not state.fold(event(severity=records.Severity.INFO), now=NOW)
    assert not state.fold(event(detail={"recovered": True}), now=NOW)
    assert not state.fold(event(kind="oom", severity=records.Severity.LOW), now=NOW)


def test_latched_fault_survives_a_restart_but_not_a_reboot(state: faults.Faults, event: Any) -> None:
    """The agent's own death cures nothing; a boot does."""
    state.fold(event(**GPU), now=NOW)
    stored = json.loads(json.dumps(state.to_state()))
    assert keys(faults.Faults("boot-1", stored)) == ["xid:gpu3"]
    assert keys(faults.Faults("boot-2", stored)) == []
    state.reboot("boot-2")
    assert keys(state) == []


def test_condition_stands_as_long_as_its_reading_says_so(state: faults.Faults) -> None:
    """The next reading without it ends it."""
    state.observe("mounts", conditions.Judgement(), [active()], NOW)
    assert keys(state) == ["mount:/scratch"]
    state.observe("mounts", conditions.Judgement(), [], LATER)
    assert keys(state) == []


def test_condition_that_cannot_be_read_any_more_stops_being_the_present(state: faults.Faults) -> None:
    """What nobody has confirmed for minutes is no ground to act on."""
    state.observe("mounts", conditions.Judgement(), [active()], NOW + timedelta(minutes=1))
    assert keys(state) == ["mount:/scratch"]
    state.observe("mounts", conditions.Judgement(), [active()], NOW + timedelta(minutes=3))
    assert keys(state) == []


def test_link_that_is_up_again_contradicts_the_kernels_word(state: faults.Faults, event: Any) -> None:
    """A newer healthy reading of the same part ends the fault; of another part it does not."""
    down = event(kind="ib_link", code="down", device="mlx5_3", pci_bus_id="0000:5e:00.0")
    state.fold(down, now=NOW)
    other = conditions.Judgement(healthy=frozenset({"mlx5_4", "0000:61:00"}))
    state.observe("infiniband", other, [], LATER)
    assert keys(state) == ["ib_link:mlx5_3"]
    same = conditions.Judgement(healthy=frozenset({"0000:5e:00"}))
    state.observe("nvml", same, [], LATER)
    assert keys(state) == ["ib_link:mlx5_3"]
    (over,) = state.observe("infiniband", same, [], LATER)
    assert keys(state) == []
    recovered = faults.recovery(over, "sysfs", "b", LATER)
    assert (recovered.kind, recovered.code, recovered.device, recovered.severity) == (
        "ib_link",
        "down",
        "mlx5_3",
        records.Severity.INFO,
    )
    assert recovered.detail["recovered"] is True
    assert recovered.detail["began"] == str(down.event_id)
    assert not recovered.latches
    state.fold(dataclasses.replace(down, at=LATER), now=LATER)
    (again,) = state.observe("infiniband", same, [], LATER + timedelta(minutes=1))
    assert faults.recovery(again, "sysfs", "b", LATER).position != recovered.position


def test_a_port_that_reads_as_up_is_no_word_on_its_adapters_firmware(
    state: faults.Faults, event: Any
) -> None:
    """The state file of a dead adapter keeps what it said last: the fault stands until somebody acts."""
    dead = event(kind="ib_link", code="health_compromised", device="mlx5_3", pci_bus_id="0000:5e:00.0")
    state.fold(dead, now=NOW)
    well = conditions.Judgement(healthy=frozenset({"mlx5_3", "0000:5e:00"}))
    assert state.observe("infiniband", well, [], LATER) == []
    assert keys(state) == ["ib_link:mlx5_3"]


def test_reading_as_old_as_the_line_contradicts_nothing(state: faults.Faults, event: Any) -> None:
    """Drivers log before their state files follow."""
    state.fold(event(kind="ib_link", code="down", device="mlx5_3"), now=NOW)
    well = conditions.Judgement(healthy=frozenset({"mlx5_3"}))
    state.observe("infiniband", well, [], NOW + timedelta(seconds=1))
    assert keys(state) == ["ib_link:mlx5_3"]


def test_xid_stands_until_the_gpu_was_reset(state: faults.Faults, event: Any) -> None:
    """A GPU that answers is not yet a GPU that is well."""
    state.fold(event(code="48", **GPU), now=NOW)
    well = conditions.Judgement(healthy=frozenset({"gpu3", "GPU-1", "0000:5e:00"}))
    state.observe("nvml", well, [], LATER)
    assert keys(state) == ["xid:gpu3"]
    state.observe("nvml", conditions.Judgement(reset=frozenset({"GPU-1"})), [], LATER)
    assert keys(state) == []


def test_operator_clears_latched_faults_and_not_what_is_still_read(state: faults.Faults, event: Any) -> None:
    """A word cannot cure what the next reading shows again."""
    state.fold(event(**GPU), now=NOW)
    state.observe("mounts", conditions.Judgement(), [active()], NOW)
    assert [f.key for f in state.clear(NOW)] == ["xid:gpu3"]
    assert keys(state) == ["mount:/scratch"]


def test_a_clock_set_back_after_a_clearing_hides_no_fault(state: faults.Faults, event: Any) -> None:
    """A new board's clock was an hour ahead when the node was cleared: what fails after the correction stands, what was seen before not."""
    state.clear(NOW)
    before = dataclasses.replace(event(**GPU), at=NOW, observed_at=NOW)
    now = NOW - timedelta(minutes=58)
    assert not state.fold(before, now=now)
    assert state.fold(dataclasses.replace(before, at=now, observed_at=now), now=now)
    assert keys(state) == ["xid:gpu3"]


@pytest.mark.parametrize(
    ("failing", "over"),
    [
        ({"device": "/scratch"}, ["xid:gpu3"]),
        ({"kind": "gpu_lost", "device": "gpu3", "gpu_uuid": "GPU-1"}, []),
        ({"kind": "row_remap", "device": "0000:5E:00.0", "pci_bus_id": "00000000:5e:00.0"}, []),
    ],
    ids=["another part", "the same GPU", "the same GPU by its address"],
)
def test_a_cleared_fault_is_over_unless_its_part_still_fails(
    state: faults.Faults, event: Any, failing: dict[str, Any], over: list[str]
) -> None:
    """A person's word is believed of a part that shows no fault when it is looked at again."""
    state.fold(event(**GPU), now=NOW)
    cleared = state.clear(NOW)
    state.observe("nvml", conditions.Judgement(), [active(**failing)], LATER)
    assert [f.key for f in state.repaired(cleared)] == over


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cleared_fault_is_over_once_its_part_is_well(
    state: faults.Faults, event: Any, restarted: bool
) -> None:
    """A repair resets a GPU, and a reading shows its remapping as pending for a moment: the end of the error comes with that of the last sign."""
    state.fold(event(**GPU), now=NOW)
    sign = active(kind="row_remap", device="gpu3", gpu_uuid="GPU-1")
    state.observe("nvml", conditions.Judgement(), [sign], NOW)
    assert state.repaired(state.clear(NOW)) == []
    if restarted:
        state = faults.Faults("boot-1", json.loads(json.dumps(state.to_state())))
        assert state.observe("mounts", conditions.Judgement(), [], LATER) == []
    assert state.observe("nvml", conditions.Judgement(), [sign], LATER) == []
    assert state.observe("mounts", conditions.Judgement(), [], LATER) == []
    over = state.observe("nvml", conditions.Judgement(), [], LATER)
    assert [(f.kind, f.code, f.gpu_uuid) for f in over] == [("xid", "79", "GPU-1")]
    assert state.observe("nvml", conditions.Judgement(), [], LATER) == [], "once"


def test_a_boot_forgets_what_was_cleared(state: faults.Faults, event: Any) -> None:
    """The boot itself is the end of whatever was there before it."""
    state.fold(event(**GPU), now=NOW)
    state.observe("nvml", conditions.Judgement(), [active(device="gpu3", gpu_uuid="GPU-1")], NOW)
    state.repaired(state.clear(NOW))
    state.reboot("boot-2")
    assert state.observe("nvml", conditions.Judgement(), [], LATER) == []


@pytest.mark.parametrize(("kind", "over"), [("edac", []), ("mce", ["edac:"])])
def test_cleared_faults_that_name_no_part_are_of_one_part_if_they_are_of_one_kind(
    state: faults.Faults, event: Any, kind: str, over: list[str]
) -> None:
    """Another fault of the node does not show that this one is still there."""
    state.fold(event(kind="edac", device=None), now=NOW)
    cleared = state.clear(NOW)
    state.observe("nvml", conditions.Judgement(), [active(kind=kind, device="")], LATER)
    assert [f.key for f in state.repaired(cleared)] == over


def test_what_was_observed_before_a_clearing_never_latches_again(state: faults.Faults, event: Any) -> None:
    """A fold that closes late, or a restart of the agent, does not bring back what a person repaired; a new line does."""
    before = event(**GPU)
    state.fold(before, now=NOW)
    state.clear(NOW)
    again = faults.Faults("boot-1", state.to_state())
    for kept in (state, again):
        assert not kept.fold(before, now=LATER)
        assert keys(kept) == []
    assert again.fold(dataclasses.replace(before, observed_at=LATER), now=LATER)


def test_low_fault_said_once_fades(state: faults.Faults, event: Any) -> None:
    """A corrected PCIe error of this morning is no fault of this evening."""
    state.fold(event(kind="pcie_aer", severity=records.Severity.LOW, device="x"), now=NOW)
    state.observe("mounts", conditions.Judgement(), [], NOW + timedelta(minutes=20))
    assert keys(state) == []


def test_only_the_jobs_own_gpu_concerns_it(state: faults.Faults, event: Any) -> None:
    """A fault of one GPU concerns its holder and whoever holds the whole node; of the node, everyone."""
    state.fold(event(**GPU), now=NOW)
    assert state.against(("GPU-1", "GPU-2"), whole_node=False)
    assert not state.against(("GPU-2",), whole_node=False)
    assert state.against(("GPU-2",), whole_node=True)
    assert not state.against((), whole_node=False)
    assert not state.against(None, whole_node=False)
    state.observe("mounts", conditions.Judgement(), [active()], NOW)
    assert [f.key for f in state.against((), whole_node=False)] == ["mount:/scratch"]


def test_low_faults_concern_no_prolog(state: faults.Faults) -> None:
    """Nothing but a hard fault may refuse a job."""
    low = active(severity=records.Severity.LOW)
    state.observe("mounts", conditions.Judgement(), [low], NOW)
    assert state.against((), whole_node=True) == []
