"""The node as checks see it: files, numbers, tools."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.healthchecks import findings, nodeview


def view(node: Any) -> nodeview.NodeView:
    return nodeview.NodeView(node.spec, deadline_s=5.0)


def test_missing_is_none_and_broken_is_raised(node: Any) -> None:
    """A file that is not there is unknown; one that cannot be read raises."""
    assert view(node).text("/nowhere") is None
    node.put("a", "1")
    assert view(node).text("/a/b") is None
    (node.root / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        view(node).text("/d")


def test_a_pipe_does_not_hang_the_reader(node: Any) -> None:
    """Reading a FIFO nobody writes to gives an empty text at once."""
    os.mkfifo(node.root / "fifo")
    assert view(node).text("/fifo") == ""


def test_long_files_come_whole(node: Any) -> None:
    """A text of many pages is read to its end, whatever pieces the kernel hands out."""
    node.put("long", "x" * 300_000)
    assert len(view(node).text("/long") or "") == 300_000
    own = nodeview.NodeView(nodeview.NodeSpec(node="n"))
    assert own.text("/proc/self/maps") is not None
    assert (own.text("/proc/self/mounts") or "").count("\n") + 1 == len(
        Path("/proc/self/mounts").read_text().splitlines()
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("0x1f", 31), ("-1", -1), ("N/A (no PMA)", None), ("", None), ("1.5", None)],
)
def test_numbers(node: Any, text: str, number: int | None) -> None:
    """Decimal and 0x numbers; anything else is unknown, never 0."""
    node.put("n", text)
    assert view(node).number("/n") == number


def test_natural_order(node: Any) -> None:
    """Names with numbers sort by number."""
    names = [f"cpu{i}" for i in range(12)] + ["cpufreq", "cpuidle"]
    shuffled = random.Random(1).sample(names, len(names))
    assert sorted(shuffled, key=nodeview.natural) == names
    assert view(node).names("/nowhere") == []


def test_tools(node: Any) -> None:
    """A recorded tool answers; one that is not installed is absent; one that fails tells its code."""
    node.tool("hello", "world", code=3, error="oops")
    answer = view(node).run("hello")
    assert (answer.out, answer.err, answer.code) == ("world\n", "oops\n", 3)
    with pytest.raises(findings.Absent, match="nope is not installed"):
        view(node).run("nope")


def test_tools_of_this_machine_are_not_run_for_a_directory(tmp_path: Path) -> None:
    """A node in a directory has only the tools in that directory."""
    node = nodeview.NodeView(nodeview.NodeSpec(node="n", root=tmp_path))
    assert node.which("sh") is None
    assert nodeview.NodeView(nodeview.NodeSpec(node="n")).which("sh")


def test_a_tool_that_cannot_start(node: Any) -> None:
    """A file that is executable and no program is an error of the check."""
    node.put("tools/bad", "\x00\x01").chmod(0o755)
    with pytest.raises(findings.Undetermined, match="cannot be started"):
        view(node).run("bad")


def test_tools_get_a_clean_environment(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's own environment does not reach the tools; the language is C and the zone UTC."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    node.tool("show", script="env")
    shown = dict(line.split("=", 1) for line in view(node).run("show").out.splitlines() if "=" in line)
    assert "SECRET_TOKEN" not in shown
    assert (shown["LC_ALL"], shown["TZ"]) == ("C", "UTC")


def test_shared_readings_are_taken_once(node: Any) -> None:
    """What several checks read is read once per child."""
    shared = view(node)
    calls: list[int] = []
    for _ in range(2):
        assert shared.shared("x", lambda: calls.append(1) or len(calls)) == 1
