"""Timers around the collectives and point-to-point calls that a program makes from Python.

What a hook costs is paid at each call of a training loop (benchmarks/probe_agent/probe_overhead.py), so each is one body, compiled
once with the very parameters of the function that it wraps: no tuple and no dictionary of arguments is made, no
helper is called and nothing is looked up twice. Whatever goes wrong in it before the call, the call is made as if
there were no hook; only what a signal's handler of the user's raises just then is theirs.
"""

import functools
import os
import re
import struct
import time

from _probing_probe import groups, layout, page

NAMES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object",
    "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
_AT_ONCE = ("isend", "irecv", "batch_isend_irecv")

compiling = None
"""Once the compiler has been loaded: whether it traces us. A constant to torch.compile, so that nothing of ours is
ever traced into a graph. Most programs load it: their optimizer does."""
compiler = None
"""torch.compiler, whose flag also tells of tracing that runs Python as it is (torch.export)."""
_groups = {}
"""Per name of a group its counts of calls and of point-to-point calls: they go on for as long as the process lives."""
_known = []
"""Per operation what is known of each group object; emptied when groups come and go."""
_pack_what = struct.Struct("@Q32s").pack
_TAKES_ANY = 0x04 | 0x08
"""A code object's CO_VARARGS and CO_VARKEYWORDS."""

_LINE = (lambda: 0).__code__.co_firstlineno + 1
_BODY = """\
def make(inner, c10d, page, pack, now, counts, learn, blocking, started, brought_by, failed, foreign, mark):
    def hook({parameters}):
        words = page._words
        if words is None or compiling is not None and (compiling() or compiler._is_compiling_flag):
            return {call}
        try:
            try:
                counter, rows = {known}[{of}]
            except KeyError:
                counter, rows = learn({of}, {known})
            try:
                row, numel = {brought}
            except AttributeError:
                dtype, numel = brought_by({value})
                row = rows[dtype]
            waited_ns = counts[1]
            at, enter, leave, counts[2] = counts[2]
            counter[0] = seq = counter[0] + 1
            counts[0] = began = now()
            # The first word written makes the old entry invalid, the last one the new entry valid.
            pack(page._map, at, began, seq, numel, row, began)
        except BaseException as error:
            if foreign(error):
                try:
                    counter[0] = seq - 1
                    mark(words, enter, leave, began)
                except UnboundLocalError:
                    pass  # it had not come so far
                raise
            return {call}
        try:
            result = {call}
        except BaseException:
            failed(words, enter, leave, began)
            raise
        left = now()
        # Else others were called inside this one, and the ring may have gone past it.
        if counts[0] is began or words[enter] == began:
            words[leave] = left
        counts[1] = left - began + waited_ns  # what calls inside this one have waited is part of it
        return result

    return hook
"""
_OURS = frozenset(re.findall(r"\w+", re.sub("#.*|{.*?}", "", _BODY)))


def watch(found, is_compiling):
    """The compiler is there: `found` is torch.compiler, whose `is_compiling` is dear, and the same as these two."""
    global compiling, compiler
    if hasattr(found, "_is_compiling_flag") and hasattr(found, "is_dynamo_compiling"):
        compiling, compiler = found.is_dynamo_compiling, found
    else:
        compiling, compiler = is_compiling, _Unwritten


class _Unwritten:
    _is_compiling_flag = False


def timed(name, c10d, inner):
    """`inner`, the function `name` of torch.distributed, with each call of it written into the page."""
    blocking, started = {}, {}
    _known.extend((blocking, started))
    function = inner
    while hasattr(function, "__wrapped__"):  # torch's own decorators pass on what they are given
        function = function.__wrapped__
    exact = _exact(function)
    # On the lines of this file, for tracebacks. Its only variable words are names of torch's own parameters.
    text = "\n" * _LINE + _BODY.format(**_words(name, exact))
    made = {}
    exec(compile(text, __file__, "exec"), globals(), made)  # noqa: S102
    hook = made["make"](
        inner, c10d, page, page.pack_collective, time.monotonic_ns, page.counts,
        _learner(name, c10d, started), blocking, started, _brought_by, _failed, _foreign, _mark,
    )  # fmt: skip
    if exact is not None:
        hook.__defaults__, hook.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return functools.wraps(inner)(hook)


