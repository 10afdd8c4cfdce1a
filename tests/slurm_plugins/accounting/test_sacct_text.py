"""Accounting's text: every hazard seen in real dumps, and the real dumps themselves."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.accounting import (
    attempt_rows,
    sacct_attempt,
    sacct_fields,
    sacct_rows,
    sacct_text,
)
from tests.every_case import every

MANY = 3 * settings.default.max_examples

HEADER = "JobIDRaw|JobID|State|Submit|Start|End|NodeList|AllocTRES|JobName|UID"
ROW = "7|7|COMPLETED|2024-01-01T10:00:00|2024-01-01T10:00:05|2024-01-01T11:00:05|n[1-2]|cpu=8,gres/gpu=16|train|1000"


def parse(*lines: str, **options: object) -> attempt_rows.ParseResult:
    return sacct_text.parse_sacct_text("\n".join(lines).encode("utf-8", "surrogateescape"), **options)  # type: ignore[arg-type]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_one_row_is_one_attempt() -> None:
    """Every column lands in its field, in the right unit."""
    fields = {
        "Cluster": "c1",
        "JobIDRaw": "124",
        "JobID": "123_4",
        "State": "CANCELLED by 1000",
        "Submit": "1700000000",
        "Eligible": "1700000001",
        "Start": "1700000002",
        "End": "1700000100",
        "Suspended": "00:00:10",
        "ExitCode": "1:9",
        "DerivedExitCode": "2:0",
        "NodeList": "n[1-2]",
        "AllocCPUS": "20K",
        "AllocTRES": "billing=3,gres/gpu:a100=8,mem=1G",
        "User": "alice",
        "Account": "lab",
        "Partition": "gpu",
        "QOS": "high",
        "Priority": "4294901",
        "TimelimitRaw": "90",
        "FailedNode": "n2",
        "Restarts": "2",
        "Reason": "None",
        "Comment": "x probing-run=llama/70b y",
        "WorkDir": "/home/alice",
        "StdOut": "/home/alice/out",
        "JobName": "train\x1b[31m",
    }
    (row,) = parse("|".join(fields), "|".join(fields.values())).attempts
    assert (row.cluster, row.job_id, row.array_job_id, row.array_task_id) == ("c1", 124, 123, 4)
    assert (row.state, row.cancelled_by, row.exit_code, row.exit_signal) == ("CANCELLED", "1000", 1, 9)
    assert [t.timestamp() for t in (row.submit_at, row.eligible_at, row.start_at, row.end_at) if t] == [
        1700000000,
        1700000001,
        1700000002,
        1700000100,
    ]
    assert (row.suspended_s, row.time_limit_s, row.derived_exit_code) == (10, 5400, 2)
    assert (row.nodes, row.n_gpus, row.n_cpus, row.priority) == (("n1", "n2"), 8, 20480, 4294901)
    assert (row.user, row.account, row.partition, row.qos) == ("alice", "lab", "gpu", "high")
    assert (row.failed_node, row.restart_count, row.reason) == ("n2", 2, "")
    assert (row.work_dir, row.stdout_path, row.name) == ("/home/alice", "/home/alice/out", "train")
    assert row.run_key == "llama/70b"


@pytest.mark.parametrize(
    ("state", "uid", "name"),
    [
        ("CANCELLED by 1000", "1000", "alice"),
        ("CANCELLED by 0", "1000", "root"),
        ("CANCELLED by 7", "1000", "7"),
        ("CANCELLED by 1000", "", "1000"),
        ("CANCELLED", "1000", None),
        ("CANCELLED by 0", "0", "root"),
    ],
)
def test_a_canceller_has_a_name_where_the_row_knows_it(state, uid, name):
    """The owner's uid stands in the row and 0 is root everywhere; no other uid is looked up on this host."""
    heads = "JobID|State|Submit|Start|End|User|UID|NodeList"
    values = f"7|{state}|1700000000|1700000001|1700000002|alice|{uid}|n1"
    (row,) = parse(heads, values).attempts
    assert row.cancelled_by == name


@pytest.mark.parametrize(
    ("raw", "limit_s"), [("525600", None), ("525599", 525599 * 60.0), ("UNLIMITED", None)]
)
def test_the_year_that_slurm_writes_for_no_limit_is_no_limit(raw, limit_s):
    """A job without a limit in a partition without one is stored by slurmctld as 365 days."""
    heads = "JobID|State|Submit|Start|End|User|TimelimitRaw|NodeList"
    (row,) = parse(heads, f"7|FAILED|1700000000|1700000001|1700000002|alice|{raw}|n1").attempts
    assert row.time_limit_s == limit_s


@pytest.mark.parametrize(
    "delimiter", ["|", "\x1f", "|#", "☃", ";", "\t", "^", ",", "~~", "\x1e", "\u2028", "\x85"]
)
def test_any_delimiter_is_read_off_the_header(delimiter: str) -> None:
    """The delimiter needs no telling, also where Python would take it for a line break."""
    row = ROW.replace("cpu=8,gres/gpu=16", "gres/gpu=16")
    result = parse(HEADER.replace("|", delimiter), row.replace("|", delimiter))
    assert [(a.job_id, a.n_gpus, a.name) for a in result.attempts] == [(7, 16, "train")]
    assert result.rejected == ()


