from __future__ import annotations

import dataclasses
import logging
import threading
from concurrent import futures
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import errors
from probing_cluster.reports.sending import smtp

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Postman:
    """Answers with the outcomes given, in order, then delivers."""

    def __init__(self, *outcomes: smtp.SendOutcome | errors.SettingsError) -> None:
        self.outcomes = list(outcomes)
        self.got: list[tuple[str, tuple[str, ...], bytes]] = []

    def __call__(self, message: queue.QueuedMessage) -> smtp.SendOutcome:
        self.got.append((message.key, message.recipients, message.body))
        answer = self.outcomes.pop(0) if self.outcomes else smtp.SendOutcome(sent=message.recipients)
        if isinstance(answer, errors.SettingsError):
            raise answer
        return answer


@pytest.fixture
def box(tmp_path: Path) -> queue.Outbox:
    return queue.Outbox(tmp_path / "mail", retry=5 * MINUTE, keep_trying=timedelta(days=5))


def message(key: str = "lemon.c.2026-11-20", *recipients: str) -> queue.QueuedMessage:
    return queue.QueuedMessage(
        key=key, kind="mail", body=b"Subject: x\r\n\r\n\xff", recipients=recipients or ("a", "b"), made_at=NOW
    )


def states(box: queue.Outbox) -> list[str]:
    return [x.state for x in box.messages()]


def test_a_key_is_delivered_once(box: queue.Outbox) -> None:
    """Put twice it is one message; after delivery its name still keeps a second copy out."""
    postman = Postman()
    assert box.put(message())
    assert not box.put(message())
    assert [x.state for x in box.flush(postman, NOW)] == ["sent"]
    assert not box.put(message())
    assert box.flush(postman, NOW + MINUTE) == []
    assert postman.got == [("lemon.c.2026-11-20", ("a", "b"), b"Subject: x\r\n\r\n\xff")]
    assert box.put(message(), again=True)
    assert states(box) == ["waiting"]


def test_greylisting_waits_longer_each_time_and_asks_nobody_twice(box: queue.Outbox) -> None:
    """After one recipient has it only the other is tried, at 5, 10, 20 … minutes."""
    postman = Postman(
        smtp.SendOutcome(sent=("a",), later={"b": "450 greylisted"}), smtp.SendOutcome(later={"b": "450"})
    )
    box.put(message())
    box.flush(postman, NOW)
    (waits,) = box.messages()
    assert (waits.recipients, waits.next_at, waits.why) == (("b",), NOW + 5 * MINUTE, "b: 450 greylisted")
    assert box.flush(postman, NOW + 4 * MINUTE) == []
    box.flush(postman, NOW + 5 * MINUTE)
    assert box.messages()[0].next_at == NOW + 15 * MINUTE
    box.flush(postman, NOW + 15 * MINUTE)
    assert states(box) == ["sent"]
    assert [recipients for _, recipients, _ in postman.got] == [("a", "b"), ("b",), ("b",)]


def test_it_survives_a_restart(box: queue.Outbox, tmp_path: Path) -> None:
    """What waits is on disk, readable by its owner alone."""
    box.put(message())
    box.flush(Postman(smtp.SendOutcome(later={"a": "away", "b": "away"})), NOW)
    again = queue.Outbox(tmp_path / "mail", retry=MINUTE, keep_trying=timedelta(days=5))
    assert again.messages() == box.messages()
    assert again.messages()[0].body == message().body
    assert {oct(p.stat().st_mode & 0o777) for p in (tmp_path / "mail").iterdir()} == {"0o600"}
    assert (tmp_path / "mail").stat().st_mode & 0o777 == 0o700


def test_a_refusal_is_kept_and_alarmed(box: queue.Outbox, caplog: pytest.LogCaptureFixture) -> None:
    """A 5xx ends the tries; the message stays with its reason until a person sends it again."""
    box.put(message())
    with caplog.at_level(logging.ERROR):
        box.flush(Postman(smtp.SendOutcome(sent=("a",), never={"b": "550 no such user"})), NOW)
    (failed,) = box.messages()
    assert (failed.state, failed.recipients, failed.why) == ("failed", ("b",), "b: 550 no such user")
    assert failed.body
    assert [r.message for r in caplog.records] == ["message not delivered"]
    assert box.flush(Postman(), NOW + timedelta(days=2)) == []
    postman = Postman()
    assert [x.state for x in box.flush(postman, NOW + timedelta(days=2), all_now=True)] == ["sent"]
    assert postman.got[0][1] == ("b",)


