"""EDAC, PCIe, services, disk, memory, clock and IPMI: healthy, faulty, absent and unreadable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from probing_cluster.probe_agent.sources import clock as clock_source
from probing_cluster.probe_agent.sources import disk, edac, ipmi, memory, pcie, services
from probing_cluster.sandbox.nodetree import writing


def put(watched: Any, name: str, value: str) -> None:
    writing.put(watched.reader.root, name, value)


def first(watched: Any, pattern: str) -> str:
    return str(min(watched.reader.root.glob(pattern)).relative_to(watched.reader.root))


@pytest.mark.parametrize(
    "source", [edac.SOURCE, pcie.SOURCE, services.SOURCE, disk.SOURCE, clock_source.SOURCE, ipmi.SOURCE]
)
def test_nothing_there_is_absent_not_well(watch: Any, bare: Any, source: Any) -> None:
    """A node without the hardware or the tool says so."""
    watched = watch(source)
    watched.reader.root = bare.root
    judged = watched.look(2)
    assert judged.state.startswith("absent")
    assert (judged.present, judged.edges, judged.healthy) == ((), (), frozenset())


@pytest.mark.parametrize("source", [edac.SOURCE, pcie.SOURCE, disk.SOURCE, memory.SOURCE])
def test_healthy_node_is_no_finding(watch: Any, source: Any) -> None:
    """A well node says nothing, however often it is asked."""
    judged = watch(source).look(8)
    assert (judged.present, judged.edges) == ((), ())


def test_uncorrected_memory_error_is_grave_and_names_the_dimm(watch: Any, moved: Any) -> None:
    """EDAC counts per DIMM; its label is what a technician looks for."""
    watched = watch(edac.SOURCE)
    watched.look()
    name = first(watched, "sys/devices/system/edac/mc/mc*/dimm*/dimm_ue_count")
    label = (watched.reader.root / name).parent.joinpath("dimm_label").read_text().strip()
    put(watched, name, "1")
    assert moved(watched.look()) == [("edac", "uncorrected", label, "high")]


def test_an_error_no_dimm_is_blamed_for_names_its_controller(watch: Any, moved: Any) -> None:
    """The controller counts it alone; read from its DIMMs only, it would never have happened."""
    watched = watch(edac.SOURCE)
    put(watched, "sys/devices/system/edac/mc/mc0/ue_noinfo_count", "0")
    watched.look()
    put(watched, "sys/devices/system/edac/mc/mc0/ue_noinfo_count", "1")
    assert moved(watched.look()) == [("edac", "uncorrected", "mc0", "high")]


def test_corrected_memory_errors_are_told_by_powers_of_ten(watch: Any, moved: Any) -> None:
    """A DIMM with thousands of corrected errors is a few rows, not thousands."""
    watched = watch(edac.SOURCE)
    watched.look()
    name = first(watched, "sys/devices/system/edac/mc/mc*/dimm*/dimm_ce_count")
    edges = 0
    for value in range(1, 40):
        put(watched, name, str(value))
        edges += len(watched.look().edges)
    assert edges == 2


def _hca(watched: Any) -> str:
    devices = watched.reader.root / "sys/bus/pci/devices"
    return next(d.name for d in sorted(devices.iterdir()) if (d / "class").read_text().startswith("0x0207"))


def test_narrower_pcie_link_is_told_once_it_lasts(watch: Any, present: Any) -> None:
    """An adapter that trained with fewer lanes than before."""
    watched = watch(pcie.SOURCE)
    watched.look()
    address = _hca(watched)
    put(watched, f"sys/bus/pci/devices/{address}/current_link_width", "8")
    assert present(watched.look(2)) == []
    assert present(watched.look()) == [("pcie_width", "width", address, "low")]


def test_device_that_answers_all_ones_has_no_width(watch: Any, present: Any) -> None:
    """63 lanes is what a dead device reads as, not a link."""
    watched = watch(pcie.SOURCE)
    watched.look()
    put(watched, f"sys/bus/pci/devices/{_hca(watched)}/current_link_width", "63")
    assert present(watched.look(4)) == []


def test_device_gone_from_the_bus_is_grave(watch: Any, present: Any) -> None:
    """Its own counters cannot tell that it is gone; the bus can."""
    watched = watch(pcie.SOURCE)
    watched.look()
    address = _hca(watched)
    (watched.reader.root / "sys/bus/pci/devices" / address).rename(watched.reader.root / "gone")
    assert present(watched.look(3)) == [("pcie_link", "missing", address, "high")]


def _at(watched: Any, old: str, new: str) -> None:
    (watched.reader.root / "sys/bus/pci/devices" / old).rename(
        watched.reader.root / "sys/bus/pci/devices" / new
    )


def test_virtual_functions_come_and_go(watch: Any, present: Any) -> None:
    """Nobody misses one, nor one that an earlier version watched."""
    watched = watch(pcie.SOURCE)
    address = _hca(watched)
    place = watched.reader.root / "sys/bus/pci/devices" / address
    (place / "physfn").symlink_to("../0000:00:00.0")
    for name in ("current_link_width", "current_link_speed"):
        (place / name).write_text("0\n" if name.endswith("width") else "Unknown\n")
    assert address not in asyncio.run(pcie.read(watched.reader, {}, watched.context))["known"]
    (place / "physfn").unlink()
    watched.look()
    assert address in watched.memory["best"]
    _at(watched, address, "../gone")
    assert present(watched.look(40)) == []


def test_renumbered_bus_is_said_once_and_grave_only_if_one_is_missing(
    watch: Any, present: Any, moved: Any
) -> None:
    """After a boot as many devices are there as before, at other addresses; with one less, or in the same boot, they are gone."""
    watched = watch(pcie.SOURCE)
    watched.look(2)
    hcas = sorted(a for a, link in watched.memory["best"].items() if link["what"] == "hca")
    watched.reboot()
    for n, address in enumerate(hcas):
        _at(watched, address, f"0001:{n:02x}:00.0")
    judged = watched.look()
    assert moved(judged) == [("pcie_link", "renumbered", "0001:00:00.0", "info")]
    assert (present(watched.look(40)), watched.look().edges) == ([], ())
    _at(watched, "0001:00:00.0", "0002:00:00.0")
    assert present(watched.look(3)) == [("pcie_link", "missing", "0001:00:00.0", "high")]
    watched.reboot("third-boot")
    _at(watched, "0002:00:00.0", "../gone")
    for n in range(1, len(hcas)):
        _at(watched, f"0001:{n:02x}:00.0", f"0003:{n:02x}:00.0")
    assert {c for _, c, _, s in present(watched.look(3)) if s == "high"} == {"missing"}


def test_fatal_pcie_error_counted_by_the_device_is_grave(watch: Any, moved: Any) -> None:
    """AER totals in sysfs find what a rate-limited kernel log left out."""
    watched = watch(pcie.SOURCE)
    watched.look()
    address = _hca(watched)
    put(watched, f"sys/bus/pci/devices/{address}/aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1")
    assert moved(watched.look()) == [("pcie_aer", "fatal", address, "high")]


UNIT = "Id={0}\nLoadState={1}\nActiveState={2}\nSubState={3}\nNRestarts={4}\n"


def units(*rows: tuple[str, ...]) -> str:
    return "\n".join(UNIT.format(*r) for r in rows)


def systemd(watched: Any) -> Any:
    (watched.reader.root / "run/systemd/system").mkdir(parents=True)
    return watched


def test_service_that_ran_and_runs_no_more_is_told(watch: Any, present: Any, moved: Any) -> None:
    """Units that were never there or never ran are nobody's fault; restarts are kept as information."""
    watched = systemd(watch(services.SOURCE))
    well = ("slurmd.service", "loaded", "active", "running", "0")
    never = ("munge.service", "loaded", "inactive", "dead", "0")
    absent = ("chrony.service", "not-found", "inactive", "dead", "")
    watched.reader.answer("systemctl", units(well, never, absent))
    assert present(watched.look(3)) == []
    watched.reader.answer(
        "systemctl", units(("slurmd.service", "loaded", "failed", "failed", "3"), never, absent)
    )
    judged = watched.look()
    assert moved(judged) == [("service", "restarted", "slurmd.service", "info")]
    assert present(watched.look()) == [("service", "down", "slurmd.service", "low")]
    watched.reader.answer(
        "systemctl", units(("slurmd.service", "loaded", "active", "running", "3"), never, absent)
    )
    assert present(watched.look()) == []