def test_trailing_delimiter_of_p_is_not_a_column() -> None:
    """`sacct -p` ends header and rows with a delimiter."""
    assert len(parse(HEADER + "|", ROW + "|").attempts) == 1


def test_no_header_needs_the_field_list() -> None:
    """`--noheader` output is read with the fields it was made with, and refused without."""
    assert len(parse(ROW, fields=HEADER.split("|")).attempts) == 1
    assert len(parse(ROW + "|", fields=HEADER.split("|")).attempts) == 1
    with pytest.raises(errors.MalformedInput, match="no header line"):
        parse(ROW)


def test_the_field_list_may_carry_the_widths_of_format() -> None:
    """`--format=JobIDRaw%20,AllocTRES%-60` is what a site has at hand when it left the header out."""
    widths = [
        f"{name}%{width}" for name, width in zip(HEADER.split("|"), ["20", "-60", "+8"] * 4, strict=False)
    ]
    result = parse(ROW, fields=widths)
    assert [(a.job_id, a.n_gpus, a.nodes) for a in result.attempts] == [(7, 16, ("n1", "n2"))]


def test_the_table_for_people_is_read_by_its_columns() -> None:
    """Names with blanks, empty columns, steps, and a state that was cut short."""
    result = parse(
        "JobID           JobName      State               Start                 End   NodeList ",
        "------------ ---------- ---------- ------------------- ------------------- ---------- ",
        "918223       my run, 3  CANCELLED+ 2025-11-30T19:40:09 2025-12-01T02:17:55   gpu-3-11 ",
        "918223.exte+     extern  COMPLETED 2025-11-30T19:40:09 2025-12-01T02:17:55   gpu-3-11 ",
        "918224                      FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55  n[01-02]",
        "",
    )
    assert result.rejected == ()
    assert [(a.job_id, a.state, a.name, a.nodes) for a in result.attempts] == [
        (918223, "CANCELLED", "my run, 3", ("gpu-3-11",)),
        (918224, "FAILED", "", ("n01", "n02")),
    ]
    assert result.steps == 1
    assert not any("cut short" in note for note in result.notes)


def test_a_row_of_the_table_for_people_that_a_copy_moved_is_read() -> None:
    """A chat that squeezes blanks moves words by a little; a word that stands under no column says that more is wrong."""
    rule = "------------ ---------- --------- ---------- ------------------- ------------------- ----------"
    result = parse(
        "JobID           JobName Partition      State               Start                 End   NodeList",
        rule,
        "918223         esm_embed      gpu     FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55    gpu-3-11",
        "918224       two words              FAILED  2025-11-30T19:40:09  2025-12-01T02:17:55   gpu-3-12",
        "918225       x   FAILED gpu 2025-11-30T19:40:09 2025-12-01T02:17:55 2025-12-01T02:17:55 gpu-3-11",
    )
    assert [(a.job_id, a.name, a.partition, a.state, a.nodes) for a in result.attempts] == [
        (918223, "esm_embed", "gpu", "FAILED", ("gpu-3-11",)),
        (918224, "two words", "", "FAILED", ("gpu-3-12",)),
    ]
    assert [r.line_no for r in result.rejected] == [5]


def test_what_the_table_for_people_cut_short_is_left_out() -> None:
    """Half a list of nodes would be other nodes; half a job number another job."""
    result = parse(
        "JobID               State               Start                 End   NodeList  AllocTRES ",
        "------------ ------------ ------------------- ------------------- ---------- ---------- ",
        "7                  FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55 gpu-3-[11+ billing=8+ ",
        "123456789_1+       FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55   gpu-3-11 ",
        "8                  FAILED 2025-11-30T19:40:09 2025-12-01T02:17:5+   gpu-3-11 ",
        "9 wanders ab out   FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55   gpu-3-11 ",
    )
    assert [(a.job_id, a.nodes, a.n_gpus) for a in result.attempts] == [(7, (), None)]
    assert [r.line_no for r in result.rejected] == [4, 5, 6]
    assert [note for note in result.notes if "cut short" in note] == [
        "sacct's table for people: 2 values cut short and left out; `sacct -P` prints them whole"
    ]
    with pytest.raises(errors.MalformedInput, match="lacks Start, End"):
        parse("JobID           JobName      State", "------------ ---------- ----------", "7 a FAILED")


def test_empty_input_is_an_empty_answer() -> None:
    """No jobs is not an error."""
    assert parse("") == attempt_rows.ParseResult()
    assert parse(HEADER) == attempt_rows.ParseResult()


def test_newlines_in_a_field_are_joined() -> None:
    """A job name with line breaks, one of them in front of an empty line, is one record."""
    result = parse(HEADER, ROW.replace("train", "a\nb\n\nc"), ROW.replace("7|7", "8|8"))
    assert [(a.job_id, a.name) for a in result.attempts] == [(7, "a b  c"), (8, "train")]
    assert result.rejected == ()


