"""Whatever the bytes, every reader ends, raises nothing and gives well-formed findings."""

from __future__ import annotations

import functools
import io
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probing_cluster.core.errors import MalformedInput
from probing_cluster.core.records import Severity
from probing_cluster.evidence import classify
from probing_cluster.evidence.flight_recorder import model, verdict
from probing_cluster.evidence.joblog import families
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel

KERNEL_KEYS = [
    "line",
    "kind",
    "code",
    "severity",
    "pci_bus_id",
    "device",
    "pid",
    "process",
    "domains",
    "meaning",
    "next_step",
]
JOB_KEYS = ["line", "kind", "op", "seq", "group", "rank", "timeout_ms", "domains", "first_cause", "meaning"]
WORDS = (
    *kernel.TRIGGERS,
    *families.TRIGGERS,
    "0000:3b:00.0",
    "pid=",
    "name=",
    "(",
    ")",
    ":",
    ",",
    "[",
    "]",
    "0x1f",
    "79",
    "Fatal",
    "\n",
)
soup = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=30).map(" ".join)


def check(findings: list[dict[str, object]], kind: str) -> None:
    """Every finding has exactly its keys, plain values and known words."""
    for finding in findings:
        json.dumps(finding, allow_nan=False).encode("utf-8")
        keys = KERNEL_KEYS if kind == "kernel" else JOB_KEYS
        assert [k for k in finding if k not in ("pid", "host") or kind == "kernel"] == keys
        if kind == "kernel":
            assert finding["severity"] in set(Severity)
    if kind == "joblog":
        assert sum(bool(f["first_cause"]) for f in findings) <= 1


@given(st.one_of(soup.map(str.encode), st.binary(max_size=400)), st.sampled_from(["kernel", "joblog"]))
def test_any_bytes_are_read(data: bytes, kind: str) -> None:
    """Arbitrary bytes and soups of the words we look for never raise, and findings stay in line order."""
    lines = data.split(b"\n")
    findings = list(classify.classify_stream(lines, kind))  # type: ignore[arg-type]
    check(findings, kind)
    numbers = [f["line"] for f in findings]
    assert numbers == sorted(numbers)
    every = [f["line"] for f in classify.classify_stream(lines, kind, all_lines=True)]  # type: ignore[arg-type]
    assert list(dict.fromkeys(every)) == list(range(1, len(lines) + 1))


def test_a_line_that_overwrites_itself_may_hold_two_messages() -> None:
    """Carriage returns part the texts of one line; each can be a finding of that line."""
    found = list(classify.classify_stream([b"MemoryError \r MemoryError"], "joblog", all_lines=True))
    assert [(f["line"], f["first_cause"]) for f in found] == [(1, True), (1, False)]


@functools.cache
def real_lines(path: Path) -> list[str]:
    """The labelled file's lines, read once."""
    return path.read_text(encoding="utf-8").split("\n")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_real_lines_are_read(shared_samples: Path, data: st.DataObject) -> None:
    """Real lines cut, doubled and spliced with one another are read like any other."""
    text = real_lines(shared_samples / "kernel_lines.tsv")
    one, two = (data.draw(st.sampled_from(text)) for _ in range(2))
    cut = data.draw(st.integers(0, len(one)))
    noise = data.draw(st.text(max_size=8))
    line = (one[:cut] + noise + two[-cut:]).encode("utf-8", "replace")
    for kind in ("kernel", "joblog"):
        check(list(classify.classify_stream([line], kind)), kind)  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_dump_or_refused(data: bytes) -> None:
    """A dump is parsed or MalformedInput is raised, nothing else."""
    try:
        dump = model.parse(0, data)
    except MalformedInput:
        return
    assert verdict.judge([dump]).kind in {"healthy", "all_inside", "no_dump"}


def odd_value(chance: random.Random, depth: int = 0) -> object:
    """Some plain value that a field should not have."""
    simple: list[object] = [None, True, -1, 1 << 70, "", "7", "[0, 1]", 0.5, "x\x00y"]
    if depth < 2 and chance.random() < 0.2:
        inner = [odd_value(chance, depth + 1) for _ in range(chance.randrange(3))]
        return inner if chance.random() < 0.5 else {str(n): value for n, value in enumerate(inner)}
    return chance.choice(simple)


