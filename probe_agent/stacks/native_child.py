"""C functions that the main threads of some processes are in, inside their innermost Python frame; nothing is stopped.

One JSON request on standard input: `{"ranks": [[pid, sleeps or null], …], "uid", "gid"}`; one JSON answer:
`{"<pid>": {"native": frames innermost first} | {"native_error": why} | both}`. No ptrace, no signal: /proc tells where a
thread that does not run sleeps (or was stopped), and perf_event_open(2) copies registers and stack of one that runs.

All that is opened as root; then this process becomes the job's owner, and only as that user reads the files behind the
addresses. `sleeps` is how often the thread had gone to sleep when its Python stack was taken: of a rank that gets on,
its C functions belong to another Python frame, and are not reported.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import platform
import re
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.stacks import cfi, demangle, elf, perf_event, sleeps, unwind

STACK_BYTES = 256 << 10
SAMPLED_STACK_BYTES = 65528
"""The most that the kernel copies."""
SAMPLES = 3
"""As many as the ring holds."""
SAMPLED_S = 1.5
BUDGET_S = 4.0
"""For all ranks; those that are left then are not reported."""
_RING_PAGES = 64
_MAX_MAPS_BYTES = 8 << 20
_MAX_IMAGES = 512
_TRIES = 5
_VDSO = "[vdso]"
_GLUE = re.compile(
    r"_?PyObject_(Vectorcall|Call|MakeTpCall|FastCall)|_?PyVectorcall|_?PyCFunction|cfunction_(vector)?call|method_vectorcall"
    r"|object_vacall|wrapperdescr_call|_?Py_(CheckFunctionResult|EnterRecursiveCall)"
)
"""How CPython gets from its loop to a C function: on every stack, and of no interest on any."""


@dataclass(kw_only=True)
class ProcessSnapshot:
    """What root has read of one process: where its main thread is."""

    pid: int
    memory: int
    """Descriptor of its memory, to be read only."""
    regions: list[elf.Region]
    state: unwind.State | None = None
    stack: bytes = b""
    ring: mmap.mmap | None = None
    """Where the thread runs: samples that are being taken."""


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    """Its directory in /proc, which stays that of this process."""
    home = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield home
    finally:
        os.close(home)


def _text(home: int, name: str, most: int = 4096) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
    with os.fdopen(fd, "rb") as handle:
        return handle.read(most).decode("utf-8", "replace")


def take(pid: int, uid: int, before: int | None) -> ProcessSnapshot:
    """Registers and stack of the main thread; raises Refused, OSError."""
    with _process(pid) as home:
        memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
        try:
            # The kernel gives these files to root where the user may not look into the process (it has, or had, more
            # rights). Asked once its memory is open: what it may execute after that has another.
            if os.stat("mem", dir_fd=home).st_uid != uid:
                raise collect_child.Refused("not a process of the job's user")  # noqa: TRY301
            taken = ProcessSnapshot(
                pid=pid, memory=memory, regions=elf.mappings(_text(home, "maps", _MAX_MAPS_BYTES))
            )
            for _ in range(_TRIES):
                sleep = sleeps.parse(_text(home, f"task/{pid}/status"))
                if before is not None and sleep != before:
                    raise collect_child.Refused("it went on after its Python stack was taken")  # noqa: TRY301
                if _asleep(home, taken) and sleep == sleeps.parse(_text(home, f"task/{pid}/status")):
                    return taken
                time.sleep(0.01)
            if before is not None:
                raise collect_child.Refused("it runs, and gets on")  # noqa: TRY301
            taken.state, taken.stack = None, b""
            taken.ring = perf_event.opened(
                pid,
                per_s=99,
                sample_type=perf_event.REGISTERS | perf_event.STACK,
                stack_bytes=SAMPLED_STACK_BYTES,
                pages=_RING_PAGES,
            )
        except BaseException:
            os.close(memory)
            raise
    return taken


def _asleep(home: int, taken: ProcessSnapshot) -> bool:
    """Reads program counter and stack of a thread that does not run; False when it runs."""
    words = _text(home, f"task/{taken.pid}/syscall").split()
    if len(words) < 3:
        return False
    sp, pc = int(words[-2], 16), int(words[-1], 16)
    where = next((r for r in taken.regions if r.start <= sp < r.end), None)
    if where is None:
        raise collect_child.Refused("its stack is in no mapping")
    taken.stack = os.pread(taken.memory, min(STACK_BYTES, where.end - sp), sp)
    taken.state = unwind.State(pc=pc, registers={unwind.SP: sp}, called=False)
    return True


@dataclass(kw_only=True)
class MappedFiles:
    """The files behind the addresses, each opened and searched once for all ranks."""

    by_inode: dict[tuple[int, int], elf.Image | None] = field(default_factory=dict)
    by_place: dict[tuple[int, str, int], elf.Image | None] = field(default_factory=dict)
    loops: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def opened(self, taken: ProcessSnapshot, region: elf.Region) -> elf.Image | None:
        """The file behind a mapping; None where there is none, or it cannot be read."""
        key = (taken.pid, region.path, region.inode)
        if key not in self.by_place:
            self.by_place[key] = None
            with contextlib.suppress(OSError, *elf.PARSE_ERRORS):
                self.by_place[key] = self._open(taken, region)
        return self.by_place[key]

    def _open(self, taken: ProcessSnapshot, region: elf.Region) -> elf.Image | None:
        if region.path == _VDSO:
            return elf.in_memory(os.pread(taken.memory, region.end - region.start, region.start))
        if not region.path.startswith("/") or len(self.by_inode) >= _MAX_IMAGES:
            return None
        # After a chroot the kernel names files by where they are for us.
        for path in (f"/proc/{taken.pid}/root{region.path}", region.path):
            with contextlib.suppress(OSError):
                file_stat = os.stat(path)  # noqa: PTH116
                if file_stat.st_ino == region.inode:
                    return self._once(path, file_stat)
        return None

    def _once(self, path: str, file_stat: os.stat_result) -> elf.Image | None:
        inode = (file_stat.st_dev, file_stat.st_ino)
        if inode not in self.by_inode:
            self.by_inode[inode] = None
            self.by_inode[inode] = elf.opened(path, file_stat.st_ino)
        return self.by_inode[inode]

    def loop(self, taken: ProcessSnapshot, region: elf.Region) -> list[tuple[int, int]] | None:
        """File offsets of the interpreter's loop; None for a file that is not the interpreter."""
        image = self.opened(taken, region) if elf.is_interpreter(region.path) else None
        if image is None:
            return None
        if id(image) not in self.loops:
            self.loops[id(image)] = elf.evaluating(image)
        # A program that only starts its library has no loop of its own; one that is stripped may have it anywhere.
        others = any(r.path != region.path and elf.is_interpreter(r.path) for r in taken.regions)
        return self.loops[id(image)] or (None if others else [])


