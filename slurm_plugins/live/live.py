"""Jobs and nodes right now: pyslurm where it imports, Slurm's commands otherwise, the same records from both."""

from __future__ import annotations

import collections
import importlib
import logging
import os
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, slurm_json
from probing_cluster.slurm_plugins.live import live_json, live_pyslurm, live_records, live_text

_Answer = TypeVar("_Answer")
LOG = logging.getLogger("probing.slurm")
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}
_RELEASE = re.compile(r"(\d\d)\.(\d\d)")
_NO_SUCH = re.compile(r"\bInvalid (?:job id|node name) specified|\b(?:Job|Node) \S+ not found\b")
"""Slurm's words for a job or node that it does not know."""

_MOST_EMPTY_BYTES = 1 << 16
"""JSON without a job or node is shorter; longer output is not read twice."""


class Live(Protocol):
    """The controller's memory; every method raises SlurmUnavailable, and SlurmAway when the controller does not answer."""

    def nodes(self) -> list[live_records.LiveNode]:
        """Every node."""
        ...

    def node(self, name: str) -> live_records.LiveNode | None:
        """One node, read now; None when there is none of that name."""
        ...

    def jobs(self) -> list[live_records.LiveJob]:
        """Every job the controller remembers, pending and just ended ones included."""
        ...

    def job(self, job_id: int) -> live_records.LiveJob | None:
        """One job, read now; None when the controller does not know it."""
        ...


def connect(slurm: settings.SlurmSettings, run: commands.Runner | None = None) -> Live:
    """The way in that `[slurm] live` names; raises SlurmUnavailable when pyslurm is demanded and absent."""
    if slurm.live != "cli":
        try:
            return GuardedPyslurm(live_pyslurm.PyslurmLive(_pyslurm(slurm)))
        except ImportError as exc:
            if slurm.live == "pyslurm":
                raise errors.SlurmUnavailable(f"pyslurm does not import: {exc}") from exc
    return CommandLive(run or commands.SlurmCommands(settings=slurm))


def _pyslurm(slurm: settings.SlurmSettings) -> Any:
    if slurm.conf:
        os.environ["SLURM_CONF"] = slurm.conf  # libslurm reads it once, when the library is loaded
    return importlib.import_module("pyslurm")


class GuardedPyslurm:
    """pyslurm with its errors under our name; what goes wrong in the library itself is no outage of Slurm."""

    def __init__(self, inner: Live) -> None:
        self._inner = inner

    def nodes(self) -> list[live_records.LiveNode]:
        return self._call(self._inner.nodes)

    def node(self, name: str) -> live_records.LiveNode | None:
        return self._call(self._inner.node, name)

    def jobs(self) -> list[live_records.LiveJob]:
        return self._call(self._inner.jobs)

    def job(self, job_id: int) -> live_records.LiveJob | None:
        return self._call(self._inner.job, job_id)

    @staticmethod
    def _call(work: Callable[..., _Answer], *arguments: Any) -> _Answer:
        try:
            return work(*arguments)
        except commands.SlurmAway:
            raise
        except Exception as exc:
            raise errors.SlurmUnavailable(f"pyslurm: {exc}") from exc


