"""InfiniBand ports: judged against what they once were, by counters that stick at their ceiling."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.probe_agent.sources import infiniband
from probing_cluster.sandbox.nodetree import writing

PORT = "sys/class/infiniband/mlx5_3/ports/1"


def put(watched: Any, name: str, value: str, port: str = PORT) -> None:
    writing.put(watched.reader.root, f"{port}/{name}", value)


@pytest.fixture
def ib(watch: Any) -> Any:
    watched = watch(infiniband.SOURCE)
    watched.look(2)
    return watched


def down(ib: Any) -> None:
    put(ib, "state", "1: DOWN")
    put(ib, "phys_state", "2: Polling")
    put(ib, "rate", "10 Gb/sec (4X SDR)")


def test_healthy_ports_are_no_finding_and_are_named_as_healthy(ib: Any) -> None:
    """Eight ports up: nothing to say, and their names and addresses contradict older kernel lines."""
    judged = ib.look()
    assert judged.present == ()
    assert judged.edges == ()
    assert "mlx5_3" in judged.healthy
    assert any(":" in n and n.endswith(".0") for n in judged.healthy)


def test_port_that_goes_down_is_grave_after_two_readings_and_well_after_one(ib: Any, present: Any) -> None:
    """One reading may be a retraining; the rate of a port that is down is not judged."""
    down(ib)
    assert present(ib.look()) == []
    assert present(ib.look()) == [("ib_link", "down", "mlx5_3", "high")]
    put(ib, "state", "4: ACTIVE")
    put(ib, "phys_state", "5: LinkUp")
    put(ib, "rate", "400 Gb/sec (4X NDR)")
    assert present(ib.look()) == []


def test_port_that_was_never_up_is_not_missed(watch: Any, present: Any) -> None:
    """An unused port is no fault."""
    watched = watch(infiniband.SOURCE)
    down(watched)
    assert present(watched.look(5)) == []


def test_port_without_subnet_manager_is_looked_at_later(ib: Any, present: Any) -> None:
    """INIT is a state one passes through; staying there is a fault of lower severity."""
    put(ib, "state", "2: INIT")
    assert present(ib.look(2)) == []
    assert present(ib.look()) == [("ib_link", "not_active", "mlx5_3", "low")]


def test_words_behind_the_numbers_are_not_believed(ib: Any, present: Any) -> None:
    """Some drivers pair number and word wrongly; the number decides."""
    put(ib, "phys_state", "5: ACTIVE")
    put(ib, "state", "4: whatever")
    assert present(ib.look(3)) == []


def test_narrower_link_is_told_and_an_unknown_speed_is_not(ib: Any, present: Any) -> None:
    """HDR instead of NDR is a fault; the kernel's guess for a speed it does not know is not."""
    put(ib, "rate", "200 Gb/sec (4X HDR)")
    assert present(ib.look(3)) == [("ib_link", "rate", "mlx5_3", "low")]
    put(ib, "rate", "10 Gb/sec (4X SDR)")
    assert present(ib.look(3)) == []


def test_device_that_disappears_is_grave_after_three_readings(ib: Any, present: Any) -> None:
    """A card that is gone is found by its absence."""
    (ib.reader.root / "sys/class/infiniband/mlx5_3").rename(ib.reader.root / "gone")
    assert present(ib.look(2)) == []
    assert present(ib.look()) == [("ib_link", "missing", "mlx5_3", "high")]


def test_counter_step_is_an_edge_with_its_value(ib: Any, moved: Any) -> None:
    """Only what moved since the last reading counts: absolute values are normal."""
    assert ib.look().edges == ()
    put(ib, "counters/link_downed", "2")
    judged = ib.look()
    assert moved(judged) == [("ib_link", "link_downed", "mlx5_3", "low")]
    assert judged.edges[0].what.measured == 2.0
    assert judged.edges[0].what.detail["port_up"] is True
    assert ib.look().edges == ()
    put(ib, "state", "1: DOWN")
    put(ib, "counters/link_downed", "3")
    (down,) = [e for e in ib.look().edges if e.what.code == "link_downed"]
    assert down.what.detail["port_up"] is False


def test_counter_that_goes_down_was_reset_and_counts_anew(ib: Any) -> None:
    """After perfquery -R nothing has happened; the same value later is another event."""
    put(ib, "counters/link_downed", "2")
    (before,) = ib.look().edges
    put(ib, "counters/link_downed", "0")
    assert ib.look().edges == ()
    put(ib, "counters/link_downed", "2")
    (after,) = ib.look().edges
    assert before.value != after.value