def followed(taken: ProcessSnapshot, files: MappedFiles) -> unwind.Walk:
    """The stack of a thread that sleeps, or of one that runs the one that most of its samples show."""
    space = unwind.AddressSpace(
        regions=taken.regions,
        opened=lambda region: files.opened(taken, region),
        loops=lambda region: files.loop(taken, region),
        word=lambda address: int(struct.unpack("<Q", os.pread(taken.memory, 8, address))[0]),
    )
    if taken.state is not None:
        sp = taken.state.registers[unwind.SP]
        return unwind.Unwinder(space=space, base=sp, stack=taken.stack).walk(taken.state)
    walks = []
    for registers, stack in perf_event.stacks(taken.ring) if taken.ring is not None else ():
        state = unwind.State(pc=registers[cfi.RETURN_ADDRESS], registers=registers, called=False)
        walks.append(unwind.Unwinder(space=space, base=registers[unwind.SP], stack=stack).walk(state))
    if not walks:
        return unwind.Walk(frames=(), reached=False, why="it runs, and was never seen outside of the kernel")
    common = Counter(_shape(w) for w in walks).most_common(1)[0][0]
    return next(w for w in walks if _shape(w) == common)


def _shape(walk: unwind.Walk) -> tuple[object, ...]:
    return (walk.reached, *((f.region.path, _start(f) or f.at) for f in walk.frames))


