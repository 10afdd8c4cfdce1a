"""Reads from PEM files when X.509 certificates end: operators must know it in time.

Compute nodes have neither OpenSSL's program nor a library for certificates, and Python's own `ssl` shows a peer's only.
So the two DER fields are read here (RFC 5280, 4.1); nothing is verified, which is TLS's business.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from probing_cluster.core import database_url, errors, settings

MAX_BYTES = 4 << 20
"""The system's bundle of all authorities is a quarter of a megabyte."""
SEQUENCE, INTEGER, VERSION, UTC_TIME, GENERALIZED_TIME = 0x30, 0x02, 0xA0, 0x17, 0x18
_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class CertificateFile:
    """A certificate file that the settings name."""

    key: str
    """Where: `[agent] database_url sslcert`."""
    path: Path
    authority: bool
    """True for a certificate of an authority, false for our own."""


def named(config: settings.Settings) -> list[CertificateFile]:
    """Every certificate file that these settings name, each once: what comes in to the database, and the doors."""
    service = config.service
    settings_paths = [
        *_in_url("[database] url", config.database.url),
        *_in_url("[agent] database_url", config.agent.database_url),
        ("[service] tls_certificate", service.tls_certificate, False),
        ("[service] tls_ca", service.tls_ca, True),
        ("[door] tls_certificate", config.door.tls_certificate, False),
        ("[door] tls_ca", config.door.tls_ca, True),
        *_in_url("[door] database_url", config.door.database_url),
    ]
    once: dict[str, CertificateFile] = {}
    for key, path, authority in settings_paths:
        if path and path != "system":
            once.setdefault(path, CertificateFile(key=key, path=Path(path), authority=authority))
    return list(once.values())


def _in_url(key: str, url: str) -> Iterator[tuple[str, str, bool]]:
    found = database_url.parameters(url)
    yield f"{key} sslcert", found.get("sslcert", ""), False
    yield f"{key} sslrootcert", found.get("sslrootcert", ""), True


def ends(path: Path, *, authority: bool = False) -> datetime:
    """The earliest end of the file's certificates, UTC.

    A chain holds as long as the first to end. A file of authorities serves as long as one of them does: a new one is
    put beside the old before the old one ends. Raises MalformedInput where the file holds no certificate, OSError
    where it cannot be read.
    """
    with path.open("rb") as file:
        return ends_of(file.read(MAX_BYTES), authority=authority)


def ends_of(pem: bytes, *, authority: bool = False) -> datetime:
    """`ends` of a file's bytes."""
    try:
        found = [not_after(base64.b64decode(b"".join(body.split()))) for body in _PEM.findall(pem)]
    except (binascii.Error, ValueError, IndexError) as exc:
        raise errors.MalformedInput(f"not a certificate: {exc}") from exc
    if not found:
        raise errors.MalformedInput("no certificate in it")
    return max(found) if authority else min(found)


def not_after(der: bytes) -> datetime:
    """`validity.notAfter` of one DER certificate, UTC; ValueError or IndexError where it is none."""
    certificate = _expect(_elements(der), SEQUENCE)
    fields = _elements(_expect(_elements(certificate), SEQUENCE))
    tag, body = next(fields, (0, b""))
    if tag == VERSION:
        tag, body = next(fields, (0, b""))
    if tag != INTEGER:
        raise ValueError("no serial number")
    _expect(fields, SEQUENCE)  # the signature's algorithm
    _expect(fields, SEQUENCE)  # the issuer
    validity = _elements(_expect(fields, SEQUENCE))
    next(validity, None)
    tag, body = next(validity, (0, b""))
    text = body.decode("ascii")
    if tag == UTC_TIME:  # two digits of the year: 50 to 99 are 1950 to 1999
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError("no time at which it ends")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _expect(fields: Iterator[tuple[int, bytes]], tag: int) -> bytes:
    found, body = next(fields, (0, b""))
    if found != tag:
        raise ValueError(f"tag {found:#04x} where {tag:#04x} belongs")
    return body


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each element in turn; one that runs past the end raises ValueError."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            width = length & 0x7F
            length = int.from_bytes(der[at : at + width], "big")
            at += width
        if at + length > len(der):
            raise ValueError("cut off")
        yield tag, der[at : at + length]
        at += length
