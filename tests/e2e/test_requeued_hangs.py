"""A gang of which one rank was stopped, on real Slurm: requeued where its owner asked for it, and training again."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.sandbox import gangs as cases

pytestmark = [
    pytest.mark.soak,
    pytest.mark.alone,
    pytest.mark.cluster,
    pytest.mark.torch,
    pytest.mark.timeout(900),
]

BACK_S = 120.0
"""From the moment at which the first rank counts as stalled to the next start."""
OF_A_JOB = {"GLOO_TIMEOUT_S": 600, "ONCE": 1}
"""As NCCL's own default: whoever waits for less ends the job before it is requeued."""


def stalled_to_start_s(up: Any, job: int) -> float:
    (row,) = up.rows(
        "SELECT extract(epoch FROM max(a.start_at) - min(e.at)) AS s FROM probing.job_attempt a, probing.health_event e "
        "WHERE a.job_id = %s AND e.job_id = a.job_id AND e.kind = 'rank_stall'",
        job,
    )
    return float(row["s"])


@pytest.mark.parametrize("wished_by", ["owner 1", "owner 2", "owner 3", "owner 4", "site"])
def test_a_stopped_gang_is_requeued_where_it_was_asked_for(gangs: Any, wished_by: str) -> None:
    """SIGSTOP of one rank: named, all ranks looked at once more, stacks kept, requeued, training within two minutes of the stall."""
    up = gangs
    wish = {"probing_on_hang": "requeue"}
    if wished_by == "site":
        wish = {}
        config = up.sandbox.layout.probing_toml
        config.write_text(config.read_text().replace("[policy]\n", '[policy]\non_hang = "requeue"\n'))
        up.sandbox.fault("-", "service-crash")
        up.sandbox.fault("-", "service-start")
    directory = cases.new_directory(up.sandbox, "rank_stopped")
    job = cases.submit(
        up.sandbox, "rank_stopped", directory=directory, variables=OF_A_JOB, no_requeue=False, **wish
    )

    def requeued() -> list[dict[str, Any]]:
        return list(up.rows("SELECT * FROM probing.drain WHERE job_id = %s AND action = 'requeue'", job))

    (row,) = up.until("its decision", requeued, 240)
    up.until("its outcome", lambda: requeued()[0]["state"] == "done", 60)
    up.reported(job, lambda r: len(r["attempts"]) == 2 and r["attempts"][1]["start_at"], 60)
    took_s = stalled_to_start_s(up, job)
    print(f"{wished_by}: {took_s:g} s")
    up.until(
        "steps of its next start",
        lambda: (directory / "steps.0").stat().st_mtime > row["at"].timestamp() + 5,
        120,
    )
    (verdict,) = up.rows("SELECT * FROM probing.gang_verdict WHERE job_id = %s AND ended_at IS NOT NULL", job)
    assert (verdict["kind"], verdict["nodes"]) == ("rank_stopped", [cases.third_node(up.sandbox)])
    kept = up.rows(
        "SELECT count(DISTINCT node) AS n FROM probing.health_event WHERE job_id = %s AND kind = 'rank_snapshot' AND at >= %s",
        job,
        verdict["made_at"],
    )
    assert kept[0]["n"] == 4  # what all ranks did just before they were ended
    assert up.rows("SELECT 1 FROM probing.drain WHERE job_id = %s AND action = 'exclude'", job) == []
    up.sandbox.run(["scancel", str(job)])
    assert took_s <= BACK_S
