"""Programs with bugs of their own, each a few lines that fail in their own way: what must never come back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

BUGS = {
    "KeyError": "d = {{'a': 1}}; d['labels{n}']",
    "IndexError": "x = list(range({n})); x[{n}]",
    "ZeroDivisionError": "{n} / (1 - 1)",
    "TypeError": "'step ' + {n}",
    "ValueError": "int('batch-{n}')",
    "AttributeError": "(lambda: 0).forward_{n}()",
    "NameError": "optimiser_{n}.step()",
    "ModuleNotFoundError": "import flash_attention_{n}",
    "FileNotFoundError": "open('/data/shard-{n}.bin')",
    "UnicodeDecodeError": "bytes([200, {n} % 100]).decode()",
    "JSONDecodeError": "import json; json.loads('{{\"lr\": {n}')",
    "RecursionError": "f = lambda k: f(k + {n}); f(0)",
    "AssertionError": "assert {n} % 1 == 1, 'loss is nan at step {n}'",
    "RuntimeError": "raise RuntimeError('CUDA error: device-side assert triggered in layer {n}')",
    "shapes": "raise RuntimeError('mat1 and mat2 shapes cannot be multiplied ({n}x8 and 7x{n})')",
    "own memory": "raise RuntimeError('CUDA out of memory. Tried to allocate {n}.00 GiB')",
    "exit": "raise SystemExit({n} % 100 + 2)",
    "abort": "import os; os.abort()",
    "segfault": "import ctypes; ctypes.string_at({n})",
    "kill": "import os; os.kill(os.getpid(), 9)",
}
"""Sort to a line of Python; `n` makes each another one."""
PLACES = (
    "{line}",
    "def step():\n    {line}\nfor _ in range(3):\n    step()",
    "import sys\nprint('epoch 1 loss 0.3', flush=True)\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    {line}",
)
"""In the open, in a function, while another error is handled."""


def programs(count: int) -> Iterator[tuple[str, str]]:
    """(name, program) of so many bugs; hardly two are alike."""
    made = product(range(1, count), PLACES, sorted(BUGS))
    for _, (n, place, sort) in zip(range(count), made, strict=False):
        yield f"{sort.replace(' ', '-')}-{n}", place.format(line=BUGS[sort].format(n=n + 1))
