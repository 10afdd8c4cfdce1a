"""Each login role can do its own work and nothing else, on the embedded server and on Debian's."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.core import errors, records
from probing_cluster.db import bulk, delivery, migrate, partitions, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded
from tests.control_plane import certificates as made

Make = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Site:
    """A database with two agents, a service, an operator and dashboards, and something to steal."""

    owner_url: str

    def url(self, role: str) -> str:
        """The database as that role."""
        return self.owner_url.replace(f"{embedded.OWNER}@", f"{role}@")


LOGINS = {
    "t_service": ("probing_service", ()),
    "t_operator": ("probing_operator", ()),
    "t_board": ("probing_reader", (("cluster", "c"),)),
    "t_nlp": ("probing_reader", (("account", "nlp"),)),
    "t_bob": ("probing_reader", (("user", "bob"),)),
    "t_nobody": ("probing_reader", ()),
}


@pytest.fixture(scope="module", params=["embedded", "debian"])
def site(request: pytest.FixtureRequest, postgres_directory: Path) -> Iterator[Site]:
    """A small site on each server."""
    if request.param == "debian":
        url = request.getfixturevalue("debian_server").owner_url
        name = "probing"
    else:
        name = "probing_test_roles"  # migrated itself: a copy of a template has not the database's own rights
        with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        url = embedded.url(postgres_directory, database=name)
        migrate.upgrade(url)
    for node in ("n1", "n2"):
        roles.add_agent(url, "c", node, rows_per_hour=50)
    for login, (group, scopes) in LOGINS.items():
        roles.add_login(url, login, group, scopes=scopes)
    yield Site(url)
    for login in [*LOGINS, "agent-c-n1", "agent-c-n2"]:
        roles.remove(url, login)
    if request.param == "embedded":
        with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def loaded(site: Site, make_attempt: Make, make_verdict: Make, make_event: Make) -> Iterator[Site]:
    """The site with jobs of two users and accounts, and an event on each node."""
    _empty(site.owner_url)  # other modules use the same server
    alice = make_attempt(job_id=1, user="alice", account="nlp")
    bob = make_attempt(job_id=2, user="bob", account="vision")
    other = make_attempt(job_id=3, user="alice", account="nlp", cluster="d")
    with store_module.Store.open(site.url("t_service")) as store:
        store.upsert_attempts([alice, bob, other])
        store.save_verdicts([make_verdict(a) for a in (alice, bob, other)])
    for node in ("n1", "n2"):
        delivery.Delivery(site.owner_url, "c", node).deliver(
            events=[make_event(node=node)],
            heartbeat=records.AgentHeartbeat(cluster="c", node=node, at=alice.end_at),
        )
    yield site
    _empty(site.owner_url)


def _empty(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "TRUNCATE probing.job_attempt, probing.verdict, probing.health_event, probing.event_key,"
            " probing.intake, probing.rejection, probing.agent_heartbeat, probing.operator_note, probing.arrival"
        )


def _try(url: str, statement: str) -> str | None:
    """What a statement is refused with; None when it is not."""
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute(statement)
        except psycopg.Error as exc:
            return exc.sqlstate
        return None


def _column(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query)]


REFUSED = "42501"
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'probing'::regnamespace AND relkind IN ('r', 'p')"
    " AND NOT relispartition"
)


def test_an_agent_delivers_for_its_own_node_only(loaded: Site, make_event: Make, make_attempt: Make) -> None:
    """What an agent claims about its node's name changes nothing: its role says which node it is."""
    as_n1 = delivery.Delivery(loaded.url("agent-c-n1"), "c", "n2")
    forged = [make_event(node="n2"), make_event(node="n2", cluster="d")]
    heartbeat = records.AgentHeartbeat(cluster="c", node="n2", at=make_attempt().end_at, version="forged")
    ack = as_n1.deliver(events=[make_event(), *forged], heartbeat=heartbeat)
    assert (ack.accepted, ack.rejected) == (1, 2)
    assert _column(loaded.owner_url, "SELECT node FROM probing.agent_heartbeat WHERE version = 'forged'") == [
        "n1"
    ]
    assert _column(loaded.owner_url, "SELECT role_name FROM ops.rejections") == ["agent-c-n1"]


