"""A real SMTP server on a thread, with what real ones do: TLS, logins, greylisting, refusals."""

from __future__ import annotations

import contextlib
import email
import email.message
import email.policy
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiosmtpd import controller
from aiosmtpd import smtp as smtpd


class Box:
    """Keeps what it accepts; `replies` are given to the next recipients, in order, instead of 250."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes]] = []
        self.at_s: list[float] = []
        """When each was taken, by time.time()."""
        self.replies: list[str] = []
        self.data_replies: list[str] = []
        self.refuse: dict[str, str] = {}
        self.was_tls: list[bool] = []

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        reply = self.refuse.get(address) or (self.replies.pop(0) if self.replies else "250 OK")
        if reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.data_replies:
            return self.data_replies.pop(0)
        self.at_s.append(time.time())
        self.mails.append((list(envelope.rcpt_tos), envelope.content))
        self.was_tls.append(session.ssl is not None)
        return "250 kept"

    def message(self, n: int = -1) -> email.message.EmailMessage:
        """One of the mails, parsed."""
        found = email.message_from_bytes(self.mails[n][1], policy=email.policy.default)
        assert isinstance(found, email.message.EmailMessage)
        return found


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@contextlib.contextmanager
def running(
    box: Box,
    *,
    cert: tuple[Path, Path] | None = None,
    implicit: bool = False,
    login: tuple[str, str] | None = None,
) -> Iterator[int]:
    """The server on a free port of localhost; TLS where it has a certificate, from the first byte when `implicit`."""
    context = None
    if cert is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*cert)

    def knows(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> smtpd.AuthResult:
        given = (data.login.decode(), data.password.decode())
        return smtpd.AuthResult(success=given == login, handled=False)

    options: dict[str, Any] = {}
    if login is not None:
        options |= {
            "authenticator": knows,
            "auth_required": True,
            "auth_require_tls": cert is not None and not implicit,
        }
    if implicit:
        options["ssl_context"] = context
    elif context is not None:
        options["tls_context"] = context
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    made = controller.Controller(box, hostname="localhost", port=port, server_hostname="localhost", **options)
    made.start()
    try:
        yield port
    finally:
        made.stop()
