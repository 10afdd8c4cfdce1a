"""How long people wait to be told, on real Slurm with a real SMTP and a real HTTPS server: owners of what ended, operators of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import deaths
import notified
import pytest

from probing_cluster.sandbox import gangs as cases

pytestmark = [
    pytest.mark.soak,
    pytest.mark.alone,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
]

IN_TIME_S = 10.0
BUDGET = 2


@pytest.fixture(scope="module", params=["sandbox", "installed"])
def site(request: Any) -> Iterator[notified.Site]:
    """Four nodes of which two may be drained; by the sandbox's intervals, and by those of an installation."""
    with notified.site(nodes=4, budget_nodes=BUDGET, installed=request.param == "installed") as made:
        yield made


class Times:
    """What was told, and how long after it was so."""

    def __init__(self, site: notified.Site) -> None:
        self.site, self.rows = site, list[tuple[str, float]]()

    def add(self, what: str, since: float, ask: Callable[[], float | None]) -> None:
        at = self.site.until(what, ask, 60)
        self.rows.append((what, at - since))
        print(f"{what}: {self.rows[-1][1]:.1f} s")

    def operators(self, what: str, since: float, title: str, line: str = "", after: float = 0.0) -> None:
        """The post and the mail of one notice."""
        self.add(f"{what}, posted", since, lambda: self.site.posted_at(title, line, after))
        self.add(f"{what}, mailed", since, lambda: self.site.operators_mailed_at(title, line, after))

    @property
    def late(self) -> list[tuple[str, float]]:
        return [(what, took_s) for what, took_s in self.rows if took_s > IN_TIME_S]


def test_owners_have_the_verdict_within_ten_seconds_of_the_end(site: Any) -> None:
    """FAIL from Slurm, END from us (22.05): the moment at which the script ends, to the mail with the verdict at the server.

    Of an end that Slurm mails nothing about we learn from accounting's next poll: that one's bound is the poll's interval.
    """
    times, jobs = Times(site), {}
    kinds = ("FAIL", "END") if site.intervals == "sandbox" else ("FAIL",)
    for n in range(6):
        kind = kinds[n % len(kinds)]
        script = f"sleep {1 + 1.7 * n}; echo 'KeyError: labels'; date +%s.%N > ended.$SLURM_JOB_ID; exit 1"
        jobs[site.sandbox.submit(script, mail_type=kind, mail_user="alice@site", gres="gpu:1")] = kind
    for job, kind in jobs.items():
        ended = site.sandbox.layout.jobs / f"ended.{job}"
        end = site.until(f"end of {job}", lambda f=ended: f.exists() and f.read_text().strip(), 60)
        times.add(f"end to the verdict's mail ({kind})", float(end), lambda j=job: site.verdict_mailed_at(j))
    assert times.late == []


CHAIN = """
SELECT 'log asked for' AS step, made_at AS at FROM probing.node_request WHERE verb = 'keep_log' AND job_id = %(job)s
UNION ALL SELECT 'log kept', acknowledged_at FROM probing.node_request WHERE verb = 'keep_log' AND job_id = %(job)s
UNION ALL SELECT 'verdict', made_at FROM probing.verdict WHERE job_id = %(job)s AND attempt = 1
UNION ALL SELECT 'decision', at FROM probing.drain WHERE action = 'restart' AND job_id = %(job)s
ORDER BY at
"""


def steps(site: Any, job: int, end_at: datetime) -> str:
    """What a restart's mail waited for, each with its seconds since the end."""
    found = site.rows(CHAIN.replace("%(job)s", str(job)))
    took = [f"{row['step']} {(row['at'] - end_at).total_seconds():.1f}" for row in found if row["at"]]
    return f"since the end, s: {', '.join(took)}"


@pytest.mark.torch
def test_operators_are_told_within_ten_seconds(site: Any) -> None:
    """A hang from its finding; a restart, the budget's end and the drain it denied from their decisions; drains from their faults."""
    times = Times(site)
    gang = cases.submit(site.sandbox, "rank_stopped", variables={"GLOO_TIMEOUT_S": 600})
    finding = "SELECT made_at FROM probing.gang_verdict WHERE job_id = %s"
    (found,) = site.until("finding", lambda: site.rows(finding, gang), 120)
    times.operators("hang from its finding", found["made_at"].timestamp(), "Job hangs", f"job {gang} ")
    site.sandbox.run(["scancel", str(gang)])
    over = time.time()
    times.operators("hang's end from scancel", over, "Over: Job hangs", after=over)

    job, gate = deaths.train(
        site, "told", nodes=1, gres="gpu:2", mem="500", mail_type="FAIL,REQUEUE", mail_user="alice@site"
    )
    (node,) = site.running(job)
    began = time.time()
    site.sandbox.fault(node, "xid", code=79, gpu=1)
    deaths.end(gate)
    times.operators("drain from its fault (xid)", began, "Drained", f"{node} drained")
    decided = "SELECT at FROM probing.drain WHERE job_id = %s AND action = 'restart' AND state = 'done'"
    (row,) = site.until("restart", lambda: site.rows(decided, job), 60)
    words = f"job {job} requeued after its end"
    times.operators("restart from its decision", row["at"].timestamp(), "Job requeued", words)
    (first,) = site.rows(
        "SELECT end_at FROM probing.job_attempt WHERE job_id = %s ORDER BY submit_at LIMIT 1", job
    )
    for event, since in (
        ("Failed, from the end", first["end_at"]),
        ("Requeued, from its decision", row["at"]),
    ):
        ask = lambda e=event: site.verdict_mailed_at(job, e.partition(",")[0])  # noqa: E731
        times.add(f"the owner's mail ({event})", since.timestamp(), ask)
    print(steps(site, job, first["end_at"]))

    others = [n for n in site.sandbox.layout.node_names if n != node]
    began = time.time()
    site.sandbox.fault(others[0], "ecc-uncorrectable", gpu=1)
    times.operators("drain from its fault (memory)", began, "Drained", f"{others[0]} drained")
    began = time.time()
    site.sandbox.fault(others[1], "ecc-uncorrectable", gpu=1)
    times.operators("denied drain from its fault", began, "Not drained", others[1])
    times.operators("budget's end from its fault", began, "Drain budget used up", "budget:")
    assert times.late == []