AGENT_MAY_NOT = (
    "SELECT * FROM probing.health_event",
    "SELECT * FROM probing.job_attempt",
    "SELECT * FROM ops.node_now",
    "SELECT * FROM ops.node_timeline('n2')",
    "INSERT INTO probing.event_key VALUES (gen_random_uuid(), now())",
    "INSERT INTO probing.agent_role VALUES (session_user, 'c', 'n2')",
    "DELETE FROM probing.health_event",
    "TRUNCATE probing.health_event",
    "DROP TABLE probing.health_event",
    "CREATE TABLE probing.mine (x int)",
    "CREATE TABLE public.mine (x int)",
    "CREATE TEMPORARY TABLE mine (x int)",
    "CREATE SCHEMA mine",
    "SELECT probing.drop_month(current_date)",
    "SELECT probing.deliver_heartbeats('{c}', '{n2}', ARRAY['{}'::jsonb])",
    "SELECT probing.deliver_batch('{agent-c-n2}', '{}')",
    "SELECT probing.readable('user')",
    "SET ROLE probing_service",
    "SET SESSION AUTHORIZATION probing_owner",
    "CREATE ROLE mine SUPERUSER",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_from_bytea(0, 'x')",
    "ALTER FUNCTION probing.make_month(date) OWNER TO CURRENT_USER",
    "DO $$ BEGIN LOCK TABLE probing.event_key; END $$",
)


def test_an_agent_can_do_nothing_else(loaded: Site) -> None:
    """Reading, writing, making, dropping and becoming somebody are all refused to an agent's role."""
    url = loaded.url("agent-c-n1")
    assert {statement: _try(url, statement) for statement in AGENT_MAY_NOT} == dict.fromkeys(
        AGENT_MAY_NOT, REFUSED
    )


def test_an_agent_cannot_hijack_the_function(loaded: Site, make_event: Make) -> None:
    """Objects an agent could put in its search path are not what the function runs."""
    url = loaded.url("agent-c-n1") + "&options=-csearch_path%3Dpg_temp,public,probing"
    assert delivery.Delivery(url, "c", "n1").deliver(events=[make_event()]).accepted == 1


def test_an_unknown_agent_is_refused(loaded: Site, make_event: Make) -> None:
    """A role in the agents' group that no node is bound to speaks for none."""
    with psycopg.connect(loaded.owner_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE t_stray LOGIN IN ROLE probing_agent")
    try:
        with pytest.raises(errors.DatabaseUnavailable, match="speaks for no node"):
            delivery.Delivery(loaded.url("t_stray"), "c", "n1").deliver(events=[make_event()])
    finally:
        roles.remove(loaded.owner_url, "t_stray")


def test_a_flood_is_bounded(loaded: Site, make_event: Make) -> None:
    """A node can add no more than its quota in an hour, in events, checks and refusals together, nor hold many connections."""
    door = delivery.Delivery(loaded.url("agent-c-n1"), "c", "n1")
    assert door.deliver(events=[make_event() for _ in range(30)]).accepted == 30
    checks = [
        records.CheckResult(
            cluster="c", node="n1", name=f"x{i}", outcome="ok", severity="low", at=make_event().at
        )
        for i in range(21)
    ]
    with pytest.raises(errors.DatabaseUnavailable, match="more than its 50"):
        door.deliver(checks=checks)
    assert door.deliver(checks=checks[:20]).rejected == 0
    held = [psycopg.connect(loaded.url("agent-c-n1")) for _ in range(4)]
    with pytest.raises(psycopg.OperationalError, match="too many connections"):
        psycopg.connect(loaded.url("agent-c-n1"))
    for connection in held:
        connection.close()


def test_a_flood_of_heartbeats_is_bounded(loaded: Site) -> None:
    """At an agent's pace they are free; as fast as the line carries them they count, with what they hold, up to the quota."""
    with psycopg.connect(loaded.url("agent-c-n1"), autocommit=True) as link:

        def beat(at: str, sources: int = 0) -> None:
            row = {"at": at, "boot_id": "b", "sources": {str(n): {"x": "y" * 4000} for n in range(sources)}}
            link.execute("SELECT probing.deliver('c', 'n1', p_heartbeat => %s)", [json.dumps(row)])

        with psycopg.connect(loaded.owner_url, autocommit=True) as owner:
            for _ in range(3):
                owner.execute("UPDATE probing.agent_heartbeat SET received_at = now() - interval '5 s'")
                beat("2026-01-01T00:00:00Z", sources=40)
            assert owner.execute("SELECT coalesce(sum(n_rows), 0) < 50 FROM probing.intake").fetchone() == (
                True,
            )
        taken = itertools.count()

        def flood() -> None:
            for n in range(60):
                beat(f"2026-01-01T00:0{n % 2 * 5}:00Z")
                next(taken)

        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="more than its 50"):
            flood()
        assert 20 < next(taken) <= 50
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            beat("2026-01-01T00:00:00Z", sources=200)


