"""The task that tells operators, on a real database, to real SMTP and HTTPS servers."""

from __future__ import annotations

import dataclasses
import importlib
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fakes
import mail_server
import pytest
import web_sink

from probing_cluster.control_plane import context
from probing_cluster.control_plane.notices import kinds, messages
from probing_cluster.control_plane.notices import picture as notice_picture
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service.tasks.nodes import silence
from probing_cluster.control_plane.service.tasks.people import notices
from probing_cluster.core import errors, records, settings
from probing_cluster.db.store import actions as store_actions
from probing_cluster.slurm_plugins import commands

MINUTE = timedelta(minutes=1)
IN_A_CHILD = {
    "test_a_drain_is_one_message_updated_and_over",
    "test_a_server_that_refuses_gets_it_later_and_once",
}
"""These deliver as the service does, by a process for each message; the others here: loading the library takes most of a second."""


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[web_sink.Sink]:
    cert = mail_server.certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert[0]))
    sink = web_sink.Sink()
    with web_sink.running(sink, cert):
        yield sink


@pytest.fixture(autouse=True)
def _posted_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.function.__name__ in IN_A_CHILD:
        return

    def run(module: str, config: settings.Settings, *given: Any, timeout_s: float) -> Any:
        assert timeout_s > config.notices.deadline_s
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own, as in the child
            return importlib.import_module(module).in_child(config, *given)

    monkeypatch.setattr(messages.child_process, "run", run)


@pytest.fixture
def noticing(service: context.Context, sink: web_sink.Sink, tmp_path: Path) -> context.Context:
    """The service with one route to the sink."""
    urls = tmp_path / "urls"
    urls.write_text(f"# the sink\njsons://localhost:{sink.port}/hook\n")
    urls.chmod(0o600)
    return routed(service, tmp_path, settings.NoticeRoute(name="ops", url_file=str(urls)))


def routed(
    service: context.Context, tmp_path: Path, *routes: settings.NoticeRoute, **more: object
) -> context.Context:
    mail = dataclasses.replace(service.config.mail, spool_directory=str(tmp_path / "mail"), retry_s=1.0)
    found = settings.NoticesSettings(routes=routes, update_s=0.0, **more)
    service.config = dataclasses.replace(service.config, mail=mail, notices=found)
    return service


def drain(
    service: context.Context, node: str, reason: str = "probing: xid 79 gpu3", **changes: object
) -> records.Drain:
    made = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node=node, at=service.clock.now(), action="drain", reason=reason,
        owner="probing", state="done", severity=records.Severity.HIGH,
    )  # fmt: skip
    made = dataclasses.replace(made, **changes)
    service.store.save_drain(made)
    return made


def later(service: context.Context, by: timedelta) -> None:
    service.clock.at += by  # type: ignore[attr-defined]