@pytest.mark.parametrize(
    ("name", "ceiling"), [("link_downed", 255), ("local_link_integrity_errors", 15), ("symbol_error", 65535)]
)
def test_counter_at_its_ceiling_is_said_to_be_blind(ib: Any, present: Any, name: str, ceiling: int) -> None:
    """16-, 8- and 4-bit counters stick at their maximum; from then on they show nothing."""
    put(ib, f"counters/{name}", str(ceiling))
    assert ("ib_link", f"{name}_saturated", "mlx5_3", "info") in present(ib.look())


def test_three_downs_in_hours_are_a_flapping_link(ib: Any, present: Any) -> None:
    """Flaps shorter than the reading interval are counted by link_downed."""
    for n in range(1, 4):
        put(ib, "counters/link_downed", str(n))
        judged = ib.look(every_s=3600.0)
    assert ("ib_link", "flapping", "mlx5_3", "low") in present(judged)
    assert ("ib_link", "flapping", "mlx5_3", "low") not in present(ib.look(every_s=13 * 3600.0))


def test_flaps_are_still_seen_when_the_counter_is_full(ib: Any, present: Any) -> None:
    """With link_downed stuck at 255 what was seen itself takes its place."""
    put(ib, "counters/link_downed", "255")
    ib.look(every_s=13 * 3600.0)
    ib.flaps = []
    for _ in range(3):
        put(ib, "state", "1: DOWN")
        ib.look()
        put(ib, "state", "4: ACTIVE")
        judged = ib.look()
    assert ("ib_link", "flapping", "mlx5_3", "low") in present(judged)


def test_unreadable_counter_is_unknown_and_left_alone(ib: Any) -> None:
    """EINVAL is not zero; reading it again would only fill the kernel log, so it is not read again."""
    path = f"/{PORT}/counters/symbol_error"
    ib.reader.failing[path] = "EINVAL"
    assert ib.look().edges == ()
    ib.reader.reads.clear()
    ib.look()
    assert path not in ib.reader.reads


def test_text_instead_of_a_number_is_unknown(ib: Any) -> None:
    """Old kernels answer `N/A (no PMA)`."""
    put(ib, "counters/link_downed", "N/A (no PMA)")
    assert ib.look().edges == ()
    put(ib, "counters/link_downed", "0")
    assert ib.look().edges == ()


def test_unreadable_state_neither_confirms_nor_clears(ib: Any, present: Any) -> None:
    """Not seeing is not health."""
    down(ib)
    ib.look(2)
    ib.reader.failing[f"/{PORT}/state"] = "EIO"
    judged = ib.look()
    assert present(judged) == []
    assert "mlx5_3" in judged.unknown


def test_after_a_boot_ports_get_time_to_come_up(ib: Any, present: Any) -> None:
    """The first minutes of a boot are no fault; later ones are."""
    down(ib)
    ib.reboot(uptime_s=60.0)
    assert present(ib.look(5)) == []
    ib.reboot(uptime_s=700.0)
    assert present(ib.look(2)) == [("ib_link", "down", "mlx5_3", "high")]


def test_excluded_devices_are_not_even_read(watch: Any) -> None:
    """Reading some functions' counters makes the driver complain: the site can name them."""
    watched = watch(infiniband.SOURCE)
    watched.look(exclude_hcas=("mlx5_[37]",))
    assert not any("mlx5_3/ports" in path for path in watched.reader.reads)
    assert any("mlx5_2/ports" in path for path in watched.reader.reads)


def test_virtual_functions_are_left_out(ib: Any) -> None:
    """A VF's port follows its parent's."""
    device = ib.reader.root / "sys/class/infiniband/mlx5_3/device"
    (device.resolve() / "physfn").symlink_to("../0000:00:00.0")
    assert "mlx5_3" not in ib.look().healthy


def name(ib: Any, old: str, new: str) -> None:
    there = ib.reader.root / "sys/class/infiniband"
    (there / old).rename(there / new)


def address(ib: Any, hca: str, to: str) -> None:
    """The adapter is at another place on the PCI bus."""
    link = ib.reader.root / f"sys/class/infiniband/{hca}/device"
    place = link.resolve().with_name(to)
    link.resolve().rename(place)
    link.unlink()
    link.symlink_to(place)


