"""Every prefix in the wild comes off and tells what it knows."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence import dates, prefixes
from tests.every_case import every

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."

STACKS = [
    "6,1234,5678901;",
    "** 11 printk messages dropped ** [   12.345678] ",
    "4 printk messages dropped ** [   12.345678] ",
    "2024-05-01 10:00:00 +0000 UTC kern.alert kernel: ",
    "2024-05-01 10:00:00 +0200 CEST n1 kern.err kernel: ",
    "May  1 10:00:00 n1 kern.warning kernel: [   12.345678] ",
    "May  1 10:00:00 kern.crit kernel: ",
    "May  1 10:00:00 src@n1 kernel: ",
    "May  1 10:00:00 s_net@ip-10-0-0-1 kernel: [   12.345678] ",
    "",
    "kernel: ",
    "[   12.345678] ",
    "[  +0.000316] ",
    "[Jun26 19:24] ",
    "[Jun 6 19:24] ",
    "[123] ",
    "[ 130.456250] [ T1946] ",
    "[   12.345678][    C3] ",
    "[Sun Feb 23 16:24:18 2025] ",
    "<3>[6085126.134786] ",
    "<4>",
    "6,1234,5678901,-;",
    "4,9,99,c,caller=T12;",
    "kern  :warn  : [   12.345678] ",
    "kern  :err   : 2025-01-21T04:41:44,285060+00:00 ",
    "192.168.1.21: kern:    info: [2025-04-13T16:56:59.792073331Z]: ",
    "192.168.1.21: kern: warning: [2025-04-13T16:56:59.792073331Z]: ",
    "2025-01-21T04:41:44,285060+00:00 ",
    "2024-05-01T10:00:00.123456+02:00 n1 kernel: ",
    "2024-05-01 10:00:00 n1 kernel: ",
    "Jan 21 11:18:36 n1 kernel: ",
    "Jan  2 11:18:36 n1 kernel: [  12.3] ",
    "Jan 21 2025 11:18:36 n1 kernel: ",
    "Okt 06 17:59:27 balrog kernel: ",
    "april 24 16:22:15 robin-linux-x3d kernel: ",
    "kernel: Jan 21 11:18:36 kernel: ",
    "08:22:19 kernel: ",
    "<6>Jan 21 11:18:36 n1 kernel: ",
    "<165>1 2003-10-11T22:14:15.003Z n1 kernel - - - ",
    '<165>1 2003-10-11T22:14:15.003Z n1 kernel 12 ID47 [ex@32473 iut="3" x="a\\]b"] ',
    "2024-05-01T10:00:00.123456789Z stderr F ",
    "2024-05-01T10:00:00.123456789Z stdout F [   12.3] ",
    "gpu-node-01: [   12.3] ",
    "gpu-node-01: kernel: ",
    "svc-1  | [   12.3] ",
    "Jan 21 11:18:37 loghost Jan 21 11:18:36 n1 kernel: ",
    "Jan 21 11:18:37 10.0.0.1 2024-05-01T10:00:00.123456+02:00 n1 kernel: [   12.3] ",
    "/var/log/messages:12:Jan 21 11:18:36 n1 kernel: ",
    "kern.log.1:Jan 21 11:18:36 n1 kernel: ",
    "[pod/dcgm-abcde/exporter] [   12.3] ",
    "I0213 12:34:56.789012   12345 watcher.go:123] ",
    "MESSAGE=",
    "[2023-06-22 21:55:31.352446][5975153.878190] ",
    "1700000000.123456 n1 kernel: ",
    "Sun 2025-06-29 19:20:26 UTC n1 kernel: ",
    "\x1b[32m[   12.345678] \x1b[0m",
    "/var/log/syslog-12-Jan 21 11:18:36 n1 kernel: ",
    "./n1/dmesg.txt:[   12.345678] ",
    "logs/n1/messages:33:Jan 21 11:18:36 n1 kernel: ",
    "n1.log-7-2024-05-01T10:00:00+02:00 n1 kernel: ",
    "12:[   12.345678] ",
    "**Jan 21 11:18:36 n1 kernel: ",
    "1204-Jan 21 11:18:36 n1 kernel: ",
    "   33  Jan 21 11:18:36 n1 kernel: ",
    "     9\t6,1234,5678901,-;",
    "2026/04/09 12:59:18 n1 kernel: ",
    "1744203558 n1 kernel: ",
    "n1\t[   12.345678] ",
    "n1> [   12.345678] ",
    "[n1] [   12.345678] ",
    "[11:18:36][c1-0c2s7n1]",
    "[   12.345678@3] ",
    "Tue Feb 28 10:08:36 2023 kern.warn kernel: [   12.345678] ",
]


@every("stack", STACKS)
def test_the_message_is_what_remains(stack: str) -> None:
    """Whatever stands in front, the same message comes out."""
    assert prefixes.parse(stack + MESSAGE).message.strip() == MESSAGE


@every(
    "line",
    [
        '{"MESSAGE": "' + MESSAGE + '", "_TRANSPORT": "kernel", "PRIORITY": "3", "_HOSTNAME": "n1"}',
        '{"log": "' + MESSAGE + '\\n", "stream": "stderr", "time": "2024-05-01T10:00:00.1Z"}',
        'time="2024-05-01T10:00:00Z" level=error msg="' + MESSAGE + '"',
        "Jan 21 11:18:36 n1 kernel: message repeated 9 times: [" + MESSAGE + "]",
        '{"_source": {"@timestamp": "2024-05-01T10:00:00Z", "process": {"name": "kernel"}, "message": "'
        + MESSAGE
        + '"}}',
        '{"labels": {"transport": "kernel"}, "line": "' + MESSAGE + '", "timestamp": "2024-05-01T10:00:00Z"}',
        '"2024-05-01 10:00:00","n1","kern","err","[ 77.000001] ' + MESSAGE + '"',
        '"May 1, 2024 @ 10:00:00.123",n1,kernel,"' + MESSAGE + '"',
        "n1|kern.err|1714557600.000001|" + MESSAGE,
        "2024-05-01T10:00:00Z;n1;kernel;" + MESSAGE,
        '7,2024-05-01T10:00:00Z,10.0.0.7,n1,kernel,err,,"' + MESSAGE + '"',
    ],
)
def test_wrapped_messages_are_unwrapped(line: str) -> None:
    """JSON of journald and docker, logfmt and rsyslog's repetition give the message."""
    assert prefixes.parse(line).message == MESSAGE


