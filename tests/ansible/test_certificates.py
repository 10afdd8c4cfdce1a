"""The cluster's own small authority, as the role's script keeps it on the database's host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jinja2
import yaml

from probing_cluster.core import certificates
from tests.ansible import conftest
from tests.control_plane import certificates as made

SCRIPT = conftest.ROOT / "ansible/roles/database/files/certificate.sh"


def run(directory: Path, *names: str, changed: dict[str, str] | None = None) -> str:
    """What the script prints; `changed` are words of it that are others here."""
    made.openssl("version")  # skips without it
    text = SCRIPT.read_text(encoding="utf-8")
    for word, other in (changed or {}).items():
        assert word in text
        text = text.replace(word, other)
    script = directory.parent / "certificate.sh"
    script.write_text(text)
    return subprocess.run(
        ["sh", str(script), str(directory), *names], check=True, capture_output=True, text=True
    ).stdout


def believed(directory: Path, name: str) -> bool:
    """Whether a host with this ca.crt believes `name`'s certificate."""
    done = subprocess.run(
        ["openssl", "verify", "-CAfile", directory / "ca.crt", directory / f"{name}.crt"],
        check=False, capture_output=True,
    )  # fmt: skip
    return done.returncode == 0


def test_made_once_and_kept(tmp_path: Path) -> None:
    """Two years, for the names given; a second run makes nothing; nobody else reads the keys."""
    ca = tmp_path / "ca"
    assert run(ca, "database", "db.example.org", "db") == "made\nmade\n"
    assert run(ca, "database", "db.example.org", "db") == ""
    text = made.openssl("x509", "-in", ca / "database.crt", "-noout", "-text")
    assert "DNS:db.example.org, DNS:db" in text
    days = (certificates.ends(ca / "database.crt") - certificates.ends(ca / "ca.crt")).days
    assert days == 730 - 3650
    assert believed(ca, "database")
    assert {p.name: p.stat().st_mode & 0o777 for p in ca.glob("*.key")} == {
        "ca.key": 0o600,
        "database.key": 0o600,
    }


def test_those_of_all_nodes_are_made_in_one_task(tmp_path: Path) -> None:
    """A task of Ansible's takes half a second: one for each node is half an hour for 2,000, in every run."""
    made.openssl("version")
    ca = tmp_path / "ca"
    ca.mkdir()
    (ca / "certificate.sh").write_text(SCRIPT.read_text(encoding="utf-8"))
    tasks = yaml.safe_load((SCRIPT.parents[1] / "tasks/schema.yml").read_text())
    task = next(t for t in tasks if t["name"] == "The agents' certificates")
    assert "loop" not in task
    roles = {f"n{n}": f"agent-n{n}" for n in range(3)}
    render = jinja2.Environment().compile_expression(
        task["ansible.builtin.command"]["argv"].removeprefix("{{").removesuffix("}}")
    )

    def printed(known: dict[str, str]) -> str:
        argv = render(probing_etc=str(tmp_path), probing_agent_roles=known, **task["vars"])
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    assert printed({}) == ""
    assert printed(roles) == "made\n" * 4
    assert printed(roles) == ""
    assert all(believed(ca, role) for role in roles.values())


def test_renewed_in_its_last_sixty_days(tmp_path: Path) -> None:
    """One with 59 days left is made anew, with a key of its own; one with 61 stays."""
    ca = tmp_path / "ca"
    for days, printed in (("59", "made\n"), ("61", "")):
        name = f"agent-{days}"
        run(ca, name, changed={"-days 730": f"-days {days}"})
        before = (ca / f"{name}.key").read_bytes()
        assert run(ca, name) == printed
        assert ((ca / f"{name}.key").read_bytes() == before) == (not printed)
        assert believed(ca, name)


def test_a_new_authority_stands_beside_the_old_one_before_that_ends(tmp_path: Path) -> None:
    """What the old one signed is believed for as long as the old one holds, what is new is the new one's; made once."""
    ca = tmp_path / "ca"
    old = {"-days 3650": "-days 1000", "authority $(date": "authority of old $(date"}
    # made when the old one was young: by a script that does not yet mind its age
    run(ca, "agent-old", changed={**old, "-checkend 94608000": "-checkend 1"})
    first = (ca / "ca.crt").read_text()
    assert run(ca, "agent-new") == "made\nmade\n"
    bundle = (ca / "ca.crt").read_text()
    assert bundle.endswith(first)
    assert bundle.count("BEGIN CERTIFICATE") == 2
    assert believed(ca, "agent-old")
    assert believed(ca, "agent-new")
    issuer = made.openssl("x509", "-in", ca / "agent-new.crt", "-noout", "-issuer")
    assert "of old" not in issuer
    assert (ca / "ca.crt").stat().st_mode & 0o777 == 0o644
    assert run(ca, "agent-new") == ""
    assert (certificates.ends(ca / "ca.crt", authority=True) - certificates.ends(ca / "ca.crt")).days == 2650


def test_no_certificate_outlives_its_authority() -> None:
    """The script's own figures: a certificate is never signed for longer than the authority has left."""
    text = SCRIPT.read_text(encoding="utf-8")
    assert int(text.partition("ca.crt -noout -checkend ")[2].split()[0]) > 730 * 86400
    assert text.count("-days 730") == 1