def to_reply(walks: dict[int, unwind.Walk]) -> dict[str, dict[str, Any]]:
    """The reply by pid, with the names of the functions."""
    places: dict[int, tuple[elf.Image, set[tuple[int, int | None]]]] = {}
    for frame in (f for walk in walks.values() for f in walk.frames):
        if frame.image is not None:
            places.setdefault(id(frame.image), (frame.image, set()))[1].add((frame.at, _start(frame)))
    names: dict[int, dict[int, str]] = {}
    for key, (image, wanted) in places.items():
        names[key] = {}
        with contextlib.suppress(OSError, *elf.PARSE_ERRORS):
            names[key] = elf.named(image, wanted)
    demangler = demangle.demangler()
    answer: dict[str, dict[str, Any]] = {}
    for pid, walk in walks.items():
        frames = [_frame(f, names.get(id(f.image), {}).get(f.at), demangler) for f in walk.frames]
        while walk.reached and len(frames) > 1 and _GLUE.match(frames[-1]["function"]):
            frames.pop()
        answer[str(pid)] = {"native": frames} if walk.reached or frames else {}
        if not walk.reached:
            answer[str(pid)]["native_error"] = walk.why
    return answer


def _start(frame: unwind.MachineFrame) -> int | None:
    return frame.extent[0] if frame.extent is not None else None


def _frame(frame: unwind.MachineFrame, name: str | None, demangler: Any) -> dict[str, Any]:
    function = demangle.readable(demangler(name)) if name else f"+{_start(frame) or frame.at:#x}"
    file = sanitize.clean(PurePath(frame.region.path).name, 100)
    found: dict[str, Any] = {"function": function, "file": file, "line": 0}
    return found | {"scanned": True} if frame.scanned else found


def look(ranks: Sequence[tuple[int, int | None]], uid: int, gid: int) -> dict[str, dict[str, Any]]:
    """Looks at each; from half-way on as the job's user."""
    if platform.machine() != "x86_64":
        raise collect_child.Refused(f"not known how to follow stacks of {platform.machine()}")
    began_s = time.monotonic()
    answer: dict[str, dict[str, Any]] = {}
    taken: list[ProcessSnapshot] = []
    for pid, before in ranks:
        try:
            taken.append(take(pid, uid, before))
        except collect_child.Refused as exc:
            answer[str(pid)] = {"native_error": str(exc)}
        except (OSError, *elf.PARSE_ERRORS) as exc:
            answer[str(pid)] = {"native_error": _why(exc)}
    collect_child.become(uid, gid)
    collect_child.limit(cpu_s=10)
    rings = [t.ring for t in taken if t.ring is not None]
    sampled_s = time.monotonic()
    while any(perf_event.count(r) < SAMPLES for r in rings) and time.monotonic() < sampled_s + SAMPLED_S:
        time.sleep(0.02)
    files, walks = MappedFiles(), dict[int, unwind.Walk]()
    for one in taken:
        if time.monotonic() > began_s + BUDGET_S:
            walks[one.pid] = unwind.Walk(frames=(), reached=False, why="no time was left for it")
        else:
            walks[one.pid] = followed(one, files)
    return answer | to_reply(walks)


def _why(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc.strerror}" if isinstance(exc, OSError) else type(exc).__name__


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    ranks = [(int(pid), None if n is None else int(n)) for pid, n in request["ranks"]]
    try:
        answer = look(ranks, int(request["uid"]), int(request["gid"]))
    except collect_child.Refused as exc:
        answer = {str(pid): {"native_error": str(exc)} for pid, _ in ranks}
    except OSError as exc:
        answer = {str(pid): {"native_error": _why(exc)} for pid, _ in ranks}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
