"""`probing-ctl db add-agent` and its kin: who may come into the database, and as what. Run as the database's owner."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import command_line, errors, hostlist, secret_file, settings

_AGENT_EPILOG = """NODE is a name or a hostlist such as gpu[001-128]. Printed: node and role. Issue each node a client
certificate whose CN is its role; a role comes in by certificate (or peer) only. Doing it again changes nothing."""
_LOGIN_EPILOG = """GROUP is service, operator, reader or door (`probing-ctl door serve`). A reader sees what its scopes name:
cluster=NAME, account=NAME or user=NAME; NAME * is every one. web=* is the login of `probing-ctl web serve`."""


def register(group: commands.Commands) -> None:
    """Adds the commands on roles to `db`."""
    made = group.add(
        "add-agent",
        _add_agent,
        "make the login role that may deliver for one node only",
        epilog=_AGENT_EPILOG,
    )
    made.add_argument("node", metavar="NODE", nargs="+", help="name or hostlist")
    made.add_argument(
        "--rows-per-hour",
        type=command_line.whole,
        metavar="N",
        help="most new rows taken in an hour (default 100000)",
    )
    made = group.add(
        "remove-agent",
        _remove_agent,
        "take nodes' login roles away, and forget the nodes until they are heard again",
    )
    made.add_argument("node", metavar="NODE", nargs="+", help="name or hostlist")
    made = group.add(
        "add-login",
        _add_login,
        "make the login role of a service, an operator or a dashboard",
        epilog=_LOGIN_EPILOG,
    )
    made.add_argument("name", metavar="NAME", help="the role, and the CN of its certificate")
    made.add_argument(
        "group", metavar="GROUP", choices=("service", "operator", "reader", "door"), help="what it may do"
    )
    made.add_argument(
        "--scope", metavar="KIND=NAME", action="append", default=[], help="what a reader may see"
    )
    made.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="file (mode 0600) with its password, for an operator or reader; without one: certificate or peer",
    )
    made = group.add("remove-login", _remove_login, "take such a login role away")
    made.add_argument("name", metavar="NAME", help="the role")
    made = group.add("logins", _logins, "list the login roles: group, node, quota, scopes")
    made.add_argument(
        "--group", choices=("agent", "service", "operator", "reader", "door"), help="of this group only"
    )
    group.add("pgbouncer-users", _pgbouncer_users, "print PgBouncer's auth_file for auth_type=cert")


def _url(args: argparse.Namespace) -> tuple[str, settings.Settings]:
    from probing_cluster.db import engines

    config = settings.load(args.config)
    return engines.url_of(config), config


def _nodes(args: argparse.Namespace) -> Iterator[str]:
    for expression in args.node:
        yield from hostlist.expand(expression)


def _add_agent(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    if args.rows_per_hour is not None and args.rows_per_hour < 1:
        raise errors.UsageError("--rows-per-hour must be 1 or more")
    url, config = _url(args)
    for node in _nodes(args):
        print(f"{node}\t{roles.add_agent(url, config.cluster.name, node, rows_per_hour=args.rows_per_hour)}")
    return 0


def _remove_agent(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    url, config = _url(args)
    for node in _nodes(args):
        name = roles.agent_role_of(url, config.cluster.name, node)
        if name is not None:
            roles.remove(url, name)
        roles.forget_node(url, config.cluster.name, node)
        print(f"{node}\t{name} removed" if name else f"{node}\tforgotten; it had no role")
    return 0


def _add_login(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    pairs = [text.partition("=") for text in args.scope]
    bad = [
        text for text, (_, equals, value) in zip(args.scope, pairs, strict=True) if not equals or not value
    ]
    if bad:
        raise errors.UsageError(f"{bad[0]!r} is not KIND=NAME")
    password = secret_file.read(args.password_file) if args.password_file else None
    url, _ = _url(args)
    scopes = [(kind, value) for kind, _, value in pairs]
    roles.add_login(url, args.name, f"probing_{args.group}", password=password, scopes=scopes)
    return 0


def _remove_login(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    url, _ = _url(args)
    roles.remove(url, args.name)
    return 0


def _logins(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    url, _ = _url(args)
    rows = [
        (login.name, login.group.removeprefix("probing_"), login.node, login.rows_this_hour, login.rows_per_hour, " ".join(login.scopes) or None)
        for login in roles.logins(url)
        if args.group in (None, login.group.removeprefix("probing_"))
    ]  # fmt: skip
    print(
        table.render(
            ["ROLE", "GROUP", "NODE", "ROWS/H", "AT MOST", "SCOPES"],
            rows,
            right=frozenset({"ROWS/H", "AT MOST"}),
        )
    )
    return 0


def _pgbouncer_users(args: argparse.Namespace) -> int:
    from probing_cluster.db import roles

    url, _ = _url(args)
    print(roles.pgbouncer_users(url), end="")
    return 0
