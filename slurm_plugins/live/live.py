"""Jobs and nodes right now: pyslurm where it imports, Slurm's commands otherwise, the same records from both."""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, slurm_json
from probing_cluster.slurm_plugins.live import job_texts, live_json, live_pyslurm, live_records, live_text

_Answer = TypeVar("_Answer")
LOG = logging.getLogger("probing.slurm")
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}
_RELEASE = re.compile(r"(\d\d)\.(\d\d)")
_MOST_LOGGED = 8
"""Jobs newly left out of a listing that are logged one by one."""
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
        self._left_out: frozenset[int] = frozenset()

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
        return self._trusted(job_texts.listed(self._run))

    def job(self, job_id: int) -> live_records.LiveJob | None:
        if self._speaks_json() and self._version() >= (23, 2):
            output = self._ask_one("scontrol", "-a", "show", "job", str(job_id), "--json")
            return (
                next((job for job in live_json.jobs(_answered(output, "jobs")) if job.job_id == job_id), None)
                if output
                else None
            )
        found = job_texts.named(self._run, str(job_id))
        job_texts.require(found, job_id)
        return live_text.job(found.texts[job_id]) if job_id in found.texts else None

    def _trusted(self, listing: job_texts.JobTexts) -> list[live_records.LiveJob]:
        """Every job that can be read; each of the others is logged once while it stays in the listing.

        A job that came or went while Slurm listed it, and was not asked for alone, is none of them: as a moment earlier or later, it is not there.
        """
        found: list[live_records.LiveJob] = []
        left_out: dict[int, str] = {}
        for job_id in [*listing.texts, *sorted(listing.forged | listing.neighbours)]:
            try:
                job_texts.require(listing, job_id)
                found.append(live_text.job(listing.texts[job_id]))
            except errors.MalformedInput as exc:
                left_out[job_id] = str(exc)
        new = sorted(left_out.keys() - self._left_out)
        for job_id in new[:_MOST_LOGGED]:
            LOG.warning("a job is left out: %s", left_out[job_id])
        if len(new) > _MOST_LOGGED:
            LOG.warning("a job is left out: %s", f"and {len(new) - _MOST_LOGGED} more")
        self._left_out = frozenset(left_out)
        return found

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
        return commands.of_one(self._run, program, *arguments, environment=_ENVIRONMENT)


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
    if commands.NO_SUCH.search(words):
        return output
    raise commands.SlurmAway(
        f"it lists no {key} and says {words!r} (scontrol ping says whether slurmctld runs)"
    )
