"""The writer's side of the page: one per process, mode 0600, in the job's own directory.

Every function here is called from hooks in user code: they return at once when there is no page,
and they raise nothing that a page could cause.
"""

import mmap
import os
import struct
import sys
import time
from _thread import get_ident

from _probing_probe import layout

_now = time.monotonic_ns
# Native 64-bit fields at aligned offsets: each is one store.
_pack_step = struct.Struct("@7Q").pack_into
pack_collective = struct.Struct("@3Q40sQ").pack_into
# What the hooks use at every step and call, as this module's own: looking it up elsewhere costs as much as writing it.
_STEPS_AT, _STEP_SIZE = layout.STEPS_AT * 8, layout.STEP_WORDS * 8
_TRAINING = layout.TRAINING
_words = None
_map = None
_pid = 0
may_open = True
"""Whether the first step is to try once more where no page could be opened; again after a fork."""

# What has been waited for since the last optimizer step, nanoseconds.
_input_ns = 0
_backward_ns = 0
_checkpoint_ns = 0

_steps = 0
_phase = layout.NONE_PHASE
_phase_since = 0
_ckpt_begin = 0
_ckpt_end = 0
_ckpts = 0
_ckpt_depth = 0
_ckpt_total_ns = 0
_step_thread = None
_progress_version = 0
_identity_version = 0


def _ring():
    words = range(layout.COLLECTIVES_AT, layout.WORDS, layout.COLLECTIVE_WORDS)[: layout.COLLECTIVES]
    slots = [[w * 8, w + layout.C_ENTER_NS, w + layout.C_LEAVE_NS, None] for w in words]
    for i, slot in enumerate(slots):
        slot[3] = slots[(i + 1) % len(slots)]
    return slots[0]


counts = [0, 0, _ring()]
"""When the last collective was entered, nanoseconds waited in all since the last step, and the ring's next slot: where
its entry begins, bytes, which words are its times of entering and leaving, and the slot after it. A list, whose items
are cheaper than globals."""


_kept = []
"""Maps that must not go. Until Python 3.13 a map keeps a descriptor, which it closes at its end, whosever it is by then: a
program that has closed all descriptors may have a file of its own under that number."""
if sys.version_info < (3, 13):
    os.register_at_fork(
        after_in_child=_kept.copy
    )  # held until the interpreter is gone, after all files of the program


def _mapped(fd):
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, layout.SIZE_BYTES, trackfd=False)
    made = mmap.mmap(fd, layout.SIZE_BYTES)
    _kept.append(made)
    return made


def _let_go(made):
    """Gives up a map, unless its descriptor's number is another file's."""
    try:
        if made is not None and made.size() == len(made):
            _kept[:] = [one for one in _kept if one is not made]
    except (OSError, ValueError):
        pass


def open_page():
    """Makes this process's page; quietly nothing where the directory is missing or full."""
    global _words, _map, _pid
    if _words is not None and _pid == os.getpid():
        return
    _forget()
    directory, namespace = os.environ["PROBING_PAGE_DIR"], _pid_namespace()
    usual, beside = (os.path.join(directory, name) for name in layout.names_of(os.getpid(), namespace))
    try:
        path, fd = usual, _new(usual)
    except FileExistsError:
        path = usual if _is_ours(usual, namespace) else beside  # ours: of an earlier process with this pid
        fd = _new_for(path)
    try:
        _map = _mapped(fd)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    _words = memoryview(_map).cast("Q")
    _pid = os.getpid()
    _write_header(namespace)
    write_identity()
    set_phase(layout.IMPORTING)
    _words[layout.H_MAGIC] = layout.MAGIC  # last: a page without it is not yet a page