def test_one_call_is_bounded(loaded: Site) -> None:
    """A single call with more than the function's bounds is refused whole."""
    many = "SELECT probing.deliver('c', 'n1', p_acks => array_fill(gen_random_uuid(), ARRAY[5001]))"
    fat = "SELECT probing.deliver('c', 'n1', p_heartbeat => jsonb_build_object('x', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100000) i)))"
    assert _try(loaded.url("agent-c-n1"), many) == _try(loaded.url("agent-c-n1"), fat) == "54000"


def test_the_service_does_its_work_and_no_more(loaded: Site, make_attempt: Make, make_event: Make) -> None:
    """The service writes rows, makes months and imports in bulk, but changes no table, role or binding."""
    url = loaded.url("t_service")
    assert partitions.maintain(url, retention_days=400).postponed == ()
    assert bulk.load_attempts(url, [make_attempt(job_id=9)]) == 1
    assert bulk.load_events(url, [make_event()]) == 1
    assert delivery.Delivery(url, "c", "n1").deliver(events=[make_event()]).accepted == 1
    for statement in (
        "DROP TABLE probing.health_event",
        "ALTER TABLE probing.drain ADD COLUMN x int",
        "INSERT INTO probing.agent_role VALUES ('t_service', 'c', 'n1')",
        "INSERT INTO probing.reader_scope VALUES ('t_nobody', 'user', '*')",
        "UPDATE probing.alembic_version SET version_num = '0'",
        "CREATE ROLE mine",
        "ALTER TABLE probing.job_attempt DISABLE ROW LEVEL SECURITY",
    ):
        assert _try(url, statement) == REFUSED, statement


def test_operators_read_all_and_write_only_their_own_words(loaded: Site) -> None:
    """An operator sees every row of every table, and can add a note under no other name."""
    url = loaded.url("t_operator")
    for name in set(_column(loaded.owner_url, TABLES)) - {
        "web_key",
        "web_request",
    }:  # nobody reads another's keys
        assert _column(url, f"SELECT count(*) FROM probing.{name}") == _column(
            loaded.owner_url, f"SELECT count(*) FROM probing.{name}"
        )
    note = "INSERT INTO probing.operator_note VALUES (gen_random_uuid(), 'c', now(), '{}', 'node:n1', 'note', '', '{{}}')"
    assert _try(url, note.format("t_operator")) is None
    assert _try(url, note.format("root")) == REFUSED
    for at in ("'infinity'", "'4713-01-01 BC'"):
        assert _try(url, note.format("t_operator").replace("now()", at)) == REFUSED
    verdict = (
        "INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, confidence, summary, evidence, ruled_out,"
        " next_step, author, rules_version, made_at, onset_at, window_start_at, window_end_at)"
        " SELECT cluster, 4711, submit_at, 1, 'oom_host', {0}, {1}, {2}, '{{}}', '{{}}', '', session_user, '1', {3}, now(), now(), now()"
        " FROM probing.job_attempt WHERE job_id = 1 LIMIT 1"
    )
    fine = ["'hardware'", "'certain'", "'s'", "now()"]
    assert _try(url, verdict.format(*fine)) is None
    for place, wrong in enumerate(("'no such'", "'sure'", "repeat('s', 5000)", "'infinity'")):
        given = [*fine[:place], wrong, *fine[place + 1 :]]
        assert _try(url, verdict.format(*given).replace("4711", "4712")) == REFUSED, wrong
    assert _try(url, "DELETE FROM probing.operator_note") == REFUSED
    assert _try(url, "UPDATE probing.verdict SET cause = 'x'") == REFUSED


