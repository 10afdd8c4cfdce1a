"""`probing-ctl db`: the database's schema and the embedded server."""

from __future__ import annotations

import argparse
import urllib.parse
from pathlib import Path

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.cli.site import role_commands
from probing_cluster.core import errors, settings


def register(register: commands.Commands) -> None:
    """Adds `db upgrade|status|start|stop` and the commands on roles."""
    group = register.group("db", "the database: schema, and the embedded server")
    group.add(
        "upgrade", _upgrade, "bring the schema to this version, starting the embedded server if need be"
    )
    group.add(
        "status",
        _status,
        "say which server, which schema, and whether it is this version's and can be written (exit 1 if not)",
    )
    group.add("start", _start, "start the embedded server")
    group.add("stop", _stop, "stop the embedded server")
    role_commands.register(group)


def _upgrade(args: argparse.Namespace) -> int:
    from probing_cluster.db import engines, migrate

    config = settings.load(args.config)
    found = migrate.upgrade(engines.url_of(config, create=True))
    print(f"schema {found.current} on {_where(config)}")
    return 0


def _status(args: argparse.Namespace) -> int:
    from probing_cluster.db import engines, migrate
    from probing_cluster.db.server import embedded

    config = settings.load(args.config)
    directory = config.database.directory
    engines.require_made(config.database)
    if not config.database.url and not embedded.running(directory):
        msg = f"the embedded server of {directory} does not run; start it with probing-ctl db start"
        raise errors.DatabaseUnavailable(msg)
    found = migrate.status(config.database.url or embedded.url(directory))
    print(f"server   {_where(config)}")
    print(f"schema   {found.current or 'none'} (this version needs {found.head})")
    print("state    up to date" if found.up_to_date else "state    out of date: run probing-ctl db upgrade")
    if found.read_only:
        print(f"writing  read-only: {found.read_only}")
    return 0 if found.up_to_date and not found.read_only else 1


def _start(args: argparse.Namespace) -> int:
    from probing_cluster.db import engines

    print(engines.url_of(_embedded(args)))
    return 0


def _stop(args: argparse.Namespace) -> int:
    from probing_cluster.db.server import embedded

    embedded.stop(_embedded(args).database.directory)
    return 0


def _embedded(args: argparse.Namespace) -> settings.Settings:
    config = settings.load(args.config)
    if config.database.url:
        raise errors.UsageError(
            f"[database] url names the server {_where(config)}{_of_account(config.database.url)}, which db start and db stop do not run. "
            "Its own account or root does: with systemctl, or, an embedded one, with settings that name its directory and no url"
        )
    return config


def _of_account(url: str) -> str:
    """Whose the server's local socket is; empty for a server elsewhere, and where this account may not look."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
    try:
        return f" of {Path(query['host'][0]).owner()}"
    except (KeyError, OSError):
        return ""


def _where(config: settings.Settings) -> str:
    """The server without its password."""
    if not config.database.url:
        return f"embedded server in {config.database.directory}"
    parts = urllib.parse.urlsplit(config.database.url)
    name = f"{parts.username}@" if parts.username else ""
    return f"{name}{parts.hostname or 'local socket'}{f':{parts.port}' if parts.port else ''}{parts.path}"