def test_a_server_that_stays_away_is_given_up_at_last(box: queue.Outbox) -> None:
    """Waits are at most four hours; after keep_trying it has failed, and is kept."""
    box.put(message())
    away = smtp.SendOutcome(later={"a": "away", "b": "away"})
    now, tries = NOW, 0
    while states(box) == ["waiting"]:
        waited = (box.messages()[0].next_at or now) - now
        assert waited <= queue.MOST_WAIT
        now += waited
        box.flush(Postman(away), now)
        tries += 1
        assert tries < 100
    assert states(box) == ["failed"]
    assert now - NOW >= timedelta(days=5)


def test_settings_that_cannot_work_hold_it_until_they_are_mended(
    box: queue.Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    """A password file gone wrong is said aloud and costs no mail."""
    box.put(message())
    postman = Postman(errors.SettingsError("password_file cannot be read"))
    with caplog.at_level(logging.ERROR):
        box.flush(postman, NOW)
    assert "password_file" in box.messages()[0].why
    assert [r.message for r in caplog.records] == ["message held up"]
    box.flush(postman, NOW + 5 * MINUTE)
    assert states(box) == ["sent"]


def test_a_server_that_does_not_answer_keeps_its_own_lane_only(box: queue.Outbox) -> None:
    """While one lane is stuck, a later round delivers the other's; what is put into the stuck one goes with its own round."""
    slow, quick = (dataclasses.replace(message(name), lane=name) for name in ("slow", "quick"))
    calls, answers = threading.Event(), threading.Event()
    box.put(slow)

    def stuck(found: queue.QueuedMessage) -> smtp.SendOutcome:
        calls.set()
        assert answers.wait(60)
        return smtp.SendOutcome(sent=found.recipients)

    with futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(box.flush, stuck, NOW)
        assert calls.wait(60)
        box.put(quick)
        box.put(dataclasses.replace(slow, key="another"))
        postman = Postman()
        second = box.flush(postman, NOW, wait=False)
        answers.set()
        assert {x.key for x in first.result(60)} == {"slow", "another"}
    assert [(x.key, x.state) for x in second] == [("quick", "sent")]
    assert [key for key, _, _ in postman.got] == ["quick"]


def test_names_of_sent_letters_go_in_the_end(box: queue.Outbox) -> None:
    """After a month nothing is left of what was delivered."""
    box.put(message())
    box.flush(Postman(), NOW)
    box.forget(NOW + queue.KEPT + MINUTE)
    assert box.messages() == []


def test_what_failed_goes_in_the_end_and_what_waits_stays(box: queue.Outbox) -> None:
    """Mails to an address that nobody has any more would pile up, and be read at every round."""
    box.put(message())
    box.put(dataclasses.replace(message(), key="waits"))
    box.update(dataclasses.replace(message(), state="failed"))
    assert box.forget(NOW + queue.KEPT - MINUTE) == 0
    assert box.forget(NOW + queue.KEPT + MINUTE) == 1
    assert [(x.key, x.state) for x in box.messages()] == [("waits", "waiting")]


def test_a_lane_of_messages_that_failed_is_left_alone(box: queue.Outbox, tmp_path: Path) -> None:
    """Its lock is not even asked for: each round would read all of them twice."""
    box.put(message())
    box.update(dataclasses.replace(message(), state="failed"))
    assert box.flush(Postman(), NOW) == []
    assert list((tmp_path / "mail").glob("*.lock")) == []
    assert [x.state for x in box.flush(Postman(), NOW, all_now=True)] == ["sent"]


def test_a_spoilt_file_stops_no_other_letter(box: queue.Outbox, tmp_path: Path) -> None:
    """Half a file from a full disk: told, left alone, the others go out."""
    box.put(message())
    (tmp_path / "mail" / "other.letter").write_text('{"key": ')
    assert [x.state for x in box.flush(Postman(), NOW)] == ["sent"]
    assert (tmp_path / "mail" / "other.unreadable").exists()


def test_a_directory_that_cannot_be_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    """Named, not a traceback."""
    (tmp_path / "file").write_text("")
    box = queue.Outbox(tmp_path / "file" / "mail", retry=MINUTE, keep_trying=MINUTE)
    assert box.messages() == []
    with pytest.raises(errors.SettingsError, match="spool_directory"):
        box.put(dataclasses.replace(message()))
