"""Settings of the service: the cluster, the database, the doors to it, Slurm, and how attempts are judged."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core.record import doc


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """[cluster]: which Slurm cluster this is."""

    name: str = doc("Slurm ClusterName; every row carries it", default="cluster")
    places_file: str = doc(
        "CSV of what nodes share beside Slurm's topology: a column `node` (hostlists) and one per kind, such as rack, row, pdu, storage; empty = none",
        default="",
    )


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    """[database]: where the rows live."""

    url: str = doc(
        "postgresql:// URL of a server (15 or newer); empty = the embedded server in `directory`", default=""
    )
    directory: str = doc("data directory of the embedded server", default="/var/lib/probing-cluster/postgres")
    retention_days: int = doc(
        "days of raw events kept in Postgres; older months are dropped after the Parquet export", default=400
    )
    pool_size: int = doc(
        "connections the service keeps open; it opens up to 32 more while its tasks need them", default=8
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """[service]: `probing-ctl serve`."""

    accounting_poll_s: float = doc("interval of the sacct poll, seconds", default=30.0)
    attribution_poll_s: float = doc("interval of attribution of ended attempts, seconds", default=15.0)
    action_poll_s: float = doc(
        "interval at which fresh high-severity events are turned into actions, seconds", default=1.0
    )
    queue_poll_s: float = doc(
        "interval at which Slurm's queue is read for exclusions and dependencies, seconds", default=60.0
    )
    settle_s: float = doc(
        "how long after its end an attempt is first judged, so that evidence can arrive, seconds", default=5.0
    )
    socket: str = doc(
        "Unix socket that answers users' reports by peer credentials",
        default="/run/probing-cluster/report.sock",
    )
    metrics_listen: str = doc("host:port of the Prometheus endpoint; empty = off", default="")
    operators: tuple[str, ...] = doc(
        "users who may read every job's report through the socket, besides root", default=()
    )
    operator_group: str = doc("Unix group whose members may too; empty = none", default="")
    munge_socket: str = doc("munged's socket; empty = MUNGE's own default", default="")
    listen: str = doc(
        "host:port where users' reports are answered over TLS, by MUNGE credential; empty = off", default=""
    )
    tls_certificate: str = doc("PEM file with the certificate (and chain) of `listen`", default="")
    tls_key: str = doc("PEM file (mode 0600) with its key", default="")
    address: str = doc(
        "host:port of that door as login nodes reach it, named in the certificate; empty = only the Unix socket",
        default="",
    )
    tls_ca: str = doc("PEM file with the CA of that certificate; empty = the system's", default="")
    timezone: str = doc("IANA zone of the nightly jobs and of quiet hours", default="UTC")
    mail_wait_s: float = doc(
        "how long a mail that Slurm owes a job's owner waits for the verdict; then it says that the verdict follows, seconds",
        default=60.0,
    )
    write_back: str = doc(
        "field of the job in accounting that gets one line per verdict: SystemComment, AdminComment or Comment; empty = none",
        default="",
    )


@dataclass(frozen=True, kw_only=True)
class DoorSettings:
    """[door]: `probing-ctl door serve`, which takes agents' deliveries over TLS and hands them on by the batch."""

    listen: str = doc("host:port where agents reach it", default=":7444")
    tls_certificate: str = doc("PEM file with its certificate (and chain)", default="")
    tls_key: str = doc("PEM file (mode 0600) with the key", default="")
    tls_ca: str = doc("PEM file with the CA of the agents' certificates", default="")
    database_url: str = doc("login of group door; empty = [database] url", default="")
    connections: int = doc("connections to the database, each with one batch under way", default=2)
    gather_s: float = doc(
        "how long deliveries are gathered into a batch; one with a high-severity event goes at once, seconds",
        default=0.1,
    )
    most_agents: int = doc("connections of agents held at once", default=20000)


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """[web]: `probing-ctl web serve`."""

    listen: str = doc("host:port of pages and API; off loopback only with TLS", default="127.0.0.1:8780")
    url: str = doc(
        "address under which browsers reach it, with its path behind a proxy: https://portal.example/probing; empty = http(s)://`listen`",
        default="",
    )
    tls_certificate: str = doc("PEM file with the certificate (and chain)", default="")
    tls_key: str = doc("PEM file (mode 0600) with its key", default="")
    database_url: str = doc(
        "login of group reader with scope web=*; needed where [database] url names a server", default=""
    )
    actors: tuple[str, ...] = doc(
        "users who may drain, resume, note and judge over the web, besides root", default=()
    )
    actor_group: str = doc("Unix group whose members may too; empty = none", default="")
    session_s: float = doc("how long a login lasts, seconds", default=43200.0)
    proxy_networks: tuple[str, ...] = doc(
        "addresses or networks of proxies whose `proxy_header` names the user; empty = none is believed",
        default=(),
    )
    proxy_header: str = doc("the header in which such a proxy names the user", default="X-Remote-User")
    proxy_secret_file: str = doc(
        "file (mode 0600) with a secret that such a proxy sends in X-Probing-Secret; needed where users run programs on its host",
        default="",
    )
    oidc_issuer: str = doc("OpenID Connect provider that logs users in; empty = none", default="")
    oidc_client_id: str = doc("our client id there", default="")
    oidc_secret_file: str = doc("file (mode 0600) with the client's secret", default="")
    oidc_claim: str = doc("the claim that is the user's account name here", default="preferred_username")
    requests_per_s: float = doc(
        "requests a user (or an address that is not logged in) may make, on average", default=20.0
    )
    sql_timeout_s: float = doc("longest a question of the SQL page may take, seconds", default=20.0)


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """[slurm]: how to reach Slurm."""

    bin_directory: str = doc("where sacct, scontrol, sinfo are; empty = PATH", default="")
    conf: str = doc("slurm.conf to use; empty = Slurm's default", default="")
    command_deadline_s: float = doc("longest a Slurm command may take, seconds", default=30.0)
    live: str = doc(
        "auto, pyslurm or cli: how jobs and nodes are read; auto = pyslurm where it imports", default="auto"
    )
    helper_socket: str = doc(
        "Unix socket of the helper that may drain, resume and requeue; empty = this process may itself",
        default="",
    )
    history_days: float = doc(
        "how far back the first poll of accounting, the hourly one of the whole history and changed run accounts look, days; after an outage polls go on from the last one, however long ago",
        default=7.0,
    )
    user: str = doc("SlurmUser: besides root the only one who may hand over mail (MailProg)", default="slurm")


@dataclass(frozen=True, kw_only=True)
class AttributionSettings:
    """[attribution]: the evidence window and the engine."""

    before_s: float = doc("window before the onset, seconds", default=600.0)
    after_s: float = doc("window after the end, seconds", default=300.0)
    memory_bytes: int = doc("memory pool of the engine, bytes", default=4294967296)
    history_directory: str = doc(
        "where ended months are exported as Parquet every night; empty = off", default=""
    )
    checkpoint_interval_s: float = doc(
        "assumed checkpoint interval where the probe saw none, seconds", default=3600.0
    )
    checkpoint_write_s: float = doc(
        "assumed time blocked per checkpoint where the probe saw none, seconds", default=0.0
    )
    restart_s: float = doc(
        "assumed time from start to first step where the probe saw none, seconds", default=300.0
    )
    failure_rate_per_node_day: float = doc(
        "failures per node-day assumed until the cluster's own is known", default=0.005
    )
