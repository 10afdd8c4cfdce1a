"""Whose memory a GPU was full of, in PyTorch's own words."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader

BOXED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Process 4711 has 78.00 GiB memory in use. Of the allocated memory {own} is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated."
"""In a container PyTorch does not know itself among the processes."""
NEW = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wish}. GPU 0 has a total capacity of 79.15 GiB of which {free} is free.{others} Including non-PyTorch memory, this process has {own} memory in use."
OLD = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; {allocated} already allocated; {free} free; {own} reserved in total by PyTorch)"


def held(text: str) -> dict[str, float]:
    """What the first cause says of others."""
    (found,) = [f for f in reader.read([text]) if f.first_cause]
    assert found.kind == "cuda_oom"
    return {k: v for k, v in found.detail.items() if k in ("held_gib", "gpu_gib", "held_by")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NEW.format(wish="2.00 MiB", free="1.00 MiB", others=" Process 990011 has 78.90 GiB memory in use.", own="240.00 MiB"), {"held_gib": 78.9, "gpu_gib": 79.15, "held_by": 990011}),
        (NEW.format(wish="2.00 GiB", free="1.00 GiB", others=" Process 7 has 30.00 GiB memory in use. Process 9 has 32.00 GiB memory in use.", own="16.00 GiB"), {"held_gib": 62.0, "gpu_gib": 79.15, "held_by": 9}),
        (NEW.format(wish="8.00 GiB", free="1.00 GiB", others=" Process 7 has 3.00 GiB memory in use.", own="75.00 GiB"), {}),
        (NEW.format(wish="8.00 GiB", free="1.00 GiB", others="", own="78.00 GiB"), {}),
        (OLD.format(allocated="200.00 MiB", free="17.19 MiB", own="220.00 MiB"), {"held_gib": 39.36, "gpu_gib": 39.59}),
        (BOXED.format(own="100.00 MiB"), {"held_gib": 78.0, "gpu_gib": 79.15, "held_by": 4711}),
        (BOXED.format(own="74.00 GiB"), {}),
        (OLD.format(allocated="37.00 GiB", free="17.19 MiB", own="38.10 GiB"), {}),
    ],
)  # fmt: skip
def test_what_others_held(text: str, expected: dict[str, float]) -> None:
    """Most of the GPU, or nothing is said of them."""
    assert held(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ResourceExhaustedError: OOM when allocating tensor with shape[200000,200000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[8] and type float by allocator mklcpu",
    ],
)
def test_tensorflows_main_memory_is_no_gpus(text: str) -> None:
    (found,) = [
        f
        for f in reader.read(
            ["Traceback (most recent call last):", '  File "t.py", line 2, in <module>', text]
        )
        if f.first_cause
    ]
    assert found.kind == "host_memory_error"
