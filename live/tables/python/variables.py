"""`python.variables`: local variables of every Python frame, as py-spy prints them."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.core import sanitize
from probing_cluster.live.node import stacks
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table

MAX_VARIABLES = 200
"""Of one frame."""


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per variable and frame."""
    for process, threads, why in stacks.dumps(view, local_variables=True):
        if threads is None:
            view.miss(f"no variables: {why}", rank=process.rank)
        for thread in threads or ():
            for depth, frame in enumerate(stacks.frames(thread)):
                for variable in list(frame.get("locals") or ())[:MAX_VARIABLES]:
                    yield {
                        **view.place(process),
                        "thread": thread.get("os_thread_id"),
                        "main": stacks.is_main(process, thread),
                        "depth": depth,
                        "function": sanitize.clean(str(frame.get("name") or ""), 300),
                        "file": sanitize.clean(str(frame.get("filename") or ""), 500),
                        "line": int(frame.get("line") or 0) or None,
                        "name": sanitize.clean(str(variable.get("name") or ""), 200),
                        "value": sanitize.clean(str(variable.get("repr") or ""), 2000) or None,
                        "argument": bool(variable.get("arg")),
                    }


TABLE = Table(
    schema="python",
    name="variables",
    meaning="Local variables of all frames of all threads; choose frames by function, file or depth.",
    source="py-spy as the owner, read from outside: nothing runs in the process",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="thread", kind="int", meaning="the kernel's number of the thread"),
        Column(name="main", kind="bool", meaning="it is the main thread"),
        Column(name="depth", kind="int", meaning="0 is the innermost frame"),
        Column(name="function", kind="text", meaning="the frame's function"),
        Column(name="file", kind="text", meaning="its file"),
        Column(name="line", kind="int", meaning="line it is at"),
        Column(name="name", kind="text", meaning="the variable"),
        Column(
            name="value",
            kind="text",
            meaning="its value as py-spy prints it, shortened; null where it cannot; read while the program runs, a value that just changes may come out wrong",
        ),
        Column(name="argument", kind="bool", meaning="it is an argument of the function"),
    ),
)
