from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from probing_cluster.control_plane.imports import (
    accounting_file,
    event_lines,
    joblog,
    kernel,
    load,
    packed,
    rejected_input,
    when,
)
from probing_cluster.core import errors, hostlist, records, storable, vocabulary
from probing_cluster.db import arrow
from probing_cluster.db import store as db_store
from probing_cluster.evidence import prefixes
from probing_cluster.slurm_plugins.accounting import sacct_json, sacct_text
from tests.every_case import every

NOW = datetime(2026, 11, 21, 16, tzinfo=UTC)
XID = "kernel: NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def place(**changes: object) -> kernel.FilePlace:
    values: dict[str, object] = {"file": "f", "node": "n2", "cluster": "c", "read_at": NOW, "reference": NOW}
    return kernel.FilePlace(**(values | changes))  # type: ignore[arg-type]


def order(**changes: object) -> load.LoadOrder:
    values: dict[str, object] = {"cluster": "c", "now": NOW}
    return load.LoadOrder(**(values | changes))  # type: ignore[arg-type]


def test_a_kernel_log_becomes_events_of_source_import() -> None:
    """Kind, code, severity and address come from the line; lines that say nothing are only counted."""
    found = kernel.read([f"2026-11-21T14:20:32.5+00:00 n2 {XID}\n".encode(), b"hello\n"], place())
    (event,) = found.events
    assert (event.kind, event.code, event.severity, event.pci_bus_id) == ("xid", "79", "high", "0000:5e:00")
    assert (event.source, event.node, event.at) == (
        "import",
        "n2",
        datetime(2026, 11, 21, 14, 20, 32, 500000, tzinfo=UTC),
    )
    assert found.n_lines == 2


def test_a_start_in_the_future_is_left_out_and_counted(tmp_path: Path) -> None:
    """A typed year, or a broken clock: it would end every span of the figures."""
    path = tmp_path / "sacct"
    path.write_text(
        "JobID|State|Start|End\n"
        + "".join(f"{y}|FAILED|{y}-11-10T10:00:00|{y}-11-10T11:00:00\n" for y in (2025, 2099))
    )
    found = load.read(order(sacct=[path], timezone="UTC"), lambda words: None)
    assert [a.job_id for a in found.attempts] == [2025]
    assert any("1 that begins in the future" in line for line in found.done.lines)


@pytest.mark.parametrize(
    ("prefix", "zone", "expected"),
    [
        ("2026-11-21T14:20:32+01:00 n2 ", "America/New_York", "13:20:32"),
        ("2026-11-21T14:20:32Z n2 ", "America/New_York", "14:20:32"),
        ("2026-11-21T14:20:32 n2 ", "Europe/Berlin", "13:20:32"),
        ("Nov 21 14:20:32 n2 ", "Europe/Berlin", "13:20:32"),
        ("Nov 21 14:20:32 n2 ", None, "14:20:32"),
        ("[Sat Nov 21 14:20:32 2026] ", "Europe/Berlin", "13:20:32"),
    ],
)
def test_times_without_a_zone_are_in_the_zone_named(prefix: str, zone: str | None, expected: str) -> None:
    """--timezone speaks only for times that name no zone of their own."""
    found = kernel.read([f"{prefix}{XID}".encode()], place(zone=load.zone_of(zone)))
    assert found.events[0].at.strftime("%H:%M:%S") == expected


@pytest.mark.parametrize(
    ("uptimes", "is_refused"),
    [((100, 0, 50), True), ((5000, 5100, 20), True), ((100, 200, 199), False), ((100, 5000), False)],
)
def test_one_boot_instant_dates_one_boot(uptimes: tuple[int, ...], is_refused: bool) -> None:
    """A console's log goes on behind a restart: which boot the instant is of nobody can know."""
    lines = [f"[{s:5}.000000] usb 1-1: new device\n".encode() for s in uptimes[:-1]]
    lines.append(f"[{uptimes[-1]:5}.000000] {XID.removeprefix('kernel: ')}\n".encode())
    if is_refused:
        with pytest.raises(errors.MalformedInput, match=r"n2 started again within it.* its own --boot"):
            kernel.read(lines, place(boots={"n2": NOW}))
        assert len(kernel.read(lines, place()).bad) == 1, "without an instant nothing is dated"
        dated = [f"2026-11-21T14:20:{n:02}Z n2 kernel: ".encode() + line for n, line in enumerate(lines)]
        assert len(kernel.read(dated, place(boots={"n2": NOW})).events) == 1
    else:
        at = kernel.read(lines, place(boots={"n2": NOW})).events[0].at
        assert at == NOW + timedelta(seconds=uptimes[-1])


