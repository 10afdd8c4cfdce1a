"""The kernel log as evidence: once each, gaps told, only the kernel believed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.sources import kernel_log, kernel_words, kmsg
from probing_cluster.sandbox.nodetree import writing

XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, name=python, GPU has fallen off the bus."


def line(seq: int, text: str = XID, facility: int = 0) -> kmsg.KmsgLine:
    return kmsg.KmsgLine(seq=seq, ts_us=seq * 1_000_000, facility=facility, text=text)


def log_of(node_identity: identity.Identity, state: Any = None) -> kernel_log.KernelLog:
    return kernel_log.KernelLog(node_identity, kernel_words.classifier(), state=state)


def take(log: kernel_log.KernelLog, *lines: kmsg.KmsgLine) -> list[Any]:
    return log.take(lines, caught_up=False, place={})


def test_xid_line_becomes_a_sighting_with_everything_it_says(node_identity: identity.Identity) -> None:
    """Kind, code, address, process and a position of boot and number."""
    (found,) = take(log_of(node_identity), line(41))
    assert (found.kind, found.code, found.pci_bus_id, found.pid, found.process) == (
        "xid",
        "79",
        "0000:5e:00",
        1234,
        "python",
    )
    assert found.position == f"{node_identity.boot_id()}:41"
    assert str(found.severity) == "high"
    assert found.source == "kernel"


def test_an_sluid_becomes_the_job_that_the_prolog_told(node_identity: identity.Identity) -> None:
    """An out-of-memory kill under Slurm 26.05 names a cgroup by SLUID; one that nobody told of stays without a job."""
    group = "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0"
    text = f"Task in {group} killed as a result of limit of {group}"
    jobs = {"s5K1KKYAYG5D00": 4242}
    log = kernel_log.KernelLog(node_identity, kernel_words.classifier(), state=None, sluids=lambda: jobs)
    (found,) = take(log, line(1, text))
    jobs.clear()
    (later,) = take(log, line(2, text))
    assert (found.job_id, later.job_id) == (4242, None)


def test_a_rule_that_fails_costs_one_line(node_identity: identity.Identity) -> None:
    """The log is read on; it is said once, with the number and without the text, and counted."""

    def judge(text: str, at_s: float) -> Any:
        if "odd" in text:
            raise IndexError("no such group")
        return kernel_words.classifier()(text, at_s)

    log = kernel_log.KernelLog(node_identity, judge, state=None)
    found = take(log, line(41, "odd one"), line(42), line(43, "an odd one, too"))
    assert [(s.kind, s.code, str(s.severity)) for s in found] == [
        ("agent_overrun", "kernel_log_rule", "info"),
        ("xid", "79", "high"),
    ]
    assert "41" in found[0].message
    assert "odd" not in found[0].message
    assert (log.unjudged_total, log.cursor.seq) == (2, 43)


def test_time_is_boot_time_plus_the_kernels_clock(node_identity: identity.Identity) -> None:
    """Not when it was read: when it was written."""
    (found,) = take(log_of(node_identity), line(41))
    assert found.at.timestamp() == pytest.approx((node_identity.boot_epoch_s() or 0) + 41)


def test_restart_goes_on_after_the_last_line(node_identity: identity.Identity) -> None:
    """Each line once, though the whole log is offered again."""
    first = log_of(node_identity)
    assert len(take(first, line(1), line(2))) == 2
    state = json.loads(json.dumps(first.to_state()))
    again = log_of(node_identity, state)
    found = take(again, line(1), line(2), line(3))
    assert [s.position.rsplit(":", 1)[1] for s in found] == ["3"]


def test_gap_in_the_numbers_is_counted_and_told(node_identity: identity.Identity) -> None:
    """Messages overwritten before they were read are an event of their own, with how many."""
    log = log_of(node_identity)
    take(log, line(10, "nothing"))
    found = take(log, line(31, "nothing"))
    assert [(s.kind, s.measured) for s in found] == [("agent_overrun", 20.0)]
    assert found[0].detail == {"first_seq": 11, "last_seq": 30}
    assert log.missed_total == 20


def test_gap_across_a_restart_of_the_agent_is_told_too(node_identity: identity.Identity) -> None:
    """What was overwritten while no agent ran is not silently skipped."""
    first = log_of(node_identity)
    take(first, line(10, "nothing"))
    again = log_of(node_identity, first.to_state())
    assert [s.kind for s in take(again, line(15, "nothing"))] == ["agent_overrun"]


def test_first_start_does_not_call_old_lines_missed(node_identity: identity.Identity) -> None:
    """An agent installed today knows nothing of what was before, and does not pretend to."""
    assert take(log_of(node_identity), line(5000, "nothing")) == []


def test_reboot_starts_the_numbers_anew(node_identity: identity.Identity) -> None:
    """The same number in another boot is another line, with another identity."""
    first = log_of(node_identity)
    (before,) = take(first, line(7))
    writing.put(node_identity.root, "proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
    again = log_of(node_identity, first.to_state())
    (after,) = [s for s in take(again, line(0, "nothing"), line(7)) if s.kind == "xid"]
    assert again.rebooted
    assert before.position != after.position


def test_reboot_under_a_living_agent_is_noticed(node_identity: identity.Identity) -> None:
    """A directory that plays a node may reboot while its agent lives on."""
    log = log_of(node_identity)
    take(log, line(7))
    writing.put(node_identity.root, "proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
    found = take(log, line(0))
    assert log.rebooted
    assert found[0].position.startswith("11111111")


def test_forged_line_changes_nothing(node_identity: identity.Identity) -> None:
    """What any program can write to /dev/kmsg is counted as read and otherwise ignored."""
    log = log_of(node_identity)
    assert take(log, line(1, facility=1), line(2, facility=3)) == []
    assert log.cursor.seq == 2


def test_forged_line_is_no_evidence_through_journald_position(node_identity: identity.Identity) -> None:
    """Lines without a number keep the journal's own position."""
    log = log_of(node_identity)
    forged = kmsg.KmsgLine(seq=-1, ts_us=5, facility=0, text=XID, boot_id="b", position="journal:5:a1")
    (found,) = take(log, forged)
    assert found.position == "b:journal:5:a1"


