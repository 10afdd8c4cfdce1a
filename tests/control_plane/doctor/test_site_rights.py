"""What the doctor finds about files and rights, each kept and broken."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.control_plane.doctor import site_rights
from probing_cluster.core import errors, settings
from probing_cluster.sandbox.machine import scratch
from probing_cluster.slurm_plugins import doctor

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners are changed")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose every parent is root's: pytest's own lies below /tmp, which all may write."""
    with scratch.directory("probing-rights-") as directory:
        inner = directory / "d"
        inner.mkdir(mode=0o755)
        yield inner


def test_a_python_that_users_may_not_run_is_told_of(place: Path) -> None:
    """Root's own, below root's home: commands start for root alone."""
    python = place / "home/bin/python3"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    link = place / "python"
    link.symlink_to(python)
    assert [f.level for f in site_rights.users_python(link)] == ["ok"]
    (place / "home").chmod(0o700)
    (finding,) = site_rights.users_python(link)
    assert (finding.level, str(place / "home") in finding.found) == ("warn", True)


@pytest.fixture(autouse=True)
def _judged_from_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging begins at `place`: what lies above it is the machine's."""
    plain = site_rights.parts
    assert {Path("/"), Path("/usr/bin")} <= set(plain(Path("/usr/bin/python3")))

    def below(path: Path) -> list[Path]:
        return [part for part in plain(path) if part.is_relative_to(place)]

    monkeypatch.setattr(site_rights, "parts", below)


def one(found: Iterator[doctor.DoctorFinding]) -> tuple[str, str]:
    (finding,) = found
    if finding.level in {"fail", "warn"}:
        assert finding.why
        assert finding.fix
    return finding.name, finding.level


def changed(section: str, **values: object) -> settings.Settings:
    """The defaults with one section's values changed."""
    config = settings.Settings()
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **values)})


def listening(path: Path, mode: int = 0o600) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(mode)
    return made


def test_root_runs_only_what_root_alone_can_change(place: Path) -> None:
    """The file, a directory above it, and what a link leads to all count."""
    script = place / "prolog.d/50-ours"
    script.parent.mkdir(mode=0o755)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    config = {"Prolog": f"{place}/prolog.d/*"}
    assert one(site_rights.hooks(config)) == ("prolog_path", "ok")
    script.chmod(0o775)
    assert one(site_rights.hooks(config)) == ("prolog_path", "fail")
    script.chmod(0o755)
    script.parent.chmod(0o777)
    assert one(site_rights.hooks(config)) == ("prolog_path", "fail")
    script.parent.chmod(0o1777)
    assert one(site_rights.hooks(config)) == ("prolog_path", "fail"), "anybody may add one there"
    script.parent.chmod(0o755)
    place.chmod(0o1777)
    assert one(site_rights.hooks(config)) == ("prolog_path", "warn"), "nobody can change it while it is there"
    place.chmod(0o755)
    os.chown(script, 65534, 65534)
    assert one(site_rights.hooks(config)) == ("prolog_path", "fail")
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "open/real").write_text("#!/bin/sh\n")
    (place / "link").symlink_to(place / "open/real")
    assert one(site_rights.hooks({"Epilog": str(place / "link")})) == ("epilog_path", "fail")


def test_a_hook_of_another_host_is_not_judged(place: Path) -> None:
    """Not seeing is not health: it is said, with the command that sees it."""
    (finding,) = site_rights.hooks({"TaskProlog": f"{place}/nowhere"})
    assert (finding.name, finding.level) == ("taskprolog_path", "note")
    assert "--node" in finding.fix


def test_settings_that_others_write(place: Path) -> None:
    """A settings file is trusted like a program."""
    path = place / "probing.toml"
    assert one(site_rights.settings_file(path)) == ("settings", "note")
    path.write_text("")
    path.chmod(0o644)
    assert one(site_rights.settings_file(path)) == ("settings", "ok")
    path.chmod(0o666)
    assert one(site_rights.settings_file(path)) == ("settings", "fail")