@pytest.mark.parametrize(
    ("days", "is_refused"),
    [
        (("Mar 10", "Nov  1", "Feb  1", "May  5"), True),
        (
            ("Nov 21", "Jan  2", "Nov 20", "Jan  3"),
            False,
        ),  # a clock that began at 1 January, set a little later
        (("Dec 30", "Jan  2", "Jun  7", "Dec 30", "Jan  2"), True),
        (("Nov 22", "Dec 31", "Jan  1", "Nov 21"), False),
        (("Jan  1", "Nov 21"), False),
        (("Nov 20", "Jan  1", "Nov 21"), False),
    ],
)
def test_a_log_longer_than_a_year_needs_years(days: tuple[str, ...], is_refused: bool) -> None:
    """`journalctl -k` prints none: the first spring's faults would be those of the last one."""
    lines = [f"{day} 10:00:00 n2 {XID}\n".encode() for day in days]
    if not is_refused:
        assert len(kernel.read(lines, place()).events) == len(days)
        return
    with pytest.raises(errors.MalformedInput, match="n2 name no year, and it is longer than one"):
        kernel.read(lines, place())


def test_uptime_only_lines_need_a_boot_instant_and_are_kept_aside_without() -> None:
    """Nothing is guessed: dmesg's seconds since boot give no instant unless the boot is told."""
    line = f"[  120.000000] {XID.removeprefix('kernel: ')}".encode()
    without = kernel.read([line], place())
    assert (without.events, len(without.bad)) == ([], 1)
    booted = kernel.read([line], place(boots={"n2": NOW}))
    assert booted.events[0].at == NOW + timedelta(seconds=120)


def test_a_year_is_taken_from_what_the_accounting_is_about() -> None:
    """A syslog line of November read with accounting of 2024 is of 2024."""
    found = kernel.read(
        [f"Nov 21 14:20:32 n2 {XID}".encode()], place(reference=datetime(2024, 12, 1, tzinfo=UTC))
    )
    assert found.events[0].at.year == 2024


@pytest.mark.parametrize(
    ("month_day", "year"), [("Nov 21", 2024), ("Oct 24", 2024), ("Feb  3", 2025), ("Jun  3", 2024)]
)
def test_a_log_goes_on_after_the_last_job_it_is_read_with(month_day: str, year: int) -> None:
    """Jobs of October 2024: what the log says in November is of 2024 too, the nearest year to them."""
    about = (datetime(2024, 10, 20, tzinfo=UTC), datetime(2024, 10, 30, tzinfo=UTC))
    reference = load.year_less_before(about, NOW)
    (event,) = kernel.read([f"{month_day} 14:20:32 n2 {XID}".encode()], place(reference=reference)).events
    assert event.at.year == year


def test_nothing_in_a_log_is_later_than_its_file_and_a_whole_year_of_jobs_is_one_year() -> None:
    """A file written in November has no December of that year; jobs of twelve months leave nothing open."""
    jobs = (datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 11, 10, tzinfo=UTC))
    assert load.year_less_before(jobs, datetime(2024, 11, 12, tzinfo=UTC)).month == 11
    assert load.year_less_before(jobs, datetime(2024, 2, 1, tzinfo=UTC)) == jobs[1], (
        "a copy keeps no true date"
    )
    assert load.year_less_before((jobs[0] - timedelta(days=99), jobs[1]), NOW) == jobs[1]
    assert load.year_less_before(None, NOW) == NOW


def clocks_back(*stamps: str, skipped: str = "") -> list[str]:
    """The UTC instants of findings at `stamps` on the night Berlin's 03:00 CEST became 02:00 CET."""
    lines = [f"{stamp} n2 {XID if stamp != skipped else 'kernel: hello'}".encode() for stamp in stamps]
    found = kernel.read(
        lines, place(zone=load.zone_of("Europe/Berlin"), reference=datetime(2024, 12, 1, tzinfo=UTC))
    )
    return [event.at.astimezone(UTC).strftime("%H:%M") for event in found.events]


def test_the_repeated_hour_of_a_log_is_told_by_the_order_of_its_lines() -> None:
    """A line that stands below a later one was written on the second pass of the clock."""
    on = "Oct 27 "
    assert clocks_back(on + "02:50:00", on + "02:19:00", on + "02:40:00", on + "03:10:00") == [
        "00:50",
        "01:19",
        "01:40",
        "02:10",
    ]
    assert clocks_back(on + "02:50:00", on + "02:19:00", skipped=on + "02:50:00") == ["01:19"], (
        "any line tells"
    )
    assert clocks_back(on + "02:19:00", on + "02:18:58") == ["00:19", "00:18"], "loggers swap lines"
    assert clocks_back(on + "23:50:00", on + "02:19:00") == ["22:50", "00:19"], (
        "a file put together out of order"
    )


