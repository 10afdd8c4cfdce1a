"""What Slurm's own configuration files on this node promise about it: GPUs, CPUs, memory.

Read locally, so that a thousand nodes cost the controller nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.core import digits, errors, hostlist
from probing_cluster.healthchecks import nodeview

PLACES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)

MAX_INCLUDES = 16

_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')
_SLICE = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
"""A profile of MIG in the type of a GPU: `1g.10gb`, `nvidia_a100_3g.20gb`."""


REREAD_S = 3600.0
"""Files that slurm.conf includes are looked at again after this long, the file itself whenever it changed."""


def expecting(spec: nodeview.NodeSpec) -> nodeview.NodeSpec:
    """`spec` with what slurm.conf configures for its node; a value that `spec` has already stays."""
    node = nodeview.NodeView(spec)
    for place in PLACES:
        path = Path(node.path(place))
        try:
            stat = path.stat()
        except OSError:
            continue
        epoch = int(spec.clock.monotonic_s() // REREAD_S)
        configured = _cached(
            spec.root, place, spec.node, (stat.st_ino, stat.st_size, stat.st_mtime_ns, epoch)
        )
        given = {
            f.name: v
            for f in dataclasses.fields(spec.expected)
            if (v := getattr(spec.expected, f.name)) is not None
        }
        return dataclasses.replace(spec, expected=dataclasses.replace(configured, **given))
    return spec


@functools.lru_cache(maxsize=8)
def _cached(root: Path, place: str, name: str, _: tuple[int, ...]) -> nodeview.Expectations:
    node = nodeview.NodeView(nodeview.NodeSpec(node=name, root=root))
    try:
        return parse("\n".join(_included(node, node.text(place) or "", place)), name)
    except OSError:
        return nodeview.Expectations()  # not readable to us: nothing is promised


def _included(node: nodeview.NodeView, text: str, place: str, depth: int = 0) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        match = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
        if match is None:
            yield line.partition("#")[0]
        elif depth < MAX_INCLUDES:
            path = match[1] if match[1].startswith("/") else f"{place.rpartition('/')[0]}/{match[1]}"
            yield from _included(node, node.text(path) or "", path, depth + 1)


def parse(text: str, name: str) -> nodeview.Expectations:
    """What the NodeName lines for `name` (and DEFAULT before them) promise."""
    default: dict[str, str] = {}
    mine: dict[str, str] | None = None
    overrides = False
    for line in text.splitlines():
        pairs = {k.lower(): v.strip('"') for k, v in _PAIR.findall(line)}
        overrides |= "config_overrides" in pairs.get("slurmdparameters", "").lower().split(",")
        if "nodename" not in pairs:
            continue
        if pairs["nodename"].upper() == "DEFAULT":
            default |= pairs
        elif _names(pairs["nodename"], name):
            mine = {**default, **(mine or {}), **pairs}
    found = _expectations(mine or {})
    # Then Slurm takes the numbers as they are, also of a node that has less.
    return dataclasses.replace(found, cpu_count=None, memory_bytes=None) if overrides else found


def _names(expression: str, name: str) -> bool:
    try:
        return name in hostlist.expand(expression)
    except errors.MalformedInput:
        return False


def _expectations(fields: dict[str, str]) -> nodeview.Expectations:
    gpus = parse_gres(fields.get("gres", ""))
    memory = fields.get("realmemory", "")
    return nodeview.Expectations(
        gpu_count=gpus,
        cpu_count=_cpus(fields),
        memory_bytes=int(memory) * 2**20 if digits.is_number(memory) else None,
    )


def parse_gres(text: str) -> int | None:
    """GPUs in a Gres list: `gpu:h100:8(S:0-1),nvme:1`; None when it names none, or slices of GPUs."""
    counts: list[int] = []
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = entry.strip().split(":")
        if name.lower() == "gpu":
            if any(_SLICE.search(word) for word in rest):
                return None
            counts.append(int(rest[-1]) if rest and digits.is_number(rest[-1]) else 1)
    return sum(counts) if counts else None


def _cpus(fields: dict[str, str]) -> int | None:
    if digits.is_number(fields.get("cpus", "")):
        return int(fields["cpus"])
    if not {"corespersocket", "sockets", "socketsperboard", "threadspercore"} & set(fields):
        return None
    sockets = fields.get("sockets") or fields.get("socketsperboard", "1")
    words = (
        fields.get("boards", "1"),
        sockets,
        fields.get("corespersocket", "1"),
        fields.get("threadspercore", "1"),
    )
    return math.prod(int(w) for w in words) if all(digits.is_number(w) for w in words) else None
