"""The agent's resident NVML process: answers polls, and keeps the driver's Xid events until the next one asks.

Any call into NVML may block for ever; then this process is killed and replaced, and the agent lives on.
One JSON request per line on standard input, one JSON answer per line: {"snapshot": …, "xids": […], "events": state}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import select
import sys
import time
from typing import Any

from probing_cluster.healthchecks.readers import nvml, nvml_snapshot

DRAIN_S = 1.0
"""How often the event set is emptied between polls; the driver's own queue is small."""
MAX_XIDS = 1000
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
"""How long a driver that failed is left alone before a new event set is made; twice as long each time."""


class XidEvents:
    """The driver's event set over every GPU that can be registered; made again when the driver went away."""

    def __init__(self, library: str | None) -> None:
        self._library = library
        self._p: Any = None
        self._set: Any = None
        self._names: dict[int | None, dict[str, str | None]] = {}
        self._retry_at_s = 0.0
        self._delay_s = FIRST_RETRY_S
        self.state = "not started"
        self.xids: list[dict[str, Any]] = []

    def open(self) -> None:
        """Register every GPU; where that fails the state says why, and the next call tries again."""
        try:
            self._p = nvml_snapshot.load(self._library)
            self._p.nvmlInit()
        except Exception as exc:  # noqa: BLE001 - pynvml's errors are made at run time; this is a state, not a fault
            self._wait(f"{type(exc).__name__}: {exc}")
            return
        try:
            self._set = self._p.nvmlEventSetCreate()
            registered = sum(self._register(self._set, i) for i in range(self._p.nvmlDeviceGetCount()))
        except self._p.NVMLError as exc:
            self._close(str(exc))
            return
        self.state = f"{registered} GPUs"

    def drain(self) -> None:
        """Take what has happened, without waiting."""
        if self._set is None and time.monotonic() >= self._retry_at_s:
            self.open()
        while self._set is not None:
            try:
                data = self._p.nvmlEventSetWait_v2(self._set, 0)
            except self._p.NVMLError as exc:
                if exc.value != self._p.NVML_ERROR_TIMEOUT:
                    self._close(str(exc))
                else:
                    self._delay_s = FIRST_RETRY_S
                return
            self._keep(data)

    def _close(self, state: str) -> None:
        """Give the event set and its use of NVML back; neither may be possible any more."""
        made, self._set = self._set, None
        if made is not None:
            with contextlib.suppress(self._p.NVMLError):
                self._p.nvmlEventSetFree(made)
        with contextlib.suppress(self._p.NVMLError):
            self._p.nvmlShutdown()
        self._wait(state)

    def _wait(self, state: str) -> None:
        self.state = state
        self._retry_at_s = time.monotonic() + self._delay_s
        self._delay_s = min(2 * self._delay_s, LAST_RETRY_S)

    def _register(self, made: Any, index: int) -> int:
        p = self._p
        try:
            handle = p.nvmlDeviceGetHandleByIndex(index)
            pci = p.nvmlDeviceGetPciInfo(handle)
            # By then the GPU may be lost and no longer tell its name, so it is asked now.
            self._names[_address(handle)] = {
                "uuid": p.nvmlDeviceGetUUID(handle),
                "pci_bus_id": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            }
            wanted = p.nvmlEventTypeXidCriticalError & p.nvmlDeviceGetSupportedEventTypes(handle)
            p.nvmlDeviceRegisterEvents(handle, wanted, made)
        except p.NVMLError:
            return 0
        return int(bool(wanted))

    def _keep(self, data: Any) -> None:
        if len(self.xids) >= MAX_XIDS:
            return  # the kernel log has every one of them
        name = self._names.get(_address(data.device), {"uuid": None, "pci_bus_id": None})
        self.xids.append({"code": int(data.eventData), "at_s": time.time(), **name})


def _address(handle: Any) -> int | None:
    """What tells one device handle from another."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def main() -> int:
    """Answer until the input ends."""
    library = sys.argv[1] if len(sys.argv) > 1 else None
    events = XidEvents(library)
    known: nvml_snapshot.Known = {}
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], DRAIN_S)
        if not ready:
            events.drain()
            continue
        line = sys.stdin.readline()
        if not line:
            return 0
        events.drain()
        links = bool(json.loads(line).get("links", True))
        snapshot = nvml.to_json(nvml_snapshot.read_here(library, links=links, known=known))
        # Once more: a GPU that died while it was read has its Xid in the same answer.
        events.drain()
        answer = {"snapshot": snapshot, "xids": events.xids, "events": events.state, "links": links}
        events.xids = []
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
