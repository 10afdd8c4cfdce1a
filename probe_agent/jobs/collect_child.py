"""Reads what a job left, as the job's own user, and reports the findings in it; a process of its own, with small limits.

One JSON request on standard input, one JSON answer on standard output. Everything is imported first, then
the process becomes the owner (uid, gid and the groups the user has), gives itself small limits and only then
opens a file. The path, the file and its bytes are all untrusted.

Every job has an Epilog, and most jobs leave nothing to read: an srun writes no file, a job that ended well no dump. So
whether there is anything is looked at first, for a tenth of what it costs to import the readers.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import pwd
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import digits, sanitize
from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.evidence import utf16
from probing_cluster.probe_agent.jobs import log_copy, log_parts, own_files

MAX_DUMP_BYTES = 64 * 1024 * 1024
MAX_DUMPS = 64
MAX_LINES = 10
OWN_LINES = 5
"""Of these so many are the program's own, if there are: Slurm's last messages may be more."""
"""Last lines of a log that a report shows."""
MAX_LINE_CHARS = 200
_TAIL_BYTES = 16 * 1024
_HEAD_BYTES = 16 * 1024
_MOST_SIZES = 64
_MAX_LOGS = 32
_MAX_FDS = 256
_MEMORY_BYTES = 1024 * 1024 * 1024


Refused, read_own = own_files.Refused, own_files.read_own


def become(uid: int, gid: int) -> None:
    """Drop to the job's user for good; raises Refused when that cannot be done, or the user is root."""
    if uid == os.geteuid():
        return
    if uid == 0 or os.geteuid() != 0:
        raise Refused(f"cannot become uid {uid}")
    try:
        groups = os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        groups = [gid]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def limit(cpu_s: int | None = 60, *, writes: bool = False) -> None:
    """Limit this process: no core, no written file unless it `writes`, 1 GiB of memory, `cpu_s` of CPU time (None: no limit)."""
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _MEMORY_BYTES)]
    if not writes:
        limits.append((resource.RLIMIT_FSIZE, 0))
    if cpu_s is not None:
        limits.append((resource.RLIMIT_CPU, cpu_s))
    for which, most in limits:
        resource.setrlimit(which, (most, most))


def log_findings(request: Mapping[str, Any]) -> dict[str, Any]:
    """The findings in the job's output, its last lines, and a note where not all of the file was read."""
    from probing_cluster.probe_agent.jobs import collect_words, output_growth

    began = datetime.fromtimestamp(request["began_s"], UTC) if "began_s" in request else None
    span = None
    if "span_s" in request:
        started_s, released_s = request["span_s"]
        span = datetime.fromtimestamp(started_s, UTC), datetime.fromtimestamp(released_s, UTC)
    job_ids = tuple(request.get("job_ids", ()))
    fd = own_files.open_own(Path(request["path"]), request["uid"])
    try:
        file_stat = os.fstat(fd)
        begin = _begin(fd, file_stat, request.get("before"))
        # Where the next start of the job found the file's end; only with it is a later read sure to be of this start.
        end = _begin(fd, file_stat, request.get("after"))
        of_this_start, end = bool(end), end or file_stat.st_size
        parts = log_parts.read(fd, end, begin)
        head = b""
        if (
            span is not None and not parts[0].is_first and (began is None or begin)
        ):  # otherwise an earlier attempt wrote the beginning
            head = log_parts.pread(fd, begin, min(parts[0].start - begin, _HEAD_BYTES))
        reading = collect_words.ReadingTime()
        log_words = collect_words.read_log(parts, began, span, head, job_ids, reading)
        is_empty = not log_words.findings and not log_words.goes_on
        if not parts[0].is_first and is_empty and (above := log_parts.read_above(fd, parts[0], begin)):
            parts = above
            if log_words.n_unread_bytes:
                reading = collect_words.ReadingTime(collect_words.READ_ABOVE_S)
            log_words = collect_words.read_log(parts, began, span, head, job_ids, reading)
        written_s = os.fstat(fd).st_mtime
    finally:
        os.close(fd)
    where = {"inode": file_stat.st_ino, "filesystem": filesystem(file_stat.st_dev)}
    if not of_this_start:
        where["written_s"] = written_s
    last = parts[-1]
    ended = output_growth.at_end(
        request.get("grown"), last.data, last.start, file_stat.st_ino, span[1].timestamp() if span else 0.0
    )
    if ended.finding is not None and span is not None:
        log_words.findings.append(ended.finding)
    note = log_parts.words(parts, end, begin, log_words.n_unread_bytes)
    # Before lines are cut: behind a cut no name shows that a value is a secret.
    text = sanitize.without_secrets(utf16.text_of(parts[-1].data[-_TAIL_BYTES:], parts[-1].encoding))
    lines = text.splitlines()
    tail = [_both_ends(line) for line in slurm_lines.last_lines(lines, MAX_LINES, OWN_LINES)]
    error, place = collect_words.error_line(log_words.findings, parts)
    return {
        "size": file_stat.st_size,
        "note": note,
        **where,
        **vars(log_words),
        "wrote_on": ended.wrote_on,
        "tail": tail,
        **({"error": _both_ends(error), "error_place": place} if error else {}),
    }


