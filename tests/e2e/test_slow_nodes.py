"""`probing-ctl diagnose` on real Slurm: nodes that a CPU quota or their link makes slower, links that drop or delay, a peer that is dead.

Every node has a share of the processors of its own, by a quota, or a link of its own, in a network namespace that its slurmd runs in:
what one node does holds up no other. The slow one is another node in each round, and nobody else may be named.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.sandbox.machine import commands, daemons, processes
from tests import links

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.cluster, pytest.mark.timeout(1800)]

TRIALS = int(os.environ.get("PROBING_TRIALS", "1"))
"""Rounds of each case."""
CPU = Path("/sys/fs/cgroup/cpu")
QUOTA_US, PERIOD_US = 5_000, 100_000
"""A twentieth of a processor for a healthy node: what it does takes twenty times as long, and no neighbour keeps it from so little."""
RATE_MBIT = 80.0
"""Of a healthy link: the time of a transfer is the link's and not the processors'."""

COMPUTE = "it computes slower than the others, each time"
NETWORK = "its links are slower than those of the others, with every partner"


def judged(up: Any, tests: str, slow: str) -> list[str]:
    """What is said of `slow` after a round over all nodes, in which nobody else may be named."""
    began = time.monotonic()
    names = up.sandbox.layout.node_names
    argv = ["probing-ctl", "diagnose", *names, "--tests", tests, "--wait", "120", "--json"]
    done = up.sandbox.run(argv, check=False, timeout_s=600)
    assert done.returncode in {0, 1}, done.stderr
    answer = json.loads(done.stdout)
    words = answer["at_fault"].get(slow, [])
    print(
        f"{slow or 'nobody'}: {words or answer['too_noisy'] or 'nothing'}, {time.monotonic() - began:.0f} s"
    )
    figures = [
        (r["node"], r["peer"], r["measured"], r["message"]) for r in answer["results"] if r["measured"]
    ]
    print("  " + "; ".join(f"{node} {message}" for node, peer, _, message in figures if not peer))
    for size in sorted({message.partition(" in ")[0] for _, peer, _, message in figures if peer}):
        times = sorted(
            (round(taken * 1e3, 2), f"{node}-{peer}")
            for node, peer, taken, message in figures
            if message.startswith(f"{size} in ")
        )
        print(f"  {size}, ms: " + " ".join(f"{pair} {taken}" for taken, pair in times))
    failed = [(r["node"], r["peer"], r["message"]) for r in answer["results"] if r["outcome"] == "fail"]
    print(f"  failed: {failed or 'nothing'}; {answer['too_noisy']}")
    assert set(answer["at_fault"]) <= {slow}, (answer["at_fault"], figures, failed)
    assert (answer["bad_links"], answer["slow_links"], answer["open"]) == ([], [], []), (figures, failed)
    assert answer["not_judged"] == {}
    if slow and not words and answer["too_noisy"]:
        pytest.skip(f"a busy machine: {answer['too_noisy']}")
    return words


class Quotas:
    """A control group per node, which its job steps put their tests into."""

    def __init__(self, up: Any) -> None:
        self.up = up
        self.homes = {n: CPU / f"probing-{os.getpid()}-{n}" for n in up.sandbox.layout.node_names}

    def make(self) -> None:
        for home in self.homes.values():
            home.mkdir()
        command = self.up.sandbox.layout.bin / "probing-diagnose"
        join = f"#!/bin/sh\necho $$ > {CPU}/probing-{os.getpid()}-$SLURMD_NODENAME/cgroup.procs\n"
        command.write_text(command.read_text().replace("#!/bin/sh\n", join))

    def slow_down(self, slow: str, times: float) -> None:
        """The same share for each, and that many times less for one."""
        for node, home in self.homes.items():
            (home / "cpu.cfs_quota_us").write_text("-1")
            (home / "cpu.cfs_period_us").write_text(str(round(PERIOD_US * (times if node == slow else 1.0))))
            (home / "cpu.cfs_quota_us").write_text(str(QUOTA_US))

    def end(self) -> None:
        for home in self.homes.values():
            if home.exists():
                home.rmdir()


@pytest.fixture
def quotas(calm: Any) -> Iterator[Quotas]:
    if not (CPU / "cpu.cfs_quota_us").exists() and not os.access(CPU / "cgroup.procs", os.W_OK):
        pytest.skip("needs the cpu controller of control groups, version 1")
    made = Quotas(calm)
    command = calm.sandbox.layout.bin / "probing-diagnose"
    before = command.read_text()
    try:
        made.make()
        yield made
    finally:
        command.write_text(before)
        made.end()


@pytest.mark.parametrize("times", [1.0, 1.1, 1.2, 2.0])
def test_a_node_that_a_quota_slows_is_named(quotas: Quotas, times: float) -> None:
    """Its processes get that much less of a processor than the others' do."""
    names = quotas.up.sandbox.layout.node_names
    for trial in range(TRIALS):
        slow = names[trial % len(names)] if times > 1 else ""
        quotas.slow_down(slow, times)
        assert judged(quotas.up, "gemm", slow) == ([COMPUTE] if slow else [])


