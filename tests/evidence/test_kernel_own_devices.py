"""Devices and interfaces that any user can have: what the kernel says of them is no word on the node's hardware."""

from __future__ import annotations

import itertools

import pytest

from probing_cluster.core import records
from probing_cluster.evidence.kernel import reader
from tests.every_case import every

DEVICES = ("loop3", "loop0p1", "nbd0", "nbd12p2", "zram0", "ram1", "ublkb0")
LINES = (
    "EXT4-fs ({}): Remounting filesystem read-only",
    "EXT4-fs (device {}): Remounting filesystem read-only",
    "EXT4-fs error (device {}): ext4_lookup:1855: inode #2: comm bash: iget: checksum invalid",
    "EXT4-fs ({}): I/O error while writing superblock",
    "EXT4-fs ({}): previous I/O error to superblock detected",
    "EXT4-fs ({}): Delayed block allocation failed for inode 12 at logical offset 0 with max blocks 8 with error 5",
    "EXT4-fs error (device {}): ext4_journal_check_start:83: comm python: Detected aborted journal",
    "Aborting journal on device {}.",
    "Aborting journal on device {}-8.",
    "JBD2: Error -5 detected when updating journal superblock for {}-8.",
    "XFS ({}): User initiated shutdown received.",
    "XFS ({}): Corruption of in-memory data (0x8) detected at xfs_defer_finish.  Shutting down filesystem.",
    "XFS ({}): log I/O error -5",
    "BTRFS info (device {}: state E): forced readonly",
    "BTRFS error (device {}): bdev /dev/{} errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
    "F2FS-fs ({}): Remounting filesystem read-only",
    "FAT-fs ({}): Filesystem has been set read-only",
    "Buffer I/O error on dev {}, logical block 3, lost async page write",
    "Buffer I/O error on device {}, logical block 3",
    "I/O error, dev {}, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
    "blk_update_request: I/O error, dev {}, sector 8",
    "critical medium error, dev {}, sector 8 op 0x0:(READ) flags 0x0",
    "critical target error, dev {}, sector 8",
    "device offline error, dev {}, sector 8",
    "python: attempt to access beyond end of device\n{}: rw=0, sector=8, nr_sectors = 8 limit=4",
    "md/raid1:md0: Disk failure on {}, disabling device.",
    "md: {} failed - array is dead",
)


@every("device", DEVICES)
def test_a_device_without_a_drive_never_speaks_of_hardware(device: str) -> None:
    """An image file that a container mounts is its user's: the line is information about the program."""
    right = ("block_io", "image_file", records.Severity.INFO, ("user_program",))
    wrong = []
    for line in LINES:
        found = reader.KernelReader().read_message(line.replace("{}", device))
        if found is None or (found.kind, found.code, found.severity, found.domains) != right:
            wrong.append((line, found))
    assert wrong == []


@every("line", LINES)
def test_the_same_line_about_a_drive_counts(line: str) -> None:
    """Only the device makes the difference."""
    found = reader.KernelReader().read_message(line.replace("{}", "sda3"))
    assert found is not None
    assert found.severity is not records.Severity.INFO
    assert found.code != "image_file"


@pytest.mark.parametrize(
    ("operation", "severity"),
    [
        ("0x3:(DISCARD)", records.Severity.INFO),
        ("0x9:(WRITE_ZEROES)", records.Severity.INFO),
        ("0x0:(READ)", records.Severity.LOW),
        ("0x1:(WRITE)", records.Severity.LOW),
    ],
)
def test_a_refused_hint_loses_no_data(operation: str, severity: records.Severity) -> None:
    """Well drives that cannot discard refuse it at each fstrim; a refused read or write is a fault."""
    line = f"critical target error, dev sdb, sector 2048 op {operation} flags 0x800 phys_seg 1 prio class 2"
    found = reader.KernelReader().read_message(line)
    assert found is not None
    assert (found.code, found.severity) == ("target_error", severity)


def test_a_process_named_like_a_loop_device_hides_no_drive() -> None:
    """A user chooses the name of a process, not of the device."""
    line = "EXT4-fs error (device sda3): ext4_journal_check_start:83: comm loop3: Detected aborted journal"
    found = reader.KernelReader().read_message(line)
    assert found is not None
    assert (found.code, found.severity) == ("fs_shutdown", records.Severity.HIGH)


NAMES = (
    "bond0",
    "hfi1_0",
    "mlx5_0",
    "mpt3sas",
    "megaraid_sas",
    "smartpqi",
    "nvme",
    "pciehp",
    "amdgpu",
    "habanalabs",
    "i915",
    "xe",
    "ib0",
)
PORTS = ("d0", "fault_state", "veth1", "eth0", "mlx5_0", "Slot1")
SAYINGS = (
    "{}: now running without any active interface!",
    "{}: (slave {port}): link status definitely down, disabling slave",
    "{}: (slave {port}): Enslaving as a backup interface with an up link",
    "{}: (slave {port}): Removing an active aggregator",
    "{}: link status definitely down for interface {port}, disabling it",
    "{}: making interface {port} the new active one",
    "{}: enslaving {port} as a backup interface with a down link",
    "bonding: {}: enslaving {port} as a backup interface with a down link",
    "{}: Port device {port} added",
    "{}: Port device {port} link down",
    "{}: Port device {port} removed",
    "{}: port 1({port}) entered disabled state",
    "{}: received packet on {port} with own address as source address (addr:0a:00:00:00:00:01, vlan:0)",
    "{}: entered promiscuous mode",
    "{} (unregistering): left allmulticast mode",
    "{}: Link is Down",
)


@every("message", SAYINGS)
def test_no_interface_of_a_users_own_namespace_is_grave(message: str) -> None:
    """Whoever has a network namespace names bonds, teams, bridges and their ports, also after a driver."""
    wrong = []
    for name, port in itertools.product(NAMES, PORTS):
        line = message.replace("{}", name).replace("{port}", port)
        found = reader.KernelReader().read_message(line)
        if found is not None and (found.kind != "eth_link" or found.severity is records.Severity.HIGH):
            wrong.append((line, found))
    assert wrong == []
