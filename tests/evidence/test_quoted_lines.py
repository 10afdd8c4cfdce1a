"""Lines of a kernel log that a text only shows are no fault; no program's words hide the kernel's own."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import classify, quoted_lines
from tests.every_case import every

XID = "NVRM: Xid (PCI:0000:4a:00): 79, pid=9, name=fit, GPU has fallen off the bus."
AT = f"[   61.200000] {XID}"
BARE = [XID, "Kernel panic - not syncing: Fatal exception"]
"""Without times: what a manual or a record of tests holds."""
TWO = [AT, "[   61.300000] Kernel panic - not syncing: Fatal exception"]


def kinds(lines: list[str]) -> list[str]:
    found = classify.classify_stream([line.encode() for line in lines], "kernel")
    return [f["kind"] for f in found if f["severity"] != "info"]


@pytest.mark.parametrize(
    "lines",
    [
        ["import re", 'LOG = """', *TWO, '"""'],
        ["Out(", "    0,", '    """', AT, f'{TWO[1]}""",', ")"],
        ['const LOG: &str = "\\', *TWO, '";'],
        ['  let log = r#"', *TWO, '"#;'],
        ["log := `", *TWO, "`"],
        [f"  log: `{AT}", f"{TWO[1]}`,"],
        ['auto log = R"(', *TWO, ')";'],
        ["cat > in.txt <<END", *TWO, "END", "./read in.txt"],
        ["  let(:log) { <<~LOG }", *[f"    {line}" for line in TWO], "  LOG"],
        ["- name: lost", "  input: |", *[f"    {line}" for line in BARE], "  want: 2"],
        ["+++ b/x", "@@ -1,1 +1,2 @@", f" {AT}", f"+{TWO[1]}", "@@ -9 +10 @@", f"-{AT}", f"+{TWO[1]}"],
        [f"commit {'1' * 40}", "Author: A <a@b.org>", "", "    mend it", "", *[f"    {line}" for line in TWO]],
        [f"From {'2' * 40} Mon Sep 17 00:00:00 2001", "Subject: [PATCH] mend it", "", *TWO, "---", " a.c | 1 +"],
        ["$log = <<<EOT", *TWO, "EOT;"],
        ["local log = [[", *TWO, "]]"],
        ['var log = @"', *TWO, '";'],
        ["It may print:", "", "~~~", *TWO, "~~~"],
        ["Look for lines like these:", "", "```", *TWO, "```"],
        ["<html>", "<pre>", *BARE, "</pre>", "</html>"],
        ["The kernel may print:", "", "----", *TWO, "----"],
        ["In the log there could appear::", "", *[f"   {line}" for line in BARE]],
        ["Such lines may be seen in the log:", ".. code-block:: console", "", *[f"   {line}" for line in BARE]],
        ["If a cable is loose you may see this in `dmesg`:", "```", *TWO, "```"],
        ["The following messages", "may be seen there:", "```text", *TWO, "```"],
    ],
    ids=["python", "argument", "rust", "raw rust", "go", "field", "c++", "shell", "ruby", "yaml", "diff", "commit", "patch", "php", "lua", "c#", "tildes", "look for", "html", "asciidoc", "rst", "directive", "markdown", "two lines"],
)  # fmt: skip
def test_a_listing_shows_no_fault(lines: list[str]) -> None:
    assert kinds(lines) == []
    assert kinds([*lines, "", *TWO[:1]]) == ["xid"], "what stands below it is read"


@pytest.mark.parametrize(
    "lines",
    [
        ['LOG = """', *TWO],
        ["[   60.000000] a line with a quote = \"\"\"", *TWO, '[   62.000000] """'],
        ["Jan  2 03:04:05 n1 eve[7]: x = '''", *TWO, "Jan  2 03:04:09 n1 eve[7]: '''"],
        ["Jan  2 03:04:05 n1 eve[7]: a", '                           x = """', *TWO, '                           """'],
        ["Jan  2 03:04:05 n1 eve[7]: a", "                           <html>", *TWO],
        ["Jan  2 03:04:05 n1 eve[7]: a", "                           @@ -1,99 +1,99 @@", *[f" {line}" for line in TWO]],
        ["Jan  2 03:04:05 n1 eve[7]: a", f"                           commit {'1' * 40}", *TWO],
        ["dmesg: |", *[f"  {line}" for line in TWO], "version: 4"],
        ["data:", "  node7-kern.log: |", *[f"    {line}" for line in TWO], "kind: ConfigMap"],
        ["It is lost, dmesg shows:", "```", *TWO, "```"],
        ["We would like to report what we see:", "```", *TWO, "```"],
        ["I could see this in dmesg:", "```", *TWO, "```"],
        ["If it helps, the kernel logs:", "```", *TWO, "```"],
        ["When it starts I can see:", "```", *TWO, "```"],
        ["<html> pages do not load, and there is:", *TWO],
        ["Output::", "", *[f"   {line}" for line in TWO]],
        [f"> {line}" for line in TWO],
        [f"**Jan  2 03:04:05 n1 kernel: {TWO[0]}**", f"**Jan  2 03:04:06 n1 kernel: {TWO[1]}**"],
        ["n7: |", *[f"  {line}" for line in TWO]],
        ["- reason: bad", "  note: |-", *[f"    {line}" for line in TWO], "  by: eve"],
        ["<html><body><pre>", *TWO, "</pre></body></html>"],
        ["<html>", *BARE],
        ["In the log there could appear::", "", *[f"   {line}" for line in TWO]],
        ["n7 fails, when it starts dmesg will show:", "", "~~~", *TWO, "~~~"],
        ["Look for the broken GPU in here:", "----", *TWO, "----"],
        ["Look for the end of this log:", "----", *TWO, "----"],
        ["The log of n7 should show it:", "~~~~", *TWO, "~~~~"],
        ["$ ssh n7 <<END", "> dmesg", "> END", *TWO, "$ ssh n8 <<END", "> date", "> END"],
        ["$ ssh n7 <<END", *TWO, "$ ssh n8 <<END", "END"],
        ['[answer 1] q = """a', *TWO, '[answer 2] q = """b'],
        ["@@ -1,2 +1,9 @@", *[f" {line}" for line in TWO]],
        ["+++ b/x", "@@ -1,9 +1,9 @@", *[f" {line}" for line in TWO], "done"],
        [f"From {'2' * 40} Mon Sep 17 00:00:00 2001", "", *TWO],
        ['u = """[7]: bad frame in rt_sigreturn frame:0000 ip:0', *TWO, '"""'],
        ["login:", "boot:", *BARE, "initrd:", "login:"],
        ["Kernel:", *BARE, "Network:", "fine", "Disk:"],
        ["fit.*:", "a.*:", *BARE, "b.*:"],
    ],
    ids=["open", "stamped", "syslog", "journal", "page", "change", "commit", "report in yaml", "map", "report", "would", "could", "if", "when", "a word", "rst", "mail", "bold", "record of a node", "note", "mail of a page", "open page", "stamped rst", "a node fails", "broken", "this log", "log of a node", "prompts", "here again", "answers", "no file's head", "cut change", "open patch", "process", "console", "headings", "names"],
)  # fmt: skip
def test_a_log_loses_nothing(lines: list[str]) -> None:
    assert kinds(lines) == ["xid", "panic"]


