"""What `probing-ctl doctor` finds in and about the database: server, schema, our role, TLS, clocks, agents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg

from probing_cluster.control_plane.doctor import site_certificates, site_doors, site_names
from probing_cluster.control_plane.policy import last_poll
from probing_cluster.core import clock, errors, records, settings, vocabulary
from probing_cluster.db import driver_errors, engines, migrate
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.reports.asking import door
from probing_cluster.slurm_plugins import commands, doctor

MOST_SKEW_S = 2.0
"""Clocks further apart than this put evidence at a visibly wrong place in the window."""
MOST_LAG_S = 300.0

_AS_OWNER = "as the service's account, which its socket knows (sudo -u probing probing-ctl doctor)"

_FACTS = """
SELECT current_setting('server_version_num')::int AS version, r.rolsuper AS superuser,
    coalesce(pg_has_role(session_user, (SELECT oid FROM pg_roles WHERE rolname = 'probing_service'), 'MEMBER'), false) AS service,
    inet_server_addr() IS NOT NULL AS over_network, clock_timestamp() AS now, session_user AS name,
    (SELECT count(*) FROM pg_roles WHERE rolname IN ('probing_agent', 'probing_service', 'probing_reader', 'probing_operator', 'probing_door')) AS groups
FROM pg_roles r WHERE r.rolname = session_user
"""
"""Inputs: none. One row about the server and the role we came in as."""


_RUNAWAY = """
SELECT probing.job_ref(a) AS job FROM probing.job_attempt a
WHERE a.cluster = :cluster AND a.end_at IS NULL AND probing.ran_until(a) IS NOT NULL
ORDER BY a.start_at
"""
"""One row per attempt that cannot run any more."""


def everything(config: settings.Settings, run: commands.Runner) -> Iterator[doctor.DoctorFinding]:
    """Every finding; one alone where no server answers, and none is started by asking."""
    directory = config.database.directory
    if not config.database.url and not embedded.running(directory):
        if embedded.is_closed(directory):
            why = "only its owner may look, so whether its server runs is not known"
            yield doctor.fail("database", f"{directory} is closed to this account", why=why, fix=_AS_OWNER)
            return
        why = "nothing is stored: agents keep what they see, and no job is judged"
        makes = "db start starts it" if embedded.exists(directory) else "db upgrade makes and starts it"
        fix = f"probing-ctl {makes}; for a site: [database] url"
        if _shared(Path(directory)):
            fix = f"[database] directory names a directory of its own, such as /var/lib/probing-cluster/postgres, not {directory}"
        found = f"no server runs in {directory}"
        yield doctor.fail("database", found, why=why, fix=fix)
        return
    try:
        yield from schema(config)
        yield from server(config)
    except errors.ProbingError as exc:
        # A server that refuses a login says FATAL; a socket in a directory that we may not enter, Permission denied.
        turned_away = any(
            word in str(exc) for word in ("FATAL", "Permission denied", "let you in", "authentication failed")
        )
        if turned_away or not isinstance(exc, errors.DatabaseUnavailable):
            found = "does not let us in"
            fix = f"{_AS_OWNER}; else [database] url, pg_hba.conf and the server's log"
        else:
            found = "does not answer"
            fix = "start it (systemctl status postgresql on its host), or mend [database] url; agents keep what they see meanwhile"
        why = str(exc).replace(driver_errors.MORE, "")
        yield doctor.fail("database", found, why=why, fix=fix)
        return
    yield service(config)
    yield from agents(config, run)
    yield from site_certificates.database(config)


def _shared(directory: Path) -> bool:
    """Whether others use the directory, too: a server is not made there."""
    try:
        place = directory.resolve()
        others = place.stat().st_mode & 0o022 or any(place.iterdir())
    except OSError:
        return False  # it is not there yet, or only its owner may look
    return bool(others) and not (place / "data").is_dir()


def schema(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The server has this version's schema."""
    status = migrate.status(_url(config))
    if status.up_to_date:
        yield doctor.ok("database", f"schema {status.current}")
    else:
        found = f"schema {status.current or 'none'}, this version needs {status.head}"
        why = "the service waits, or works on tables that are not what it thinks"
        yield doctor.fail("database", found, why=why, fix="probing-ctl db upgrade, as the database's owner")
    if status.read_only:
        why = "nothing is stored: agents keep what they see, no job is judged and no node drained"
        fix = "[database] url names the primary; ALTER DATABASE … (or ALTER ROLE …) RESET default_transaction_read_only; a full disk may be why it was set; behind PgBouncer then RECONNECT on its console, whose sessions of that time stay read-only"
        yield doctor.fail("database_writes", f"read-only: {status.read_only}", why=why, fix=fix)
    if not config.database.url:
        why = "agents on other hosts cannot reach the embedded server"
        fix = "set [database] url on a cluster of more than one host"
        found = "embedded, local socket only"
        yield doctor.note("database_reach", found, why=why, fix=fix)


