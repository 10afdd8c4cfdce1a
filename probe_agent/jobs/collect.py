"""Collects what a job left behind, when its Epilog runs or the service asks: log tail, flight-recorder dumps, pages.

Everything is read by a child that has become the job's user. What it finds is the job's own statement and marked
as such (source joblog, dump, probe): alone it never drains a node.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from probing_cluster.core import clock, processes, records, sanitize, settings
from probing_cluster.healthchecks.readers import mounts
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.jobs import (
    jobs,
    log_names,
    output_files,
    output_growth,
    page_directories,
    row_share,
    user_turns,
)
from probing_cluster.probe_agent.spool import intake

NAME = "collect"
DEADLINE_S = 30.0
AT_ONCE, AT_ONCE_OF_ONE = 3, 2
"""Most readers at once: of all users, and of one user, so that one user's slow files leave a place to the others."""
CLOCKS_DIFFER_S = 1.0
"""A file's time may be so much later than the end of the job that wrote it last."""
MAX_JOBS = 64
"""Jobs collected at once, AT_ONCE_OF_ONE of one user; the findings of each are held in memory until all are there."""
MAX_UNANSWERED = 2
"""Files of one job whose readers may be ended at their deadline; its other files are then not tried: each costs DEADLINE_S."""
TIDY_S = 10.0
FIND_AT_S = (0.7, 2.0, 10.0, 40.0)
"""Seconds after its start at which a job's processes are looked at for the files they write."""

T = TypeVar("T")
PageReader = Callable[[jobs.NodeJob], Awaitable[list[Sighting]]]
"""Reads the probe's pages in a job's page directory, before that is removed. Tests put another one in its place."""

NO_ANSWER = "its reader did not answer"
"""It was past its deadline, or is stuck in the kernel."""
STUCK = "earlier readers are stuck in the kernel on a file system that does not answer"
READER_FAILED = "its reader failed"
"""The child ended by itself and gave no answer: our defect or a lack of memory. The file does not hang."""
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.jobs.collect_child")
_KEEP_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.ranks.keep_child")
KEPT_LEAST_BYTES = 64 * 1024
"""Least share of a job's kept bytes that one node has, however many nodes the job has."""
_log = logging.getLogger(__name__)


