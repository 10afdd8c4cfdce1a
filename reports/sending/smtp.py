"""Hands one mail to the site's SMTP server; the outcome by recipient: sent, to be sent later, or never.

RFC 5321: a 4xx reply is temporary (for example greylisting), a 5xx reply is final. A failure without a reply of the
server (no connection, no TLS, no login) is temporary, because a person may repair it. If the settings ask for TLS,
the mail is never sent in the clear.
"""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probing_cluster.core import errors, sanitize, secret_file, settings

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class SendOutcome:
    """The outcome of one mail by recipient."""

    sent: tuple[str, ...] = ()
    later: Mapping[str, str] = field(default_factory=dict)
    """Recipients to try again, with the reason."""
    never: Mapping[str, str] = field(default_factory=dict)
    """Recipients refused for good, with the reason."""
    trouble: str = ""
    """A problem that a person should fix: certificate, login, no TLS offered; else empty."""


def send(config: settings.MailSettings, message: bytes, recipients: Iterable[str]) -> SendOutcome:
    """One attempt to hand `message` over; raises SettingsError for settings that can never work."""
    wanted = tuple(recipients)
    _check(config)
    password = secret_file.read(Path(config.password_file)) if config.username else ""
    try:
        server = _connected(config, password)
        try:
            return _transfer(server, config.sender, wanted, message)
        finally:
            # The server has accepted or refused the mail by now; an error while closing changes nothing.
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.quit()
    except _SmtpProblem as exc:
        return SendOutcome(later=dict.fromkeys(wanted, str(exc)), trouble=str(exc))
    except smtplib.SMTPResponseException as exc:
        return _answered(wanted, exc.smtp_code, exc.smtp_error)
    except (OSError, smtplib.SMTPException) as exc:
        return SendOutcome(later=dict.fromkeys(wanted, f"{config.host}:{config.port}: {_words(exc)}"))


class _SmtpProblem(Exception):
    """A problem that a person should fix."""


def _check(config: settings.MailSettings) -> None:
    if config.security not in ("starttls", "ssl", "none"):
        raise errors.SettingsError(f"[mail] security must be starttls, ssl or none, not {config.security!r}")
    if config.username and config.security == "none" and config.host not in LOOPBACK:
        raise errors.SettingsError(
            "[mail] a login would travel in the clear; set security to starttls or ssl"
        )


def _connected(config: settings.MailSettings, password: str) -> smtplib.SMTP:
    """A connection, encrypted and logged in as asked."""
    try:
        if config.security == "ssl":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                config.host, config.port, timeout=config.deadline_s, context=_trust(config)
            )
        else:
            server = smtplib.SMTP(config.host, config.port, timeout=config.deadline_s)
        _on_opened(server, config, password)
    except ssl.SSLError as exc:
        raise _SmtpProblem(f"TLS with {config.host}:{config.port} failed: {_words(exc)}") from exc
    return server


def _on_opened(server: smtplib.SMTP, config: settings.MailSettings, password: str) -> None:
    try:
        if config.security == "starttls":
            _encrypt(server, config)
        if config.username:
            _login(server, config, password)
    except BaseException:
        server.close()
        raise


def _encrypt(server: smtplib.SMTP, config: settings.MailSettings) -> None:
    server.ehlo()
    if not server.has_extn("starttls"):
        raise _SmtpProblem(f"{config.host}:{config.port} offers no STARTTLS; nothing is sent in the clear")
    server.starttls(context=_trust(config))


def _login(server: smtplib.SMTP, config: settings.MailSettings, password: str) -> None:
    try:
        server.login(config.username, password)
    except smtplib.SMTPAuthenticationError as exc:
        raise _SmtpProblem(f"login as {config.username} was refused: {_text(exc.smtp_error)}") from exc
    except smtplib.SMTPNotSupportedError as exc:
        raise _SmtpProblem(f"{config.host}:{config.port} offers no login") from exc


def _trust(config: settings.MailSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=config.ca_file or None)
    except OSError as exc:
        raise errors.SettingsError(f"[mail] ca_file {config.ca_file}: {_words(exc)}") from exc


def _transfer(server: smtplib.SMTP, sender: str, wanted: tuple[str, ...], message: bytes) -> SendOutcome:
    try:
        refused = server.sendmail(sender, wanted, message)
    except smtplib.SMTPRecipientsRefused as exc:
        refused = exc.recipients
    later = {r: _reply(code, reply) for r, (code, reply) in refused.items() if code < 500}
    never = {r: _reply(code, reply) for r, (code, reply) in refused.items() if code >= 500}
    return SendOutcome(sent=tuple(r for r in wanted if r not in refused), later=later, never=never)


def _answered(wanted: tuple[str, ...], code: int, reply: bytes | str) -> SendOutcome:
    """A reply to the whole mail."""
    reasons = dict.fromkeys(wanted, _reply(code, reply))
    return SendOutcome(never=reasons) if code >= 500 else SendOutcome(later=reasons)


def _reply(code: int, reply: bytes | str) -> str:
    return f"{code} {_text(reply)}"


def _text(reply: bytes | str) -> str:
    return sanitize.clean(reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply, 300)


def _words(exc: BaseException) -> str:
    if isinstance(exc, socket.timeout):
        return "no answer in time"
    return sanitize.clean(str(exc) or type(exc).__name__, 300)
