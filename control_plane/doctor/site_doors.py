"""What `probing-ctl doctor` finds about the ways in to the service: its socket, MUNGE, and the door on the network."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.control_plane.doctor import site_certificates
from probing_cluster.core import database_url, errors, network_address, settings
from probing_cluster.reports.asking import door, munge
from probing_cluster.slurm_plugins import doctor

_CONNECT_S = 5.0
HANGS = "systemctl status probing-serve: it ended without a word, or hangs; systemctl restart probing-serve"
"""What to do about a service that does not answer on its socket."""


def own_socket(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The service listens on this host."""
    path = Path(config.service.socket)
    why = "users' probing-report is answered only while probing-ctl serve runs"
    if path.is_socket():
        if door.serves(config) is not False:
            yield doctor.ok("report_socket", str(path))
            return
        yield doctor.fail("report_socket", f"the service does not answer on {path}", why=why, fix=HANGS)
        return
    fix = "systemctl start probing-serve; by hand: probing-ctl serve"
    yield doctor.warn("report_socket", f"no socket at {path}", why=why, fix=fix)


def munged(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """A credential made here is read here, and says who made it."""
    try:
        vouched = munge.decode(
            munge.encode(b"probing-doctor", config.service.munge_socket),
            time.time(),
            config.service.munge_socket,
        )
    except errors.NotPermitted as exc:
        required = bool(config.service.listen)
        yield doctor.DoctorFinding(
            name="munge",
            level="fail" if required else "note",
            found=str(exc),
            why="users of other hosts cannot be told apart: their probing-report is refused",
            fix="systemctl start munge; [service] munge_socket where munged listens elsewhere",
        )
        return
    level = "ok" if vouched.uid == os.geteuid() else "fail"
    why = "" if level == "ok" else "whoever made that munged's key is who it says"
    fix = "" if level == "ok" else "the site's munged at [service] munge_socket"
    yield doctor.DoctorFinding(
        name="munge", level=level, found=f"vouches for uid {vouched.uid}", why=why, fix=fix
    )


def network_door(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """Login nodes find the service at [service] address, by a certificate they can check; quiet where there is none."""
    service = config.service
    if not service.listen and not service.address:
        return
    if not service.address:
        yield doctor.note(
            "network_door",
            f"listens on {service.listen}, but no [service] address is set here",
            why="whether login nodes reach it is not checked",
            fix="[service] address = HOST:PORT, as login nodes have it",
        )
        return
    fix = "systemctl status probing-serve; [service] listen, tls_certificate and tls_ca; the firewall between"
    why = "probing-report on login nodes gets no answer"
    yield _answers("network_door", service.address, "[service] address", service.tls_ca, why=why, fix=fix)


def node_door(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The door that agents deliver through answers, by a certificate they can check; quiet where there is none."""
    why = "agents deliver to the database themselves, each as a backend of its own; two thousand of them take two cores"
    fix = "systemctl status probing-door; [door] listen, tls_certificate, tls_key and tls_ca; the firewall between"
    url = config.agent.database_url or config.database.url
    ca = config.door.tls_ca or database_url.parameters(url).get("sslrootcert", "")
    for place in filter(None, map(str.strip, config.agent.door.split(","))):
        yield _answers("node_door", place, "[agent] door", ca, why=why, fix=fix)


def _answers(name: str, place: str, key: str, ca: str, *, why: str, fix: str) -> doctor.DoctorFinding:
    """Whether TLS is spoken at `place`, with a certificate for its host that lasts."""
    host, port = network_address.parse(place, key)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        with (
            socket.create_connection((host, port), timeout=_CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as door,
        ):
            ends = ssl.cert_time_to_seconds(str((door.getpeercert() or {})["notAfter"]))
    except OSError as exc:  # TLS's own errors among them
        return doctor.fail(name, f"{place}: {exc}", why=why, fix=fix)
    return site_certificates.judge(name, place, ends - time.time())
