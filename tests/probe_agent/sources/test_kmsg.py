"""Kernel records from the device and from a growing file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.probe_agent.sources import kmsg


def record(seq: int, text: str = "hello", *, priority: int = 4) -> str:
    return f"{priority},{seq},{seq * 1000},-;{text}\n"


def numbers(lines: list[kmsg.KmsgLine]) -> list[int]:
    return [line.seq for line in lines]


def test_record_gives_number_time_facility_and_text() -> None:
    """Every part of a record is read, continuation lines are not."""
    line = kmsg.parse_record(
        b"6,1234,567890,-,caller=T1;mlx5_core: up\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:00.0\n"
    )
    assert line == kmsg.KmsgLine(seq=1234, ts_us=567890, facility=0, text="mlx5_core: up")


def test_what_a_program_writes_keeps_its_facility() -> None:
    """The kernel stamps facility 1 on what user space writes to /dev/kmsg."""
    line = kmsg.parse_record(b"12,1,1,-;NVRM: Xid (PCI:0000:5e:00): 79, forged")
    assert line is not None
    assert line.facility == 1


def test_escapes_are_undone_and_bad_utf8_survives() -> None:
    """Bytes the kernel escaped come back; what is no text becomes replacement characters."""
    line = kmsg.parse_record(rb"4,1,1,-;a\x0ab\xff")
    assert line is not None
    assert line.text == "a\nb\ufffd"


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_fail(raw: bytes) -> None:
    """Whatever arrives is a record or it is not."""
    kmsg.parse_record(raw)


def test_file_gives_each_line_once_as_it_grows(tmp_path: Path) -> None:
    """A half-written line waits for its end."""
    path = tmp_path / "kmsg"
    path.write_text(record(0) + record(1)[:5])
    reader = kmsg.KmsgFile(path)
    assert numbers(reader.read()) == [0]
    with path.open("a") as out:
        out.write(record(1)[5:] + record(2))
    assert numbers(reader.read()) == [1, 2]
    assert reader.read() == []
    reader.close()


def test_file_that_is_truncated_or_replaced_is_read_on(tmp_path: Path) -> None:
    """After a rotation nothing of the old file's end and nothing of the new file is lost."""
    path = tmp_path / "kmsg"
    path.write_text(record(0) + record(1))
    reader = kmsg.KmsgFile(path)
    assert numbers(reader.read()) == [0, 1]
    path.write_text(record(2))
    assert numbers(reader.read()) == [2]
    with path.open("a") as out:
        out.write(record(3))
    path.rename(tmp_path / "kmsg.1")
    path.write_text(record(4))
    read = [n for _ in range(25) for n in numbers(reader.read())]
    assert read == [3, 4]
    reader.close()


def test_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """Absence is not an error: the log may begin later."""
    reader = kmsg.KmsgFile(tmp_path / "kmsg")
    assert reader.read() == []
    (tmp_path / "kmsg").write_text(record(0))
    assert numbers(reader.read()) == [0]
    reader.close()


def test_place_shortens_the_next_start_and_a_wrong_one_is_ignored(tmp_path: Path) -> None:
    """The hint saves reading again; one that does not fit the file costs only that."""
    path = tmp_path / "kmsg"
    path.write_text(record(0) + record(1))
    first = kmsg.KmsgFile(path)
    first.read()
    place = first.place()
    first.close()
    with path.open("a") as out:
        out.write(record(2))
    again = kmsg.KmsgFile(path, place)
    assert numbers(again.read()) == [2]
    again.close()
    for wrong in ({**place, "offset": 3}, {**place, "offset": 10**9}, {"inode": 1, "offset": 5}):
        reader = kmsg.KmsgFile(path, wrong)
        assert numbers(reader.read()) == [0, 1, 2]
        reader.close()


def test_device_reads_one_record_per_call_and_goes_on_after_an_overrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EPIPE says that records were overwritten; the next one tells by its number how many."""
    (tmp_path / "kmsg").write_bytes(b"")
    reader = kmsg.KmsgDevice(tmp_path / "kmsg")
    answers: list[bytes | OSError] = [
        record(5).encode(),
        OSError(errno.EPIPE, "overwritten"),
        record(90).encode(),
        BlockingIOError(),
    ]

    def read(_fd: int, _size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    assert numbers(reader.read()) == [5, 90]
    monkeypatch.undo()
    reader.close()