def _both_ends(line: str) -> str:
    """The line, without its middle where it is too long: what went wrong often stands at the end."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    half = MAX_LINE_CHARS // 2
    return f"{line[: half - 3]} … {line[-half:]}"


def _begin(fd: int, now: os.stat_result, before: Sequence[Any] | None) -> int:
    """Offset at which a start's own output begins in a file.

    `before`: (inode, size, mark) of the file before that start. 0 where it was replaced or truncated since.
    """
    if not before or before[0] != now.st_ino or not 0 < before[1] <= now.st_size:
        return 0
    return int(before[1]) if log_parts.mark(fd, before[1]) == before[2] else 0


def log_before(request: Mapping[str, Any]) -> dict[str, Any]:
    """What an output file is before a job writes into it, as `_begin` takes it; empty where the job may have written already."""
    fd = own_files.open_own(Path(request["path"]), request["uid"])
    try:
        now = os.fstat(fd)
        if not now.st_size or now.st_mtime >= request["started_s"]:
            return {}
        return {"before": [now.st_ino, now.st_size, log_parts.mark(fd, now.st_size)]}
    finally:
        os.close(fd)


def output_sizes(request: Mapping[str, Any]) -> dict[str, Any]:
    """Of each of the job's output files that can be read: inode, bytes, and the time of its last write in seconds since 1970."""
    found: dict[str, tuple[int, int, float]] = {}
    for path in request["paths"][:_MOST_SIZES]:
        with contextlib.suppress(Refused):
            fd = own_files.open_own(Path(path), request["uid"])  # opening asks a file server anew
            try:
                now = os.fstat(fd)
            finally:
                os.close(fd)
            found[path] = now.st_ino, now.st_size, now.st_mtime
    return {"sizes": found}


