"""The same name in two errors: what a later command lacks is what an earlier one did not bring.

A script goes on after a command that failed. What ends it may be that command's consequence. A common name shows that: of a file,
a package, a port, a service. Without one, the later error stays, except right below (`unnamed`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Reversible, Sequence
from dataclasses import replace
from itertools import islice

from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import grammar, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import exit_codes, unnamed
from probing_cluster.evidence.joblog.messages.devices import cuda

_KEPT = 64
_LINES = 2_000
"""Most lines between the two errors."""
_REST_LINES = 2
_NEAR = 10
"""A tool names what it works on within so many lines above its complaint."""
_CR, _NODE = "line ends", "a node"
_FOREIGN_ENDS = re.compile(r"\$'[^'\n]{0,300}\\r'|\benv: ['‘][^'’\n]{1,200}\\r['’]")
_RETURN = re.compile(r"\\r(?!\\n)")
"""How shells and Python print the carriage return at the end of a script's line: the script has the line ends of another system."""
_JOINS = frozenset({"rendezvous_failed", "rendezvous_timeout"})
_LACKS_RANKS = re.compile(
    r"\b\d{1,6}/\d{1,6} clients joined\b|\bclient socket has timed out\b|\bRendezvousTimeoutError\b"
)
"""A rendezvous to which some ranks did not come."""
_PACKAGE = re.compile(
    r"ERROR: (?:Could not find a version that satisfies the requirement|No matching distribution found for) (?P<wanted>[\w.-]{1,80})"
    r"|(?:ERROR: )?(?:Failed building (?:wheel|editable) for|ERROR: compilation failed for package|ERROR: dependenc(?:y|ies) .{1,200} (?:is|are) not available for package) ['‘]?(?P<built>[\w.-]{1,80})"
    r"|ERROR: (?:Could not build wheels for|Failed to build (?:installable wheels for some pyproject\.toml based projects \()?) ?(?P<several>[\w., -]{1,200})"
    r"|(?:Warning|WARNING|ERROR)\b.{0,80}\binstallation of package ['‘](?P<of_r>[\w.]{1,80})"
)
_LACKS_PACKAGE = re.compile(
    r"No module named ['\"]?(?P<module>\w{1,80})(?![\w.])|No package metadata was found for (?P<metadata>[\w.-]{1,80})|there is no package called ['‘](?P<of_r>[\w.]{1,80})|[:\s](?P<command>[\w.-]{1,80}): command not found"
)
_OF_R = re.compile(r"there is no package called ['‘]")
_LOADS = rf"{unnamed.AT}(?:wget|curl|git|scp|rsync|aws|gsutil|gdown)"
_MOVES = rf"{unnamed.AT}(?:cp|mv|ln|tar(?: \(child\))?|unzip|gunzip|gzip|mkdir|install|put|get|copyFromLocal|moveFromLocal|copyToLocal|distcp|touch|tee|dd|truncate)"
_LOADED = re.compile(
    rf"(?:[\d.kMGTP:\s-]{{40,400}})?{_LOADS}: |fatal: (?!detected dubious|not a git|[Nn]o (?:names|tags|annotated)|ambiguous|bad revision|your current branch)\S|(?:\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d )?ERROR \d{{3}}: |rsync error: |download failed: |fatal error: An error occurred \("
)
"""Complaints of commands that load files from elsewhere; their lines above tell which."""
_QUOTED_COMMAND = re.compile(r"ERROR \"(?:cp|mv|sync|get|copy) (?P<of>[^\"\n]{1,600})\": ")
"""s5cmd quotes the command that failed."""
_MOVED = re.compile(rf"{_MOVES}: |(?:\S{{1,300}}: (?:line )?\d{{1,6}}: )?cd: ")
"""Complaints of commands that copy or write files, make directories, or go where they lie."""
_NOT_WRITTEN = re.compile(
    r"\S{1,300}: (?:line )?\d{1,6}: (?:(?:cannot create|can't create) )?(?P<path>[^\s:]{1,400}): (?:Permission denied|Read-only file system|Not a directory|Directory nonexistent|No such file or directory|No space left on device|Disk quota exceeded|cannot overwrite existing file)\b"
)
"""A shell's complaint about a file that a command of its script should write."""
_WORKS_ON = re.compile(
    rf"--\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d--  (?P<wget>\S{{1,500}})$|(?P<brief>(?:https?|ftp)://\S{{1,500}}):$|Cloning into (?:bare repository )?'(?P<git>[^'\n]{{1,300}})'\.\.\.$|\++ (?P<traced>{_LOADS} .{{1,500}})$"
)
"""The same tools' lines about what they work on, and a shell's trace of them."""
_LACKS_FILE = re.compile(
    r"No such file or directory|can't open file|[Nn]ot found|[Dd]oes(?: not|n't) exist|[Nn]ot a directory|[Cc]annot open|\b[Nn]o (?:\w{1,20} ){1,3}found (?:at|in|under)\b"
)
_SERVER = re.compile(r"\b(?:to|host|server|address|from):? ['\"]?[\w-]{1,63}(?:\.[\w-]{1,63}){1,10}\b")
"""A server's name, which looks like a file's."""
_NOT_THERE = re.compile(r"(?:\S{1,300}: (?:line )?\d{1,6}: )?cd: (?P<directory>\S[^:\n]{0,300})")
_QUOTED = re.compile(r"['\"‘`](?P<name>[^'\"’`\n]{1,400})['\"’`]")
_WORD = re.compile(r"[^\s'\"‘’`,;()=]{3,400}")
_PATH = re.compile(r"[/.]")
_STORE = re.compile(r"^(?:hdfs://[^/\s]{1,253}|file(?=/))")
_LISTENS = re.compile(
    r"\b(?:[Aa]ddress already in use|[Ff]ailed listening|[Cc](?:ould not|annot|an't) (?:bind|listen)|failed to (?:bind|listen)|EADDRINUSE)\b"
)
"""A service that got no port."""
_PORT = re.compile(
    r"(?:\bport[ =:]{1,3}|--port[ =]|\S:|['\"], |tcp |\*:)(?P<port>[1-9]\d{2,4})(?=\D|$)", re.IGNORECASE
)
_REDIS = re.compile(r"\d{1,10}:[MCSX] \d\d [A-Z][a-z]{2} ")
_KILLED = re.compile(
    rf"{unnamed.SHELL_DEATH}(?:Killed|Segmentation fault|Bus error|Aborted|Floating point exception|Illegal instruction)(?: \(core dumped\))?\s{{1,30}}(?P<command>\S.{{0,1000}})"
)
_SERVES = re.compile(unnamed.SERVES, re.IGNORECASE)
_UNREACHED = re.compile(
    r"\bconnect(?:ion|ing)?\b|\brefused\b|\bunreachable\b|\bMax retries exceeded\b|\bdisconnected\b|\btimed out\b",
    re.IGNORECASE,
)
_SERVER_FAILED = re.compile(
    r"\b(?:Error code: |HTTP(?:/\d\.\d)? |status(?:[ _]code)?\W{1,3})5\d\d\b|\b50[0-4] (?:Server Error|Internal|Bad Gateway|Service)|^\S{0,120}\bInternalServerError: "
)
_POINTS_ABOVE = re.compile(
    r"\bSee (?:the )?(?:root cause|stack ?trace) ?\(?above\)? for the (?:root cause|error)|\bSee root cause above\b",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(r"\bhttps?://(?!localhost\b|127\.|0\.0\.0\.0|\[::1\]|[\w-]{1,63}[:/])\S")
"""An address with a domain: no server of the job's."""
_LOST_CONTEXT = cuda.ONLY_HARDWARE | {
    "cuda_illegal_access", "cuda_launch_failure", "cuda_device_assert", "cuda_misaligned_address", "cuda_illegal_instruction",
}  # fmt: skip
"""Errors after which a process can do nothing more on its GPU."""
_NOT_STORED = frozenset({"disk_full", "io_error", "stale_file_handle", "filesystem_unreachable"})
_LOCAL = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0)\b")
_CLIENT = re.compile(r"(?P<module>[a-z]\w{2,40})\.(?:\w{1,60}\.){0,6}[A-Z]\w{1,80}(?:Error|Exception)\b")
_SPLIT = re.compile(r"[^a-z0-9]+")