@pytest.fixture(scope="module")
def bridged(clusters: Any) -> Iterator[tuple[Any, links.Links]]:
    """A cluster whose slurmds run in network namespaces of their own."""
    if shutil.which("tc") is None or shutil.which("ip") is None:
        pytest.skip("needs ip and tc")
    up = clusters.named("bridged")
    lay, env = up.sandbox.layout, up.sandbox._daemon_env
    made = links.Links(lay.node_names)
    try:
        made.make()
        here = made.join()
        text = lay.slurm_conf.read_text().replace("(127.0.0.1)", f"({here})")
        text = text.replace("CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n", "")
        for node in lay.node_names:
            one = next(line for line in text.splitlines() if line.startswith(f"NodeName={node} "))
            text = text.replace(one, one.replace("NodeAddr=127.0.0.1", f"NodeAddr={made.address(node)}"))
        lay.slurm_conf.write_text(text)
        processes.end(lay.directory, ["slurmctld", *(f"slurmd-{node}" for node in lay.node_names)])
        daemons.start_slurmctld(lay, env)
        for node in lay.node_names:
            argv = ["nsenter", f"--net=/run/netns/{made.name(node)}", "slurmd", "-D", "-N", node]
            role = f"slurmd-{node}"
            commands.start_ready(role, argv, env=env, run=lay.run, log=lay.log / f"{role}.out", ready=None)
        daemons.wait_for_nodes(lay, env)
        yield up, made
    finally:
        made.end()


@links.WORSE_LINKS
def test_a_node_with_a_worse_link_is_named(bridged: tuple[Any, links.Links], kind: links.Kind) -> None:
    up, made = bridged
    names = up.sandbox.layout.node_names
    for trial in range(TRIALS):
        slow = names[trial % len(names)] if kind.is_worse else ""
        for node in names:
            made.shape(node, RATE_MBIT, kind if node == slow else links.HEALTHY)
        assert judged(up, "pair", slow) == ([NETWORK] if slow else [])


def test_a_peer_that_is_dead_is_named_and_nobody_who_met_it(bridged: tuple[Any, links.Links]) -> None:
    up, made = bridged
    names = up.sandbox.layout.node_names
    for trial in range(TRIALS):
        dead = names[trial % len(names)]
        for node in names:
            made.shape(node, RATE_MBIT)
        up.sandbox.fault(dead, "hidden-fault", what="dead_links")
        assert judged(up, "pair", dead) == ["pair: it fails with every node that is proven good"]
        (up.sandbox.layout.node(dead) / "diagnosed.json").unlink()


def test_a_flipped_bit_is_named(bridged: tuple[Any, links.Links]) -> None:
    """One bit of one element of each product."""
    up, _ = bridged
    names = up.sandbox.layout.node_names
    for trial in range(TRIALS):
        wrong = names[trial % len(names)]
        up.sandbox.fault(wrong, "hidden-fault", what="wrong_product")
        (words,) = judged(up, "gemm", wrong)
        assert "gemm on cpu: 5 of 81920 elements are wrong" in words
        (up.sandbox.layout.node(wrong) / "diagnosed.json").unlink()
