"""NVML: what stands, what moved, what was announced; and a driver that is gone, slow or silent."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import json
import types
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.healthchecks.readers import nvml as values
from probing_cluster.healthchecks.readers import nvml_fields
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.faults import gpus
from probing_cluster.probe_agent.sources import node_reader, nvml, nvml_child, nvml_gpu, polled
from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.nodetree import build


def gpu(index: int, **fields: Any) -> values.NvmlGpu:
    given: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"0000:{0x10 + index:02x}:00.0",
        "minor": index,
        "ecc_uncorrected_volatile_total": 0,
        "ecc_corrected_volatile_total": 0,
        "remap_failed": False,
        "remap_pending": False,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "throttle_reasons": 0,
        "links": tuple(values.NvLink(link=n, active=True, crc_errors_total=0) for n in range(4)),
    } | fields
    return values.NvmlGpu(index=index, **given)


class Desk:
    """One node's GPUs judged again and again."""

    def __init__(self, clock: Any) -> None:
        self.gpus = {i: gpu(i) for i in range(4)}
        self.unavailable: values.NvmlUnavailable | None = None
        self.memory: dict[str, Any] = {}
        self.context = polled.PollContext(now=clock.now(), boot_id="b")

    def set(self, index: int, **fields: Any) -> None:
        self.gpus[index] = dataclasses.replace(self.gpus[index], **fields)

    def look(
        self, times: int = 1, xids: list[dict[str, Any]] | None = None, links: bool = True, **changed: Any
    ) -> Any:
        judged = None
        for _ in range(times):
            reading = self.unavailable or values.NvmlSnapshot(gpus=tuple(self.gpus.values()))
            raw = json.loads(
                json.dumps({"snapshot": values.to_json(reading), "xids": xids or [], "links": links})
            )
            judged = nvml.judge(raw, self.memory, replace(self.context, **changed))
            self.memory = json.loads(json.dumps(judged.memory))
            if judged.inventory is not None:
                self.context = replace(self.context, inventory=judged.inventory)
        return judged


@pytest.fixture
def desk(clock: Any) -> Desk:
    made = Desk(clock)
    made.look()
    return made


class DriverError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class Driver:
    """NVML as its event sets are used: `answer` is the code of every wait, 10 for "nothing happened"."""

    def __init__(self) -> None:
        self.sets, self.uses, self.made, self.answer, self.counts = 0, 0, 0, 10, True
        self.library = types.SimpleNamespace(
            NVMLError=DriverError,
            NVML_ERROR_TIMEOUT=10,
            nvmlInit=lambda: self.use(1),
            nvmlShutdown=lambda: self.use(-1),
            nvmlEventSetCreate=self.create,
            nvmlEventSetFree=self.free,
            nvmlDeviceGetCount=self.count,
            nvmlEventSetWait_v2=self.wait,
        )

    def use(self, change: int) -> None:
        self.uses += change

    def create(self) -> object:
        self.sets, self.made = self.sets + 1, self.made + 1
        return object()

    def free(self, _: object) -> None:
        self.sets -= 1

    def count(self) -> int:
        if not self.counts:
            raise DriverError(15)
        return 0

    def wait(self, _: object, __: int) -> None:
        raise DriverError(self.answer)


