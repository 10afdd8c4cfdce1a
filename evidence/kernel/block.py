"""Local storage: disks, NVMe, RAID, and the local file systems on them."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_DISK = "Check the drive's SMART data and replace it if it fails."
_GONE = "Drain the node; check cabling, backplane and the drive."
_FS = "Drain the node; check the drive below it, then repair or remake the file system."
_HW, _BOTH = "hardware", "hardware system_software"
FACTS = {
    ("block_io", "io_error"): fact(LOW, _HW, "Reading or writing a drive failed.", _DISK),
    ("block_io", "buffer_io"): fact(LOW, _HW, "Data could not be read from or written to a drive.", _DISK),
    ("block_io", "medium_error"): fact(LOW, _HW, "A drive could not read or write a sector.", _DISK),
    ("block_io", "target_error"): fact(LOW, _HW, "A drive refused a command.", _DISK),
    ("block_io", "superblock"): fact(
        HIGH, _BOTH, "A file system could not write its most important block.", _FS
    ),
    ("block_io", "remount_ro"): fact(HIGH, _BOTH, "A file system went read-only after errors.", _FS),
    ("block_io", "fs_error"): fact(LOW, _BOTH, "A local file system found itself damaged.", _FS),
    ("block_io", "fs_recorded"): fact(
        INFO,
        _BOTH,
        "A file system recorded an error once, maybe years ago, and was not checked since.",
        "Nothing for the job; check the file system when the node is free.",
    ),
    ("block_io", "fs_shutdown"): fact(HIGH, _BOTH, "A local file system shut itself down after errors.", _FS),
    ("block_io", "data_loss"): fact(
        LOW, _BOTH, "A file system could not write data it had promised to keep.", _FS
    ),
    ("block_io", "beyond_end"): fact(
        LOW,
        _BOTH,
        "Something read past the end of a drive: it shrank, vanished or its file system is damaged.",
        _GONE,
    ),
    ("block_io", "nvme_timeout"): fact(LOW, _HW, "An NVMe drive did not answer in time.", _DISK),
    ("block_io", "nvme_reset"): fact(
        LOW, _HW, "An NVMe drive's controller went down or had to be reset.", _DISK
    ),
    ("block_io", "nvme_disabled"): fact(HIGH, _HW, "An NVMe drive was given up by the kernel.", _GONE),
    ("block_io", "no_path"): fact(
        HIGH, _HW, "No path leads to a drive any more: everything on it fails.", _GONE
    ),
    ("block_io", "path_failed"): fact(LOW, _HW, "One of several paths to a drive failed.", _GONE),
    ("block_io", "offline"): fact(HIGH, _HW, "The kernel took a drive offline.", _GONE),
    ("block_io", "ata_error"): fact(LOW, _HW, "A SATA drive or its link reported an error.", _DISK),
    ("block_io", "md_fail"): fact(HIGH, _HW, "A drive of a software RAID failed.", _GONE),
    ("block_io", "md_degraded"): fact(
        LOW, _HW, "A software RAID runs with fewer drives than it should.", _GONE
    ),
    ("block_io", "raid_event"): fact(
        LOW,
        _HW,
        "A RAID controller reports a critical event of its arrays, drives or battery.",
        "Ask the controller's own tool which drive or array it is.",
    ),
    ("block_io", "raid_fault"): fact(HIGH, _HW, "A RAID or SAS controller stopped.", _GONE),
    ("block_io", "image_file"): fact(
        INFO,
        "user_program",
        "A device without a drive of its own (an image file, memory, a network block device) or the file system on it reported an error.",
        "Look at the image file (a container's overlay, say) and at the file system that holds it.",
    ),
}
_DEV = r"(?P<device>[A-Za-z][\w!.:/-]{0,63})"
_FS = r"(?:(?:EXT[234]|F2FS|FAT|exFAT)-fs|XFS|BTRFS|NILFS|NTFS|JFS|REISERFS|UBIFS)"
_PRODUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "superblock",
        re.compile(
            rf"{_FS} \({_DEV}\): (?:I/O error while (?:writing|reading) superblock|previous I/O error to superblock detected)"
        ),
    ),
    (
        "remount_ro",
        re.compile(
            rf"(?:{_FS}(?: error| warning| info| critical)?:?(?: error)? \((?:device )?{_DEV}(?: state \w+)?\):? )?(?:[Rr]emounting filesystem read-only|forced readonly|[Ff]ilesystem has been set read-only)"
        ),
    ),
    (
        "buffer_io",
        re.compile(
            rf"Buffer I/O error on dev(?:ice)? {_DEV}, logical block \d+|lost page write due to I/O error on (?P<disk>[\w!.-]{{1,64}})"
        ),
    ),
    (
        "medium_error",
        re.compile(rf"{_DEV}: [\w ]+\(0x[0-9a-f]+\) @ LBA \d+, .*\(sct 0x2 / sc 0x[0-9a-f]+\)"),
    ),
    (
        "io_error",
        re.compile(rf"{_DEV}: [\w/ ]+\(0x[0-9a-f]+\) @ LBA \d+, .*\(sct 0x[0-9a-f]+ / sc 0x[0-9a-f]+\)"),
    ),
    ("no_path", re.compile(rf"(?:block )?{_DEV}: no (?:available|usable) path - (?:failing|requeuing) I/O")),
    (
        "beyond_end",
        re.compile(
            rf"(?:(?P<name>{message_start.TASK}): )?attempt to access beyond end of device(?:\s*\n|\s*$)"
        ),
    ),
    (
        "md_fail",
        re.compile(
            r"(?:md/)?(?P<array>raid[^:\s]{0,16}:?[^:\s]{0,24}): Disk failure on (?P<device>[\w!.-]{1,64}?)(?: detected)?,"
        ),
    ),
    (
        "md_fail",
        re.compile(
            r"md/raid[^ ]{0,40}: (?:not enough operational|Cannot continue operation|Too many read errors on (?P<disk>[\w!.-]{1,64}),)|md/raid[^ ]{0,40}: too few disks|md: pers->run\(\) failed|md: (?P<device>\S+) failed - array is dead"
        ),
    ),
    (
        "md_degraded",
        re.compile(
            r"md: kicking non-fresh (?P<device>\S+) from array|md/raid[^ ]{0,40}: (?:raid level \d+ )?active with (?P<left>\d{1,9}) out of (?!(?P=left) )\d+ (?:devices|mirrors)|md/raid[^ ]{0,40}: Operation continuing on \d+ devices"
        ),
    ),
    ("md_degraded", re.compile(r"md: super_written gets error=")),
    (
        "medium_error",
        re.compile(
            r"md/raid[^ ]{0,40}: read error (?:not correctable|corrected) \(.* on (?P<device>[\w!.-]{1,64})\)"
        ),
    ),
    (
        "nvme_disabled",
        re.compile(
            rf"nvme (?:{_DEV}|{grammar.FULL_PCI}): (?:Disabling device after reset failure|Removing after probe failure|Device not ready; aborting|Device shutdown incomplete; abort shutdown|Device failed to resume|failed to set queue count|Identify Controller failed|.*dead controller)"
        ),
    ),
    ("nvme_timeout", re.compile(rf"nvme (?:{_DEV}|{grammar.FULL_PCI}): I/O (?:tag )?\d+ .*\btimeout\b")),
    (
        "nvme_reset",
        re.compile(
            rf"nvme (?:{_DEV}|{grammar.FULL_PCI}): (?:controller is down; will reset|resetting controller|Abort status: 0x(?!0\b)|Failed status: (?:0x)?[0-9a-f]{{1,8}}, reset controller|frozen state error detected|starting error recovery|Failed reconnect attempt)"
        ),
    ),
    (
        "medium_error",
        re.compile(
            rf"critical medium error, dev {_DEV},|\[(?P<disk>sd\w+)\].*(?:Sense Key ?: (?:Medium|Hardware) Error|Unrecovered read error)"
        ),
    ),
    (
        "target_error",
        re.compile(
            rf"(?:critical (?:target|space allocation|nexus)|reservation conflict) error, dev {_DEV},"
        ),
    ),
    (
        "io_error",
        re.compile(
            rf"(?:I/O|timeout|recoverable transport|protection) error, dev {_DEV},? sector \d+"
            r"|journal commit I/O error|JBD2: (?:Detected IO errors while flushing file data on|(?:Error -5 detected|I/O error(?: detected)?) when updating journal superblock for) (?P<journal>\S+?)\.?(?:\s|$)"
        ),
    ),
    (
        "offline",
        re.compile(
            rf"\[(?P<disk>sd\w+)\].*(?:rejecting I/O to (?:offline|dead) device|killing request)|(?:scsi: )?Device offlined - not ready after error recovery|rejecting I/O to offline device|device offline error, dev {_DEV},"
        ),
    ),
    (
        "io_error",
        re.compile(
            r"s[dr] \d+:\d+:\d+:\d+: (?:\[(?P<disk>s[dr]\w+)\])?.*(?:(?:FAILED|(?<=\])) {1,2}Result: hostbyte=|failed: Result: hostbyte=DID_(?!OK\b)|Sense Key ?: (?:Not Ready|Aborted Command)|timing out command, waited|attempting (?:task abort|(?:device|target|host) reset))"
        ),
    ),
    (
        "ata_error",
        re.compile(
            r"(?P<device>ata\d+(?:\.\d+)?): (?:exception Emask|irq_stat 0x|failed command:|(?:error|status|SError): \{|.*frozen\b|disabled$|COMRESET failed|hard resetting link|limiting (?:SATA link )?speed|qc timeout|failed to (?:IDENTIFY|read SCR)|revalidation failed|NCQ disabled due to excessive errors)"
        ),
    ),
    (
        "nvme_disabled",
        re.compile(
            rf"nvme(?: {grammar.FULL_PCI}: probe with driver nvme|: probe of {grammar.FULL_PCI}) failed with"
        ),
    ),
    (
        "path_failed",
        re.compile(
            r"connection\d+:\d+: detected conn error \(\d+\)|session\d+: session recovery timed out after \d+ secs"
        ),
    ),
    ("path_failed", re.compile(r"multipath: (?:\S+: )?Failing path (?P<device>[\w:.-]+?)\.?(?:\s|$)")),
    (
        "raid_fault",
        re.compile(
            r"(?P<device>megaraid_sas|mpt[23]sas\w*|smartpqi|hpsa|aacraid)\b.*(?:FAULT state|fault_?state|controller (?:is )?(?:offline|lockup)|Controller lockup|adapter dead|kill adapter|controller dead|host is non-operational|Init cmd return status FAILED|Failed from megasas_init_fw\b)",
            re.IGNORECASE,
        ),
    ),
    (
        "raid_event",
        re.compile(
            rf"(?P<device>megaraid_sas) {grammar.FULL_PCI}: \d{{1,12}} \([^()]{{1,60}}/(?:CRIT|FATAL|DEAD)\) - "
        ),
    ),
    (
        "io_error",
        re.compile(
            r"aacraid: Host (?:adapter (?:abort|reset)|bus reset|device reset) request|(?:scsi )?\d+:\d+:\d+:\d+: resetting (?:logical|physical)\b|resetting scsi \d+:\d+:\d+:\d+\b"
        ),
    ),
    (
        "fs_shutdown",
        re.compile(
            rf"XFS \({_DEV}\): .*(?:[Ss]hutting down (?:the )?filesystem|[Ff]ilesystem has been shut down|xfs_do_force_shutdown|Block device removal|User initiated shutdown)"
        ),
    ),
    (
        "fs_shutdown",
        re.compile(
            rf"EXT[234]-fs(?: error)? \((?:device )?{_DEV}\):? (?:in )?(?:error: )?(?:\w{{1,48}}(?::\d{{1,6}})?: )?(?:inode #\d+: )?(?:block \d+: )?(?:comm .{{1,15}}?: )?(?:shut down|[Jj]ournal has aborted|Detected aborted journal|[Ff]ilesystem has been shut down)|Aborting journal on device (?P<journal>\S+)"
        ),
    ),
    (
        "data_loss",
        re.compile(
            rf"EXT4-fs \({_DEV}\): (?:This should not happen!! Data will be lost|Delayed block allocation failed|failed to convert unwritten extents .*potential data loss!)"
        ),
    ),
    (
        "io_error",
        re.compile(
            rf"XFS \({_DEV}\): .*(?:(?:[Mm]etadata|[Ll]og) I/O [Ee]rror|writeback error|xfs_log_force: error -\d{{1,3}} returned)|BTRFS:?(?: error| warning| critical)? \(device {_DEV.replace('device', 'volume')}(?:: state \w+)?\).*(?:bdev .* errs: |IO failure)|EXT[234]-fs warning \(device (?P<disk>[\w.-]+)\): (?:\w{{1,48}}:\d{{1,6}}: )?I/O error"
        ),
    ),
    (
        "fs_recorded",
        re.compile(
            rf"EXT[234]-fs \({_DEV}\): (?:warning: mounting fs with errors|error count since last fsck: [1-9]|(?:initial|last) error at time \d)"
        ),
    ),
    (
        "fs_error",
        re.compile(
            rf"EXT[234]-fs \({_DEV}\): (?:(?:error: )?(?:unable to read superblock|can't read group descriptor|failed to initialize mballoc)|(?:ext4_check_descriptors: .{{0,80}})?group descriptors corrupted|get root inode failed)"
            rf"|XFS \({_DEV.replace('device', 'volume')}\): (?:log mount(?:/recovery)? failed|log mount finish failed|Failed to recover|[Ff]ailed to read root inode|Unmount and run xfs_repair)"
        ),
    ),
    (
        "fs_error",
        re.compile(
            rf"EXT[234]-fs error \(device {_DEV}\)|XFS: Internal error XFS_\w|BTRFS: Transaction aborted \(error -\d|XFS \({_DEV.replace('device', 'xfs')}\): .*(?:[Cc]orruption|CRC error|Internal error)|BTRFS:? (?:(?:error|critical) \(device (?P<volume>[\w-]+)(?:: state \w+)?\)|warning \(device (?P<disk>[\w-]+)(?:: state \w+)?\): .*(?:csum|checksum|transid|corrupt|bad tree|[iI]/?[oO] error|lost (?:page|super block) write|is missing))"
        ),
    ),
    (
        "io_error",
        re.compile(r"(?:WARNING: )?Pool '(?P<device>[\w.-]+)' has encountered an uncorrectable I/O failure"),
    ),
)
_RECOVERED = re.compile(r"completion polled|read-write|read error corrected")
_NO_DISK = re.compile(r"\bdev(?:ice)? (?:fd|sr)\d+,|\[sr\d+\]|I/O error on (?:fd|sr)\d")
"""Missing floppies and missing discs are no evidence about storage."""
_IMAGE_FILE = re.compile(r"(?:loop|nbd|zram|ram|ublkb|nullb)\d+(?:p\d+)?(?:-\d+)?", re.ASCII)
"""Block devices without a drive, and their journals (`loop3-8`). A container's overlay is one: its user can damage it at will,
and it says nothing about the node."""
_HINT = re.compile(r"critical target error, dev .{1,64} op 0x[39]:\((?:DISCARD|WRITE_ZEROES)\)")
"""A well drive that has no such command refuses it at each fstrim; no data is lost."""
_BEYOND_END = re.compile(r"beyond end of device\n(?P<device>[\w!.-]{1,32}): rw=")

_ADDRESS = re.compile(
    rf"(?:\w{{1,12}}: probe of|[a-z][\w-]{{1,20}}) (?P<pci>{grammar.FULL_PCI})(?=: | failed)"
)


def _device(found: re.Match[str]) -> str | None:
    groups = found.groupdict()
    for key in ("device", "disk", "journal", "volume", "xfs"):
        if groups.get(key):
            return groups[key].rstrip(":.,")
    return None


def _is_image_file(device: str | None) -> bool:
    """Whether the device has no drive."""
    return device is not None and bool(_IMAGE_FILE.fullmatch(device.removeprefix("/dev/")))


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line about local storage; the first production that fits speaks."""
    if _NO_DISK.search(message):
        return None
    for code, pattern in _PRODUCTIONS:
        if found := message_start.match(pattern, message):
            device = _device(found)
            if code == "beyond_end" and (beyond := _BEYOND_END.search(message)):
                device = beyond["device"]
            if _is_image_file(device):
                return make(FACTS, "block_io", "image_file", message, device=device)
            harmless = _RECOVERED.search(message) or _HINT.search(message)
            severity = INFO if harmless else FACTS["block_io", code].severity
            where = _ADDRESS.match(message)
            return make(
                FACTS,
                "block_io",
                code,
                message,
                device=device,
                pci_bus_id=grammar.pci(where["pci"]) if where else None,
                severity=severity,
            )
    return None


