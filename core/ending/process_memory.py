"""What keeps the memory of a long-running process of ours small; to be asked for before Arrow is imported."""

from __future__ import annotations

import ctypes
import importlib.abc
import os
import sys
import traceback

_M_MMAP_THRESHOLD, _M_ARENA_MAX, _ARENAS = -3, -8, 2
"""malloc.h."""
_LARGE_BYTES = 1 << 20


def keep_small() -> None:
    """Have memory that is freed go back to the machine, and libraries that a service has no use for stay away.

    Two heaps for all threads: any task may run on any thread, and a heap of its own stays as large as the largest pass that
    ever ran there. Blocks of a megabyte and more are mapped each by itself and go when they are freed; left alone, glibc soon keeps blocks
    of 32 MB for the next one. Arrow asks glibc, too: its own pool keeps what each thread once had.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    without_data_frames()


class _NoDataFrames(importlib.abc.MetaPathFinder):
    """Finds no pandas and no polars for Arrow and ADBC, wherever they are; a plugin of the site's that imports them gets them."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for them; of any other module it knows nothing."""
        del path, target
        if fullname in ("pandas", "polars") and _importer().partition(".")[0] in _OPTIONAL_FOR:
            raise ModuleNotFoundError(f"{fullname} is of no use in a process of the service", name=fullname)


_OPTIONAL_FOR = frozenset(
    {"pyarrow", "adbc_driver_manager", "adbc_driver_postgresql", "datafusion", "probing_cluster"}
)
"""What Arrow's compiled part imports seems to be imported by whoever called it; nothing of the service's own imports them."""


def _importer() -> str:
    """The module whose import is being looked up."""
    own = (__name__, "importlib")
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
    return next((name for name in frames if not name.startswith(own)), "")


def without_data_frames() -> None:
    """Have Arrow and ADBC do without pandas and polars: they import them wherever they are installed, and pandas alone is 42 MB.

    What is loaded already stays.
    """
    # No None in sys.modules, which is Python's own way: Arrow's compiled import takes it for the module.
    sys.meta_path.insert(0, _NoDataFrames())


def give_back() -> None:
    """Give the memory of the passes that have ended back to the machine; only glibc keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