def test_event_sets_of_a_failing_driver_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails for an hour is tried now and then, one at a time; one that is well again is asked as before."""
    driver, at_s = Driver(), [0.0]
    monkeypatch.setattr(nvml_child.nvml_snapshot, "load", lambda _: driver.library)
    monkeypatch.setattr(nvml_child.time, "monotonic", lambda: at_s[0])
    events = nvml_child.XidEvents(None)
    for answer, counts in ((15, True), (10, False)):
        driver.answer, driver.counts, driver.made = answer, counts, 0
        for _ in range(3600):
            at_s[0] += nvml_child.DRAIN_S
            events.drain()
        assert (driver.sets, driver.uses) == (0, 0)
        assert 30 < driver.made < 80
        assert events.state == "code 15"
    driver.counts = True
    for _ in range(60):
        at_s[0] += nvml_child.DRAIN_S
        events.drain()
    assert (driver.sets, driver.uses, events.state) == (1, 1, "0 GPUs")


def test_healthy_gpus_are_no_finding(desk: Desk, present: Any, moved: Any) -> None:
    """And their names and addresses are known from then on."""
    judged = desk.look(5)
    assert (present(judged), moved(judged)) == ([], [])
    assert {"gpu0", "GPU-0", "0000:10:00"} <= judged.healthy


def test_lost_gpu_is_grave_and_keeps_its_name(desk: Desk, present: Any) -> None:
    """NVML says it is lost, or does not list it any more and counts the others anew: the same GPU is named."""
    desk.gpus[1] = values.NvmlGpu(index=1, lost="GPU_IS_LOST")
    judged = desk.look()
    assert present(judged) == [("gpu_lost", "GPU_IS_LOST", "gpu1", "high")]
    assert judged.present[0].gpu_uuid == "GPU-1"
    desk.gpus = {
        0: gpu(0),
        1: gpu(1, uuid="GPU-2", pci_bus_id="0000:12:00.0"),
        2: gpu(2, uuid="GPU-3", pci_bus_id="0000:13:00.0"),
    }
    judged = desk.look()
    assert present(judged) == [("gpu_lost", "MISSING", "gpu1", "high")]
    assert judged.present[0].gpu_uuid == "GPU-1"


def test_gpu_that_comes_back_is_no_finding(desk: Desk, present: Any) -> None:
    """After a reset it is judged as before."""
    desk.gpus[1] = values.NvmlGpu(index=1, lost="GPU_IS_LOST")
    desk.look()
    desk.gpus[1] = gpu(1)
    assert present(desk.look()) == []


def test_configured_count_is_held_against_what_is_there(clock: Any, present: Any) -> None:
    """A node that never had its eighth GPU since we look is still short of one."""
    assert present(Desk(clock).look(expect_gpus=5)) == [("gpu_lost", "MISSING", "gpu", "high")]


def test_replaced_gpu_is_accepted_when_the_set_is_complete(desk: Desk, present: Any) -> None:
    """Four were there, four are there: one has another UUID."""
    desk.set(2, uuid="GPU-new", pci_bus_id="0000:12:00.0")
    judged = desk.look()
    assert present(judged) == []
    assert judged.inventory.by_uuid("GPU-2") is None


@pytest.mark.parametrize(
    ("code", "severity"), [("DRIVER_NOT_LOADED", "high"), ("LIB_RM_VERSION_MISMATCH", "low")]
)
def test_driver_that_does_not_answer_is_a_fault_of_a_gpu_node(
    desk: Desk, present: Any, code: str, severity: str
) -> None:
    """A driver updated under running jobs stops only new ones: that is less than a driver that is gone."""
    desk.unavailable = values.NvmlUnavailable(kind=values.SnapshotLack.DRIVER, message="no", code=code)
    assert present(desk.look()) == [("driver", code, "nvml", severity)]
    desk.unavailable = None
    assert present(desk.look()) == []


def test_node_without_gpus_is_absent_whatever_nvml_says(clock: Any, present: Any) -> None:
    """A login node with the library installed has no fault."""
    for kind in (values.SnapshotLack.ABSENT, values.SnapshotLack.DRIVER):
        desk = Desk(clock)
        desk.unavailable = values.NvmlUnavailable(kind=kind, message="no")
        judged = desk.look(2)
        assert (present(judged), judged.state) == ([], "absent")


def test_silent_driver_is_grave_only_when_it_stays_silent() -> None:
    """One slow answer happens; three in a row do not."""
    memory: dict[str, Any] = {}
    found = []
    for _ in range(3):
        judged = nvml.hung("no answer within 10 s", memory)
        memory = dict(judged.memory)
        found.append([(c.kind, c.code, str(c.severity)) for c in judged.present])
        assert judged.unknown == {"*"}
    assert found == [[], [], [("driver", "nvml_hang", "high")]]


def test_answer_after_silence_begins_the_count_anew(desk: Desk) -> None:
    """Hangs that do not follow each other are not added up."""
    desk.memory = dict(nvml.hung("x", desk.memory).memory)
    desk.look()
    assert "hangs" not in desk.memory


def test_uncorrectable_error_is_grave_once_and_its_reset_is_seen(desk: Desk, moved: Any) -> None:
    """The count that was there at first is history; a step is an event; going down means the GPU was reset."""
    desk.set(0, ecc_uncorrected_volatile_total=2)
    judged = desk.look()
    assert moved(judged) == [("ecc", "uncorrectable", "gpu0", "high")]
    assert judged.edges[0].latches
    assert desk.look().edges == ()
    desk.set(0, ecc_uncorrected_volatile_total=0)
    judged = desk.look()
    assert judged.reset == {"GPU-0"}
    assert judged.edges == ()


def test_mig_mode_switches_nvlinks_off(desk: Desk, present: Any) -> None:
    """GPUs whose links were up and that are sliced since are well; a link that is missing when MIG is off again is down."""
    off = tuple(values.NvLink(link=n, active=False) for n in range(4))
    desk.set(1, mig=True, links=off)
    assert present(desk.look(2)) == []
    desk.set(1, mig=False, links=off)
    assert present(desk.look()) == [("nvlink", "inactive", "gpu1", "high")]
    desk.set(1, mig=True, links=())
    assert present(desk.look()) == []


def test_corrected_errors_are_told_by_powers_of_ten(desk: Desk, moved: Any) -> None:
    """Information, now and then."""
    counts = []
    for value in (1, 2, 9, 10, 11, 150):
        desk.set(0, ecc_corrected_volatile_total=value)
        counts += moved(desk.look())
    assert counts == [("ecc", "corrected", "gpu0", "info")] * 3


def test_row_remapping_failed_pending_and_exhausted(desk: Desk, present: Any) -> None:
    """Replace, reset, remember."""
    desk.set(0, remap_failed=True)
    desk.set(1, remap_pending=True)
    desk.set(2, remap_banks_exhausted=3)
    assert present(desk.look()) == [
        ("row_remap", "failed", "gpu0", "high"),
        ("row_remap", "pending", "gpu1", "low"),
        ("row_remap", "banks_exhausted", "gpu2", "info"),
    ]


def test_retired_pages_of_older_boards(desk: Desk, present: Any) -> None:
    """The vendor's limit, and a retirement that waits."""
    desk.set(0, retired_sbe_total=40, retired_dbe_total=20, retired_pending=True)
    assert present(desk.look()) == [
        ("retired_pages", "pending", "gpu0", "low"),
        ("retired_pages", "limit", "gpu0", "low"),
    ]