def _package(name: str) -> str:
    return f"package {name.strip().lower().replace('-', '_').replace('.', '_')}"


def _paths(text: str) -> list[str]:
    quoted = [found["name"] for found in _QUOTED.finditer(text)]
    words = [word for word in _WORD.findall(_QUOTED.sub(" ", text)) if _PATH.search(word.strip(":."))]
    return [_STORE.sub("", name.partition("?")[0]).rstrip("/:.") for name in (*quoted, *words)]


def _files(text: str, *, lacked: bool = False) -> set[str]:
    """The files in `text`: whole, by their own names if these have an ending, and, of `lacked` ones, all that they lie in."""
    names: set[str] = set()
    for path in _paths(text):
        parts = path.split("/")
        names |= {f"path {path}"} | ({f"file {parts[-1]}"} if "." in parts[-1].strip(".") else set())
        if lacked:
            names |= {f"path {'/'.join(parts[:n])}" for n in range(1, len(parts))}
            names |= {f"repository {part}" for part in parts}
    return names


def lacks_file_of(message: str, earlier: str) -> bool:
    """Whether `message` reports that a file is missing which the error `earlier` names."""
    if not _LACKS_FILE.search(locales.english(message)):
        return False
    return not _files(message).isdisjoint(_files(earlier))


def _repository(path: str) -> set[str]:
    name = path.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return {f"repository {name}", _package(name)}


