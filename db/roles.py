"""Login roles of a site: one per agent node, and those of the service, operators and dashboards.

A login role is a member of exactly one group role of `roles.sql`. Names reach SQL only as quoted
identifiers or parameters; passwords only as SCRAM verifiers made on this side.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg import sql

from probing_cluster.core import errors
from probing_cluster.db import engines

GROUPS = ("probing_agent", "probing_service", "probing_reader", "probing_operator", "probing_door")
GROUP_OF_PASSWORDS = "probing_password"
"""Logins that `add_login` gave a password. It has no rights; pg_hba.conf asks its members for the password (docs/database.md), and a password
that a role gave itself opens nothing."""
SCOPE_KINDS = ("cluster", "account", "user", "web")
_NAME_MAX = 63  # Postgres cuts longer identifiers, silently
_CONNECTIONS = {"probing_agent": 4, "probing_reader": 20, "probing_operator": 10, "probing_door": 40}
_TEMP_FILES = {
    "probing_agent": "512MB",
    "probing_reader": "4GB",
    "probing_operator": "16GB",
    "probing_door": "512MB",
}
"""What a session's sorts may write to the disk; a role cannot lift it, and only a superuser may set it."""
_SETTINGS = {
    "probing_agent": {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s"},
    "probing_door": {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s"},
    "probing_reader": {"statement_timeout": "120s", "default_transaction_read_only": "on"},
}


def agent_role_name(cluster: str, node: str) -> str:
    """The login role of a node's agent, which is also the CN its certificate must carry."""
    plain = re.sub(r"[^a-z0-9_.-]", "_", f"agent-{cluster}-{node}".lower())
    if plain == f"agent-{cluster}-{node}" and len(plain) <= _NAME_MAX:
        return plain
    digest = hashlib.sha256(f"{cluster}\0{node}".encode()).hexdigest()[:12]
    return f"{plain[: _NAME_MAX - 13]}-{digest}"


def add_agent(
    url: str, cluster: str, node: str, *, password: str | None = None, rows_per_hour: int | None = None
) -> str:
    """Make (or renew) the login role that may deliver for one node and nothing else; its name.

    Without a password it can come in by certificate or peer only.
    """
    name = agent_role_name(cluster, node)
    with _connection(url) as connection, connection.transaction():
        _login(connection, name, "probing_agent", password)
        connection.execute(
            "INSERT INTO probing.agent_role (role_name, cluster, node, rows_per_hour) "
            "VALUES (%(name)s, %(cluster)s, %(node)s, coalesce(%(rows)s, 100000)) "
            "ON CONFLICT (role_name) DO UPDATE SET cluster = excluded.cluster, node = excluded.node, "
            "rows_per_hour = coalesce(%(rows)s, agent_role.rows_per_hour)",
            {"name": name, "cluster": cluster, "node": node, "rows": rows_per_hour},
        )
    return name


def add_login(
    url: str,
    name: str,
    group: str,
    *,
    password: str | None = None,
    scopes: Iterable[tuple[str, str]] = (),
) -> None:
    """Make (or renew) a login role in one group; a reader sees what its scopes name, (kind, value) each.

    Kinds are cluster, account and user; the value * is every one of them. Of kind web (value *) is the login of the
    web server: each of its transactions sees what the key of the person it serves gives. With a password the role joins GROUP_OF_PASSWORDS,
    and stays in it until it is removed. Raises UsageError for a wrong group, scope or name.
    """
    if group not in GROUPS or group == "probing_agent":
        raise errors.UsageError(f"no group {group!r} for a login; valid: {', '.join(GROUPS[1:])}")
    wanted = sorted(set(scopes))
    wrong = [kind for kind, _ in wanted if kind not in SCOPE_KINDS]
    if wrong or (wanted and group != "probing_reader"):
        raise errors.UsageError(f"scopes are for probing_reader, of kind {', '.join(SCOPE_KINDS)}")
    with _connection(url) as connection, connection.transaction():
        _login(connection, name, group, password)
        if password is not None:
            _join_group_of_passwords(connection, name)
        connection.execute("DELETE FROM probing.reader_scope WHERE role_name = %s", [name])
        for kind, value in wanted:
            connection.execute(
                "INSERT INTO probing.reader_scope (role_name, kind, value) VALUES (%s, %s, %s)",
                [name, kind, value],
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleLogin:
    """One login role of ours."""

    name: str
    group: str
    node: str | None
    """The node an agent speaks for; None for every other role."""
    cluster: str | None
    rows_per_hour: int | None
    """An agent's quota."""
    rows_this_hour: int
    scopes: tuple[str, ...]
    """What a reader may see, `kind=value` each."""


def logins(url: str) -> list[RoleLogin]:
    """Every login role in our groups, agents by node first."""
    with _connection(url) as connection:
        rows = connection.execute(_LOGINS, [list(GROUPS)]).fetchall()
    names = [item.name for item in dataclasses.fields(RoleLogin)]
    return [RoleLogin(**(dict(zip(names, row, strict=True)) | {"scopes": tuple(row[-1])})) for row in rows]


_LOGINS = """
SELECT r.rolname, g.rolname, a.node, a.cluster, a.rows_per_hour,
    coalesce((SELECT i.n_rows FROM probing.intake i WHERE i.role_name = r.rolname AND i.hour = date_trunc('hour', now(), 'UTC')), 0),
    ARRAY(SELECT s.kind || '=' || s.value FROM probing.reader_scope s WHERE s.role_name = r.rolname ORDER BY 1)
FROM pg_roles r JOIN pg_auth_members m ON m.member = r.oid JOIN pg_roles g ON g.oid = m.roleid
LEFT JOIN probing.agent_role a ON a.role_name = r.rolname
WHERE g.rolname = ANY (%s) AND r.rolcanlogin
ORDER BY a.cluster, a.node, r.rolname
"""


def agent_role_of(url: str, cluster: str, node: str) -> str | None:
    """The login role that speaks for a node now; None for a node that was only heard through another role. Raises NotFound."""
    with _connection(url) as connection:
        row = connection.execute(
            "SELECT role_name FROM probing.agent_role WHERE cluster = %s AND node = %s", [cluster, node]
        ).fetchone()
        reported = connection.execute(_LAST_REPORT, {"cluster": cluster, "node": node}).fetchone()
    if row is None and reported is None:
        raise errors.NotFound(f"node {node} of {cluster} has no agent's role, and no agent of it was heard")
    return None if row is None else str(row[0])


_LAST_REPORT = """
SELECT FROM probing.agent_heartbeat WHERE cluster = %(cluster)s AND node = %(node)s
UNION ALL SELECT FROM probing.check_now WHERE cluster = %(cluster)s AND node = %(node)s LIMIT 1
"""


def forget_node(url: str, cluster: str, node: str) -> None:
    """Drop the present state of a node that has left: it must not be reported silent for ever. Its history stays."""
    with _connection(url) as connection, connection.transaction():
        for table in ("agent_heartbeat", "check_now"):
            connection.execute(
                sql.SQL("DELETE FROM probing.{} WHERE cluster = %s AND node = %s").format(
                    sql.Identifier(table)
                ),
                [cluster, node],
            )


def remove(url: str, name: str) -> None:
    """Take a login role away; raises NotFound, and NotPermitted for a role that is none of ours."""
    with _connection(url) as connection, connection.transaction():
        if _groups_of(connection, name) is None:
            raise errors.NotFound(f"there is no role {name}")
        if not _groups_of(connection, name):
            raise errors.NotPermitted(f"role {name} is not one of Probing Cluster's")
        connection.execute("DELETE FROM probing.agent_role WHERE role_name = %s", [name])
        connection.execute("DELETE FROM probing.reader_scope WHERE role_name = %s", [name])
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def pgbouncer_users(url: str) -> str:
    """The text of PgBouncer's auth_file: every agent's role, without password, for `auth_type=cert`."""
    with _connection(url) as connection:
        names = connection.execute("SELECT role_name FROM probing.agent_role ORDER BY role_name").fetchall()
    return "".join('"{}" ""\n'.format(name.replace('"', '""')) for (name,) in names)


def _login(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, group: str, password: str | None
) -> None:
    if not name or len(name.encode()) > _NAME_MAX:
        raise errors.UsageError(f"role name {name!r} must have 1 to {_NAME_MAX} bytes")
    groups, role = _groups_of(connection, name), sql.Identifier(name)
    if groups is None:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN NOCREATEDB NOCREATEROLE NOSUPERUSER").format(role))
    elif groups != {group}:
        raise errors.UsageError(f"role {name} exists already and is not (only) in {group}")
    connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), role))
    for setting, value in _SETTINGS.get(group, {}).items():
        connection.execute(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(setting), sql.Literal(value))
        )
    if group in _CONNECTIONS:
        most = sql.Literal(_CONNECTIONS[group])
        connection.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(role, most))
        _bound_temp_files(connection, role, _TEMP_FILES[group])
    if password is not None:
        verifier = connection.pgconn.encrypt_password(
            password.encode(), name.encode(), b"scram-sha-256"
        ).decode()
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(verifier)))


