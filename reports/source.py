"""Reads a report's rows: from the database when the caller may open it, else from the service."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, settings, vocabulary
from probing_cluster.reports import job_ref
from probing_cluster.reports.asking import door

_CONNECT_S = 5
_SERVICE_S = 2.0
"""Deadline of the service for a caller who can also ask the database."""


class NotRead(errors.NotFound):
    """The accounting read so far has no start of the job."""

    def __init__(self, ref: job_ref.JobRef, last_read: tuple[datetime, float] | None) -> None:
        """`last_read`: when accounting was read, and its age in seconds, where that is known."""
        from probing_cluster.reports import phrase

        self.late = last_read is not None and last_read[1] > vocabulary.STALE_S
        self.begins = f"job {ref} is not known: no start of it is in the accounting read so far"
        if last_read is not None:
            at, age_s = last_read
            self.begins += f", last at {phrase.stamp_z(at)}, {phrase.span(max(0.0, age_s))} ago"
        self.slurms = f"sacct -j {ref} shows what Slurm has of it"
        wait = (
            "where it still waits, squeue says why; if it runs or has just ended, ask again in half a minute"
        )
        stale = f"probing-ctl serve may not run, or Slurm keeps it waiting; {self.slurms}"
        super().__init__(f"{self.begins}: {stale if self.late else wait}")


def rows_document(config: settings.Settings, ref: job_ref.JobRef) -> Mapping[str, Any]:
    """The rows of `ref` as JSON; raises NotFound, NotPermitted or DatabaseUnavailable."""
    return document(config, ref, lambda url: _direct(url, config.cluster.name, ref))


def document(
    config: settings.Settings,
    ref: job_ref.JobRef,
    direct: Callable[[str], Mapping[str, Any]],
    **options: Any,
) -> Mapping[str, Any]:
    """The service's reply, or the result of `direct` on the database's URL. `options`: op and fresh, see door.request_for."""
    ask = _service(config)
    if not config.database.url and not _owns(Path(config.database.directory)):
        if ask is not None:
            return ask(ref, **options)
        places = f"a service on {config.service.socket} or at [service] address"
        msg = f"there is neither a database of yours in {config.database.directory} nor {places}"
        raise errors.DatabaseUnavailable(msg)
    refused: errors.NotPermitted | None = None
    slow = here = False
    silent = f"there is no service on {config.service.socket}; is probing-ctl serve running?"
    if ask is not None:
        # The service on this database answers without a driver loaded here, in half the time.
        try:
            return ask(ref, door.database_id(config), _SERVICE_S, **options)
        except errors.DatabaseUnavailable as exc:
            silent = str(exc)  # the database's own error says more to callers who may open it
            slow = isinstance(exc, door.NotInTime)
            here = not isinstance(exc, door.OtherDatabase)
        except errors.NotPermitted as exc:
            refused = exc  # a caller who may open the database may still read it
    try:
        return direct(_url(config))
    except NotRead as exc:
        # Nobody reads accounting where the service is silent: to ask again would be in vain.
        if here or (exc.late and ask is None):
            raise errors.NotFound(f"{exc.begins}: {silent} {exc.slurms}") from None
        raise
    except errors.DatabaseUnavailable as exc:
        if refused:
            raise refused from None
        if isinstance(exc, errors.DatabaseRefused):
            if slow and ask is not None:  # it is the only one to answer this caller, and may wait for Slurm
                return ask(ref, door.database_id(config), **options)
            raise errors.DatabaseUnavailable(f"{silent} Tell your operators.") from None
        raise


def _service(config: settings.Settings) -> Callable[..., Mapping[str, Any]] | None:
    """The function that asks the service: by its socket on its own host, over TLS from elsewhere; None without either."""
    path = Path(config.service.socket)
    if path.exists():
        return functools.partial(door.ask, path)
    return functools.partial(door.ask_over_tls, config) if config.service.address else None


def _owns(directory: Path) -> bool:
    """Whether this process may open (and start) the embedded database."""
    if not (directory / "data").exists():
        return False
    return os.geteuid() == 0 or os.access(directory / "data" / "PG_VERSION", os.R_OK)


def _url(config: settings.Settings) -> str:
    if config.database.url:
        return config.database.url
    from probing_cluster.db.server import embedded

    directory = config.database.directory
    return embedded.url(directory) if embedded.running(directory) else embedded.ensure(directory)


def _direct(url: str, cluster: str, ref: job_ref.JobRef) -> Mapping[str, Any]:
    import psycopg  # costs 0.2 s, which callers of the service do not pay

    options = "-c TimeZone=UTC -c jit=off -c default_transaction_read_only=on"
    try:
        with psycopg.connect(
            url, connect_timeout=_CONNECT_S, options=options, application_name="probing-report"
        ) as link:
            return _fetched(link, cluster, ref)
    except (
        psycopg.errors.InvalidSchemaName,
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.UndefinedFunction,
    ) as exc:
        msg = f"the database lacks our tables ({_first_line(exc)}); run probing-ctl db upgrade"
        raise errors.DatabaseUnavailable(msg) from exc
    except psycopg.errors.InsufficientPrivilege as exc:
        raise errors.NotPermitted(f"the database says: {_first_line(exc)}") from exc
    except psycopg.OperationalError as exc:
        from probing_cluster.db import driver_errors

        raise driver_errors.unreachable(exc) from exc
    except psycopg.Error as exc:
        raise errors.DatabaseUnavailable(f"the database cannot be reached: {_first_line(exc)}") from exc


def _fetched(link: Any, cluster: str, ref: job_ref.JobRef) -> Mapping[str, Any]:
    from probing_cluster.reports import query

    try:
        return query.fetch(link, cluster, ref)
    except errors.NotFound as exc:
        why = query.never_started(link, cluster, ref) or query.no_such_task(link, cluster, ref)
        if why is not None:
            raise errors.NotFound(why.words) from exc
        if ref.until is not None:
            raise
        raise NotRead(ref, query.last_read(link, cluster)) from exc


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
