"""What the service may ask of a node: five verbs, never a command or a path."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from probing_cluster.core import clock
from probing_cluster.db import delivery
from probing_cluster.probe_agent.hooks import fitness, hook_answers, questions
from probing_cluster.probe_agent.jobs import jobs

RELEASE_S = 15.0
"""How long a log that is to be kept waits for its job's Epilog on this node."""
_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class Requests:
    """Does what a delivery's acknowledgement asked for, once each, and says that it is done."""

    def __init__(
        self,
        *,
        outside: hook_answers.AgentOperations,
        book: jobs.JobBook,
        permissions: fitness.Permissions,
        acknowledge: Callable[[uuid.UUID], None],
        forget: Callable[[uuid.UUID], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        questions: questions.Questions,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._outside = outside
        self._book = book
        self._permissions = permissions
        self._acknowledge = acknowledge
        self._forget = forget
        self._spawn = spawn
        self._questions = questions
        self._clock = clock

    def handle(self, request: delivery.Request) -> None:
        """Start one request; an expired or unknown one is only acknowledged."""
        if request.expires_at <= self._clock.now():
            _log.info("request %s (%s) came too late", request.request_id, request.verb)
        elif request.verb == "refusal_permission":
            self._permissions.grant(
                fitness.Permission(
                    request_id=request.request_id, expires_at=request.expires_at, detail=request.detail
                )
            )
        elif request.verb == "collect" and request.job_id is not None:
            job = self._book.set_accounting_ids(request.job_id, request.detail)
            if job is not None:
                self._outside.collect_from(job)
        elif request.verb == "recheck":
            self._spawn(self._recheck(request))
            return
        elif request.verb == "ask":
            # Its answer is the acknowledgement.
            self._spawn(self._questions.ask(request))
            return
        elif request.verb == "keep_log" and request.job_id is not None:
            self._spawn(self._keep_log(request, request.job_id))
            return
        else:
            _log.warning(
                "request %s has a verb this agent does not know: %s", request.request_id, request.verb
            )
        self._acknowledge(request.request_id)

    async def _keep_log(self, request: delivery.Request, job_id: int) -> None:
        most = request.detail.get("most_bytes")
        try:
            job = await self._released(job_id)
            if job is not None:
                await self._outside.keep_log(job, most if type(most) is int and most > 0 else 0)
        finally:
            # Whatever came of it is in the job's row; a restart waits for the word, not for the copy.
            self._acknowledge(request.request_id)

    async def _released(self, job_id: int) -> jobs.NodeJob | None:
        """The job once its Epilog has run here, which may be after its end; None where it still runs, or is unknown."""
        known = job = self._book.get(job_id)
        for _ in range(round(RELEASE_S / _LOOK_S)):
            if job is None or known is None or job.restart_count != known.restart_count:
                return None
            if job.released_at is not None:
                return job
            await asyncio.sleep(_LOOK_S)
            job = self._book.get(job_id)
        return None

    async def _recheck(self, request: delivery.Request) -> None:
        detail = request.detail
        try:
            await self._outside.recheck(
                clear=detail.get("clear") is True, relearn=detail.get("relearn") is True
            )
        except Exception:  # noqa: BLE001 - whatever failed, the service asks again
            _log.exception("request %s (recheck) failed; it is tried again", request.request_id)
            self._forget(request.request_id)
        else:
            self._acknowledge(request.request_id)
