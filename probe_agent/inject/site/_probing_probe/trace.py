"""Modules, allocator and GPU transfers of sampled steps: loaded only where the job sets `PROBING_TRACE=RATE[:DEPTH]`.

Of every 1/RATE-th optimizer step torch's own global module hooks are there for that one step, so all other steps run
without a line of ours. Backward times come of gradients arriving at a module's outputs and inputs (tensor hooks: unlike
a module's backward hooks they change no graph). What it finds goes into rings, as a program's own tables do.

Nothing is traced in a program that compiles: hooks would be traced into its graphs and compile them anew.
"""

import os
import pickle
import re
import sys
import time
from _thread import get_ident

from _probing_probe import groups

MAX_SPANS = 512
"""Of one step; what comes after them is counted."""
DEPTH = 3
TRANSFERS_EVERY_NS = 10_000_000_000
_SIZES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
_now = time.monotonic_ns

compiles = False
"""The program has called torch.compile."""
failures = []
"""What went wrong, for tests; tracing ends with the first."""
_torch = None
_period, _depth = 0, DEPTH
_steps = 0
_thread = None
_began = 0
_spans = []
_stack = []
_handles = []
_names = {}
_tables = {}
_transfers_at = 0
_recorded = -1
_read_ids = set()


def install(torch):
    """Takes up tracing as the environment wants it; nothing for a value that is no rate."""
    global _torch, _period, _depth
    rate, _, depth = os.environ.get("PROBING_TRACE", "").partition(":")
    try:
        share = float(rate)
        _depth = min(max(int(depth or DEPTH), 0), 32)
    except ValueError:
        return
    if not 0 < share <= 1:
        return
    # By this name, as a program does: a second copy of the module would write rings of the same names.
    from probing_tables import table

    _torch, _period = torch, max(1, int(round(1 / share)))
    _tables["modules"] = table(
        "torch_modules", step=int, phase=str, module=str, kind=str, depth=int, since_s=float, duration_s=float
    )
    _tables["memory"] = table(
        "torch_memory", step=int, device=int, allocated_bytes=int, reserved_bytes=int, peak_allocated_bytes=int,
        peak_reserved_bytes=int, retries=int, ooms=int,
    )  # fmt: skip
    _tables["transfers"] = table(
        "torch_transfers", group=str, role=str, seq=int, op=str, group_size=int, bytes=int, dtype=str,
        begin_ns=int, transfer_s=float,
    )  # fmt: skip
    _watch_compile(torch)
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(_after_step)


def _watch_compile(torch):
    inner = getattr(torch, "compile", None)
    if inner is None:
        return

    def compile(*args, **kwargs):  # noqa: A001 - as torch calls it
        global compiles
        compiles = True
        return inner(*args, **kwargs)

    compile.__wrapped__, compile.__doc__ = inner, inner.__doc__
    torch.compile = compile


def _after_step(optimizer, args, kwargs):
    global _steps
    _steps += 1
    try:
        if _handles:
            _end()
        if _steps % _period == 0 and not compiles and not failures:
            _begin()
    except Exception as exc:
        _fail(exc)


def _begin():
    global _thread, _began
    hooks = _torch.nn.modules.module
    _thread, _began = get_ident(), _now()
    _spans.clear()
    _stack.clear()
    _handles.append(hooks.register_module_forward_pre_hook(_enter))
    _handles.append(hooks.register_module_forward_hook(_leave))


def _end():
    global _transfers_at
    while _handles:
        _handles.pop().remove()
    append = _tables["modules"].append
    for phase, name, kind, depth, begin, end in _spans:
        took = None if end is None else (end - begin) / 1e9
        append(_steps, phase, name, kind, depth, (begin - _began) / 1e9, took)
    _spans.clear()
    _stack.clear()
    _memory()
    now = _now()
    if now - _transfers_at >= TRANSFERS_EVERY_NS:
        _transfers_at = now
        _transfers()


def _fail(exc):
    """Tracing ends: whatever it was, the program goes on without it."""
    failures.append(exc)
    while _handles:
        _handles.pop().remove()


