"""The agent's resident NVML process: answers polls, and keeps the driver's Xid events until the next one asks.

Any call into NVML may block for ever; then this process is killed and replaced, and the agent lives on.
One JSON request per line on standard input, one JSON answer per line: {"snapshot": …, "xids": […], "events": state}.
"""

from __future__ import annotations

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


class XidEvents:
    """The driver's event set over every GPU that can be registered; made again when the driver went away."""

    def __init__(self, library: str | None) -> None:
        self._library = library
        self._p: Any = None
        self._set: Any = None
        self._names: dict[int | None, dict[str, str | None]] = {}
        self.state = "not started"
        self.xids: list[dict[str, Any]] = []

    def open(self) -> None:
        """Register every GPU; where that fails the state says why, and the next call tries again."""
        try:
            self._p = nvml_snapshot.load(self._library)
            self._p.nvmlInit()
        except Exception as exc:  # noqa: BLE001 - pynvml's errors are made at run time; this is a state, not a fault
            self.state = f"{type(exc).__name__}: {exc}"
            return
        try:
            made = self._p.nvmlEventSetCreate()
            registered = sum(self._register(made, i) for i in range(self._p.nvmlDeviceGetCount()))
        except self._p.NVMLError as exc:
            self.state = str(exc)
            return
        self._set = made
        self.state = f"{registered} GPUs"

    def drain(self) -> None:
        """Take what has happened, without waiting."""
        if self._set is None:
            self.open()
        while self._set is not None:
            try:
                data = self._p.nvmlEventSetWait_v2(self._set, 0)
            except self._p.NVMLError as exc:
                if exc.value != self._p.NVML_ERROR_TIMEOUT:
                    self.state, self._set = str(exc), None
                return
            self._keep(data)

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