def _exact(function):
    """(names of the parameters by place, how many of these have no default, names of those by name only), or None
    where `function` takes any, or some that the body uses otherwise."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    by_place = code.co_varnames[: code.co_argcount]
    by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & _TAKES_ANY or code.co_posonlyargcount or _OURS & {*by_place, *by_name}:
        return None
    return by_place, len(by_place) - len(function.__defaults__ or ()), by_name


def _words(name, exact):
    """What stands for the braces in the body.

    Arguments are passed on by place, but a group that is given by name, by which torch's logging looks for it.
    """
    if exact is None:
        parameters = "*args, **kwargs"
        call, value = "inner(*args, **kwargs)", "(args or [None])[0]"
        placed = "next((a for a in args if isinstance(a, c10d.ProcessGroup)), None)"
        of, later = "(kwargs.get('group') or %s)" % placed, "kwargs.get('async_op')"
    else:
        by_place, needed, by_name = exact
        parameters = [p if i < needed else p + "=None" for i, p in enumerate(by_place)]
        parameters = ", ".join([*parameters, *["*"] * bool(by_name), *(p + "=None" for p in by_name)])
        named = ["%s=%s" % (p, p) for p in by_name]
        call = "inner(%s)" % ", ".join([*by_place, *named])
        value = by_place[0] if by_place else "None"
        of, later = "None", "async_op" if "async_op" in (*by_place, *by_name) else ""
        if "group" in by_place:
            of, at = "group", by_place.index("group")
            named = [*by_place[:at], *("%s=%s" % (p, p) for p in by_place[at:]), *named]
            call += " if group is None else inner(%s)" % ", ".join(named)
    bare = "barrier" in name
    return {
        "parameters": parameters,
        "call": call,
        "of": of,
        "known": "started" if name in _AT_ONCE else "(started if %s else blocking)" % later if later else "blocking",
        "brought": "rows[None], 0" if bare else "rows[%s.dtype], %s.numel()" % (value, value),
        "value": value,
    }  # fmt: skip


class _Rows(dict):
    """What of an entry is the same at every call on a group with tensors of one type: by dtype, None for no tensor."""

    def __init__(self, label, op, meta):
        self._names = label + op
        self._meta = meta

    def __missing__(self, dtype):
        row = self[dtype] = _pack_what(self._meta | _code_of(dtype), self._names)
        return row


def _code_of(dtype):
    """A stable 16-bit code of a dtype's name, the same on every rank; 0 for none."""
    if dtype is None:
        return 0
    code = 7
    for char in str(dtype):
        code = (code * 31 + ord(char)) & 0xFFFF
    return code


def _learner(name, c10d, started):
    p2p = int(name in POINT_TO_POINT)
    op = layout.bytes_of(name, 2)

    def learn(group, known):
        # (the group's counter, its rows); a call of which no group can be had is counted nowhere
        meta = (layout.META_P2P if p2p else 0) | (layout.META_ASYNC if known is started else 0)
        try:
            real = c10d._get_default_group() if group is None else group
            label, members = str(real.group_name), min(real.size(), 0xFFFFFF)
        except (ValueError, AttributeError, RuntimeError) as error:
            if _foreign(error):
                raise
            return [0], _Rows(bytes(16), op, meta)
        counters = _groups.get(label)
        if counters is None:
            counters = _groups[label] = [0], [0]
        rows = _Rows(
            layout.bytes_of(label, 2), op, meta | members << 16 | _role_of(real) << layout.META_ROLE_AT
        )
        known[group] = found = counters[p2p], rows
        return found

    return learn


def _role_of(group):
    try:
        return layout.ROLES.index(groups.role_of(group))
    except Exception as error:  # a group of somebody's own making is a group all the same
        if _foreign(error):
            raise
        return 0


def _brought_by(value):
    """(type, elements) of a list of tensors, of several types None; (None, 0) for anything else."""
    count = getattr(value, "numel", None)
    if count is not None:
        return None, count()
    if not isinstance(value, (list, tuple)):
        return None, 0
    tensors = [item for item in value if hasattr(item, "numel")]
    types = {getattr(item, "dtype", None) for item in tensors}
    return types.pop() if len(types) == 1 else None, sum(item.numel() for item in tensors) & layout.MASK


def _foreign(error):
    """Whether an exception has nothing to do with us: Python runs a signal's handler between any two of our instructions.

    A handler is given the frame that it interrupts, which is the one before its own in the traceback.
    """
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace.tb_next is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            if value is frame or type(value) is tuple and any(one is frame for one in value):
                return True
    return False


def _failed(words, enter, leave, began):
    _mark(words, enter, leave, began)
    _dump()


def _mark(words, enter, leave, began):
    if page._words is words and words[enter] == began:
        words[enter + layout.C_META - layout.C_ENTER_NS] |= layout.META_RAISED
        words[leave] = time.monotonic_ns()


def forget_groups():
    """What is kept of a group holds the group itself: it must not outlive its end."""
    for known in _known:
        known.clear()


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
