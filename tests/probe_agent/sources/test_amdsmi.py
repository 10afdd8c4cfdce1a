"""AMD's GPUs: lost, without a driver, with errors nobody could correct, hot; read from the library in a child."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core.records import Severity
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.faults import gpus, gres_conf
from probing_cluster.probe_agent.sources import amdsmi, node_reader, nvml, polled
from probing_cluster.sandbox.c_libraries import amdsmi_build


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    values = {
        "index": index,
        "pci_bus_id": f"0000:c{index}:00.0",
        "uuid": f"AMD-{index}",
        "ecc": {"correctable": 0, "uncorrectable": 0, "deferred": 0},
        "temperature_c": 60,
        "critical_c": 100,
        "failed": {},
    }
    return values | fields


class Desk:
    """One node's GPUs judged again and again."""

    def __init__(self, clock: Any) -> None:
        self.gpus = {i: gpu(i) for i in range(2)}
        self.memory: dict[str, Any] = {}
        self.context = polled.PollContext(now=clock.now(), boot_id="b")

    def look(self, times: int = 1, raw: dict[str, Any] | None = None, **changed: Any) -> Any:
        judged = None
        for _ in range(times):
            reading = json.loads(json.dumps(raw or {"gpus": list(self.gpus.values())}))
            judged = amdsmi.judge(reading, self.memory, replace(self.context, **changed))
            self.memory = json.loads(json.dumps(judged.memory))
        return judged


@pytest.fixture
def desk(clock: Any) -> Desk:
    return Desk(clock)


def test_two_well_gpus_are_two_names_and_no_condition(desk: Desk) -> None:
    """A GPU read and found well says so under every name that a kernel line may use."""
    judged = desk.look()
    assert (judged.present, judged.edges, judged.state) == ((), (), "ok")
    assert {"gpu1", "AMD-1", "0000:c1:00.0", "0000:c1:00"} <= judged.healthy


def test_a_gpu_that_is_gone_for_three_readings_is_lost(desk: Desk) -> None:
    """Twice is a reset that takes its time; the third time is a fault with its address, until it is back."""
    desk.look()
    del desk.gpus[1]
    assert desk.look(2).present == ()
    (lost,) = desk.look().present
    assert (lost.kind, lost.severity, lost.pci_bus_id) == ("gpu_lost", Severity.HIGH, "0000:c1:00.0")
    assert "gpu1" not in desk.look().healthy
    desk.gpus[1] = gpu(1)
    assert desk.look().present == ()


def test_a_gpu_that_cannot_say_where_it_is_counts_as_gone(desk: Desk) -> None:
    """A dead GPU may still be listed: its own calls fail."""
    desk.look()
    desk.gpus[1] = gpu(1, pci_bus_id=None, uuid=None, ecc=None, failed={"pci_bus_id": "IO"})
    assert [c.kind for c in desk.look(3).present] == ["gpu_lost"]


def test_uncorrectable_errors_are_told_once_and_latch(desk: Desk) -> None:
    """The first reading is where counting begins; a rise is an event; a count that fell began anew."""
    desk.gpus[0]["ecc"] = {"correctable": 5, "uncorrectable": 7, "deferred": 0}
    assert desk.look().edges == ()
    desk.gpus[0]["ecc"] = {"correctable": 50, "uncorrectable": 9, "deferred": 1}
    edges = {e.what.code: e for e in desk.look().edges}
    assert {code: e.what.severity for code, e in edges.items()} == {
        "uncorrectable": Severity.HIGH,
        "deferred": Severity.LOW,
        "corrected": Severity.INFO,
    }
    assert (edges["uncorrectable"].latches, edges["corrected"].latches) == (True, False)
    assert edges["uncorrectable"].what.measured == 2.0
    assert desk.look().edges == ()
    desk.gpus[0]["ecc"] = {"correctable": 0, "uncorrectable": 0, "deferred": 0}
    assert desk.look().edges == ()
    desk.gpus[0]["ecc"] = None
    assert desk.look().edges == ()


