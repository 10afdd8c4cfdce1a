"""The agent's resident AMD SMI process: every AMD GPU at one moment, through libamd_smi.so.

Any call may block for ever; then this process is killed and replaced, and the agent lives on. One JSON request
per line on standard input, one JSON answer per line: {"gpus": […]} or {"lack": word, "message": text}.
The library is opened for each reading, so that a driver that went away or came back is seen.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libamd_smi.so"
INIT_AMD_GPUS = 1 << 1
AMD_GPU = 1
HOTSPOT = 1
CURRENT, CRITICAL = 0, 5
UUID_CHARS = 64
STATUS = {
    2: "NOT_SUPPORTED",
    7: "API_FAILED",
    8: "TIMEOUT",
    10: "NO_PERM",
    12: "IO",
    13: "ADDRESS_FAULT",
    14: "FILE_ERROR",
    18: "INIT_ERROR",
    30: "BUSY",
    31: "NOT_FOUND",
    34: "DRIVER_NOT_LOADED",
    43: "UNEXPECTED_DATA",
}
_NO_COUNT = 2**64 - 1
"""What the library writes for a count that it does not have."""


class ErrorCount(ctypes.Structure):
    """amdsmi_error_count_t."""

    _fields_ = (
        ("correctable", ctypes.c_uint64),
        ("uncorrectable", ctypes.c_uint64),
        ("deferred", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 5),
    )


class AmdSmiError(Exception):
    """A call failed; `word` is the status."""

    def __init__(self, status: int) -> None:
        self.word = STATUS.get(status, str(status))
        super().__init__(f"AMD SMI says {self.word}")


class Library:
    """The calls of libamd_smi.so, as values or AmdSmiError."""

    def __init__(self, path: str | None) -> None:
        self._library = ctypes.CDLL(path or LIBRARY)

    def call(self, name: str, *arguments: Any) -> None:
        """One call; raises AmdSmiError unless it succeeded."""
        status = getattr(self._library, f"amdsmi_{name}")(*arguments)
        if status:
            raise AmdSmiError(status)

    def handles(self) -> list[ctypes.c_void_p]:
        """Every GPU the library lists, in its order."""
        found: list[ctypes.c_void_p] = []
        for socket in self._listed("get_socket_handles"):
            for handle in self._listed("get_processor_handles", socket):
                kind = ctypes.c_int()
                self.call("get_processor_type", handle, ctypes.byref(kind))
                if kind.value == AMD_GPU:
                    found.append(handle)
        return found

    def _listed(self, name: str, *arguments: Any) -> list[ctypes.c_void_p]:
        count = ctypes.c_uint32()
        self.call(name, *arguments, ctypes.byref(count), None)
        made = (ctypes.c_void_p * max(count.value, 1))()
        if count.value:
            self.call(name, *arguments, ctypes.byref(count), made)
        return [ctypes.c_void_p(made[i]) for i in range(count.value)]

    def gpu(self, index: int, handle: ctypes.c_void_p) -> dict[str, Any]:
        """One GPU; what it does not have is None, what it refuses to say is under `failed`."""
        read: dict[str, Any] = {"index": index, "failed": {}}
        for name, ask in (
            ("pci_bus_id", self._address),
            ("uuid", self._uuid),
            ("ecc", self._ecc),
            ("temperature_c", lambda h: self._temperature(h, CURRENT)),
            ("critical_c", lambda h: self._temperature(h, CRITICAL)),
        ):
            read[name] = None
            try:
                read[name] = ask(handle)
            except AmdSmiError as exc:
                if exc.word != "NOT_SUPPORTED":
                    read["failed"][name] = exc.word
        return read

    def _address(self, handle: ctypes.c_void_p) -> str:
        bdf = ctypes.c_uint64()
        self.call("get_gpu_bdf_id", handle, ctypes.byref(bdf))
        bus, device, function = bdf.value >> 8 & 0xFF, bdf.value >> 3 & 0x1F, bdf.value & 7
        return f"{bdf.value >> 32:04x}:{bus:02x}:{device:02x}.{function}"

    def _uuid(self, handle: ctypes.c_void_p) -> str:
        length, text = ctypes.c_uint(UUID_CHARS), ctypes.create_string_buffer(UUID_CHARS)
        self.call("get_gpu_device_uuid", handle, ctypes.byref(length), text)
        return text.value.decode("ascii", "replace")

    def _ecc(self, handle: ctypes.c_void_p) -> dict[str, int]:
        counts = ErrorCount()
        self.call("get_gpu_total_ecc_count", handle, ctypes.byref(counts))
        by_kind = {name: int(getattr(counts, name)) for name in ("correctable", "uncorrectable", "deferred")}
        return {name: value for name, value in by_kind.items() if value != _NO_COUNT}

    def _temperature(self, handle: ctypes.c_void_p, metric: int) -> int:
        value = ctypes.c_int64()
        self.call("get_temp_metric", handle, HOTSPOT, metric, ctypes.byref(value))
        return value.value


def read(path: str | None) -> dict[str, Any]:
    """Every GPU now, or what is lacking."""
    try:
        library = Library(path)
    except OSError as exc:
        return {"lack": "library", "message": str(exc)}
    try:
        library.call("init", ctypes.c_uint64(INIT_AMD_GPUS))
    except AmdSmiError as exc:
        return {"lack": exc.word, "message": str(exc)}
    try:
        return {"gpus": [library.gpu(i, h) for i, h in enumerate(library.handles())]}
    except AmdSmiError as exc:
        return {"lack": exc.word, "message": str(exc)}
    finally:
        library.call("shut_down")


def main() -> int:
    """Answer until the input ends."""
    path = sys.argv[1] if len(sys.argv) > 1 else None
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(read(path), separators=(",", ":")) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