class CommandLive:
    """The controller through squeue, sinfo and scontrol, in the form this release prints."""

    def __init__(self, run: commands.Runner) -> None:
        self._run = run
        self._release: tuple[int, int] | None = None
        self._json = True

    def nodes(self) -> list[live_records.LiveNode]:
        if self._speaks_json():
            # `scontrol --json` came with 23.02, which took the nodes out of `sinfo --json`.
            new = self._version() >= (23, 2)
            ask = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "-a", "--json")
            output = self._json_of(*ask)
            if output is not None:
                return live_json.nodes(_answered(output, "nodes"))
        return live_text.nodes(self._ask("scontrol", "-a", "-o", "show", "nodes"))

    def node(self, name: str) -> live_records.LiveNode | None:
        output = self._ask_one("scontrol", "-a", "-o", "show", "node", name)
        return next((node for node in live_text.nodes(output) if node.name == name), None)

    def jobs(self) -> list[live_records.LiveJob]:
        if self._speaks_json():
            output = self._json_of("squeue", "-a", "--json")
            if output is not None:
                return live_json.jobs(_answered(output, "jobs"))
        return self._untangled(
            live_text.trusted_jobs(self._ask("scontrol", "-a", "-d", "-o", "show", "jobs"))
        )

    def job(self, job_id: int) -> live_records.LiveJob | None:
        if self._speaks_json() and self._version() >= (23, 2):
            output = self._ask_one("scontrol", "-a", "show", "job", str(job_id), "--json")
            return (
                next((job for job in live_json.jobs(_answered(output, "jobs")) if job.job_id == job_id), None)
                if output
                else None
            )
        output = self._ask_one("scontrol", "-a", "-d", "-o", "show", "job", str(job_id))
        # Asked for an array's master Slurm shows its tasks too.
        lines = [line for line in live_text.job_lines(output) if line.startswith(f"JobId={job_id} ")]
        if len(lines) > 1:
            msg = f"job {job_id} is told more than once; somebody wrote a line of their own"
            raise errors.MalformedInput(msg)
        return live_text.job(lines[0]) if lines else None

    def _untangled(self, found: list[live_records.LiveJob]) -> list[live_records.LiveJob]:
        """When a listing holds a job twice, which any job's name can cause, Slurm is asked for that job alone."""
        counts = collections.Counter(job.job_id for job in found)
        alone = [job for job in found if counts[job.job_id] == 1]
        again = (self.job(job_id) for job_id, count in counts.items() if count > 1)
        return alone + [job for job in again if job is not None]

    def _version(self) -> tuple[int, int]:
        if self._release is None:
            output = self._run("scontrol", "--version").decode("ascii", "replace")
            match = _RELEASE.search(output)
            if match is None:
                raise errors.SlurmUnavailable(f"scontrol --version says {output[:60]!r}")
            self._release = (int(match[1]), int(match[2]))
        return self._release

    def _speaks_json(self) -> bool:
        return self._json and self._version() >= (21, 8)

    def _json_of(self, program: str, *arguments: str) -> bytes | None:
        """The JSON a command prints; None, remembered, where this build has no JSON."""
        try:
            return self._ask(program, *arguments)
        except errors.SlurmUnavailable as exc:
            if not any(word in str(exc).lower() for word in ("json", "serializer", "openapi", "data_parser")):
                raise
            LOG.info("this Slurm has no JSON output, its text is read instead: %s", exc)
            self._json = False
            return None

    def _ask(self, program: str, *arguments: str) -> bytes:
        return self._run(program, *arguments, environment=_ENVIRONMENT)

    def _ask_one(self, program: str, *arguments: str) -> bytes:
        """The objects that Slurm lists about one thing; none where there is no such thing."""
        try:
            return self._ask(program, *arguments)
        except commands.SlurmAway:
            raise
        except errors.SlurmUnavailable as exc:
            if _NO_SUCH.search(str(exc)):
                return b""
            raise


def _answered(output: bytes, key: str) -> bytes:
    """`output` as it is; raises SlurmAway for an empty list beside errors.

    With slurmctld away `sinfo --json` and `squeue --json` print exactly that, and end with 0.
    """
    if len(output) > _MOST_EMPTY_BYTES:
        return output
    document = slurm_json.load(output)
    if document.get(key) or not document.get("errors"):
        return output
    words = "; ".join(slurm_json.error_texts(document)) or "no reason given"
    if _NO_SUCH.search(words):
        return output
    raise commands.SlurmAway(
        f"it lists no {key} and says {words!r} (scontrol ping says whether slurmctld runs)"
    )
