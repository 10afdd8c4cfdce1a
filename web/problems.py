"""Errors as RFC 9457 problem documents: the fact in `title`, the way out in `detail`."""

from __future__ import annotations

import logging

import msgspec
from starlette.responses import Response

from probing_cluster.core import errors, sanitize

LOG = logging.getLogger("probing.web")
MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, kw_only=True):
    """What went wrong."""

    title: str
    status: int
    detail: str = ""


_STATUS: tuple[tuple[type[errors.ProbingError], int, str], ...] = (
    (errors.NotFound, 404, "there is no such thing"),
    (errors.NotPermitted, 403, "you may not see or do this"),
    (errors.UsageError, 400, "the request cannot be understood"),
    (errors.MalformedInput, 400, "the request cannot be understood"),
    (errors.DatabaseReadOnly, 503, "the database is read-only"),
    (errors.DatabaseUnavailable, 503, "the database does not answer"),
    (errors.SlurmUnavailable, 503, "Slurm does not answer"),
)


def status_of(exc: errors.ProbingError) -> tuple[int, str]:
    """Status and title of an error of ours."""
    return next(((code, title) for cls, code, title in _STATUS if isinstance(exc, cls)), (409, "not done"))


def document(status: int, title: str, detail: str = "") -> Problem:
    """The document; foreign text in it is cleaned."""
    return Problem(title=title, status=status, detail=sanitize.clean(detail, 1000))


def response(status: int, title: str, detail: str = "") -> Response:
    """The answer that carries it."""
    body = msgspec.json.encode(document(status, title, detail))
    return Response(body, status, media_type=MEDIA_TYPE)


def of(exc: errors.ProbingError) -> Response:
    """The answer to an error of ours; what broke inside is logged, not shown."""
    status, title = status_of(exc)
    if status == 503:
        log_unanswered(exc)
    return response(status, title, str(exc))


def log_unanswered(exc: errors.ProbingError) -> None:
    """One line of the log for a request that met a database or a Slurm that is away."""
    LOG.warning("a request could not be answered", extra={"fields": {"why": str(exc)}})
