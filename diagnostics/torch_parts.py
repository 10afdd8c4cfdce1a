"""What a Python with torch runs to test GPUs, or the CPU where there is none: one JSON object in, one out. It imports nothing of ours.

python torch_parts.py '{"what": "gemm", "sizes": {"cuda": 8192, "cpu": 1024}, ...}'
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import socket
import struct
import sys
import time
from typing import Any

_SIOCGIFADDR = 0x8915


def main() -> int:
    """One request; its answer is a line of JSON on standard output."""
    import torch

    request = json.loads(sys.argv[1])
    kind = "cuda" if torch.cuda.device_count() else "cpu"
    if request["what"] == "allreduce":
        parts = [_allreduce(torch, request, kind)]
    elif request["what"] == "pcie" and kind == "cpu":
        parts = []
    else:
        count = torch.cuda.device_count() if kind == "cuda" else 1
        parts = [_part(torch, request, kind, index) for index in range(count)]
    print(json.dumps({"torch": torch.__version__, "parts": parts}))  # noqa: T201 - it is the answer
    return 0


def _part(torch: Any, request: dict[str, Any], kind: str, index: int) -> dict[str, Any]:
    device = torch.device(kind, index) if kind == "cuda" else torch.device("cpu")
    work = {"gemm": _gemm, "memory": _memory, "pcie": _pcie}[request["what"]]
    return {**_named(torch, kind, index), **work(torch, request, device)}


def _named(torch: Any, kind: str, index: int) -> dict[str, Any]:
    if kind == "cuda":
        return {"device": f"gpu{index}", "model": torch.cuda.get_device_name(index)}
    return {"device": "torch-cpu", "model": f"cpu, {torch.get_num_threads()} threads"}


def _allreduce(torch: Any, request: dict[str, Any], kind: str) -> dict[str, Any]:
    """This rank's part of an all-reduce of whole numbers: elements that are wrong, and the best time; `failed` says why there is none."""
    from torch import distributed

    backend = "nccl" if kind == "cuda" else "gloo"
    interface = _interface(request["own_host"])
    if interface:
        os.environ.update(GLOO_SOCKET_IFNAME=interface, NCCL_SOCKET_IFNAME=interface)
    rank, members = request["rank"], request["members"]
    named = {**_named(torch, kind, 0), "backend": backend, "wrong": 0, "broken": 0}
    try:
        distributed.init_process_group(
            backend,
            init_method=f"tcp://{request['host']}:{request['port']}",
            rank=rank,
            world_size=members,
            timeout=dt.timedelta(seconds=request["timeout_s"]),
        )
        device = torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
        line = torch.arange(max(request["bytes"] // 8, 1), dtype=torch.int64, device=device)
        right = line * members + members * (members - 1) // 2
        best, wrong = float("inf"), 0
        for _ in range(request["repeats"] + 1):
            mine = line + rank
            best = min(best, _timed(torch, device, 1, lambda mine=mine: distributed.all_reduce(mine)))
            wrong += int((mine != right).sum())
        distributed.destroy_process_group()
    except (RuntimeError, ValueError) as exc:
        lines = str(exc).strip().splitlines() or [type(exc).__name__]
        return {**named, "failed": lines[0][:200]}
    return {**named, "wrong": wrong, "best_s": best}


def _interface(host: str) -> str:
    """The interface that has this host's address; empty when none has, and the library chooses."""
    try:
        wanted = socket.inet_aton(socket.gethostbyname(host))
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asker, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no address of version 4
            if answer[20:24] == wanted:
                return name
    return ""


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


def _gemm(torch: Any, request: dict[str, Any], device: Any) -> dict[str, Any]:
    """Products in TF32 (exact for small integers): elements that are wrong, that are NaN, and the best time."""
    torch.backends.cuda.matmul.allow_tf32 = True
    size, period = request["sizes"][device.type], len(request["a"])
    line = torch.arange(size, device=device)
    both = (line[:, None] + line[None, :]) % period
    a = torch.tensor(request["a"], dtype=torch.float32, device=device)[both]
    b = torch.tensor(request["b"], dtype=torch.float32, device=device)[both]
    expected = [value * (size // period) for value in request["expected"]]
    right = torch.tensor(expected, dtype=torch.float32, device=device)[
        (line[None, :] - line[:, None]) % period
    ]
    product = torch.empty((size, size), dtype=torch.float32, device=device)
    wrong = broken = 0
    best = float("inf")
    for _ in range(request["repeats"]):
        best = min(best, _timed(torch, device, 1, lambda: torch.mm(a, b, out=product)))
        wrong += int((product != right).sum())
        broken += int((~torch.isfinite(product)).sum())
    return {"wrong": wrong, "broken": broken, "best_s": best, "size": size}


def _memory(torch: Any, request: dict[str, Any], device: Any) -> dict[str, Any]:
    """Patterns over most of the free memory, read back, and the bandwidth of a copy."""
    size = request["bytes"]
    if device.type == "cuda":
        size = max(size, int(torch.cuda.mem_get_info(device)[0] * 0.8))
    cells = torch.empty(size // 8, dtype=torch.int64, device=device)
    wrong = 0
    for pattern in (0x5555555555555555, 0x2AAAAAAAAAAAAAAA, 0, -1):
        cells.fill_(pattern)
        wrong += int((cells != pattern).sum())
    half = cells.numel() // 2
    best = _timed(torch, device, request["repeats"], lambda: cells[:half].copy_(cells[half : 2 * half]))
    return {"wrong": wrong, "broken": 0, "best_s": best, "bytes_s": 2 * 8 * half / best, "bytes": size}


def _pcie(torch: Any, request: dict[str, Any], device: Any) -> dict[str, Any]:
    """Host to device and back: what came back is what was sent, and how quickly."""
    host = torch.randint(-(2**31), 2**31 - 1, (request["bytes"] // 8,), dtype=torch.int64)
    if device.type == "cuda":
        host = host.pin_memory()
    there, back = host.to(device), torch.empty_like(host)
    down_s = _timed(torch, device, request["repeats"], lambda: there.copy_(host))
    up_s = _timed(torch, device, request["repeats"], lambda: back.copy_(there))
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