def test_secrets_that_others_read(place: Path) -> None:
    """A password in the URL makes the settings a secret; so are the mail's password and the door's key."""
    path = place / "probing.toml"
    path.write_text("")
    path.chmod(0o644)
    config = changed("database", url="postgresql://a:b@db/x?sslmode=verify-full")
    assert one(site_rights.secrets(config, path)) == ("secrets", "fail")
    path.chmod(0o600)
    assert list(site_rights.secrets(config, path)) == []
    key = place / "key"
    key.write_text("secret\n")
    key.chmod(0o644)
    assert one(site_rights.secrets(changed("service", tls_key=str(key)), path)) == ("secrets", "fail")
    assert one(site_rights.secrets(changed("mail", password_file=str(place / "none")), path)) == (
        "secrets",
        "fail",
    )
    assert one(site_rights.secrets(changed("lemon", webhook_secret_file=str(key)), path)) == (
        "secrets",
        "fail",
    )
    agents = changed("agent", database_url=f"postgresql://a@db/x?sslmode=verify-full&sslkey={key}")
    assert one(site_rights.secrets(agents, path)) == ("secrets", "fail")
    key.chmod(0o600)
    assert list(site_rights.secrets(changed("service", tls_key=str(key)), path)) == []
    assert list(site_rights.secrets(agents, path)) == []


def test_the_fix_names_the_setting_of_the_secret(place: Path) -> None:
    """A route's file of addresses and a mail's password may lie anywhere; one file may serve two settings."""
    path, shared = place / "probing.toml", str(place / "shared")
    routes = (
        settings.NoticeRoute(name="chat", url_file=shared),
        settings.NoticeRoute(name="pager", url_file=shared),
    )
    config = changed("notices", routes=routes)
    config = dataclasses.replace(config, mail=settings.MailSettings(password_file=str(place / "mail")))
    mail, route = site_rights.secrets(config, path)
    assert mail.fix.endswith("name it: [mail] password_file")
    assert route.fix.endswith(
        "name it: url_file of [[notices.routes]] chat and url_file of [[notices.routes]] pager"
    )


def test_the_helper(place: Path) -> None:
    """Needed once the policy acts; its socket is the service's alone."""
    path = place / "helper.sock"
    acting = dataclasses.replace(
        changed("slurm", helper_socket=str(path)), policy=settings.PolicySettings(observe_only=False)
    )
    assert list(site_rights.helper(settings.Settings())) == []
    assert one(site_rights.helper(changed("slurm", helper_socket=str(path)))) == ("helper", "note")
    assert one(site_rights.helper(acting)) == ("helper", "fail")
    with listening(path, 0o666):
        assert one(site_rights.helper(acting)) == ("helper", "warn")
        path.chmod(0o600)
        assert one(site_rights.helper(acting)) == ("helper", "ok")
    alone = dataclasses.replace(settings.Settings(), policy=settings.PolicySettings(observe_only=False))
    assert one(site_rights.helper(alone)) == ("helper", "note")


def test_the_services_account_in_slurm(place: Path) -> None:
    """Whose socket it is says which account; accounting says what that may see."""
    path = place / "report.sock"
    config = changed("service", socket=str(path))

    def accounting(level: str) -> bytes:
        return f"nobody|{level}\n".encode()

    def silent(*_: str) -> bytes:
        raise errors.SlurmUnavailable("sacctmgr: no")

    assert list(site_rights.account(config, silent)) == []
    with listening(path):
        assert list(site_rights.account(config, silent)) == []
        os.chown(path, 65534, 65534)
        assert one(site_rights.account(config, lambda *_: accounting("Operator"))) == ("admin_level", "ok")
        assert one(site_rights.account(config, lambda *_: accounting("None"))) == ("admin_level", "warn")
        assert one(site_rights.account(config, silent)) == ("admin_level", "warn")


def test_the_agents_socket_and_pages(place: Path) -> None:
    """On the node: somebody listens, nobody else can take its place, and jobs cannot fill the disk."""
    path = place / "run/agent.sock"
    path.parent.mkdir(mode=0o755)
    config = changed("agent", socket=str(path), job_directory="/proc")
    assert one(site_rights.agent_socket(config)) == ("agent_socket", "fail")
    with listening(path):
        assert one(site_rights.agent_socket(config)) == ("agent_socket", "ok")
        path.parent.chmod(0o777)
        assert one(site_rights.agent_socket(config)) == ("agent_socket", "fail")
    assert one(site_rights.pages(config)) == ("pages", "ok")
    assert one(site_rights.pages(changed("agent", job_directory=str(place)))) == ("pages", "warn")
