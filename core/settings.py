"""One TOML file configures everything; an unknown key is an error that lists the valid ones.

The file is `$PROBING_CONFIG`, else `/etc/probing-cluster/probing.toml`; without one the
defaults stand. Each section is a frozen dataclass; a field's `doc` is its entry in the manual that
settings_manual.py prints.
"""

from __future__ import annotations

import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from probing_cluster.core import database_url, secret_file, vocabulary
from probing_cluster.core.errors import SettingsError
from probing_cluster.core.records import doc

DEFAULT_PATH = Path("/etc/probing-cluster/probing.toml")


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
    pool_size: int = doc("connections the service holds at most", default=8)


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """[agent]: the node daemon."""

    root: str = doc(
        "filesystem root of the node's /sys, /proc, /dev; tests and the sandbox use a directory", default="/"
    )
    node: str = doc("Slurm node name; empty = $SLURMD_NODENAME, else the short host name", default="")
    socket: str = doc("Unix socket the hooks talk to", default="/run/probing-cluster/agent.sock")
    spool_directory: str = doc("durable event spool and cursors", default="/var/lib/probing-cluster/spool")
    spool_max_bytes: int = doc(
        "size at which the oldest, least severe events are dropped (and counted)", default=268435456
    )
    job_directory: str = doc(
        "where the per-job probe page directories are made", default="/run/probing-cluster/jobs"
    )
    nvml_library: str = doc("path of libnvidia-ml.so.1; empty = the loader's", default="")
    amdsmi_library: str = doc("path of libamd_smi.so; empty = the loader's", default="")
    kernel_log: str = doc(
        "kmsg, journald or file:<path> (a growing file in /dev/kmsg format); auto tries kmsg first",
        default="auto",
    )
    beat_s: float = doc("heartbeat and delivery interval without jobs, seconds", default=10.0)
    job_beat_s: float = doc("the same while the node runs a job, seconds", default=5.0)
    sweep_s: float = doc("interval of the check sweep, seconds", default=300.0)
    poll_s: float = doc("interval of the polled sources (NVML, sysfs, mounts), seconds", default=10.0)
    stall_least_s: float = doc(
        "a training rank is never called stalled before this, however fast its steps, seconds", default=30.0
    )
    stall_startup_s: float = doc(
        "the same where it has no history yet (importing, compiling, first steps), seconds", default=900.0
    )
    call_deadline_s: float = doc(
        "longest a call that can hang may take in its child process, seconds", default=5.0
    )
    database_url: str = doc("where to deliver; empty = [database] url", default="")
    database_keep_open: bool = doc(
        "keep the connection between deliveries: for PgBouncer, where a client is cheap and a TLS handshake is not",
        default=False,
    )
    textfile: str = doc(
        "file for node_exporter's textfile collector, such as /var/lib/node_exporter/probing.prom; empty = none",
        default="",
    )
    gpu_numbering: str = doc(
        "what the numbers in SLURM_JOB_GPUS count: nvml (the order of PCI addresses), minor (N of /dev/nvidiaN); auto = as gres.conf says, without one only where both agree",
        default="auto",
    )
    expect_gpus: int = doc("GPUs this node must have; 0 = the most ever seen", default=0)
    expect_mounts: tuple[str, ...] = doc(
        "mount points that must be there; empty = the network mounts and those of /etc/fstab seen when healthy",
        default=(),
    )
    expect_services: tuple[str, ...] = doc(
        "systemd units (or process names) that must run; empty = the known ones seen running when healthy",
        default=(),
    )
    exclude_hcas: tuple[str, ...] = doc("InfiniBand devices never looked at (globs)", default=())


