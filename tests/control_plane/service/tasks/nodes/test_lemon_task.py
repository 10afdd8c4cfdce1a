from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fakes
import lemon_fleet as fleet
import mail_server
import pytest

from probing_cluster.control_plane import child_process, context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.policy import resume_policy, view
from probing_cluster.control_plane.service import lemon_action
from probing_cluster.control_plane.service.tasks.jobs import exclusions
from probing_cluster.control_plane.service.tasks.nodes import lemon, places
from probing_cluster.control_plane.service.tasks.people import mail
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.lemon import nightly
from probing_cluster.reports.charts import lemon_charts
from tests.set_clock import SetClock

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
DUE = fleet.END + 6 * HOUR


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a night takes a second of processor: one test does, the others' charts are a word."""
    if request.function.__name__ != "test_a_night_is_scored_and_its_mail_queued_once":
        for name in ("_nodes", "_fleet"):
            monkeypatch.setattr(lemon_charts, name, lambda *_: None)
        monkeypatch.setattr(lemon_charts, "_png", lambda _: b"drawn")


@pytest.fixture
def night(service: context.Context, slurm: fakes.FakeSlurm, tmp_path: Path) -> context.Context:
    """The story of lemon_fleet, a minute after its night was due; messages go into tmp_path."""
    fleet.story(service.store)
    slurm.state |= {
        n: view.Node(name=n, states=frozenset({"IDLE"}), partitions=("gpu",), n_gpus=8) for n in fleet.NODES
    }
    service.config = dataclasses.replace(
        service.config,
        mail=settings.MailSettings(
            host="localhost", port=1, security="none", sender="probing@example.org", recipients=("ops@example.org",),
            spool_directory=str(tmp_path / "mail"),
        ),
    )  # fmt: skip
    set_clock(service, DUE + HOUR / 60)
    return service


def set_clock(service: context.Context, at: datetime) -> None:
    assert isinstance(service.clock, SetClock)
    service.clock.at = at


def waiting(service: context.Context) -> list[str]:
    return [x.key for x in queue.of(service.config).messages()]


def with_lemon(service: context.Context, **changes: object) -> None:
    lemon_settings = dataclasses.replace(service.config.lemon, **changes)  # type: ignore[arg-type]
    service.config = dataclasses.replace(service.config, lemon=lemon_settings)


def test_a_night_is_scored_and_its_mail_queued_once(night: context.Context) -> None:
    """The first look after the hour does it; every later one of that day does nothing."""
    assert lemon.run(night) == "1 new lemon: n07 (40 nodes scored); mail queued"
    assert waiting(night) == ["lemon.c.2026-11-20.mail"]
    assert lemon.run(night) == ""
    set_clock(night, DUE + 23 * HOUR)
    assert lemon.run(night) == ""
    set_clock(night, DUE + 24 * HOUR)
    assert lemon.run(night).startswith("1 still: n07")
    assert len(waiting(night)) == 2


def test_before_the_hour_the_night_before_counts(night: context.Context) -> None:
    """At 05:59 the last night due was yesterday's, of the day before."""
    set_clock(night, DUE - HOUR / 60)
    lemon.run(night)
    assert night.store.lemon_scores()[0].day == fleet.DAY - DAY


def test_nights_missed_are_made_up_for_once(night: context.Context) -> None:
    """Three days down: one night when it is back, the latest, compared with the last one scored."""
    lemon.run(night)
    set_clock(night, DUE + 3 * DAY + 5 * HOUR)
    assert lemon.run(night).startswith("1 still: n07")
    assert lemon.run(night) == ""
    assert [s.day for s in night.store.lemon_scores(node="n07")] == [fleet.DAY, fleet.DAY + 3 * DAY]
    assert nightly.load(night.store, night.config).previous_day == fleet.DAY


