"""Options before or after the subcommand, and the version of every command."""

from __future__ import annotations

import argparse
import os
from importlib import metadata
from pathlib import Path

import pytest

from probing_cluster.core import command_line, errors
from tests.every_case import every


def parser() -> command_line.Parser:
    made = command_line.Parser(prog="probing-x")
    command_line.add_version(made)
    commands = made.add_subparsers(dest="command", required=True)
    nodes = commands.add_parser("nodes")
    nodes.add_argument("node", nargs="*")
    nodes.add_argument("--config", type=Path)
    nodes.add_argument("--json", action="store_true")
    group = commands.add_parser("lemon").add_subparsers(dest="lemon_command", required=True)
    report = group.add_parser("report")
    report.add_argument("--config", type=Path)
    report.add_argument("--day")
    return made


@every(
    "line",
    [
        "nodes n1 --config c.toml --json",
        "nodes --config c.toml --json n1",
        "--config c.toml --json nodes n1",
        "--config=c.toml --json nodes n1",
        "--json --conf c.toml nodes n1",
        "--json nodes --config c.toml n1",
    ],
)
def test_an_option_may_stand_before_the_subcommand(line: str) -> None:
    """Wherever people put it, the same is asked."""
    calls = parser().read(line.split())
    assert (calls.command, calls.node, calls.config, calls.json) == ("nodes", ["n1"], Path("c.toml"), True)


@every(
    "line",
    [
        "lemon report --config nodes --day 2026-01-01",
        "lemon --day 2026-01-01 report --config nodes",
        "--config nodes --day 2026-01-01 lemon report",
        "--config nodes lemon --day 2026-01-01 report",
    ],
)
def test_groups_of_groups_and_values_that_look_like_commands(line: str) -> None:
    """`--config nodes lemon report`: `nodes` is the file."""
    calls = parser().read(line.split())
    assert (calls.command, calls.lemon_command, calls.config) == ("lemon", "report", Path("nodes"))


@every("line", ["--day x nodes", "--odd nodes", "--json", "", "-- nodes", "--json --"])
def test_what_the_subcommand_does_not_take_is_refused(line: str) -> None:
    """An option of another subcommand, or of none, is wrong usage as it always was."""
    with pytest.raises(SystemExit) as ended:
        parser().read(line.split())
    assert ended.value.code == 2


