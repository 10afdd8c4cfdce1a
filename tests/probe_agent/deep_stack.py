"""A small C library whose stacks are known, and a Python process that is inside of it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent.jobs import collect_child, processes
from probing_cluster.probe_agent.stacks import elf, perf_event

SOURCE = """
#include <alloca.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#define KEPT __attribute__((noipa))
volatile int sink;
static int pipe_end;
KEPT int blocks(int fd) { char b; int r = (int)read(fd, &b, 1); sink = r; return r + 1; }
KEPT int grows(int fd, int n) { char *p = alloca(n); memset(p, 1, n); int r = blocks(fd); sink += p[n / 2]; return r + 1; }
KEPT int calls(int fd, int n) { int r = grows(fd, n); sink++; return r + 1; }
KEPT int enters(int fd, int n) { int (*volatile f)(int, int) = calls; int r = f(fd, n); sink++; return r + 1; }
KEPT int leaf(int n) { volatile char b[64]; b[n & 63] = 1; return b[0] + 1; }
KEPT int older(int n) { volatile char b[200]; int (*volatile f)(int) = leaf; b[n & 63] = 1; return f(n) + b[1]; }
KEPT int old(int n) { volatile char b[200]; int (*volatile f)(int) = older; b[n & 63] = 1; return f(n) + b[1]; }
KEPT int covers(int fd, int n) { char *p = alloca(n); sink += (long)p & 1; int r = blocks(fd); sink += p[n / 2]; return r; }
KEPT int leaves(int fd, int n) { sink += old(n); int r = covers(fd, n); sink++; return r + 1; }
KEPT int burns(int n) { for (volatile long i = 0;; i++) sink = n; return 1; }
KEPT int enters_burning(int n) { int r = burns(n); sink++; return r + 1; }
KEPT void handles(int signal) { sink += blocks(pipe_end) + signal; }
KEPT int raises(int fd) { pipe_end = fd; signal(SIGUSR1, handles); int r = raise(SIGUSR1); sink++; return r; }
"""
CHAIN = ["blocks", "grows", "calls", "enters"]
"""The functions of `enters`, innermost first; `grows` keeps its frame in a register."""
READ = 0
"""The number of read(2) on x86-64."""

compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="stacks are followed on x86-64 only")


def may_sample() -> bool:
    """Containers and hardened kernels do not let anyone."""
    try:
        perf_event.opened(os.getpid(), per_s=99).close()
    except collect_child.Refused:
        return False
    return True


def may_look() -> bool:
    """Yama lets only ancestors look into a process, or who may into all (CAP_SYS_PTRACE)."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    own = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    may_all = own is not None and bool(int(own[1], 16) >> 19 & 1)
    return may_all or not scope.exists() or scope.read_text().strip() == "0"


looks = pytest.mark.skipif(
    not may_look(), reason="the kernel does not let us look (kernel.yama.ptrace_scope)"
)
samples = pytest.mark.skipif(not may_sample(), reason="the kernel does not let us sample (perf_event_open)")


def compiled(directory: Path, *options: str) -> Path:
    """The library."""
    made = directory / f"deep{len(list(directory.iterdir()))}.so"
    argv = ["cc", "-x", "c", "-", "-O2", "-shared", "-fPIC", *options, "-o", str(made)]
    subprocess.run(argv, input=SOURCE, text=True, check=True, capture_output=True)
    return made


@functools.cache
def library() -> bytes:
    """Its bytes."""
    with tempfile.TemporaryDirectory() as directory:
        return compiled(Path(directory)).read_bytes()


def functions() -> dict[str, int]:
    """Link-time addresses of its functions."""
    image = elf.in_memory(library())
    return {
        image.name(names, words[i] & 0xFFFFFFFF).decode(): words[i + 1]
        for words, names in image.symbols(11)
        for i in range(0, len(words), 3)
        if words[i] >> 32 & 15 == 2 and words[i] >> 48
    }


def until(ready: Callable[[], bool]) -> None:
    """Waits for it; a machine may be busy."""
    by_s = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < by_s, "it never came to that"
        time.sleep(0.02)


def asleep_in(pid: int, call: int) -> bool:
    """The main thread sleeps in that system call."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == str(call)


def in_state(pid: int, state: str) -> bool:
    """By its letter."""
    facts = processes.facts(pid)
    return facts is not None and facts.state == state


def processes_of_python() -> Iterator[Any]:
    """Starts Python on some code, which has begun when it returns; no process left behind."""
    started: list[subprocess.Popen[bytes]] = []

    def work(code: str) -> int:
        argv = [sys.executable, "-S", "-c", f"import ctypes, os, time\nprint('go', flush=True)\n{code}"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        return process.pid

    yield work
    for process in started:
        process.kill()
        process.communicate()
