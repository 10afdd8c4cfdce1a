"""The doctor finds whoever would be told nothing: no MailProg of ours, one that others may change, routes that lead nowhere."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from pathlib import Path

import pytest

from probing_cluster.control_plane.doctor import site_mail
from probing_cluster.core import settings
from probing_cluster.slurm_plugins import doctor

MAIL = settings.MailSettings(host="localhost")


def config(
    mail: settings.MailSettings = MAIL, write_back: str = "", routes: tuple[settings.NoticeRoute, ...] = ()
) -> settings.Settings:
    base = settings.Settings()
    return dataclasses.replace(
        base,
        mail=mail,
        service=dataclasses.replace(base.service, write_back=write_back),
        notices=dataclasses.replace(base.notices, routes=routes),
    )


def wrapper(home: Path, mode: int = 0o755) -> Path:
    """A MailProg as our role writes it, in a directory that only root can change."""
    home.chmod(0o755)
    path = home / "mailprog"
    path.write_text(
        '#!/bin/sh\n/usr/bin/python3 -I -S /usr/lib/probing/hooks/mail_program.py -- "$@" || exec /bin/mail "$@"\n'
    )
    path.chmod(mode)
    return path


def only(found: object) -> doctor.DoctorFinding:
    (finding,) = found  # type: ignore[misc]
    assert isinstance(finding, doctor.DoctorFinding)
    assert finding.level == "ok" or (finding.why and finding.fix)
    return finding


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of which every part above counts as root's alone: a test's lies below one that all may write."""
    real = site_mail.site_rights.parts
    monkeypatch.setattr(
        site_mail.site_rights, "parts", lambda path: [p for p in real(path) if p.is_relative_to(tmp_path)]
    )
    return tmp_path


def test_the_sites_own_mail_program_knows_no_verdict(trusted: Path) -> None:
    """Not set, a name without a path, another's program, a path where nothing lies: a note with the way out."""
    other = trusted / "smail"
    other.write_text("#!/bin/sh\nexec /bin/mail")
    for named in ("", "mail", str(other), str(trusted / "missing")):
        found = only(site_mail.mail_program(config(), {"MailProg": named} if named else {}))
        assert (found.name, found.level, found.found) == ("mail_program", "note", named or "not set")
        assert "probing_mail_program" in found.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own the program")
def test_ours_is_well_where_only_root_can_change_it(trusted: Path) -> None:
    """One that others can write makes them SlurmUser, and says which file."""
    ours = wrapper(trusted)
    assert only(site_mail.mail_program(config(), {"MailProg": str(ours)})).level == "ok"
    ours.chmod(0o775)
    found = only(site_mail.mail_program(config(), {"MailProg": str(ours)}))
    assert (found.level, found.name) == ("fail", "mail_program")
    assert str(ours) in found.found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own the program")
def test_ours_without_a_server_to_mail_to_is_said(trusted: Path) -> None:
    """The service would take no mail, and every owner get the site's own."""
    found = only(site_mail.mail_program(config(settings.MailSettings()), {"MailProg": str(wrapper(trusted))}))
    assert (found.level, found.found) == ("warn", "no [mail] host")


@pytest.mark.parametrize(
    ("field", "levels"),
    [
        ("", []),
        ("SystemComment", ["ok"]),
        ("AdminComment", ["ok"]),
        ("Comment", ["ok"]),
        ("Remark", ["fail"]),
    ],
)
def test_verdicts_are_written_to_a_field_that_accounting_has(field: str, levels: list[str]) -> None:
    """None asked for is nothing to say; a name that sacctmgr does not know is a failure that names those it does."""
    found = list(site_mail.written_back(config(write_back=field)))
    assert [f.level for f in found] == levels
    assert all("SystemComment or AdminComment or Comment" in f.fix for f in found if f.level == "fail")


ROUTE = settings.NoticeRoute(name="ops", mail_to=("ops@site",))


def test_routes_that_lead_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No route: a note. A slip: which route it is in. A library that is missing: only where a route needs it."""
    assert only(site_mail.notice_routes(config())).level == "note"
    assert only(site_mail.notice_routes(config(routes=(ROUTE,)))).found == "ops"
    wrong = dataclasses.replace(ROUTE, kinds=("drian",))
    found = only(site_mail.notice_routes(config(routes=(wrong,))))
    assert (found.level, found.name) == ("fail", "notices")
    assert "ops" in found.found
    posts = dataclasses.replace(ROUTE, name="chat", url_file=str(tmp_path / "urls"))
    assert only(site_mail.notice_routes(config(routes=(posts,)))).level == "ok"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = only(site_mail.notice_routes(config(routes=(posts,))))
    assert (found.level, found.found) == ("fail", "apprise is not installed")
    assert only(site_mail.notice_routes(config(routes=(ROUTE,)))).level == "ok"
