"""The kernel's lines as journald keeps them, in `journalctl -o export` form.

Only entries that journald itself took from the kernel (`_TRANSPORT=kernel`, a field no client can set) with
facility 0 count: what a program writes to /dev/kmsg also has that transport, but never facility 0.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping

from probing_cluster.core import digits
from probing_cluster.probe_agent.sources.kmsg import KmsgLine

_MAX_FIELD_BYTES = 65536
_MAX_ENTRY_BYTES = 8 * 1024 * 1024
_CURSOR_SEQUENCE = re.compile(r"(?:^|;)i=([0-9a-f]+)")

COMMAND = ("journalctl", "--output=export", "--all", "--quiet", "--no-pager", "_TRANSPORT=kernel")


def command(cursor: str | None) -> list[str]:
    """The command that prints what follows `cursor` (all of this boot without one), then waits for more."""
    where = ["--boot"] if cursor is None else [f"--after-cursor={cursor}"]
    return [*COMMAND, *where, "--follow", "--no-tail"]


class ExportParser:
    """Bytes of the export format in, entries out; survives any split of the stream and any garbage in it."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, bytes] = {}

    def feed(self, chunk: bytes) -> Iterator[dict[str, bytes]]:
        """The entries completed by `chunk`."""
        self._rest += chunk
        while (taken := self._field()) is not None:
            name, value = taken
            if name:
                self._fields[name] = value[:_MAX_FIELD_BYTES]
            elif self._fields:
                done, self._fields = self._fields, {}
                yield done
        if len(self._rest) > _MAX_ENTRY_BYTES:
            self._rest, self._fields = b"", {}

    def _field(self) -> tuple[str, bytes] | None:
        """The next field taken off the buffer; ("", b"") ends an entry, None = more bytes are needed."""
        line, newline, rest = self._rest.partition(b"\n")
        if not newline:
            return None
        name, equals, value = line.partition(b"=")
        if equals or not line:
            self._rest = rest
            return name.decode("ascii", "replace"), value
        if len(rest) < 8:
            return None
        (size,) = struct.unpack("<Q", rest[:8])
        if size > _MAX_ENTRY_BYTES:
            self._rest = rest  # not a length: resynchronise at the next line
            return "?", b""
        if len(rest) < 8 + size + 1:
            return None
        self._rest = rest[8 + size + 1 :]
        return name.decode("ascii", "replace"), rest[8 : 8 + size]


def line_of(entry: Mapping[str, bytes]) -> KmsgLine | None:
    """The kernel line of an entry; None when the kernel did not write it."""
    if entry.get("_TRANSPORT") != b"kernel" or entry.get("SYSLOG_FACILITY", b"0") != b"0":
        return None
    message = entry.get("MESSAGE")
    if message is None:
        return None
    cursor = entry.get("__CURSOR", b"").decode("ascii", "replace")
    sequence = _CURSOR_SEQUENCE.search(cursor)
    ts = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP") or b""
    return KmsgLine(
        seq=-1,
        ts_us=int(ts) if digits.is_number(ts) else 0,
        facility=0,
        text=message.decode("utf-8", "replace"),
        boot_id=_dashed(entry.get("_BOOT_ID", b"").decode("ascii", "replace")),
        position=f"journal:{ts.decode('ascii', 'replace')}:{sequence[1] if sequence else cursor}",
    )


class JournalReader:
    """A running `journalctl --follow`, read without waiting."""

    def __init__(self, fd: int, cursor: str | None = None) -> None:
        self._fd = fd
        self._parser = ExportParser()
        self._cursor = cursor
        self.ended = False
        os.set_blocking(fd, False)

    def read(self) -> list[KmsgLine]:
        lines: list[KmsgLine] = []
        try:
            chunk = os.read(self._fd, 262144)
        except BlockingIOError:
            return lines
        self.ended = not chunk
        for entry in self._parser.feed(chunk):
            self._cursor = entry.get("__CURSOR", b"").decode("ascii", "replace") or self._cursor
            line = line_of(entry)
            if line is not None:
                lines.append(line)
        return lines

    def fileno(self) -> int | None:
        return self._fd

    def place(self) -> dict[str, int | str]:
        return {"cursor": self._cursor} if self._cursor else {}

    def close(self) -> None:
        """Closes nothing: the child's pipe belongs to its starter."""


def _dashed(boot: str) -> str | None:
    """A boot id as the kernel writes it; journald leaves the dashes out."""
    if re.fullmatch(r"[0-9a-f]{32}", boot) is None:
        return None
    return "-".join((boot[:8], boot[8:12], boot[12:16], boot[16:20], boot[20:]))
