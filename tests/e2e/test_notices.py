"""Telling people, on a real Slurm cluster: the owner's mail with the verdict, the operators' message, the line in accounting."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import deaths
import notified
import pytest

from probing_cluster.core import hostlist
from probing_cluster.sandbox import services
from probing_cluster.sandbox.machine import processes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site() -> Iterator[notified.Site]:
    with notified.site() as made:
        yield made


def test_the_owner_gets_the_verdict_in_slurms_mail(site: Any) -> None:
    """FAIL comes with the cause; BEGIN goes to the site's own program, unchanged; END alone is mailed by us (22.05)."""
    calls = site.sandbox.submit(
        "echo KeyError: x; exit 3", mail_type="ALL", mail_user="alice@site", gres="gpu:1"
    )
    only_end = site.sandbox.submit("exit 3", mail_type="END", mail_user="alice@site", gres="gpu:1")
    for job in (calls, only_end):
        site.until(f"mail about {job}", lambda job=job: site.mails_about(job), 60)
    (subject,) = site.mails_about(calls)
    assert "Failed" in subject
    assert "died" in subject
    (subject,) = site.mails_about(only_end)
    assert "Ended" in subject
    begun = site.until(
        "mail of the begin", lambda: [a for a in site.site_mails() if f"Job_id={calls} " in a[1]]
    )
    assert [(a[0], a[2]) for a in begun] == [("-s", "alice@site")]
    assert "Began" in begun[0][1]
    line = site.until("line in accounting", lambda: written(site, calls), 60)
    assert line.startswith("probing #1: ")


def written(site: Any, job: int) -> str:
    """The job's SystemComment."""
    return str(
        site.sandbox.run(["sacct", "-X", "-n", "-P", "-j", str(job), "--format=SystemComment"]).stdout
    ).strip()


@pytest.mark.soak
def test_with_the_service_away_the_sites_program_is_called_unchanged(site: Any) -> None:
    """Slurm's own arguments, and nothing is sent twice once the service is back."""
    lay = site.sandbox.layout
    processes.end(lay.directory, [services.SERVICE])
    try:
        job = site.sandbox.submit("exit 4", mail_type="FAIL", mail_user="bob@site", gres="gpu:1")
        call = site.until("call", lambda: [a for a in site.site_mails() if f"Job_id={job} " in a[1]])
        assert call[0][0] == "-s"
        assert call[0][1].startswith(f"Slurm Job_id={job} Name=sbatch Failed, Run time")
        assert call[0][2:] == ["bob@site"]
    finally:
        cert = next(lay.directory.parent.glob("cert.pem"))
        services.start_service(lay, {**site.sandbox._daemon_env, "REQUESTS_CA_BUNDLE": str(cert)})
    assert site.mails_about(job) == []


@pytest.mark.soak
def test_a_requeue_is_told_to_its_owner_and_the_drain_once(site: Any) -> None:
    """The job's requeue is told to its owner with the cause; operators have one message of the drain, and its updates."""
    job = site.sandbox.submit("sleep 300", mail_type="REQUEUE", mail_user="alice@site", gres="gpu:2", nodes=1)
    (node,) = site.running(job)
    site.sandbox.fault(node, "xid", code=79, gpu=0)
    site.until("message", lambda: any(f"Drained: {node}" in t for t in site.sink.titles), 30)
    site.until(f"mail about {job}", lambda: site.mails_about(job), 60)
    assert "Requeued" in site.mails_about(job)[0]
    assert (
        len([t for t in site.sink.titles if t.endswith(f"Drained: {node} (xid)") and "Update" not in t]) == 1
    )
    site.sandbox.run(["scancel", str(job)])
    deaths.mend(site, node)


IN_TIME_S = 10.0
FAULTS: dict[str, dict[str, Any]] = {
    "ecc-uncorrectable": {"gpu": 1},
    "ib-down": {"hca": "mlx5_0"},
    "mount-gone": {"path": "/scratch"},
    "nvlink-down": {"gpu": 0, "link": 2},
}


@pytest.mark.soak
@pytest.mark.alone
def test_a_drain_is_told_within_ten_seconds_of_its_fault(site: Any) -> None:
    """From the fault to the message, at a real HTTPS and a real SMTP server: faults of four kinds, on one node and the other."""
    names, took = site.sandbox.layout.node_names, []
    for n, (fault, options) in enumerate(FAULTS.items()):
        node, before = names[n % 2], (len(site.sink.posts), len(site.box.mails))
        began = time.time()
        site.sandbox.fault(node, fault, **options)
        row = site.until("drain", lambda node=node, began=began: drained_since(site, node, began))
        posted = site.until("post", lambda n=before[0], node=node: post_about(site, n, node))
        mailed = site.until("mail", lambda n=before[1], node=node: mail_about(site, n, node))
        took.append((fault, row["at"].timestamp() - began, posted - began, mailed - began))
        print("{}: drained after {:.1f} s, posted after {:.1f} s, mailed after {:.1f} s".format(*took[-1]))
        # As an operator does it: a GPU's Xid stands until somebody says that the node is repaired.
        site.sandbox.fault(node, "heal")
        site.sandbox.run(["probing-ctl", "set-healthy", node, "--note", "reseated"], timeout_s=200)
        deaths.mend(site, node)
    assert max(max(posted, mailed) for _, _, posted, mailed in took) <= IN_TIME_S


def drained_since(site: Any, node: str, began: float) -> dict[str, Any] | None:
    """The drain of this fault."""
    rows = site.rows(
        "SELECT at FROM probing.drain WHERE node = %s AND action = 'drain' AND state = 'done' AND at > to_timestamp(%s)",
        node,
        began,
    )
    return rows[0] if rows else None


def post_about(site: Any, n: int, node: str) -> float | None:
    """When the first of the later posts came that tells of this node's drain."""
    later = zip(site.sink.titles[n:], site.sink.at_s[n:], strict=False)
    return next((at for title, at in later if is_news(title, node)), None)


def mail_about(site: Any, n: int, node: str) -> float | None:
    """The same of mails to operators."""
    for i in range(n, len(site.box.mails)):
        subject = str(site.box.message(i)["Subject"])
        if "ops@site" in site.box.mails[i][0] and is_news(subject, node):
            return float(site.box.at_s[i])
    return None


def is_news(title: str, node: str) -> bool:
    """Whether it tells of a drain of this node, perhaps among others, that stands."""
    found = re.search(r"\bDrained: (\S+)", title)
    return found is not None and "Over: " not in title and node in hostlist.expand(found[1])