def test_storm_of_unknown_lines_is_nothing(node_identity: identity.Identity) -> None:
    """Lines that say nothing make no sightings."""
    assert take(log_of(node_identity), *(line(n, f"usb 1-1: new device {n}") for n in range(500))) == []


class Wall:
    """A wall clock that a test moves; it began when the machine did."""

    def __init__(self) -> None:
        self.uptime_s = 0.0
        self.step_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 2, tzinfo=UTC) + timedelta(seconds=self.uptime_s + self.step_s)

    def monotonic_s(self) -> float:
        return self.uptime_s


class Host:
    """This machine's own log, whose kernel's clock lags `lag_s` behind the uptime."""

    def __init__(self) -> None:
        self.wall, self.seq, self.lag_s = Wall(), 0, 0.0
        self.log = kernel_log.KernelLog(
            identity.Identity(cluster="c", node="n", root=Path("/")), kernel_words.classifier(), state=None,
            clock=self.wall, uptime_s=lambda: self.wall.uptime_s,
        )  # fmt: skip

    def dated(self, written_s: float, read_s: float) -> float:
        """When a line written and read at these uptimes is said to have been written, seconds of uptime."""
        self.wall.uptime_s = read_s
        self.seq += 1
        record = kmsg.KmsgLine(
            seq=self.seq, ts_us=round((written_s - self.lag_s) * 1e6), facility=0, text=XID
        )
        (found,) = self.log.take([record], caught_up=True, place={})
        return (found.at - datetime(2026, 3, 2, tzinfo=UTC)).total_seconds()


def test_a_line_that_was_read_late_was_not_written_late() -> None:
    """On a busy node the first of two lines waits for us and the second does not: their order stays."""
    host = Host()
    assert host.dated(100.0, 100.001) == pytest.approx(100.0, abs=0.002)
    assert host.dated(200.0, 203.0) == pytest.approx(200.0, abs=0.05)
    assert host.dated(203.1, 203.1) == pytest.approx(203.1, abs=0.05)


def test_lines_keep_their_order_when_the_clocks_are_read_unevenly() -> None:
    """The first reading of all was late; the wall clock is slewed back a little."""
    host = Host()
    first = host.dated(100.0, 103.0)
    assert host.dated(100.5, 100.5) >= first
    host.wall.step_s = -0.5
    assert host.dated(103.2, 103.2) >= first


def test_the_kernels_clock_is_followed_where_it_went() -> None:
    """It lags ever more by its crystal; a machine that stood still makes it lag at once; a step of the wall clock is followed."""
    host = Host()
    host.dated(100.0, 100.0)
    host.lag_s = 5.0
    assert host.dated(100_000.0, 100_000.0) == pytest.approx(100_000.0)
    host.lag_s = 725.0
    assert host.dated(100_100.0, 100_100.0) == pytest.approx(100_100.0)
    host.wall.step_s = -3600.0
    assert host.dated(100_200.0, 100_200.0) == pytest.approx(96_600.0)


def test_the_lag_outlives_a_restart() -> None:
    """It is kept with the cursor."""
    host = Host()
    host.lag_s = 3.0
    host.dated(100.0, 100.0)
    state = json.loads(json.dumps(host.log.to_state()))
    assert kernel_log.Cursor.from_state(state) == host.log.cursor
    assert host.log.cursor.drift_s == pytest.approx(3.0)


def test_the_cursor_of_a_later_release_is_known() -> None:
    """A node that goes back to this release reads on from where the later one ended."""
    cursor = kernel_log.Cursor(boot_id="b", seq=7)
    assert kernel_log.Cursor.from_state({**vars(cursor), "of_a_later_release": [1]}) == cursor
