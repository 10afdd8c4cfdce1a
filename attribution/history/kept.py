"""Kept tables of ended attempts, as Parquet: the job's owner reads them with the same SQL as while it ran.

A node writes `<directory>/<cluster>-<job id>-<restarts>/<node>.kept`, without Arrow. The first reader converts these files
into one Parquet file per table, `<schema>.<table>.<part>.parquet`, and removes them. Integers and times are delta-coded,
floats split by bytes, both with zstd; texts have dictionaries.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import re
import stat
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from probing_cluster.core import digits, errors, settings
from probing_cluster.evidence import kept_file

SUFFIX = ".kept"
MAX_FILE_BYTES = 256 << 20
TYPES: Mapping[kept_file.Kind, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "time": pa.timestamp("ns", tz="UTC"),
}
_PART = re.compile(r"(?P<schema>[^.]+)\.(?P<name>[^/]+)\.(?P<part>[0-9]{1,9})\.parquet")
_MARK = ".nodes"
"""Suffix of the file that lists the nodes of a complete part."""
_ENCODING: Mapping[str, str] = {
    "int": "DELTA_BINARY_PACKED",
    "time": "DELTA_BINARY_PACKED",
    "float": "BYTE_STREAM_SPLIT",
}

Tables = dict[tuple[str, str], pa.Table]
"""(schema, name) to table."""


def directory_of(config: settings.KeptSettings) -> Path | None:
    """The caller's own history directory; None if the site keeps nothing."""
    if not config.directory:
        return None
    return Path(config.directory.replace("%u", getpass.getuser()).replace("%h", str(Path("~").expanduser())))


def attempts(directory: Path, cluster: str, job_id: int) -> list[Path]:
    """The caller's kept attempts of a job, first start first; other users' directories are ignored."""
    found: dict[int, Path] = {}
    prefix = f"{cluster}-{job_id}-"
    try:
        names = sorted(p.name for p in directory.iterdir() if p.name.startswith(prefix))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    for name in names:
        restarts = name.removeprefix(prefix)
        status = (directory / name).lstat()
        if digits.is_number(restarts) and status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode):
            found[int(restarts)] = directory / name
    return [found[n] for n in sorted(found)]


def tables(attempt: Path) -> Tables:
    """Every table of one attempt; raises MalformedInput for a damaged file, or OSError."""
    _convert(attempt)
    whole = _whole_parts(attempt)
    parts: dict[tuple[str, str], list[pa.Table]] = {}
    for path, match in _parts(attempt):
        if int(match["part"]) not in whole:
            continue
        name = match["schema"], urllib.parse.unquote(match["name"])
        parts.setdefault(name, []).append(pq.ParquetFile(path).read())
    return {name: _joined(found) for name, found in sorted(parts.items())}


def _convert(attempt: Path) -> None:
    """Converts the nodes' files into Parquet. Each row appears once, even after interruptions or parallel calls."""
    if not any(p.suffix == SUFFIX for p in attempt.iterdir()):
        return
    lock = os.open(attempt, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = os.fstat(lock)
        done = _whole_parts(attempt)
        for path, match in list(_parts(attempt)):
            if int(match["part"]) not in done:
                path.unlink()  # its nodes' files still exist
        waiting = sorted(p for p in attempt.iterdir() if p.suffix == SUFFIX)
        known = {node for nodes in done.values() for node in nodes}
        fresh = {p.stem: _read(p) for p in waiting if p.stem not in known}
        if fresh:
            _write(attempt, fresh, 1 + max(done, default=-1))
        for path in waiting:
            path.unlink()
        os.utime(attempt, ns=(status.st_atime_ns, status.st_mtime_ns))  # keep the attempt's age
    finally:
        os.close(lock)


def _whole_parts(attempt: Path) -> dict[int, list[str]]:
    """Number of each complete part to its nodes."""
    found = (p for p in attempt.iterdir() if p.suffix == _MARK and digits.is_number(p.stem))
    return {int(p.stem): p.read_text("utf-8").splitlines() for p in found}


def _read(path: Path) -> list[kept_file.KeptTable]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as handle:
        data = handle.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise errors.MalformedInput(f"{path} is larger than a file of kept tables may be")
    try:
        return kept_file.read(data)
    except errors.MalformedInput as exc:
        raise errors.MalformedInput(f"{path}: {exc}; without that file the others can be read") from exc


def _write(attempt: Path, by_node: Mapping[str, Sequence[kept_file.KeptTable]], number: int) -> None:
    parts: dict[tuple[str, str], list[pa.Table]] = {}
    for found in by_node.values():
        for table in found:
            parts.setdefault((table.schema, table.name), []).append(_arrow(table))
    for (schema, name), rows in parts.items():
        write_parquet(
            _joined(rows), attempt / f"{schema}.{urllib.parse.quote(name, safe='')}.{number}.parquet"
        )
    mark = attempt / f"{number}{_MARK}"
    fresh = mark.with_suffix(".new")
    fresh.write_text("\n".join(sorted(by_node)), "utf-8")
    fresh.replace(mark)  # last: it makes the part complete


def write_parquet(table: pa.Table, path: Path) -> None:
    """Writes one file in the encodings that suit time series (docs/probe.md has the figures)."""
    kinds = {f.name: _kind(f.type) for f in table.schema}
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=[n for n, kind in kinds.items() if kind == "text"],
        column_encoding={n: _ENCODING[kind] for n, kind in kinds.items() if kind in _ENCODING},
    )


def _kind(of: pa.DataType) -> str:
    return next((kind for kind, arrow in TYPES.items() if arrow.equals(of)), "text")


def _arrow(table: kept_file.KeptTable) -> pa.Table:
    return pa.table({c.name: pa.array(c.values, TYPES[c.kind]) for c in table.columns})


def _joined(rows: Sequence[pa.Table]) -> pa.Table:
    """All rows with all columns; a column of different types becomes text."""
    kinds: dict[str, pa.DataType] = {}
    for table in rows:
        for field in table.schema:
            same = kinds.get(field.name, field.type).equals(field.type)
            kinds[field.name] = field.type if same else pa.string()
    cast = [
        pa.table(
            {
                n: (t[n].cast(kind) if n in t.column_names else pa.nulls(t.num_rows, kind))
                for n, kind in kinds.items()
            }
        )
        for t in rows
    ]
    return pa.concat_tables(cast).combine_chunks()


def _parts(attempt: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for path in sorted(attempt.iterdir()):
        match = _PART.fullmatch(path.name)
        if match is not None:
            yield path, match
