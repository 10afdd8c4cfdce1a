"""Lines per second through the kernel and job-log readers, beside the obvious ways to do it.

    python -m benchmarks.evidence.parse [--lines N]

The log is synthetic and seeded: benign syslog and dmesg lines with running times, pids and addresses, and
one fault in a thousand. Beside ours: `grep -E` with the same fault words (it only selects lines), and a Python
loop over regular expressions of the kind other agents use, one search per pattern and line.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from probing_cluster.control_plane.imports import joblog
from probing_cluster.core import records
from probing_cluster.evidence import classify

BENIGN = (
    "{d} {h} systemd[1]: Started Session {n} of User u{n}.",
    "{d} {h} sshd[{n}]: Accepted publickey for u{n} from 10.{b}.{b}.{b} port {n} ssh2: ED25519 SHA256:{x}",
    "{d} {h} kernel: [{s}] IPv6: ADDRCONF(NETDEV_CHANGE): veth{x}: link becomes ready",
    '{d} {h} kernel: [{s}] audit: type=1400 audit({n}.{b}:{n}): apparmor="STATUS" operation="profile_load"',
    "{d} {h} CRON[{n}]: (root) CMD (command -v debian-sa1 > /dev/null && debian-sa1 1 1)",
    "{d} {h} slurmd[{n}]: launch task StepId={n}.{b} request from UID:{n} GID:{n} HOST:10.{b}.{b}.{b} PORT:{n}",
    "{d} {h} kernel: [{s}] usb {b}-{b}: new high-speed USB device number {b} using xhci_hcd",
    "{d} {h} dhclient[{n}]: DHCPREQUEST for 10.{b}.{b}.{b} on eno1 to 255.255.255.255 port 67 (xid=0x{x})",
)
FAULTS = (
    "{d} {h} kernel: [{s}] NVRM: Xid (PCI:0000:{b:02x}:00): 31, pid={n}, name=python3, Ch 00000008",
    "{d} {h} kernel: [{s}] pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0",
    "{d} {h} kernel: [{s}] mlx5_core 0000:{b:02x}:00.0 mlx5_3: Port: 1 Link DOWN",
    "{d} {h} kernel: [{s}] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid={n},uid={n}",
)
JOB = (
    " iteration {n:8d}/ 1000000 | consumed samples: {n:12d} | elapsed time per iteration (ms): {s} | lm loss: {s} |",
    "node{b}:{n}:{n} [{b}] NCCL INFO Channel {b:02d}/0 : {b}[{x}] -> {b}[{x}] [send] via NET/IB/{b}/GDRDMA",
    "{d} INFO step={n} loss={s} lr=3.0e-05 grad_norm={s} tokens/s={n}",
    "[{d}] [INFO] [logging.py:60:log_dist] [Rank 0] step={n}, skipped=0, lr=[{s}], mom=[(0.9, 0.999)]",
)
FAULT_WORDS = (
    r"NVRM: Xid|SXid|AER:|PCIe Bus Error|mlx5_core.*(timeout|compromised|Link DOWN)|EDAC|Machine Check|oom-kill|Killed process|"
    r"blocked for more than|soft lockup|I/O error|Remounting filesystem read-only|nfs: server|LustreError|temperature above threshold"
)
ONE_BY_ONE = FAULT_WORDS.replace("(timeout|compromised|Link DOWN)", "timeout").split("|")


BEGAN = datetime(2026, 6, 1, tzinfo=UTC)


def log(templates: Iterable[str], rare: Iterable[str], lines: int) -> bytes:
    """A seeded log of `lines` lines, one in a thousand of the rare kind."""
    chance, common, odd = random.Random(7), list(templates), list(rare)
    made = []
    for number in range(lines):
        template = chance.choice(odd) if odd and number % 1000 == 999 else chance.choice(common)
        made.append(
            template.format(
                d=f"Jun {chance.randrange(1, 29):2d} {chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}",
                h=f"gpu{chance.randrange(64):03d}",
                n=chance.randrange(1, 400_000),
                b=chance.randrange(256),
                s=f"{chance.randrange(10**6)}.{chance.randrange(10**6):06d}",
                x=f"{chance.getrandbits(32):08x}",
            )
        )
    return ("\n".join(made) + "\n").encode()


def cpu_s() -> float:
    """CPU seconds of this process and its children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def timed(name: str, lines: int, run: Callable[[], int]) -> None:
    """Best of three, in lines per second of CPU time (children included), so that a busy machine does not count."""
    best, found = float("inf"), 0
    for _ in range(3):
        start = cpu_s()
        found = run()
        best = min(best, cpu_s() - start)
    print(f"{name:44s} {lines / best / 1e6:8.3f} M lines/CPU s  {found:8d} found")


def one_by_one(data: bytes) -> int:
    """One search per pattern and line."""
    patterns = [re.compile(p) for p in ONE_BY_ONE]
    found = 0
    for line in io.TextIOWrapper(io.BytesIO(data), errors="replace"):
        found += any(p.search(line) for p in patterns)
    return found


def imported(data: bytes) -> int:
    """A job's output as `probing-ctl import --joblog` reads it."""
    attempt = records.JobAttempt(
        cluster="c",
        job_id=29,
        submit_at=BEGAN,
        start_at=BEGAN,
        end_at=BEGAN + timedelta(hours=8),
        state="FAILED",
    )
    return len(joblog.read(data.splitlines(keepends=True), attempt, BEGAN, again=lambda: ()))


def grep(path: str) -> int:
    """`grep -cE`, which selects lines and reads nothing in them."""
    result = subprocess.run(["grep", "-cE", FAULT_WORDS, path], capture_output=True, text=True, check=False)
    return int(result.stdout or 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=400_000)
    lines = parser.parse_args().lines
    kernel, job = log(BENIGN, FAULTS, lines), log(JOB, (), lines)
    faults = log(FAULTS, (), lines // 10)
    timed(
        "ours, kernel, 1 fault in 1000",
        lines,
        lambda: sum(1 for _ in classify.classify_stream(io.BytesIO(kernel), "kernel")),
    )
    timed(
        "ours, kernel, line by line (an iterable)",
        lines,
        lambda: sum(1 for _ in classify.classify_stream(kernel.splitlines(keepends=True), "kernel")),
    )
    timed(
        "ours, kernel, nothing but faults",
        lines // 10,
        lambda: sum(1 for _ in classify.classify_stream(io.BytesIO(faults), "kernel")),
    )
    timed(
        "ours, job log without failures",
        lines,
        lambda: sum(1 for _ in classify.classify_stream(io.BytesIO(job), "joblog")),
    )
    timed("ours, job log without failures, imported", lines, lambda: imported(job))
    timed("Python, one search per pattern and line", lines, lambda: one_by_one(kernel))
    with tempfile.NamedTemporaryFile() as file:
        file.write(kernel)
        file.flush()
        timed("grep -cE (selects, does not read)", lines, lambda: grep(file.name))
    print(
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB (the logs are held in memory)"
    )


if __name__ == "__main__":
    main()
