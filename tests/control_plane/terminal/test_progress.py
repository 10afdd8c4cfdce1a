from __future__ import annotations

import io
import sys
import threading

import pytest

from probing_cluster.control_plane.terminal import progress


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.s = 100.0

    def monotonic_s(self) -> float:
        return self.s


def test_a_line_now_and_then_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Short work is silent, long work says every so often how far it is, and standard output stays clean."""
    time = Time()
    with progress.ProgressBar("fleet", 3, "figures", time=time) as done:  # type: ignore[arg-type]
        done.step()
        assert capsys.readouterr().err == ""
        time.s += progress.SILENT_S
        done.at("mttf-by-size")
        done.step()
        time.s += progress.EVERY_S
        done.step()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "probing-ctl: fleet: 1 of 3 figures in 10 s: mttf-by-size",
        "probing-ctl: fleet: 3 of 3 figures in 25 s: mttf-by-size",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is drawn on standard error, names what is done, survives markup, and is ended by an exception, too."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")

    def work() -> None:
        with progress.ProgressBar("attribute", None, "attempts") as done:
            done.at("[red]before 2026[/]")
            done.step(1200)
            done._bar.refresh()  # type: ignore[union-attr]
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        work()
    assert "1,200 attempts" in screen.getvalue()
    assert "[red]before 2026[/]" in screen.getvalue()
    assert capsys.readouterr().out == ""


def test_one_long_step_is_heard_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single query of minutes says that it goes on, and nothing ticks after the end."""
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    answered = threading.Event()
    show = progress.ProgressBar._show

    def shown(self: progress.ProgressBar) -> None:
        show(self)
        answered.set()

    monkeypatch.setattr(progress.ProgressBar, "_show", shown)
    with progress.ProgressBar("attribute", None, "attempts"):
        assert answered.wait(60)
    assert "probing-ctl: attribute: 0 attempts in" in capsys.readouterr().err


def test_work_that_is_not_counted_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    """ "0 files in 15 s" would sound like a failure."""
    time = Time()
    with progress.ProgressBar("import", None, None, time=time) as done:  # type: ignore[arg-type]
        time.s += progress.EVERY_S
        done.at("reading sacct.txt")
    assert capsys.readouterr().err == "probing-ctl: import: reading sacct.txt … (15 s)\n"