def server(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The server's release, how we came in and as whom, and what time it has."""
    with (
        engines.translated(),
        psycopg.connect(_url(config), connect_timeout=10, row_factory=psycopg.rows.dict_row) as link,
    ):
        before = clock.SYSTEM.now()
        facts = link.execute(_FACTS).fetchone()
        after = clock.SYSTEM.now()
        # The server's own view of it (pg_stat_ssl) is not for everybody's eyes.
        encrypted = link.pgconn.ssl_in_use
    assert facts is not None
    yield from judge_server(
        {**facts, "encrypted": encrypted}, before + (after - before) / 2, own=bool(config.database.url)
    )


def judge_server(facts: Mapping[str, Any], here: dt.datetime, *, own: bool) -> Iterator[doctor.DoctorFinding]:
    """The findings on one row of facts; `here` is our time when it was made, `own` false for the embedded server."""
    release = facts["version"] // 10000
    if facts["version"] < migrate.OLDEST_SERVER:
        fix = "upgrade it: apt or dnf have newer ones, PGDG has all"
        why = "row-level security of views needs 15"
        yield doctor.fail("postgres", f"Postgres {release}", why=why, fix=fix)
    else:
        yield doctor.ok("postgres", f"Postgres {release}")
    if facts["groups"] < 5:
        why = "agents, dashboards and operators have no rights of their own"
        fix = "probing-ctl db upgrade, as an owner with CREATEROLE"
        yield doctor.fail("roles", f"{facts['groups']} of 5 group roles", why=why, fix=fix)
    elif own and facts["superuser"]:
        why = "what the service may do is then bounded by nothing"
        fix = "probing-ctl db add-login probing service, and that role in [database] url"
        yield doctor.warn("roles", f"{facts['name']} is a superuser", why=why, fix=fix)
    elif own and not facts["service"]:
        why = "it is not in probing_service: the service could not write"
        fix = f"probing-ctl db add-login {facts['name']} service, as the database's owner"
        yield doctor.note("roles", f"we came in as {facts['name']}", why=why, fix=fix)
    else:
        yield doctor.ok("roles", str(facts["name"]))
    if facts["over_network"] and not facts["encrypted"]:
        why = "rows, and whoever signs in, can be read and changed on the way"
        fix = "ssl = on at the server, hostssl in pg_hba.conf, sslmode=verify-full in the URL"
        yield doctor.fail("tls", "clear text over the network", why=why, fix=fix)
    else:
        yield doctor.ok("tls", "encrypted" if facts["encrypted"] else "local socket")
    skew_s = (facts["now"] - here).total_seconds()
    if abs(skew_s) > MOST_SKEW_S:
        why = "what happened first is told by clocks: a cause may come to lie after its effect"
        fix = "chronyc tracking, on both hosts"
        found = f"the database is {skew_s:+.1f} s off this host"
        yield doctor.fail("clock", found, why=why, fix=fix)
    else:
        yield doctor.ok("clock", f"{skew_s:+.2f} s")


def service(config: settings.Settings) -> doctor.DoctorFinding:
    """Whether the service is at work: without it nothing is judged, drained or sent, whatever agents report."""
    with db_store.Store.open(_url(config)) as store:
        read_at = last_poll.at(store, config.cluster.name)
    serves = door.serves(config)
    found = last_poll.stale(read_at, clock.SYSTEM.now(), config, serves)
    if not found:
        return doctor.ok("service", f"read accounting at {read_at:%H:%M:%S}Z")
    why = "jobs get no verdict, bad nodes are not drained and nobody is told"
    fix = "systemctl status probing-serve (or probing-ctl serve); where it runs, see what this says of sacct"
    if serves is False:
        fix = site_doors.HANGS
    elif serves:
        why = "jobs that ended since get no verdict"
        fix = "see what this says of slurmdbd and of the database; else journalctl -u probing-serve"
    return (doctor.warn if read_at is None and serves is None else doctor.fail)(
        "service", found, why=why, fix=fix
    )


def agents(config: settings.Settings, run: commands.Runner) -> Iterator[doctor.DoctorFinding]:
    """Every agent: heard, of our version, on time, losing nothing, and called as Slurm calls its node."""
    cluster = config.cluster.name
    with db_store.Store.open(_url(config)) as opened:
        store = opened.of(cluster)
        beats, ages, silences = (
            store.heartbeats(cluster=cluster, with_sources=True),
            store.heartbeat_ages_s(cluster=cluster),
            store.silences_s(cluster=cluster),
        )
        now = clock.SYSTEM.now()
        ending = store.checks(name=site_certificates.AGENTS_CHECK)
        runaway = [row["job"] for row in store.rows(_RUNAWAY, {"cluster": cluster})]
    yield from judge_agents(beats, ages, silences, now)
    yield from site_certificates.agents(ending)
    yield from _runaway(runaway)
    try:
        known = site_names.gpu_nodes(run)
    except errors.SlurmUnavailable:
        return  # said already, by the finding slurmctld
    yield from site_names.judge(config, known, beats)


def _runaway(jobs: list[str]) -> Iterator[doctor.DoctorFinding]:
    if jobs:
        why = "slurmdbd never heard their end; figures count each to its time limit and OverTimeLimit, and no further"
        found = f"{len(jobs)} run in accounting beyond their limit, and no agent names them: {_some(jobs)}"
        fix = "sacctmgr show runawayjobs: it lists those that slurmctld does not know, and offers to end them"
        yield doctor.warn("runaway_jobs", found, why=why, fix=fix)


def _url(config: settings.Settings) -> str:
    """The address of the database; never starts a server."""
    return config.database.url or embedded.url(config.database.directory)


def judge_agents(
    beats: list[records.AgentHeartbeat],
    ages: Mapping[str, float],
    silences: Mapping[str, float],
    now: dt.datetime,
) -> Iterator[doctor.DoctorFinding]:
    """The findings on the latest heartbeat of every node, how long ago it was heard, and how much of that it could have been."""
    if not beats:
        fix = "start probing-agent on the nodes, with [database] url or [agent] database_url"
        why = "nothing is seen on any node"
        yield doctor.fail("agents", "none was ever heard", why=why, fix=fix)
        return
    reporting = [b for b in beats if silences.get(b.node, float("inf")) <= vocabulary.MISSED_BEATS * b.beat_s]
    silent = sorted({b.node for b in beats} - {b.node for b in reporting})
    if silent:
        why = "nothing is seen on these nodes, and nothing is done about them"
        fix = "systemctl status probing-agent there; journalctl -u probing-agent"
        found = f"{len(silent)} of {len(beats)} silent: {_some(silent)}"
        yield doctor.warn("agents", found, why=why, fix=fix)
    else:
        yield doctor.ok("agents", f"{len(beats)} heard")
    yield from _versions(reporting)
    yield from _clocks(reporting, ages, now)
    yield from _losses(reporting)
    yield from _blind(reporting)


def _versions(beats: list[records.AgentHeartbeat]) -> Iterator[doctor.DoctorFinding]:
    ours = metadata.version("probing-cluster")
    other = sorted(b.node for b in beats if b.version and b.version != ours)
    if other:
        why = "an agent of the version before keeps delivering; newer readings are missing there"
        fix = "ansible-playbook site.yml --limit, or upgrade the package on these nodes"
        found = f"{len(other)} not of version {ours}: {_some(other)}"
        yield doctor.note("agent_version", found, why=why, fix=fix)


def _clocks(
    beats: list[records.AgentHeartbeat], ages: Mapping[str, float], now: dt.datetime
) -> Iterator[doctor.DoctorFinding]:
    # A heartbeat is made just before it is delivered: what its node's clock says less when it was heard.
    off = {b.node: (b.at - (now - dt.timedelta(seconds=ages[b.node]))).total_seconds() for b in beats}
    bad = sorted(node for node, skew_s in off.items() if skew_s > MOST_SKEW_S or skew_s < -3 * MOST_SKEW_S)
    if bad:
        worst = max(bad, key=lambda node: abs(off[node]))
        why = "its events are dated wrongly: a verdict corrects that where it is measured, and is at most likely"
        found = f"{len(bad)} off, {worst} by {off[worst]:+.0f} s: {_some(bad)}"
        fix = "chronyc tracking there; the check clock_sync says more"
        yield doctor.warn("agent_clock", found, why=why, fix=fix)


def _losses(beats: list[records.AgentHeartbeat]) -> Iterator[doctor.DoctorFinding]:
    lost = sorted(b.node for b in beats if b.dropped_total)
    late = sorted(b.node for b in beats if b.lag_s > MOST_LAG_S)
    if lost:
        why = "their spools were full: a verdict there may lack its evidence"
        fix = "[agent] spool_max_bytes, and why the database could not take them"
        yield doctor.warn("agent_losses", f"{len(lost)} dropped events: {_some(lost)}", why=why, fix=fix)
    if late:
        why = "what they see arrives late: verdicts are re-opened, and nothing is done in time"
        fix = "the database's load; the agents' quota of rows (probing-ctl db logins)"
        yield doctor.warn("agent_lag", f"{len(late)} are minutes behind: {_some(late)}", why=why, fix=fix)


def _blind(beats: list[records.AgentHeartbeat]) -> Iterator[doctor.DoctorFinding]:
    failing: dict[str, list[str]] = {}
    for beat in beats:
        for source, status in beat.sources.items():
            if isinstance(status, Mapping) and status.get("state") in {"error", "hung"}:
                failing.setdefault(source, []).append(beat.node)
    for source, nodes in sorted(failing.items()):
        why = "what this source would say is unknown there, which is not health"
        fix = "probing-agent --once on the node says why"
        found = f"{source} cannot be read on {len(nodes)}: {_some(sorted(nodes))}"
        yield doctor.warn("agent_sources", found, why=why, fix=fix)
    stuck = sorted(b.node for b in beats if b.hung_children)
    if stuck:
        why = "a call into the kernel never returned: a dead file server, or a driver"
        yield doctor.warn(
            "agent_hung",
            f"children hang on {len(stuck)}: {_some(stuck)}",
            why=why,
            fix="the check processes_dstate there; a reboot when nothing else frees them",
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
