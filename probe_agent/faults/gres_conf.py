"""What Slurm's GPU numbers mean on this node, as its gres.conf says.

SLURM_JOB_GPUS in a Prolog holds Slurm's own index (`gres_device->index`, src/plugins/gres/common/gres_common.c), which
follows gres.conf: with AutoDetect=nvml the order of PCI addresses, with File= the order of the files, whose last
digits are the minor numbers. Anything that could be read two ways is not answered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import errors, hostlist

_TRAILING_NUMBER = re.compile(r"(\d+)$")
_WORD = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')
_USUAL = ("/etc/slurm", "/run/slurm/conf", "/etc/slurm-llnl", "/usr/local/etc/slurm")


@dataclass(frozen=True, kw_only=True)
class GpuNumbering:
    """How to turn a GPU number of Slurm into a GPU."""

    by_pci: bool = False
    """The number is the place in the order of PCI addresses."""
    minors: tuple[int, ...] | None = None
    """The number is an index into these minor numbers."""


def parse(text: str, node: str) -> GpuNumbering | None:
    """The numbering of `node`; None where the file does not settle it."""
    minors: list[int] = []
    types: set[str] = set()
    detect = ""
    for words in _lines(text):
        if "nodename" in words and not _names(words["nodename"], node):
            continue
        if words.get("name", "gpu").lower() != "gpu":
            continue
        detect = words.get("autodetect", detect).lower()
        if "file" in words:
            types.add(words.get("type", ""))
            minors += _minors(words["file"])
    if detect not in {"", "off"}:
        return GpuNumbering(by_pci=True) if detect.startswith("nv") else None
    # One type in ascending order: then the order is the same whether Slurm keeps the lines' order or sorts.
    if not minors or len(types) != 1 or minors != sorted(set(minors)):
        return None
    return GpuNumbering(minors=tuple(minors))


def find(slurm_conf: str) -> str | None:
    """The text of this node's gres.conf, beside `slurm_conf`, $SLURM_CONF or in the usual places."""
    named = [Path(c).parent for c in (slurm_conf, os.environ.get("SLURM_CONF", "")) if c]
    for directory in [*named, *map(Path, _USUAL)]:
        try:
            return (directory / "gres.conf").read_text("utf-8", "replace")
        except OSError:
            continue  # not there: the next place
    return None


def _lines(text: str) -> Iterable[dict[str, str]]:
    for line in text.splitlines():
        found = {k.lower(): v.strip('"') for k, v in _WORD.findall(line.partition("#")[0])}
        if found:
            yield found


def _names(expression: str, node: str) -> bool:
    try:
        return node in hostlist.expand(expression)
    except errors.MalformedInput:
        return False


def _minors(expression: str) -> list[int]:
    """Minor numbers of a File= list; empty when a name does not end in a number."""
    try:
        paths = hostlist.expand(expression)
    except errors.MalformedInput:
        return []
    found = [_TRAILING_NUMBER.search(p) for p in paths]
    return [int(m[1]) for m in found if m is not None] if all(found) else []