@pytest.mark.parametrize(
    ("role", "jobs", "nodes"),
    [("t_board", [1, 2], ["n1", "n2"]), ("t_nlp", [1, 3], []), ("t_bob", [2], []), ("t_nobody", [], [])],
)
def test_dashboards_see_what_their_scope_allows(
    role: str, jobs: list[int], nodes: list[str], loaded: Site
) -> None:
    """Through tables and views alike, a reader sees the jobs and nodes of its scope and no other."""
    url = loaded.url(role)
    assert _column(url, "SELECT job_id FROM probing.job_attempt ORDER BY 1") == jobs
    assert _column(url, "SELECT job_id FROM ops.attempt_verdicts WHERE cause IS NOT NULL ORDER BY 1") == jobs
    assert _column(url, "SELECT job_id FROM probing.verdict ORDER BY 1") == jobs
    assert _column(url, "SELECT node FROM ops.node_now ORDER BY 1") == nodes
    assert _column(url, "SELECT node FROM probing.health_event ORDER BY 1") == nodes


READER_MAY_NOT = (
    "SELECT * FROM probing.reader_scope",
    "SELECT * FROM probing.agent_role",
    "SELECT * FROM probing.state",
    "SELECT * FROM ops.rejections",
    "SELECT * FROM probing.health_event_default",
    "UPDATE probing.job_attempt SET \"user\" = 'bob'",
    "INSERT INTO probing.reader_scope VALUES (session_user, 'user', '*')",
    "SET ROLE probing_operator",
    "SET SESSION AUTHORIZATION alice",
    "SELECT probing.deliver('c', 'n1')",
    "CREATE TEMPORARY TABLE mine (x int)",
)


def test_a_nodes_timeline_is_for_dashboards_of_its_cluster(loaded: Site) -> None:
    """Notes and events of a node are shown to a reader of that cluster; one of a user's jobs sees neither."""
    with psycopg.connect(loaded.url("t_operator"), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO probing.operator_note VALUES (gen_random_uuid(), 'c', now(), session_user, 'node:n1', 'ticket', '', '{}')"
        )
    what = "SELECT what FROM ops.node_timeline('n1', now() - interval '1 day') WHERE what LIKE 'event%' OR what LIKE 'ticket%'"
    assert _column(loaded.url("t_board"), what) == ["event xid 79", "ticket by t_operator"]
    assert _column(loaded.url("t_bob"), what) == []


def test_dashboards_cannot_widen_their_scope(loaded: Site) -> None:
    """Neither bookkeeping nor partitions behind the policies nor another role are open to a reader."""
    url = loaded.url("t_bob") + "&options=-cdefault_transaction_read_only%3Doff"
    assert [s for s in READER_MAY_NOT if _try(url, s) not in {REFUSED, "22023"}] == []


def test_row_security_cannot_be_talked_round(loaded: Site) -> None:
    """Session settings and leaky functions show a reader no row that its policies hide."""
    with psycopg.connect(loaded.url("t_bob"), autocommit=True) as connection:
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT * FROM probing.job_attempt")
        connection.execute("RESET row_security")
        rows: list[str] = []
        connection.add_notice_handler(lambda notice: rows.append(notice.message_primary or ""))
        leak = "SELECT * FROM probing.job_attempt WHERE (1 / (job_id - 1)) > -5"
        assert len(connection.execute(leak).fetchall()) == 1


def test_names_are_never_sql(site: Site) -> None:
    """A node or role named like SQL becomes a quoted name, or is refused."""
    name = roles.add_agent(site.owner_url, "c", 'n"; DROP TABLE probing.drain; --')
    assert name.startswith("agent-c-n")
    roles.add_login(site.owner_url, 'x" SUPERUSER; --', "probing_reader", password="p'\"")
    assert _column(site.owner_url, "SELECT rolname FROM pg_roles WHERE rolsuper AND rolname LIKE 'x%'") == []
    roles.remove(site.owner_url, 'x" SUPERUSER; --')
    roles.remove(site.owner_url, name)
    assert _column(site.owner_url, "SELECT count(*) FROM probing.drain") == [0]


def test_passwords_travel_as_verifiers(site: Site) -> None:
    """The server never sees a password in the clear, so neither do its logs."""
    roles.add_login(site.owner_url, "t_secret", "probing_operator", password="hunter2")
    try:
        stored = _column(site.owner_url, "SELECT rolpassword FROM pg_authid WHERE rolname = 't_secret'")
        assert stored[0].startswith("SCRAM-SHA-256$")
    finally:
        roles.remove(site.owner_url, "t_secret")


