"""Where a thread spends its CPU: real processes, and files of theirs that lie about themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import deep_stack
import pytest

from probing_cluster.probe_agent.stacks import elf, perf_child

LOOP = "while True: pass"
BURN = (
    "c = ctypes.PyDLL(None); "
    "c.lfind(b'a', b'b', ctypes.byref(ctypes.c_size_t(1 << 62)), ctypes.c_size_t(0), c.strcmp)"
)
SLEEP = "ctypes.PyDLL(None).sleep(3600)"


@pytest.fixture
def ask(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Starts Python on some code and asks where it is; no process left behind."""
    started: list[subprocess.Popen[bytes]] = []

    def work(code: str) -> dict[str, Any]:
        argv = [sys.executable, "-S", "-c", f"import ctypes\nprint('go', flush=True)\n{code}"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        calls = json.dumps({"tid": process.pid, "uid": os.getuid(), "gid": os.getgid()})
        child = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.stacks.perf_child"]
        done = subprocess.run(child, input=calls, capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    yield work
    for process in started:
        process.kill()
        process.communicate()


@deep_stack.samples
def test_python_code_is_seen_in_the_interpreters_loop(ask: Any) -> None:
    """However little CPU there is: all of it goes there."""
    counted = ask(LOOP)
    assert counted["evaluating"] > 0.5 * counted["samples"]
    assert counted["elsewhere"] < 0.5 * counted["samples"]


@deep_stack.samples
def test_c_code_that_burns_cpu_is_seen_in_its_library(ask: Any) -> None:
    """Not one sample in the interpreter's loop, once it has come there."""
    counted = ask(BURN)
    assert counted["elsewhere"] > 0.5 * counted["samples"] > 0
    assert "libc" in counted["where"]


@deep_stack.samples
def test_who_sleeps_is_nowhere(ask: Any) -> None:
    """No CPU, no samples."""
    assert ask(SLEEP)["samples"] < 20


def test_it_counts_for_longer_only_where_there_is_little_cpu() -> None:
    """A crowded machine gives few samples in the usual time; who sleeps gives none, and is not waited for."""
    assert perf_child.goes_on(0.2, 40)
    assert not perf_child.goes_on(0.2, perf_child.ENOUGH)
    assert perf_child.goes_on(2.0, 10)
    assert not perf_child.goes_on(2.0, perf_child.FEW)
    assert not perf_child.goes_on(2.0, 0)
    assert not perf_child.goes_on(perf_child.LONGEST_S, 10)


def test_counters_are_sorted_by_what_is_mapped_there() -> None:
    """Interpreter's loop, its other code, a library, and what no file explains."""
    maps = """\
55d000000000-55d000001000 r--p 00000000 08:01 1 /usr/bin/python3.11
55d000001000-55d000009000 r-xp 00001000 08:01 1 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 08:01 2 /opt/my lib/libfoo.so
7fff00000000-7fff00001000 r-xp 00000000 00:00 0 [vdso]
"""
    known = elf.mappings(maps)
    addresses = [0x55D000001010, 0x55D000002010, 0x7F0000000010, 0x7F0000000020, 0x7FFF00000010, 1]
    counted = perf_child.counted_where(addresses, known, {"/usr/bin/python3.11": [(0x2000, 0x3000)]})
    assert counted == {
        "samples": 6, "evaluating": 1, "interpreter": 1, "elsewhere": 2, "unknown": 2, "where": "libfoo.so",
    }  # fmt: skip
