"""Which GPU is meant by an address, a UUID or one of Slurm's numbers."""

from __future__ import annotations

import pytest

from probing_cluster.probe_agent.faults import gpus, gres_conf


def gpu(index: int, minor: int, bus: int) -> gpus.Gpu:
    return gpus.Gpu(uuid=f"GPU-{index}", index=index, minor=minor, pci_bus_id=f"0000:{bus:02x}:00.0")


PLAIN = gpus.Inventory(gpus=tuple(gpu(i, i, 0x10 + i) for i in range(4)))
SHUFFLED = gpus.Inventory(gpus=(gpu(0, 2, 0x10), gpu(1, 0, 0x20), gpu(2, 3, 0x30), gpu(3, 1, 0x40)))


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("0000:5E:00", "0000:5e:00"),
        ("00000000:5e:00.0", "0000:5e:00"),
        ("5e:00.0", "0000:5e:00"),
        ("10000:01:00.0", "10000:01:00"),
        ("gpu3", None),
        ("", None),
        (None, None),
    ],
)
def test_addresses_are_compared_by_domain_bus_and_device(written: str | None, key: str | None) -> None:
    """However many digits the domain has, with or without a function."""
    assert gpus.pci_key(written) == key


def test_numbers_that_can_only_mean_one_gpu_are_understood() -> None:
    """Where order and minor number agree, every numbering says the same."""
    assert PLAIN.of_job("1,3", None) == ("GPU-1", "GPU-3")


def test_no_numbers_say_nothing() -> None:
    """A site without GresTypes=gpu sets none, and its jobs compute on GPUs all the same."""
    assert PLAIN.of_job("", None) is None


def test_numbers_that_could_mean_two_gpus_are_not_guessed() -> None:
    """Ordinal, minor number and PCI order differ: then nothing is claimed."""
    assert SHUFFLED.of_job("1", None) is None


def test_gres_conf_settles_what_the_numbers_mean() -> None:
    """File= lists minors in order; AutoDetect=nvml orders by PCI address."""
    files = gres_conf.GpuNumbering(minors=(0, 1, 2, 3))
    assert SHUFFLED.of_job("0,1", files) == ("GPU-1", "GPU-3")
    assert SHUFFLED.of_job("0,1", gres_conf.GpuNumbering(minors=(2, 3))) == ("GPU-0", "GPU-2")
    assert SHUFFLED.of_job("3", gres_conf.GpuNumbering(by_pci=True)) == ("GPU-3",)


def test_unknown_number_makes_the_whole_answer_unknown() -> None:
    """Half an answer would convict the wrong GPU."""
    assert PLAIN.of_job("1,9", None) is None
    assert PLAIN.of_job("1,x", None) is None
    assert gpus.Inventory().of_job("0", None) is None


def test_uuids_pass_through_when_the_node_has_them() -> None:
    """Slurm may be configured to give UUIDs."""
    assert PLAIN.of_job("GPU-2", None) == ("GPU-2",)


def test_names_stay_when_a_gpu_is_gone_and_the_driver_counts_anew() -> None:
    """gpu2 and gpu3 of before the fault must not become gpu1 and gpu2 after it."""
    left = [
        gpu(0, 0, 0x10),
        gpus.Gpu(uuid="GPU-2", index=1, minor=2),
        gpus.Gpu(uuid="GPU-3", index=2, minor=3),
    ]
    after = PLAIN.merged(left, complete=False)
    assert [(g.uuid, g.device) for g in after.gpus] == [(f"GPU-{i}", f"gpu{i}") for i in range(4)]
    swapped = PLAIN.merged([*left, gpus.Gpu(uuid="GPU-9", index=3, minor=1)], complete=True)
    assert {g.uuid: g.device for g in swapped.gpus} == {
        "GPU-0": "gpu0",
        "GPU-2": "gpu1",
        "GPU-3": "gpu2",
        "GPU-9": "gpu3",
    }


def test_inventory_survives_being_stored() -> None:
    """A GPU that is gone at the next start still has a name."""
    assert gpus.Inventory.from_state(SHUFFLED.to_state()) == SHUFFLED
    assert gpus.Inventory.from_state(None) == gpus.Inventory()


def test_the_inventory_of_a_later_release_is_known() -> None:
    """A node that goes back to this release keeps the names of its GPUs."""
    later = [{**row, "of_a_later_release": [1]} for row in SHUFFLED.to_state()]
    assert gpus.Inventory.from_state(later) == SHUFFLED