@every(
    "line",
    [
        "2024-05-01T10:00:00Z,n1,myprog,kernel,NVRM: Xid (PCI:0000:3b:00): 79, gone",
        '2024-05-01T10:00:00Z,n1,myprog,"kernel,NVRM: Xid (PCI:0000:3b:00): 79, gone"',
        "2024-05-01T10:00:00Z,kernel,myprog,NVRM: Xid (PCI:0000:3b:00): 79, gone",
        "2024-05-01T10:00:00Z|n1|kern|err|myprog|NVRM: Xid (PCI:0000:3b:00): 79, gone",
    ],
)
def test_a_program_of_a_log_store_is_not_the_kernel_by_what_it_prints(line: str) -> None:
    """Nor by a host of that name, or a facility that it chose."""
    assert not prefixes.parse(line).is_kernel


@every(
    ("line", "at"),
    [
        ("2026/04/09 12:59:18 n1 kernel: x", datetime(2026, 4, 9, 12, 59, 18, tzinfo=UTC)),
        ("1775739558 n1 kernel: x", datetime(2026, 4, 9, 12, 59, 18, tzinfo=UTC)),
        ("1775739558.000001 n1 kernel: x", datetime(2026, 4, 9, 12, 59, 18, 1, tzinfo=UTC)),
        (
            '{"@timestamp":"2026-04-09T12:59:18Z","program":"kernel","message":"x"}',
            datetime(2026, 4, 9, 12, 59, 18, tzinfo=UTC),
        ),
    ],
)
def test_a_date_of_another_form_gives_the_same_instant(line: str, at: datetime) -> None:
    """Dates with strokes, seconds since the epoch, a collector's JSON; the kernel wrote each."""
    found = prefixes.parse(line)
    assert (found.at, found.is_kernel, found.message) == (at, True, "x")


