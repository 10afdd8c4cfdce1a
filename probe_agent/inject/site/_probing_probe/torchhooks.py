"""What is installed once torch is there: the optimizer's own post hook, and timers around a few calls.

No frame hook, no thread, no signal. A wrapped function keeps its name, signature and place, so that
pickle, inspect and torch.compile (which recognises collectives by identity) see what they expect.
"""

import atexit
import functools
import os
import sys
import time

from _probing_probe import collectives, layout, page

_now = time.monotonic_ns

failures = []
"""What could not be hooked, for tests; never shown to the user."""


def install(torch):
    """Hooks the torch that has just been imported."""
    global _is_compiling
    compiler = getattr(torch, "compiler", None)
    _is_compiling = getattr(compiler, "is_compiling", _is_compiling)
    os.register_at_fork(after_in_child=page.close_in_child)
    atexit.register(page.set_phase, layout.ENDED)
    _ended_children()
    page.write_identity()
    for part in (_optimizer, _checkpoint, _backward, _loader, _evaluation, _distributed, _tracing):
        try:
            part(torch)
        except Exception as exc:  # a torch that lacks one of these still has the others
            failures.append(exc)
    page.set_phase(layout.LOADING)


def _ended_children():
    # Children of multiprocessing that were forked leave by os._exit, without atexit (until Python 3.13).
    util, process = (sys.modules.get("multiprocessing." + name) for name in ("util", "process"))
    if util is None or process is None:
        return  # torch imports both

    def at_end(_):
        # Last of all: what holds up an end is to be seen.
        util.Finalize(None, page.set_phase, (layout.ENDED,), exitpriority=-100)

    util.register_after_fork(
        page, at_end
    )  # also begins a child that has imported torch before: it forgets finalizers
    if process.parent_process() is not None:
        at_end(page)


def _is_compiling():
    # torch's own where it has one: a constant to torch.compile, so that nothing of ours is ever traced into a graph.
    return False


def _tracing(torch):
    if os.environ.get("PROBING_TRACE"):
        from _probing_probe import trace

        trace.install(torch)


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
        if collectives.compiling is None or not (
            collectives.compiling() or collectives.compiler._is_compiling_flag
        ):
            if page.may_open and page._words is None:
                _reopen()
            done()

    register(after_step)


def _reopen():
    # A forked child that trains (torch.multiprocessing with fork) gets a page of its own.
    try:
        page.open_page()
    except Exception:  # without a page every hook returns at once
        pass
    page.may_open = False  # asked once


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
    collectives.watch(getattr(sys.modules["torch"], "compiler", None), _is_compiling)
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
    for name in collectives.NAMES + collectives.POINT_TO_POINT:
        inner = getattr(c10d, name, None)
        outer = _wrap(c10d, name, functools.partial(collectives.timed, name, c10d))
        if outer is not None:
            originals[inner] = outer
            if getattr(dist, name, None) is inner:
                setattr(dist, name, outer)
    _register_with_dynamo(originals)
    outer = _wrap(c10d, "init_process_group", functools.partial(_timed_init, c10d))
    if outer is not None:
        dist.init_process_group = outer
    outer = _wrap(c10d, "destroy_process_group", _forgetting)
    if outer is not None:
        dist.destroy_process_group = outer


def _register_with_dynamo(originals):
    # torch.compile rewrites collectives it recognises by identity; it must recognise ours as well.
    functional = sys.modules.get("torch.distributed._functional_collectives")
    table = getattr(functional, "traceable_collective_remaps", None)
    if table is not None:
        for inner, outer in originals.items():
            if inner in table:
                table[outer] = table[inner]


def _forgetting(inner):
    def outer(*args, **kwargs):
        collectives.forget_groups()
        return inner(*args, **kwargs)

    return outer


def _timed_init(c10d, inner):
    def outer(*args, **kwargs):
        collectives.forget_groups()
        before = page.set_phase(layout.INIT)
        try:
            return inner(*args, **kwargs)
        finally:
            page.set_phase(before)
            if c10d.is_initialized():
                page.write_identity(c10d.get_rank(), c10d.get_world_size(), c10d.get_backend())

    return outer
