"""`probing-ctl web serve|login|token|tokens|revoke|client`: pages and API, and one's own keys to them."""

from __future__ import annotations

import argparse
import http.client
import socket
import sys
import urllib.parse

from probing_cluster.control_plane.cli import commands
from probing_cluster.core import errors, settings

_PATIENCE_S = 2.0
"""For a server on this host: one that says nothing for so long is busy."""


def register(register: commands.Commands) -> None:
    """Adds the group `web`."""
    group = register.group("web", "pages and API: what is bad now, and why")
    group.add("serve", _serve, "serve pages and API until SIGTERM")
    made = group.add("login", _login, "print a one-time link that logs you in; good for two minutes")
    made.add_argument("--url-only", action="store_true", help="print the link and nothing else")
    made.add_argument("--page", metavar="PATH", default="/", help="where to go then, such as /jobs/4242")
    made = group.add("token", _token, "print a new token for a program of yours")
    made.add_argument(
        "--label", required=True, metavar="NAME", help="what it is for; by it the token is revoked"
    )
    made.add_argument(
        "--days", type=float, default=90.0, metavar="N", help="how long it is good (default 90)"
    )
    made.add_argument("--act", action="store_true", help="it may act, where you may; without, it only reads")
    group.add("tokens", _tokens, "list your tokens, as root everybody's")
    made = group.add("revoke", _revoke, "take a token of yours away, or with --everything every login too")
    made.add_argument("label", nargs="?", default="", metavar="NAME", help="the token's label")
    made.add_argument("--everything", action="store_true", help="all tokens, links and sessions")
    made.add_argument("--user", metavar="NAME", help="as root: of this user")
    group.add("client", _client, "print a Python client of the API, standard library only")


def _serve(args: argparse.Namespace) -> int:
    from probing_cluster.core.ending import process_memory

    process_memory.keep_small()
    from probing_cluster.web import serve

    return serve.main(settings.load(args.config))


def _login(args: argparse.Namespace) -> int:
    from probing_cluster.reports import web_link

    found = web_link.ask(settings.load(args.config), args.page)
    _require_known(found.url)
    warning = _unserved(found.url)
    if warning:
        print(f"probing-ctl: {warning}", file=sys.stderr)
    print(
        found.url
        if args.url_only
        else f"{found.url}\n\nOpen it in a browser within {found.lasts_s:.0f} s; it works once, for {found.user}."
    )
    return 1 if warning else 0


def _on_this_host(parts: urllib.parse.SplitResult) -> bool:
    return (parts.hostname or "") in {"127.0.0.1", "::1", "localhost"}


def _unserved(url: str) -> str:
    """Why the link leads nowhere, where that can be told from here: only of this host's own loopback."""
    parts = urllib.parse.urlsplit(url)
    address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    if not _on_this_host(parts):
        return ""
    try:
        socket.create_connection(address, timeout=_PATIENCE_S).close()
    except OSError:
        return (
            f"nothing listens at {parts.netloc} on this host: `probing-ctl web serve` serves the pages there"
        )
    return ""


def _require_known(url: str) -> None:
    """Raises NotFound where what answers on this host's own loopback does not know the link: it serves another database."""
    from probing_cluster.control_plane.door import web_keys
    from probing_cluster.web.access import gate

    parts = urllib.parse.urlsplit(url)
    if not _on_this_host(parts) or parts.scheme != "http":
        return
    headers = {gate.LINK_HEADER: web_keys.proof_of(parts.fragment)}
    link = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_PATIENCE_S)
    try:
        link.request("GET", parts.path, headers=headers)
        answer = link.getresponse()
        if answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            return  # it answers nobody of this host now, and says nothing about the link
        known = answer.getheader(gate.LINK_HEADER, "")
    except (OSError, http.client.HTTPException):
        return  # it is busy, or nothing listens: of that `_unserved` tells
    finally:
        link.close()
    if known != "known":
        raise errors.NotFound(
            f"what answers at {parts.netloc} does not know this link: it serves another cluster's database, or is no server of ours; "
            "set [web] listen to a free port in this configuration and run `probing-ctl web serve` with it"
        )


def _token(args: argparse.Namespace) -> int:
    from probing_cluster.reports.asking import door

    found = door.web(settings.load(args.config), "web_token", label=args.label, days=args.days, act=args.act)
    print(found["token"])
    return 0


def _tokens(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.terminal import table
    from probing_cluster.reports.asking import door

    rows = door.web(settings.load(args.config), "web_tokens")["tokens"]
    heads = ("user", "label", "may", "made_at", "expires_at")
    if rows:
        print(table.render([h.upper() for h in heads], [[row[h] for h in heads] for row in rows]))
    else:
        print("no token")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    from probing_cluster.reports.asking import door

    if bool(args.label) == args.everything:
        raise errors.UsageError("name a token, or say --everything")
    given = {"user": args.user} if args.user else {}
    found = door.web(settings.load(args.config), "web_revoke", label=args.label, **given)
    if not found["revoked"]:
        raise errors.NotFound(f"{found['user']} has no such key")
    print(f"{found['revoked']} keys of {found['user']} taken away")
    return 0


def _client(args: argparse.Namespace) -> int:
    del args
    from probing_cluster.web.api import openapi, register

    print(openapi.client(register.OPERATIONS), end="")
    return 0