def test_nvlink_that_was_up_and_is_down_is_grave(desk: Desk, present: Any) -> None:
    """A link that never was up is how the board is wired."""
    down = tuple(values.NvLink(link=n, active=n != 2) for n in range(4))
    desk.set(0, links=down)
    assert present(desk.look()) == [("nvlink", "inactive", "gpu0", "high")]
    desk.set(0, links=())
    assert present(desk.look(3, links=False)) == [("nvlink", "inactive", "gpu0", "high")]
    fresh = gpu(0, uuid="GPU-9", links=down)
    desk.gpus = {0: fresh, 1: gpu(1), 2: gpu(2), 3: gpu(3)}
    assert present(desk.look()) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pcie_width": 8}, ("pcie_width", "width", "gpu0", "low")),
        ({"throttle_reasons": 0x48}, ("throttle", "hw_thermal", "gpu0", "low")),
        ({"throttle_reasons": 0x80}, ("throttle", "hw_power_brake", "gpu0", "low")),
        ({"temperature_c": 91, "slowdown_c": 90}, ("thermal", "gpu", "gpu0", "low")),
        ({"memory_temperature_c": 100, "memory_max_c": 95}, ("thermal", "memory", "gpu0", "low")),
        ({"fabric_state": 3, "fabric_status": 5}, ("nvlink", "fabric", "gpu0", "high")),
        (
            {"pcie_generation": 1, "pcie_generation_max": 5, "utilization_frac": 0.9},
            ("pcie_width", "generation", "gpu0", "info"),
        ),
    ],
)
def test_passing_states_count_once_they_last(
    desk: Desk, present: Any, fields: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """Three readings in a row; one is life."""
    desk.set(0, **fields)
    assert present(desk.look(2)) == []
    assert present(desk.look()) == [expected]


@pytest.mark.parametrize(
    "fields",
    [
        {"throttle_reasons": 0x5},
        {"temperature_c": 91, "slowdown_c": 0},
        {"pcie_generation": 1, "pcie_generation_max": 5, "utilization_frac": 0.0},
        {"ecc_uncorrected_volatile_total": None, "links": (), "remap_failed": None},
        {"fabric_state": 0, "fabric_status": 0},
    ],
)
def test_normal_and_unknown_values_are_no_finding(
    desk: Desk, present: Any, moved: Any, fields: dict[str, Any]
) -> None:
    """Idle, power-capped, a limit the board does not have, a value it does not tell."""
    desk.set(0, **fields)
    judged = desk.look(4)
    assert (present(judged), moved(judged)) == ([], [])


def test_gpu_that_cannot_be_read_keeps_what_stood(desk: Desk) -> None:
    """A field that fails is unknown, not well."""
    desk.set(0, unread={"remap_failed": "UNKNOWN"}, remap_failed=None)
    assert desk.look().unknown == {"gpu0"}


def test_announced_xid_carries_the_gpu_and_a_number_of_its_own(desk: Desk) -> None:
    """Two equal Xids are two occurrences, though NVML numbers nothing."""
    event = {
        "code": 79,
        "uuid": "GPU-1",
        "pci_bus_id": "0000:11:00.0",
        "at_s": desk.context.now.timestamp() - 5,
    }
    one, two = desk.look(xids=[event, event]).edges
    (three,) = desk.look(xids=[event]).edges
    assert (one.what.device, one.what.code, str(one.what.severity)) == ("gpu1", "79", "high")
    assert len({one.value, two.value, three.value}) == 3
    assert (desk.context.now - one.at).total_seconds() == pytest.approx(5)


def test_unknown_xid_is_kept_and_never_grave(desk: Desk) -> None:
    """A code nobody has published is information."""
    (edge,) = desk.look(xids=[{"code": 9999, "uuid": None, "pci_bus_id": None, "at_s": 0.0}]).edges
    assert (edge.what.code, str(edge.what.severity), edge.what.device) == ("9999", "info", "unknown")


@pytest.fixture
def live(
    home: Path, node_identity: identity.Identity, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The real child on the stub library."""
    monkeypatch.setenv("PROBING_NVML_STATE", str(home / build.NVML_STATE))
    started = children.Children()
    made = node_reader.ChildReader(node_identity, started, nvml_library=str(nvml_library), deadline_s=5.0)
    return home / build.NVML_STATE, made, started


def test_real_library_tells_gpus_and_xids_and_survives_a_hang(live: Any) -> None:
    """Through pynvml and the child: a snapshot, an event, a call that never returns, and a snapshot again."""
    state, made, started = live

    async def work() -> None:
        first = await made.nvml(links=True)
        assert len(first["snapshot"]["gpus"]) == 8
        nvml_state.add_event(state, 3, 79)
        nvml_state.set_gpu(state, 3, {"lost": 1})
        second = await made.nvml(links=True)
        assert [(x["code"], x["uuid"]) for x in second["xids"]] == [
            (79, first["snapshot"]["gpus"][3]["uuid"])
        ]
        assert second["snapshot"]["gpus"][3]["lost"] == "GPU_IS_LOST"
        nvml_state.set_gpu(state, 2, {"hang": "all"})
        made._deadline_s = 0.5
        with pytest.raises(children.ChildHung):
            await made.nvml(links=True)
        nvml_state.set_gpu(state, 2, {"hang": None})
        made._deadline_s = 10.0
        assert len((await made.nvml(links=True))["snapshot"]["gpus"]) == 8
        await made.close()

    asyncio.run(work())
    assert started.hung == ()


def test_inventory_of_the_real_child_names_minor_numbers(live: Any) -> None:
    """What SLURM_JOB_GPUS needs: index, minor and address of each."""
    _, made, _ = live

    async def work() -> Any:
        raw = await made.nvml(links=True)
        await made.close()
        return nvml.judge(raw, {}, polled.PollContext(now=datetime.now(UTC), boot_id="b"))

    inventory: gpus.Inventory = asyncio.run(work()).inventory
    assert sorted(g.minor or 0 for g in inventory.gpus) == list(range(8))


def test_nothing_is_judged_that_the_watching_child_does_not_ask() -> None:
    """A field left out for its cost is None for ever: judging it would look like health."""
    left_out = nvml_fields.NOT_WATCHED | {"memory_total_bytes", "memory_used_bytes"}
    for module in (nvml, nvml_gpu):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not read & left_out, module.__name__
