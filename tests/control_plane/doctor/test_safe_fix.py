"""No fix that `probing-ctl doctor` prints may harm, whatever the settings name."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.control_plane.doctor import (
    safe_fix,
    site_checks,
    site_database,
    site_doors,
    site_rights,
)
from probing_cluster.core import settings
from probing_cluster.slurm_plugins import doctor
from tests.every_case import every

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [
    *(ROOT / "control_plane" / "doctor").glob("site_*.py"),
    ROOT / "control_plane/doctor/safe_fix.py",
    ROOT / "slurm_plugins/doctor.py",
]
LISTS = (
    "AuthInfo",
    "PrologFlags",
    "GresTypes",
    "SchedulerParameters",
    "AccountingStorageTRES",
    "LaunchParameters",
)
"""Settings of slurm.conf with several values: one that is written over loses the others."""


def harm(fix: str) -> str | None:
    """Why a person who types `fix` as it stands breaks something; None = nothing."""
    for words in (
        r"\brm\b",
        r"\s-R\b",
        r"--recursive",
        r"\bkill\b",
        r"\bmkfs|\bdd\b|\bmv\b",
        r"sacctmgr -i",
        r"\bchown\b",
    ):
        if re.search(words, fix):
            return f"{words} in it"
    if re.search(r"[<>]", re.sub(r"<directory>", "", fix)):
        return "a shell reads < and > as files"
    if re.search(rf"\b({'|'.join(LISTS)})=", fix):
        return "it loses what else the list has"
    if "sacctmgr" in fix and "modify" in fix and "where" not in fix:
        return "it changes every user"
    return _harm_of_chmod(fix)


def _harm_of_chmod(fix: str) -> str | None:
    if "chmod" not in fix:
        return None
    if not re.match(r"chmod (go-w|o-rwx,g-wx) \S.*$", fix):
        return "a mode that takes rights away from the owner, or not the whole fix"
    words = shlex.split(fix)
    if len(words) != 3:
        return "more than one file"
    path = Path(words[2])
    if path.is_symlink() or not path.is_file() or path.stat().st_uid != 0 or path.stat().st_nlink != 1:
        return "no plain file of root's"
    return None


@pytest.mark.parametrize(
    "fix",
    ["chown root /tmp; chmod 755 /tmp", "chmod 600 /tmp", "chmod go-w /tmp", "chmod go-w /", "AuthInfo=cred_expire=30",
     "sacctmgr -i create user nobody", "sacctmgr modify user set adminlevel=operator", "rm -r /var/tmp/x", "chmod go-w -R /x"],
)  # fmt: skip
def test_the_judge_of_this_file_sees_harm(fix: str) -> None:
    """Fixes that were printed once, or might be: a check that passes everything proves nothing."""
    assert harm(fix) is not None


def written() -> Iterator[tuple[str, str]]:
    """Every text in the sources that is a fix, or part of one."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            values: list[ast.expr] = []
            if (
                (isinstance(node, ast.keyword) and node.arg == "fix")
                or (
                    isinstance(node, ast.Assign)
                    and any(getattr(t, "id", "") in {"fix", "RENEW", "RENEW_AUTHORITY"} for t in node.targets)
                )
                or (isinstance(node, ast.Return) and node.value is not None and path.name == "safe_fix.py")
            ):
                values = [node.value]
            for value in values:
                for part in ast.walk(value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.name}:{part.lineno}", part.value


WRITTEN = list(written())


def test_the_walk_finds_the_fixes() -> None:
    """Each file has some."""
    assert {place.partition(":")[0] for place, _ in WRITTEN} >= {
        "doctor.py",
        "site_rights.py",
        "site_database.py",
        "safe_fix.py",
    }
    assert len(WRITTEN) > 60


