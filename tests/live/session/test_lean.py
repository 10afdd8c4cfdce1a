"""Arrow and DataFusion without NumPy and pandas: every format and value as with them, and nothing is hidden that is there already."""

from __future__ import annotations

import subprocess
import sys

WORK = """
import io, sys
from probing_cluster.live.session import lean
{before}
lean.load()
import pyarrow as pa
from pyarrow import parquet
from probing_cluster.live import packing
from probing_cluster.live.session import output, session, unpacking
from probing_cluster.live.table import Columns
from probing_cluster.live.ways import streams
columns = Columns(names=("rank", "step", "at", "host"), kinds=("int", "int", "time", "text"),
                  values=([0, None], [3, None], [10**18, None], ["a", None]))
class Nodes:
    nodes = ("n1",)
    def ask(self, scans, timeout_s):
        header = {{"node": "n1", "table": "cluster.ranks", "missing": []}}
        return streams.Reply(frames=[("n1", packing.pack(header, columns))], answered={{"n1"}})
found = session.Session(Nodes(), timeout_s=1).sql("SELECT rank, host, step FROM ranks WHERE rank IS NULL OR rank < 5 ORDER BY rank")
for form in output.FORMATS:
    to = io.BytesIO()
    output.write(found.rows, form, to, lambda names, rows: repr((names, rows)))
    assert to.getvalue()
print(found.rows.to_pylist(), sys.modules.get("numpy") is None, sys.modules.get("pandas") is None)
"""


def run(before: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(before=before)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_rows_with_and_without() -> None:
    """Where NumPy has been loaded before, it stays; else neither is loaded by anything that a statement does."""
    rows = "[{'rank': 0, 'host': 'a', 'step': 3}, {'rank': None, 'host': None, 'step': None}]"
    assert run("") == f"{rows} True True\n"
    assert run("import numpy").startswith(f"{rows} False")