def test_foreign_roles_are_not_ours_to_remove(site: Site) -> None:
    """Only login roles in our groups are removed or taken over."""
    with pytest.raises(errors.NotPermitted):
        roles.remove(site.owner_url, embedded.OWNER)
    with pytest.raises(errors.NotFound):
        roles.remove(site.owner_url, "nobody-here")
    with pytest.raises(errors.UsageError):
        roles.add_login(site.owner_url, embedded.OWNER, "probing_reader")
    with pytest.raises(errors.UsageError):
        roles.add_login(site.owner_url, "x", "pg_read_all_data")


def test_every_view_is_the_readers_own(site: Site) -> None:
    """Every view runs with the rights of who reads it, and every privileged function fixes its search path."""
    assert (
        _column(
            site.owner_url,
            "SELECT relname FROM pg_class WHERE relkind = 'v' AND relnamespace IN ('ops'::regnamespace, 'probing'::regnamespace)"
            " AND NOT coalesce('security_invoker=true' = ANY (reloptions), false)",
        )
        == []
    )
    assert (
        _column(
            site.owner_url,
            "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace IN ('ops'::regnamespace, 'probing'::regnamespace)"
            " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)",
        )
        == []
    )
    assert (
        _column(
            site.owner_url,
            "SELECT relname FROM pg_class WHERE relnamespace = 'probing'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition AND NOT relrowsecurity",
        )
        == []
    )


def test_role_names_stay_distinct() -> None:
    """Names that would be cut or folded alike keep apart, and plain ones stay readable."""
    assert roles.agent_role_name("c", "n1") == "agent-c-n1"
    names = {roles.agent_role_name("c", node) for node in ("N1", "n1", "n_1", "n 1", "x" * 100, "x" * 101)}
    assert len(names) == 6
    assert all(len(name) <= 63 for name in names)


