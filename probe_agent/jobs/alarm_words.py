"""The site's alarm words in the output of running jobs: reported once a job and word, for its owner, and never acted on.

A child that has become the job's owner reads the output, each time only what was written since the last look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, sanitize
from probing_cluster.probe_agent.jobs import collect, find_words, jobs

MAX_JOBS = 64


@dataclasses.dataclass(kw_only=True)
class _Output:
    """How far one job's output has been read, and the words found in it."""

    started_at: datetime
    offsets: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Per file its inode and how far it has been read."""
    words: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


class AlarmWords:
    """The alarm words in the output of one node's running jobs."""

    def __init__(
        self, book: jobs.JobBook, collector: collect.Collector, words: Sequence[str], clock: clock.Clock
    ) -> None:
        self._book = book
        self._collector = collector
        self.words = find_words.usable(words)
        self._clock = clock
        self._outputs: dict[int, _Output] = {}

    async def look(self) -> None:
        """Read what each running job has written on this node since the last look."""
        running = [job for job_id in self._book.running if (job := self._book.get(job_id)) is not None]
        self._outputs = {
            job.job_id: known
            if (known := self._outputs.get(job.job_id)) is not None and known.started_at == job.started_at
            else _Output(started_at=job.started_at)
            for job in running[:MAX_JOBS]
        }
        slow: set[int | None] = set()
        for job in running[:MAX_JOBS]:
            # A user whose files do not answer waits for the next look; other users do not.
            if job.uid not in slow and not await self._look_at(job, self._outputs[job.job_id]):
                slow.add(job.uid)

    def rows(self) -> dict[str, Any]:
        """The heartbeat's alarm words: job to word to the time when it was first read, and its line."""
        running = set(self._book.running)
        return {str(j): dict(o.words) for j, o in self._outputs.items() if o.words and j in running}

    async def _look_at(self, job: jobs.NodeJob, output: _Output) -> bool:
        """Whether every reader answered; after one that did not, the job's other files are left for later."""
        left = [w for w in self.words if w not in output.words]
        for path in self._collector.outputs(job) if left else ():
            inode, offset = output.offsets.get(path, (0, 0))
            # What an earlier start of the job wrote into the same file is not this one's.
            first = path not in output.offsets and job.restart_count > 0
            question = {
                "op": "words",
                "path": path,
                "inode": inode,
                "offset": offset,
                "words": left,
                "skip": first,
            }
            answer = await self._collector.ask(job, question)
            if answer.get("refused") == collect.NO_ANSWER:
                return False
            file, end, matches = (answer.get(name) for name in ("inode", "offset", "matches"))
            # The child runs as the job's owner: what it answers is a claim of theirs.
            if type(file) is not int or type(end) is not int or not isinstance(matches, dict):
                continue
            output.offsets[path] = (file, end)
            for word in left:
                if word in matches:
                    row = {
                        "at": clock.iso_z(self._clock.now()),
                        "line": sanitize.clean(str(matches[word]), 200),
                    }
                    output.words.setdefault(word, row)
        return True