def test_delimiters_in_a_field_are_told_apart_by_type() -> None:
    """A job name with delimiters, also beside line breaks, leaves the other columns in place."""
    for name in ("a|b", "|", "a||b|", "x|7|7|y", "a\nb|c\n|d"):
        result = parse(HEADER, ROW.replace("train", name))
        assert [(a.job_id, a.n_gpus, a.name) for a in result.attempts] == [(7, 16, name.replace("\n", " "))]


@pytest.mark.parametrize("node", ["1080ti-1", "3u-gpu[01-02]", "10-2-a[1,3]", "2080ti"])
def test_a_node_name_may_begin_with_a_digit(node: str) -> None:
    """Such a name tells columns apart like any other; a memory size or a count does not pass for one."""
    result = parse(HEADER, ROW.replace("n[1-2]", node).replace("train", "a|b"))
    assert [(a.job_id, a.name) for a in result.attempts] == [(7, "a|b")]
    assert result.attempts[0].nodes[0].startswith(node.partition("[")[0])
    fits = sacct_fields.check_of("NodeList")
    assert fits is not None
    assert not any(fits(text) for text in ("16", "16G", "4000Mc", "1.5T", "2024-01-01T10:00:00"))


def test_commas_that_nobody_can_tell_apart_are_refused_at_once() -> None:
    """A whole `--format=ALL` whose bars somebody made commas: minutes a file, and no row in the end."""
    header = HEADER.replace("|", ",").replace("JobName", "JobName,Account,Comment")
    row = ROW.replace("|", ",").replace("train", "a,b,c,d,e")
    with pytest.raises(errors.MalformedInput, match="run sacct again with -P"):
        parse(header, *[row] * 6)


def test_rows_with_another_delimiter_name_it() -> None:
    """`--noheader` with `--delimiter=';'`, read with the fields alone."""
    made = parse(ROW.replace("|", ";"), fields=HEADER.split("|"))
    (bad,) = made.rejected
    assert "--delimiter ';'" in bad.why


def test_a_comma_as_delimiter_does_not_cut_slurms_own_lists() -> None:
    """Node lists and TRES hold commas of their own; with `--delimiter=,` they are put together again."""
    result = parse(
        "JobIDRaw,State,Submit,Start,End,NodeList,AllocCPUS,AllocTRES,JobName,UID",
        "7,FAILED,100,110,200,n[1,3-4],m2,32,billing=8,cpu=32,gres/gpu=16,my, job,1000",
        "8,FAILED,100,110,200,n1,32,cpu=32,gres/gpu=4,x,1000",
    )
    assert [(a.job_id, a.nodes, a.n_cpus, a.n_gpus, a.name) for a in result.attempts] == [
        (7, ("n1", "n3", "n4", "m2"), 32, 16, "my, job"),
        (8, ("n1",), 32, 4, "x"),
    ]


def test_the_named_cluster_files_every_row() -> None:
    """A name given by the caller wins over the column, so that attempts meet events under one name."""
    head, row = "JobIDRaw|Cluster|State|Start|End", "7|theirs|FAILED|1|2"
    assert [a.cluster for a in parse(head, row).attempts] == ["theirs"]
    assert [a.cluster for a in parse(head, row, cluster="ours").attempts] == ["ours"]


def test_a_field_that_could_be_cut_two_ways_is_set_aside() -> None:
    """Where a delimiter in one text may shift a column we use, nobody guesses."""
    result = parse("JobID|State|Start|End|JobName|User|Comment", "7|COMPLETED|1700000000|1700000001|a|b|c|d")
    assert result.attempts == ()
    assert [r.why for r in result.rejected] == ["8 fields where the header has 7"]


def test_empty_pieces_within_a_submit_line_stand_for_no_column() -> None:
    """`||` and a pipe at the end of a command leave pieces that pass for a time, an empty comment, an absent user."""
    head = "JobID|JobIDRaw|JobName|State|Submit|Start|End|SubmitLine|Suspended|SystemCPU|SystemComment|Timelimit|User|WorkDir"
    line = "89|89|wrap|COMPLETED|2026-11-24T10:00:00|2026-11-24T10:00:00|2026-11-24T11:00:00|[ x ] | y || z ||00:00:00|00:00.001||UNLIMITED|ann|/tmp"
    found = parse(head, line)
    assert found.rejected == ()
    assert [(a.user, a.work_dir, a.time_limit_s, a.suspended_s) for a in found.attempts] == [
        ("ann", "/tmp", None, 0.0)
    ]


def test_a_script_in_the_submit_line_is_one_field() -> None:
    """A `--wrap` of many lines with pipes does not cost the rows around it."""
    script = "sbatch --wrap='set -e\n" + "zcat x | sort | uniq -c | head\n" * 40 + "'"
    result = parse(
        "JobIDRaw|State|Submit|SubmitLine|Start|End|UID",
        "1|FAILED|1700000000|x|1700000001|1700000002|0",
        f"2|FAILED|1700000000|{script}|1700000001|1700000002|0",
        "3|FAILED|1700000000|x|1700000001|1700000002|0",
    )
    assert [a.job_id for a in result.attempts] == [1, 2, 3]
    assert result.rejected == ()


