"""Logins over the network under the playbook's pg_hba.conf, on Debian's Postgres."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import psycopg
import pytest
import yaml
from psycopg import sql

from probing_cluster.db import roles
from tests.control_plane import certificates as made

ROOT = Path(__file__).resolve().parents[2]
LOGINS = {
    "h_eve": ("probing_operator", "secret-of-eve", ()),
    "h_board": ("probing_reader", "secret-of-board", (("cluster", "*"),)),
    "h_web": ("probing_reader", "secret-of-web", (("web", "*"),)),
    "h_ann": ("probing_operator", None, ()),
    "h_service": ("probing_service", "secret-of-service", ()),
    "h_door": ("probing_door", "secret-of-door", ()),
}


def playbook_lines() -> list[str]:
    """The lines that the playbook puts at the head of pg_hba.conf."""
    tasks = yaml.safe_load((ROOT / "ansible/roles/database/tasks/settings.yml").read_text(encoding="utf-8"))
    edits = [t["ansible.builtin.blockinfile"] for t in tasks if "ansible.builtin.blockinfile" in t]
    (edit,) = [e for e in edits if e["path"].endswith("pg_hba.conf")]
    values = {"probing_database_name": "probing", "probing_user": "probing"}
    text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(edit["block"]).render(values)
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def under_playbook(debian_server: Any) -> Iterator[Any]:
    """The server with the playbook's lines for the network, and logins of every group."""
    url = debian_server.owner_url
    agent = roles.add_agent(url, "c", "h1")
    for name, (group, password, scopes) in LOGINS.items():
        roles.add_login(url, name, group, password=password, scopes=scopes)
    path = debian_server.directory / "data" / "pg_hba.conf"
    before = path.read_text()
    try:
        # The socket stays open for the tests' owner.
        network = [line for line in playbook_lines() if not line.startswith("local")]
        _loaded(url, path, "\n".join(["local all all trust", *network, ""]))
        yield debian_server
    finally:
        _loaded(url, path, before)
        for name in (agent, *LOGINS):
            roles.remove(url, name)


def _loaded(url: str, path: Path, text: str) -> None:
    """Writes pg_hba.conf; returns when new sessions are admitted by it."""
    with psycopg.connect(url, autocommit=True) as connection:
        (old,) = connection.execute("SELECT pg_conf_load_time()").fetchone() or (None,)
        path.write_text(text)
        wrong = "SELECT line_number, error FROM pg_hba_file_rules WHERE error IS NOT NULL"
        assert connection.execute(wrong).fetchall() == []
        connection.execute("SELECT pg_reload_conf()")
    while True:  # until the postmaster has it; the test's own limit ends a server that never does
        with psycopg.connect(url) as connection:
            if connection.execute("SELECT pg_conf_load_time() > %s", [old]).fetchone() == (True,):
                return
        time.sleep(0.01)


def enters(server: Any, name: str, password: str | None = None, tls: str = "sslmode=require") -> bool:
    """Whether a login comes in over TCP with this password and these parts of libpq's TLS."""
    secret = f":{password}" if password else ""
    url = f"postgresql://{name}{secret}@localhost:{server.port}/probing?{tls}"
    try:
        with psycopg.connect(url, connect_timeout=20) as connection:
            return connection.execute("SELECT session_user").fetchone() == (name,)
    except psycopg.OperationalError as exc:
        if re.search(r"FATAL:|alert|SSL error|no password supplied", str(exc)):
            return False
        raise  # not the server's refusal


Certificate = Callable[[str], tuple[Path, Path]]


def with_certificate(server: Any, crt: Path, key: Path) -> str:
    return f"sslmode=verify-ca&sslrootcert={server.directory}/ca.crt&sslcert={crt}&sslkey={key}"


