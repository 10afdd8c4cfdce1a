"""What is installed once torch is there: the optimizer's own post hook, and timers around a few calls.

No frame hook, no thread, no signal. A wrapped function keeps its name, signature and place, so that
pickle, inspect and torch.compile (which recognises collectives by identity) see what they expect.
"""

import atexit
import functools
import itertools
import os
import sys
import time

from _probing_probe import layout, page

_now = time.monotonic_ns

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object",
    "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")

_may_compile = False
"""Whether the compiler has been loaded: until then nobody traces us."""
_groups = {}
"""Name to the next number of calls and of point-to-point calls of each group: they go on for as long as the process lives."""
_known = []
"""Per operation what is known of each group object; emptied when groups come and go."""
failures = []
"""What could not be hooked, for tests; never shown to the user."""


def install(torch):
    """Hooks the torch that has just been imported."""
    global _is_compiling
    compiler = getattr(torch, "compiler", None)
    _is_compiling = getattr(compiler, "is_compiling", _is_compiling)
    os.register_at_fork(after_in_child=page.close_in_child)
    atexit.register(page.set_phase, layout.ENDED)
    page.write_identity()
    for part in (_optimizer, _checkpoint, _backward, _loader, _evaluation, _distributed):
        try:
            part(torch)
        except Exception as exc:  # a torch that lacks one of these still has the others
            failures.append(exc)
    page.set_phase(layout.LOADING)


def _is_compiling():
    # torch's own where it has one: a constant to torch.compile, so that nothing of ours is ever traced into a graph.
    return False


def _wrap(owner, name, make):
    inner = getattr(owner, name, None)
    if inner is None or hasattr(inner, "_probing"):
        return None
    outer = functools.wraps(inner)(make(inner))
    outer._probing = True
    setattr(owner, name, outer)
    return outer