def test_service_that_was_switched_off_is_not_missed(watch: Any, present: Any) -> None:
    """Stopped and disabled is a decision; stopped only, failed, or on the site's list is not."""
    watched = systemd(watch(services.SOURCE))
    words = ("loaded", "active", "running", "0")
    both = ("munge.service", "sssd.service", "slurmd.service")
    watched.reader.answer("systemctl", units(*((name, *words) for name in both)))
    watched.look()
    off = "\nUnitFileState=disabled"
    rows = (
        ("munge.service", "loaded", "inactive", "dead", f"0{off}"),
        ("sssd.service", "loaded", "failed", "failed", f"0{off}"),
        ("slurmd.service", "loaded", "inactive", "dead", "0\nUnitFileState=enabled"),
    )
    watched.reader.answer("systemctl", units(*rows).replace("\n\nUnitFileState", "\nUnitFileState"))
    missed = [d for _, _, d, _ in present(watched.look(2))]
    assert missed == ["sssd.service", "slurmd.service"]
    missed = [d for _, _, d, _ in present(watched.look(2, expect_services=("munge.service",)))]
    assert "munge.service" in missed


def test_without_systemd_the_sites_services_are_looked_for_by_name(watch: Any, present: Any) -> None:
    """The kernel keeps fifteen characters of a name; that is enough."""
    watched = watch(services.SOURCE)
    put_process = {"proc/71/comm": "slurmd", "proc/72/comm": "nvidia-persiste"}
    writing.write(watched.reader.root, put_process)
    wanted = ("slurmd", "nvidia-persistenced", "munged")
    assert present(watched.look(2, expect_services=wanted)) == [("service", "down", "munged", "low")]