def test_bad_utf8_harms_nothing_but_itself() -> None:
    """Bytes that are no text become a visible mark in their own field."""
    data = (HEADER + "\n" + ROW).encode().replace(b"train", b"tr\xff\xfein")
    (row,) = sacct_text.parse_sacct_text(data).attempts
    assert row.name == "tr\ufffd\ufffdin"


def test_stray_text_and_repeated_headers() -> None:
    """Shell noise around and between dumps is set aside with its line number; a new header takes over."""
    swapped = "|".join(reversed(HEADER.split("|")))
    result = parse(
        "Welcome to login1",
        HEADER,
        "sacct: error: something",
        ROW,
        HEADER,
        "",
        ROW.replace("7|7", "8|8"),
        swapped,
        "|".join(reversed(ROW.replace("7|7", "9|9").split("|"))),
        "Connection closed",
    )
    assert [a.job_id for a in result.attempts] == [7, 8, 9]
    assert [(r.line_no, r.why) for r in result.rejected] == [
        (1, "before the first header line"),
        (3, "stray text between records"),
        (10, "stray text between records"),
    ]


def test_a_truncated_row_costs_only_itself() -> None:
    """A row cut short is set aside and the next one is whole, even when that one has line breaks."""
    result = parse(HEADER, ROW[:60], ROW.replace("train", "a\nb"), ROW.replace("7|7", "8|8"))
    assert [a.job_id for a in result.attempts] == [7, 8]
    assert len(result.rejected) == 1


def test_windows_line_ends_and_byte_order_mark() -> None:
    """A dump that went through Windows reads the same."""
    data = b"\xef\xbb\xbf" + (HEADER + "\r\n" + ROW + "\r\n").encode()
    assert sacct_text.parse_sacct_text(data).attempts == parse(HEADER, ROW).attempts


def test_columns_an_attempt_needs() -> None:
    """A field list without them is refused once, naming line and columns, not once for every row."""
    with pytest.raises(errors.MalformedInput, match=r"line 1: the field list lacks Start, End, .*--format"):
        parse("JobID|JobName|State", "1|a|FAILED", "2|a|FAILED")


def test_a_lacking_field_list_that_a_person_wrote_costs_no_row_before_it() -> None:
    """Below sacct's own header it may be a job's name."""
    result = parse(HEADER, ROW, "JobID|JobName|State", "1|a|FAILED")
    assert [a.job_id for a in result.attempts] == [7]
    assert [r.why for r in result.rejected] == ["the field list lacks Start, End"]


@every(
    "number, column",
    itertools.product(
        ["9" * 20, "9" * 5000, "1e999", "²"],
        ["JobID", "ElapsedRaw", "Restarts", "TimelimitRaw", "ExitCode", "Start"],
    ),
)
def test_a_number_that_is_none_costs_only_its_row(column: str, number: str) -> None:
    """However long: the row is set aside with a reason, or the field reads as unknown; the next row is whole."""
    names = ["JobID", "State", "Start", "End", "ElapsedRaw", "Restarts", "TimelimitRaw", "ExitCode"]
    good = ["8", "FAILED", "1700000000", "1700000060", "60", "0", "10", "1:0"]
    bad = [
        f"{number}:0" if n == column == "ExitCode" else number if n == column else v
        for n, v in zip(names, good, strict=True)
    ]
    result = parse("|".join(names), "|".join(bad), "|".join(["9", *good[1:]]))
    assert 9 in [a.job_id for a in result.attempts]
    assert len(result.attempts) + len(result.rejected) == 2


def test_submit_and_end_have_stand_ins() -> None:
    """Without Submit the start is the key, without End the elapsed time gives it; the first is said."""
    result = parse("JobID|State|Start|ElapsedRaw", "1|FAILED|1700000000|60")
    (row,) = result.attempts
    assert row.end_at == row.submit_at + timedelta(seconds=60)
    assert any("no Submit" in note for note in result.notes)


def test_the_beginning_of_unix_time_is_no_start() -> None:
    """1970 stands where nobody knew the start: half a century on a node's GPUs would swamp every figure."""
    rows = [
        f"{job}|FAILED|{start}|2026-11-10T11:00:00"
        for job, start in ((1, "1970-01-01T00:00:00"), (2, "2026-11-10T10:00:00"))
    ]
    result = parse("JobID|State|Start|End", *rows)
    assert [a.job_id for a in result.attempts] == [2]
    assert "not known" in result.rejected[0].why


def test_jobs_that_never_ran_are_no_attempts() -> None:
    """Pending, cancelled while pending (in the old and the new writing), pending arrays and federation siblings."""
    result = parse(
        "JobID|State|Submit|Start|End|NodeList|Elapsed",
        "1|PENDING|2024-01-01T10:00:00|Unknown|Unknown|None assigned|00:00:00",
        "2|CANCELLED by 7|2024-01-01T10:00:00|None|2024-01-01T10:00:09|None assigned|00:00:00",
        "3|CANCELLED by 7|2024-01-01T10:00:00|2024-01-01T10:00:09|2024-01-01T10:00:09|None assigned|00:00:00",
        "4_[5-9%2]|PENDING|2024-01-01T10:00:00|Unknown|Unknown|None assigned|00:00:00",
        "5|REVOKED|2024-01-01T10:00:00|2024-01-01T10:00:09|2024-01-01T10:00:10|n1|00:00:01",
        "6|PENDING|2024-01-01T10:00:00|2024-01-02T10:00:00|Unknown|None assigned|00:00:00",
    )
    assert result.attempts == ()
    assert [n.job_id for n in result.not_started] == ["1", "2", "3", "4_[5-9%2]", "5", "6"]


