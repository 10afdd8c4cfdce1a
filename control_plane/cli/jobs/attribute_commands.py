"""`probing-ctl attribute|verdict`: judge (again), and a person's own word."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import cluster_choice, commands, span
from probing_cluster.control_plane.cli.jobs import manual_verdict
from probing_cluster.control_plane.terminal import progress
from probing_cluster.core import (
    clock,
    command_line,
    errors,
    settings,
    vocabulary,
)

if TYPE_CHECKING:
    from probing_cluster.attribution.passes import attribute
    from probing_cluster.db import store as db_store

_EPOCH = datetime(1970, 1, 2, tzinfo=UTC)

_MOST_SLICE_DAYS = 36500


def register(register: commands.Commands) -> None:
    """Adds both."""
    made = register.add("attribute", _attribute, "judge attempts: what is open, or a span or jobs again")
    made.add_argument("--since", metavar="WHEN", help="judge again what ended since: 7d (ago), 2026-01-31 …")
    made.add_argument("--until", metavar="WHEN", help="and before")
    made.add_argument(
        "--job",
        metavar="JOBID",
        action="append",
        help="judge again this job's attempts: 123, 123_4 or 123+1",
    )
    made.add_argument("--dry-run", action="store_true", help="store nothing; show what would change")
    made.add_argument("--json", action="store_true", help="one JSON object")
    made.add_argument(
        "--engine",
        metavar="ENGINE",
        help="judge the exported history instead, storing nothing: local, dask://HOST:PORT, or slurm (workers as jobs)",
    )
    made.add_argument(
        "--history",
        metavar="DIRECTORY",
        type=Path,
        help="the history (default [attribution] history_directory)",
    )
    made.add_argument("--output", metavar="FILE", type=Path, help="write its verdicts as Parquet")
    made.add_argument("--slice-days", metavar="N", type=float, help="its slices (default a month each)")
    made.add_argument(
        "--worker",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what to ask Slurm for: n_jobs=8, cores=4, memory=16GiB, partition=cpu, directives=--account=ops …",
    )
    cluster_choice.add_option(made)
    made = register.add("verdict", _verdict, "set a job's verdict by hand; the rules never replace it")
    made.add_argument("job", metavar="JOBID", help="123, 123_4 or 123+1")
    made.add_argument(
        "--attempt", type=command_line.whole, metavar="N", help="which attempt (default the last that ended)"
    )
    made.add_argument("--cause", required=True, help="a word of docs/causes.md")
    made.add_argument("--note", default="", help="why; becomes the summary")
    made.add_argument("--node", help="the node at fault")
    made.add_argument("--device", help="the part at fault")
    cluster_choice.add_option(made)


def _attribute(args: argparse.Namespace) -> int:
    if args.engine is not None:
        return _by_engine(args)
    if args.history or args.output or args.slice_days or args.worker:
        raise errors.UsageError("--history, --output, --slice-days and --worker go with --engine")
    if args.cluster and args.job is None:
        raise errors.UsageError("--cluster goes with --job: a span's attempts are judged in every cluster")
    from probing_cluster.attribution.passes import attribute
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    now = clock.SYSTEM.now()
    since = span.instant(args.since, now) if args.since else None
    until = span.instant(args.until, now) if args.until else None
    how: dict[str, Any] = {"dry_run": args.dry_run, "config": config.attribution}
    output = _Json() if args.json else _DryText() if args.dry_run else _Text()
    total = _Total(dry_run=args.dry_run)
    with db_store.Store.open(config) as store:
        if args.job is not None:
            from probing_cluster.control_plane.imports import job_outputs

            own = cluster_choice.chosen(store, config, args.cluster)
            job_ids = job_outputs.job_ids_of(own, args.job)
            total.add(attribute.attribute(own, since=since, until=until, job_ids=job_ids, **how), output)
        else:
            for done in _followed(attribute.in_slices(store, since=since, until=until, **how)):
                total.add(done, output)
        if not args.dry_run:
            total.n_accounts = _accounted(store, config)
    output.end(total)
    return 0


def _by_engine(args: argparse.Namespace) -> int:
    if args.since is None or args.job is not None:
        raise errors.UsageError("--engine judges a span of the history: give --since, and no --job")
    if args.slice_days is not None and not 0 < args.slice_days <= _MOST_SLICE_DAYS:
        raise errors.UsageError(f"--slice-days is a number above 0 and at most {_MOST_SLICE_DAYS}")
    from probing_cluster.control_plane.cli.jobs import history_pass

    now = clock.SYSTEM.now()
    order = history_pass.PassOrder(
        engine=args.engine,
        since=span.instant(args.since, now),
        until=span.instant(args.until, now) if args.until else now,
        directory=args.history,
        output=args.output,
        slice_days=args.slice_days,
        workers=history_pass.workers(args.worker),
    )
    done = history_pass.run(order, settings.load(args.config))
    if args.json:
        found = {"attempts": done.n_attempts, "changed": done.n_changed, "causes": dict(done.causes)}
        print(json.dumps(found, indent=2))
        return 0
    _print_causes(done.causes)
    ends = f" (it ends at {done.until:%Y-%m-%d})" if done.until else ""
    print(
        f"{vocabulary.plural(done.n_attempts, 'attempt')} of the history{ends} judged,"
        f" {done.n_changed} of another cause than it holds; nothing stored"
    )
    return 0


def _print_causes(causes: Counter[str]) -> None:
    from probing_cluster.control_plane.terminal import table

    counts = [(n, cause) for cause, n in sorted(causes.items(), key=lambda c: (-c[1], c[0]))]
    if counts:
        print(table.render(("ATTEMPTS", "CAUSE"), counts, right=frozenset({"ATTEMPTS"})))


def _followed(slices: Iterator[attribute.AttributionRun]) -> Iterator[attribute.AttributionRun]:
    """The slices, while people see how far it has got."""
    with progress.ProgressBar("attribute", None, "attempts judged") as shown:
        for done in slices:
            if done.until is not None:
                shown.at(f"what ended before {done.until:%Y-%m-%d %H:%M} UTC is judged")
            shown.step(done.n_attempts)
            yield done


def _accounted(store: db_store.Store, config: settings.Settings) -> int:
    """How many run accounts were made, while people see how far it has got."""
    from probing_cluster.attribution.reliability import accounts

    with progress.ProgressBar("attribute", None, "run accounts") as shown:

        def between(n_accounts: int) -> bool:
            shown.at(f"{n_accounts:,} are stored")
            return True

        return accounts.update(store, config.attribution, since=_EPOCH, between=between)


class _Text:
    """What was judged, for people."""

    def changes(self, changed: Sequence[attribute.Change]) -> None:
        """One slice's; they are only counted."""

    def end(self, total: _Total) -> None:
        """The causes, and a last line."""
        _print_causes(total.causes)
        print(
            f"{vocabulary.plural(total.n_attempts, 'attempt')} judged,"
            f" {vocabulary.plural(total.n_changed, 'verdict')} new or changed,"
            f" {vocabulary.plural(total.n_accounts, 'run account')}"
        )