@pytest.mark.parametrize(
    ("stamps", "n_unsure"),
    [
        (["01:50:00", "02:19:00", "02:40:00", "03:10:00"], 2),
        (["02:19:00", "02:40:00"], 2),
        (["02:19:00", "02:50:00", "02:20:00", "03:10:00"], 0),
        (["02:19:00", "02:50:00", "hello 02:20:00", "03:10:00"], 0),
        (["02:19:00", "hello 02:50:00", "hello 02:20:00", "hello 03:10:00"], 0),
        (["02:19:00", "hello 03:10:00"], 1),
        (["02:30:00", "03:00:30", "02:59:50"], 1),
        (["01:50:00", "03:10:00"], 0),
    ],
)
def test_where_nothing_tells_the_pass_of_a_repeated_hour_the_import_says_so(
    stamps: list[str], n_unsure: int, tmp_path: Path
) -> None:
    """A step back proves what stands above it, whether or not the lines are findings; without one, nothing does."""
    path = tmp_path / "kern.log"
    path.write_text(
        "".join(
            f"2024-10-27 {stamp.split()[-1]} n2 {'kernel: hello' if 'hello' in stamp else XID}\n"
            for stamp in stamps
        )
    )
    found = kernel.read(path.read_bytes().splitlines(), place(zone=load.zone_of("Europe/Berlin")))
    assert found.n_unsure == n_unsure
    assert kernel.read(path.read_bytes().splitlines(), place()).n_unsure == 0, "UTC repeats no hour"


def test_a_zone_named_in_the_line_tells_the_pass() -> None:
    """`journalctl -o short-full` writes the zone's name behind the time."""
    stamps = ("Sun 2024-10-27 02:19:00 CEST", "Sun 2024-10-27 02:19:00 CET")
    assert clocks_back(*stamps) == ["00:19", "01:19"]
    lines = [f"{stamp} n2 {XID}".encode() for stamp in stamps]
    assert kernel.read(lines, place(zone=load.zone_of("Europe/Berlin"))).n_unsure == 0


def test_the_same_line_in_two_files_is_one_event_and_twice_in_one_file_is_two() -> None:
    """Identity is instant, words and how many alike came before: overlapping files do not double."""
    line = f"2026-11-21T14:20:32Z n2 {XID}".encode()
    one = kernel.read([line, line], place(file="a")).events
    two = kernel.read([line], place(file="b")).events
    assert one[0].event_id == two[0].event_id != one[1].event_id


def test_events_are_filled_from_the_catalogue() -> None:
    """What an object leaves out comes from its message, or from the code's entry."""
    lines = [
        {"at": "2026-11-21T14:00:00Z", "node": "n1", "kind": "xid", "code": 79},
        {"at": "2026-11-21T14:00:00Z", "node": "n1", "message": XID.removeprefix("kernel: ")},
        {
            "at": "2026-11-21T14:00:00Z",
            "node": "n1",
            "kind": "xid",
            "code": "79",
            "severity": "low",
            "device": "gpu3",
            "rack": "r1",
        },
        {"at": "2026-11-21T14:00:00Z", "node": "n1", "kind": "fan"},
    ]
    found = event_lines.read([json.dumps(line).encode() for line in lines], place())
    assert found.bad == []
    a, b, c, d = found.events
    assert (a.code, a.severity, b.kind, b.code, b.pci_bus_id) == ("79", "high", "xid", "79", "0000:5e:00")
    assert a.message
    assert (c.severity, c.device, c.detail) == ("low", "gpu3", {"rack": "r1"})
    assert (d.severity, d.source) == ("info", "import")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("not json", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"node": "n", "kind": "xid"}', "at is missing"),
        ('{"at": "yesterday", "node": "n", "kind": "xid"}', "no ISO 8601"),
        ('{"at": "2026-11-21T14:00:00", "node": "n", "kind": "xid"}', "no zone"),
        ('{"at": "2026-11-21T14:00:00Z", "kind": "xid"}', "node is missing"),
        ('{"at": "2026-11-21T14:00:00Z", "node": "n"}', "neither kind"),
        ('{"at": "2026-11-21T14:00:00Z", "node": "n", "kind": "xid", "severity": "bad"}', "severity must be"),
        ('{"at": "2026-11-21T14:00:00Z", "node": "n", "kind": "xid", "pid": "x"}', "pid must be"),
        ('{"at": "2026-11-21T14:00:00Z", "node": ["n"], "kind": "xid"}', "node must be text"),
    ],
)
def test_a_bad_event_line_is_kept_aside_with_the_reason(line: str, why: str) -> None:
    """Each mistake is named; good lines beside it are stored."""
    good = '{"at": "2026-11-21T14:00:00Z", "node": "n", "kind": "xid", "code": "79"}'
    found = event_lines.read([line.encode(), good.encode(), b"\n"], place())
    assert len(found.events) == 1
    assert why in found.bad[0].why
    assert (found.bad[0].line_no, found.bad[0].text) == (1, line)


ATTEMPT = records.JobAttempt(
    cluster="c", job_id=7, submit_at=NOW, start_at=NOW, end_at=NOW + timedelta(hours=1), nodes=("n1",), state="FAILED"
)  # fmt: skip


def test_a_jobs_output_is_evidence_of_the_job_and_nothing_more() -> None:
    """Source joblog, severity info, placed at the attempt's end: it can never drain or convict."""
    lines = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in <module>',
        "    x = 1 / 0",
        "ZeroDivisionError: division by zero",
    ]
    events = joblog.read([f"{line}\n".encode() for line in lines], ATTEMPT, NOW)
    assert events
    assert {(e.source, e.severity, e.job_id, e.at, e.node) for e in events} == {
        ("joblog", "info", 7, ATTEMPT.end_at, "n1")
    }
    assert all(e.source in vocabulary.JOB_SIDE_SOURCES for e in events)