def test_a_night_that_breaks_off_is_done_again(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An outbox that cannot be written leaves the night undone; the next pass finishes it, with one mail."""
    spool = Path(night.config.mail.spool_directory)
    spool.write_text("in the way")
    with pytest.raises(errors.SettingsError):
        lemon.run(night)
    spool.unlink()
    assert lemon.run(night) == "1 new lemon: n07 (40 nodes scored); mail queued"
    assert len(waiting(night)) == 1


def test_two_services_on_one_database_make_one_night(night: context.Context) -> None:
    """Both look in the same minute: one does it, the other finds it done."""
    announced: list[str] = []
    ready = threading.Barrier(2)

    def look() -> None:
        ready.wait()
        announced.append(lemon.run(night))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bool(s) for s in announced) == [False, True]
    assert len(waiting(night)) == 1


@pytest.mark.parametrize(
    ("now", "zone", "run_at", "day"),
    [
        ("2026-11-21T06:00", "UTC", "06:00", "2026-11-20"),
        ("2026-11-21T05:59", "UTC", "06:00", "2026-11-19"),
        ("2026-11-21T05:30", "Europe/Berlin", "06:00", "2026-11-20"),
        ("2026-11-21T04:30", "Europe/Berlin", "06:00", "2026-11-19"),
        ("2026-07-21T04:30", "Europe/Berlin", "06:00", "2026-07-20"),
        ("2026-11-20T21:30", "Asia/Tokyo", "06:00", "2026-11-19"),
        ("2026-03-29T03:00", "Europe/Berlin", "02:30", "2026-03-28"),
    ],
)
def test_the_hour_is_the_sites(now: str, zone: str, run_at: str, day: str) -> None:
    """Zone and summer time count, an hour that the clocks skip too; the day scored has always ended."""
    config = settings.Settings(
        service=settings.ServiceSettings(timezone=zone), lemon=settings.LemonSettings(run_at=run_at)
    )
    found = lemon.due_day(datetime.fromisoformat(now).replace(tzinfo=UTC), config)
    assert f"{found:%Y-%m-%d}" == day


@pytest.mark.parametrize(
    ("zone", "run_at", "words"), [("Mars/Base", "06:00", "timezone"), ("UTC", "6 o'clock", "run_at")]
)
def test_a_wrong_hour_or_zone_is_named(zone: str, run_at: str, words: str) -> None:
    """A mistake in the settings names its key."""
    config = settings.Settings(
        service=settings.ServiceSettings(timezone=zone), lemon=settings.LemonSettings(run_at=run_at)
    )
    with pytest.raises(errors.SettingsError, match=words):
        lemon.due_day(DUE, config)


def test_an_empty_database_has_no_night(service: context.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first job there is nothing to mail about, and nothing to load the libraries of a night for."""
    monkeypatch.setattr(child_process, "run", lambda *_: pytest.fail("a process for no night"))
    service.in_children = True
    assert lemon.run(service) == ""


def test_off_by_default(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """A lemon is mailed; Slurm is told nothing."""
    lemon.run(night)
    assert slurm.acts == []


def test_a_new_lemon_is_drained_after_its_jobs(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """action = drain: drained with our reason, nothing requeued, and the mail says so; once, not every night."""
    with_lemon(night, action="drain")
    slurm.running[1] = view.ActiveJob(job_id=1, start_at=DUE, nodes=("n07",))
    assert "drain n07 done" in lemon.run(night)
    ((verb, node, reason),) = slurm.acts
    assert (verb, node) == ("drain", "n07")
    assert reason.startswith("probing: lemon, over 99 %, 6 failures")
    (row,) = night.store.drains()
    assert (row.action, row.state, row.owner, row.severity) == (
        "drain",
        "done",
        "probing",
        records.Severity.LOW,
    )
    (message,) = queue.of(night.config).messages()
    assert b"drained since" in message.body
    # A person puts it back: the next night does not fight them.
    slurm.state["n07"] = view.Node(name="n07", states=frozenset({"IDLE"}), partitions=("gpu",))
    set_clock(night, DUE + DAY)
    lemon.run(night)
    assert len(slurm.acts) == 1


def test_the_drain_budget_holds_for_lemons(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """No node left in the budget: denied with the reason, nothing touched."""
    with_lemon(night, action="drain")
    night.config = dataclasses.replace(
        night.config, policy=dataclasses.replace(night.config.policy, budget_nodes=0)
    )
    assert "drain n07 denied" in lemon.run(night)
    assert slurm.acts == []
    (row,) = night.store.drains()
    assert row.why_state.startswith("budget: 0 of 0 nodes")


def test_a_node_under_test_counts_against_the_budget(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """It is out of service as a drained one is."""
    with_lemon(night, action="drain")
    fakes.spend_budget_on_a_test(night, "n01")
    assert "drain n07 denied" in lemon.run(night)
    assert slurm.acts == []


def test_observe_only_holds_for_lemons(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """The decision is a row, Slurm is told nothing."""
    with_lemon(night, action="drain")
    night.config = dataclasses.replace(
        night.config, policy=dataclasses.replace(night.config.policy, observe_only=True)
    )
    assert "drain n07 simulated" in lemon.run(night)
    assert slurm.acts == []


def test_a_node_that_somebody_else_holds_is_left_alone(
    night: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """A person's drain or note stands."""
    with_lemon(night, action="drain")
    slurm.state["n07"] = view.Node(
        name="n07", states=frozenset({"DRAIN"}), reason="bob: RMA", partitions=("gpu",)
    )
    assert "drain n07 skipped" in lemon.run(night)
    assert slurm.acts == []


def test_with_slurm_away_the_mail_goes_all_the_same(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Nothing is drained, and the report says that Slurm was not asked."""
    with_lemon(night, action="drain")
    slurm.down = True
    assert "not acted: slurmctld is away" in lemon.run(night)
    assert any("only our own drains" in r for r in nightly.load(night.store, night.config).remarks)
    assert len(waiting(night)) == 1


def test_slurms_outages_are_asked_for(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """What slurmdbd knows is counted."""
    slurm.out = [
        view.Outage(node="n07", start_at=fleet.at(d), end_at=fleet.at(d - 0.1), reason="x") for d in (2, 5)
    ]
    lemon.run(night)
    (score,) = night.store.lemon_scores(node="n07")
    assert score.out_count == 2


def test_neighbours_are_what_is_known_of_places(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Nodes hang together by their leaf switch, and where none is known by their rack, whatever becomes of the accounting."""
    slurm.switches = [(f"n{i:02}", "leaf", f"leaf{i // 8}") for i in range(30)]
    places.run(night)
    day = datetime.now(UTC)
    night.store.save_places(
        night.config.cluster.name, ["rack"], [(f"n{i:02}", "rack", "r1") for i in range(25, 40)], fakes.NOW
    )

    def away(since: datetime, until: datetime) -> list[view.Outage]:
        raise errors.SlurmUnavailable("slurmdbd is away")

    slurm.outages = away  # type: ignore[method-assign]
    facts = lemon.slurm_facts(slurm, night.store, night.config, day)
    assert facts.outages is None
    assert [facts.places[n] for n in ("n09", "n29", "n39")] == ["leaf1", "leaf3", "r1"]


def test_a_wrong_action_is_named_before_anything_is_done(night: context.Context) -> None:
    """A typo does not pass for off."""
    with_lemon(night, action="darin")
    with pytest.raises(errors.SettingsError, match="action must be off or drain"):
        lemon.run(night)
    assert night.store.lemon_scores() == []


def test_a_lemons_drain_is_never_lifted_by_its_health() -> None:
    """It passes every check: hours of green bring an ordinary node back, a lemon waits for a person."""

    def drained(reason: str) -> resume_policy.DrainedNode:
        drain = records.Drain(
            drain_id=uuid.UUID(int=1), cluster="c", node="n07", at=DUE, action="drain", reason=reason,
            owner="probing", state="done",
        )  # fmt: skip
        green = resume_policy.GreenTime(since=DUE, beats=1000, last_at=DUE + DAY)
        return resume_policy.DrainedNode(drain=drain, kinds=frozenset(), green=green)

    policy = settings.PolicySettings()
    assert (
        resume_policy.judge(drained("probing: ib_link mlx5_0"), policy, DUE + DAY)[0]
        is resume_policy.ResumeStep.RESUME
    )
    verdict, why = resume_policy.judge(drained(f"{vocabulary.LEMON_PREFIX}, 97 %"), policy, DUE + DAY)
    assert verdict is resume_policy.ResumeStep.WAIT
    assert "lemon repaired" in why


def test_the_reason_fits_slurm() -> None:
    """Short, ours, with the command that tells why."""
    score = records.LemonScore(
        cluster="c", node="n07", day=fleet.DAY, multi_node_node_fails=5, single_node_node_fails=1, score=0.97,
        verdict="lemon", made_at=DUE,
    )  # fmt: skip
    assert lemon_action.reason(score) == "probing: lemon, 97 %, 6 failures; probing-ctl lemon list n07"


def test_the_mail_leaves_greylisting_behind(night: context.Context) -> None:
    """Night, outbox, a server that says 450 first: delivered on the retry, once, as it was made."""
    lemon.run(night)
    box = mail_server.Box()
    box.replies = ["450 4.7.1 greylisted, come back later"]
    with mail_server.running(box) as port:
        night.config = dataclasses.replace(
            night.config, mail=dataclasses.replace(night.config.mail, port=port)
        )
        assert mail.run(night) == "1 waiting"
        assert mail.run(night) == ""
        set_clock(night, night.clock.now() + timedelta(seconds=night.config.mail.retry_s))
        assert mail.run(night) == "1 sent"
        assert mail.run(night) == ""
    assert [to for to, _ in box.mails] == [["ops@example.org"]]
    assert box.message()["Subject"] == "[c] 1 new lemon: n07"


def test_the_webhook_gets_the_night_signed(night: context.Context, tmp_path: Path) -> None:
    """Mail and post are messages of their own: the one waits for its server, the other for its."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    with_lemon(night, webhook_url="http://127.0.0.1:1/hook", webhook_secret_file=str(secret))
    assert lemon.run(night).endswith("mail queued; webhook queued")
    assert mail.run(night) == "2 waiting"
    (hook,) = [x for x in queue.of(night.config).messages() if x.kind == "webhook"]
    assert [s["node"] for s in json.loads(hook.body)["new"]] == ["n07"]


def test_what_users_exclude_is_kept(night: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Polled while the job lives, counted once per job and node, in the night's score."""
    set_clock(night, fleet.at(0.5))
    slurm.held = {
        70: fakes.live_job(70, user="eve", excluded_nodes=("n07", "n08", "n07")),
        71: fakes.live_job(71, user="bob", excluded_nodes=("n07",)),
    }
    assert exclusions.run(night) == "3 exclusions"
    assert exclusions.run(night) == ""
    set_clock(night, DUE)
    lemon.run(night)
    assert night.store.lemon_scores(node="n07")[0].excl_jobid_count == 2
