"""When certificates end is read from the file as openssl reads it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import certificates, errors, settings
from tests.control_plane import certificates as made


@pytest.mark.parametrize("days", [1, 90, 3650, 36500])
def test_openssl_reads_the_same(tmp_path: Path, days: int) -> None:
    """Also beyond 2049, where the form of the time changes."""
    crt, _ = made.self_signed(tmp_path, days=days)
    ends = certificates.ends(crt)
    assert ends == made.end_of(crt)
    assert (ends.year >= 2050) == (days == 36500)


def test_rsa_and_an_old_certificate_without_a_version(tmp_path: Path) -> None:
    """Other keys and X.509 version 1 have their fields elsewhere."""
    crt, key = made.self_signed(tmp_path)
    old, request = tmp_path / "old.crt", tmp_path / "old.csr"
    plain = tmp_path / "conf"
    plain.write_text("[req]\ndistinguished_name=d\n[d]\n")
    made.openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "old.key", "-out", request, "-subj", "/CN=old", "-config", plain)  # fmt: skip
    made.openssl("x509", "-req", "-in", request, "-CA", crt, "-CAkey", key, "-set_serial", "7", "-days", "9", "-out", old)  # fmt: skip
    assert "Version: 1" in made.openssl("x509", "-in", old, "-noout", "-text")
    assert certificates.ends(old) == made.end_of(old)


def test_a_chain_ends_with_its_first_and_authorities_with_their_last(tmp_path: Path) -> None:
    """A new authority is put beside the old one: the file serves as long as the new one does."""
    soon, _ = made.self_signed(tmp_path, "soon", days=3)
    late, _ = made.self_signed(tmp_path, "late", days=300)
    both = tmp_path / "both.crt"
    both.write_text(f"# ours\n{soon.read_text()}subject=/CN=late\n{late.read_text()}")
    assert certificates.ends(both) == made.end_of(soon)
    assert certificates.ends(both, authority=True) == made.end_of(late)


def test_the_systems_own_bundle() -> None:
    """Every authority that Debian ships can be read."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if not bundle.exists():
        pytest.skip("no bundle of authorities on this machine")
    assert certificates.ends(bundle, authority=True) > datetime(2030, 1, 1, tzinfo=UTC)


def test_what_is_no_certificate(tmp_path: Path) -> None:
    """A key, a torn file, an empty one: malformed; one that is not there: as the system says."""
    crt, key = made.self_signed(tmp_path)
    pem = crt.read_bytes()
    wrong = (b"", key.read_bytes(), pem[: len(pem) // 2], pem.replace(b"M", b"!"), pem[:40] + pem[80:])
    for content in wrong:
        with pytest.raises(errors.MalformedInput):
            certificates.ends_of(content)
    with pytest.raises(FileNotFoundError):
        certificates.ends(tmp_path / "none")


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_to_be_refused(der: bytes) -> None:
    """Anything at all is a time or one of the two errors."""
    with contextlib.suppress(ValueError, IndexError):
        assert certificates.not_after(der).tzinfo is UTC


def test_the_files_that_settings_name() -> None:
    """Each once, by where it is named; the system's own authorities and sockets name none."""
    url = "postgresql://u@db/p?sslmode=verify-full&sslrootcert=/t/ca.crt&sslcert=/t%2Fa.crt&sslkey=/t/a.key"
    config = settings.parse(
        f'[agent]\ndatabase_url = "{url}"\n[service]\ntls_certificate = "/t/s.crt"\ntls_ca = "/t/ca.crt"\n'
    )
    assert [(n.key, str(n.path), n.authority) for n in certificates.named(config)] == [
        ("[agent] database_url sslcert", "/t/a.crt", False),
        ("[agent] database_url sslrootcert", "/t/ca.crt", True),
        ("[service] tls_certificate", "/t/s.crt", False),
    ]
    system = "postgresql://u@db/p?sslmode=verify-full&sslrootcert=system"
    assert certificates.named(settings.parse(f'[database]\nurl = "{system}"\n')) == []
    assert certificates.named(settings.Settings()) == []