def test_a_look_waits_for_no_delivery(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Messages go beside the pass: a server that does not answer must not keep the next look."""
    notices.run(noticing)
    begun: list[Callable[[], object]] = []
    noticing.aside = begun.append
    for node in ("n2", "n3"):
        drain(noticing, node, f"probing: fault-of-{node}")
        assert notices.run(noticing) == "1 put on its way"
    assert sink.posts == []
    begun[0]()
    assert len(sink.posts) == 2


def test_a_drain_is_one_message_updated_and_over(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Two nodes of one fault are one message, with an update; resumed, it is over; a second pass says nothing again."""
    notices.run(noticing)
    first = drain(noticing, "n1")
    assert notices.run(noticing) == "1 put on its way"
    assert notices.run(noticing) == ""
    later(noticing, MINUTE)
    second = drain(noticing, "n2")
    notices.run(noticing)
    later(noticing, MINUTE)
    for one in (first, second):
        noticing.store.update_drain(one.drain_id, state="resumed", ended_at=noticing.clock.now())
    notices.run(noticing)
    assert sink.titles == [
        "[c] Drained: n1 (xid)",
        "[c] Update: Drained: n[1-2] (xid)",
        "[c] Over: Drained: n[1-2] (xid)",
    ]
    assert [p["type"] for p in sink.posts] == ["failure", "failure", "success"]
    refs = [p["message"].rpartition("ref ")[2] for p in sink.posts]
    assert len({r.partition(".")[0] for r in refs}) == 1
    assert [r.partition(".")[2] for r in refs] == ["1", "2", "3"]
    assert "n1 drained: xid 79 gpu3" in sink.posts[0]["message"]


def test_a_partial_resume_is_an_update(noticing: context.Context, sink: web_sink.Sink) -> None:
    """The title names what still stands."""
    first, _ = drain(noticing, "n1"), drain(noticing, "n2")
    notices.run(noticing)
    noticing.store.update_drain(first.drain_id, state="resumed", ended_at=noticing.clock.now())
    notices.run(noticing)
    assert sink.titles == ["[c] Drained: n[1-2] (xid)", "[c] Update: Drained: n2 (xid)"]
    assert (
        "n1 drained: xid 79 gpu3 (over)" in sink.posts[1]["message"] or "(over)" in sink.posts[1]["message"]
    )


def test_a_drain_that_a_person_took_over_is_not_told_as_over(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """The node is out still; one of the same message that came back is marked so."""
    first, second = drain(noticing, "n1"), drain(noticing, "n2")
    notices.run(noticing)
    node = view.Node(
        name="n1", states=frozenset({"IDLE", "DRAIN"}), reason="new board (alice)", reason_by="alice"
    )
    taken = {"state": "resumed", "why_state": view.drain_over(node), "ended_at": noticing.clock.now()}
    noticing.store.update_drain(first.drain_id, **taken)
    notices.run(noticing)
    noticing.store.update_drain(second.drain_id, state="resumed", ended_at=noticing.clock.now())
    notices.run(noticing)
    assert sink.titles[1:] == ["[c] Update: Drained: n2 (xid)", "[c] Over: Drained: n[1-2] (xid)"]
    last = sink.posts[-1]["message"]
    assert (
        "n1 drained: xid 79 gpu3; still drained, taken over by another: new board (alice) (taken over)"
        in last
    )
    assert "n2 drained: xid 79 gpu3 (over)" in last
    third = drain(noticing, "n3", "probing: ecc gpu1")
    notices.run(noticing)
    noticing.store.update_drain(third.drain_id, **taken)
    notices.run(noticing)
    assert sink.titles[-1] == "[c] Taken over: Drained: n3 (ecc)"


def test_foreign_words_come_alive_nowhere(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Mentions, links and markup of users reach a chat as dead letters."""
    evil = "probing: xid <!channel> @here [x](https://evil) `code` \x1b[31m\r\nBcc: a@b www.evil.com"
    drain(noticing, "n1", evil, owner="@all")
    notices.run(noticing)
    (post,) = sink.posts
    text = post["title"] + post["message"]
    for alive in ("@here", "@all", "<!", "](", "://", "`", "\x1b", "www.e", "\nBcc"):
        assert alive not in text, alive


def test_severity_kind_and_partition_choose_the_route(
    service: context.Context, sink: web_sink.Sink, tmp_path: Path
) -> None:
    """Each route gets what it asked for; a node of no partition concerns only routes of all."""
    urls = tmp_path / "urls"
    urls.write_text(f"jsons://localhost:{sink.port}/hook\n")
    urls.chmod(0o600)
    base = settings.NoticeRoute(name="high", url_file=str(urls), severity="high")
    kind = dataclasses.replace(base, name="kind", severity="info", kinds=("restart",))
    part = dataclasses.replace(base, name="part", severity="info", kinds=("drain",), partitions=("gp*",))
    other = dataclasses.replace(part, name="other", partitions=("cpu",))
    noticing = routed(service, tmp_path, base, kind, part, other)
    drain(noticing, "n1", severity=records.Severity.LOW)
    drain(noticing, "n1", action="requeue", job_id=7, severity=records.Severity.HIGH)
    drain(noticing, "n2", "probing: ecc gpu0")
    notices.run(noticing)
    keys = [x.key.rpartition(".")[2] for x in queue.of(noticing.config).messages()]
    assert sorted(keys) == ["high", "kind", "part", "part"]
    assert len(sink.posts) == 4


def test_quiet_hours_and_the_rate_hold_and_nothing_is_lost(
    service: context.Context, sink: web_sink.Sink, tmp_path: Path
) -> None:
    """What is held says why, and goes out once, as it is then; the gravest goes out at once."""
    service.clock.at = fakes.NOW.replace(hour=23)  # type: ignore[attr-defined]
    urls = tmp_path / "urls"
    urls.write_text(f"jsons://localhost:{sink.port}/hook\n")
    urls.chmod(0o600)
    route = settings.NoticeRoute(name="ops", url_file=str(urls), quiet_hours="22:00-07:00", per_hour=3)
    noticing = routed(service, tmp_path, route)
    low = [drain(noticing, "n1", severity=records.Severity.LOW)]
    notices.run(noticing)
    assert sink.posts == []
    (group,) = notices.book(noticing).groups()
    assert group.held == {"ops": "quiet hours until 07:00"}
    low.append(drain(noticing, "n2", severity=records.Severity.LOW))
    drain(noticing, "n3", "probing: mount /data")
    notices.run(noticing)
    assert sink.titles == ["[c] Drained: n3 (mount)"]
    noticing.clock.at = fakes.NOW.replace(hour=7) + timedelta(days=1)  # type: ignore[attr-defined]
    notices.run(noticing)
    assert sink.titles[1:] == ["[c] Drained: n[1-2] (xid)"]
    for n in range(3):
        drain(noticing, "n4", f"probing: kind{n} x", severity=records.Severity.LOW)
        notices.run(noticing)
    held = [g.held for g in notices.book(noticing).groups() if g.held]
    assert held == [{"ops": "3 messages within the hour already"}]
    later(noticing, timedelta(hours=1))
    notices.run(noticing)
    assert len(sink.posts) == 5
    assert [g.held for g in notices.book(noticing).groups() if g.held] == []


def test_low_messages_hold_back_none_of_severity_high(noticing: context.Context, sink: web_sink.Sink) -> None:
    """What users' jobs cause may use up the rate of the low ones only; the high ones have as much to themselves."""
    route = dataclasses.replace(noticing.config.notices.routes[0], per_hour=1)
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    for node, severity in (("n1", "low"), ("n2", "low"), ("n3", "high"), ("n4", "high")):
        drain(noticing, node, f"probing: kind{node} x", severity=records.Severity(severity))
        notices.run(noticing)
    assert sink.titles == ["[c] Drained: n1 (kindn1)", "[c] Drained: n3 (kindn3)"]
    held = {f.nodes: g.held for g in notices.book(noticing).groups() for f in g.facts.values() if g.held}
    why = {"ops": "1 messages within the hour already"}
    assert held == {("n2",): why, ("n4",): why}


def test_a_server_that_refuses_gets_it_later_and_once(noticing: context.Context, sink: web_sink.Sink) -> None:
    """A 500 keeps the message, with its reason and without the address's secrets; another pass does not double it."""
    sink.statuses = [500]
    drain(noticing, "n1")
    notices.run(noticing)
    (message,) = queue.of(noticing.config).pending()
    assert message.state == "waiting"
    assert "500" in message.why or "Server" in message.why
    assert "hook" not in message.why.replace("webhook", "")
    later(noticing, MINUTE)
    notices.run(noticing)
    from probing_cluster.control_plane import delivery

    delivery.flush(noticing.config, noticing.clock.now())
    assert sink.titles == ["[c] Drained: n1 (xid)"]
    assert queue.of(noticing.config).pending() == []


def test_mail_and_web_of_one_route_fail_alone(
    service: context.Context, sink: web_sink.Sink, tmp_path: Path
) -> None:
    """Who has it is not noticing again because another has not; headers take no lines from strangers."""
    urls = tmp_path / "urls"
    urls.write_text(f"jsons://localhost:{sink.port}/hook\n")
    urls.chmod(0o600)
    box = mail_server.Box()
    box.replies = ["450 later"]
    with mail_server.running(box) as port:
        mail = settings.MailSettings(host="localhost", port=port, security="none")
        service.config = dataclasses.replace(service.config, mail=mail)
        route = settings.NoticeRoute(name="ops", url_file=str(urls), mail_to=("ops@site",))
        noticing = routed(service, tmp_path, route)
        drain(noticing, "n1", "probing: xid\r\nBcc: all@site")
        notices.run(noticing)
        assert (len(sink.posts), len(box.mails)) == (1, 0)
        later(noticing, MINUTE)
        from probing_cluster.control_plane import delivery

        delivery.flush(noticing.config, noticing.clock.now())
        assert (len(sink.posts), len(box.mails)) == (1, 1)
        mail_now = box.message()
        assert mail_now["Bcc"] is None
        assert mail_now["Message-ID"].startswith("<notice.")
        assert mail_now["Subject"] == "[c] Drained: n1 (xid)"


def test_every_kind_has_facts_of_the_rows_it_is_about(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Denied by the budget, refused, requeued, hanging, silent, lemon: each is noticing by its own kind."""
    now = noticing.clock.now()
    drain(noticing, "n1", state="denied", why_state="budget: 5 of 5 nodes of the cluster taken within 3600 s")
    drain(noticing, "n1", action="refuse")
    drain(noticing, "n1", action="requeue", job_id=4242)
    noticing.store.save_gang_verdicts(
        [
            records.GangVerdict(
                gang_id=uuid.uuid4(), cluster="c", job_id=4242, submit_at=now, kind="rank_dead", domain=records.Domain.UNKNOWN,
                confidence=records.Confidence.LIKELY, summary="rank 3 is dead", onset_at=now, made_at=now, nodes=("n2",),
            )
        ]
    )  # fmt: skip
    noticing.store.save_lemon_scores(
        [
            records.LemonScore(
                cluster="c",
                node="n3",
                day=now,
                score=0.9,
                verdict="lemon",
                reasons=("7 failures",),
                made_at=now,
            )
        ]
    )
    fakes.deliver(noticing.store, "n4")
    noticing.memory(silence.AgentListening).silent = {"n4"}
    noticing.journal.note("silence", now, 0.0, "")
    route = dataclasses.replace(noticing.config.notices.routes[0], severity="info")
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    notices.run(noticing)
    assert sorted(g.kind for g in notices.book(noticing).groups()) == [
        "budget", "denied", "hang", "lemon", "refusal", "restart", "silent",
    ]  # fmt: skip
    assert len(sink.posts) == 7
    assert {k.name for k in kinds.REGISTER} >= {g.kind for g in notices.book(noticing).groups()}


def hang(service: context.Context, job_id: int, **changes: object) -> records.GangVerdict:
    """A job of two nodes that runs and hangs."""
    now = service.clock.now()
    attempt = records.JobAttempt(
        cluster="c",
        job_id=job_id,
        submit_at=now,
        start_at=now,
        state="RUNNING",
        nodes=("n1", "n2"),
        user="alice",
    )
    found = records.GangVerdict(
        gang_id=uuid.uuid4(), cluster="c", job_id=job_id, submit_at=now, kind="rank_dead", domain=records.Domain.UNKNOWN,
        confidence=records.Confidence.LIKELY, summary="rank 3 is dead", onset_at=now, made_at=now, nodes=("n2",),
    )  # fmt: skip
    found = dataclasses.replace(found, **changes)
    service.store.upsert_attempts([attempt])
    service.store.save_gang_verdicts([found])
    return found


@pytest.mark.parametrize(
    ("end", "title", "line"),
    [
        (
            {"state": "NODE_FAIL", "failed_node": "n2"},
            "[c] Over: Job hangs: n2 (job 7: it ended as NODE_FAIL of n2)",
            "; it ended as NODE_FAIL of n2 at ",
        ),
        (
            {"state": "CANCELLED", "cancelled_by": "alice"},
            "[c] Over: Job hangs: n2 (job 7: it ended as CANCELLED by alice)",
            "; it ended as CANCELLED by alice at ",
        ),
        (
            None,
            "[c] Over: Job hangs: n2 (job 7: it makes progress again)",
            "rank 3 is dead; it makes progress again (over)",
        ),
    ],
    ids=["its node died", "cancelled", "it goes on"],
)
def test_the_end_of_a_hang_is_explained(
    noticing: context.Context, sink: web_sink.Sink, end: dict[str, Any] | None, title: str, line: str
) -> None:
    """When and how the job ended, or that it goes on."""
    notices.run(noticing)
    found = hang(noticing, 7)
    notices.run(noticing)
    assert sink.titles == ["[c] Job hangs: n2 (job 7)"]
    later(noticing, MINUTE)
    now = noticing.clock.now()
    if end is not None:
        (attempt,) = noticing.store.attempts(job_ids=[7])
        noticing.store.upsert_attempts([dataclasses.replace(attempt, end_at=now, **end)])
    noticing.store.save_gang_verdicts([dataclasses.replace(found, ended_at=now)])
    notices.run(noticing)
    assert sink.titles[1:] == [title]
    assert line in sink.posts[-1]["message"]
    notices.run(noticing)
    assert len(sink.posts) == 2


def test_a_hang_that_was_over_before_anybody_was_told_is_no_news(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """The service was away while the job hung."""
    notices.run(noticing)
    later(noticing, MINUTE)
    hang(noticing, 7, ended_at=noticing.clock.now())
    notices.run(noticing)
    assert sink.posts == []


@pytest.mark.parametrize(
    ("state", "why", "in_service"),
    [
        ("skipped", view.UNDER_TEST, False),
        ("skipped", view.DECIDED_ANEW, False),
        ("skipped", "DRAIN by another (fan, bob)", False),
        ("skipped", "n1 is DRAIN (fan, bob)", False),
        ("skipped", "it carries another's note (keep an eye on it, bob)", True),
        ("skipped", "n1 carries another's note: keep an eye on it", True),
        ("failed", "scontrol update ended with 1: Access/permission denied", True),
        ("failed", "Slurm does not answer: scontrol did not end within 30 s", False),
        ("denied", "budget: 5 of 5 nodes of the cluster taken within 3600 s", True),
    ],
)
def test_only_a_faulty_node_in_service_is_not_drained(
    state: str, why: str, in_service: bool, noticing: context.Context
) -> None:
    """After our own drain the test's own events find the node out already: nobody is told that it was not drained."""
    notices.run(noticing)
    drain(noticing, "n1")
    drain(noticing, "n1", "probing: check", state=state, why_state=why)
    notices.run(noticing)
    kinds_found = {group.kind for group in notices.book(noticing).groups()} - {"budget"}
    assert kinds_found == ({"drain", "denied"} if in_service else {"drain"})


@pytest.mark.parametrize(
    ("why", "until"),
    [
        ("5 of 5 nodes of the cluster taken within 3600 s", "the window has passed"),
        ("9 of 9 nodes of the cluster are out of service by drains of ours", "some of them are back"),
    ],
)
def test_a_denied_drain_says_what_ends_the_denials(why: str, until: str) -> None:
    """No hour that passes brings a drain while as many stand as may be."""
    row = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n1", at=fakes.NOW, action="drain", reason="probing: xid 79",
        owner="probing", state="denied", why_state=f"budget: {why}",
    )  # fmt: skip
    present = notice_picture.NoticePicture(
        now=fakes.NOW, cluster="c", budget_window=timedelta(hours=1), drains=[row]
    )
    (found,) = kinds.budget.find(present)
    assert found.line == f"budget: {why}; nothing more is drained by itself until {until}"


def test_a_repaired_node_leaves_the_notice_and_the_last_ends_it(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """Set healthy, its agent reports no fault any more. A later fault of it is another message, without the old lines."""
    spent = "budget: 2 of 2 nodes of the cluster taken within 3600 s"

    def denied(node: str) -> None:
        now = noticing.clock.now()
        fault = records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node=node, at=now, observed_at=now, kind="xid", code="79",
            severity=records.Severity.HIGH, source="kernel", device="gpu3", message="Xid 79",
        )  # fmt: skip
        fakes.deliver(noticing.store, node, fault)
        drain(noticing, node, state="denied", why_state=spent, event_ids=(fault.event_id,))

    notices.run(noticing)
    for node in ("n3", "n4"):
        denied(node)
    notices.run(noticing)
    later(noticing, timedelta(hours=25))  # longer than decisions are looked back at
    fakes.deliver(noticing.store, "n3")
    notices.run(noticing)
    fakes.deliver(noticing.store, "n4")
    notices.run(noticing)
    later(noticing, MINUTE)
    notices.run(noticing)
    about = [p for p in sink.posts if "Not drained" in p["title"]]
    assert [p["title"] for p in about] == [
        "[c] Not drained: n[3-4] (xid)",
        "[c] Update: Not drained: n4 (xid)",
        "[c] Over: Not drained: n[3-4] (xid)",
    ]
    ended = [line for line in about[1]["message"].splitlines() if line.endswith("(over)")]
    assert ["n3" in line for line in ended] == [True]
    denied("n3")
    notices.run(noticing)
    again = [p for p in sink.posts if "Not drained" in p["title"]][3:]
    assert [(p["title"], p["message"].count("drain denied")) for p in again] == [
        ("[c] Not drained: n3 (xid)", 1)
    ]


def test_a_job_brought_back_after_its_end_is_told(noticing: context.Context, sink: web_sink.Sink) -> None:
    """So is one that is left where it is, with why; a run that has come back often enough uses up no drain budget; what is under way is no news."""
    route = dataclasses.replace(noticing.config.notices.routes[0], severity="info")
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    notices.run(noticing)
    given = {"action": "restart", "reason": "probing: gpu_lost n1 gpu3"}
    drain(noticing, "n1", job_id=1, **given)
    drain(noticing, "n1", job_id=2, state="skipped", why_state="it was submitted with --no-requeue", **given)
    spent = "budget: its run was restarted 3 of 3 times within 24 h"
    drain(noticing, "n1", job_id=3, state="denied", why_state=spent, **given)
    drain(noticing, "n1", job_id=4, state="failed", why_state=view.BEGUN, **given)
    drain(noticing, "n1", state="failed", why_state=view.BEGUN)
    task = records.JobAttempt(
        cluster="c",
        job_id=5,
        array_job_id=9,
        array_task_id=2,
        submit_at=fakes.NOW,
        run_key="5",
        state="FAILED",
    )
    noticing.store.upsert_attempts([task])
    drain(noticing, "n1", job_id=5, **given)
    notices.run(noticing)
    (post,) = sink.posts
    assert post["title"] == "[c] Restarts of jobs: n1 (gpu_lost)"
    for line in (
        "job 9_2 requeued after its end: gpu_lost n1 gpu3",
        "job 1 requeued after its end: gpu_lost n1 gpu3",
        "job 2 not requeued after its end (it was submitted with --no-requeue): gpu_lost",
        f"job 3 not requeued after its end ({spent}): gpu_lost",
    ):
        assert line in post["message"]
    assert "job 4" not in post["message"]


@pytest.mark.parametrize(
    ("action", "state", "title"),
    [
        ("restart", "done", "Job requeued"),
        ("restart", "skipped", "Job not requeued"),
        ("restart", "simulated", "Job would be requeued"),
        ("refuse", "done", "May refuse jobs"),
        ("refuse", "denied", "May not refuse jobs"),
        ("drain", "done", "Drained"),
        ("drain", "simulated", "Would be drained"),
    ],
)
def test_a_title_says_what_became_of_it(
    noticing: context.Context, sink: web_sink.Sink, action: str, state: str, title: str
) -> None:
    """A decision that was not carried out does not read as if it had been; the command names the one job concerned."""
    route = dataclasses.replace(noticing.config.notices.routes[0], severity="info")
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    drain(noticing, "n1", action=action, state=state, job_id=7 if action == "restart" else None)
    notices.run(noticing)
    (post,) = sink.posts
    assert post["title"] == f"[c] {title}: n1 (xid)"
    assert ("See: probing-report 7" in post["message"]) is (action == "restart")


@pytest.mark.parametrize(
    ("states", "did"),
    [
        ("DRAIN+FAIL", "drained"),
        ("DOWN+NOT_RESPONDING", "set DOWN"),
        ("FAIL+IDLE", "set FAIL"),
        ("FAILING+MIXED", "set FAILING"),
    ],
)
def test_the_state_that_slurm_set_is_named(
    noticing: context.Context, sink: web_sink.Sink, states: str, did: str
) -> None:
    found = store_actions.SlurmDrain("n1", states, "Not responding", noticing.clock.now())
    noticing.store.save_slurm_drains("c", [found], [])
    notices.run(noticing)
    assert f"n1 {did} by Slurm itself: Not responding" in sink.posts[0]["message"]


def test_slurms_own_drains_are_told_with_what_the_agent_sees(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """After machines stood still Slurm keeps nodes drained and tells nobody; a reboot that somebody asked for is no news, nor our own drain."""
    reasons = {
        "n1": "Kill task failed",
        "n2": "Kill task failed",
        "n3": "reboot requested",
        "n4": "Epilog error",
        "n5": "fan noise",
    }
    found = [
        store_actions.SlurmDrain(node=node, states="DRAIN+IDLE", reason=reason, since_at=noticing.clock.now())
        for node, reason in reasons.items()
    ]
    noticing.store.save_slurm_drains("c", found, [])
    fakes.deliver(noticing.store, "n1")
    drain(noticing, "n4")
    notices.run(noticing)
    (text,) = [
        p["message"] for p in sink.posts if "Out of service by Slurm: n[1-2] (Kill task failed)" in p["title"]
    ]
    assert "n1 drained by Slurm itself: Kill task failed; its agent sees no fault: scontrol update" in text
    assert "n2 drained by Slurm itself: Kill task failed; its agent is not heard" in text
    assert len(sink.posts) == 2  # the other is our own drain
    noticing.store.save_slurm_drains("c", [], ["n1", "n2"])
    notices.run(noticing)
    assert sink.titles[-1] == "[c] Over: Out of service by Slurm: n[1-2] (Kill task failed)"
    over = sink.posts[-1]["message"]
    assert "n1 drained by Slurm itself: Kill task failed; its agent sees no fault (over)" in over
    assert "scontrol" not in over


def test_what_is_over_asks_for_nothing_beside_what_stands(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """Of two nodes one is back: only the other has its way out."""
    at = noticing.clock.now()
    found = [store_actions.SlurmDrain(n, "DRAIN+IDLE", "Kill task failed", at) for n in ("n1", "n2")]
    noticing.store.save_slurm_drains("c", found, [])
    for node in ("n1", "n2"):
        fakes.deliver(noticing.store, node)
    notices.run(noticing)
    noticing.store.save_slurm_drains("c", found[1:], ["n1"])
    notices.run(noticing)
    text = sink.posts[-1]["message"]
    assert "NodeName=n2 State=RESUME" in text
    assert "NodeName=n1" not in text


def test_a_reason_that_slurm_wrote_over_ours_is_told(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Only a person can lift that drain, or give it back; of a drain that we took over from Slurm nothing is told."""
    at = noticing.clock.now()
    for node in ("n1", "n2"):
        drain(noticing, node, at=at)
    found = [
        store_actions.SlurmDrain("n1", "DRAIN+IDLE", "Kill task failed", at + MINUTE),
        store_actions.SlurmDrain("n2", "DRAIN+IDLE", "Prolog error", at - timedelta(seconds=3)),
    ]
    noticing.store.save_slurm_drains("c", found, [])
    later(noticing, 2 * MINUTE)
    notices.run(noticing)
    (post,) = [p for p in sink.posts if "Out of service by Slurm" in p["title"]]
    assert "n1" in post["title"]
    assert "n2" not in post["message"]
    assert (
        'scontrol update NodeName=n1 State=DRAIN Reason="probing: mended" gives it to its tests'
        in post["message"]
    )


@pytest.mark.parametrize(
    ("reason", "changes", "about"),
    [
        ("probing: api test (root)", {"owner": "root"}, "by root"),
        ("probing: check gpu_count", {}, "gpu_count"),
        ("probing: check", {}, "check"),
        ("probing: xid 79 gpu3", {}, "xid"),
    ],
)
def test_a_title_names_the_fault_or_the_person(
    noticing: context.Context, sink: web_sink.Sink, reason: str, changes: dict[str, str], about: str
) -> None:
    """The first word of what a person wrote is no fault, and `check` is none either."""
    drain(noticing, "n1", reason, **changes)
    notices.run(noticing)
    assert sink.titles == [f"[c] Drained: n1 ({about})"]


def test_a_permission_that_is_given_again_and_again_is_told_once(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """Every half minute while the fault stands; after a day, too; another fault, or a denial, is news."""
    route = dataclasses.replace(noticing.config.notices.routes[0], severity="info")
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    for _ in range(6):
        drain(noticing, "n1", action="refuse")
        notices.run(noticing)
        later(noticing, MINUTE / 2)
    assert len(sink.posts) == 1
    drain(noticing, "n1", "probing: gsp 119 gpu4", action="refuse")
    notices.run(noticing)
    assert len(sink.posts) == 2
    start = noticing.clock.now()
    for minutes in range(10, 26 * 60, 10):
        drain(noticing, "n1", action="refuse", at=start + minutes * MINUTE)
    later(noticing, timedelta(hours=26))
    notices.run(noticing)
    assert len(sink.posts) == 2


def test_a_service_without_its_database_says_so(noticing: context.Context, sink: web_sink.Sink) -> None:
    """Blind for long enough it is noticing, from the service's own disk, and over when the task works again."""
    away = errors.DatabaseUnavailable("the database is away")
    noticing.journal.note("actions", noticing.clock.now(), 0.0, "", away)
    notices.run(noticing)
    later(noticing, 2 * MINUTE)
    noticing.journal.note("actions", noticing.clock.now(), 0.0, "", away)
    store, noticing.store = noticing.store, Away()  # type: ignore[assignment]
    with pytest.raises(errors.DatabaseUnavailable):
        notices.run(noticing)
    assert sink.titles == ["[c] Service blind"]
    assert "the database is away" in sink.posts[0]["message"]
    noticing.store = store
    noticing.journal.note("actions", noticing.clock.now(), 0.0, "")
    notices.run(noticing)
    assert sink.titles[1:] == ["[c] Over: Service blind"]


def test_a_database_that_is_away_is_one_line_however_many_tasks_wait(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """Also while the tasks come back one by one; one that comes once a day holds up no end."""
    away = errors.DatabaseUnavailable("the database cannot be reached: no such socket")
    noticing.journal.note("lemon", noticing.clock.now(), 0.0, "", away)
    for _ in range(3):
        for task in ("actions", "gangs", "hangs"):
            noticing.journal.note(task, noticing.clock.now(), 0.0, "", away)
        notices.run(noticing)
        later(noticing, MINUTE)
    assert sink.titles == ["[c] Service blind (database)"]
    assert sink.posts[0]["message"].count("no such socket") == 1
    noticing.journal.note("actions", noticing.clock.now(), 0.0, "")
    noticing.journal.note("gangs", noticing.clock.now(), 0.0, "")
    noticing.journal.note("hangs", noticing.clock.now(), 0.0, "", away)
    notices.run(noticing)
    assert len(sink.posts) == 1
    noticing.journal.note("hangs", noticing.clock.now(), 0.0, "")
    notices.run(noticing)
    assert sink.titles[1:] == ["[c] Over: Service blind (database)"]


def test_one_task_that_the_database_refuses_is_named(noticing: context.Context, sink: web_sink.Sink) -> None:
    """The others work: nobody is told that nothing is judged."""
    for _ in range(3):
        noticing.journal.note("actions", noticing.clock.now(), 0.0, "")
        refused = errors.DatabaseRefused("the database refuses: no right to lemon_score")
        noticing.journal.note("lemon", noticing.clock.now(), 0.0, "", refused)
        notices.run(noticing)
        later(noticing, MINUTE)
    assert sink.titles == ["[c] Service blind"]
    assert "the service's task lemon cannot work" in sink.posts[0]["message"]


def test_a_service_without_slurm_says_so_once(noticing: context.Context, sink: web_sink.Sink) -> None:
    """One message however many tasks ask Slurm, though tasks that ask it seldom work meanwhile; over when Slurm answers."""
    away = commands.SlurmAway("scontrol ended with 1: Unable to contact slurm controller")
    for _ in range(3):
        now = noticing.clock.now()
        noticing.journal.note_slurm("nodes", now, away)
        for task in ("actions", "drained", "lemon"):
            noticing.journal.note(task, now, 0.0, "", away)
        noticing.journal.note("actions", now, 0.0, "")
        notices.run(noticing)
        later(noticing, MINUTE)
    assert sink.titles == ["[c] Service blind (slurm)"]
    assert "no job requeued: Slurm does not answer: scontrol ended with 1" in sink.posts[0]["message"]
    noticing.journal.note_slurm("nodes", noticing.clock.now(), None)
    noticing.journal.note("drained", noticing.clock.now(), 0.0, "")
    later(noticing, 2 * MINUTE)
    notices.run(noticing)
    assert sink.titles[1:] == ["[c] Over: Service blind (slurm)"]


def test_what_slurm_never_answers_is_told_though_it_answers_others(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """squeue times out for minutes while scontrol answers, and nothing is drained."""
    away = commands.SlurmAway("squeue did not end within 30 s")
    for _ in range(6):
        now = noticing.clock.now()
        noticing.journal.note_slurm("jobs", now, away)
        noticing.journal.note("actions", now, 0.0, "", away)
        noticing.journal.note_slurm("nodes", now + timedelta(seconds=5), None)
        notices.run(noticing)
        later(noticing, MINUTE)
    assert sink.titles == ["[c] Service blind (slurm)"]
    assert "no job requeued: Slurm does not answer: squeue" in sink.posts[0]["message"]


class Away:
    """A store whose database is gone."""

    def __getattr__(self, name: str) -> object:
        raise errors.DatabaseUnavailable("the database is away")


def test_an_old_story_is_no_news(noticing: context.Context, sink: web_sink.Sink) -> None:
    """What ended before the first pass is noticing to nobody; what still stands is."""
    hour_ago = noticing.clock.now() - timedelta(hours=1)
    drain(noticing, "n1", at=hour_ago, ended_at=hour_ago + MINUTE, state="done")
    drain(noticing, "n2", "probing: ecc gpu1", at=hour_ago)
    notices.run(noticing)
    assert sink.titles == ["[c] Drained: n2 (ecc)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "a name of its own"),
        ({"severity": "grave"}, "info, low or high"),
        ({"url_file": ""}, "leads nowhere"),
        ({"kinds": ("drian",)}, "no kind is called 'drian'"),
        ({"quiet_hours": "late"}, "HH:MM-HH:MM"),
        ({"mail_to": ("a@b",)}, "[mail] host"),
    ],
)
def test_a_route_that_cannot_work_is_named(
    noticing: context.Context, changes: dict[str, object], words: str
) -> None:
    """A slip in the settings is said with its way out."""
    route = dataclasses.replace(noticing.config.notices.routes[0], **changes)
    noticing.config = dataclasses.replace(
        noticing.config, notices=dataclasses.replace(noticing.config.notices, routes=(route,))
    )
    with pytest.raises(errors.SettingsError, match=words.replace("[", r"\[")):
        notices.run(noticing)


def leaves(service: context.Context, n_leaves: int = 8, each: int = 8) -> None:
    """A cluster of leaves in a row: n0 to n7 hang on leaf0."""
    placed = [(f"n{leaf * each + i}", "leaf", f"leaf{leaf}") for leaf in range(n_leaves) for i in range(each)]
    service.store.save_places("c", ["leaf"], placed, service.clock.now() - 9 * MINUTE)


def test_nodes_that_share_a_place_are_one_message_with_its_name(
    noticing: context.Context, sink: web_sink.Sink
) -> None:
    """Five of eight nodes of one leaf; then one elsewhere, too; the message names the place as long as chance does not explain it."""
    leaves(noticing)
    drains = [drain(noticing, f"n{i}", "probing: ib_link mlx5_0") for i in range(2)]
    notices.run(noticing)
    drains += [drain(noticing, f"n{i}", "probing: ib_link mlx5_0") for i in range(2, 5)]
    notices.run(noticing)
    assert notices.run(noticing) == ""
    assert sink.titles == [
        "[c] Drained: n[0-1] (ib_link)",
        "[c] Update: Drained: n[0-4] (ib_link) at leaf leaf0",
    ]
    assert "Shared: 5 of the 8 nodes of leaf leaf0 (all that failed; p = " in sink.posts[1]["message"]
    for one in drains[:4]:
        noticing.store.update_drain(one.drain_id, state="resumed", ended_at=noticing.clock.now())
    notices.run(noticing)
    assert sink.titles[2] == "[c] Update: Drained: n4 (ib_link) at leaf leaf0"


def test_nodes_of_many_places_are_told_without_one(noticing: context.Context, sink: web_sink.Sink) -> None:
    """One node of every leaf: no place is named."""
    leaves(noticing)
    for leaf in range(8):
        drain(noticing, f"n{8 * leaf}", "probing: ib_link mlx5_0")
    notices.run(noticing)
    assert sink.titles == ["[c] Drained: n[0,8,16,24,32,40,48,56] (ib_link)"]
    assert "Shared" not in sink.posts[0]["message"]


@pytest.mark.parametrize(
    ("confidence", "words", "shown"),
    [("likely", "2 jobs died of one fault", "failure"), ("possible", "2 jobs may have died of one fault", "warning")],
)  # fmt: skip
def test_an_incident_says_no_more_than_its_verdicts(
    noticing: context.Context, sink: web_sink.Sink, confidence: str, words: str, shown: str
) -> None:
    """What is only possible wakes nobody at night."""
    incident, now = uuid.uuid4(), noticing.clock.now()
    noticing.store.save_verdicts(
        [
            records.Verdict(
                cluster="c", job_id=job_id, submit_at=now, attempt=1, cause="filesystem_mount", domain=records.Domain.SYSTEM_SOFTWARE,
                node="n1", confidence=records.Confidence(confidence), summary="/scratch of n1 stopped answering.",
                incident_id=incident, onset_at=now, rules_version="1", made_at=now,
            )
            for job_id in (1, 2)
        ]
    )  # fmt: skip
    notices.run(noticing)
    (post,) = sink.posts
    assert words in post["message"]
    assert post["type"] == shown


def test_two_incidents_at_one_place_are_one_story(noticing: context.Context, sink: web_sink.Sink) -> None:
    """A link and a mount that went with the same rack; a third incident, of no place, is another message."""
    place = "7 of the 8 nodes of rack r1 (all that failed; p = 2e-09)"
    now = noticing.clock.now()

    def verdict(job_id: int, cause: str, incident: uuid.UUID, node: str, where: str | None) -> None:
        noticing.store.save_verdicts(
            [
                records.Verdict(
                    cluster="c", job_id=job_id, submit_at=now, attempt=1, cause=cause, domain=records.Domain.HARDWARE, node=node,
                    confidence=records.Confidence.LIKELY, summary=f"{cause} ended it.", incident_id=incident, onset_at=now, place=where,
                    rules_version="1", made_at=now,
                )
            ]
        )  # fmt: skip

    first, second, third = (uuid.uuid4() for _ in range(3))
    verdict(1, "ib_link", first, "n1", place)
    verdict(2, "filesystem_mount", second, "n2", place)
    verdict(3, "gpu_lost", third, "n40", None)
    notices.run(noticing)
    assert sorted(sink.titles) == sorted(["[c] Incident: n[1-2] (rack r1)", "[c] Incident: n40 (gpu_lost)"])
    (story,) = (p["message"] for p in sink.posts if "rack r1" in p["title"])
    assert story.count(f"Shared: {place}.") == 2
