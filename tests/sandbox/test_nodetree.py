"""The simulated node's directory tree."""

from __future__ import annotations

import itertools
import re
import stat
from pathlib import Path

from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.nodetree import build, identity, kmsg

RECORD = re.compile(r"\d+,\d+,\d+,-;[^\n]+")


def test_index_minor_and_bus_order_of_a_gpu_all_differ() -> None:
    """No reader can mistake NVML index, minor number or bus order for one another and stay unnoticed."""
    for name in ("n1", "n2", "n17"):
        gpus = identity.identity(name, 1, 8).gpus
        assert all(gpu.index != gpu.minor for gpu in gpus)
        assert [gpu.pci for gpu in gpus] != sorted(gpu.pci for gpu in gpus)
        assert sorted(gpu.minor for gpu in gpus) == list(range(8))


def test_no_two_gpus_of_64_nodes_share_an_identity() -> None:
    """UUIDs and serial numbers are unique over the largest sandbox, and the same at every build."""
    gpus = [gpu for i in range(1, 65) for gpu in identity.identity(f"n{i}", i, 8).gpus]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.serial for gpu in gpus}) == 64 * 8
    assert gpus[:8] == list(identity.identity("n1", 1, 8).gpus)


def test_the_tree_has_what_checks_read_in_the_kernels_formats(node: registry.Target) -> None:
    """InfiniBand ports, links, PCIe, EDAC, mounts and boot time look as the kernel prints them."""
    root = node.root

    def read(path: str) -> str:
        return (root / path).read_text()

    port = "sys/class/infiniband/mlx5_7/ports/1"
    assert read(f"{port}/state") == "4: ACTIVE\n"
    assert read(f"{port}/phys_state") == "5: LinkUp\n"
    assert re.fullmatch(r"\d+(\.5)? Gb/sec \(\d+X [A-Z]+\)\n", read(f"{port}/rate"))
    assert (root / "sys/class/infiniband/mlx5_7/device/current_link_width").read_text() == "16\n"
    assert (root / "sys/class/infiniband/mlx5_7/device/net/ib7").is_dir()
    gpu = node.gpu(0)
    assert read(f"sys/bus/pci/devices/{gpu.pci}/current_link_speed") == "32.0 GT/s PCIe\n"
    assert "TOTAL_ERR_FATAL 0" in read(f"sys/bus/pci/devices/{gpu.pci}/aer_dev_fatal")
    assert read("sys/devices/system/edac/mc/mc1/ue_count") == "0\n"
    assert re.search(r"^btime \d{10}$", read("proc/stat"), re.MULTILINE)
    assert any(line.split()[1:3] == ["/scratch", "lustre"] for line in read("proc/self/mounts").splitlines())
    assert re.fullmatch(r"[0-9a-f-]{36}\n", read("proc/sys/kernel/random/boot_id"))


def test_gpu_device_files_are_character_devices_named_by_minor_number(node: registry.Target) -> None:
    """slurmd exports SLURM_JOB_GPUS only for character devices."""
    files = sorted((node.root / "dev").glob("nvidia[0-9]"))
    assert [path.name for path in files] == [f"nvidia{i}" for i in range(8)]
    assert all(stat.S_ISCHR(path.stat().st_mode) for path in files)


def test_nvml_and_the_tree_tell_the_same_gpus(node: registry.Target) -> None:
    """UUID, bus address and minor number agree between NVML's state, /proc and /dev."""
    state = nvml_state.read(node.nvml)
    for gpu in node.hardware.gpus:
        text = (node.root / f"proc/driver/nvidia/gpus/{gpu.pci}/information").read_text()
        assert state[f"gpu.{gpu.index}.uuid"] == gpu.uuid
        assert gpu.uuid in text
        assert f"Device Minor: \t {state[f'gpu.{gpu.index}.minor']}" in text


def test_the_kernel_log_is_numbered_and_stamped_like_kmsg(node: registry.Target) -> None:
    """Appended records go on counting, never go back in time, and are facility 0."""
    kmsg.append(node.root, "first", "second")
    kmsg.append(node.root, "third", level=kmsg.ERROR)
    lines = (node.root / "dev/kmsg").read_text().splitlines()
    assert all(RECORD.fullmatch(line) for line in lines)
    heads = [[int(x) for x in line.split(",")[:3]] for line in lines]
    assert [head[1] for head in heads] == list(range(len(lines)))
    assert all(a[2] <= b[2] for a, b in itertools.pairwise(heads))
    assert all(head[0] < 8 for head in heads)


def test_a_reboot_begins_a_new_boot_and_a_new_log(node: registry.Target) -> None:
    """Boot id, boot time and kernel log are new; the log counts from 0 again."""
    boot_id = (node.root / "proc/sys/kernel/random/boot_id").read_text()
    stat_before = (node.root / "proc/stat").read_text()
    kmsg.append(node.root, "before")
    node.set_gpu(3, lost=1)
    build.reboot(node.home, "n1", number=1, gpus=8)
    assert (node.root / "proc/sys/kernel/random/boot_id").read_text() != boot_id
    assert (node.root / "proc/stat").read_text() != stat_before
    log = (node.root / "dev/kmsg").read_text()
    assert "before" not in log
    assert log.split(",")[1] == "0"
    assert "gpu.3.lost" not in nvml_state.read(node.nvml)


def test_building_again_leaves_a_broken_node_broken(node: registry.Target, tmp_path: Path) -> None:
    """Starting a stopped sandbox again does not repair its nodes."""
    node.set_gpu(3, lost=1)
    build.build(node.home, "n1", number=1, gpus=8)
    assert nvml_state.read(node.nvml)["gpu.3.lost"] == "1"


def test_slurms_gpu_numbers_follow_the_minor_numbers(node: registry.Target) -> None:
    """SLURM_JOB_GPUS counts device files: position k is the GPU with the k-th smallest minor number."""
    state = nvml_state.read(node.nvml)
    for position in range(8):
        assert node.gpu(nvml_state.index_of_slurm(state, position)).minor == position