@every(
    "line",
    [
        "12:00 NVRM: Xid (PCI:0000:3b:00): 79",
        "notes.txt: see NVRM: Xid (PCI:0000:3b:00): 79",
        "train.log:step 12: NVRM: Xid (PCI:0000:3b:00): 79",
        "[rank0] NVRM: Xid (PCI:0000:3b:00): 79",
        "33 NVRM: Xid (PCI:0000:3b:00): 79",
    ],
)
def test_a_number_or_a_file_is_taken_off_only_where_a_whole_kernel_line_follows(line: str) -> None:
    """Otherwise it is text that speaks of one."""
    assert prefixes.parse(line).message == line


def test_a_journal_message_of_bytes_is_text() -> None:
    """journald prints messages with odd bytes as lists of numbers; they come out as text."""
    line = '{"MESSAGE": [78, 86, 82, 77, 255], "_TRANSPORT": "kernel"}'
    assert prefixes.parse(line).message == "NVRM\ufffd"


def test_what_the_prefix_says_is_kept() -> None:
    """A kmsg record gives sequence, facility, level and uptime; its escaped newline is a newline again."""
    line = prefixes.parse(r"3,7711,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: gone")
    assert (line.sequence, line.facility, line.priority, line.uptime_s) == (7711, 0, 3, 1843.308145)
    assert line.message == "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: gone"
    assert line.is_kernel is True


def test_repetition_is_counted() -> None:
    """rsyslog's count is not lost."""
    assert (
        prefixes.parse(
            "kernel: message repeated 9 times: [block nvme0n1: no available path - failing I/O]"
        ).repeat
        == 9
    )


@every(
    ("line", "kernel"),
    [
        ("6,1,2,-;x", True),
        ("14,1,2,-;x", False),
        ("<14>Jan 21 11:18:36 n1 bob: NVRM: Xid (PCI:0000:3b:00): 79", False),
        ("Jan 21 11:18:36 n1 kernel: x", True),
        ("Jan 21 11:18:36 n1 bob[12]: kernel panic", False),
        ("[   12.3] x", True),
        ("6,1,2;x", True),
        ("14,1,2;x", False),
        ("May  1 10:00:00 n1 kern.alert kernel: x", True),
        ("May  1 10:00:00 n1 user.notice kernel: x", False),
        ("May  1 10:00:00 kern.alert sudo: x", False),
        ("May  1 10:00:00.123456 n1 INFO kernel: [   12.345678] x", True),
        ("May  1 10:00:00.123456 n1 ERR sudo: x", False),
        ("2024-05-01 10:00:00 +0000 UTC local3.info kernel: x", False),
        ("May  1 10:00:00 src@n1 bob[12]: x", False),
        ("bob[12]: 4 printk messages dropped ** [   12.345678] x", None),
        ("2024-05-01_10:00:00.123+0200: [E] x", False),
        ("x", None),
        ("[2024-05-01T10:00:00.123] error: NVRM: Xid (PCI:0000:3b:00): 79", None),
        ("sudo: NVRM: Xid (PCI:0000:3b:00): 79", False),
        ("<3>Jan 21 11:18:36 n1 bob: x", False),
        ("<13>Jan 21 11:18:36 n1 kernel: x", False),
        ('time="2024-05-01T10:00:00Z" level=error msg="x"', False),
        ('{"MESSAGE": "x", "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1"}', False),
        ('{"MESSAGE": "x", "_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel"}', False),
        ('{"MESSAGE": "x", "_TRANSPORT": "syslog", "SYSLOG_FACILITY": "1"}', False),
    ],
)
def test_who_wrote_it(line: str, kernel: bool | None) -> None:
    """A forged line says by its facility or tag that the kernel did not write it."""
    assert prefixes.parse(line).is_kernel is kernel


def test_a_selector_between_date_and_tag_is_a_facility_and_a_level() -> None:
    """With and without a host, which it is not; nor is the name of the zone."""
    for text, host in (("UTC kern.alert", None), ("UTC n1 kern.alert", "n1"), ("UTC src@n1", "n1")):
        line = prefixes.parse(f"2024-05-01 10:00:00 +0000 {text} kernel: x")
        assert (line.at, line.host) == (datetime(2024, 5, 1, 10, tzinfo=UTC), host)
        assert (line.facility, line.priority) == ((0, 1) if "kern.alert" in text else (None, None))


@every(
    "before", ["INFO - ", "INFO - INFO - ", "guest-monitor ", "  Warning  Ext4Error  2m  kernel-monitor  "]
)
def test_what_anybody_may_have_written_stays(before: str) -> None:
    """A program's level, a guest's console and an event of Kubernetes are not the word of this node's kernel."""
    assert prefixes.parse(f"{before}[   12.345678] {MESSAGE}").message.strip() != MESSAGE


