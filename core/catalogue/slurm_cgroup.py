"""The job that a cgroup's path names, where Slurm made that cgroup.

`job_4242` on cgroup v1 and on v2 up to 25.11; an SLUID such as `s5K1KKYAYG5D00` on v2 from 26.05 (cgroup.conf's
CgroupJobIdPaths=yes brings the number back). Checked in src/plugins/cgroup/{v1,v2} of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_JOB = re.compile(
    # v2: the scope of slurmd, or of one of several on this host; v1: a hierarchy per controller.
    r"(?:/(?!user[@-])[^/\n]+)*?(?:/(?:[^/\n]+_)?slurmstepd\.scope|/slurm(?:_[^/\n]+)?/uid_[0-9]+)"
    r"/(?:job_(?P<job>[0-9]{1,10})|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13}))(?:/|\Z)"
)
"""Only below what Slurm makes: users who may make cgroups (under user@1000.service) give them any name."""

_MOST = 2**32 - 1
"""Slurm's job ids have 32 bits."""


@dataclass(frozen=True, kw_only=True)
class CgroupJob:
    """A job as a cgroup names it: one of the two is None."""

    job_id: int | None
    sluid: str | None


def of_path(path: str) -> CgroupJob | None:
    """The job of a cgroup path such as `/slurm/uid_1000/job_4242/step_0`; None for a cgroup that is no job's."""
    found = _JOB.match(path)
    job_id = int(found["job"]) if found is not None and found["job"] else None
    if found is None or (job_id is not None and job_id > _MOST):
        return None
    return CgroupJob(job_id=job_id, sluid=found["sluid"])
