"""The gate: rates, hosts, bodies, headers, tokens that end, and actions done once."""

from __future__ import annotations

import dataclasses
import time
import urllib.error

import fakes
import pytest
import web_world
from web_world import ACTOR, OPERATOR, OWNER, World

from probing_cluster.control_plane.door import callers, report_door, web_keys
from probing_cluster.core import errors, records, settings
from probing_cluster.reports.asking import door
from probing_cluster.web import serve
from probing_cluster.web.access import gate, login_tries, rates
from probing_cluster.web.api import acts


def test_a_bucket_empties_and_fills() -> None:
    """Five seconds' worth at once, then as fast as it fills; each name has its own."""
    now = [0.0]
    buckets = rates.Rates(2.0, now_s=lambda: now[0])
    assert [buckets.wait_s("a") for _ in range(10)] == [0.0] * 10
    assert buckets.wait_s("a") == pytest.approx(0.5)
    assert buckets.wait_s("b") == 0.0
    now[0] = 0.5
    assert buckets.wait_s("a") == 0.0
    assert buckets.wait_s("a") > 0


def test_too_many_are_told_to_wait(store) -> None:
    """429 with Retry-After, for users and for addresses that try to log in."""
    made = web_world.world_on(store, requests_per_s=2.0)
    browser = made.as_user(OWNER)
    found = [browser.get("/api/v1/me") for _ in range(12)]
    assert found[0].status_code == 200
    assert found[-1].status_code == 429
    assert int(found[-1].headers["retry-after"]) >= 1
    stranger = made.as_user(None)
    tries = [
        stranger.post("/login", data={"key": "x" * 40}, address="192.0.2.7").status_code for _ in range(3)
    ]
    assert tries[0] == 403
    assert tries[-1] == 429
    made.site.reader.close()


def test_wrong_keys_of_one_user_keep_nobody_behind_their_address_out(store) -> None:
    """Everybody behind a proxy has its address: the others see the login page, and their links open it."""
    made = web_world.world_on(store, requests_per_s=2.0)
    attacker = made.as_user(None)
    for _ in range(30):
        answer = attacker.post("/login", data={"key": "x" * 40}, address="192.0.2.7")
        attacker.get("/api/v1/me", address="192.0.2.7")
        attacker.get("/login", headers={gate.LINK_HEADER: "y" * 64}, address="192.0.2.7")
    assert answer.status_code == 429
    other = made.as_user(None)
    assert other.get("/login", address="192.0.2.7").status_code == 200
    assert other.get("/static/login.js", address="192.0.2.7").status_code == 200
    link = made.key(OWNER, "link")
    time.sleep(login_tries.READ_AGAIN_S)
    first = other.post("/login", data={"key": link}, address="192.0.2.7")
    assert (first.status_code, first.headers["location"]) == (303, "/")
    again = other.post("/login", data={"key": link}, address="192.0.2.7")
    assert again.status_code in (403, 429), "a link is spent once"
    made.site.reader.close()


def test_a_flood_of_wrong_keys_reads_the_open_links_twice_a_second_at_most() -> None:
    """And where the database is away no key is let through."""
    now_s, reads = [100.0], []

    class Links:
        def links(self) -> frozenset[str]:
            reads.append(now_s[0])
            if len(reads) > 2:
                raise errors.DatabaseUnavailable("away")
            return frozenset({web_keys.hash_of("good")})

    tries = login_tries.LoginTries(
        Links(),  # type: ignore[arg-type]
        rates.Rates(1.0, now_s=lambda: now_s[0]),
        now_s=lambda: now_s[0],
    )
    assert tries.wait_s("a", "bad") == 0.0
    assert [tries.wait_s("a", "bad") > 0 for _ in range(99)] == [True] * 99
    assert (tries.wait_s("a", "good"), len(reads)) == (0.0, 1)
    now_s[0] += login_tries.READ_AGAIN_S
    assert (tries.wait_s("a", "good"), len(reads)) == (0.0, 2)
    now_s[0] += login_tries.READ_AGAIN_S
    assert tries.wait_s("a", "good") > 0


def test_a_foreign_host_is_refused(world: World) -> None:
    """A name that somebody else points at us opens nothing."""
    assert world.as_user(OWNER).get("/api/v1/me", headers={"host": "evil.example"}).status_code == 400


def test_every_answer_is_dressed(world: World) -> None:
    """No script but our files, no frame, no foreign address, kept by nobody else: pages, errors and files."""
    for user, path in (
        (OWNER, "/"),
        (OWNER, "/api/v1/jobs"),
        (None, "/login"),
        (None, "/api/v1/me"),
        (None, "/static/web.js"),
    ):
        headers = world.as_user(user).get(path).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'"
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert "private" in world.as_user(OWNER).get("/api/v1/jobs").headers["cache-control"]


def test_a_body_is_bounded(world: World) -> None:
    """64 KiB, whoever sends it."""
    assert world.machine(OWNER).post("/api/v1/sql", content=b"x" * 70_000).status_code == 413


