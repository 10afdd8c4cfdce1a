"""What `probing-ctl doctor` finds about the ends of certificates: those named in the settings, the database's, the agents'."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator

from probing_cluster.core import certificates, errors, records, settings
from probing_cluster.slurm_plugins import doctor

SOON_S = 30 * 86400.0
"""A certificate that ends within this is worth a word: the roles renew theirs at 60 days, so a monthly run was missed."""
AUTHORITY_SOON_S = 180 * 86400.0
"""The same of an authority: with it, everything it signed ends, and every host needs a new one."""
AGENTS_CHECK = "agent_certificate"
"""The agents' own check, which sees their files."""
RENEW = (
    "ansible-playbook site.yml renews our own authority's; the site's own: put the new files in their place"
)
RENEW_AUTHORITY = "docs/operate.md, Certificates: a new authority is put beside the old one before it ends"
_CONNECT_S = 5.0
_SSL_REQUEST = struct.pack("!II", 8, 80877103)


def files(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """Every certificate file that the settings name: read as whoever asks."""
    for one in certificates.named(config):
        try:
            ends = certificates.ends(one.path, authority=one.authority)
        except (errors.MalformedInput, OSError) as exc:
            yield doctor.fail(
                "certificates",
                f"{one.path}: {getattr(exc, 'strerror', None) or exc}",
                why=f"{one.key} names it, and nobody gets in or is believed without it",
                fix=f"the file, or {one.key}",
            )
            continue
        yield judge("certificates", str(one.path), ends.timestamp() - time.time(), authority=one.authority)


def database(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The certificate that the database's port shows; no finding where it speaks no TLS and need not."""
    if not config.database.url:
        return  # the embedded server has a socket only
    from psycopg import conninfo  # compute nodes ask for the files only, and have no engine

    parameters = conninfo.conninfo_to_dict(config.database.url)
    hosts = [h for h in str(parameters.get("host") or "").split(",") if h and not h.startswith(("/", "@"))]
    ports = str(parameters.get("port") or "5432").split(",")
    places = [(host, int(ports[n] if len(ports) == len(hosts) else ports[0])) for n, host in enumerate(hosts)]
    for host, port in places or _beside_the_socket(config.database.url):
        try:
            left_s = _shown_by(host, port) - time.time()
        except (OSError, errors.MalformedInput) as exc:  # TLS's own errors among them
            why = "how long it holds is unknown, and whether agents can deliver"
            fix = "the server's log, its listen_addresses and ssl_cert_file"
            found = f"{host}:{port} shows none: {exc}"
            yield doctor.note("database_certificate", found, why=why, fix=fix)
            continue
        yield judge("database_certificate", f"the certificate of {host}:{port}", left_s)


def _beside_the_socket(url: str) -> list[tuple[str, int]]:
    """The port of a server that we reach by its socket and others by TLS."""
    import psycopg

    from probing_cluster.db import engines

    with engines.translated(), psycopg.connect(url, connect_timeout=10) as link:
        row = link.execute("SELECT current_setting('ssl'), current_setting('port')::int").fetchone()
    return [("localhost", int(row[1]))] if row is not None and row[0] == "on" else []


def _shown_by(host: str, port: int) -> float:
    """The end of the certificate that this Postgres (or PgBouncer) shows, Unix time. It is read, not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=_CONNECT_S) as plain:
        plain.sendall(_SSL_REQUEST)
        if plain.recv(1) != b"S":
            raise OSError("it speaks no TLS")
        with context.wrap_socket(plain) as door:
            der = door.getpeercert(binary_form=True) or b""
    return certificates.ends_of(ssl.DER_cert_to_PEM_cert(der).encode()).timestamp()


def agents(checks: Iterable[records.CheckResult]) -> Iterator[doctor.DoctorFinding]:
    """Findings on the agents' certificates; `checks` are the latest results of the agents' own check, one per node."""
    results = [c for c in checks if c.name == AGENTS_CHECK]
    ending = sorted(
        (c for c in results if c.outcome is records.Outcome.WARN), key=lambda c: (c.measured or 0.0, c.node)
    )
    if ending:
        first = ending[0]
        names = ", ".join(c.node for c in ending[:8]) + (" …" if len(ending) > 8 else "")
        yield doctor.warn(
            "agent_certificates",
            f"{len(ending)} of {len(results)} end soon: {names}; {first.node}: {first.message}",
            why="from then on these agents deliver nothing: their spools fill, and nothing is seen on their nodes",
            fix=RENEW,
        )
    elif results:
        yield doctor.ok("agent_certificates", f"{len(results)} looked at")


def judge(name: str, what: str, left_s: float, *, authority: bool = False) -> doctor.DoctorFinding:
    """The finding on a certificate `left_s` seconds before its end (after it, where that is negative)."""
    when = (
        f"{what} ends in {left_s / 86400:.0f} days"
        if left_s > 0
        else f"{what} ended {-left_s / 86400:.0f} days ago"
    )
    if left_s > (AUTHORITY_SOON_S if authority else SOON_S):
        return doctor.ok(name, when)
    if authority:
        why = "with an authority everything it signed ends at once: agents, service and login nodes get in nowhere"
        return doctor.DoctorFinding(
            name=name, level="warn" if left_s > 0 else "fail", found=when, why=why, fix=RENEW_AUTHORITY
        )
    why = "whoever shows it, or is shown it, gets in nowhere after that: agents spool, the service judges nothing"
    return doctor.DoctorFinding(
        name=name, level="warn" if left_s > 0 else "fail", found=when, why=why, fix=RENEW
    )