@dataclass(frozen=True, kw_only=True)
class ChecksSettings:
    """[checks]: the health checks of the agent and of probing-check."""

    site_file: str = doc(
        "site file: which checks run where, with which limits (docs/checks.md); empty = the defaults",
        default="",
    )
    state_file: str = doc(
        "where the agent's checks remember counters between sweeps of one boot",
        default="/var/lib/probing-cluster/checks.json",
    )
    command_directories: tuple[str, ...] = doc(
        "where tools (ipmitool, nvme, systemctl …) are looked up; empty = the system's", default=()
    )
    watchdog_s: float = doc(
        "longest a whole sweep may take, seconds (Slurm ends a HealthCheckProgram at 60 s)", default=30.0
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
    history_days: float = doc("how far back the first accounting poll looks, days", default=7.0)
    user: str = doc("SlurmUser: besides root the only one who may hand over mail (MailProg)", default="slurm")


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """[policy]: what may be done to nodes."""

    observe_only: bool = doc("true: decide and record, touch nothing (the installed default)", default=True)
    fresh_s: float = doc("an event older than this causes no action, seconds", default=300.0)
    hold_s: float = doc(
        "how long a fault of `hold_kinds` must stand before it acts; longer than `agent.poll_s`, seconds",
        default=15.0,
    )
    hold_kinds: tuple[str, ...] = doc(
        "kinds of fault that often end by themselves: links retrain, file servers fail over",
        default=vocabulary.PASSING_KINDS,
    )
    budget_nodes: int = doc("most nodes drained per window, whole cluster", default=5)
    budget_frac: float = doc("most of the cluster's nodes drained per window, 0..1", default=0.05)
    budget_partition_frac: float = doc("most of one partition's nodes drained per window, 0..1", default=0.25)
    budget_window_s: float = doc("length of the budget window, seconds", default=3600.0)
    requeue: bool = doc("requeue the jobs of a node drained for a high-severity fault", default=True)
    restart_ended: bool = doc(
        "requeue a job that ended by itself because of hardware or its node, away from that node",
        default=True,
    )
    restarts_per_run: int = doc("most times one run is restarted within `restart_window_s`", default=3)
    restart_window_s: float = doc("length of that window, seconds", default=86400.0)
    on_hang: str = doc(
        "tell or requeue: what is done with a job whose ranks hang and whose culprit is named; "
        "`--probing-on-hang=` says it per job",
        default="tell",
    )
    hang_grace_s: float = doc(
        "how long a hang stands, named and unchanged, before its job is requeued, seconds", default=60.0
    )
    keep_log_bytes: int = doc(
        "of a log that the restart would truncate so much is copied, its end", default=268435456
    )
    refusal_ttl_s: float = doc(
        "how long a permission lets a node's Prolog refuse jobs, seconds", default=60.0
    )
    auto_resume: bool = doc(
        "resume nodes we drained once they have been healthy for long enough", default=True
    )
    resume_green_s: float = doc("how long without any fault before a node is resumed, seconds", default=900.0)
    resume_green_beats: int = doc(
        "how many heartbeats without any fault before a node is resumed", default=30
    )
    reboot_kinds: tuple[str, ...] = doc(
        "kinds of fault that only a reboot cures: no resume before one was seen",
        default=vocabulary.REBOOT_KINDS,
    )
    escalate_cures: int = doc(
        "after so many cures the same fault again stays drained for a hardware inspection", default=2
    )
    escalate_days: float = doc("how far back cures of the same fault count, days", default=30.0)
    idle_s: float = doc(
        "a job whose GPUs had no process or no load for this long is told to its owner and shown in `nodes`; 0 = never, seconds",
        default=1800.0,
    )


@dataclass(frozen=True, kw_only=True)
class DiagnosticsSettings:
    """[diagnostics]: tests of nodes that are out of service."""

    command: str = doc(
        "the probing-diagnose of the nodes, an absolute path; empty = beside this service's own Python",
        default="",
    )
    torch_python: str = doc(
        "a Python with torch on the nodes, for tests of GPUs; empty = GPUs are tested by nccl-tests and dcgmi only",
        default="",
    )
    tests: tuple[str, ...] = doc("tests run by default; empty = every one that is registered", default=())
    test_s: float = doc("longest one test may take, seconds", default=120.0)
    round_s: float = doc("longest one round of tests of one node may take, seconds", default=1200.0)
    references: int = doc("idle nodes that join as references where two nodes accuse each other", default=2)
    base_port: int = doc(
        "first TCP port of the tests between nodes; each takes one of the next 4,000", default=42000
    )
    account: str = doc("Slurm account of the tests' jobs; empty = the user's default", default="")
    disk_directory: str = doc(
        "where the disk test writes on a node; empty = the system's temporary directory", default=""
    )
    mounts: tuple[str, ...] = doc(
        "directories the mount test writes to and reads from, on every node", default=()
    )


@dataclass(frozen=True, kw_only=True)
class RepairSettings:
    """[repair]: what is done with a node that we drained (docs/repair.md)."""

    test_before_return: bool = doc(
        "a drained node is tested before it returns; false = it returns after policy.resume_green_s without a fault, untested",
        default=True,
    )
    quiet_s: float = doc(
        "how long its agent must show no fault before a node is tested, seconds", default=30.0
    )
    steps_file: str = doc(
        "TOML file of repair steps per cause; empty = the table in docs/repair.md", default=""
    )
    reset_command: str = doc("run on the node to reset its GPUs; empty = the step is left out", default="")
    reload_command: str = doc(
        "run on the node to reload the GPU driver; empty = the step is left out", default=""
    )
    reboot: bool = doc("may reboot nodes by `scontrol reboot` (needs Slurm's RebootProgram)", default=False)
    reboot_s: float = doc("longest a reboot may take, seconds", default=1800.0)
    power_command: str = doc(
        "run by the service with the node's name as its argument, to power-cycle it; empty = the step is left out",
        default="",
    )
    ticket_command: str = doc(
        "run by the service with the bundle's path as its argument, to open a ticket; empty = none",
        default="",
    )
    ticket_webhook: str = doc("https URL that gets the ticket as JSON; empty = none", default="")
    bundle_directory: str = doc(
        "where bundles for tickets are kept", default="/var/lib/probing-cluster/bundles"
    )
    most_rounds: int = doc("rounds of tests that gave no answer, before a person is asked", default=3)


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


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """[live]: `probing-ctl sql`."""

    python: str = doc(
        "Python with Probing Cluster on the compute nodes; empty = the path of the asker's own", default=""
    )
    timeout_s: float = doc("how long an answer is waited for, seconds", default=5.0)


@dataclass(frozen=True, kw_only=True)
class KeptSettings:
    """[kept]: what nodes keep of an ended attempt for its owner: the program's own tables, the last steps and collectives."""

    directory: str = doc(
        "the user's own directory for it, on a file system that nodes and login hosts share; %u is the user's name, %h the home, as in %h/.probing; empty = nothing is kept",
        default="",
    )
    days: float = doc("days after which a user's attempts are removed", default=30.0)
    job_bytes: int = doc("bytes that the nodes of one attempt may write together", default=67108864)
    user_bytes: int = doc(
        "bytes of all a user's attempts, beyond which the oldest are removed", default=1073741824
    )


@dataclass(frozen=True, kw_only=True)
class LemonSettings:
    """[lemon]: the nightly search for nodes that keep killing jobs."""

    window_days: int = doc("sliding window of the signals and costs, days", default=28)
    history_days: int = doc(
        "how far back failures are weighed for the score (their age counts), days", default=112
    )
    run_at: str = doc("time of the nightly run, HH:MM in service.timezone", default="06:00")
    action: str = doc(
        "off or drain: what is done with a new lemon; drain = after its jobs, inside the drain budget",
        default="off",
    )
    webhook_url: str = doc("https URL that gets every night's result as JSON; empty = none", default="")
    webhook_secret_file: str = doc(
        "file (mode 0600) with the key of the webhook's HMAC-SHA256 signature", default=""
    )


@dataclass(frozen=True, kw_only=True)
class MailSettings:
    """[mail]: the nightly mail."""

    host: str = doc("SMTP host; empty = no mail", default="")
    port: int = doc("SMTP port", default=587)
    security: str = doc("starttls, ssl or none", default="starttls")
    username: str = doc("login; empty = none", default="")
    password_file: str = doc("file (mode 0600) with the password", default="")
    sender: str = doc("From address", default="probing-cluster@localhost")
    recipients: tuple[str, ...] = doc("To addresses", default=())
    spool_directory: str = doc(
        "where mail (and the webhook's posts) wait until they are sent",
        default="/var/lib/probing-cluster/mail",
    )
    ca_file: str = doc(
        "PEM file of the authorities that may have signed the server's certificate; empty = the system's",
        default="",
    )
    deadline_s: float = doc("longest that one exchange with the server may take, seconds", default=30.0)
    retry_s: float = doc(
        "wait before a mail is tried again, doubled each time up to four hours, seconds", default=300.0
    )
    keep_trying_days: float = doc("how long a mail is tried before it counts as failed, days", default=5.0)
    report_url: str = doc(
        "address of a job's report with {job_id} in it, made a link in the mail; empty = no link", default=""
    )


@dataclass(frozen=True, kw_only=True)
class NoticeRoute:
    """[[notices.routes]]: one way to the operators, and what goes there."""

    name: str = doc("its name, in `probing-ctl notices list` and the log", default="")
    url_file: str = doc(
        "file (mode 0600) with addresses as the library apprise writes them, one a line: slack://… pagerduty://… json://…",
        default="",
    )
    mail_to: tuple[str, ...] = doc("addresses that get it as mail, through [mail]", default=())
    severity: str = doc("least severity that goes there: info, low or high", default="low")
    kinds: tuple[str, ...] = doc("kinds that go there (globs); empty = all", default=())
    partitions: tuple[str, ...] = doc(
        "partitions whose notices go there (globs); empty = all, and what concerns no partition", default=()
    )
    per_hour: int = doc(
        "most messages in an hour; what is more waits, and a group that changes meanwhile is sent once",
        default=30,
    )
    quiet_hours: str = doc(
        "HH:MM-HH:MM in service.timezone in which only severity high goes out; empty = none", default=""
    )


@dataclass(frozen=True, kw_only=True)
class NoticesSettings:
    """[notices]: what operators are told at once."""

    routes: tuple[NoticeRoute, ...] = doc("tables of their own, see below; empty = no notices", default=())
    group_s: float = doc(
        "what happens alike within this time of one another is one message that is updated and resolved, seconds",
        default=600.0,
    )
    update_s: float = doc("least time between two updates of one message, seconds", default=60.0)
    blind_s: float = doc(
        "how long a task of the service must have failed, or found the database or Slurm away, before that is told, seconds",
        default=60.0,
    )
    deadline_s: float = doc("longest one message to one address may take, seconds", default=20.0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The whole file."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    checks: ChecksSettings = field(default_factory=ChecksSettings)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    web: WebSettings = field(default_factory=WebSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    diagnostics: DiagnosticsSettings = field(default_factory=DiagnosticsSettings)
    repair: RepairSettings = field(default_factory=RepairSettings)
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    live: LiveSettings = field(default_factory=LiveSettings)
    kept: KeptSettings = field(default_factory=KeptSettings)
    lemon: LemonSettings = field(default_factory=LemonSettings)
    mail: MailSettings = field(default_factory=MailSettings)
    notices: NoticesSettings = field(default_factory=NoticesSettings)


_Section = TypeVar("_Section")


def load(path: Path | None = None) -> Settings:
    """The settings of `path`, else of the usual place; raises SettingsError naming the key."""
    named = path or (Path(os.environ["PROBING_CONFIG"]) if os.environ.get("PROBING_CONFIG") else None)
    chosen = named or DEFAULT_PATH
    try:
        raw = chosen.read_bytes()
    except FileNotFoundError as exc:
        if named is None:
            return Settings()
        msg = f"{chosen} does not exist"
        raise SettingsError(msg) from exc
    except OSError as exc:
        msg = f"{chosen} cannot be read: {exc.strerror}"
        raise SettingsError(msg) from exc
    found = parse(raw.decode("utf-8", "replace"), where=str(chosen))
    urls = (found.database.url, found.agent.database_url, found.web.database_url)
    if any(map(database_url.has_password, urls)):
        secret_file.require_private(chosen)
    return found


def parse(text: str, *, where: str = "settings") -> Settings:
    """The settings written in TOML `text`; raises SettingsError naming file, section and key."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        msg = f"{where}: {exc}"
        raise SettingsError(msg) from exc
    hints = typing.get_type_hints(Settings)
    for name, value in tables.items():
        if name not in hints:
            msg = f"{where}: unknown section [{name}]; valid: {', '.join(sorted(hints))}"
            raise SettingsError(msg)
        if not isinstance(value, dict):
            msg = f"{where}: {name} must be a section [{name}]"
            raise SettingsError(msg)
    found = Settings(**{n: _section(hints[n], t, f"{where}: [{n}]") for n, t in tables.items()})
    database_url.require_tls(found.database.url, f"{where}: [database] url")
    database_url.require_tls(found.agent.database_url, f"{where}: [agent] database_url")
    database_url.require_tls(found.web.database_url, f"{where}: [web] database_url")
    return found


def _section(cls: type[_Section], table: Mapping[str, Any], where: str) -> _Section:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            msg = f"{where} unknown key {key!r}; valid: {', '.join(sorted(hints))}"
            raise SettingsError(msg)
        values[key] = _convert(hints[key], value, f"{where} {key}")
    return cls(**values)


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        if isinstance(inner, type) and is_dataclass(inner):
            if isinstance(value, list) and all(isinstance(v, dict) for v in value):
                return tuple(_section(inner, v, f"{where}[{n}]:") for n, v in enumerate(value))
            msg = f"{where} must be tables, each begun with [[{where.rpartition('[')[2].replace('] ', '.')}]]"
            raise SettingsError(msg)
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        msg = f"{where} must be a list of strings"
        raise SettingsError(msg)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = kind if isinstance(kind, type) and not isinstance(kind, types.GenericAlias) else object
    if isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
        return value
    msg = f"{where} must be {getattr(kind, '__name__', kind)}, not {type(value).__name__} ({value!r})"
    raise SettingsError(msg)
