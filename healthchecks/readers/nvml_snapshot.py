"""The one reader of NVML: every GPU of the node at one moment, taken in a child with a deadline.

The only module of the product that imports pynvml.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any

from probing_cluster.core import processes
from probing_cluster.healthchecks.readers import nvml, nvml_fields

_UNSUPPORTED = {
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "NOT_FOUND",
    "NO_DATA",
    "ARGUMENT_VERSION_MISMATCH",
    "INVALID_ARGUMENT",
    "DEPRECATED",
}
"""Errors that say "this GPU or driver does not have that": unknown, and no fault."""

_LOST = {"GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"}
_DRIVER = {"DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_PERMISSION", "OPERATING_SYSTEM"}


def snapshot(
    library: str | None = None, deadline_s: float = 10.0, *, edge: processes.Edge = processes.EDGE
) -> nvml.NvmlSnapshot | nvml.NvmlUnavailable:
    """Every GPU now, read by a fresh child process that is killed at the deadline.

    `library` is the path of libnvidia-ml.so.1, None the loader's. Costs a Python start
    (about 0.1 s); a caller that already runs in a child calls `read_here`.
    """
    argv = [sys.executable, "-I", "-m", __name__, *([library] if library else [])]
    answer = processes.run(argv, deadline_s=deadline_s, env=dict(os.environ), edge=edge)
    if answer.timed_out:
        return nvml.NvmlUnavailable(
            kind=nvml.SnapshotLack.HANG, message=f"NVML gave no answer in {deadline_s:g} s"
        )
    if answer.code != 0:
        tail = answer.err.strip().splitlines()[-1:] or [f"exit {answer.code}"]
        return nvml.NvmlUnavailable(kind=nvml.SnapshotLack.ERROR, message=f"the NVML child failed: {tail[0]}")
    return nvml.from_json(json.loads(answer.out))


Known = dict[tuple[str, str], Any]
"""What a watcher need not ask again: (UUID, field) to value."""


def read_here(
    library: str | None = None, *, links: bool = True, known: Known | None = None
) -> nvml.NvmlSnapshot | nvml.NvmlUnavailable:
    """Every GPU now, read in this very process: may block for ever, so only ever called in a child.

    NVLinks are two thirds of the calls; without `links` they are left out. A watcher that asks again and again
    passes the same `known` each time: what cannot change is then asked once, and what only the check
    sweep judges is left out (see nvml_fields).
    """
    began = _cpu_s()
    try:
        pynvml = load(library)
    except OSError as exc:
        return nvml.NvmlUnavailable(
            kind=nvml.SnapshotLack.ABSENT, message=f"NVML library: {exc}", code="LIBRARY_NOT_FOUND"
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        return _unavailable(pynvml, exc)
    try:
        count = pynvml.nvmlDeviceGetCount()
        gpus = tuple(_gpu(pynvml, i, links=links, known=known) for i in range(count))
        return nvml.NvmlSnapshot(
            driver_version=_try(pynvml, {}, "driver", pynvml.nvmlSystemGetDriverVersion),
            gpus=gpus,
            cpu_s=_cpu_s() - began,
        )
    except pynvml.NVMLError as exc:
        return _unavailable(pynvml, exc)
    finally:
        _try(pynvml, {}, "shutdown", pynvml.nvmlShutdown)


def load(library: str | None = None) -> Any:
    """pynvml with that library (None: the loader's) loaded; raises OSError where it cannot be.

    Also for the agent's resident child, which waits for Xid events.
    """
    # The library first: importing pynvml costs more than a whole sweep on a node without GPUs.
    name = library or "libnvidia-ml.so.1"
    loaded = ctypes.CDLL(name)
    import pynvml

    if pynvml.nvmlLib is not None and vars(pynvml.nvmlLib).get("_name") != name:
        # It keeps the functions that it has found, and would go on calling those of the library before.
        vars(pynvml).get("_nvmlGetFunctionPointer_cache", {}).clear()
    pynvml.nvmlLib = loaded
    return pynvml


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@functools.cache
def _words(pynvml: Any) -> Mapping[int, str]:
    prefix = "NVML_ERROR_"
    return {
        v: k.removeprefix(prefix)
        for k, v in vars(pynvml).items()
        if k.startswith(prefix) and isinstance(v, int)
    }


def _word(pynvml: Any, exc: BaseException) -> str:
    number = getattr(exc, "value", None)
    return str(exc) if number is None else _words(pynvml).get(number, str(number))


def _unavailable(pynvml: Any, exc: BaseException) -> nvml.NvmlUnavailable:
    if isinstance(exc, OSError):
        return nvml.NvmlUnavailable(
            kind=nvml.SnapshotLack.ABSENT, message=f"NVML library: {exc}", code="LIBRARY_NOT_FOUND"
        )
    word = _word(pynvml, exc)
    if word == "LIBRARY_NOT_FOUND":
        kind = nvml.SnapshotLack.ABSENT
    elif word in _LOST:
        kind = nvml.SnapshotLack.LOST
    elif word in _DRIVER:
        kind = nvml.SnapshotLack.DRIVER
    else:
        kind = nvml.SnapshotLack.HANG if word == "TIMEOUT" else nvml.SnapshotLack.ERROR
    return nvml.NvmlUnavailable(kind=kind, message=f"NVML: {exc}", code=word)


def _try(pynvml: Any, unread: dict[str, str], name: str, call: Callable[..., Any], *args: Any) -> Any:
    """The call's value, else None; a real failure is noted in `unread` under `name`."""
    try:
        value = call(*args)
    except pynvml.NVMLError as exc:
        word = _word(pynvml, exc)
        if word not in _UNSUPPORTED:
            unread[name] = word
        return None
    except (TypeError, ValueError, UnicodeDecodeError) as exc:
        unread[name] = f"unreadable answer ({exc})"
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _gpu(pynvml: Any, index: int, *, links: bool, known: Known | None) -> nvml.NvmlGpu:
    unread: dict[str, str] = {}
    handle = _try(pynvml, unread, "handle", pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return nvml.NvmlGpu(index=index, lost=unread.get("handle", "NOT_FOUND"))

    def ask(name: str, function: str, *args: Any) -> Any:
        call = getattr(pynvml, function, None)
        return None if call is None else _try(pynvml, unread, name, call, handle, *args)

    if known is not None:
        ask = _sparing(ask, ask("uuid", "nvmlDeviceGetUUID"), known)
    facts: dict[str, Any] = {}
    for part in nvml_fields.PARTS if links else nvml_fields.WITHOUT_LINKS:
        facts |= part(pynvml, ask)
        if lost := next((w for w in unread.values() if w in _LOST), None):
            return nvml.NvmlGpu(index=index, lost=lost, unread=unread, **facts)
    return nvml.NvmlGpu(index=index, unread=unread, **facts)


def _sparing(ask: nvml_fields.Ask, uuid: str | None, known: Known) -> nvml_fields.Ask:
    """`ask` for a watcher: not what it does not judge, and only once what cannot change on this GPU."""

    def sparing(name: str, function: str, *args: Any) -> Any:
        if name == "uuid":
            return uuid
        if name in nvml_fields.NOT_WATCHED:
            return None
        if name not in nvml_fields.FIXED or uuid is None:
            return ask(name, function, *args)
        if (uuid, name) not in known:
            value = ask(name, function, *args)
            if value is None:
                return None
            known[uuid, name] = value
        return known[uuid, name]

    return sparing


def main() -> int:
    """The child of `snapshot`: print one snapshot as JSON."""
    print(json.dumps(nvml.to_json(read_here(sys.argv[1] if len(sys.argv) > 1 else None))))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
