"""Errors of a path whose mount may be the user's own choice: a container's image, a FUSE file system that the job mounted."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, JobFinding

_READ_ONLY = re.compile(r"Read-only file system|\[Errno 30\]|\berrno = 30\b", re.IGNORECASE)
_FOR_OUTPUT = re.compile(
    r"(?:^|[\s'\"‘:=])/(?:[a-z]{0,10}scratch|lustre|gpfs|beegfs|ceph\w{0,4}|weka|vast|fsx|panfs|nvme|ssd)\w{0,20}/"
)
"""A path on a file system that sites mount for jobs to write to: if it is read-only, an error made it so."""
_NOT_CONNECTED = re.compile(r"Transport endpoint is not connected|\[Errno 107\]|\berrno = 107\b")
_MEANINGS = (
    (
        "io_error",
        _READ_ONLY,
        "The path is mounted read-only: a container's image, a mount that jobs may not write to, or a file system that was closed after an error.",
    ),
    (
        "filesystem_unreachable",
        _NOT_CONNECTED,
        "The process behind a mount is gone: a FUSE file system (sshfs, rclone, s3fs), which the job itself may have mounted, or the client of a file server.",
    ),
)


def named(found: JobFinding) -> JobFinding:
    """`found`, which does not exclude the user if the job may have chosen or made the mount."""
    if found.kind == "io_error" and _FOR_OUTPUT.search(found.message):
        return found
    for kind, form, meaning in _MEANINGS:
        if found.kind == kind and form.search(found.message):
            return replace(found, domains=ALL_DOMAINS, meaning=meaning)
    return found
