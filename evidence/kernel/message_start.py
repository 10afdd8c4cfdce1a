"""Finds where a kernel message begins: behind the names that drivers and subsystems put in front of it.

The kernel quotes users: file names, process names, mount options, USB strings. A form of the grammar therefore
counts only where the message itself starts, which is at its first character or behind a chain of the names
below. A user cannot choose any of them; everything that is not listed here is text.
"""

from __future__ import annotations

import functools
import re

PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
NAME = r"(?>\\x[0-9a-f]{2}|(?s:.)){1,15}?"
"""The name of a process, which its user chooses: at most 15 characters, of which the log shows some by their number."""
TASK = rf"(?:kworker/[\w:+.-]{{1,48}}|{NAME})"
_INTERFACE = r"[A-Za-z][\w.-]{0,31}"
_USB = r"(?:\d{1,3}-\d{1,3}(?:\.\d{1,3}){0,6}:\d{1,3}\.\d{1,3}|virtio\d{1,4}|[0-9a-f]{4,16}\.[\w-]{1,32})"
"""A network driver's device on USB, virtio or a SoC's own bus; only with its interface behind it, since USB devices say their own names."""
_DRIVER = rf"(?P<driver>[A-Za-z][\w-]{{0,30}})\s+(?:(?P<pci>{PCI})(?::(?:pcie\w{{1,8}}|\d))?(?:\s\(unnamed net_device\)[^:]{{0,40}}|\s+(?P<device>{_INTERFACE}))?|{_USB}\s+(?P<usb>{_INTERFACE})):\s*"
"""The prefix of dev_printk and netdev_printk: driver, address, and the interface if there is one."""
_ADDRESSED = re.compile(_DRIVER)
_TAG = re.compile(
    rf"\s{{0,8}}(?:{_DRIVER}"
    r"|(?P<named>infiniband|mlx5_core\.sf|nvme|block|thermal|scsi|s[dr]|md|device-mapper|ata) "
    r"(?P<unit>[a-z][\w.-]{0,30}|\d+:\d+:\d+:\d+):\s*"
    r"|\w{1,64}:\d{1,6}:\((?:pid|irq) ?\d{1,18}\):\s*"
    r"|(?:mlx[45]_?(?:core|ib|en|\d{1,4})|hfi1(?:_\d{1,4})?|bnxt_(?:re|en)\d{0,4}|irdma\d{0,4}|rdmap\w{1,16}|rocep\w{1,16}):\s?"
    r"|(?:\{\d{1,9}\})?\[Hardware Error\]:\s*"
    r"|\[drm(?: (?:ERROR|WARN\w{0,3}|INFO) )?(?::\w{1,64}(?: \[\w{1,32}\])?)?\]\s*|\*ERROR\*\s*|\[(?:gfxhub|mmhub)\d{0,3}\]\s*"
    r"|(?:mce|rcu|watchdog|NMI watchdog|INFO|AER|DPC|pciehp|RAS|ACPI|amdgpu|amdkfd|kfd|DMAR|iommu|AMD-Vi|"
    r"blk_update_request|print_req_error|end_request|device-mapper|WARNING):\s*)"
)
_MAX_NAMES = 6


@functools.lru_cache(maxsize=4)
def starts(message: str) -> tuple[int, ...]:
    """Positions at which the message may begin: 0, and behind each name of the chain in front of it."""
    at, found = 0, [0]
    while len(found) <= _MAX_NAMES and (tag := _TAG.match(message, at)):
        at = tag.end()
        found.append(at)
    return tuple(found)


def match(pattern: re.Pattern[str], message: str) -> re.Match[str] | None:
    """`pattern` at the beginning of the message, with or without the names in front of it."""
    for at in starts(message):
        if found := pattern.match(message, at):
            return found
    return None


def addressed(message: str) -> re.Match[str] | None:
    """Groups driver, pci and device (the interface), or usb (the interface there), of a message that a device's driver wrote; else None."""
    return _ADDRESSED.match(message)


_QUOTES: tuple[tuple[str, re.Pattern[str]], ...] = (
    # A user can name a program so and cause this line: it is only information.
    ("slurmd", re.compile(r"^slurmd\[\d{1,10}\]: segfault at [0-9a-f]{1,16} ip [^\n]{1,200}$")),
    (
        "",
        re.compile(
            r"\[\d{1,10}\]: segfault at [0-9a-f]+ ip |\[\d{1,10}\]:? (?:general protection(?: fault)?|trap [a-z ]{3,32}) ip:|"
            r"\[\d{1,10}\]: (?:bad frame in|unhandled signal|vsyscall|syscall \d)|"
            r"\(\d{1,10}\):? (?:possible memory allocation deadlock|drop_caches: \d|used greatest stack depth|"
            r"uses (?:deprecated|obsolete)|Using mlock ulimits for|started with executable stack)|"
            r"/\d{1,10}: potentially unexpected fatal signal|' started with executable stack|"
            r"[Uu]n(?:known|recogni[sz]ed) mount option"
        ),
    ),
    (
        "oom",
        re.compile(r" invoked oom-killer: gfp_mask=|: page allocation (?:failure|stalls)[:.] ?(?:order|for)"),
    ),
    ("block", re.compile(r"attempt to access beyond end of device(?:\n|$)")),
    ("intel_gpu", re.compile(r"\[\d{1,10}\] context reset due to GPU hang")),
    ("nouveau", re.compile(rf"^nouveau {PCI}: {NAME}\[\d{{1,10}}\]: ")),
    # In a network namespace of one's own one names the bond, the bridge and their ports.
    (
        "ethernet",
        re.compile(
            r"^(?:bonding: )?[^\s:/]{1,15}(?: \(unregistering\))?: (?:\(slave [^\s:/]{1,15}\): |Port device [^\s:/]{1,15} |port \d{1,5}\([^\s:/]{1,15}\) "
            r"|(?:link status|making|first active|releasing|backup|enslaving|setting|removing|received packet)\b.{0,80} (?:interface|slave|on|device) [^\s:/]{1,15}\b)",
            re.IGNORECASE,
        ),
    ),
)
"""Messages that begin with, or quote in their middle, a name that a user chose. Each needle is longer than a process
name (15 characters), so that nobody can hide a driver's own message by naming a process so."""
_WORDS = (
    "invoked oom-killer: gfp_mask=",
    ": page allocation ",
    "beyond end of device",
    "context reset due to GPU hang",
    "nouveau ",
    "]: segfault at ",
    "fault ip:",
    "protection ip:",
    "] trap ",
    "]: bad frame in",
    "]: unhandled signal",
    "]: vsyscall",
    "]: syscall ",
    "possible memory allocation deadlock",
    "drop_caches: ",
    "used greatest stack depth",
    "uses deprecated",
    "uses obsolete",
    "Using mlock ulimits for",
    "started with executable stack",
    "potentially unexpected fatal signal",
    "mount option",
    ": (slave ",
    ": Port device ",
    ": port ",
    "interface ",
    "received packet on ",
)
"""Every one of these messages has one of them: a look that costs little."""


def quoting(message: str) -> str | None:
    """The one family that may read a message of the kernel's that quotes a user; "" = none may, None = no such message."""
    for words in _WORDS:
        if words in message:
            return next((family for family, pattern in _QUOTES if pattern.search(message)), None)
    return None
