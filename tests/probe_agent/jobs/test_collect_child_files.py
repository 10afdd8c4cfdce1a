"""Whatever a job wrote into its output, the child that reads it answers, and imports nothing once it is the job's owner."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

TRACE = "Lade Daten\r\nTraceback (most recent call last):\r\n  File \"C:\\a.py\", line 3, in <module>\r\nKeyError: 'spalte'\r\n"
FILES = {
    "empty": b"",
    "nulls": b"\0" * 5000,
    "nulls-text": b"\0" * 5000 + TRACE.encode(),
    "one-newline": b"\n",
    "utf16": TRACE.encode("utf-16"),
    "utf16-be": b"\xfe\xff" + TRACE.encode("utf-16-be"),
    "utf16-le-unmarked": TRACE.encode("utf-16-le"),
    "utf16-odd": TRACE.encode("utf-16")[:-1],
    "utf16-lone-surrogate": "KeyError: ".encode("utf-16") + b"\x00\xd8\n\0",
    "utf16-mark-only": b"\xff\xfe",
    "utf16-long": ("x" * 3_000_000 + " ValueError: end").encode("utf-16"),
    "utf32": TRACE.encode("utf-32"),
    "utf32-be": TRACE.encode("utf-32-be"),
    "latin1": TRACE.replace("Daten", "Größe").encode("latin-1"),
    "surrogate": b"KeyError: \xed\xa0\x80\n",
    "cut-character": TRACE.encode() + b"\xc3",
    "carriage-returns": TRACE.replace("\r\n", "\r").encode(),
    "long-line": b"x" * 6_000_000 + b" ValueError: end",
    "long-returns": b"\r" * 6_000_000 + b"ValueError: end\n",
    "gzip": gzip.compress(TRACE.encode() * 50, mtime=0),
    "random": random.Random(5).randbytes(100_000),
}
FOUND = {"nulls-text", "utf16", "utf16-be", "utf16-le-unmarked", "utf16-odd", "latin1", "cut-character", "carriage-returns", "utf32", "utf32-be"}  # fmt: skip
"""In these the traceback can be read; UTF-32 of plain letters is text with NULs between."""

PROGRAM = """
import json, os, sys
from probing_cluster.probe_agent.jobs import collect_child

late, watching, real = [], False, collect_child.limit

def watch(event, args):
    if watching and event == "import":
        late.append(args[0])

def limit(*args, **named):
    global watching
    real(*args, **named)
    watching = True

sys.addaudithook(watch)
collect_child.limit = limit
answers = {}
for path in sys.argv[1:]:
    for op, words in (("log", {}), ("words", {"words": ["Error"], "offset": 0, "inode": 0, "skip": False})):
        watching, late[:] = False, []
        request = {"op": op, "path": path, "uid": os.geteuid(), "gid": os.getegid(), "span_s": [0.0, 1e9], **words}
        try:
            answer = collect_child.answer(request)
        except Exception as exc:
            answer = {"refused": repr(exc)}
        answers[f"{os.path.basename(path)} {op}"] = {**answer, "late": list(late)}
print(json.dumps(answers))
"""


def test_every_file_is_read_without_a_late_import(tmp_path: Path) -> None:
    """The interpreter may lie where the job's user cannot read it: the first UTF-16 of a process must import no codec then."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(str(tmp_path / name) for name in FILES)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "LC_ALL": "C"},
    )
    answers = json.loads(done.stdout)
    assert {name: a["late"] for name, a in answers.items() if a["late"]} == {}
    assert {name: a["refused"] for name, a in answers.items() if "refused" in a} == {}
    logs = {name.removesuffix(" log"): a["findings"] for name, a in answers.items() if name.endswith(" log")}
    messages = {name: [f["message"] for f in findings] for name, findings in logs.items()}
    assert {name for name, m in messages.items() if "KeyError: 'spalte'" in m} == FOUND
    long = {name for name, m in messages.items() if m == ["ValueError: end"]}
    assert long == {"long-line", "utf16-long", "long-returns"}
    tails = [answers[f"{name} log"]["tail"][-1] for name in sorted(long)]
    assert [tail[-15:] for tail in tails] == ["ValueError: end"] * 3
    assert max(len(tail) for tail in tails) == 200