def test_another_name_of_a_port_is_no_other_port(ib: Any, present: Any, moved: Any) -> None:
    """An image that names adapters by their place, or a kernel that counts anew: missed is only what is gone from its place."""
    ib.reboot(uptime_s=5000.0)
    name(ib, "mlx5_3", "ibp93s0")
    name(ib, "mlx5_7", "mlx5_3")
    assert present(ib.look(5)) == []
    assert moved(ib.look()) == []
    ib.reboot("third-boot", uptime_s=5000.0)
    name(ib, "ibp93s0", "../../../gone")
    assert present(ib.look(3)) == [("ib_link", "missing", "ibp93s0", "high")]
    put(ib, "state", "1: DOWN")
    assert ("ib_link", "down", "mlx5_3", "high") in present(ib.look(2))


def test_what_earlier_versions_remembered_by_name(ib: Any, present: Any) -> None:
    """Their memory is read: a port renamed with the update of the agent is not missed, one that is gone is."""
    entries = ib.memory["expected"].values()
    ib.memory = {
        **ib.memory,
        "expected": {e["device"]: {k: v for k, v in e.items() if k != "device"} for e in entries},
    }
    name(ib, "mlx5_3", "ibp93s0")
    name(ib, "mlx5_4", "../../../gone")
    assert present(ib.look(5)) == [("ib_link", "missing", "mlx5_4", "high")]


def test_adapters_with_other_addresses_after_a_boot(ib: Any, present: Any, moved: Any) -> None:
    """A card or firmware that renumbers the bus moves them, by name or, where they are named by place, by number; one less is a fault."""
    ib.reboot(uptime_s=5000.0)
    address(ib, "mlx5_3", "0000:f3:00.0")
    judged = ib.look()
    assert moved(judged) == [("ib_link", "moved", "mlx5_3", "info")]
    assert (present(judged), present(ib.look(5))) == ([], [])
    ib.reboot("third-boot", uptime_s=5000.0)
    for n in (5, 6):
        name(ib, f"mlx5_{n}", f"ibp{n}s0")
        address(ib, f"ibp{n}s0", f"0000:f{n}:00.0")
    assert present(ib.look(5)) == []
    ib.reboot("fourth-boot", uptime_s=5000.0)
    address(ib, "ibp5s0", "0000:e5:00.0")
    name(ib, "ibp5s0", "ibp7s1")
    name(ib, "ibp6s0", "../../../gone")
    assert {c for _, c, _, _ in present(ib.look(5))} == {"missing"}


def test_a_new_port_stands_for_no_missed_one(ib: Any, present: Any) -> None:
    """Once a port is missed, another that is cabled does not end that."""
    ib.reboot(uptime_s=5000.0)
    (ib.reader.root / "sys/class/infiniband/mlx5_3").rename(ib.reader.root / "away")
    assert present(ib.look(3)) == [("ib_link", "missing", "mlx5_3", "high")]
    (ib.reader.root / "away").rename(ib.reader.root / "sys/class/infiniband/mlx5_9")
    address(ib, "mlx5_9", "0000:f3:00.0")
    assert present(ib.look(3)) == [("ib_link", "missing", "mlx5_3", "high")]


def test_scalable_functions_and_bonded_ports_are_not_missed(ib: Any, present: Any) -> None:
    """A scalable function comes and goes; the second port of a card goes into the bond that the first one shows."""
    link = ib.reader.root / "sys/class/infiniband/mlx5_3/device"
    place = link.resolve()
    link.unlink()
    link.symlink_to(place.with_name("mlx5_core.sf.4"))
    assert "mlx5_3" not in ib.look().healthy
    address(ib, "mlx5_5", "0000:f5:00.0")
    address(ib, "mlx5_6", "0000:f5:00.1")
    ib.look(relearn=True)
    name(ib, "mlx5_5", "mlx5_bond_0")
    name(ib, "mlx5_6", "../../../gone")
    name(ib, "mlx5_3", "../../../gone_too")
    assert present(ib.look(5)) == []


def test_node_without_hca_is_absent(watch: Any, bare: Any, clock: Any) -> None:
    """Nothing there is not the same as nothing wrong."""
    watched = watch(infiniband.SOURCE)
    watched.reader.root = bare.root
    assert watched.look().state == "absent"


def test_relearning_accepts_what_is_there_now(ib: Any, present: Any) -> None:
    """When an operator says so, a port taken out for good is no longer missed."""
    down(ib)
    assert present(ib.look(2)) != []
    assert present(ib.look(relearn=True)) == []
    assert present(ib.look(3)) == []