def test_full_local_file_system_is_told(watch: Any, present: Any) -> None:
    """Space and inodes are judged apart; an image that nobody can write is always full."""
    watched = watch(disk.SOURCE)
    gib = 2**30
    answers = {
        "/": {"bytes_total": 100 * gib, "bytes_free": gib // 2, "inodes_total": 100, "inodes_free": 50},
        "/tmp": {"bytes_total": 100 * gib, "bytes_free": 50 * gib, "inodes_total": 100, "inodes_free": 4},
        "/run": {"error": "EIO"},
        "/var": {
            "bytes_total": gib,
            "bytes_free": 0,
            "inodes_total": 9,
            "inodes_free": 0,
            "read_only": True,
        },
    }
    judged = disk.judge(answers, {}, watched.context)
    assert present(judged) == [("disk", "space_full", "/", "low"), ("disk", "inodes_low", "/tmp", "info")]
    assert judged.unknown == {"/run"}


def test_memory_that_jobs_fill_drains_no_node(watch: Any, present: Any) -> None:
    """Anybody may fill /dev/shm; a disk, and the tmpfs of the node's daemons, must have room."""
    full = {"bytes_total": 1000, "bytes_free": 2, "inodes_total": 0, "inodes_free": 0}
    answers = {
        "/dev/shm": {**full, "type": "tmpfs"},
        "/tmp": {**full, "type": "xfs"},
        "/run": {**full, "type": "tmpfs"},
    }
    judged = disk.judge(answers, {}, watch(disk.SOURCE).context)
    assert {(d, s) for _, _, d, s in present(judged)} == {
        ("/dev/shm", "info"),
        ("/tmp", "low"),
        ("/run", "low"),
    }


def _memory(watched: Any, share: float = 1.0) -> int:
    """Leaves `share` of the node's memory; how many KiB there were."""
    text = (watched.reader.root / "proc/meminfo").read_text()
    total = int(text.split("MemTotal:")[1].split()[0])
    put(watched, "proc/meminfo", text.replace(str(total), str(int(total * share)), 1).rstrip("\n"))
    return total


def test_memory_that_shrank_is_told_until_relearned(watch: Any, present: Any) -> None:
    """A DIMM the firmware mapped out shows as less memory than before the boot; what a hypervisor takes meanwhile is none."""
    watched = watch(memory.SOURCE)
    watched.look()
    _memory(watched, 15 / 16)
    assert present(watched.look()) == []
    watched.reboot()
    assert present(watched.look()) == [("memory", "size", "memory", "low")]
    assert present(watched.look(relearn=True)) == []


def test_memory_of_a_gpu_is_not_the_hosts(watch: Any, present: Any) -> None:
    """A Grace's kernel has the GPU's memory once its driver is loaded, on a NUMA node without CPUs."""
    watched = watch(memory.SOURCE)
    base = "sys/devices/system/node/node1"
    (watched.reader.root / base).mkdir(parents=True)
    put(watched, f"{base}/cpulist", "")
    put(
        watched, f"{base}/meminfo", f"Node 1 MemTotal:       {_memory(watched) // 6} kB\nNode 1 MemFree: 1 kB"
    )
    watched.look()
    watched.reboot()
    put(watched, f"{base}/meminfo", "Node 1 MemTotal:       0 kB")
    _memory(watched, 5 / 6)
    assert present(watched.look()) == []
    watched.reboot("third-boot")
    _memory(watched, 0.95)
    assert present(watched.look()) == [("memory", "size", "memory", "low")]


def test_memory_that_cannot_be_read_is_unknown(watch: Any, bare: Any) -> None:
    """No number is not zero bytes."""
    watched = watch(memory.SOURCE)
    watched.reader.root = bare.root
    assert watched.look().unknown == {"*"}


CHRONY = "C0248F97,192.36.143.151,{stratum},1706709600.123,{offset},0.00001,0.00002,-3.1,0.0,0.01,0.03,0.0009,64.2,{leap}"


@pytest.mark.parametrize(
    ("offset", "stratum", "leap", "expected"),
    [
        ("-0.000012", 3, "Normal", []),
        ("0.2", 3, "Normal", [("clock_skew", "drift", "clock", "info")]),
        ("-75.5", 3, "Normal", [("clock_skew", "skew", "clock", "low")]),
        ("0.0", 0, "Not synchronised", [("clock_skew", "unsynchronised", "clock", "info")]),
    ],
)
def test_clock_is_judged_by_what_chrony_says(
    watch: Any, present: Any, offset: str, stratum: int, leap: str, expected: list[Any]
) -> None:
    """Off by more than a second is a fault; an offset without a server is not believed."""
    watched = watch(clock_source.SOURCE)
    watched.reader.answer("chronyc", CHRONY.format(offset=offset, stratum=stratum, leap=leap))
    assert present(watched.look(3)) == expected


def test_other_time_daemons_are_read_too() -> None:
    """ntpq speaks milliseconds; timedatectl only yes or no."""
    assert clock_source.parse({"tool": "ntpq", "text": "leap=00, offset=-1500.250"}) == (-1.50025, True)
    assert clock_source.parse({"tool": "ntpq", "text": "leap=11, offset=0.0"}) == (None, False)
    assert clock_source.parse({"tool": "timedatectl", "text": "NTPSynchronized=no\n"}) == (None, False)
    assert clock_source.parse({"tool": "chronyc", "text": "506 Cannot talk to daemon"}) == (None, None)


SEL = """1,01/30/2026,11:02:33,System Event #0x01,OEM System boot event,Asserted
2,01/30/2026,11:05:00,Memory #0x53,Correctable ECC,Asserted
"""


def test_new_entries_of_the_event_log_are_graded(watch: Any, moved: Any) -> None:
    """The first reading is history; what is added later is told, the grave as grave."""
    watched = watch(ipmi.SOURCE)
    watched.reader.answer("ipmitool", SEL)
    assert watched.look().edges == ()
    more = (
        "3,01/31/2026,14:00:00,Memory #0x53,Uncorrectable ECC,Asserted\n"
        "4,01/31/2026,14:00:05,Fan 3,Lower Critical going low ,Deasserted\n"
    )
    watched.reader.answer("ipmitool", SEL + more)
    assert moved(watched.look()) == [
        ("ipmi", "memory_uncorrectable", "Memory #0x53", "high"),
        ("ipmi", "entry", "Fan 3", "info"),
    ]
    assert watched.look().edges == ()


def test_cleared_event_log_counts_anew(watch: Any, moved: Any) -> None:
    """After a clear the numbers begin again; date and sensor keep entries apart."""
    watched = watch(ipmi.SOURCE)
    watched.reader.answer("ipmitool", SEL)
    watched.look()
    watched.reader.answer("ipmitool", "1,01/31/2026,15:00:00,Power Supply 1,Power Supply AC lost,Asserted\n")
    assert moved(watched.look()) == [("ipmi", "power_supply", "Power Supply 1", "low")]


def test_tool_without_a_bmc_is_absent(watch: Any) -> None:
    """ipmitool is installed everywhere; a BMC is not."""
    watched = watch(ipmi.SOURCE)
    watched.reader.answer("ipmitool", "", returncode=1)
    assert watched.look().state.startswith("absent")
