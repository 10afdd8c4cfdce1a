"""Hundreds of jobs that die of bugs of their own, on a real cluster whose nodes meanwhile show faults that are not theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bugs
import pytest

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("PROBING_BUGS", "240"))
AT_ONCE = 40


def test_no_bug_of_a_programs_own_is_restarted(gangs: Any, tmp_path: Path) -> None:
    """Each is judged; none is requeued, none is even decided to be; a GPU that nobody holds is lost beside them."""
    up = gangs
    nodes = up.sandbox.layout.node_names
    for node in nodes[:2]:
        up.sandbox.fault(node, "xid", code=31, gpu=7)
    up.sandbox.fault(nodes[3], "xid", code=79, gpu=7)  # held by none: every job here takes no GPU
    ended = "SELECT count(*) AS n FROM probing.job_attempt WHERE job_id = ANY(%s) AND end_at IS NOT NULL"
    made = list(bugs.programs(COUNT))
    for first in range(0, COUNT, AT_ONCE):
        submitted = []
        for name, text in made[first : first + AT_ONCE]:
            program = tmp_path / f"{name}-{first}.py"
            program.write_text(text + "\n")
            submitted.append(
                up.sandbox.submit(
                    f"exec {sys.executable} {program}",
                    job_name=name,
                    nodes=1,
                    cpus_per_task=1,
                    mem="200",
                    exclude=nodes[3],
                )
            )
        up.until("their ends", lambda ids=submitted: up.rows(ended, ids)[0]["n"] == len(ids), 240)
    judged = "SELECT count(DISTINCT job_id) AS n FROM probing.verdict"
    up.until("their verdicts", lambda: up.rows(judged)[0]["n"] >= COUNT, 240)
    restarted = up.rows(
        "SELECT job_id, action, state, why_state FROM probing.drain WHERE action IN ('restart', 'requeue')"
    )
    # On a busy machine Slurm may not hear a node in time, and starts its jobs anew by itself.
    twice = up.rows(
        "SELECT job_id FROM probing.job_attempt GROUP BY job_id HAVING count(*) > 1 AND NOT bool_or(state = 'NODE_FAIL')"
    )
    causes = up.rows("SELECT cause, count(*) AS n FROM probing.verdict GROUP BY cause ORDER BY 2 DESC")
    print(
        f"{COUNT} bugs: {len(twice)} restarted; {', '.join(str(c['n']) + ' ' + c['cause'] for c in causes)}"
    )
    assert (restarted, twice) == ([], [])