CHIPS = {
    "0000:c0:00.0": {"serial": "00a1b2c3d4e5f607", "minor": 128},
    "0000:c1:00.0": {"serial": "f1b2c3d4e5f60718", "minor": 129},
}


def test_the_gpus_join_the_nodes_inventory_and_keep_their_names(desk: Desk) -> None:
    """A kernel line's address means a GPU of AMD's; while one is gone the library counts anew, and names stay."""
    both = {"gpus": list(desk.gpus.values()), "chips": CHIPS}
    inventory = desk.look(raw=both).inventory
    assert [(g.device, g.uuid, g.minor, g.maker) for g in inventory.gpus] == [
        ("gpu0", "AMD-0", 128, "amd"),
        ("gpu1", "AMD-1", 129, "amd"),
    ]
    assert inventory.by_pci("0000:c1:00.0").uuid == "AMD-1"
    left = {"gpus": [gpu(0, pci_bus_id="0000:c1:00.0", uuid="AMD-1")]}
    judged = desk.look(times=3, raw=left)
    assert [c.device for c in judged.present] == ["gpu0"]
    assert judged.inventory.by_pci("0000:c1:00.0").device == "gpu1"


def test_a_chip_that_answers_elsewhere_is_not_gone(desk: Desk) -> None:
    """Partitions of a GPU that are joined again, and a bus that firmware renumbered; another chip in its stead is no excuse."""
    desk.look(raw={"gpus": [gpu(0), gpu(1), gpu(2, pci_bus_id="0000:c1:00.1")], "chips": CHIPS})
    moved = CHIPS["0000:c1:00.0"]
    assert desk.look(3, raw={"gpus": [gpu(0), gpu(1)]}).present == ()
    elsewhere = {"gpus": [gpu(0), gpu(1, pci_bus_id="0000:d1:00.0")], "chips": {"0000:d1:00.0": moved}}
    assert desk.look(3, raw=elsewhere).present == ()
    other = {**moved, "serial": "0123456789abcdef"}
    third = {"gpus": [gpu(0), gpu(1, pci_bus_id="0000:e1:00.0")], "chips": {"0000:e1:00.0": other}}
    assert [c.pci_bus_id for c in desk.look(3, raw=third).present] == ["0000:d1:00.0"]


def test_a_makers_reading_leaves_the_other_makers_gpus(desk: Desk) -> None:
    """Each library shows its own; the inventory is the node's."""
    nvidia = gpus.Inventory(gpus=(gpus.Gpu(uuid="GPU-1", index=0, minor=0, pci_bus_id="0000:3b:00.0"),))
    inventory = desk.look(inventory=nvidia).inventory
    assert [g.uuid for g in inventory.of_maker(gpus.NVIDIA).gpus] == ["GPU-1"]
    assert len(inventory.of_maker(gpus.AMD).gpus) == 2


@pytest.mark.parametrize(
    ("numbers", "numbering", "uuids"),
    [
        ("0,1", None, ("AMD-0", "AMD-1")),  # the order of addresses and of render devices agree
        ("1", gres_conf.GpuNumbering(minors=(128, 129)), ("AMD-1",)),  # File=/dev/dri/renderD[128-129]
        ("GPU-f1b2c3d4e5f60718", None, ("AMD-1",)),  # as ROCR_VISIBLE_DEVICES names it
        ("GPU-a1b2c3d4e5f607", None, ("AMD-0",)),
        ("GPU-ffffffffffffffff", None, None),
        ("2", None, None),
    ],
)
def test_slurms_numbers_and_rocms_names_mean_gpus(
    desk: Desk, numbers: str, numbering: Any, uuids: Any
) -> None:
    """SLURM_JOB_GPUS in any numbering that is settled, and the chips' numbers of ROCR_VISIBLE_DEVICES."""
    inventory = desk.look(raw={"gpus": list(desk.gpus.values()), "chips": CHIPS}).inventory
    assert inventory.of_job(numbers, numbering) == uuids


