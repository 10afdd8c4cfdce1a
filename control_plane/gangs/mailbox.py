"""How `probing-ctl sql` reaches the agents of a job: by the service, or by the database where the asker may open it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import errors, settings
from probing_cluster.live.ways import agents


class JobMailbox:
    """The mailbox of one job; see live.ways.agents.Mailbox."""

    def __init__(self, config: settings.Settings, job: str) -> None:
        from probing_cluster.reports import job_ref

        self._config, self._ref = config, job_ref.parse(job)
        self._direct_url: str | None = None
        """The database that took the question, where it was not the service: answers are kept for who asked, under that login."""

    def nodes(self) -> tuple[str, ...]:
        """The nodes of the job; raises NotFound, NotPermitted, DatabaseUnavailable."""
        return tuple(self._document("job_nodes")["nodes"])

    def post(self, scans: str, deadline_s: float) -> agents.PostedQuestion:
        """Asks every node."""
        found = self._document("ask", scans=scans, deadline_s=deadline_s)
        return agents.PostedQuestion(
            question=str(found["question"]), nodes=tuple(found["nodes"]), absent=dict(found["absent"])
        )

    def take(self, question: str, mark: str | None) -> agents.TakenAnswers:
        """The answers that have come."""
        given = {"question": question, "mark": mark}
        if self._direct_url is not None:
            found = self._direct(self._direct_url, "answers", given)
        else:
            found = self._document("answers", **given)
        try:
            answers = {n: base64.b64decode(body, validate=True) for n, body in found["answers"].items()}
        except (binascii.Error, ValueError) as exc:
            raise errors.MalformedInput("the service's answer is damaged") from exc
        return agents.TakenAnswers(answers=answers, mark=found["mark"])

    def _document(self, op: str, **given: Any) -> Mapping[str, Any]:
        from probing_cluster.reports import source

        return source.document(
            self._config, self._ref, lambda url: self._direct(url, op, given), op=op, given=given
        )

    def _direct(self, url: str, op: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        from probing_cluster.control_plane.gangs import questions
        from probing_cluster.db import store as db_store

        with db_store.Store.open(url) as store:
            found = questions.direct(store, self._config.cluster.name, self._ref, op, given)
        if op == "ask":
            self._direct_url = url
        return found
