"""What a person reads who has neither the database nor an answer from the service."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psycopg
import pytest

from probing_cluster.core import errors, settings
from probing_cluster.db import driver_errors
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


def test_a_refusal_is_told_without_the_drivers_words_around_it() -> None:
    """What the server itself said, and what to do; another failure stays one of reaching it."""
    refused = str(driver_errors.unreachable(psycopg.OperationalError(PEER)))
    assert 'let you in: Peer authentication failed for user "probing_owner"; ask' in refused
    away = driver_errors.unreachable(OSError("no route"))
    assert type(away) is errors.DatabaseUnavailable
    assert "whoever runs this service starts it" in str(away)
