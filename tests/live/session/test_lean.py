"""Arrow and DataFusion without NumPy and pandas: every format and value as with them, and nothing is hidden that is there already."""

from __future__ import annotations

import json
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


SPANS = """
import io
from probing_cluster.live.session import lean
lean.load()
import datafusion
from probing_cluster.live.session import output
rows = datafusion.SessionContext().sql(
    "SELECT arrow_cast(93784500000000, 'Duration(Nanosecond)') AS lag, arrow_cast(-1500000000, 'Duration(Nanosecond)') AS early,"
    " CAST('10:00' AS TIME) AS clock, interval '1 month 2 days 3 hours' AS span, make_array(interval '1 day') AS spans,"
    " CAST('NaN' AS double) AS loss, 1.0/0.0 AS ratio").to_arrow_table()
for form in ("table", "csv", "json"):
    to = io.BytesIO()
    output.write(rows, form, to, lambda _, cells: ",".join(cells[0]))
    print(to.getvalue().decode().strip())
"""


def test_spans_of_time_and_numbers_that_are_none_are_shown() -> None:
    """Differences of instants, times of day and intervals, in each form; NaN in each that has it, which JSON has not."""
    done = subprocess.run(
        [sys.executable, "-c", SPANS], capture_output=True, text=True, timeout=120, check=True
    )
    shown, _, written, made = done.stdout.split("\n", 3)
    words = ["1 day 02:03:04.5", "-00:00:01.5", "10:00:00", "1 mon 2 days 03:00:00"]
    assert shown == written == ",".join([*words, "['1 day']", "nan", "inf"])
    assert list(json.loads(made)[0].values()) == [*words, ["1 day"], None, None]