def filesystem(device: int, table: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the mounted file system with that device number; empty where the table does not name it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in table.read_text("utf-8", "replace").splitlines():
        fields = line.split()
        if fields[2:3] == [wanted] and "-" in fields:
            return fields[fields.index("-") + 1]
    return ""


def dump_findings(request: Mapping[str, Any]) -> dict[str, Any]:
    """The findings in the flight-recorder dumps of the job's page directory, which are recognised by their names."""
    from probing_cluster.probe_agent.jobs import collect_words

    base = Path(request["directory"])
    dumps: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    for name in _dumps(base)[:MAX_DUMPS]:
        try:
            data, file_stat = read_own(str(base / name), request["uid"], MAX_DUMP_BYTES)
            if file_stat.st_size > MAX_DUMP_BYTES:
                raise Refused("larger than a dump may be")  # noqa: TRY301
            dumps[name] = data
        except Refused as exc:
            refused[name] = str(exc)
    return {"findings": collect_words.dump_findings(dumps), "dumps": len(dumps), "refused": refused}


def _dumps(base: Path) -> list[str]:
    return sorted(n for n in os.listdir(base) if n.startswith("fr_rank_"))  # noqa: PTH208


def alarm_words(request: Mapping[str, Any]) -> dict[str, Any]:
    """The alarm words in what was added to the job's output since the last look, and the offset up to which it was read.

    Only whole lines are read. A file that was replaced or truncated is read from its beginning; of more than
    log_parts.MOST_BYTES only the end is read. With `skip` nothing is read: an earlier start wrote what is there.
    """
    from probing_cluster.probe_agent.jobs import find_words

    fd = own_files.open_own(Path(request["path"]), request["uid"])
    try:
        now = os.fstat(fd)
        offset = request["offset"] if request["inode"] == now.st_ino else 0
        offset = offset if offset <= now.st_size else 0
        if request["skip"]:
            return {"inode": now.st_ino, "offset": now.st_size, "matches": {}}
        start = max(offset, now.st_size - log_parts.MOST_BYTES)
        data = log_parts.pread(fd, start, log_parts.MOST_BYTES)
    finally:
        os.close(fd)
    whole = data.rfind(b"\n") + 1 or (len(data) if len(data) >= _TAIL_BYTES else 0)
    lines = find_words.matches(utf16.text_of(data[:whole]), request["words"])
    return {"inode": now.st_ino, "offset": start + whole, "matches": sanitize.without_secrets_in(lines)}


def keep_log(request: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the job's output beside it, named after its start: `slurm-42.out.start1`; of a long one the end.

    A copy that is there already is left as it is: an earlier request made it, of the same start, and it is whole.
    """
    path, most_bytes = Path(request["path"]), int(request["most"])
    copy = path.with_name(f"{path.name}.start{int(request['start'])}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    source = own_files.open_own(path, request["uid"])
    try:
        log_copy.make(source, copy, most_bytes)
    except OSError as exc:
        raise Refused(f"it could not be copied: {own_files.word(exc)}") from exc
    except log_copy.Changed as exc:
        raise Refused(f"it could not be copied: {exc}") from exc
    finally:
        os.close(source)
    return {"copy": str(copy)}


_NOT_MADE = 255
"""Exit status, no errno: the file is not there, and its owner may make one in its directory."""


def nothing_there(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer where there is nothing to read; None where there may be something.

    A fork looks as the owner, so that this process keeps the right to import our modules.
    """
    asker = os.fork()
    if asker == 0:
        status = 0
        try:
            become(request["uid"], request["gid"])
            if request["op"] in {"log", "keep", "words", "before"}:
                os.lstat(request["path"])
            elif not _dumps(Path(request["directory"])):
                status = errno.ENODATA
        except OSError as exc:
            status = exc.errno or 0
            if status == errno.ENOENT and os.access(os.path.dirname(request["path"]), os.W_OK | os.X_OK):  # noqa: PTH120
                status = _NOT_MADE
        except Refused:
            status = 0
        finally:
            os._exit(status if status in {errno.ENOENT, errno.ENODATA, _NOT_MADE} else 0)
    status = os.waitstatus_to_exitcode(os.waitpid(asker, 0)[1])
    if status == errno.ENODATA:
        return {"findings": [], "dumps": 0, "refused": {}}
    if status == _NOT_MADE:
        return {"refused": errno.errorcode[errno.ENOENT], "open_directory": True}
    return {"refused": errno.errorcode[status]} if status == errno.ENOENT else None


def find_logs(request: Mapping[str, Any]) -> dict[str, Any]:
    """The files that a job's processes on this node write to, and its array numbers, from /proc.

    Releases before 23.11 do not tell the Prolog an array's numbers, and no release tells it a step's `--output`. The batch
    script's files come first. What /proc shows of the user's processes is the user's claim.
    """
    wanted = f"SLURM_JOB_ID={int(request['job_id'])}".encode()
    here = f"SLURMD_NODENAME={request['node']}".encode()
    batch: dict[str, None] = {}
    steps: dict[str, None] = {}
    ids: dict[str, Any] = {}
    for entry in sorted(
        (e for e in Path("/proc").iterdir() if digits.is_number(e.name)), key=lambda e: int(e.name)
    ):
        try:
            if entry.stat().st_uid != request["uid"]:
                continue
            words = _environment(entry)
            if wanted not in words or (
                here not in words and any(w.startswith(b"SLURMD_NODENAME=") for w in words)
            ):
                continue
            is_step = any(w.startswith(b"SLURM_STEP_ID=") for w in words)
            ids |= {"ids_known": True, **_ids(words)}
            (steps if is_step else batch).update(dict.fromkeys(_outputs(entry)))
        except OSError:
            continue  # it ended, or it is not ours to read: the next one
    return {"logs": [*batch, *steps][:_MAX_LOGS], "ids": ids}


_NAMED = {"job_name": "SLURM_JOB_NAME", "user": "SLURM_JOB_USER"}


def _outputs(process: Path) -> list[str]:
    """The plain files that a process has as its standard output and error; of `srun --output=FILE` those that srun writes for its tasks."""
    paths = [os.readlink(process / f"fd/{n}") for n in (1, 2)]  # noqa: PTH115
    if (process / "comm").read_bytes() == b"srun\n":
        paths += [p for p in _written(process) if p not in paths]
    return [
        p
        for p in paths
        if p.startswith("/") and not p.startswith(("/dev/", "/proc/")) and not p.endswith(" (deleted)")
    ]


def _written(process: Path) -> Iterator[str]:
    """The files that a process has open for writing, without descriptors that it closes meanwhile."""
    for number in os.listdir(process / "fd")[:_MAX_FDS]:  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            found = re.search(
                rb"^flags:\s*([0-7]{1,22})$", (process / "fdinfo" / number).read_bytes(), re.MULTILINE
            )
            if found is not None and int(found[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                yield os.readlink(process / "fd" / number)  # noqa: PTH115


def _ids(words: list[bytes]) -> dict[str, Any]:
    """The ids and names that filename patterns use, from the environment that Slurm gave a process."""
    variables = dict(word.decode("utf-8", "replace").partition("=")[::2] for word in words)
    named = {"array_job_id": "SLURM_ARRAY_JOB_ID", "array_task_id": "SLURM_ARRAY_TASK_ID"}
    numbers = {k: variables.get(v, "") for k, v in named.items()}
    found: dict[str, Any] = {k: int(v) for k, v in numbers.items() if digits.is_number(v) and len(v) <= 10}
    return found | {k: variables[v][:1024] for k, v in _NAMED.items() if variables.get(v)}


def _environment(process: Path) -> list[bytes]:
    with (process / "environ").open("rb") as file:
        return file.read(1 << 18).split(b"\0")


def serve(work: Callable[[dict[str, Any]], Mapping[str, Any]]) -> int:
    """Answer the one request on this child's standard input; returns the exit status. A refusal is an answer, too."""
    try:
        reply = work(json.loads(sys.stdin.buffer.read(1 << 20)))
    except Refused as exc:
        reply = {"refused": str(exc)}
    except (OSError, MemoryError) as exc:
        reply = {"refused": f"{type(exc).__name__}: {exc}"}
    sys.stdout.write(json.dumps(reply) + "\n")
    return 0


def answer(request: dict[str, Any]) -> Mapping[str, Any]:
    """The answer to one request, read with the rights of the job's user."""
    work = {
        "log": log_findings,
        "dumps": dump_findings,
        "find": find_logs,
        "before": log_before,
        "keep": keep_log,
        "words": alarm_words,
        "sizes": output_sizes,
    }[request["op"]]
    if request["op"] not in ("find", "sizes"):
        nothing = nothing_there(request)
        if nothing is not None:
            return nothing
        # As root: users need not be able to read our modules.
        if request["op"] != "before":
            for reader in ("find_words",) if request["op"] == "words" else ("collect_words", "output_growth"):
                importlib.import_module(f"probing_cluster.probe_agent.jobs.{reader}")
    become(request["uid"], request["gid"])
    limit(writes=request["op"] == "keep")
    return work(request)


if __name__ == "__main__":
    sys.exit(serve(answer))