def _join_group_of_passwords(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
    group = sql.Identifier(GROUP_OF_PASSWORDS)
    # Not in roles.sql: an upgrade needs no right to make roles, but whoever adds a login has it.
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [GROUP_OF_PASSWORDS]).fetchall():
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(group))
    connection.execute(sql.SQL("GRANT {} TO {}").format(group, sql.Identifier(name)))


def _bound_temp_files(
    connection: psycopg.Connection[tuple[Any, ...]], role: sql.Identifier, most: str
) -> None:
    """Bounds temporary files; where the owner may not set it, the server's own temp_file_limit must do (docs/security.md)."""
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
        connection.execute(sql.SQL("ALTER ROLE {} SET temp_file_limit = {}").format(role, sql.Literal(most)))


def _groups_of(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> set[str] | None:
    """Our groups that a role is in; None when there is no such role."""
    rows = connection.execute(
        "SELECT g.rolname FROM pg_roles r LEFT JOIN pg_auth_members m ON m.member = r.oid "
        "LEFT JOIN pg_roles g ON g.oid = m.roleid AND g.rolname = ANY (%s) WHERE r.rolname = %s",
        [list(GROUPS), name],
    ).fetchall()
    return {row[0] for row in rows if row[0]} if rows else None


@contextlib.contextmanager
def _connection(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with engines.translated(), psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        yield connection