def test_whoever_names_no_command_is_told_where_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the whole command and of a group; what a command itself lacks is not to be found there."""
    for line, words in (
        ("", "probing-x --help lists its commands"),
        ("lemon", "probing-x lemon --help lists its commands"),
        ("nodes --odd", ""),
    ):
        with pytest.raises(SystemExit):
            parser().read(line.split())
        printed = capsys.readouterr().err
        assert words in printed
        assert ("lists its commands" in printed) is bool(words)


@pytest.mark.parametrize("command", ["agent", "check", "ctl", "node-helper", "report", "sandbox"])
def test_every_command_has_its_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All six, without their required arguments."""
    (entry,) = [e for e in metadata.entry_points(group="console_scripts") if e.name == f"probing-{command}"]
    with pytest.raises(SystemExit) as ended:
        entry.load()(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"probing-{command} {metadata.version('probing-cluster')}\n"


def test_a_source_tree_has_no_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run without being installed it says so instead of a traceback."""
    monkeypatch.setattr(command_line, "DISTRIBUTION", "no-such-distribution")
    made = argparse.ArgumentParser(prog="probing-x")
    command_line.add_version(made)
    with pytest.raises(SystemExit):
        made.parse_args(["--version"])
    assert "not installed" in capsys.readouterr().out


def test_an_optional_argument_may_follow_options() -> None:
    """`sql 4242 --format csv "SELECT 1"`: argparse itself would give QUERY up at the first option."""
    made = command_line.Parser(prog="p")
    leaf = made.add_subparsers(dest="command").add_parser("sql")
    leaf.add_argument("job")
    leaf.add_argument("query", nargs="?")
    leaf.add_argument("--format")
    leaf.add_argument("--all", action="store_true")
    for words in (
        ["sql", "7", "--format", "csv", "q"],
        ["sql", "--all", "7", "q", "--format=csv"],
        ["sql", "--format", "csv", "7", "q"],
    ):
        args = made.read(words)
        assert (args.job, args.query, args.format) == ("7", "q", "csv")
    assert made.read(["sql", "7", "-"]).query == "-"
    assert made.read(["sql", "7"]).query is None


def test_options_of_several_values_stay_where_they_are() -> None:
    made = command_line.Parser(prog="p")
    leaf = made.add_subparsers(dest="command").add_parser("x")
    leaf.add_argument("name")
    leaf.add_argument("--many", nargs="+")
    args = made.read(["x", "a", "--many", "b", "c"])
    assert (args.name, args.many) == ("a", ["b", "c"])


@every("text", ["0", "-1", "nan", "inf", "1e999", "", "soon", "86401"])
def test_what_is_no_time_to_wait_is_refused(text: str) -> None:
    """`nan` is neither above 0 nor below: a check for the one let it through to a sleep that raised."""
    with pytest.raises(errors.UsageError, match="is no number of seconds above 0 and at most 86,400"):
        command_line.seconds(text)
    assert command_line.seconds("0.5") == 0.5


@every("text", ["9" * 23, "-" + "9" * 23, "1.5", "x", "", "8_4", " 8", "٨"])
def test_what_is_no_number_the_database_takes_is_refused(text: str) -> None:
    """Not first by the database, in its own words."""
    with pytest.raises(errors.UsageError):
        command_line.whole(text)
    assert command_line.whole("42") == 42


@every("line", ["shell --dir D echo fleet --html /tmp/x", "--dir D shell echo fleet --html /tmp/x"])
def test_the_words_of_a_command_that_is_run_keep_their_order(line: str) -> None:
    """`shell COMMAND --option VALUE` hands the words on as they stand, also such as are options here."""
    made = command_line.Parser(prog="probing-x")
    commands = made.add_subparsers(dest="command", required=True)
    shell = commands.add_parser("shell")
    shell.add_argument("--dir")
    shell.add_argument("argv", nargs=argparse.REMAINDER)
    commands.add_parser("fleet").add_argument("--html")
    args = made.read(line.split())
    assert (args.dir, args.argv) == ("D", ["echo", "fleet", "--html", "/tmp/x"])


def test_an_option_of_the_command_that_is_also_ours_stays_with_it() -> None:
    """`shell sbatch -N1 --parsable --wrap 'echo hi'` reaches sbatch word for word."""
    made = command_line.Parser(prog="probing-x")
    shell = made.add_subparsers(dest="command", required=True).add_parser("shell")
    shell.add_argument("--dir")
    shell.add_argument("argv", nargs=argparse.REMAINDER)
    words = ["sbatch", "-N1", "--parsable", "--dir", "D", "--wrap", "echo hi"]
    args = made.read(["shell", *words])
    assert (args.dir, args.argv) == (None, words)


def test_an_output_file_replaces_only_a_regular_file(tmp_path: Path) -> None:
    """Root's `--html /dev/null` must not put a file in the device's place; a link and a pipe are written into, too."""
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.write_text("old")
    link.symlink_to(plain)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe):
        command_line.write_file(path, "new")
    assert (link.is_symlink(), plain.read_text()) == (True, "new")
    assert (pipe.is_fifo(), os.read(reader, 99)) == (True, b"new")
    os.close(reader)
    command_line.write_file(tmp_path / "fresh", "page")
    assert (tmp_path / "fresh").read_text() == "page"
    with pytest.raises(errors.UsageError, match="cannot be written"):
        command_line.write_file(tmp_path / "none" / "x", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "link", "pipe", "plain"]


def test_an_output_file_goes_through_nobodys_link(tmp_path: Path) -> None:
    """In /tmp another user may have put a link where the file is made before it takes its name."""
    (tmp_path / f".probing.{os.getpid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(errors.UsageError, match="File exists"):
        command_line.write_file(tmp_path / "page", "x")
    assert not (tmp_path / "theirs").exists()
