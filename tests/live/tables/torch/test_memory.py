"""The rows of torch's allocator, from the probe's own tracer over a torch whose CUDA part the test plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STEPS = 6
TRACED = """
import os, sys, time, types
os.environ["PROBING_TRACE"] = "0.5:1"
from _probing_probe import page, tables, trace
sys.modules["probing_tables"] = tables  # as the import hook does it
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=3, backend="gloo")
after = []
handle = types.SimpleNamespace(remove=lambda: None)
sys.modules["torch.optim.optimizer"] = types.SimpleNamespace(register_optimizer_step_post_hook=after.append)
hooks = types.SimpleNamespace(
    register_module_forward_pre_hook=lambda _: handle, register_module_forward_hook=lambda _: handle
)
step = 0
def memory_stats():
    found = {
        "allocated_bytes.all.current": step * 1000, "reserved_bytes.all.current": step * 2000,
        "allocated_bytes.all.peak": 7 << 30, "reserved_bytes.all.peak": 9 << 30, "num_ooms": step,
    }
    return found if step < 5 else {**found, "num_alloc_retries": 2}
cuda = types.SimpleNamespace(
    is_available=lambda: rank != 1, is_initialized=lambda: True, memory_stats=memory_stats, current_device=lambda: 5
)
torch = types.SimpleNamespace(cuda=cuda, nn=types.SimpleNamespace(modules=types.SimpleNamespace(module=hooks)))
if rank != 2:
    trace.install(torch)
    for step in range(1, STEPS + 1):
        for work in after:
            work(None, (), {})
    assert after and not trace.failures, trace.failures
print("ready", flush=True)
while True:
    time.sleep(0.05)
""".replace("STEPS", str(STEPS))


def test_the_allocator_after_each_sampled_step(empty_job: Any, open_session: Callable[..., Any]) -> None:
    """torch's own figures, null for one it has not; no rows of a rank without CUDA; a rank that is not traced is named."""
    empty_job.start(3, code=TRACED)
    found = open_session(empty_job).sql("SELECT * FROM torch.memory ORDER BY rank, step")
    rows = found.rows.to_pylist()
    # Every second step switches the tracer on for the next one.
    assert [(r["rank"], r["step"], r["device"]) for r in rows] == [(0, 3, 5), (0, 5, 5)]
    assert [(r["allocated_bytes"], r["reserved_bytes"], r["ooms"], r["retries"]) for r in rows] == [
        (3000, 6000, 3, None),
        (5000, 10000, 5, 2),
    ]
    assert {(r["peak_allocated_bytes"], r["peak_reserved_bytes"]) for r in rows} == {(7 << 30, 9 << 30)}
    assert [(m.rank, "PROBING_TRACE" in m.reason) for m in found.missing] == [(2, True)]
