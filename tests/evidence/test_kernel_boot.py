"""Boots in kernel logs: after an orderly shutdown they are called so."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.kernel import boot

BOOT = (
    "2026-11-24T11:03:00+00:00 e03 kernel: Linux version 5.14.0-362.el9.x86_64 (mockbuild@x86) (gcc) #1 SMP"
)


def codes(*lines: str) -> list[str | None]:
    """The codes of the boots in a log."""
    log = boot.BootReader()
    return [found[1].code for line in lines if (found := log.read_line(line)) is not None]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-24T10:59:00+00:00 e03 kernel: systemd-shutdown[1]: Rebooting.",
        "2026-11-24T10:59:00+00:00 e03 systemd-shutdown[1]: Syncing filesystems and block devices.",
        "2026-11-24T10:59:00+00:00 e03 systemd[1]: Shutting down.",
        "2026-11-24T10:59:00+00:00 e03 systemd[1]: Reached target Reboot.",
        "2026-11-24T10:59:00+00:00 e03 systemd[1]: Reached target reboot.target - System Reboot.",
        "2026-11-24T10:59:00+00:00 e03 systemd[1]: Reached target Power-Off.",
        "2026-11-24T10:59:00+00:00 e03 kernel: reboot: Restarting system",
        "2026-11-24T10:59:00+00:00 e03 kernel: kexec_core: Starting new kernel",
    ],
)
def test_a_boot_after_an_orderly_shutdown_is_called_so(line):
    """Once: the next boot without one is a boot like any other."""
    assert codes(line, BOOT, BOOT.replace("11:03", "11:30")) == ["after_shutdown", "kernel"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-24T08:59:00+00:00 e03 kernel: reboot: Restarting system",
        "2026-11-24T10:59:00+00:00 e03 systemd[2231]: Reached target Shutdown.",
        "2026-11-24T10:59:00+00:00 e03 python[55]: systemd-shutdown[1]: Rebooting.",
        "2026-11-24T10:59:00+00:00 e03 kernel: Kernel panic - not syncing: Fatal exception",
        "2026-11-24T10:59:00+00:00 e03 systemd[1]: Stopped target Reboot.",
    ],
)
def test_a_boot_after_anything_else_is_not(line):
    """A shutdown of hours before, a user who logs out, a program that writes the words, a panic."""
    assert codes(line, BOOT) == ["kernel"]


def test_how_long_it_was_down_is_kept():
    """So that who judges knows whether it lived when a job ended."""
    log = boot.BootReader()
    log.read_line("2026-11-24T10:59:00+00:00 e03 systemd[1]: Shutting down.")
    log.read_line("2026-11-24T10:59:30+00:00 e03 kernel: reboot: Restarting system")
    found = log.read_line(BOOT)
    assert found is not None
    assert found[1].detail == {"shut_down_s": 240.0}