def odd_dump(chance: random.Random) -> dict[str, object]:
    """A dump whose fields are sometimes right, sometimes wrong and sometimes absent."""

    def pick(*right: object) -> object:
        return chance.choice(right) if chance.random() < 0.8 else odd_value(chance)

    def entry() -> dict[str, object]:
        fields: dict[str, object] = {
            "process_group": pick(("0", "default_pg"), ("1", "tp"), ["1", "tp"]),
            "profiling_name": pick("nccl:all_reduce", "gloo:barrier", "nccl:send 0->1", "nccl:all_gather"),
            "collective_seq_id": pick(0, 1, 2, 3, "4"),
            "pg_id": pick(0, 1, 2),
            "input_sizes": pick([[8]], [[16], [2, 2]], []),
            "state": pick("scheduled", "started", "completed"),
            "retired": pick(True, False),
            "time_created_ns": pick(1, 2, 10**18),
            "timeout_ms": pick(600000),
            "frames": pick([{"name": "f", "filename": "a.py", "line": 3}]),
        }
        return {k: v for k, v in fields.items() if chance.random() < 0.9}

    counts = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    raw: dict[str, object] = {
        "version": pick("2.9", "2.10", "1.4"),
        "entries": pick([entry() for _ in range(chance.randrange(6))]),
        "pg_status": pick(
            {str(n): {c: pick(-1, 1, 2, 3) for c in counts} for n in range(chance.randrange(3))}
        ),
        "pg_config": pick(
            {
                str(n): {"name": pick(str(n)), "ranks": pick("[0, 1]", "[0, 1, 2]")}
                for n in range(chance.randrange(3))
            }
        ),
    }
    return {k: v for k, v in raw.items() if chance.random() < 0.95}


@given(st.integers(0, 2**32))
def test_any_values_in_dumps_are_judged_alike_in_any_order(seed: int) -> None:
    """Fields of any type never break the verdict, and the order of the dumps never changes it."""
    chance = random.Random(seed)
    dumps = []
    for rank in range(chance.randrange(1, 5)):
        try:
            dumps.append(model.parse(rank, pickle.dumps(odd_dump(chance))))
        except MalformedInput:
            continue
    found = verdict.judge(dumps, world_size=4)
    chance.shuffle(dumps)
    assert verdict.judge(dumps, world_size=4) == found
    assert found.meaning
    assert list(found.ranks) == sorted(found.ranks)


def test_long_lines_and_long_logs_are_bounded() -> None:
    """A line without end is cut, and the lines after it keep their numbers."""

    class Endless:
        """Two lines: one of 40 MB, one with an Xid."""

        def __init__(self) -> None:
            self.parts = [b"x" * (1 << 20)] * 40 + [b"\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1\n"]

        def read1(self, _size: int = -1) -> bytes:
            return self.parts.pop(0) if self.parts else b""

    found = list(classify.classify_stream(Endless(), "kernel"))  # type: ignore[arg-type]
    assert [(f["line"], f["code"]) for f in found] == [(2, "79")]


_UNDER_A_LIMIT = """
import resource
from probing_cluster.evidence.joblog import reader
resource.setrlimit(resource.RLIMIT_CPU, (7, 7))
for line in {lines!r}:
    list(reader.read([line] * 100))
"""


def test_tables_of_numbers_and_boxes_use_up_no_collectors_time() -> None:
    """The agent's reader of logs has a minute of CPU: once a line of numbers took a fifth of a second, and a box seconds."""
    lines = ["1 2 3 4 5 6 7 8 9 10 " * 10, (":" + " " * 20) * 20, "# a1 ####### " * 600]
    subprocess.run([sys.executable, "-c", _UNDER_A_LIMIT.format(lines=lines)], check=True)


def test_the_last_lines_are_kept_cut() -> None:
    """A line without end is not held, nor searched, as a whole."""
    engine = joblog.JobLogReader()
    list(engine.feed(1, "x" * (1 << 20)))
    assert max(len(text) for _, text in engine._tail.lines) <= joblog.MAX_LINE_CHARS


def test_a_progress_bar_without_end_keeps_its_last_words() -> None:
    """Of a line that overwrites itself past the limit, what stands at the end is read."""
    bar = b"\r".join(b"step %d of many, loss 0.1" % n for n in range(10_000))
    text = bar + b"\rRuntimeError: CUDA error: uncorrectable ECC error encountered\nnext\n"
    found = list(classify.classify_stream(io.BytesIO(text), "joblog"))
    assert [(f["line"], f["kind"]) for f in found] == [(1, "cuda_ecc")]


@pytest.mark.parametrize("kind", ["kernel", "joblog"])
def test_a_storm_settles_in_bounded_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More findings than are held back still come out, in order, with one first cause."""
    monkeypatch.setattr(joblog, "MAX_HELD", 20)
    line = (
        b"NVRM: Xid (PCI:0000:3b:00): 31, pid=1\n"
        if kind == "kernel"
        else b"RuntimeError: CUDA error: an illegal memory access\n"
    )
    count = joblog.MAX_HELD + 100
    found = list(classify.classify_stream([line] * count, kind))  # type: ignore[arg-type]
    assert [f["line"] for f in found] == list(range(1, count + 1))
    if kind == "joblog":
        assert [f["line"] for f in found if f["first_cause"]] == [1]