@every(
    "lines",
    [
        ["Kernel panic - not syncing: .*", r"general protection fault: [0-9]+ \[#\d\]", "EXT4-fs error"],
        ["Kernel panic - not syncing: %s", "BUG: unable to handle page fault for address: %px"],
        ["Kernel panic - not syncing: <*>", "EXT4-fs error (device <*>): <*>"],
    ],
)
def test_a_list_of_patterns_is_no_log(lines: list[str]) -> None:
    assert kinds(lines) == []


@every(
    ("lines", "kind"),
    [
        (["[    9.000000] Kernel panic - not syncing: stack is corrupted in: f.*+0x1", "[    9.100000] x .*"], "panic"),
        (["NVRM: Xid (PCI:0000:4a:00): 79, pid=7, name=a.*"] * 2, "xid"),
        (["NVRM: Xid (PCI:0000:4a:00): 79, pid=7, name==\"\"\", lost"] * 2, "xid"),
        (["NVRM: Xid (PCI:0000:4a:00): 79, pid=7, name=a<<END, lost", XID, "END"], "xid"),
        (["Call Trace:", " panic+0xe8/0x2c4", "Kernel panic - not syncing: Fatal exception", "Kernel Offset: disabled"], "panic"),
        (["usb 1-1: found", "Kernel panic - not syncing: Attempted to kill init!", "Call Trace:", "Modules linked in:"], "panic"),
        (["Kernel panic - not syncing: .*"], "panic"),
    ],
)  # fmt: skip
def test_a_log_without_times_is_no_list_of_patterns(lines: list[str], kind: str) -> None:
    """A process may be called like a pattern; one line is no list."""
    assert kind in kinds(lines)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    [
        'x = """',
        "@@ -1,9 +1,9 @@",
        "    input: |",
        "cat <<END",
        "<html>",
        "x = `",
        "It may print::",
        "  " * 400 + "`",
        "    a `b` c",
    ],
)
def test_openings_without_an_end_cost_no_log(line: str) -> None:
    """Of lines that all begin something, each looks at a bounded number of others."""
    assert kinds([*[line] * 20_000, *["x"] * 2_000, *TWO]) == ["xid", "panic"]


def test_margins_that_change_cost_no_log() -> None:
    """Lines that each are indented below others are looked at once."""
    lines = [" " * (n % 900) + "a `b` c" for n in range(20_000)]
    assert kinds([*lines, *TWO]) == ["xid", "panic"]


@every(
    "line",
    ["INFO: task a.*:7 blocked for more than 120 seconds.", "Killed process 7 (a.*)", "a.*[7]: segfault"],
)
def test_a_process_called_like_a_pattern_makes_no_list(line: str) -> None:
    assert not quoted_lines.of_patterns([line.encode()] * 2, 0)