def test_an_output_that_attempts_appended_to_speaks_for_the_last_only() -> None:
    """Slurm dates the end of the former attempt in the cluster's zone."""
    zone = zoneinfo.ZoneInfo("Asia/Tokyo")
    ended = f"{(NOW - timedelta(minutes=2)).astimezone(zone):%Y-%m-%dT%H:%M:%S}"
    lines = [
        b"torch.OutOfMemoryError: CUDA out of memory.\n",
        f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {ended} DUE TO NODE FAILURE ***\n".encode(),
        b"Traceback (most recent call last):\n",
        b'  File "t.py", line 3, in <module>\n',
        b"KeyError: 'lr'\n",
    ]
    messages = {e.message for e in joblog.read(lines, ATTEMPT, NOW, zone)}
    assert len(messages) == 1
    assert "KeyError" in messages.pop()


def test_an_output_that_other_jobs_appended_to_speaks_for_this_one() -> None:
    """The times of the earlier run's lines tell; its error was mended before this one began."""
    lines = [
        f"{NOW - timedelta(hours=2):%Y-%m-%d %H:%M:%S} INFO epoch 1",
        "torch.OutOfMemoryError: CUDA out of memory.",
        f"{NOW + timedelta(seconds=9):%Y-%m-%d %H:%M:%S} INFO epoch 1",
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in <module>',
        "KeyError: 'lr'",
    ]
    messages = {e.message for e in joblog.read([f"{line}\n".encode() for line in lines], ATTEMPT, NOW)}
    assert len(messages) == 1
    assert "KeyError" in messages.pop()


def test_what_is_kept_aside_can_be_read_again(tmp_path: Path) -> None:
    """The file holds every bad row as written, with file, line and reason; nothing bad makes no file."""
    assert rejected_input.write([], tmp_path) is None
    bad = [
        rejected_input.RejectedInput(file="x", line_no=n, text=f"row\x00{n}\x1b", why="w") for n in range(7)
    ]
    path = rejected_input.write(bad, tmp_path)
    assert path is not None
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["line"], r["text"]) for r in rows] == [(n, f"row\x00{n}\x1b") for n in range(7)]
    assert rejected_input.shown(bad)[-1] == "  and 2 more"
    assert "\x1b" not in "".join(rejected_input.shown(bad))


def test_a_file_of_which_hardly_a_row_can_be_read_is_refused(store: db_store.Store, tmp_path: Path) -> None:
    """Columns cut short to a day: two steps were counted, 40 rows kept aside, and the import had gone well."""
    rows = [f"{n}|FAILED|2025-11-30|2025-11-30|2025-11-30|n1" for n in range(40)]
    steps = [f"7.{n}|FAILED|2025-11-30T10:00:00|2025-11-30T10:00:00|2025-11-30T11:00:00|n1" for n in range(2)]
    dump = tmp_path / "cut.txt"
    dump.write_text("\n".join(["JobID|State|Submit|Start|End|NodeList", *rows, *steps]))
    with pytest.raises(
        errors.MalformedInput, match=r"none of 40 rows .*export again without SLURM_TIME_FORMAT"
    ):
        load.load(store, order(sacct=[dump], timezone="UTC"))


def test_real_accounting_dumps_load_with_every_row_accounted_for(
    store: db_store.Store, shared_samples: Path
) -> None:
    """Real text and JSON dumps: what is an attempt is stored, what is broken is kept, each with its count; one without a good row is refused."""
    broken = shared_samples / "slurm/gcm_sacct/sample-sacct-output-with-invalid-lines.txt"
    with pytest.raises(errors.MalformedInput, match="none of 1 row could be read"):
        load.load(store, order(sacct=[broken], timezone="America/Los_Angeles"))
    names = (
        "gcm_sacct/sample-sacct-output-midnight-edge-case.txt",
        "sarc_sacct/slurm_22_5_9.json",
    )
    files = [shared_samples / "slurm" / name for name in names]
    done = load.load(store, order(sacct=files, timezone="America/Los_Angeles"))
    assert done.n_attempts == len(store.attempts()) > 300
    counts = [line for line in done.lines if " attempts; " in line or " attempt; " in line]
    assert len(counts) == 2
    for path, line in zip(files, counts, strict=True):
        assert f"{sum(b.file == str(path) for b in done.bad)} kept aside" in line


def test_a_dump_without_a_header_needs_its_field_list(store: db_store.Store, tmp_path: Path) -> None:
    """`sacct --noheader` is refused with the file and the way out, and loads once the columns are named."""
    path = tmp_path / "noheader.txt"
    path.write_text("7|FAILED|1795269600|1795269700|1795270700|n2\n")
    with pytest.raises(errors.MalformedInput, match=r"noheader.txt: no header"):
        load.load(store, order(sacct=[path]))
    columns = ["JobID", "State", "Submit", "Start", "End", "NodeList"]
    assert load.load(store, order(sacct=[path], fields=columns)).n_attempts == 1


