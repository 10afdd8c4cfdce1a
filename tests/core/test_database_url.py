"""No database is reached over the network in clear text, and no password stands where others read."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core import database_url, errors, settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://probing_owner@/probing?host=/run/probing-cluster/postgres/run",
        "postgresql:///probing",
        "postgresql://u@%2Fvar%2Frun%2Fpostgresql/probing",
        "postgresql://u@db/probing?sslmode=verify-full",
        "postgresql://u@db1,db2:5433/probing?sslmode=verify-ca&target_session_attrs=read-write",
        "postgresql://u@[::1]:5432/probing?sslmode=require",
        "postgresql://u@/probing?service=site",
    ],
)
def test_sockets_and_tls_are_allowed(url: str) -> None:
    """Unix sockets need no TLS; the network is fine with it."""
    database_url.require_tls(url, "url")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@db/probing",
        "postgresql://u@db:5432/probing?sslmode=prefer",
        "postgresql://u@127.0.0.1/probing?sslmode=disable",
        "postgresql://u@/probing?host=/run/postgresql,db2",
        "postgresql://u@/probing?host=/run/postgresql&hostaddr=10.0.0.1",
        "postgresql://u@[::1]:5432/probing",
        "postgresql://u:p@db1,db2/probing?sslmode=allow",
    ],
)
def test_clear_text_over_the_network_is_refused(url: str) -> None:
    """Also where libpq would try TLS first and fall back; the settings file that says so is not loaded."""
    with pytest.raises(errors.SettingsError, match="sslmode=verify-full"):
        database_url.require_tls(url, "url")
    for section, key in (("database", "url"), ("agent", "database_url")):
        with pytest.raises(errors.SettingsError, match=rf"\[{section}\] {key}"):
            settings.parse(f'[{section}]\n{key} = "{url}"\n')


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("postgresql://u:secret@db/probing?sslmode=verify-full", True),
        ("postgresql://u@db/probing?sslmode=verify-full&password=secret", True),
        ("postgresql://u@db:5432/probing?sslmode=verify-full&passfile=/etc/x", False),
        ("postgresql://u@[::1]:5432/probing?sslmode=verify-full", False),
    ],
)
def test_a_password_in_the_url_makes_the_file_secret(url: str, has: bool, tmp_path: Path) -> None:
    """A settings file with a password is refused while others can read it; without one it may be open."""
    assert database_url.has_password(url) is has
    path = tmp_path / "probing.toml"
    path.write_text(f'[database]\nurl = "{url}"\n')
    path.chmod(0o644)
    if has:
        with pytest.raises(errors.SettingsError, match="0600 is needed"):
            settings.load(path)
        path.chmod(0o600)
    assert settings.load(path).database.url == url
