"""Settings of the messages that people receive: the nightly lemon mail, notices to operators."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core.record import doc


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
        "most messages in an hour, those of severity high counted by themselves; what is more waits, and a group that changes meanwhile is sent once",
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
