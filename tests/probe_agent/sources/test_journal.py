"""Kernel lines as journald exports them."""

from __future__ import annotations

import struct

import pytest

from probing_cluster.probe_agent.sources import journal

BOOT = "6c7c6013a26343b29e964691ff25d04c"


def entry(message: bytes = b"NVRM: Xid (PCI:0000:5e:00): 79, pid=1", **fields: str) -> bytes:
    values = {
        "__CURSOR": f"s=bcce4fb8ffcb40e9a6e05eee8b7831bf;i=5ef603;b={BOOT};m=181f0643;t=545242a93629;x=52a1",
        "__REALTIME_TIMESTAMP": "1516033396353577",
        "_BOOT_ID": BOOT,
        "_TRANSPORT": "kernel",
        "PRIORITY": "3",
        "SYSLOG_FACILITY": "0",
        "_SOURCE_MONOTONIC_TIMESTAMP": "405735000",
    } | fields
    text = "".join(f"{k}={v}\n" for k, v in values.items() if v).encode()
    if b"\n" in message or any(b >= 128 for b in message):
        return text + b"MESSAGE\n" + struct.pack("<Q", len(message)) + message + b"\n\n"
    return text + b"MESSAGE=" + message + b"\n\n"


def entries(data: bytes, size: int = 10_000) -> list[dict[str, bytes]]:
    parser = journal.ExportParser()
    return [e for at in range(0, len(data), size) for e in parser.feed(data[at : at + size])]


def test_entry_becomes_a_line_with_its_boot_and_position() -> None:
    """Text, kernel time, boot and a position that is unique in that boot."""
    line = journal.line_of(entries(entry())[0])
    assert line is not None
    assert line.text.startswith("NVRM: Xid")
    assert line.ts_us == 405735000
    assert line.boot_id == "6c7c6013-a263-43b2-9e96-4691ff25d04c"
    assert line.position == "journal:405735000:5ef603"
    assert line.seq == -1


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_entries_survive_any_split_of_the_stream(size: int) -> None:
    """A pipe cuts where it likes, in the middle of a binary length too."""
    data = entry() + entry(b"two\nlines \xff") + entry(b"last")
    found = entries(data, size)
    assert [e["MESSAGE"] for e in found] == [
        b"NVRM: Xid (PCI:0000:5e:00): 79, pid=1",
        b"two\nlines \xff",
        b"last",
    ]


def test_a_message_of_several_lines_is_one_line_of_the_log() -> None:
    """It comes with its length in binary; what looks like a field or an entry's end inside it is text."""
    text = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1\n_TRANSPORT=syslog\n\nMESSAGE=no field \x01"
    found = [journal.line_of(e) for e in entries(entry(text.encode()) + entry(b"next"), 3)]
    assert [line.text if line else None for line in found] == [text, "next"]


@pytest.mark.parametrize(
    "forged",
    [{"_TRANSPORT": "syslog"}, {"_TRANSPORT": "stdout"}, {"_TRANSPORT": ""}, {"SYSLOG_FACILITY": "1"}],
)
def test_what_the_kernel_did_not_write_is_no_line(forged: dict[str, str]) -> None:
    """A logger's line, a service's output, a write to /dev/kmsg: none of them is believed."""
    assert journal.line_of(entries(entry(**forged))[0]) is None


def test_garbage_between_entries_is_survived() -> None:
    """After nonsense the next entry is read again."""
    data = b"NONSENSE\n" + struct.pack("<Q", 2**60) + b"\n\n" + entry(b"after")
    assert any(e.get("MESSAGE") == b"after" for e in entries(data))


def test_command_asks_for_kernel_lines_only_and_goes_on_from_the_cursor() -> None:
    """Every restart continues after the last line, not at the beginning."""
    assert "_TRANSPORT=kernel" in journal.command(None)
    assert "--after-cursor=s=1;i=2" in journal.command("s=1;i=2")
    assert "--boot" not in journal.command("s=1;i=2")