@pytest.mark.parametrize("name", ["h_eve", "h_board", "h_web"])
def test_a_password_and_a_certificate_of_the_authority_let_in(
    under_playbook: Any, client_certificate: Certificate, name: str
) -> None:
    """The certificate is the host's, whatever its name; neither it nor the password is enough alone."""
    password = LOGINS[name][1]
    tls = with_certificate(under_playbook, *client_certificate("login1.example.org"))
    assert enters(under_playbook, name, password, tls)
    assert not enters(under_playbook, name, "wrong", tls)
    assert not enters(under_playbook, name, None, tls)
    assert not enters(under_playbook, name, password, "sslmode=require")
    assert not enters(under_playbook, name, password, "sslmode=disable")


def test_a_certificate_of_another_authority_is_none(under_playbook: Any, tmp_path: Path) -> None:
    """Also beside the right password."""
    crt, key = made.self_signed(tmp_path, "h_eve")
    assert not enters(under_playbook, "h_eve", "secret-of-eve", f"sslmode=require&sslcert={crt}&sslkey={key}")


def test_an_operator_without_a_password_comes_in_by_certificate(
    under_playbook: Any, client_certificate: Certificate
) -> None:
    """Its own, and nobody else's."""
    mine = with_certificate(under_playbook, *client_certificate("h_ann"))
    other = with_certificate(under_playbook, *client_certificate("h_eve"))
    assert enters(under_playbook, "h_ann", None, mine)
    assert not enters(under_playbook, "h_ann", None, other)
    assert not enters(under_playbook, "h_ann", None, "sslmode=require")


@pytest.mark.parametrize("name", ["agent-c-h1", "h_service", "h_door"])
def test_agents_service_and_door_come_in_by_their_certificates_alone(
    under_playbook: Any, client_certificate: Certificate, name: str
) -> None:
    """A password opens nothing, given or not, whatever certificate is beside it."""
    own = with_certificate(under_playbook, *client_certificate(name))
    assert enters(under_playbook, name, None, own)
    _set_own_password(under_playbook, name, "mine")
    other = with_certificate(under_playbook, *client_certificate("login1.example.org"))
    assert not enters(under_playbook, name, "mine", other)
    assert not enters(under_playbook, name, "mine", "sslmode=require")
    assert enters(under_playbook, name, "mine", own)


def test_a_password_that_an_operator_gave_itself_opens_nothing(
    under_playbook: Any, client_certificate: Certificate
) -> None:
    """Only add-login makes a login of passwords."""
    _set_own_password(under_playbook, "h_ann", "mine")
    tls = with_certificate(under_playbook, *client_certificate("login1.example.org"))
    assert not enters(under_playbook, "h_ann", "mine", tls)


def test_no_login_is_let_in_that_is_none_of_ours(
    under_playbook: Any, client_certificate: Certificate
) -> None:
    """The owner of the database stays on its socket."""
    tls = with_certificate(under_playbook, *client_certificate("probing_owner"))
    assert not enters(under_playbook, "probing_owner", None, tls)


def test_the_manual_has_the_playbooks_lines() -> None:
    """docs/database.md and the playbook agree on who comes in over the network, and how."""
    page = (ROOT / "docs/database.md").read_text(encoding="utf-8")
    block = next(b for b in page.split("```") if "hostssl" in b)
    manual = [" ".join(line.split()) for line in block.splitlines() if line.startswith("host")]
    assert manual == [line for line in playbook_lines() if line.startswith("host")]


def test_the_group_of_passwords_has_no_right(under_playbook: Any) -> None:
    """It is there for pg_hba.conf, and none but logins that add-login gave a password is in it."""
    with psycopg.connect(under_playbook.owner_url) as connection:
        members = connection.execute(
            "SELECT m.member::regrole::text FROM pg_auth_members m WHERE m.roleid = 'probing_password'::regrole ORDER BY 1"
        ).fetchall()
        grants = connection.execute(
            "SELECT count(*) FROM pg_shdepend WHERE refobjid = 'probing_password'::regrole AND deptype IN ('a', 'o')"
        ).fetchone()
    assert members == [(name,) for name in sorted(LOGINS) if LOGINS[name][1] is not None]
    assert grants == (0,)


def _set_own_password(server: Any, name: str, password: str) -> None:
    """As the role itself, over the socket."""
    with psycopg.connect(server.url_as(name), autocommit=True) as connection:
        verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(verifier.decode()))
        )