class Collector:
    """Collects for one agent: a few readers at a time, shared fairly among the users."""

    def __init__(
        self,
        *,
        identity: identity.Identity,
        children: children.Children,
        intake: intake.Intake,
        book: jobs.JobBook,
        pages: page_directories.PageDirectories,
        watch: self_watch.SelfWatch,
        page_reader: PageReader | None = None,
        shares: row_share.RowShares | None = None,
        kept: settings.KeptSettings | None = None,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._identity = identity
        self._children = children
        self._intake = intake
        self._book = book
        self._pages = pages
        self._watch = watch
        self._page_reader = page_reader
        self._kept = kept or settings.KeptSettings()
        self.sizes = output_growth.OutputSizes()
        self._clock = clock
        self._turns = user_turns.ReaderTurns(AT_ONCE, AT_ONCE_OF_ONE)
        self._logged = deque[tuple[int, str]](maxlen=MAX_JOBS)
        self._shares = shares or row_share.RowShares(clock)
        self._begun = user_turns.ReaderTurns(MAX_JOBS, AT_ONCE_OF_ONE)

    async def collect(self, job: jobs.NodeJob) -> None:
        """Collect everything of one job; of a job that has ended its page directory goes, too.

        An agent that is killed in between repeats all of it at its next start, with the same identities: they make the same rows.
        """
        if job.uid is None:
            return
        ended = job.released_at is not None
        async with self._begun.of(job.uid):
            failed = output_files.reading_failed(job, self._identity.node)
            sightings, shown = await self._part(job, self._logs(job), ([], failed))
            for part in (self._dumps, self._rank_pages):
                sightings += await self._part(job, part(job), [])
            kept = self._shares.take(job.uid, sightings)
            if kept is None:
                why = "its user's jobs have used up their share of the node's rows of this hour"
                self._watch.failed(NAME, f"job {job.job_id}: not stored, {why}", state="ok")
                shown = output_files.not_stored(shown, why)
            # Before the tables are kept: a file server that is slow to take them delays no evidence.
            rows = [job.logs_item(self._identity, shown)] if ended and shown else ()
            self._intake.take(kept or (), rows=rows)
            if not ended:
                return
            await self._keep(job)
            self._book.mark_collected(job)
            self._intake.store((), self._book.changed_states())
            if self._set_aside(job.job_id):
                await asyncio.to_thread(self._finish, job.job_id)

    async def _part(self, job: jobs.NodeJob, part: Awaitable[T], otherwise: T) -> T:
        """A part of what a job left; `otherwise` where reading it fails: what a user wrote may cost that part, and not the others."""
        try:
            return await part
        except Exception as exc:  # noqa: BLE001 - logged and counted
            _log.exception("a part of what job %d left could not be read", job.job_id)
            self._watch.failed(NAME, f"job {job.job_id}: {type(exc).__name__}: {exc}")
            return otherwise

    async def keep_log(self, job: jobs.NodeJob, most_bytes: int) -> None:
        """Copy a batch job's output files beside themselves, as its owner, and note the copies in its row.

        Any node of the job can do so: the node that wrote them may be the one that broke.
        """
        if job.uid is None:
            return
        async with self._begun.of(job.uid):
            _, shown = await self._logs(job, anywhere=True)
            for row in shown if most_bytes else ():
                if "tail" in row:
                    start = job.restart_count + 1
                    question = {"op": "keep", "path": row["path"], "start": start, "most": most_bytes}
                    row.update(output_files.copy_row(await self._read(job, question)))
            if shown:
                self._intake.store([job.logs_item(self._identity, shown, mark="kept")])

    async def tidy_for_ever(self) -> None:
        """Keep page directories ready for the next jobs, and go on with removals that were cut short."""
        while True:
            await asyncio.to_thread(self._tidy)
            await asyncio.sleep(TIDY_S)
            # Not before the first pause: by then the agent knows the jobs that began while it was away.
            self.discard_left_behind()

    def discard_left_behind(self) -> None:
        """Set aside the page directories of jobs that were collected by an agent that ended before it could."""
        for job_id in self._book.finished():
            self._set_aside(job_id)

    async def find_logs(self, job: jobs.NodeJob) -> None:
        """Find the output files of a job that has just begun in /proc. Looks several times, since each step may have files of its own."""
        if job.uid is None:
            return
        waited_s = 0.0
        for at_s in FIND_AT_S:
            await asyncio.sleep(at_s - waited_s)
            waited_s = at_s
            known = self._book.get(job.job_id)
            if known is None or known.released_at is not None or known.restart_count != job.restart_count:
                return
            answer = await self.ask(job, {"op": "find", "job_id": job.job_id, "node": self._identity.node})
            logs, ids = [str(p) for p in answer.get("logs", ())], dict(answer.get("ids", {}))
            self._book.add_output_files(job, logs, ids)
            self._intake.store((), self._book.changed_states())

    def older_files(self, job: jobs.NodeJob) -> list[str]:
        """The output files that may have existed before the job; a file that bears the job's number did not."""
        # Slurm's default name bears the number. The Prolog waits: no names are expanded where that is enough.
        if job.uid is None or not (job.stdout or job.stderr or job.restart_count):
            return []
        named = (path for _, paths in self._files(job).to_read for path in paths)
        return [path for path in named if not log_names.is_new(path, job)]

    async def look_before(self, job: jobs.NodeJob, paths: Sequence[str]) -> None:
        """Record what these output files hold before the job writes: with `--open-mode=append` earlier jobs' output stays in them."""
        before: dict[str, list[Any]] = {}
        for path in paths:
            question = {"op": "before", "path": path, "started_s": job.started_at.timestamp()}
            found = output_growth.before_of((await self.ask(job, question)).get("before"))
            if found is not None:
                before[path] = found
        if before:
            self._book.set_preexisting_output(job, before)
            self._intake.store((), self._book.changed_states())

    async def _logs(
        self, job: jobs.NodeJob, *, anywhere: bool = False
    ) -> tuple[list[Sighting], list[dict[str, Any]]]:
        """The sightings in a job's output files on this node, and the report's row of each file: its last lines, or why it was not read."""
        files = self._files(job, anywhere=anywhere)
        sightings: list[Sighting] = []
        shown = list(files.unread)
        read, unanswered = set[Any](), 0
        answers: list[Mapping[str, Any]] = []
        for stream, paths in files.to_read:
            if unanswered >= MAX_UNANSWERED:
                why = f"not tried: {unanswered} other files of the job did not answer"
                shown.append(output_files.row(stream, paths[0], job, {"refused": why}))
                continue
            for n, path in enumerate(paths):
                question: dict[str, Any] = {"op": "log", "path": path, "job_ids": job.slurm_ids}
                if path in job.before:
                    question["before"] = list(job.before[path])
                if (later := self._later_start(job)) is not None and path in later.before:
                    question["after"] = list(later.before[path])
                question |= output_files.times(job) | self.sizes.question(job, path)
                answer = await self._read(job, question)
                if self._is_of_later_start(job, answer):
                    answer = {"refused": output_files.LATER_START}
                unanswered += answer.get("refused") == NO_ANSWER
                if answer.get("refused") == "ENOENT" and n + 1 < len(paths):
                    continue  # it may have the next name
                if answer.get("inode") is None or answer["inode"] not in read:
                    read.add(answer.get("inode"))
                    sightings += self._of_log(job, path, answer)
                    answers.append(answer)
                    shown.append(output_files.row(stream, path, job, answer))
                break
        # A job that goes on in one of its files does not stand still.
        sightings = [s for s in sightings if not output_growth.is_contradicted(s.kind, answers)]
        return sightings, shown[: jobs.MAX_LOGS]

    def _later_start(self, job: jobs.NodeJob) -> jobs.NodeJob | None:
        """The start of the same job on this node after `job`, which has ended; None without one."""
        known = self._book.get(job.job_id)
        return known if known is not None and known.restart_count > job.restart_count else None

    def _is_of_later_start(self, job: jobs.NodeJob, answer: Mapping[str, Any]) -> bool:
        """Whether a later start has written into the file, and what is the earlier one's cannot be told."""
        written_s = answer.get("written_s")
        if (
            job.released_at is None
            or not isinstance(written_s, int | float)
            or self._later_start(job) is None
        ):
            return False
        return float(written_s) > job.released_at.timestamp() + CLOCKS_DIFFER_S

    def outputs(self, job: jobs.NodeJob) -> list[str]:
        """The output files of a running job on this node whose paths are known."""
        return [paths[0] for _, paths in self._files(job).to_read] if job.uid is not None else []

    def _files(self, job: jobs.NodeJob, *, anywhere: bool = False) -> output_files.OutputFiles:
        return output_files.of_job(job, self._identity.node, anywhere=anywhere)

    def _of_log(self, job: jobs.NodeJob, path: str, answer: Mapping[str, Any]) -> list[Sighting]:
        shared = answer.get("filesystem") in mounts.NETWORK
        # On a network file system every node knows the file by its inode; elsewhere the path names this node's own.
        file = f"inode {answer['inode']}" if shared else sanitize.clean(path, 1024)
        return [self._from_log(job, file, f, shared=shared) for f in answer.get("findings", ())]

    async def _dumps(self, job: jobs.NodeJob) -> list[Sighting]:
        directory = self._pages.path(job.job_id)
        if not directory.is_dir():
            return []
        answer = await self._read(job, {"op": "dumps", "directory": str(directory)})
        return [self._from_dump(job, n, f) for n, f in enumerate(answer.get("findings", ()))]

    async def _rank_pages(self, job: jobs.NodeJob) -> list[Sighting]:
        if self._page_reader is None or job.uid is None:
            return []
        async with self._turns.of(job.uid):
            return await self._page_reader(job)

    async def _keep(self, job: jobs.NodeJob) -> None:
        """Write the job's tables into its owner's history directory, if the site has one configured."""
        directory = self._pages.path(job.job_id)
        if not self._kept.directory or not directory.is_dir():
            return
        n_nodes = max(1, len(output_files.nodes(job)))
        request = {
            "op": "keep",
            "directory": str(directory),
            "history": self._kept.directory,
            "node": self._identity.node,
            "attempt": f"{self._identity.cluster}-{job.job_id}-{job.restart_count}",
            "most_bytes": max(self._kept.job_bytes // n_nodes, KEPT_LEAST_BYTES),
            "most_bytes_in_all": self._kept.user_bytes,
            "days": self._kept.days,
        }
        refused = (await self._read(job, request, _KEEP_CHILD)).get("refused")
        if refused and (job.uid or 0, "kept") not in self._logged:
            self._logged.append((job.uid or 0, "kept"))
            _log.warning("job %s: nothing of it is kept for its owner: %s", job.job_id, refused)

    async def _read(
        self, job: jobs.NodeJob, request: Mapping[str, Any], child: tuple[str, ...] = _CHILD
    ) -> dict[str, Any]:
        """`ask` in its owner's turn. A turn is one file long, so that other users come in between."""
        assert job.uid is not None
        async with self._turns.of(job.uid):
            return await self.ask(job, request, child)

    async def ask(
        self, job: jobs.NodeJob, request: Mapping[str, Any], child: tuple[str, ...] = _CHILD
    ) -> dict[str, Any]:
        """The answer of a child that has become the job's owner. Where there is none, `refused` is NO_ANSWER or READER_FAILED."""
        assert job.uid is not None
        if not self._children.may_start(NAME, job.uid):
            self._watch.failed(NAME, f"job {job.job_id}: not read, {STUCK}", state="hung")
            return {"refused": STUCK}
        question = {**request, "uid": job.uid, "gid": job.gid if job.gid is not None else job.uid}
        try:
            done = await self._children.run(
                f"{NAME} {job.uid} {job.job_id}",
                child,
                deadline_s=DEADLINE_S,
                stdin=json.dumps(question).encode(),
                environment={"TZ": self._identity.time_zone()},
            )
        except children.ChildHung as exc:
            self._watch.failed(NAME, f"job {job.job_id}: {exc}")
            return {"refused": NO_ANSWER}
        except processes.ChildFailed as exc:
            return self._reader_failed(job, request["op"], str(exc))
        try:
            answer = children.answer_of(done.stdout)
        except ValueError:
            return self._reader_failed(job, request["op"], done.ending)
        if isinstance(refused := answer.get("refused"), str):
            self._watch.failed(NAME, f"job {job.job_id}: {request['op']}: {refused}", state="ok")
        else:
            self._watch.read(NAME, self._clock.now())
        return answer

    def _reader_failed(self, job: jobs.NodeJob, op: str, why: str) -> dict[str, Any]:
        """Record why a reader failed in the agent's state and, once a job and kind of reading, in its log."""
        words = f"job {job.job_id}: {op}: {READER_FAILED}: {why}"
        self._watch.failed(NAME, words)
        if (job.job_id, op) not in self._logged:
            self._logged.append((job.job_id, op))
            _log.warning("%s", words)
        return {"refused": READER_FAILED}

    def _from_log(self, job: jobs.NodeJob, file: str, found: Mapping[str, Any], *, shared: bool) -> Sighting:
        """The sighting of one finding; on a `shared` file system one event, whichever nodes report the line."""
        sighting = self._sighting(job, "joblog", f"{file}:{found['offset']}:{found['kind']}", found)
        return replace(sighting, shared=shared)

    def _from_dump(self, job: jobs.NodeJob, number: int, found: Mapping[str, Any]) -> Sighting:
        return self._sighting(job, "dump", f"{number}:{found['kind']}", found)

    def _sighting(self, job: jobs.NodeJob, source: str, position: str, found: Mapping[str, Any]) -> Sighting:
        found, now = sanitize.without_secrets_in(found), self._clock.now()
        ended = job.released_at or now
        at = found.get("at_s")
        reported_at = clock.from_epoch_s(at) if isinstance(at, (int, float)) else ended
        return Sighting(
            source=source,
            position=f"{job.job_id}:{job.restart_count}:{position}",
            at=min(max(reported_at, job.started_at), now),
            kind=str(found["kind"]),
            code=found.get("code"),
            severity=records.Severity.INFO,
            message=str(found.get("message", "")),
            pid=found.get("pid"),
            measured=found.get("measured"),
            unit=found.get("unit"),
            job_id=job.job_id,
            detail={**found.get("detail", {}), "restart_count": job.restart_count},
        )

    def _set_aside(self, job_id: int) -> bool:
        """Free the page directory's name; True where something is left to be taken apart.

        In the event loop, where Prologs are answered: no directory that one of them has just made is taken.
        """
        if job_id in self._book.running:  # started again meanwhile: the directory is that start's
            return False
        try:
            return self._pages.set_aside(job_id)
        except OSError as exc:
            _log.warning("page directory of job %d: %s", job_id, exc)
            return False

    def _finish(self, job_id: int) -> None:
        try:
            if not self._pages.finish():
                _log.warning("page directory of job %d: it is still written to; its removal goes on", job_id)
        except OSError as exc:
            _log.warning("page directory of job %d: %s", job_id, exc)

    def _tidy(self) -> None:
        try:
            self._pages.tidy()
        except OSError as exc:
            _log.warning("page directories: %s", exc)
