"""`process.memory`: what memory every rank holds."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.core import digits
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table

_FIELDS = {
    "VmRSS": ("rss_bytes", "resident memory"),
    "VmHWM": ("rss_most_bytes", "the most it was"),
    "RssAnon": ("anonymous_bytes", "of which the process's own"),
    "RssFile": ("file_bytes", "of which pages of files"),
    "RssShmem": ("shared_bytes", "of which shared memory (a data loader's batches)"),
    "VmSwap": ("swap_bytes", "swapped out"),
    "VmLck": ("locked_bytes", "locked (pinned buffers of the network)"),
    "VmSize": ("virtual_bytes", "address space"),
}


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per rank that runs."""
    for process in view.living:
        home = view.proc / str(process.pid)
        try:
            text = (home / "status").read_text("utf-8", "replace")
            score = int((home / "oom_score").read_text("ascii"))
        except (OSError, ValueError) as exc:
            view.miss(f"memory of pid {process.pid}: {exc}", rank=process.rank)
            continue
        words = {line.split(":")[0]: line.split()[1:] for line in text.splitlines() if ":" in line}
        found = {
            name: int(words[key][0]) << 10
            for key, (name, _) in _FIELDS.items()
            if words.get(key) and digits.is_number(words[key][0])
        }
        yield {**view.place(process), **found, "oom_score": score}


TABLE = Table(
    schema="process",
    name="memory",
    meaning="Memory of every rank.",
    source="/proc",
    rows=rows,
    columns=(
        *PLACE,
        *(Column(name=n, kind="int", meaning=m) for n, m in _FIELDS.values()),
        Column(
            name="oom_score", kind="int", meaning="the kernel ends the highest first when memory runs out"
        ),
    ),
)