def test_an_import_twice_changes_nothing(store: db_store.Store, tmp_path: Path) -> None:
    """Rows and events have identities: loading the same files again adds none."""
    sacct = tmp_path / "sacct.txt"
    sacct.write_text(
        "JobIDRaw|JobID|State|Submit|Start|End|NodeList|User|Partition|JobName|AllocTRES|ExitCode\n"
        "7|7|NODE_FAIL|1795269600|1795269700|1795270700|n2|alice|gpu|t|gres/gpu=8|1:0\n"
        "broken|row\n"
    )
    log = tmp_path / "kern.log"
    log.write_text(f"2026-11-21T14:00:00Z n2 {XID}\n")
    wanted = order(sacct=[sacct], kernel=[("n2", log)])
    first, second = load.load(store, wanted), load.load(store, wanted)
    assert (first.n_events, second.n_events) == (1, 0)
    assert len(first.bad) == len(second.bad) == 1
    assert len(store.attempts()) == 1
    assert "(1 already known)" in "\n".join(second.lines)


def test_an_output_without_its_job_is_refused(store: db_store.Store, tmp_path: Path) -> None:
    """--joblog needs the attempt it belongs to."""
    path = tmp_path / "o"
    path.write_text("x\n")
    with pytest.raises(errors.NotFound, match="job 9"):
        load.load(store, order(joblog=[("9", path)]))


@pytest.mark.parametrize("field", ["sacct", "events", "kernel"])
def test_a_missing_file_is_one_clear_error(store: db_store.Store, tmp_path: Path, field: str) -> None:
    """The file is named; no traceback."""
    path = tmp_path / "none"
    given: object = [("n1", path)] if field == "kernel" else [path]
    with pytest.raises(errors.MalformedInput, match="none cannot be read: No such file"):
        load.load(store, order(**{field: given}))


JOB = {
    "job_id": 7,
    "nodes": "n2",
    "state": {"current": "FAILED"},
    "time": {"submission": 1732190000, "start": 1732190010, "end": 1732199000},
}
TABLE = "JobID|State|Start|End|JobName\n7|FAILED|1732190010|1732199000|x\n{ not JSON }\n"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"jobs": [JOB]}),
        "\ufeff" + json.dumps({"jobs": [JOB]}),
        "sacct: error: cannot find plugin\n" + json.dumps({"jobs": [JOB]}, indent=2),
        json.dumps([JOB]),
        TABLE,
        "module load slurm\n" + TABLE,
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_accounting_file_is_told_by_what_comes_first(tmp_path: Path, text: str, packed: bool) -> None:
    """A document or a header, whatever stands before it, packed or not."""
    path = tmp_path / "sacct.out"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found, _ = accounting_file.read(path, timezone=None, cluster="c")
    assert [a.job_id for a in found.attempts] == [7]


def test_an_unknown_zone_is_refused() -> None:
    """A typo in --timezone does not silently become UTC."""
    with pytest.raises(errors.UsageError, match="Mars"):
        load.zone_of("Mars/Base")


def test_an_instant_is_never_moved_when_the_line_carries_an_epoch() -> None:
    """journald's JSON has absolute time: the zone named changes nothing."""
    clock, line = when.LogClock(zoneinfo.ZoneInfo("Asia/Tokyo")), prefixes.PrefixedLine(message="m", at=NOW)
    assert clock.instant(line, '{"MESSAGE": "m"}') == NOW
    assert clock.instant(line, "1729989000.123456 n2 kernel: m") == NOW, "journalctl -o short-unix"


BOOT = "Linux version 5.15.0-91-generic (buildd@lcy02) (gcc 11.4.0) #101-Ubuntu SMP"
LOAD = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"


@pytest.mark.parametrize(
    ("message", "kind"),
    [(BOOT, "node_boot"), (LOAD, "driver_load"), (LOAD.replace("x86_64", "Open x86_64"), "driver_load")],
)
@pytest.mark.parametrize(
    "prefix", ["Nov 21 14:20:32 n2 kernel: ", "[Sat Nov 21 14:20:32 2026] ", "2026-11-21T14:20:32Z n2 kernel: [    0.000000] "]
)  # fmt: skip
def test_a_kernels_first_line_is_a_boot(prefix: str, message: str, kind: str) -> None:
    """What starts a kernel, or sets up its GPUs, ends what was wrong before it."""
    (event,) = kernel.read([f"{prefix}{message}".encode()], place()).events
    assert (event.kind, event.at, event.severity) == (
        kind,
        datetime(2026, 11, 21, 14, 20, 32, tzinfo=UTC),
        "info",
    )


@pytest.mark.parametrize("tag", ["sudo: root : COMMAND=/bin/echo ", "CRON[71]: (root) CMD (", "kernel: process 'x", "logger: "])  # fmt: skip
@pytest.mark.parametrize("message", [BOOT, LOAD])
def test_a_boot_that_somebody_quotes_is_none(tag: str, message: str) -> None:
    """Only the kernel's own line, from its beginning, says that it started."""
    assert kernel.read([f"Nov 21 14:20:32 n2 {tag}{message}".encode()], place()).events == []