def test_requeued_starts_are_counted_by_submit() -> None:
    """Rows of one job id with different submit times are attempts 1, 2, 3, in whatever order they come."""
    head = "JobIDRaw|State|Submit|Start|End"
    result = parse(
        head, "7|COMPLETED|300|310|400", "7|NODE_FAIL|100|110|200", "7|REQUEUED|200|210|290", "8|FAILED|1|2|3"
    )
    assert [(a.job_id, a.attempt, a.state) for a in result.attempts] == [
        (8, 1, "FAILED"),
        (7, 1, "NODE_FAIL"),
        (7, 2, "REQUEUED"),
        (7, 3, "COMPLETED"),
    ]


def test_a_job_in_two_windows_is_one_attempt() -> None:
    """Where dumps overlap the row that knows the end wins, whichever comes first."""
    head = "JobIDRaw|State|Submit|Start|End"
    running, ended = "7|RUNNING|100|110|Unknown", "7|FAILED|100|110|200"
    for rows in ((running, ended), (ended, running), (ended, ended)):
        result = parse(head, *rows)
        assert [(a.state, a.attempt) for a in result.attempts] == [("FAILED", 1)]
        assert result.duplicates == 1


def test_resized_rows_are_one_attempt() -> None:
    """A job that shrank keeps its first submit and start, its last end, every node and the most GPUs."""
    result = parse(
        "JobIDRaw|State|Submit|Start|End|NodeList|AllocTRES",
        "7|RESIZING|100|110|200|n[1-4]|gres/gpu=32",
        "7|FAILED|200|200|300|n[1-2]|gres/gpu=16",
        "7|COMPLETED|310|320|400|n[5-6]|gres/gpu=16",
    )
    first, second = result.attempts
    assert (first.submit_at.timestamp(), first.start_at, first.state) == (100, first.start_at, "FAILED")
    assert first.start_at is not None
    assert first.start_at.timestamp() == 110
    assert first.end_at is not None
    assert first.end_at.timestamp() == 300
    assert (first.nodes, first.n_gpus) == (("n1", "n2", "n3", "n4"), 32)
    assert (second.attempt, result.merged) == (2, 1)


def test_running_jobs_have_no_end() -> None:
    """RUNNING and SUSPENDED attempts are open whatever the End column says."""
    result = parse("JobIDRaw|State|Submit|Start|End", "7|RUNNING|1|2|Unknown", "8|SUSPENDED|1|2|99")
    assert [a.end_at for a in result.attempts] == [None, None]


def test_array_and_het_ids() -> None:
    """Raw ids are kept; where only 123_4 is known the stand-in cannot meet a real id and is said."""
    head = "JobIDRaw|JobID|State|Submit|Start|End"
    result = parse(head, "200|123_4|FAILED|1|2|3", "301|300+1|FAILED|1|2|3", "300|300+0|FAILED|1|2|3")
    assert [(a.job_id, a.array_job_id, a.array_task_id, a.run_key) for a in result.attempts[:1]] == [
        (200, 123, 4, "123_4")
    ]
    assert [(a.job_id, a.het_job_id, a.het_offset, a.run_key) for a in result.attempts[1:]] == [
        (300, 300, 0, "300"),
        (301, 300, 1, "300"),
    ]
    short = parse(
        "JobID|State|Submit|Start|End", "123_4|FAILED|1|2|3", "123_5|FAILED|1|2|3", "300+1|FAILED|1|2|3"
    )
    assert len({a.job_id for a in short.attempts}) == 3
    assert [a.job_id > 2**32 for a in short.attempts] == [False, True, True]
    assert any("JobIDRaw" in note for note in short.notes)


def test_gpu_counts_come_from_the_best_column() -> None:
    """Allocated TRES first, then old AllocGRES, then what was asked for; types are summed once."""
    head = "JobIDRaw|State|Submit|Start|End|NodeList|AllocNodes|AllocTRES|AllocGRES|ReqTRES|ReqGRES"
    cases = {
        "cpu=1,gres/gpu=8,gres/gpu:a100=8|||": 8,
        "cpu=1,gres/gpu:a100=4,gres/gpu:h100=2|||": 6,
        "cpu=1|gpu:volta:16||": 16,
        "cpu=1||gres/gpu=4|": 4,
        "|||PER_NODE:gpu:8": 16,
        "|||PER_JOB:gpu:8": 8,
        "|||PER_TASK:gpu:1": None,
        "cpu=1,gres/gpumem=20480M|||": None,
    }
    for text, wanted in cases.items():
        result = parse(head, f"7|FAILED|1|2|3|n[1-2]|2|{text}")
        assert [a.n_gpus for a in result.attempts] == [wanted], text