def _enter(module, args):
    if get_ident() != _thread:
        return
    try:
        if not _stack and id(module) not in _names:
            _names.clear()
            for name, inner in module.named_modules():
                _names[id(inner)] = name or type(module).__name__
        _stack.append((module, _now()))
    except Exception as exc:
        _fail(exc)


def _leave(module, args, output):
    if get_ident() != _thread:
        return
    try:
        end = _now()
        while _stack:  # a forward that raised has left its own entry behind
            entered, begin = _stack.pop()
            if entered is module:
                break
        else:
            return
        if len(_stack) > _depth or len(_spans) >= MAX_SPANS:
            return
        name, kind = _names.get(id(module), ""), type(module).__name__
        _spans.append(("forward", name, kind, len(_stack), begin, end))
        _watch_backward(name, kind, len(_stack), args, output)
    except Exception as exc:
        _fail(exc)


def _watch_backward(name, kind, depth, args, output):
    out, brought = _with_gradient(output), _with_gradient(args)
    if out is None or out.grad_fn is None or out is brought:
        return
    step, found = _steps, []

    def begins(_):
        if not found and step == _steps and len(_spans) < MAX_SPANS:
            found.append(len(_spans))
            _spans.append(("backward", name, kind, depth, _now(), None))

    def ends(_):
        if found and step == _steps and found[0] < len(_spans):
            _spans[found[0]] = (*_spans[found[0]][:5], _now())

    out.register_hook(begins)
    if brought is not None:
        brought.register_hook(ends)


def _with_gradient(value):
    """The first tensor in a value, or one level inside it, that will have a gradient."""
    if isinstance(value, _torch.Tensor):
        return value if value.requires_grad else None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((v for v in inner if isinstance(v, _torch.Tensor) and v.requires_grad), None)


def _memory():
    cuda = getattr(_torch, "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return
    stats = cuda.memory_stats()
    _tables["memory"].append(
        _steps, cuda.current_device(), stats.get("allocated_bytes.all.current"), stats.get("reserved_bytes.all.current"),
        stats.get("allocated_bytes.all.peak"), stats.get("reserved_bytes.all.peak"), stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
    )  # fmt: skip


def _transfers():
    """Collectives that NCCL has finished, from torch's flight recorder, which times them on the GPU when it is asked to."""
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_nccl_trace", None)
    if dump is None:
        return
    try:
        raw = dump(True, False, False)
    except TypeError:  # of an older torch
        raw = dump()
    found = pickle.loads(raw)  # noqa: S301 - torch's own, of this process
    _take(found)


def _take(found):
    global _recorded
    sizes = {
        k: len(re.findall(r"\d+", str(v.get("ranks", "")))) for k, v in (found.get("pg_config") or {}).items()
    }
    ids = []
    for entry in found.get("entries") or ():
        number = entry.get("record_id", -1)
        ids.append(number)
        duration_ms = entry.get("duration_ms")
        if (
            number in _read_ids
            or number <= _recorded
            or duration_ms is None
            or entry.get("state") != "completed"
        ):
            continue
        _read_ids.add(number)
        name, description = (tuple(entry.get("process_group") or ()) + ("", ""))[:2]
        n_bytes, dtype = _bytes_of(entry)
        _tables["transfers"].append(
            str(name), groups.word_of(str(description)) or None, entry.get("collective_seq_id"),
            str(entry.get("profiling_name", "")).partition(":")[2][:32], sizes.get(name), n_bytes, dtype,
            entry.get("time_created_ns"), duration_ms / 1000,
        )  # fmt: skip
    # What the recorder has overwritten comes no more.
    _recorded = max(_recorded, min(ids, default=0) - 1)
    _read_ids.difference_update([n for n in _read_ids if n <= _recorded])


def _bytes_of(entry):
    """(bytes of the larger side, as nccl-tests counts a collective's size; dtype)."""
    most, name = 0, None
    for side in ("input", "output"):
        total = 0
        for shape, dtype in zip(entry.get(side + "_sizes") or (), entry.get(side + "_dtypes") or ()):
            count = 1
            for length in shape:
                count *= length
            total += count * _SIZES.get(dtype, 0)
            name = name or dtype
        most = max(most, total)
    return most or None, name
