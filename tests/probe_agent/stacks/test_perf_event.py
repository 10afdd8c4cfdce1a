"""Samples of a thread while it runs."""

from __future__ import annotations

import os

import deep_stack
import pytest

from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.stacks import perf_event, unwind


def test_a_thread_that_is_not_there_is_refused() -> None:
    """One line of why."""
    with pytest.raises(collect_child.Refused):
        perf_event.opened(0x7FFFFFF0, per_s=99)


@deep_stack.samples
@deep_stack.x86_64
def test_registers_and_stack_belong_together() -> None:
    """Of ourselves: the copy begins where the stack pointer was, and is as long as was asked for at most."""
    kinds = perf_event.REGISTERS | perf_event.STACK
    ring = perf_event.opened(os.getpid(), per_s=499, sample_type=kinds, stack_bytes=4096, pages=64)
    with ring:
        deep_stack.until(lambda: sum(n for n in range(100_000)) > 0 and perf_event.count(ring) > 3)
        read = list(perf_event.stacks(ring))
    assert len(read) > 3
    for registers, stack in read:
        assert 0 < len(stack) <= 4096
        assert registers[unwind.SP] % 8 == 0
        assert registers[16] > 4096
