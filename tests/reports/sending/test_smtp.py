from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import mail_server
import pytest

from probing_cluster.core import errors, settings
from probing_cluster.reports.sending import smtp

MAIL = b"Subject: hello\r\n\r\nbody\r\n"
TWO = ("a@example.org", "b@example.org")


@pytest.fixture
def box() -> mail_server.Box:
    return mail_server.Box()


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return mail_server.certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("open sesame\n")
    path.chmod(0o600)
    return str(path)


def to(port: int, **changes: object) -> settings.MailSettings:
    values: dict[str, object] = {
        "host": "localhost", "port": port, "security": "none", "sender": "probing@example.org", "deadline_s": 20.0
    }  # fmt: skip
    return settings.MailSettings(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def plain(box: mail_server.Box) -> Iterator[int]:
    with mail_server.running(box) as port:
        yield port


def test_several_recipients_get_one_mail(box: mail_server.Box, plain: int) -> None:
    """One transfer, everybody on it, nobody left."""
    assert smtp.send(to(plain), MAIL, TWO) == smtp.SendOutcome(sent=TWO)
    assert [rcpt for rcpt, _ in box.mails] == [list(TWO)]
    assert box.mails[0][1] == MAIL


def test_starttls_with_login(box: mail_server.Box, cert: tuple[Path, Path], secret: str) -> None:
    """Encrypted, the certificate checked against ca_file, then logged in."""
    with mail_server.running(box, cert=cert, login=("me", "open sesame")) as port:
        config = to(port, security="starttls", ca_file=str(cert[0]), username="me", password_file=secret)
        assert smtp.send(config, MAIL, TWO).sent == TWO
    assert box.was_tls == [True]


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # aiosmtpd sees STARTTLS only
def test_tls_from_the_first_byte(box: mail_server.Box, cert: tuple[Path, Path], secret: str) -> None:
    """security = ssl."""
    with mail_server.running(box, cert=cert, implicit=True, login=("me", "open sesame")) as port:
        config = to(port, security="ssl", ca_file=str(cert[0]), username="me", password_file=secret)
        assert smtp.send(config, MAIL, TWO).sent == TWO
    assert len(box.mails) == 1


@pytest.mark.parametrize("security", ["starttls", "ssl"])
def test_a_certificate_nobody_vouches_for_gets_no_mail(
    box: mail_server.Box, cert: tuple[Path, Path], security: str
) -> None:
    """Without ca_file the self-signed server is refused; the mail waits and a person is told."""
    with mail_server.running(box, cert=cert, implicit=security == "ssl") as port:
        outcome = smtp.send(to(port, security=security), MAIL, TWO)
    assert (outcome.sent, set(outcome.later), outcome.never) == ((), set(TWO), {})
    assert "certificate" in outcome.trouble
    assert box.mails == []


def test_tls_is_never_given_up(box: mail_server.Box, plain: int) -> None:
    """A server (or somebody between) that offers no STARTTLS gets nothing in the clear."""
    outcome = smtp.send(to(plain, security="starttls"), MAIL, TWO)
    assert "offers no STARTTLS" in outcome.trouble
    assert set(outcome.later) == set(TWO)
    assert box.mails == []


def test_a_wrong_password_is_told_and_the_mail_waits(
    box: mail_server.Box, cert: tuple[Path, Path], secret: str
) -> None:
    """A 535 is for a person to mend, not the end of the mail."""
    with mail_server.running(box, cert=cert, login=("me", "other")) as port:
        config = to(port, security="starttls", ca_file=str(cert[0]), username="me", password_file=secret)
        outcome = smtp.send(config, MAIL, TWO)
    assert outcome.trouble.startswith("login as me was refused")
    assert set(outcome.later) == set(TWO)


def test_greylisting_is_for_later_and_a_refusal_for_good(box: mail_server.Box, plain: int) -> None:
    """Each recipient by its own reply: 450 again, 550 never, the third has it."""
    box.refuse = {"a@example.org": "450 4.7.1 greylisted", "b@example.org": "550 5.1.1 no such user"}
    outcome = smtp.send(to(plain), MAIL, (*TWO, "c@example.org"))
    assert outcome.sent == ("c@example.org",)
    assert outcome.later == {"a@example.org": "450 4.7.1 greylisted"}
    assert outcome.never == {"b@example.org": "550 5.1.1 no such user"}


@pytest.mark.parametrize(("reply", "later"), [("451 4.3.0 busy", True), ("554 5.7.1 spam", False)])
def test_a_reply_to_the_whole_mail(box: mail_server.Box, plain: int, reply: str, later: bool) -> None:
    """After DATA the answer holds for all recipients."""
    box.data_replies = [reply]
    outcome = smtp.send(to(plain), MAIL, TWO)
    assert dict(outcome.later if later else outcome.never) == dict.fromkeys(TWO, reply)
    assert (outcome.sent, box.mails) == ((), [])


def test_nobody_listens() -> None:
    """A server that is away is for later."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = smtp.send(to(taken.getsockname()[1], host="127.0.0.1"), MAIL, TWO)
    assert set(outcome.later) == set(TWO)
    assert (outcome.never, outcome.trouble) == ({}, "")


def test_a_server_that_says_nothing() -> None:
    """The deadline ends it."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        outcome = smtp.send(to(mute.getsockname()[1], host="127.0.0.1", deadline_s=0.2), MAIL, TWO)
    assert set(outcome.later) == set(TWO)


def test_a_login_never_travels_in_the_clear(secret: str) -> None:
    """Refused before any connection is made, and so is a password that others can read."""
    config = to(25, host="mail.example.org", username="me", password_file=secret)
    with pytest.raises(errors.SettingsError, match="in the clear"):
        smtp.send(config, MAIL, TWO)
    Path(secret).chmod(0o644)
    with pytest.raises(errors.SettingsError, match="0600 is needed"):
        smtp.send(dataclasses.replace(config, security="starttls"), MAIL, TWO)
    with pytest.raises(errors.SettingsError, match="security must be"):
        smtp.send(to(25, security="tls"), MAIL, TWO)