def test_another_programs_line_is_no_boot() -> None:
    """A syslog tag other than the kernel's is not the kernel."""
    assert kernel.read([f"Nov 21 14:20:32 n2 myapp: {BOOT}".encode()], place()).events == []


DEEP = b"[" * 100_000
HOSTILE_JSON = '{"at": "2026-11-21T14:20:32Z", "node": "n2", "kind": "xid", "code": "79", "%s": %s}'


@every(
    "value, key",
    itertools.product(
        ["9" * 20, "-" + "9" * 20, "9" * 5000, "1e999", "NaN", '"²"', "[1]"],
        ["job_id", "pid", "count", "measured", "threshold", "code", "detail", "other", "at"],
    ),
)
def test_an_event_line_no_row_can_hold_is_kept_aside(key: str, value: str) -> None:
    """It ends nothing, and the next line is read; text where text may stand stays."""
    good = '{"at": "2026-11-21T14:20:33Z", "node": "n3", "kind": "xid"}'
    lines = [(HOSTILE_JSON % (key, value)).encode(), good.encode()]
    found = event_lines.read(lines, place())
    assert found.events[-1].node == "n3"
    assert len(found.events) + len(found.bad) == 2
    assert all(storable.why_not(event) is None for event in found.events)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (DEEP, "not JSON: maximum recursion depth"),
        (b'{"a":' * 100_000, "not JSON: maximum recursion depth"),
        (
            b'{"at": "2026-11-21T14:20:32Z", "node": "n", "kind": "x", "detail": '
            + b'{"a":' * 99
            + b"1"
            + b"}" * 100,
            "deeper",
        ),
        (b'{"at": "0001-01-01T00:00:00+10:00", "node": "n", "kind": "x"}', "no time in UTC"),
        (b'{"at": "0001-01-01T00:00:00Z", "node": "n", "kind": "x"}', "the year 1 is none"),
        (
            b'{"at": "2026-11-21T14:20:32Z", "node": "n", "kind": "x", "job_id": 99999999999999999999}',
            "too large",
        ),
    ],
)
def test_why_a_hostile_line_is_kept_aside(line: bytes, why: str) -> None:
    """In words that name what is wrong."""
    (bad,) = event_lines.read([line], place()).bad
    assert (bad.line_no, why in bad.why) == (1, True), bad.why


@pytest.mark.parametrize(
    "at",
    ["0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"],
)
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "America/New_York"])
def test_a_kernel_line_of_no_year_is_kept_aside(at: str, zone: str | None) -> None:
    """Whatever the zone; the next line is read."""
    lines = [f"{at} n2 {XID}\n".encode(), f"2026-11-21T14:20:32Z n2 {XID}\n".encode()]
    found = kernel.read(lines, place(zone=load.zone_of(zone)))
    assert (len(found.events), len(found.bad)) == (1, 1)


def test_an_uptime_of_ages_is_no_instant() -> None:
    """A record of /dev/kmsg with twenty digits of microseconds."""
    line = f"6,1,{'9' * 20},-;{XID.removeprefix('kernel: ')}".encode()
    assert len(kernel.read([line], place(boots={"n2": NOW})).bad) == 1


def packed_of(path: Path, data: bytes, times: int) -> Path:
    """`data` so many times over, packed."""
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(times):
            stream.write(data)
    return path