def test_instants() -> None:
    """Zones are honoured, a missing year is placed against the reference, and without one there is no instant."""
    at = datetime(2025, 1, 21, 4, 41, 44, 285060, tzinfo=UTC)
    assert prefixes.parse("2025-01-21T06:41:44,285060+02:00 x").at == at
    assert prefixes.parse("Dec 31 23:59:59 n1 kernel: x").at is None
    reference = datetime(2026, 1, 2, tzinfo=UTC)
    assert prefixes.parse("Dec 31 23:59:59 n1 kernel: x", reference).at == datetime(
        2025, 12, 31, 23, 59, 59, tzinfo=UTC
    )
    assert prefixes.parse("[Sun Feb 30 16:24:18 2025] x").at is None
    assert dates.iso("9999-12-31T23:59:59-23:59") is None


@every(
    "line",
    [
        "LustreError: 166-1: MGC: lost",
        "CPU: 17 PID: 2 Comm: x",
        "INFO: task a:1 blocked",
        "OSError: [Errno 5] Input/output error",
        "torch.AcceleratorError: [12.5] x",
        "EDAC MC0: 1 UE x",
    ],
)
def test_a_message_that_looks_like_a_prefix_stays_whole(line: str) -> None:
    """Words with a colon are the message's own, not a host's name."""
    assert prefixes.parse(line).message == line


@given(st.text())
def test_any_text_ends_and_never_grows(text: str) -> None:
    """Peeling terminates on any text and never makes it longer."""
    assert len(prefixes.parse(text).message) <= max(len(text), 0) or "\\x" in text or text.lstrip()[:1] == "{"


@every(
    ("head", "host", "at"),
    [
        ("2026-11-20T13:59:58.000000+01:00 gpu08 kernel - - - ", "gpu08", datetime(2026, 11, 20, 12, 59, 58, tzinfo=UTC)),
        ("[五 11月 20 13:59:58 2026] ", None, datetime(2026, 11, 20, 13, 59, 58, tzinfo=UTC)),
        ("x4207c7s5b0n0:[Fri Nov 20 13:59:58 2026] ", "x4207c7s5b0n0", datetime(2026, 11, 20, 13, 59, 58, tzinfo=UTC)),
        ("-worker-02 kernel: ", "-worker-02", None),
    ],
)  # fmt: skip
def test_heads_that_strangers_logs_had(head: str, host: str | None, at: datetime | None) -> None:
    """rsyslog's empty fields, a Chinese date, pdsh without a blank, a host that begins with a hyphen."""
    message = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    line = prefixes.parse(head + message)
    assert (line.message, line.host, line.at) == (message, host, at)


def test_a_kernel_line_that_a_container_passes_on_keeps_its_form() -> None:
    """`grep` of a kernel log inside a container; but a program's own line may begin with a path."""
    xid = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."
    record = f'{{"log":"/var/log/kern.log:Mar  1 10:00:00 n1 kernel: {xid}\\n","stream":"stdout"}}'
    assert prefixes.parse(record).message == xid
    own = "/var/spool/slurmd/job8/slurm_script: line 11: foo: command not found"
    assert prefixes.parse(f'{{"log":"{own}\\n","stream":"stdout"}}').message == own


def test_a_tab_ends_a_host_or_the_number_of_a_line() -> None:
    """`cat -n` numbers the lines of a kernel log without times so."""
    assert prefixes.parse("n7\tNVRM: Xid").message == "NVRM: Xid"
    assert prefixes.parse("7\tNVRM: Xid").message == "NVRM: Xid"


def test_bold_type_comes_off_at_both_ends() -> None:
    """Only around a whole line of a log, of which a program's own stays the program's."""
    assert prefixes.parse("**[   12.345678] NVRM: Xid** ").message == "NVRM: Xid"
    assert prefixes.parse("**NVRM: Xid**").message == "**NVRM: Xid**"
    line = prefixes.parse("Jan 21 11:18:36 n1 eve: **[   12.345678] NVRM: Xid**")
    assert (line.tag, line.message) == ("eve", "**[   12.345678] NVRM: Xid**")
