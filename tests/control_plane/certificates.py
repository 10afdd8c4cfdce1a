"""Certificates made by openssl: of their own authority, or signed by one."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest


def self_signed(directory: Path, name: str = "door", days: int = 90) -> tuple[Path, Path]:
    """(certificate, key) for localhost below `directory`; the certificate is its own authority. Skips without openssl."""
    crt, key = directory / f"{name}.crt", directory / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
        "-out", crt, "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-days", str(days),
    )  # fmt: skip
    key.chmod(0o600)
    return crt, key


def end_of(crt: Path) -> datetime:
    """When it ends, as openssl reads it."""
    end = openssl("x509", "-in", crt, "-noout", "-enddate").partition("=")[2].strip()
    return datetime.strptime(end, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)


def openssl(*argv: str | Path) -> str:
    """What openssl says; skips where it is not installed."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    return subprocess.run(["openssl", *argv], check=True, capture_output=True, text=True).stdout