def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accounting dump is read whole, so it has a size; the error says what to do."""
    bomb = packed_of(tmp_path / "sacct.gz", b"x" * (1 << 20), 64)
    monkeypatch.setattr(packed.os, "sysconf", lambda name: 1 << 14)  # 256 MiB of memory
    with pytest.raises(errors.MalformedInput, match=r"sacct\.gz holds more than 4 MiB.*split it"):
        accounting_file.read(bomb, timezone=None, cluster="c")


def test_the_bound_of_an_accounting_file_is_what_the_memory_holds_as_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the fewest columns that still name a job's nodes become the most bytes."""
    row = "|u|FAILED|2026-11-10T10:00:00|2026-11-10T10:00:01|2026-11-10T11:00:00|n[1-2]|1:0"
    data = "\n".join(
        ("JobID|User|State|Submit|Start|End|NodeList|ExitCode", *(f"{n}{row}" for n in range(1, 2000)))
    )
    path = tmp_path / "sacct"
    path.write_text(data)
    monkeypatch.setattr(packed.os, "sysconf", lambda name: 1 << 13)  # a read of so much allocates it first
    tracemalloc.start()
    try:
        found, _ = accounting_file.read(path, timezone="UTC", cluster="c")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.attempts) == 1999
    monkeypatch.setattr(packed.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else peak // 4096)
    with packed.opened(path) as stream, pytest.raises(errors.MalformedInput, match="split it"):
        packed.whole(stream, path)


def test_a_line_of_gigabytes_is_cut(tmp_path: Path) -> None:
    """A packed log of one endless line is read in pieces; what stands behind it is read too."""
    bomb = tmp_path / "kern.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as stream:
        for _ in range(48):
            stream.write(b"\0" * (1 << 20))
        stream.write(f"\n2026-11-21T14:20:32Z n2 {XID}\n".encode())
    with packed.opened(bomb) as unpacked:
        sizes = []

        def counted():
            for line in packed.lines(unpacked):
                sizes.append(len(line))
                yield line

        found = kernel.read(counted(), place())
    assert (len(found.events), found.n_lines, max(sizes)) == (1, 2, 1 << 20)


@pytest.mark.parametrize(
    "nodes",
    [
        "n[1-" + "9" * 5000 + "]",
        "n[" + "9" * 5000 + "]",
        "n" + "[1]" * 5000,
        "n" * 100_000 + "[1-200000]",
        "n[²]",
    ],
)
def test_a_hostile_host_list_costs_only_its_row(tmp_path: Path, nodes: str) -> None:
    """In text and in JSON."""
    with pytest.raises(errors.MalformedInput):
        hostlist.expand(nodes)
    text = tmp_path / "sacct.txt"
    text.write_text(
        "JobID|State|Start|End|NodeList\n"
        f"7|FAILED|1700000000|1700000060|{nodes}\n8|FAILED|1700000000|1700000060|n1\n"
    )
    found, bad = accounting_file.read(text, timezone=None, cluster="c")
    assert ([a.job_id for a in found.attempts], len(bad)) == ([8], 1)
    job = {
        "job_id": 7,
        "nodes": nodes,
        "state": {"current": ["FAILED"]},
        "time": {"submission": 1700000000, "start": 1700000000, "end": 1700000060},
    }
    dump = tmp_path / "sacct.json"
    dump.write_text(
        json.dumps(
            {"jobs": [job, job | {"job_id": 8, "nodes": "n1"}, job | {"job_id": 10**20, "nodes": "n1"}]}
        )
    )
    found, bad = accounting_file.read(dump, timezone=None, cluster="c")
    assert ([a.job_id for a in found.attempts], len(bad)) == ([8], 2)


@pytest.mark.parametrize(
    "data", [DEEP, b'{"jobs": ' + DEEP, b'{"jobs": [{"job_id": ' + b"9" * 5000 + b"}]}", b'{"jobs": 1e999}']
)
def test_hostile_accounting_json_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    """It names the file."""
    path = tmp_path / "sacct.json"
    path.write_bytes(data)
    with pytest.raises(errors.MalformedInput, match=r"sacct\.json: "):
        accounting_file.read(path, timezone=None, cluster="c")


def test_a_file_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    """Naming it, its first bad line and why."""
    path = tmp_path / "events"
    path.write_text("hello\nworld\n")
    with pytest.raises(
        errors.MalformedInput, match=r"none of 2 rows could be read, .*events, line 1: not JSON"
    ):
        load.read(order(events=[path]))


def test_a_file_of_which_nothing_can_be_read_ends_the_import_of_the_others_too(tmp_path: Path) -> None:
    """A rotated dmesg says no date: the import stops before anything is stored, and ends with what helps."""
    sacct = tmp_path / "sacct"
    sacct.write_text(
        "JobID|State|Submit|Start|End|NodeList\n"
        "7|FAILED|2026-11-21T08:00:00|2026-11-21T09:00:00|2026-11-21T10:00:00|gpu08\n"
    )
    log = tmp_path / "dmesg.0"
    log.write_text(f"[  12.000000] {XID.removeprefix('kernel: ')}\n" * 2)
    with pytest.raises(errors.MalformedInput, match=r"none of 2 .*dmesg\.0, line 1: .*--boot gpu08=WHEN$"):
        load.read(order(sacct=[sacct], kernel=[("gpu08", log)]))
    booted = load.read(order(sacct=[sacct], kernel=[("gpu08", log)], boots={"gpu08": NOW}))
    assert (len(booted.attempts), len(booted.events[0].found.events)) == (1, 2)


@pytest.mark.parametrize("when", ["ශුක්‍ර නොවැ 20 13:59:58 2026", "Fri Nowemburg 20 13:59:58 2026"])
def test_a_log_in_a_language_that_is_not_read_says_so(tmp_path: Path, when: str) -> None:
    """It is a kernel log; what is wrong is the words of its dates."""
    log = tmp_path / "dmesg"
    log.write_text(f"[{when}] {XID.removeprefix('kernel: ')}\n", encoding="utf-8")
    with pytest.raises(errors.MalformedInput, match=r"in a language that is not read; .*--time-format=iso"):
        load.read(order(kernel=[("gpu08", log)]))


numbers = st.one_of(st.integers(), st.integers(-(10**30), 10**30), st.floats(), st.just(10**4000))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EVENT_KEYS = (
    "at",
    "node",
    "kind",
    "code",
    "severity",
    "pid",
    "job_id",
    "count",
    "measured",
    "message",
    "detail",
    "x",
)


@given(st.dictionaries(st.sampled_from(EVENT_KEYS), values), st.booleans())
def test_any_object_becomes_an_event_that_can_be_stored_or_is_kept_aside(
    given_object: dict, whole: bool
) -> None:
    """Nothing else is raised, whatever stands where."""
    base = {"at": "2026-11-21T14:20:32Z", "node": "n2", "kind": "xid"} if whole else {}
    found = event_lines.read([json.dumps(base | given_object).encode()], place())
    assert len(found.events) + len(found.bad) == 1
    for event in found.events:
        assert storable.why_not(event) is None
        arrow.table(records.HealthEvent, [event])


JOB = {
    "job_id": 7,
    "nodes": "n1",
    "state": {"current": ["FAILED"]},
    "time": {"submission": 1700000000, "start": 1700000000, "end": 1700000060},
    "user": "alice",
}
JOB_KEYS = (
    *JOB,
    "array",
    "het",
    "tres",
    "exit_code",
    "priority",
    "restart_cnt",
    "association",
    "steps",
    "comment",
)


@given(
    st.dictionaries(
        st.sampled_from(JOB_KEYS),
        values
        | st.dictionaries(
            st.sampled_from(["job_id", "task_id", "start", "end", "number", "set", "allocated", "current"]),
            values,
        ),
    )
)
@example({"time": {"start": 253402300800.0}})
@example({"time": {"start": 1.7e9, "elapsed": 10**30}})
def test_any_job_becomes_a_row_or_is_kept_aside(given_job: dict) -> None:
    """Of `sacct --json`: one job's nonsense costs no other job."""
    data = json.dumps({"jobs": [JOB | given_job, JOB | {"job_id": 8}]}).encode()
    found = sacct_json.parse_sacct_json(data)
    assert 8 in [a.job_id for a in found.attempts]
    assert len(found.attempts) + len(found.rejected) + len(found.not_started) + found.duplicates == 2
    arrow.table(records.JobAttempt, found.attempts)


FIELDS = (
    "JobIDRaw",
    "State",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "Suspended",
    "ExitCode",
    "NodeList",
    "AllocTRES",
    "TimelimitRaw",
    "Restarts",
    "Priority",
)
GOOD = (
    "7",
    "FAILED",
    "2023-11-14T22:13:20",
    "2023-11-14T22:13:20",
    "2023-11-14T22:14:20",
    "00:01:00",
    "00:00:00",
    "1:0",
    "n1",
    "cpu=1",
    "10",
    "0",
    "1",
)
words = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.sampled_from(
        [
            "0001-01-01T00:00:00",
            "9999-12-31T23:59:59",
            "9" * 20,
            "1e999",
            "n[1-9999999999]",
            "²",
            "-1",
            "CANCELLED by " + "9" * 40,
            "9" * 4301,
        ]
    ),
)


