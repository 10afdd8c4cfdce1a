"""Errors of a path whose mount may be the user's own choice: a container's image, a FUSE file system that the job mounted."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, JobFinding

_READ_ONLY = re.compile(r"Read-only file system|\[Errno 30\]|\berrno = 30\b", re.IGNORECASE)
_ROOT = r"(?:^|[\s'\"‘`:=(\[])/"
_AT = rf"{_ROOT}(?:mnt/|media/|net/|cluster/|data/)?"
_ENDS = r"(?![\w-])(?!\S{0,300}(?<![A-Za-z0-9])(?:rootfs|squashfs|sqfs|overlay(?:fs)?|fuse|mnt|mount(?:s|point)?|sif|sqsh)(?![A-Za-z0-9]))"
"""What jobs mount themselves lies in their own folders, under such a name."""
_OF_SERVERS = r"(?:lustre|gpfs|beegfs|ceph|weka|vast|fsx|panfs)\w{0,20}"
_PARALLEL = re.compile(_AT + _OF_SERVERS + _ENDS)
"""A path on a parallel file system, which no job mounts."""
_SOFTWARE = r"(?!/(?:apps?|software|sw|opt|easybuild|spack|modules?)(?![\w-]))"
"""A tree of the site's programs is often mounted read-only."""
_FOR_OUTPUT = re.compile(
    rf"(?:{_AT}(?:[a-z]{{0,10}}scratch|{_OF_SERVERS}|nvme|ssd|raid)\w{{0,20}}"
    rf"|{_ROOT}(?:(?:node-?)?local(?:_?(?:disk|data|ssd|nvme)\w{{0,4}})?(?!\S{{0,300}}\.pyc)|(?:var/)?tmp|dev/shm)){_SOFTWARE}{_ENDS}"
)
"""A path on a file system that sites mount, or nodes have, for jobs to write to: if it is read-only, an error made it so. A job may mount its own folder at /mnt/local or /data/tmp."""
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
    of_site = _FOR_OUTPUT if found.kind == "io_error" else _PARALLEL
    if of_site.search(found.message):
        return found
    for kind, form, meaning in _MEANINGS:
        if found.kind == kind and form.search(found.message):
            return replace(found, domains=ALL_DOMAINS, meaning=meaning)
    return found