def test_no_gpus_is_zero_only_where_gpus_are_accounted() -> None:
    """A CPU job beside GPU jobs of its cluster has none. Long before the first of them the count is unknown: GPUs may not have been accounted."""
    head = "JobIDRaw|Cluster|State|Submit|Start|End|AllocCPUS|AllocTRES"
    days = {"1": 1, "2": 9, "3": 10, "4": 11}
    rows = [
        f"{job}|c|FAILED|{day * 86400}|{day * 86400 + 1}|{day * 86400 + 2}|4|{'gres/gpu=4' if job == '3' else 'cpu=4'}"
        for job, day in days.items()
    ]
    assert [a.n_gpus for a in parse(head, *rows).attempts] == [None, 0, 4, 0]
    of_another = [row.replace("|c|", "|d|") if row[0] != "3" else row for row in rows]
    assert [a.n_gpus for a in parse(head, *of_another).attempts] == [None, None, 4, None]
    narrow = [row.replace("|4|cpu=4", "|cpu=4,node=2").replace("|4|gres", "|gres") for row in rows]
    read = parse(head.replace("|AllocCPUS", ""), *narrow).attempts
    assert [(a.n_gpus, a.n_cpus) for a in read] == [(None, 4), (0, 4), (4, None), (0, 4)]
    assert [a.n_gpus for a in parse(head, rows[0], gpus_accounted=True).attempts] == [0]
    assert [a.n_gpus for a in parse(head, *rows, gpus_accounted=False).attempts] == [None, None, 4, None]


def test_local_times_in_a_named_zone() -> None:
    """Wall-clock text is read in the zone given; without one it is UTC and the result says so."""
    head, row = "JobIDRaw|State|Submit|Start|End", "7|FAILED|{0}:00|{0}:05|{0}:09".format("2024-07-01T12:00")
    (there,) = parse(head, row, timezone="Europe/Berlin").attempts
    assert there.submit_at == utc("2024-07-01T10:00:00")
    assert not any("UTC" in note for note in parse(head, row, timezone="Europe/Berlin").notes)
    assert parse(head, row).attempts[0].submit_at == utc("2024-07-01T12:00:00")
    assert any("read as UTC" in note for note in parse(head, row).notes)
    offset = "7|FAILED|{0}:00+0200|{0}:05+0200|{0}:09+0200".format("2024-07-01T12:00")
    result = parse(head, offset)
    assert result.attempts[0].submit_at == utc("2024-07-01T10:00:00")
    assert not any("read as UTC" in note for note in result.notes), "these times say their zone"
    with pytest.raises(errors.MalformedInput, match="time zone"):
        parse(head, row, timezone="Mars/Olympus")


def test_the_repeated_hour_is_decided_by_order_and_elapsed() -> None:
    """In the hour that clocks repeat, order and elapsed seconds choose; where they cannot, that is said."""
    head = "JobIDRaw|State|Submit|Start|End|ElapsedRaw"
    day = "2024-10-27T"  # Europe/Berlin: 03:00 CEST became 02:00 CET
    row = f"7|FAILED|{day}00:00:00|{day}02:30:00|{day}02:40:00|"
    for elapsed_s in (600, 4200):
        result = parse(head, row + str(elapsed_s), timezone="Europe/Berlin")
        (attempt,) = result.attempts
        assert attempt.start_at is not None
        assert attempt.end_at is not None
        assert (attempt.end_at - attempt.start_at).total_seconds() == elapsed_s
        unsure = any("clocks repeated" in note for note in result.notes)
        assert unsure == (elapsed_s == 600), "600 s fits before and after the change"
    backwards = f"7|FAILED|{day}00:00:00|{day}02:50:00|{day}02:10:00|1200"
    (attempt,) = parse(head, backwards, timezone="Europe/Berlin").attempts
    assert attempt.start_at == utc("2024-10-27T00:50:00")
    assert attempt.end_at == utc("2024-10-27T01:10:00")


def test_an_hour_that_never_was_means_a_wrong_zone() -> None:
    """A time the zone's clocks skipped is set aside with that suspicion."""
    result = parse(
        "JobIDRaw|State|Submit|Start|End",
        "7|FAILED|2024-03-31T01:00:00|2024-03-31T02:30:00|2024-03-31T04:00:00",
        timezone="Europe/Berlin",
    )
    assert "is the time zone right" in result.rejected[0].why


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x|FAILED|1|2|3|n1", "cannot be a jobidraw"),
        ("7|FAILED|1|2024-13-45T99:00:00|3|n1", "is not a time"),
        ("7|FAILED|1|yesterday|3|n1", "cannot be a start; export again without SLURM_TIME_FORMAT"),
        ("7|FAILED|1|200|100|n1", "ends before it starts"),
        ("7|FAILED|1|2|3|n[1-", "unbalanced"),
        ("7|failed|1|2|3|n1", "cannot be a state"),
        ("7|BANANA|1|2|3|n1", "'BANANA' is no state that Slurm has, such as COMPLETED, FAILED"),
        ("7|BANANA|1|None|3|None assigned", "'BANANA' is no state that Slurm has"),
        ("7|COMPL+|1|2|3|n1", "cut short (it may be COMPLETED or COMPLETING)"),
    ],
)
def test_rows_that_cannot_be_true_are_set_aside(row: str, why: str) -> None:
    """Every bad row is kept, with its text and a reason."""
    result = parse("JobIDRaw|State|Submit|Start|End|NodeList", row)
    assert result.attempts == ()
    assert [(r.line_no, r.text) for r in result.rejected] == [(2, row)]
    assert why in result.rejected[0].why