@every("place, text", WRITTEN)
def test_no_fix_that_is_written_harms(place: str, text: str) -> None:
    """The words alone; what is filled in is judged below."""
    if text.startswith("chmod ") and place.startswith("safe_fix"):
        return  # judged with its file
    assert harm(text) is None, text


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Where a setting may point by mistake."""
    shared = tmp_path / "shared dir; reboot"
    shared.mkdir()
    shared.chmod(0o1777)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1000, 1000) if os.geteuid() == 0 else None
    link = tmp_path / "link"
    link.symlink_to("/etc/passwd")
    loose = shared / "probing.toml"
    loose.write_text("")
    loose.chmod(0o666)
    other = home / "secret"
    other.write_text("x")
    other.chmod(0o644)
    twice = tmp_path / "twice"
    os.link(loose, twice)
    return {
        "tmp": Path("/tmp"), "root": Path("/"), "dev": Path("/dev/null"), "home": home, "shared": shared, "link": link,
        "loose": loose, "other": other, "twice": twice, "none": tmp_path / "none" / "x", "proc": Path("/proc/1/mem"),
        "passwd": Path("/etc/passwd"), "shadow": Path("/etc/shadow"),
    }  # fmt: skip


def changed(section: str, **values: Any) -> settings.Settings:
    config = settings.Settings()
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **values)})


def everything(path: Path) -> Iterator[doctor.DoctorFinding]:
    """Every finding about a file, socket or directory, with `path` where the right one should be."""
    text = str(path)
    checks = [
        lambda: site_rights.hooks(dict.fromkeys((*site_rights.ROOTS_HOOKS, *site_rights.EVERYBODYS), text)),
        lambda: site_rights.hooks({"Prolog": f"{text}/*"}),
        lambda: site_rights.settings_file(path),
        lambda: site_rights.secrets(changed("mail", password_file=text), path),
        lambda: site_rights.secrets(changed("service", tls_key=text), path),
        lambda: site_rights.secrets(changed("database", url="postgresql://u:secret@h/d"), path),
        lambda: site_rights.helper(changed("slurm", helper_socket=text)),
        lambda: site_rights.agent_socket(changed("agent", socket=text)),
        lambda: site_rights.agent_socket(changed("agent", socket=f"{text}/agent.sock")),
        lambda: site_rights.pages(changed("agent", job_directory=text)),
        lambda: site_doors.own_socket(changed("service", socket=text)),
        lambda: site_database.everything(changed("database", url="", directory=text), lambda *_: b""),
    ]
    yield from site_checks._each(*((str(n), check) for n, check in enumerate(checks)))


NAMES = [
    "tmp",
    "root",
    "dev",
    "home",
    "shared",
    "link",
    "loose",
    "other",
    "twice",
    "none",
    "proc",
    "passwd",
    "shadow",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_fix_harms_wherever_a_setting_points(name: str, places: dict[str, Path]) -> None:
    """`/tmp`, `/`, a home, a link, a device, a file of another's, one with two names, one that is not there."""
    found = list(everything(places[name]))
    assert found
    for finding in found:
        assert harm(finding.fix) is None, f"{finding.name}: {finding.fix}"


def test_a_socket_in_a_directory_of_everybodys(places: dict[str, Path]) -> None:
    """The fix moves our socket; the directory stays as it is."""
    with socket.socket(socket.AF_UNIX) as listening:
        path = places["shared"] / "a.sock"
        listening.bind(str(path))
        (finding,) = site_rights.agent_socket(changed("agent", socket=str(path)))
        (ours,) = site_rights.helper(changed("slurm", helper_socket=str(path)))
    assert finding.level == "fail"
    assert "/run/probing-cluster" in finding.fix
    assert harm(finding.fix) is None
    assert harm(ours.fix) is None


def test_a_database_is_not_made_in_a_directory_of_others(places: dict[str, Path], tmp_path: Path) -> None:
    """`db upgrade` is no fix where `[database] directory` is /tmp or holds other things."""
    (finding,) = site_database.everything(changed("database", url="", directory="/tmp"), lambda *_: b"")
    assert "a directory of its own" in finding.fix
    (finding,) = site_database.everything(
        changed("database", url="", directory=str(tmp_path / "new")), lambda *_: b""
    )
    assert "probing-ctl db upgrade" in finding.fix


def test_an_account_that_others_share_becomes_no_operator() -> None:
    """nobody's rights would be everybody's."""
    assert "sacctmgr" not in site_rights._operator("nobody")
    assert harm(site_rights._operator("probing")) is None
    assert harm(site_rights._operator("x; reboot")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of root's")
def test_a_file_of_ours_alone_may_be_closed(tmp_path: Path) -> None:
    """Where nothing else can be touched the command itself is the fix, and it does what it says."""
    path = tmp_path / "it's a hook"
    path.write_text("")
    path.chmod(0o777)
    fix = safe_fix.for_program(path, [path], "Prolog in slurm.conf")
    assert harm(fix) is None
    assert shlex.split(fix) == ["chmod", "go-w", str(path)]
    assert safe_fix.for_program(path, [path, tmp_path], "Prolog in slurm.conf").startswith("copy it")