def _new(path):
    """A file of a page's size at `path`, which must not exist: a new one, or where there is no room a page that lies ready."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise
    except OSError:
        return _ready(path, flags)
    try:
        return _filled(fd)
    except OSError:
        return _ready(path, flags)


def _filled(fd):
    try:
        # Written, not truncated to size: a hole in a full tmpfs would be SIGBUS on first touch.
        if os.write(fd, b"\0" * layout.SIZE_BYTES) != layout.SIZE_BYTES:
            raise OSError("short write")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _ready(path, flags):
    directory = os.path.dirname(path)
    for name in layout.spare_names():
        try:
            os.rename(os.path.join(directory, name), path)
        except FileNotFoundError:
            continue  # another rank's
        return _filled(os.open(path, flags))
    os.unlink(path)
    raise OSError("no room for a page")


def _new_for(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return _new(path)


def _pid_namespace():
    try:
        return int(os.readlink("/proc/self/ns/pid")[5:-1])  # pid:[4026531836]
    except (OSError, ValueError):
        return 0


def _is_ours(path, namespace):
    """Whether the page at `path` was made in this PID namespace, so that its process is gone: its number is ours now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return True  # no page
    try:
        head = os.pread(fd, 8, layout.H_PID_NAMESPACE * 8)
    except OSError:
        return True
    finally:
        os.close(fd)
    return int.from_bytes(head, "little") == namespace


def _write_header(namespace):
    w = _words
    w[layout.H_PID_NAMESPACE] = namespace
    w[layout.H_VERSION] = layout.VERSION
    w[layout.H_SIZE] = layout.SIZE_BYTES
    w[layout.H_PID] = _pid
    w[layout.H_START_TICKS] = _start_ticks()
    w[layout.H_REALTIME_NS] = time.time_ns()
    w[layout.H_MONOTONIC_NS] = _now()