def test_states_cut_short_are_completed() -> None:
    """Dumps of the table for people, converted by hand, carry `CANCELLED+`."""
    assert sacct_attempt.state_of("CANCELLED+") == ("CANCELLED", None)
    assert sacct_attempt.state_of("OUT_OF_ME+") == ("OUT_OF_MEMORY", None)
    assert sacct_attempt.state_of("REQUEUE_H+") == ("REQUEUE_HOLD", None)
    assert sacct_attempt.state_of("COMPL+") == ("COMPL+", None), "COMPLETED or COMPLETING: not guessed"


@every("state", sorted(attempt_rows.STATES | {"CANCELLED by 1000", "CANCELLED+"}))
def test_a_row_of_every_state_of_slurm_is_taken(state: str) -> None:
    """Flags of newer releases and what sacct writes behind a state are no reason to set a row aside."""
    result = parse("JobIDRaw|State|Submit|Start|End|NodeList", f"7|{state}|1|2|3|n1")
    assert result.rejected == ()
    assert len(result.attempts) + len(result.not_started) == 1


FREE = st.text(st.sampled_from("ab|\n\r ;\x1f\tü"), max_size=12)


@settings(max_examples=MANY)
@given(st.lists(st.tuples(FREE, FREE), max_size=8))
def test_with_a_delimiter_nobody_knows_no_text_can_harm(texts: list[tuple[str, str]]) -> None:
    """Whatever stands in names and comments, every row comes back with exactly its own columns."""
    delimiter = "\x1f5eed\x1f"
    lines = [delimiter.join(["JobIDRaw", "State", "Submit", "JobName", "Comment", "Start", "End", "UID"])]
    lines += [
        delimiter.join([str(n), "FAILED", "100", name, comment, "110", str(200 + n), "0"])
        for n, (name, comment) in enumerate(texts, 1)
    ]
    result = sacct_text.parse_sacct_text("\n".join(lines).encode(), delimiter=delimiter)
    assert result.rejected == ()
    assert [(a.job_id, a.end_at.timestamp()) for a in result.attempts if a.end_at] == [
        (n, 200 + n) for n in range(1, len(texts) + 1)
    ]


@settings(max_examples=MANY)
@given(
    st.lists(
        st.sampled_from([HEADER, ROW, ROW[:50], ROW[50:], ROW.replace("train", "a|b"), "x", "", "|" * 12]),
        max_size=12,
    )
)
def test_every_line_is_accounted_for(lines: list[str]) -> None:
    """No line disappears: each is in a record, in a rejection, a header, or empty."""
    text = "\n".join([HEADER, *lines])
    accounted = sum(line in {HEADER, ""} for line in [HEADER, *lines])
    shown = 0
    for item in sacct_rows.read(text.encode()):
        shown += (
            len([part for part in item.text.split("\n") if part])
            if isinstance(item, sacct_rows.SacctRow)
            else 1
        )
    assert shown + accounted == len(lines) + 1


@settings(max_examples=MANY)
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=200).map(lambda b: HEADER.encode() + b"\n" + b)))
def test_no_bytes_break_it(data: bytes) -> None:
    """Arbitrary bytes are parsed or refused by name, never by accident."""
    try:
        result = sacct_text.parse_sacct_text(data)
    except errors.MalformedInput:
        return
    assert all(row.start_at is not None for row in result.attempts)