class TestTls:
    """Off the socket, Debian's server takes only TLS with a certificate whose CN is the role."""

    def _url(self, server: Any, role: str, extra: str) -> str:
        return f"postgresql://{role}@127.0.0.1:{server.port}/probing?sslrootcert={server.directory}/ca.crt&{extra}"

    def test_a_certificate_is_the_node(
        self, debian_server: Any, client_certificate: Callable[[str], tuple[Path, Path]], make_event: Make
    ) -> None:
        """An agent with its node's certificate delivers; without TLS, without or with another's certificate it is refused."""
        role = roles.add_agent(debian_server.owner_url, "c", "n7")
        other = roles.add_agent(debian_server.owner_url, "c", "n8")
        mine, theirs = client_certificate(role), client_certificate(other)
        try:
            good = self._url(debian_server, role, f"sslmode=verify-ca&sslcert={mine[0]}&sslkey={mine[1]}")
            assert delivery.Delivery(good, "c", "n7").deliver(events=[make_event(node="n7")]).accepted == 1
            for extra in (
                "sslmode=disable",
                "sslmode=verify-ca",
                f"sslmode=verify-ca&sslcert={theirs[0]}&sslkey={theirs[1]}",
            ):
                with pytest.raises(errors.DatabaseUnavailable):
                    delivery.Delivery(self._url(debian_server, role, extra), "c", "n7").deliver()
        finally:
            roles.remove(debian_server.owner_url, role)
            roles.remove(debian_server.owner_url, other)

    def test_a_certificate_of_another_authority_opens_nothing(
        self, debian_server: Any, tmp_path: Path
    ) -> None:
        """The right name, signed by somebody else: refused, also where the client believes its own authority."""
        role = roles.add_agent(debian_server.owner_url, "c", "n6")
        crt, key = made.self_signed(tmp_path, role)
        try:
            for mode in ("require", "verify-ca"):
                url = self._url(debian_server, role, f"sslmode={mode}&sslcert={crt}&sslkey={key}")
                with pytest.raises(errors.DatabaseUnavailable):
                    delivery.Delivery(url, "c", "n6").deliver()
        finally:
            roles.remove(debian_server.owner_url, role)

    def test_a_certificate_opens_one_function_and_nothing_else(
        self, debian_server: Any, client_certificate: Callable[[str], tuple[Path, Path]], make_event: Make
    ) -> None:
        """Over TLS, with a real node's certificate: no forging, reading, dropping or becoming somebody; a flood ends."""
        role = roles.add_agent(debian_server.owner_url, "c", "n9", rows_per_hour=40)
        cert, key = client_certificate(role)
        url = self._url(debian_server, role, f"sslmode=verify-ca&sslcert={cert}&sslkey={key}")
        try:
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT session_user").fetchone() == (role,)
                assert connection.pgconn.ssl_in_use
            forged = delivery.Delivery(url, "c", "n1").deliver(
                events=[make_event(node="n1"), make_event(node="n9")]
            )
            assert (forged.accepted, forged.rejected) == (1, 1)
            nodes = "SELECT DISTINCT node FROM probing.health_event WHERE node IN ('n1', 'n9')"
            assert _column(debian_server.owner_url, nodes) == ["n9"]
            assert {s: _try(url, s) for s in AGENT_MAY_NOT} == dict.fromkeys(AGENT_MAY_NOT, REFUSED)
            with pytest.raises(errors.DatabaseUnavailable, match="more than its 40"):
                delivery.Delivery(url, "c", "n9").deliver(events=[make_event(node="n9") for _ in range(60)])
            for other in ("probing_owner", "probing_service", "postgres"):
                with pytest.raises(psycopg.OperationalError):
                    psycopg.connect(
                        self._url(debian_server, other, f"sslmode=verify-ca&sslcert={cert}&sslkey={key}")
                    )
        finally:
            roles.remove(debian_server.owner_url, role)
            _empty(debian_server.owner_url)

    def test_a_dashboard_comes_in_by_certificate_or_password_over_tls(
        self, debian_server: Any, client_certificate: Callable[[str], tuple[Path, Path]]
    ) -> None:
        """A reader's certificate opens its own views, read-only; without TLS there is no way in."""
        roles.add_login(debian_server.owner_url, "t_grafana", "probing_reader", scopes=[("cluster", "*")])
        cert, key = client_certificate("t_grafana")
        try:
            url = self._url(debian_server, "t_grafana", f"sslmode=verify-ca&sslcert={cert}&sslkey={key}")
            assert _try(url, "SELECT * FROM ops.node_now") is None
            assert _try(url, "DELETE FROM probing.health_event") in {REFUSED, "25006"}
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(self._url(debian_server, "t_grafana", "sslmode=disable"))
        finally:
            roles.remove(debian_server.owner_url, "t_grafana")

    def test_a_hosts_certificate_is_mapped_to_its_nodes_role(
        self, debian_server: Any, client_certificate: Callable[[str], tuple[Path, Path]], make_event: Make
    ) -> None:
        """Where CNs are host names, pg_ident says which role each is, and no other."""
        cert, key = client_certificate("m5.example.org")
        tls = f"sslmode=verify-ca&sslcert={cert}&sslkey={key}"
        names = [roles.add_agent(debian_server.owner_url, "c", node) for node in ("m5", "m6")]
        try:
            mine, other = (self._url(debian_server, name, tls) for name in names)
            assert delivery.Delivery(mine, "c", "m5").deliver(events=[make_event(node="m5")]).accepted == 1
            with pytest.raises(errors.DatabaseUnavailable):
                delivery.Delivery(other, "c", "m6").deliver()
        finally:
            for name in names:
                roles.remove(debian_server.owner_url, name)
            _empty(debian_server.owner_url)

    def test_the_manuals_pg_hba_is_one_that_postgres_takes(self, debian_server: Any) -> None:
        """docs/database.md's block parses on the real server, asks agents for certificates and refuses what is not TLS."""
        page = (Path(__file__).resolve().parents[2] / "docs" / "database.md").read_text(encoding="utf-8")
        block = next(b for b in page.split("```") if "hostssl" in b)
        path = debian_server.directory / "data" / "pg_hba.conf"
        before = path.read_text()
        try:
            path.write_text(block)  # the view reads the file; the server itself is not told to
            with psycopg.connect(debian_server.owner_url) as connection:
                rules = connection.execute(
                    "SELECT type, user_name, auth_method, error FROM pg_hba_file_rules ORDER BY line_number"
                ).fetchall()
        finally:
            path.write_text(before)
        assert [rule[3] for rule in rules if rule[3]] == []
        assert ("hostssl", ["+probing_agent"], "cert") in [rule[:3] for rule in rules]
        over_network = [rule for rule in rules if rule[0].startswith("host")]
        assert {rule[0] for rule in over_network[:-1]} == {"hostssl"}
        assert (over_network[-1][0], over_network[-1][2]) == ("host", "reject")
