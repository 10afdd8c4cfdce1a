"""What a Python with torch runs to test GPUs: one JSON object in, one out. It imports nothing of ours.

python torch_parts.py '{"what": "gemm", "device": "cuda", "size": 8192, ...}'
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> int:
    """One request; its answer is a line of JSON on standard output."""
    import torch

    asked = json.loads(sys.argv[1])
    kind = asked["device"]
    count = torch.cuda.device_count() if kind == "cuda" else 1
    parts = [_part(torch, asked, kind, index) for index in range(count)]
    print(json.dumps({"torch": torch.__version__, "parts": parts}))  # noqa: T201 - it is the answer
    return 0


def _part(torch: Any, asked: dict[str, Any], kind: str, index: int) -> dict[str, Any]:
    device = torch.device(kind, index) if kind == "cuda" else torch.device("cpu")
    name = torch.cuda.get_device_name(index) if kind == "cuda" else "cpu"
    work = {"gemm": _gemm, "memory": _memory, "pcie": _pcie}[asked["what"]]
    return {"device": f"gpu{index}" if kind == "cuda" else "cpu", "model": name, **work(torch, asked, device)}


def _timed(torch: Any, device: Any, repeats: int, work: Any) -> float:
    best = float("inf")
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return best


def _gemm(torch: Any, asked: dict[str, Any], device: Any) -> dict[str, Any]:
    """Products in TF32 (exact for small integers): elements that are wrong, that are NaN, and the best time."""
    torch.backends.cuda.matmul.allow_tf32 = True
    size, period = asked["size"], len(asked["a"])
    line = torch.arange(size, device=device)
    both = (line[:, None] + line[None, :]) % period
    a = torch.tensor(asked["a"], dtype=torch.float32, device=device)[both]
    b = torch.tensor(asked["b"], dtype=torch.float32, device=device)[both]
    right = torch.tensor(asked["expected"], dtype=torch.float32, device=device)[
        (line[None, :] - line[:, None]) % period
    ]
    product = torch.empty((size, size), dtype=torch.float32, device=device)
    wrong = broken = 0
    best = float("inf")
    for _ in range(asked["repeats"]):
        best = min(best, _timed(torch, device, 1, lambda: torch.mm(a, b, out=product)))
        wrong += int((product != right).sum())
        broken += int((~torch.isfinite(product)).sum())
    return {"wrong": wrong, "broken": broken, "best_s": best}


def _memory(torch: Any, asked: dict[str, Any], device: Any) -> dict[str, Any]:
    """Patterns over most of the free memory, read back, and the bandwidth of a copy."""
    size = asked["bytes"]
    if device.type == "cuda":
        size = max(size, int(torch.cuda.mem_get_info(device)[0] * 0.8))
    cells = torch.empty(size // 8, dtype=torch.int64, device=device)
    wrong = 0
    for pattern in (0x5555555555555555, 0x2AAAAAAAAAAAAAAA, 0, -1):
        cells.fill_(pattern)
        wrong += int((cells != pattern).sum())
    half = cells.numel() // 2
    best = _timed(torch, device, asked["repeats"], lambda: cells[:half].copy_(cells[half : 2 * half]))
    return {"wrong": wrong, "broken": 0, "best_s": best, "bytes_s": 2 * 8 * half / best, "bytes": size}


def _pcie(torch: Any, asked: dict[str, Any], device: Any) -> dict[str, Any]:
    """Host to device and back: what came back is what was sent, and how quickly."""
    host = torch.randint(-(2**31), 2**31 - 1, (asked["bytes"] // 8,), dtype=torch.int64)
    if device.type == "cuda":
        host = host.pin_memory()
    there, back = host.to(device), torch.empty_like(host)
    down_s = _timed(torch, device, asked["repeats"], lambda: there.copy_(host))
    up_s = _timed(torch, device, asked["repeats"], lambda: back.copy_(there))
    size = host.numel() * 8
    return {
        "wrong": int((back != host).sum()),
        "broken": 0,
        "to_bytes_s": size / down_s,
        "from_bytes_s": size / up_s,
        "best_s": max(down_s, up_s),
    }


if __name__ == "__main__":
    sys.exit(main())
