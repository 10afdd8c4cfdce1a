"""Errors of paths whose mount the user may have chosen or made."""

from __future__ import annotations

from probing_cluster.evidence.joblog import reader
from tests.every_case import every


def domains(*lines: str) -> tuple[str, ...]:
    return next(found.domains for found in reader.read(["start", *lines]) if found.first_cause)


@every(
    ("line", "may_be_the_users"),
    [
        ("OSError: [Errno 30] Read-only file system: '/app/cache'", True),
        ("mkdir: cannot create directory '/app/cache': Read-only file system", True),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/m/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/scratch/u/model.pt'", False),
        ("tar: /lustre/u/a: Cannot open: Read-only file system", False),
        ("touch: cannot touch '/tmp/u/a': Read-only file system", False),
        ("OSError: [Errno 30] Read-only file system: '/dev/shm/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/local/u/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/mnt/nvme0/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/tmp/rootfs-7/usr/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/usr/local/lib/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/opt/tmp/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/vast/u/imagenet/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/lustre/u/diffusers/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/nvme1/containers/a'", False),
        ("mkdir: cannot create directory '/scratch/u/images': Read-only file system", False),
        ("OSError: [Errno 30] Read-only file system: '/mnt/scratch/u/a'", False),
        ("OSError: [Errno 30] Read-only file system: '/scratch/u/my_overlay/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/data/tmp/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/mnt/local/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/local/apps/tool/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/gpfs/software/tool/a'", True),
        ("OSError: [Errno 30] Read-only file system: '/local/u/lib/a.pyc'", True),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/lustre/u/imagenet/a'", False),
        ("ls: cannot access '/gpfs/u/a': Transport endpoint is not connected", False),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/lustre/u/mnt/a'", True),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/tmp/u/a'", True),
        ("OSError: [Errno 116] Stale file handle: '/lustre/u/a'", False),
        ("OSError: [Errno 5] Input/output error: '/m/a'", False),
        ("OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/m/a'", False),
    ],
)
def test_a_mount_that_the_job_may_have_made_is_not_the_machines_alone(line: str, may_be_the_users: bool) -> None:  # fmt: skip
    """A container's image is read-only, and a FUSE file system is gone with its process; what a node or a site has for output is neither."""
    found = domains(line)
    assert "system_software" in found
    assert ("user_program" in found) is may_be_the_users