def _ports(text: str) -> set[str]:
    return {f"port {found['port']}" for found in _PORT.finditer(text)}


def _worked_on(recent: Reversible[str]) -> set[str]:
    """Names in the nearest line above a tool's complaint that tells what it works on."""
    for line in islice(reversed(recent), _NEAR):
        if found := _WORKS_ON.match(line):
            if found["git"]:
                return _repository(found["git"])
            return _files(found["traced"] or found["wget"] or found["brief"])
    return set()


def _brought(text: str, recent: Reversible[str]) -> set[str]:
    """Names of what the command that complains did not bring."""
    names = {_CR} if _FOREIGN_ENDS.search(text) else set()
    names |= {_NODE} if exit_codes.reached_no_node(text) else set()
    if found := _PACKAGE.match(text):
        listed = found["several"].split(",") if found["several"] else [next(filter(None, found.groups()))]
        names |= {_package(name) for name in listed}
    if _LISTENS.search(text):
        names |= _ports(text) | ({"client redis"} if _REDIS.match(text) else set())
    if _LOADED.match(text):
        names |= _files(_SERVER.sub(" ", text)) | _worked_on(recent)
    elif quoted := _QUOTED_COMMAND.match(text):
        names |= _files(quoted["of"])
    elif _MOVED.match(text):
        names |= _files(text) | _of_hadoop(text)
    elif (found := _NOT_WRITTEN.match(text)) and "/" not in (path := found["path"])[:1]:
        names |= _files(path)
    elif found:
        names.add(f"path {path}")  # another file of that name is another file
    return names | unnamed.brings(text, named=bool(names))


def _of_hadoop(text: str) -> set[str]:
    """The directories in which Hadoop's file system did not make a file."""
    return _files(text, lacked=True) if "._COPYING_" in text else set()


def _lacked(message: str) -> set[str]:
    """Names of what `message` reports as missing."""
    names = {_CR} if _RETURN.search(message) else set()
    names |= {_NODE} if _LACKS_RANKS.search(message) else set()
    for found in _LACKS_PACKAGE.finditer(message):
        names.add(_package(next(filter(None, found.groups()))))
    if _LACKS_FILE.search(message):
        names |= _files(message, lacked=True)
        if cd := _NOT_THERE.match(message):
            names |= {f"repository {part}" for part in cd["directory"].split("/")}
    if client := _CLIENT.match(message):
        names.add(f"client {client['module']}")
    if _UNREACHED.search(message):
        names |= _ports(message)
    return names


class Complaints:
    """Remembers the complaints of a script's commands, each with the names of what the command did not bring."""

    def __init__(self, recent: Reversible[str]) -> None:
        self._recent = recent
        """The lines read last, kept by the reader."""
        self._held: deque[tuple[JobFinding, set[str]]] = deque(maxlen=_KEPT)
        self._closed: deque[int] = deque(maxlen=_KEPT)
        """Lines of those that are findings already; what follows from them adds nothing."""
        self._explained: tuple[int, JobFinding] | None = None
        """The last line that one of them explained, and that one."""
        self._set_up: str | None = None
        """The first complaint of what should have set up the script's environment; however much follows, its packages are missing."""

    def add(self, found: JobFinding) -> None:
        """Remember `found` if its command should have brought something."""
        if self._set_up is None and (found.detail.get("modules") or found.detail.get("not_set_up")):
            self._set_up = found.message
        names = _brought(locales.english(found.message), self._recent) | unnamed.of_death(found)
        if names and found.line not in (earlier.line for earlier, _ in self._held):
            self._held.append((found, names))

    def take(self, found: JobFinding) -> JobFinding | None:
        """The complaint that explains `found`, once; else `found` is remembered itself."""
        if found.role is not LineRole.ROOT and found.kind not in _JOINS:
            return None
        reason = self._explaining(found)
        if reason is None or reason.line in self._closed:
            self.add(found)
            if found.kind != "command_not_found":
                self._closed.append(found.line)
            return None
        if found.kind != "command_not_found":
            self._closed.append(reason.line)
        return reason if unnamed.of_death(reason) else replace(reason, role=LineRole.ROOT)

    def died(self, found: JobFinding) -> None:
        """Remember the death of a command: what it should have written may be missing."""
        if what := unnamed.of_death(found):
            self._held.append((found, what))
            self._closed.append(found.line)

    def with_reason(self, found: JobFinding) -> JobFinding:
        """`found`, with the line of the complaint that explains it, and, if it lacks a package, with the first one of what sets up an environment."""
        reason, more = self._explaining(found), dict[str, object]()
        if reason is not None:
            more["follows"] = reason.line
        if self._set_up is not None and (found.kind == "import_error" or _OF_R.search(found.message)):
            more["lacked_before"] = self._set_up
        return replace(found, detail={**found.detail, **more}) if more else found

    def cause_of(self, found: JobFinding) -> JobFinding | None:
        """The complaint that explains `found`; None if that is a finding already, `found` itself without one.

        What stands right below a line that one explains is mostly the rest of the same command's message.
        """
        reason, above = self._explaining(found), self._explained
        if reason is None and above is not None and 0 < found.line - above[0] <= _REST_LINES:
            reason = above[1]
        self._explained = None if reason is None else (found.line, reason)
        if reason is not None:
            self.add(found)  # by its own names it may explain a later one better
        return found if reason is None else None if reason.line in self._closed else reason

    def _explaining(self, found: JobFinding) -> JobFinding | None:
        """The first complaint whose command did not bring what `found` lacks; None if the program worked between the two."""
        if not self._held or found.detail.get("handled"):
            return None
        message = locales.english(found.message)
        lacked, what = _lacked(message), unnamed.lacks(found, message)
        near = unnamed.beside_from(self._recent, found.line) if what else found.line
        for earlier, names in self._held:
            if not 0 < found.line - earlier.line <= _LINES:
                continue
            if common := lacked & names:
                # A program that worked in between may have removed the file, or should have written it.
                of_file = all(name.startswith(("path ", "file ")) for name in common)
                between = islice(reversed(self._recent), found.line - earlier.line) if of_file else ()
                if any(progress.is_progress(text) and not unnamed.is_heading(text) for text in between):
                    return None
                names |= _brought(message, self._recent)  # missing because of `earlier`, too
                return earlier
            if earlier.line >= near and what & names:
                return self._explaining(earlier) or earlier  # it may itself be a consequence
        return None


