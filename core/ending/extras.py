"""Which extra of the package brings a library: what a command says where the library is not installed."""

from __future__ import annotations

import re
import sys

from probing_cluster.core import command_line

_OTHER_NAMES = {"pynvml": "nvidia-ml-py", "pil": "pillow"}
"""Libraries whose import name is not their distribution's."""
_FIRST = ("agent", "reports", "service")
"""Where several extras bring a library, the first of these is named."""


def distribution(library: str) -> str:
    """The distribution of an import name: `pynvml` -> `nvidia-ml-py`."""
    name = library.partition(".")[0].lower()
    return _OTHER_NAMES.get(name, name.replace("_", "-"))


def extra_of(library: str) -> str | None:
    """The extra that brings a library; None for one that every install has, and for one that is none of ours."""
    from importlib import metadata  # 20 ms that only a missing library costs

    try:
        requirements = metadata.requires(command_line.DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    wanted = distribution(library)
    found = []
    for text in requirements:
        name, extra = re.match(r"[\w.-]+", text), re.search(r"extra == ['\"](.+?)['\"]", text)
        if name and extra and distribution(name[0]) == wanted:
            found.append(extra[1])
    return min(found, key=lambda e: (_FIRST.index(e) if e in _FIRST else len(_FIRST), e), default=None)


def missing(program: str, exc: ModuleNotFoundError) -> str:
    """What to say of a library that is not there and how to get it; raises `exc` again for one of ours or Python's own."""
    library = (exc.name or "probing_cluster").partition(".")[0]
    if library in {"probing_cluster", *sys.stdlib_module_names}:
        raise exc
    extra = extra_of(library)
    package = f"{command_line.DISTRIBUTION}[{extra}]" if extra else command_line.DISTRIBUTION
    elsewhere = ": run this on the service's host, or:" if extra == "service" else ":"
    return f"{program}: {library} is not installed on this host{elsewhere} pip install '{package}'"