SAMPLES = {
    "sample-sacct-fake-line-break.txt": (2, 0, 0, 2, 0),
    "sample-sacct-one-multiline.txt": (2, 0, 0, 2, 0),
    "sample-sacct-multiple-multiline.txt": (2, 0, 0, 2, 2),
    "sample-sacct-output-invalid-utf8.txt": (2, 0, 0, 9, 0),
    "sample-sacct-output-midnight-edge-case.txt": (306, 0, 0, 880, 0),
    "sample-sacct-output-with-invalid-lines.txt": (0, 1, 0, 0, 0),
    "sample-sacct-output.txt": (0, 0, 0, 68, 0),
    "sample-sacct-running-output.txt": (0, 0, 0, 10, 0),
    "sample-sacct-running-output-large.txt": (0, 0, 0, 5040, 0),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_dumps_parse_without_loss(shared_samples: Path, name: str) -> None:
    """Attempts, rejections, never-started, steps and doubles of Meta's dumps, counted by hand."""
    result = sacct_text.parse_sacct_text((shared_samples / "slurm/gcm_sacct" / name).read_bytes())
    found = (
        len(result.attempts),
        len(result.rejected),
        len(result.not_started),
        result.steps,
        result.duplicates,
    )
    assert found == SAMPLES[name]


def test_multiline_dumps_equal_their_hand_joined_twins(shared_samples: Path) -> None:
    """Meta's own joined versions of the multi-line dumps give the same attempts."""
    for name in ("fake-line-break", "one-multiline", "multiple-multiline"):
        stem = shared_samples / "slurm/gcm_sacct" / f"sample-sacct-{name}"
        broken = sacct_text.parse_sacct_text(stem.with_suffix(".txt").read_bytes())
        joined = sacct_text.parse_sacct_text(stem.with_name(stem.name + "-expected.txt").read_bytes())
        assert broken.attempts == joined.attempts


def test_a_dump_without_header_and_a_snowman(shared_samples: Path) -> None:
    """242 rows of a Dutch site: `-p`, no header, delimiter U+2603, GPUs only once the site accounts them."""
    directory = shared_samples / "slurm/text/hb-jobinfo"
    readme = (directory / "README.md").read_text()
    fields = readme.split("sacct --format=")[1].split()[0].split(",")
    data = (directory / "sacct.txt").read_bytes()
    result = sacct_text.parse_sacct_text(data, delimiter="☃", fields=fields, timezone="Europe/Amsterdam")
    assert (len(result.attempts), len(result.not_started), result.steps, result.rejected) == (90, 10, 142, ())
    by_id = {a.job_id: a for a in result.attempts}
    assert (by_id[7965768].n_gpus, by_id[7965768].cancelled_by) == (1, "10314909")
    assert by_id[4034541].n_gpus is None
    assert by_id[4034541].start_at == utc("2023-09-01T03:51:10")
    assert data.count(b"\n") == len(result.attempts) + len(result.not_started) + result.steps


@pytest.mark.parametrize(
    ("written", "status"), [("0:11", 139), ("3:0", 3), ("3:9", 3), ("0:0", 0), ("", None)]
)
def test_a_step_that_a_signal_ended_has_a_status_as_a_shell_gives_it(
    written: str, status: int | None
) -> None:
    """Slurm writes 0:11 of a step that crashed: its code alone would say that nothing failed."""
    names = "JobIDRaw State Submit Start End ExitCode DerivedExitCode"
    values = f"5|COMPLETED|2026-11-28T10:00:00|2026-11-28T10:00:00|2026-11-28T10:01:00|0:0|{written}"
    (row,) = parse(names.replace(" ", "|"), values).attempts
    assert row.derived_exit_code == status


def test_a_word_beside_every_column_sets_its_row_aside() -> None:
    """A row with a word too many, or moved to the left of the table, may have any field in a wrong place."""
    head = (
        "   JobID           JobName Partition      State               Start                 End   NodeList"
    )
    rule = (
        "   ------------ ---------- --------- ---------- ------------------- ------------------- ----------"
    )
    good = (
        "   918223         esm_embed      gpu     FAILED 2025-11-30T19:40:09 2025-12-01T02:17:55   gpu-3-11"
    )
    result = parse(head, rule, good, good + "  gpu-3-12", "9" + good[1:])
    assert [a.job_id for a in result.attempts] == [918223]
    assert [r.line_no for r in result.rejected] == [4, 5]


CHANGES = [
    ("Europe/Berlin", "2024-03-31T01:00:00"),
    ("Europe/Berlin", "2024-10-27T01:00:00"),
    ("America/New_York", "2024-03-10T07:00:00"),
    ("America/New_York", "2024-11-03T06:00:00"),
    # Half an hour, and in the other half of the year.
    ("Australia/Lord_Howe", "2024-10-05T15:30:00"),
    ("Australia/Lord_Howe", "2024-04-06T15:00:00"),
]
"""Zone, and the instant (UTC) at which its clocks are changed."""


@settings(max_examples=MANY)
@given(
    st.sampled_from(CHANGES),
    st.integers(-3 * 3600, 2 * 3600),
    st.sampled_from([0, 1, 60]) | st.integers(0, 3 * 3600),
    st.sampled_from([0, 1, 1800, 3600, 7200]) | st.integers(0, 4 * 3600),
    st.booleans(),
)
def test_times_around_both_changes_of_the_clocks(
    change: tuple[str, str], begin_s: int, waited_s: int, ran_s: int, with_elapsed: bool
) -> None:
    """Each time is the true one, or the result says that clocks repeated; a row is never lost and never runs backwards."""
    zone, at = change
    submit = utc(at) + timedelta(seconds=begin_s)
    times = (
        submit,
        submit + timedelta(seconds=waited_s),
        submit + timedelta(seconds=waited_s + ran_s),
    )
    local = "|".join(f"{t.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M:%S}" for t in times)
    head, row = "JobIDRaw|State|NodeList|Submit|Start|End", f"7|COMPLETED|n1|{local}"
    if with_elapsed:
        head, row = f"{head}|ElapsedRaw", f"{row}|{ran_s}"
    result = parse(head, row, timezone=zone)
    (attempt,) = result.attempts
    found = (attempt.submit_at, attempt.start_at, attempt.end_at)
    assert found == times or any("clocks repeated" in note for note in result.notes), found
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    assert attempt.submit_at <= attempt.start_at <= attempt.end_at
    if with_elapsed:
        assert attempt.end_at - attempt.start_at == timedelta(seconds=ran_s)
