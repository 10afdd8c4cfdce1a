"""What a person reads who has neither the database nor an answer from the service."""

from __future__ import annotations

import dataclasses
import socket
import threading
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from probing_cluster.core import clock, errors, settings
from probing_cluster.db import driver_errors
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref, source

PEER = 'connection failed: connection to server on socket "/x" failed: FATAL:  Peer authentication failed for user "probing_owner"'


@pytest.mark.parametrize("left_over", [True, False], ids=["a socket nobody listens on", "no socket"])
def test_who_is_not_let_into_the_database_is_told_of_the_service(tmp_path: Path, left_over: bool) -> None:
    """The service is what answers them, and it does not: the driver's words are no help."""
    socket = tmp_path / "service.sock"
    if left_over:
        socket.touch()
    given = settings.Settings()
    given = dataclasses.replace(
        given,
        database=dataclasses.replace(given.database, url="postgresql://probing_owner@/x"),
        service=dataclasses.replace(given.service, socket=str(socket), address=""),
    )

    def direct(_: str) -> dict[str, object]:
        raise driver_errors.unreachable(psycopg.OperationalError(PEER))

    with pytest.raises(errors.DatabaseUnavailable) as found:
        source.document(given, job_ref.parse("5"), direct)
    words = str(found.value)
    assert found.value.exit_code == 4
    assert str(socket) in words
    assert words.endswith("is probing-ctl serve running? Tell your operators.")
    assert "Peer" not in words


def test_a_service_that_waits_for_slurm_is_asked_again_by_whom_only_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database lets them not in, and the service's own word comes after the seconds that others wait."""
    path = tmp_path / "service.sock"
    given = dataclasses.replace(
        settings.Settings(),
        database=settings.DatabaseSettings(url="postgresql://probing_owner@/x"),
        service=settings.ServiceSettings(socket=str(path)),
    )
    monkeypatch.setattr(source, "_SERVICE_S", 0.1)
    reply = b'{"ok": false, "error": "not_found", "message": "Slurm does not answer"}\n'

    def direct(_: str) -> dict[str, object]:
        raise driver_errors.unreachable(psycopg.OperationalError(PEER))

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            with listening.accept()[0] as first:
                first.recv(4096)
                with listening.accept()[0] as second:
                    second.recv(4096)
                    second.sendall(reply)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        with pytest.raises(errors.NotFound, match="Slurm does not answer"):
            source.document(given, job_ref.parse("5"), direct)
        serving.join()


def test_a_refusal_is_told_without_the_drivers_words_around_it() -> None:
    """What the server itself said, and what to do; another failure stays one of reaching it."""
    refused = str(driver_errors.unreachable(psycopg.OperationalError(PEER)))
    assert 'let you in: Peer authentication failed for user "probing_owner"; ask' in refused
    away = driver_errors.unreachable(OSError("no route"))
    assert type(away) is errors.DatabaseUnavailable
    assert "whoever runs this service starts it" in str(away)


@pytest.mark.parametrize(
    ("left_over", "age_s", "words"),
    [
        (True, 1500.0, "(25 min ago|25 min 1 s ago): the service does not answer on .*is probing-ctl serve running\\? sacct -j 5 shows"),
        (True, 30.0, "the service does not answer on .*is probing-ctl serve running\\? sacct -j 5 shows"),
        (False, 1500.0, "there is no service on .*is probing-ctl serve running\\? sacct -j 5 shows"),
        (False, 30.0, "3[0-9] s ago: where it still waits, squeue says why; .* ask again in half a minute"),
    ],
    ids=["silent", "just now", "none", "served from another host"],
)  # fmt: skip
def test_nobody_is_sent_away_for_half_a_minute_while_nobody_reads_accounting(
    store: db_store.Store, tmp_path: Path, left_over: bool, age_s: float, words: str
) -> None:
    """The service is down: waiting brings nothing, and root reads the database without it."""
    read_at = clock.SYSTEM.now() - timedelta(seconds=age_s)
    store.remember("accounting.until c", read_at.isoformat())
    path = tmp_path / "service.sock"
    if left_over:
        path.touch()
    given = dataclasses.replace(
        settings.Settings(),
        cluster=settings.ClusterSettings(name="c"),
        database=settings.DatabaseSettings(url=store.connection_uri()),
        service=settings.ServiceSettings(socket=str(path)),
    )
    with pytest.raises(errors.NotFound, match=words) as found:
        source.rows_document(given, job_ref.parse("5"))
    assert f"{read_at:%H:%M:%S}Z" in str(found.value)
    assert ("half a minute" in str(found.value)) is ("half" in words)
