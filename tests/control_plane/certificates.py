"""A certificate of its own authority for localhost, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(directory: Path) -> tuple[Path, Path]:
    """(certificate, key) below `directory`; the certificate is its own authority. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    crt, key = directory / "door.crt", directory / "door.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
         "-out", crt, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "90"],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    return crt, key
