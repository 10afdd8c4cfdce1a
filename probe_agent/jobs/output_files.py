"""The files that a job writes its output to on one node, and what a report shows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import errors, hostlist, sanitize, vocabulary
from probing_cluster.probe_agent.jobs import jobs, log_names

LATER_START = "later start"
_TOO_LONG = f"its path is too long: more than {jobs.MAX_PATH_BYTES:,} bytes, or more than {jobs.MAX_PATHS_BYTES:,} with those of the job's other files"
_FAILED = "the agent failed when it read it; its log says why"
_WHY = {
    "ENOENT": "there is no such file",
    "EACCES": "its owner may not read it",
    "EPERM": "its owner may not read it",
    "ELOOP": "it is a symbolic link",
    "ENOTDIR": "a part of its path is not a directory",
    "ESTALE": "its file server no longer has it",
    "ENAMETOOLONG": "its path is longer than the kernel takes",
    "EIO": "its file system answers with errors",
    LATER_START: vocabulary.LATER_START_WROTE,
}
"""Error of opening a file to the sentence that a report shows."""


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """The output files of one job on one node."""

    to_read: list[tuple[str, tuple[str, ...]]]
    """Each file's stream (`stdout`, `stderr`; `output` for a step's) and the paths it may have. A path is listed once."""
    unread: list[dict[str, Any]]
    """The report's rows of streams that are not read: their path cannot be known, or the job discards them."""


def of_job(job: jobs.NodeJob, node: str, *, anywhere: bool = False) -> OutputFiles:
    """The output files of `job` on `node`: the batch script's on its own node (with `anywhere` on every node), the steps' on each."""
    named: dict[str, tuple[str, ...]] = {}
    unread: list[dict[str, Any]] = []
    for stream, pattern in log_names.patterns(job).items() if anywhere or writes_here(job, node) else ():
        try:
            named[stream] = log_names.names(pattern, job, writing_node(job) or node)
        except log_names.NotKnown as exc:
            if not job.logs:
                path = sanitize.clean(pattern, 1024)
                unread.append({"stream": stream, "path": path, "why": str(exc), "unnamed": True})
    unread += [
        {"stream": stream, "path": paths[0], "why": vocabulary.DISCARDED_OUTPUT}
        for stream, paths in named.items()
        if paths[0] == "/dev/null"
    ]
    batch = {path for paths in named.values() for path in paths}
    to_read = [(stream, paths) for stream, paths in named.items() if paths[0] != "/dev/null"]
    to_read += [("output", (path,)) for path in job.logs if path not in batch]
    unread += [
        {"stream": "output", "path": f"{sanitize.clean(path, 200)}…", "why": _TOO_LONG} for path in job.unread
    ]
    return OutputFiles(to_read=to_read, unread=unread)


def writes_here(job: jobs.NodeJob, node: str) -> bool:
    """Whether the job's batch script runs on `node`; True on every node where the job's list of nodes is not known."""
    return writing_node(job) in (None, node)


def writing_node(job: jobs.NodeJob) -> str | None:
    """The first node of the job's list, where the batch script runs; None where the list is not known."""
    listed = nodes(job)
    return listed[0] if listed else None


def nodes(job: jobs.NodeJob) -> list[str]:
    """The job's nodes; empty where Slurm's list cannot be parsed."""
    try:
        return hostlist.expand(job.nodelist)
    except errors.MalformedInput:
        return []


def times(job: jobs.NodeJob) -> dict[str, Any]:
    """The job's times as its logs' reader takes them, seconds since 1970: `began_s` of a later start, `span_s` of an ended one."""
    began_s = job.started_at.timestamp()
    began: dict[str, Any] = {"began_s": began_s} if job.restart_count else {}
    return began if job.released_at is None else {**began, "span_s": (began_s, job.released_at.timestamp())}


def row(stream: str, path: str, job: jobs.NodeJob, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The report's row of one file, by its reader's answer: its last lines, or why it was not read."""
    shown: dict[str, Any] = {"stream": stream, "path": sanitize.clean(path, 1024)}
    if "refused" in answer:
        why = str(answer["refused"])
        if answer.get("open_directory") is True:
            shown["open_directory"] = True
        return {**shown, "why": sanitize.clean(_WHY.get(why, why), 200), **_missing(stream, job, why)}
    shown["tail"] = [sanitize.clean(str(line), 200) for line in answer.get("tail", ())]
    if answer.get("error"):
        shown["error"] = sanitize.clean(str(answer["error"]), 200)
        shown["error_place"] = sanitize.clean(str(answer.get("error_place", "")), 40)
    if isinstance(answer.get("written_s"), int | float):
        # A later start on another node may have written into it: the report knows of that one.
        shown["written_s"] = answer["written_s"]
    if answer.get("note"):
        shown["note"] = sanitize.clean(str(answer["note"]), 200)
    return shown


def not_stored(shown: Sequence[Mapping[str, Any]], why: str) -> list[dict[str, Any]]:
    """The report's rows of these files without their lines: who waits for the output learns that none will come."""
    return [{"stream": row["stream"], "path": row["path"], "why": f"not stored: {why}"} for row in shown]


def reading_failed(job: jobs.NodeJob, node: str) -> list[dict[str, Any]]:
    """The report's rows where reading the job's output failed as a whole: who waits for the output learns that none will come."""
    named = log_names.patterns(job) if writes_here(job, node) else {}
    return [{"stream": s, "path": sanitize.clean(path, 1024), "why": _FAILED} for s, path in named.items()]


def _missing(stream: str, job: jobs.NodeJob, why: str) -> dict[str, Any]:
    """Further fields of a file that is not there: `unnamed` where its path was a guess, and a `why` that fits an interactive job."""
    if why != "ENOENT":
        return {}
    added: dict[str, Any] = {} if log_names.ids_known(job) else {"unnamed": True}
    if stream == "stdout" and not job.stdout:
        # Older releases do not tell the Prolog whether sbatch, srun or salloc began the job.
        added["why"] = f"{_WHY['ENOENT']}; {vocabulary.ON_A_TERMINAL}"
    return added


def copy_row(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The row's fields about a file's copy: its path, or why there is none."""
    if isinstance(answer.get("copy"), str):
        return {"copy": sanitize.clean(answer["copy"], 1024)}
    return {"no_copy": sanitize.clean(str(answer.get("refused", "its reader named no copy")), 200)}