def _start_ticks():
    try:
        with open("/proc/self/stat", "rb") as handle:
            return int(handle.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return layout.NONE


def _forget():
    global _words, _map, _steps, _phase, _phase_since, _ckpt_begin, _ckpt_end, _ckpts
    global _progress_version, _identity_version
    global _input_ns, _backward_ns, _checkpoint_ns
    global _ckpt_depth, _ckpt_total_ns, _step_thread
    _let_go(_map)
    _words = _map = _step_thread = None
    _ckpt_depth = _ckpt_total_ns = 0
    _steps = _phase = _phase_since = _ckpt_begin = _ckpt_end = _ckpts = 0
    _progress_version = _identity_version = 0
    _input_ns = _backward_ns = _checkpoint_ns = 0
    counts[:2] = 0, 0


def close_in_child():
    """After fork: the parent's page is not ours to write; a child that trains opens its own."""
    global may_open
    may_open = True
    _forget()


def _number(*names):
    for name in names:
        value = os.environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 20:
            return int(value)
    return layout.NONE


def write_identity(rank=None, world=None, backend=""):
    """Who this process is; written again when the process group comes up and knows better."""
    global _identity_version
    if _words is None:
        return
    base = [0] * layout.IDENTITY_WORDS
    base[layout.I_JOB] = _number("SLURM_JOB_ID", "SLURM_JOBID")
    base[layout.I_RESTART] = _number("SLURM_RESTART_COUNT")
    base[layout.I_STEP] = _number("SLURM_STEP_ID", "SLURM_STEPID")
    base[layout.I_RANK] = _number("RANK", "SLURM_PROCID") if rank is None else rank
    base[layout.I_WORLD] = _number("WORLD_SIZE", "SLURM_NTASKS") if world is None else world
    base[layout.I_LOCAL_RANK] = _number("LOCAL_RANK", "SLURM_LOCALID")
    base[layout.I_NODE_ID] = _number("SLURM_NODEID")
    base[layout.I_PARENT] = os.getppid()
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    torch = sys.modules.get("torch")
    for at, count, text in (
        (layout.I_HOST, layout.I_HOST_WORDS, host),
        (layout.I_TORCH, layout.I_TORCH_WORDS, str(getattr(torch, "__version__", ""))),
        (layout.I_PYTHON, layout.I_PYTHON_WORDS, "%d.%d.%d" % sys.version_info[:3]),
        (layout.I_BACKEND, layout.I_BACKEND_WORDS, str(backend)),
    ):
        base[at : at + count] = layout.words_of(text, count)
    base[layout.I_CHECK] = 0
    base[layout.I_CHECK] = layout.check_of(base)
    _identity_version += 1
    at = layout.IDENTITY_AT[_identity_version & 1]
    for offset, value in enumerate(base):
        _words[at + offset] = value
    _words[layout.H_IDENTITY] = _identity_version


def flag(bit):
    """Sets a header flag."""
    if _words is not None:
        _words[layout.H_FLAGS] |= bit


def _publish():
    global _progress_version
    w = _words
    if w is None:
        return
    version = _progress_version + 1
    at = layout.PROGRESS_AT[version & 1]
    w[at] = _phase
    w[at + 1] = _phase_since
    w[at + 2] = _ckpt_begin
    w[at + 3] = _ckpt_end
    w[at + 4] = _ckpts
    w[at + 5] = layout.check_of((_phase, _phase_since, _ckpt_begin, _ckpt_end, _ckpts))
    _progress_version = version
    w[layout.H_PROGRESS] = version


def set_phase(phase):
    """Enters `phase` now; the same phase again changes nothing. Returns the phase left."""
    global _phase, _phase_since
    left = _phase
    if phase != left:
        _phase = phase
        _phase_since = _now()
        _publish()
    return left


def step_done():
    """One optimizer step has ended."""
    global _steps, _phase, _phase_since, _step_thread
    global _input_ns, _backward_ns, _checkpoint_ns
    if _words is None:
        return
    now = _now()
    _steps = steps = _steps + 1
    # The first word written makes the old entry invalid, the last one the new entry valid.
    _pack_step(
        _map, _STEPS_AT + (steps & 63) * _STEP_SIZE,
        steps, now, _input_ns, counts[1], _backward_ns, _checkpoint_ns, steps ^ now,
    )  # fmt: skip
    counts[1] = _input_ns = _backward_ns = _checkpoint_ns = 0
    if _phase != _TRAINING:
        if steps == 1:
            _words[layout.H_FIRST_STEP_NS] = now
            _step_thread = get_ident()
        _phase = layout.TRAINING
        _phase_since = now
        _publish()


def add_input(ns):
    """`ns` spent waiting for the data loader."""
    global _input_ns
    _input_ns += ns


def loader_ended():
    """A data loader has no more batches."""
    if _words is not None:
        _words[layout.H_LOADER_ENDS] += 1


def add_backward(ns):
    """`ns` spent inside a backward pass (gradient collectives included)."""
    global _backward_ns
    _backward_ns += ns


def checkpoint_begin():
    """A checkpoint write begins; what it returns is for `checkpoint_end`.

    One inside another (torch.distributed.checkpoint calls torch.save) is part of it. One in another thread
    than the steps' (asynchronous saving) does not hold the training up: it is no phase and blocks nothing.
    """
    global _ckpt_begin, _ckpt_depth
    if _words is None:
        return None
    now = _now()
    if _step_thread is not None and get_ident() != _step_thread:
        return (now, None)
    _ckpt_depth += 1
    if _ckpt_depth > 1:
        return (None, None)
    _ckpt_begin = now
    return (now, set_phase(layout.CHECKPOINTING))


def checkpoint_end(begun, written):
    """The write has ended; `written` is false when it raised, so that it is no checkpoint to resume from."""
    global _ckpt_begin, _ckpt_end, _ckpts, _ckpt_depth, _ckpt_total_ns, _checkpoint_ns
    if _words is None or begun is None:
        return
    begin, phase_before = begun
    blocking = begin is None or phase_before is not None
    if blocking:
        _ckpt_depth -= 1
        if begin is None:
            return
    now = _now()
    if blocking:
        _checkpoint_ns += now - begin
        if _step_thread is not None:  # what is saved before the first step is no checkpoint of a training
            _ckpt_total_ns += now - begin
            _words[layout.H_CHECKPOINT_NS] = _ckpt_total_ns
    if written:
        _ckpt_begin = begin
        _ckpt_end = now
        _ckpts += 1
    if blocking:
        set_phase(phase_before)
    _publish()