@given(
    st.dictionaries(st.sampled_from(FIELDS), words), st.sampled_from([None, "Asia/Tokyo", "America/New_York"])
)
def test_any_row_of_text_becomes_an_attempt_or_is_kept_aside(given_row: dict, zone: str | None) -> None:
    """Of `sacct -P`: nothing but MalformedInput of the whole file, and no attempt that could not be stored."""
    row = "|".join(given_row.get(name, good) for name, good in zip(FIELDS, GOOD, strict=True))
    data = "\n".join(("|".join(FIELDS), row, "|".join(("8", *GOOD[1:])))).encode("utf-8", "replace")
    try:
        found = sacct_text.parse_sacct_text(data, timezone=zone)
    except errors.MalformedInput:
        return
    assert all(storable.why_not(a) is None for a in found.attempts)
    arrow.table(records.JobAttempt, found.attempts)


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [
                XID.encode(),
                b"2026-11-21T14:20:32Z n2 " + XID.encode(),
                b"[99999999999.999999] " + XID.encode(),
            ]
        ),
        max_size=6,
    )
)
def test_any_lines_of_a_log_are_read_or_kept_aside(lines: list[bytes]) -> None:
    """Kernel log and job output of any bytes."""
    found = kernel.read(lines, place(zone=load.zone_of("Asia/Tokyo"), boots={"n2": NOW}))
    assert all(storable.why_not(event) is None for event in found.events)
    attempt = records.JobAttempt(
        cluster="c", job_id=1, submit_at=NOW, start_at=NOW, end_at=NOW, state="FAILED", nodes=("n1",)
    )
    assert all(storable.why_not(event) is None for event in joblog.read(lines, attempt, NOW))


def test_an_export_of_jobs_that_never_started_is_read_beside_a_broken_row(
    store: db_store.Store, tmp_path: Path
) -> None:
    """Rows of jobs that never started are read, too: the file is not one of another kind."""
    waited = "|CANCELLED by 7|2025-11-30T10:00:00|Unknown|2025-11-30T11:00:00|None assigned"
    broken = "9|FAILED|2025-11-30|2025-11-30|2025-11-30|n1"
    dump = tmp_path / "waited.txt"
    dump.write_text(
        "\n".join(["JobID|State|Submit|Start|End|NodeList", *(f"{n}{waited}" for n in range(1, 4)), broken])
    )
    done = load.load(store, order(sacct=[dump], timezone="UTC"))
    assert (done.n_attempts, len(done.bad)) == (0, 1)
    assert any("3 jobs that never started" in line for line in done.lines)