FAMILY = grammar.LineFamily(
    name="block",
    triggers=(
        "I/O error",
        "IO error",
        "nvme",
        "ailing I/O",
        "requeuing I/O",
        "md/raid",
        "md: ",
        "beyond end of device",
        "medium error",
        "target error",
        "nexus error",
        " error, dev ",
        " @ LBA ",
        "Result: hostbyte",
        "Disk failure on",
        "killing request",
        "timing out command",
        "attempting task abort",
        "attempting device reset",
        "attempting target reset",
        "attempting host reset",
        ": status: {",
        ": SError: {",
        ": disabled",
        "COMRESET",
        "hard resetting link",
        "limiting speed",
        "limiting SATA link speed",
        "qc timeout",
        "failed to IDENTIFY",
        "failed to read SCR",
        "revalidation failed",
        "aacraid: Host",
        ": resetting logical",
        ": resetting physical",
        "resetting scsi",
        "NCQ disabled",
        "space allocation error",
        "read-only",
        "readonly",
        "-fs (",
        "-fs error",
        "XFS (",
        "XFS: ",
        "BTRFS",
        "ejecting I/O",
        "Sense",
        "Emask",
        "irq_stat",
        "failed command:",
        "frozen",
        ": error: {",
        "multipath",
        "detected conn error",
        "session recovery timed out",
        "Aborting journal",
        "raid_sas",
        "mpt",
        "non-operational",
        "Controller lockup",
        "smartpqi",
        "hpsa",
        "aacraid",
        "offlined",
        "JBD",
        "Pool '",
    ),
    read=read,
    facts=FACTS,
)