class _DryText(_Text):
    """What would change, for people: a table of each slice."""

    def changes(self, changed: Sequence[attribute.Change]) -> None:
        """One slice's."""
        from probing_cluster.control_plane.terminal import table

        rows = [
            (
                c.after.job_id,
                c.after.attempt,
                c.before.cause if c.before else None,
                c.after.cause,
                c.after.confidence.value,
                c.after.summary,
            )
            for c in changed
        ]
        if rows:
            print(table.render(("JOB", "ATTEMPT", "WAS", "WOULD BE", "SURE", "SUMMARY"), rows))

    def end(self, total: _Total) -> None:
        """The last line."""
        judged, changed = (
            vocabulary.plural(*p) for p in ((total.n_attempts, "attempt"), (total.n_changed, "verdict"))
        )
        print(f"{judged} judged, {changed} would change; nothing stored")


class _Json(_Text):
    """One JSON object, written as the slices come."""

    def __init__(self) -> None:
        print('{\n  "changes": [', end="")
        self._between = "\n"

    def changes(self, changed: Sequence[attribute.Change]) -> None:
        """One slice's."""
        for c in changed:
            made = {
                "job_id": c.after.job_id,
                "attempt": c.after.attempt,
                "before": c.before.cause if c.before else None,
                "after": c.after.cause,
                "confidence": c.after.confidence.value,
                "node": c.after.node,
                "summary": c.after.summary,
            }
            print(f"{self._between}    {json.dumps(made)}", end="")
            self._between = ",\n"

    def end(self, total: _Total) -> None:
        """The rest of the object."""
        rest = {"attempts": total.n_attempts, "dry_run": total.dry_run, "causes": dict(total.causes)}
        print("\n  ],\n" + json.dumps(rest, indent=2).removeprefix("{\n"))


@dataclasses.dataclass(kw_only=True)
class _Total:
    """What all slices came to; no verdict is kept."""

    dry_run: bool
    n_attempts: int = 0
    n_changed: int = 0
    n_accounts: int = 0
    causes: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, run: attribute.AttributionRun, output: _Text) -> None:
        """One slice."""
        output.changes(run.changed)
        self.n_attempts += run.n_attempts
        self.n_changed += len(run.changed)
        self.causes.update(run.counts)


def _verdict(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.cli.nodes.nodes_commands import caller_name
    from probing_cluster.control_plane.policy import slurm_actions
    from probing_cluster.db import store as db_store
    from probing_cluster.slurm_plugins import commands as slurm_commands

    config = settings.load(args.config)
    manual_verdict.taxonomy_cause(args.cause)
    slurm = slurm_actions.SlurmActions(config, slurm_commands.SlurmCommands(settings=config.slurm))
    with db_store.Store.open(config) as opened:
        store = cluster_choice.chosen(opened, config, args.cluster)
        given = manual_verdict.ManualVerdict(
            job=args.job, attempt=args.attempt, cause=args.cause, note=args.note, node=args.node,
            device=args.device, author=store.speaker(caller_name()),
        )  # fmt: skip
        count = manual_verdict.gpu_count(slurm, config.cluster.name)
        print(f"job {args.job} {manual_verdict.set_verdict(store, given, count)}")
    return 0
