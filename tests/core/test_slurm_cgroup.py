"""Which job a cgroup's path names, and which paths are not Slurm's."""

from __future__ import annotations

import pytest

from probing_cluster.core.catalogue import slurm_cgroup

SCOPE = "/system.slice/slurmstepd.scope"
SLUID = "s5K1KKYAYG5D00"


@pytest.mark.parametrize(
    ("path", "job_id", "sluid"),
    [
        (f"{SCOPE}/job_77/step_0/user/task_0", 77, None),
        (f"{SCOPE}/job_77", 77, None),
        ("/system.slice/n1_slurmstepd.scope/job_77/step_extern", 77, None),
        ("/slurm_n1/uid_1000/job_77/step_batch", 77, None),
        ("/slurm/uid_1000/job_77", 77, None),
        (f"{SCOPE}/{SLUID}/step_0/user/task_0", None, SLUID),
        (f"{SCOPE}/{SLUID}/step_0/slurmstepd.scope/job_78", None, SLUID),
    ],
)
def test_slurms_own_cgroups_name_their_job(path: str, job_id: int | None, sluid: str | None) -> None:
    """By its number or, from 26.05 on, by its SLUID; the outermost counts."""
    assert slurm_cgroup.of_path(path) == slurm_cgroup.CgroupJob(job_id=job_id, sluid=sluid)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        f"{SCOPE}/system",
        f"{SCOPE}/job_77x/step_0",
        f"{SCOPE}/job_٧٧",
        f"{SCOPE}/job_12345678901",
        f"{SCOPE}/job_4294967296",
        f"{SCOPE}/{SLUID}0",
        "/slurm/job_77",
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_77",
        "/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_77",
        "here/system.slice/slurmstepd.scope/job_77",
    ],
)
def test_a_cgroup_that_slurm_did_not_make_names_no_job(path: str) -> None:
    """A user may make cgroups below their own and call them as Slurm does."""
    assert slurm_cgroup.of_path(path) is None