def test_numbers_that_could_mean_two_gpus_mean_none(desk: Desk) -> None:
    """Where addresses and render devices are in different orders only gres.conf can tell."""
    turned = {a: {**c, "minor": 257 - c["minor"]} for a, c in CHIPS.items()}
    inventory = desk.look(raw={"gpus": list(desk.gpus.values()), "chips": turned}).inventory
    assert inventory.of_job("0", None) is None


def test_what_sysfs_says_of_chips_is_read_once() -> None:
    """The chip's number and that of its render device; what is missing is not made up."""
    base = amdsmi.DEVICES
    raw = {
        "files": {
            f"{base}/0000:c0:00.0/unique_id": "00a1b2c3d4e5f607\n",
            f"{base}/0000:c0:00.0/drm/renderD128/dev": "226:128\n",
        }
    }
    assert amdsmi.chips(raw, ["0000:c0:00.0", "0000:c1:00.0"]) == {
        "0000:c0:00.0": {"serial": "00a1b2c3d4e5f607", "minor": 128},
        "0000:c1:00.0": {"serial": "", "minor": None},
    }


def test_counts_that_fell_tell_of_a_reset(desk: Desk) -> None:
    """A reset ends what its errors latched."""
    desk.gpus[0]["ecc"] = {"correctable": 5, "uncorrectable": 7, "deferred": 0}
    assert desk.look().reset == frozenset()
    desk.gpus[0]["ecc"] = {"correctable": 0, "uncorrectable": 0, "deferred": 0}
    assert desk.look().reset == {"AMD-0"}


def test_heat_must_last(desk: Desk) -> None:
    """A peak is none; a GPU without a limit is never too hot."""
    desk.gpus[0]["temperature_c"] = 101
    assert desk.look(2).present == ()
    assert [(c.kind, c.code) for c in desk.look().present] == [("thermal", "gpu")]
    desk.gpus[0]["critical_c"] = 0
    assert desk.look(4).present == ()


def test_a_driver_that_went_away_is_a_fault_where_gpus_were(desk: Desk) -> None:
    """Elsewhere there is nothing to see; a library that is not installed is nobody's fault."""
    assert desk.look(raw={"lack": "driver", "message": "m"}).state == "absent"
    desk.look()
    (gone,) = desk.look(raw={"lack": "driver", "message": "m"}).present
    assert (gone.kind, gone.severity) == ("driver", Severity.HIGH)
    judged = desk.look(raw={"lack": "library", "message": "m"})
    assert judged.present == ()
    assert "gpu0" in judged.unknown
    assert desk.look(raw={"lack": "driver", "message": "m"}, relearn=True).present == ()


def test_the_third_silence_is_a_fault(desk: Desk) -> None:
    """One slow answer is none; whatever answered in between, counting begins anew."""
    silent: dict[str, Any] = {}
    for wanted in ((), (), ("amdsmi_hang",)):
        judged = amdsmi.hung("no answer", silent)
        silent = dict(judged.memory)
        assert tuple(c.code for c in judged.present) == wanted
    desk.memory = silent
    desk.look()
    assert "hangs" not in desk.memory


class Live:
    """The real child with the stub library, on a node whose driver is loaded."""

    def __init__(self, home: Path, node_identity: identity.Identity, library: Path) -> None:
        self.state = home / "amdsmi.state"
        self.driver = Path(node_identity.root) / amdsmi.DRIVER
        self.driver.parent.mkdir(parents=True, exist_ok=True)
        self.driver.write_text("live\n")
        self.reader = node_reader.ChildReader(
            node_identity,
            children.Children(),
            amdsmi_library=str(library),
            nvml_library="/none.so",
            deadline_s=10.0,
        )

    def write_state(self, *lines: str) -> None:
        self.state.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    return amdsmi_build.build(tmp_path_factory.mktemp("lib"))