def _optimizer(torch):
    # torch.optim deletes its submodule's name, so it is found where imports are kept.
    module = sys.modules.get("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        page.flag(layout.FLAG_STEPS_UNSEEN)
        return

    done = page.step_done

    def after_step(optimizer, args, kwargs):
        if not _is_compiling():
            if page._words is None:
                _reopen()
            done()

    register(after_step)


def _reopen():
    # A forked child that trains (torch.multiprocessing with fork) gets a page of its own.
    if page._pid != os.getpid():
        try:
            page.open_page()
        except OSError:
            page._pid = os.getpid()  # asked once; without a page every hook returns at once


def _timed_checkpoint(inner):
    def outer(*args, **kwargs):
        begun = page.checkpoint_begin()
        written = False
        try:
            result = inner(*args, **kwargs)
            written = True
            return result
        finally:
            page.checkpoint_end(begun, written)

    return outer


def _checkpoint(torch):
    outer = _wrap(torch.serialization, "save", _timed_checkpoint)
    if outer is not None:
        torch.save = outer


def install_checkpoint(module):
    """torch.distributed.checkpoint has been imported: its `save` is a checkpoint too."""
    _wrap(module, "save", _timed_checkpoint)


def install_compiler(module):
    """torch._dynamo has been imported: a compilation is a phase of its own, not a stall."""
    global _may_compile
    _may_compile = True
    before = []

    def begin(*_):
        before.append(page.set_phase(layout.COMPILING))

    def end(*_):
        if before:
            page.set_phase(before.pop())

    handler = module.callback_handler
    handler.register_start_callback(begin)
    handler.register_end_callback(end)


def _backward(torch):
    def make(inner):
        def outer(*args, **kwargs):
            if _is_compiling():
                return inner(*args, **kwargs)
            begin = _now()
            try:
                return inner(*args, **kwargs)
            finally:
                page.add_backward(_now() - begin)

        return outer

    _wrap(torch.autograd, "backward", make)


def _loader(torch):
    def make(inner):
        def outer(self):
            begin = _now()
            try:
                return inner(self)
            except StopIteration:
                page.loader_ended()
                raise
            finally:
                page.add_input(_now() - begin)

        return outer

    _wrap(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", make)


def _evaluation(torch):
    def make(inner):
        def outer(self, *args, **kwargs):
            # Only a module that has trained is being validated; frozen towers call eval() while loading.
            if not _is_compiling() and page._phase == layout.TRAINING:
                page.set_phase(layout.VALIDATING)
            return inner(self, *args, **kwargs)

        return outer

    _wrap(torch.nn.Module, "eval", make)


def _distributed(torch):
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    originals = {}
    for name in COLLECTIVES + POINT_TO_POINT:
        inner = getattr(c10d, name, None)
        outer = _wrap(c10d, name, functools.partial(_timed_collective, name, c10d))
        if outer is not None:
            originals[inner] = outer
            if getattr(dist, name, None) is inner:
                setattr(dist, name, outer)
    _tell_dynamo(originals)
    outer = _wrap(c10d, "init_process_group", functools.partial(_timed_init, c10d))
    if outer is not None:
        dist.init_process_group = outer
    outer = _wrap(c10d, "destroy_process_group", _forgetting)
    if outer is not None:
        dist.destroy_process_group = outer


def _tell_dynamo(originals):
    # torch.compile rewrites collectives it recognises by identity; it must recognise ours as well.
    functional = sys.modules.get("torch.distributed._functional_collectives")
    table = getattr(functional, "traceable_collective_remaps", None)
    if table is not None:
        for inner, outer in originals.items():
            if inner in table:
                table[outer] = table[inner]


def _forget_groups():
    # What is kept of a group holds the group itself: it must not outlive its end.
    for known in _known:
        known.clear()


def _forgetting(inner):
    def outer(*args, **kwargs):
        _forget_groups()
        return inner(*args, **kwargs)

    return outer


def _timed_init(c10d, inner):
    def outer(*args, **kwargs):
        _forget_groups()
        before = page.set_phase(layout.INIT)
        try:
            return inner(*args, **kwargs)
        finally:
            page.set_phase(before)
            if c10d.is_initialized():
                page.write_identity(c10d.get_rank(), c10d.get_world_size(), c10d.get_backend())

    return outer


def _timed_collective(name, c10d, inner):
    p2p = int(name in POINT_TO_POINT)  # an int: a list indexed by a bool takes CPython's slow path
    flags = layout.META_P2P if p2p else 0
    if name in ("isend", "irecv", "batch_isend_irecv"):
        flags |= layout.META_ASYNC
    op = layout.bytes_of(name, 2)
    bare = "barrier" in name
    known = {}
    _known.append(known)
    pack, next_slot, counts, now, dtypes = page.pack_collective, page.next_slot, page.counts, _now, _dtypes

    enter_back, meta_back = layout.C_LEAVE_NS - layout.C_ENTER_NS, layout.C_LEAVE_NS - layout.C_META

    def learn(group):
        # (group and operation as bytes, what of the meta word is known, its counter); a call without a group counts nowhere
        try:
            real = c10d._get_default_group() if group is None else group
            label, members = str(real.group_name), min(real.size(), 0xFFFFFF)
        except (ValueError, AttributeError, RuntimeError):
            return op.rjust(32, b"\0"), flags, itertools.count(1).__next__
        counters = _groups.get(label)
        if counters is None:
            counters = _groups[label] = itertools.count(1).__next__, itertools.count(1).__next__
        known[group] = found = layout.bytes_of(label, 2) + op, members << 16 | flags, counters[p2p]
        return found

    def outer(*args, **kwargs):
        # Everything here is paid for at each call of a training loop (benchmarks/probe_overhead.py): one body, no
        # helpers, nothing looked up twice.
        words = page._words
        if words is None or _may_compile and _is_compiling():
            return inner(*args, **kwargs)
        group = None
        if kwargs:
            group = kwargs.get("group")
            asynchronous = kwargs.get("async_op")
        else:
            asynchronous = False
        if len(args) > 1 and group is None:
            group = _positional(c10d, args)
        try:
            what, meta, next_seq = known[group]
        except KeyError:
            what, meta, next_seq = learn(group)
        if bare:
            numel = 0
        else:
            try:
                value = args[0]
                meta |= dtypes[value.dtype]
                numel = value.numel()
            except (AttributeError, LookupError, TypeError):
                value = args[0] if args else kwargs.get("tensor")
                meta |= _dtype(value)
                numel = _numel(value)
        if asynchronous:
            meta |= layout.META_ASYNC
        waited_ns = counts[1]
        at, leave = next_slot()
        counts[0] = began = now()
        # The first word written makes the old entry invalid, the last one the new entry valid.
        pack(page._map, at, began, next_seq(), numel, meta, what, began)
        try:
            result = inner(*args, **kwargs)
        except BaseException:
            if page._words is words and words[leave - enter_back] == began:
                words[leave - meta_back] |= layout.META_RAISED
                words[leave] = _now()
            _dump()
            raise
        left = now()
        # Else others were called inside this one, and the ring may have gone past it.
        if counts[0] is began or words[leave - enter_back] == began:
            words[leave] = left
        counts[1] = left - began + waited_ns  # what calls inside this one have waited is part of it
        return result

    return outer


def _positional(c10d, args):
    """The process group among positional arguments; None for the default one."""
    for value in args[1:]:
        if isinstance(value, c10d.ProcessGroup):
            return value
    return None


def _numel(value):
    """Elements of a tensor (or of a list of them); 0 for anything else."""
    count = getattr(value, "numel", None)
    if count is not None:
        return count()
    if isinstance(value, (list, tuple)):
        return sum(item.numel() for item in value if hasattr(item, "numel")) & layout.MASK
    return 0


_dtypes = {}


def _dtype(value):
    """A stable 16-bit code of the tensor's dtype name, the same on every rank; 0 for none."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return 0
    code = _dtypes.get(dtype)
    if code is None:
        code = 7
        for char in str(dtype):
            code = (code * 31 + ord(char)) & 0xFFFF
        _dtypes[dtype] = code
    return code


def _dump():
    # gloo writes no flight-recorder dump of its own; NCCL's watchdog does. Once, at the first failure.
    global _dumped
    if _dumped:
        return
    _dumped = True
    try:
        from torch._C import _distributed_c10d as c

        raw = c._dump_fr_trace()
        rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or str(os.getpid())
        path = os.path.join(os.environ["PROBING_PAGE_DIR"], "fr_rank_" + rank)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as handle:
            handle.write(raw[: 8 << 20])
    except Exception:  # a dump is a bonus; the user's own exception must reach them untouched
        return


_dumped = False
