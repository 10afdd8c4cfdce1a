"""Which sandbox a command means: the one named, or the one there is.

A cluster that `KEEP=1 make demo` left running lies elsewhere than one that `probing-sandbox up` made, and the shell may
stand elsewhere than it did then. Its processes say where it lies, also when its directory is gone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from probing_cluster.core import errors
from probing_cluster.sandbox.machine import layout, processes

DEFAULTS = (".sandbox", ".demo")
"""Where `up` and `demo` make one, below the working directory (layout.default_directory)."""


def known() -> list[Path]:
    """Sandboxes at the default places, running or not, and those that run and were started by this installation."""
    places = [layout.default_directory(name).resolve() for name in DEFAULTS]
    made = [place for place in places if layout.exists(place)]
    return list(dict.fromkeys([*made, *processes.running(sys.prefix)]))


def choose(named: Path | None) -> Path:
    """The sandbox at `named`; without a name the only one there is, or the default place when there is none.

    Raises UsageError when there are several, NotFound where there is none but somebody else's.
    """
    if named is not None:
        return named.resolve()
    found = known()
    if len(found) > 1:
        msg = f"there are {len(found)} sandboxes: {', '.join(map(str, found))}; say which with --dir"
        raise errors.UsageError(msg)
    for directory in () if found else _others():
        owner = directory.owner()
        raise errors.NotFound(
            f"you have no sandbox here; the one in {directory} is {owner}'s, and only {owner} may use it: "
            f"run this as {owner}, with --dir {directory}"
        )
    return found[0] if found else layout.default_directory().resolve()


def _others() -> list[Path]:
    """Sandboxes of other accounts at the place where every account sees that they are."""
    made = [place for name in DEFAULTS for place in sorted(layout.SHARED.glob(f"probing{name}-*"))]
    return [place for place in made if place.stat().st_uid != os.geteuid()]
