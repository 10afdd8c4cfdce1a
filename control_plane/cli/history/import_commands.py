"""`probing-ctl import`: history from files, for a site that has nothing else."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probing_cluster.control_plane.cli import commands, span
from probing_cluster.control_plane.terminal import progress
from probing_cluster.core import clock, errors, settings, vocabulary

if TYPE_CHECKING:
    from probing_cluster.control_plane.imports import load

_EPILOG = """example:
  probing-ctl import --sacct sacct.txt --kernel n2=n2-kern.log --joblog 4242=slurm-4242.out --database ./history
  export PROBING_CONFIG=./history/probing.toml
  probing-ctl attribute && probing-report 4242"""


def register(register: commands.Commands) -> None:
    """Adds `import`."""
    made = register.add("import", _import, "load history from files into a database", epilog=_EPILOG)
    made.add_argument(
        "--sacct",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="`sacct -P` text, `sacct --json`, or the text of `scontrol show job`",
    )
    made.add_argument(
        "--kernel",
        metavar="[NODE=]FILE",
        action="append",
        default=[],
        help="a node's kernel log; without NODE each line is of the node its host names",
    )
    made.add_argument("--joblog", metavar="JOBID=FILE", action="append", default=[], help="a job's output")
    made.add_argument(
        "--events", metavar="FILE", type=Path, action="append", default=[], help="one JSON object a line"
    )
    made.add_argument(
        "--boot",
        metavar="NODE=WHEN",
        action="append",
        default=[],
        help="boot instant, for logs that say only uptime",
    )
    made.add_argument("--timezone", metavar="TZ", help="IANA zone of times without one (default UTC)")
    made.add_argument(
        "--fields", metavar="LIST", help="columns of `sacct --noheader` output, as given to --format"
    )
    made.add_argument("--delimiter", metavar="TEXT", help="of `sacct -P` (default: found out)")
    made.add_argument(
        "--cluster", metavar="NAME", help="cluster of all rows (default what each says, else [cluster] name)"
    )
    made.add_argument("--database", metavar="DIR|URL", help="where to load it (default: as configured)")
    made.add_argument(
        "--rejects",
        metavar="DIR",
        type=Path,
        help="where unreadable rows are kept (default: beside the database)",
    )


def _import(args: argparse.Namespace) -> int:
    with progress.ProgressBar("import", None, None) as shown:
        config, done = _loaded(args, shown.at)
    _print(args, config, done)
    return 0


def _loaded(args: argparse.Namespace, announce: load.Announce) -> tuple[settings.Settings, object]:
    if not (args.sacct or args.kernel or args.joblog or args.events):
        raise errors.UsageError("nothing to import; give --sacct, --kernel, --joblog or --events")
    from probing_cluster.control_plane.imports import load
    from probing_cluster.db import store as db_store
    from probing_cluster.db.server import embedded

    base = settings.load(args.config)
    config = dataclasses.replace(base, database=database_of(base, args.database))
    now = clock.SYSTEM.now()
    load.zone_of(args.timezone)
    order = load.LoadOrder(
        sacct=args.sacct,
        kernel=_logs(args.kernel),
        joblog=[(name, Path(path)) for name, path in _pairs(args.joblog, "--joblog JOBID=FILE")],
        events=args.events,
        boots={name: span.instant(when, now) for name, when in _pairs(args.boot, "--boot NODE=WHEN")},
        timezone=args.timezone,
        delimiter=args.delimiter,
        fields=args.fields.split(",") if args.fields else None,
        cluster=args.cluster,
        unnamed=base.cluster.name,
        now=now,
    )
    _require_readable([*order.sacct, *order.events, *(path for _, path in (*order.kernel, *order.joblog))])
    files = load.read(order, announce)
    # Only what was read makes a database: job output alone is about attempts that one has already.
    fruitful = bool(
        files.attempts
        or files.not_started
        or any(one.found.events for one in files.events)
        or config.database.url
    )
    is_new = not config.database.url and not embedded.exists(config.database.directory)
    if is_new and not fruitful and not args.joblog:
        msg = "these files hold no attempt and no event, so no database was made of them; give --sacct or --kernel files that do"
        raise errors.MalformedInput(msg)
    if is_new and fruitful:
        load.require_jobs(order, files.attempts)
    with (
        _removed_on_failure(Path(config.database.directory)) if is_new else contextlib.nullcontext(),
        db_store.Store.open(config, upgrade=fruitful) as store,
    ):
        done = load.save(store, order, files, announce)
    return config, done


@contextlib.contextmanager
def _removed_on_failure(home: Path) -> Iterator[None]:
    """Around what makes a database: where it fails, its server is stopped, and what was made is removed."""
    from probing_cluster.db.server import embedded

    missing = next((path for path in [*reversed(home.parents), home] if not path.exists()), None)
    before = set(home.iterdir()) if missing is None else set()
    try:
        yield
    except BaseException:
        embedded.stop(home)
        made = [path for path in home.iterdir() if path not in before] if missing is None else [missing]
        for path in made:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _require_readable(paths: Sequence[Path]) -> None:
    """Raises MalformedInput naming every path that cannot be opened: the others may take minutes to read."""
    failed = []
    for path in dict.fromkeys(paths):
        try:
            # Not opened when it is a pipe: what it holds can be read once.
            if not stat.S_ISFIFO(path.stat().st_mode):
                path.open("rb").close()
        except OSError as exc:
            failed.append(f"{path} cannot be read: {exc.strerror}")
    if failed:
        raise errors.MalformedInput("; ".join(failed))


def database_of(base: settings.Settings, text: str | None) -> settings.DatabaseSettings:
    """The database that `--database` names: a directory or a URL; as configured when it names none."""
    if text is None:
        return base.database
    if "://" in text:
        return dataclasses.replace(base.database, url=text)
    return dataclasses.replace(base.database, url="", directory=str(Path(text).resolve()))


def _logs(texts: Sequence[str]) -> list[tuple[str, Path]]:
    """Node and file of each --kernel; no node where the file is of many."""
    logs = []
    for text in texts:
        node, equals, _ = text.partition("=")
        if not equals or "/" in node:
            logs.append(("", Path(text)))
        else:
            logs += [
                (name, Path(value)) for name, value in _pairs([text], "--kernel NODE=FILE or --kernel FILE")
            ]
    return logs


def _pairs(texts: Sequence[str], form: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise errors.UsageError(f"{text!r} is not {form}")
        pairs.append((name, value))
    return pairs


def _print(args: argparse.Namespace, config: settings.Settings, done: object) -> None:
    from probing_cluster.control_plane.imports import load, rejected_input

    assert isinstance(done, load.Loaded)
    print("\n".join(done.lines))
    directory = Path(config.database.directory)
    home = args.rejects or (Path.cwd() if config.database.url else directory)
    kept = rejected_input.write(done.bad, home)
    if kept:
        print(
            "\n".join(
                [
                    f"{vocabulary.plural(len(done.bad), 'row')} could not be read, kept in {kept}:",
                    *rejected_input.shown(done.bad),
                ]
            )
        )
    print(
        f"stored {vocabulary.plural(done.n_attempts, 'new attempt')} and {vocabulary.plural(done.n_events, 'new event')}"
        + _already(done.n_known_attempts, done.n_known_events)
    )
    if args.database and not config.database.url:
        path = directory / "probing.toml"
        if not path.exists():
            path.write_text(_config_text(done.cluster, directory), encoding="utf-8")
        print(f"next: export PROBING_CONFIG={path}; probing-ctl attribute; probing-report JOBID")


def _already(n_attempts: int, n_events: int) -> str:
    """What of the files the database had before; empty for none."""
    parts = [vocabulary.plural(n, noun) for n, noun in ((n_attempts, "attempt"), (n_events, "event")) if n]
    if not parts:
        return ""
    verb = "was" if n_attempts + n_events == 1 else "were"
    return f"; {' and '.join(parts)} {verb} there already"


def _config_text(cluster: str, directory: Path) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    sections = (
        ("cluster", "name", cluster),
        ("database", "directory", str(directory)),
        # Not the socket of a live service: it speaks for another database.
        ("service", "socket", str(directory / "report.sock")),
    )
    return "\n".join(f"[{section}]\n{key} = {quoted(value)}\n" for section, key, value in sections)