@pytest.fixture
def live(
    home: Path, node_identity: identity.Identity, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Live:
    monkeypatch.setenv("PROBING_AMDSMI_STATE", str(home / "amdsmi.state"))
    return Live(home, node_identity, library)


TWO = ("gpu.count=2", "gpu.0.bdf=0000:c1:00.0", "gpu.0.uuid=AMD-0", "gpu.1.bdf=0001:0b:1f.7")


def test_the_child_reads_the_library(live: Live, clock: Any) -> None:
    """Address, UUID, counts and heat come out of the C structures as they went in; what fails is named."""
    context = polled.PollContext(now=clock.now(), boot_id="b")

    async def run() -> list[Any]:
        readings = []
        try:
            readings.append(await amdsmi.read(live.reader, {}, context))
            live.write_state(
                *TWO,
                "gpu.0.correctable=3",
                "gpu.0.uncorrectable=4294967297",
                "gpu.0.temperature=71",
                "gpu.0.temperature_critical=110",
            )
            readings.append(await amdsmi.read(live.reader, {}, context))
            live.write_state(*TWO, "gpu.0.missing=1", "gpu.1.status=12")
            readings.append(await amdsmi.read(live.reader, {}, context))
            live.driver.unlink()
            readings.append(await amdsmi.read(live.reader, {}, context))
        finally:
            await live.reader.close()
        return readings

    unloaded, two, broken, gone = asyncio.run(run())
    assert unloaded["lack"] == "DRIVER_NOT_LOADED"
    first, second = two["gpus"]
    assert (first["pci_bus_id"], first["uuid"]) == ("0000:c1:00.0", "AMD-0")
    assert first["ecc"] == {"correctable": 3, "uncorrectable": 4294967297, "deferred": 0}
    assert (first["temperature_c"], first["critical_c"], first["failed"]) == (71, 110, {})
    assert (second["pci_bus_id"], second["uuid"], second["ecc"]) == ("0001:0b:1f.7", None, None)
    (left,) = broken["gpus"]
    assert (left["pci_bus_id"], left["failed"]["pci_bus_id"]) == (None, "IO")
    assert gone["lack"] == "driver"


def test_a_library_that_is_not_there_is_said(node_identity: identity.Identity, live: Live) -> None:
    """Neither the child nor the agent fails over it."""

    async def run() -> Any:
        made = node_reader.ChildReader(
            node_identity, children.Children(), amdsmi_library="/none.so", deadline_s=10.0
        )
        try:
            return await made.amdsmi()
        finally:
            await made.close()
            await live.reader.close()

    assert asyncio.run(run())["lack"] == "library"


def test_a_call_that_never_returns_costs_the_child_and_not_the_agent(live: Live) -> None:
    """The child is killed at the deadline."""
    live.write_state(*TWO, "gpu.0.hang=1")

    async def run() -> None:
        live.reader._deadline_s = 0.5
        try:
            with pytest.raises(children.ChildHung):
                await live.reader.amdsmi()
        finally:
            await live.reader.close()

    asyncio.run(run())


def test_gpus_of_gres_conf_are_not_missed_by_nvml_on_a_node_of_amd(live: Live, clock: Any) -> None:
    """The number may be one of any maker's GPUs: where only AMD's are on the bus, NVML misses none."""
    context = polled.PollContext(now=clock.now(), boot_id="b", expect_gpus=2)

    async def look() -> Any:
        raw = await nvml.read(live.reader, {}, context)
        return nvml.judge(raw, {}, context)

    async def run() -> tuple[Any, Any, Any]:
        try:
            shutil.rmtree(devices)
            chip = put("0000:c1:00.0", "0x1002", "0x120000")
            put("0000:00:02.0", "0x8086", "0x038000")
            amd = await look()
            mine = put("0000:5e:00.0", "0x10de", "0x030200")
            both = await look()
            (chip / "class").unlink()
            (mine / "class").unlink()
            return amd, both, await look()
        finally:
            await live.reader.close()

    devices = Path(live.reader._identity.root) / "sys/bus/pci/devices"

    def put(address: str, vendor: str, code: str) -> Path:
        device = devices / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{code}\n")
        return device

    amd, *others = asyncio.run(run())
    assert (amd.present, amd.state) == ((), "absent")
    assert [[c.severity for c in other.present] for other in others] == [[Severity.HIGH]] * 2