def of_server(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the failure of a server of the job's own that answered its client `best` with an error; None without one.

    The answer points at what stands above it, or the server failed on its GPU. Work between the two was the client's.
    """
    points = _POINTS_ABOVE.search(best.message) is not None
    answered = _SERVER_FAILED.search(best.message) and not _ELSEWHERE.search(best.message)
    if "exception" not in best.detail or not (points or answered):
        return None
    failed = [
        i
        for i, f in enumerate(held)
        if 0 < best.line - f.line <= _LINES and f.role is LineRole.ROOT and not f.detail.get("handled")
        if points or f.kind in _LOST_CONTEXT
    ]
    # Several workers may have failed of it.
    return next((i for i in failed if held[i].kind == held[failed[-1]].kind), None)


def not_written_before(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the complaint of a file command of the script about the file that `best` names, or that `best` finds cut short; None without one.

    A base name alone is shared by many files.
    """
    if best.role is not LineRole.ROOT or progress.is_of_script(best.message):
        return None
    paths, is_cut = _whole_paths(best.message), _CUT.search(best.message)
    for i, earlier in enumerate(held):
        text = locales.english(earlier.message)
        if earlier.line < best.line and earlier.kind in _NOT_STORED and progress.is_of_script(text):
            ends = _whole_paths(text)
            if is_cut or any(a == b or ("/" in b and a.endswith(f"/{b}")) for a in paths for b in ends):
                return i
    return None


_CUT = re.compile(
    r"\b(?:[Tt]runcated|[Nn]o data left in file|unexpected (?:end of (?:file|data|input)|EOF)|[Rr]an out of input|[Ff]ile is not a zip file|PytorchStreamReader failed|[Ii]ncomplete metadata)\b"
)
"""A file that a command did not write to its end; no name need be printed, nor does work on the files before it refute that."""


def _whole_paths(text: str) -> list[str]:
    """The files in `text` whose names have an ending."""
    return [path for path in _paths(text) if "." in path.rpartition("/")[2].strip(".")]


def service_before(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the death of a service of the script's own that `best`, a client's error, no longer reached; None without one.

    The shell names the command that a signal ended. The two lines share the port, the client's name, or the local host.
    If the job worked on after the death, it did not need that service.
    """
    if best.role not in (LineRole.ROOT, LineRole.REMOTE) or not _UNREACHED.search(best.message):
        return None
    client = _CLIENT.match(best.message)
    for i, earlier in enumerate(held):
        died = _KILLED.match(locales.english(earlier.message))
        if earlier.kind not in grammar.SIGNAL_DEATH_KINDS or earlier.line >= best.line or died is None:
            continue
        if earlier.detail.get("worked_on"):
            continue
        command = died["command"]
        ours, theirs = _ports(command), _ports(best.message)
        if ours and theirs:
            linked = not ours.isdisjoint(theirs)
        elif client and client["module"] in _SPLIT.split(command.lower()):
            linked = True
        else:
            linked = bool(_SERVES.search(command) and _LOCAL.search(best.message))
        if linked:
            return i
    return None