def test_etags_spare_what_has_not_changed(world: World) -> None:
    """304 without a body for the same, 200 for what is new; one viewer's tag is not another's answer."""
    browser = world.as_user(OWNER)
    tag = browser.get("/api/v1/jobs").headers["etag"]
    again = browser.get("/api/v1/jobs", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    world.store.upsert_attempts([web_world.attempt(70)])
    assert browser.get("/api/v1/jobs", headers={"if-none-match": tag}).status_code == 200
    assert world.as_user(OPERATOR).get("/api/v1/jobs", headers={"if-none-match": tag}).status_code == 200


def test_an_action_is_done_once(world: World) -> None:
    """The same key twice: one drain, one row, the same answer; another request under it is refused; each leaves the command's row."""
    browser = world.as_user(ACTOR)

    def drain(reason: str, key: str, node: str = "n1"):
        return browser.post(
            f"/api/v1/nodes/{node}/drain", json={"reason": reason}, headers={"idempotency-key": key}
        )

    first, second = drain("smells", "key-of-one"), drain("smells", "key-of-one")
    assert (first.status_code, first.json()) == (200, {"subject": "n1", "outcome": "drained"})
    assert (second.status_code, second.json()) == (200, first.json())
    assert drain("other", "key-of-one").status_code == 422
    assert drain("smells", "short").status_code == 400
    assert drain(" ", "key-of-two").status_code == 400
    assert drain("x", "key-of-six", "n99").status_code == 404
    assert world.slurm.acts == [("drain", "n1", f"probing: smells ({ACTOR})")]
    (row,) = world.store.drains(open_only=True)
    assert (row.node, row.owner, row.state) == ("n1", ACTOR, "done")
    for act in ("ack", "resume"):
        found = browser.post(f"/api/v1/nodes/n1/{act}", json={}, headers={"idempotency-key": f"key-of-{act}"})
        assert found.status_code == 200, found.text
    assert [n.author for n in world.store.notes(action="ack")] == [ACTOR]
    assert world.store.drains(open_only=True) == []


def test_resume_says_what_the_agent_still_reports(world: World) -> None:
    """The drain is lifted, as asked for; that a grave fault stands all the same is part of the answer."""
    gpu_lost = records.HealthEvent(
        event_id=records.make_event_id("c", "n1", "check", "1"),
        cluster="c",
        node="n1",
        at=fakes.NOW,
        observed_at=fakes.NOW,
        kind="gpu_lost",
        severity=records.Severity.HIGH,
        source="check",
        message="1 of 2 GPUs do not answer",
        device="gpu1",
    )
    client = world.client(ACTOR, acts=True)
    outcomes = []
    for events in ((), (gpu_lost,)):
        fakes.deliver(world.store, "n1", *events)
        client.drain("n1", reason="smells")
        outcomes.append(client.resume("n1")["outcome"])
    assert "still reports" not in outcomes[0]
    assert "still reports gpu_lost gpu1" in outcomes[1]
    assert world.store.drains(open_only=True) == []


def test_a_node_is_said_to_be_repaired(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `probing-ctl set-healthy` says it: its agent is asked to look again; unseen nothing is lifted, and seen to be well its drain is."""
    monkeypatch.setattr(acts, "LOOK_S", 0.0)
    fakes.deliver(world.store, "n1")
    client = world.client(ACTOR, acts=True)
    client.drain("n1", reason="smells")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        client.set_healthy("n1")
    calls = world.store.rows("SELECT verb FROM probing.node_request", {})
    assert [r["verb"] for r in calls] == ["recheck"]
    assert len(world.store.drains(open_only=True)) == 1
    monkeypatch.setattr(
        acts.recheck, "look_again", lambda _store, nodes, *_by, **_wait: dict.fromkeys(nodes, "")
    )
    assert client.set_healthy("n1", note="new cable")["subject"] == "n1"
    assert world.store.drains(open_only=True) == []
    assert [n.author for n in world.store.notes() if n.note == "new cable"] == [ACTOR]


def test_a_persons_verdict_is_kept(world: World) -> None:
    """As `probing-ctl verdict` keeps it, with the note of who set it."""
    body = {"cause": "user_error", "note": "a bad batch"}
    found = world.as_user(ACTOR).post(
        "/api/v1/jobs/7/verdict", json=body, headers={"idempotency-key": "verdict-1"}
    )
    assert found.status_code == 200, found.text
    (verdict,) = world.store.verdicts(job_ids=[7])
    assert (verdict.cause, verdict.author, verdict.summary) == ("user_error", ACTOR, "a bad batch")
    assert [n.action for n in world.store.notes()] == ["verdict"]


def test_to_see_everything_is_not_to_act(world: World) -> None:
    """Slurm's operator looks and does not drain; a token that only reads does not act for root either."""
    options = {"json": {"reason": "x"}, "headers": {"idempotency-key": "k" * 16}}
    assert world.as_user(OPERATOR).post("/api/v1/nodes/n1/drain", **options).status_code == 403
    assert world.machine(ACTOR).post("/api/v1/nodes/n1/drain", **options).status_code == 403
    assert world.slurm.acts == []
    assert world.machine(ACTOR, acts=True).post("/api/v1/nodes/n1/drain", **options).status_code == 200


def test_a_form_acts_as_the_api_does(world: World) -> None:
    """Without script: a form of the node's page, done once, back with what became of it."""
    browser = world.as_user(ACTOR)
    fields = {"csrf": browser.headers.pop("x-probing-csrf"), "request_key": "a" * 16, "reason": "smells"}
    for _ in range(2):
        found = browser.post("/act/drain/n1", data=fields)
        assert (found.status_code, found.headers["location"]) == (303, f"/nodes/n1?done={'a' * 16}")
    assert 'role="status">n1: drained' in browser.get(found.headers["location"]).text
    assert len(world.slurm.acts) == 1
    assert browser.post("/act/ack/n1", data=fields).status_code == 400
    assert browser.post("/act/drain/n1", data=fields | {"csrf": "0" * 64}).status_code == 403


def test_a_link_does_not_choose_what_a_page_says_was_done(world: World) -> None:
    """Whoever sends an operator a link puts no words on the page, nor another person's outcome, nor a key that is none."""
    browser = world.as_user(ACTOR)
    fields = {"csrf": browser.headers.pop("x-probing-csrf"), "request_key": "b" * 16, "reason": "smells"}
    assert browser.post("/act/drain/n1", data=fields).status_code == 303
    for words in ("Not+done:+log+in+anew+at+https://evil.example", "%00", "x" * 2000):
        for page in ("/nodes/n1", "/jobs/7"):
            found = browser.get(f"{page}?done={words}")
            assert found.status_code == 200
            assert "evil.example" not in found.text
    assert '"status">n1: drained' in browser.get(f"/nodes/n1?done={'b' * 16}").text
    assert '"status">n1: ' not in world.as_user(OPERATOR).get(f"/nodes/n1?done={'b' * 16}").text
    assert browser.post("/act/ack/n1", data=fields | {"request_key": "k" * 5000}).status_code == 400


def test_what_ended_opens_nothing(world: World) -> None:
    """A session after Log out, a token after its revocation, a user's keys after all were taken."""
    browser = world.as_user(OWNER)
    assert browser.post("/logout").status_code == 303
    assert browser.get("/api/v1/me").status_code == 401
    machine = world.machine(OWNER)
    assert machine.get("/api/v1/me").status_code == 200
    assert world.site.keys.revoke(OWNER, "t") == 1
    assert machine.get("/api/v1/me").status_code == 403


def test_the_door_gives_keys_to_whom_it_knows(world: World) -> None:
    """A link for the caller, tokens listed and revoked by their owner, others' by root alone."""
    service, known = world.site.service, world.site.known

    def ask(uid: int, op: str, **given):
        return report_door.answer(
            service, known, callers.caller_of(uid), {"v": door.VERSION, "op": op} | given
        )

    link = ask(65534, "web_login")["rows"]
    assert (link["user"], link["url"].split("#")[0]) == (OWNER, "http://127.0.0.1:8780/login")
    assert world.site.keys.redeem(link["url"].split("#")[1]).user == OWNER
    token = ask(65534, "web_token", label="watch", days=3)["rows"]["token"]
    found = world.site.keys.find(web_keys.proof_of(token))
    assert (found.user, found.kind, found.acts) == (OWNER, "token", False)
    assert ask(65534, "web_token", label="w", days=3, act=True)["error"] == "not_permitted"
    assert ask(65534, "web_token", label="", days=3)["error"] == "usage"
    assert ask(65534, "web_token", label="w", days=1e9)["error"] == "usage"
    assert [t["label"] for t in ask(65534, "web_tokens")["rows"]["tokens"]] == ["watch"]
    assert ask(1, "web_tokens")["rows"]["tokens"] == []
    assert ask(1, "web_revoke", user=OWNER)["error"] == "not_permitted"
    assert ask(0, "web_revoke", user=OWNER, label="watch")["rows"]["revoked"] == 1
    assert ask(4_000_000_000, "web_login")["error"] == "not_permitted"


def test_keys_are_hashed_at_rest(world: World) -> None:
    """Neither the key nor its proof stands in the database."""
    key = world.key(OWNER)
    rows = world.store.rows("SELECT * FROM probing.web_key", {})
    assert rows
    assert key not in str(rows)
    assert web_keys.proof_of(key) not in str(rows)


def test_off_loopback_there_is_tls_or_nothing() -> None:
    """An address that others reach, without a certificate: the server does not start."""
    web = settings.WebSettings(listen="0.0.0.0:8780")
    with pytest.raises(errors.SettingsError, match="tls_certificate"):
        serve.address(web)
    serve.address(dataclasses.replace(web, tls_certificate="c", tls_key="k"))
    serve.address(settings.WebSettings(listen="[::1]:8780"))
