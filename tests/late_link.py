"""A link that holds every packet for a while: two tap devices, and this program between them.

    python late_link.py DEVICE DEVICE SECONDS

It makes both devices where it is started, says `ready`, waits for a line, and carries frames both ways until it is ended. (The
kernel's own delay, netem, is in few kernels of virtual machines.)
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_TAP, _NO_PACKET_INFO = 0x0002, 0x1000
_LARGEST = 1 << 16


def tap(name: str) -> int:
    """A tap device of this name; it is gone when the descriptor is closed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_PACKET_INFO))
    return device


def carry(devices: tuple[int, int], delay_s: float) -> None:
    """Every frame of one device into the other, so much later and in its order."""
    waiting: dict[int, deque[tuple[float, bytes]]] = {device: deque() for device in devices}
    poll = select.poll()
    for device in devices:
        poll.register(device, select.POLLIN)
    while True:
        heads = [queue[0][0] for queue in waiting.values() if queue]
        ready = poll.poll(max(0.0, (min(heads) - time.monotonic()) * 1e3) if heads else None)
        for source, _ in ready:
            into = devices[source == devices[0]]
            waiting[into].append((time.monotonic() + delay_s, os.read(source, _LARGEST)))
        for device, queue in waiting.items():
            while queue and queue[0][0] <= time.monotonic():
                os.write(device, queue.popleft()[1])


if __name__ == "__main__":
    both = (tap(sys.argv[1]), tap(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()  # both are up by then
    carry(both, float(sys.argv[3]))
