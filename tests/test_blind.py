"""Strangers' cases: read strictly, scored with bounds, and shown before our own."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.blind import __main__ as command
from benchmarks.blind import ask, score
from benchmarks.blind import case as cases

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
HEAD = '[source]\nurl = "https://example.org/1"\nlicence = "MIT"\n[label]\nby = "x"\nat = 2026-11-22\nwhy = "it says so"\n'


def case(tmp_path: Path, kind: str, label: str, given: str) -> cases.Case:
    path = tmp_path / f"{kind}.toml"
    path.write_text(f'class = "{kind}"\n{HEAD}{label}\n[input]\n{given}\n')
    return cases.read(path, committed=True)


@pytest.mark.parametrize(
    ("kind", "label", "text", "right"),
    [
        ("kernel", 'expected = "xid/79"', f"kernel: {XID}", True),
        ("kernel", 'expected = "xid"', f"kernel: {XID}", True),
        ("kernel", 'expected = "xid/48"', f"kernel: {XID}", False),
        ("kernel", 'expected = "harmless"', f"kernel: {XID}", False),
        ("kernel", 'expected = "harmless"', "kernel: eth0: renamed from veth1", True),
        ("joblog", 'first = "KeyError"\nexpected = "user_error"', "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", True),
        ("joblog", 'first = "x: 3"\nexpected = "user_error"\nalso = ["KeyError: 3"]', "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", True),
        ("joblog", 'first = "x: 3"\nexpected = "user_error"\nalso = ["import_error"]', "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", False),
        ("joblog", 'first = "IndexError"', "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", False),
        ("joblog", 'expected = "oom_gpu"', "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", False),
        ("joblog", 'first = "x"', "all is well", False),
        ("joblog", 'expected = "unknown"', "all is well", True),
        ("joblog", 'first = "x"\nexpected = "unknown"', "x", False),
        ("healthy", "", "epoch 1 loss 2\nepoch 2 loss 1\ndone", True),
        ("healthy", "", "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 3", False),
        ("quoted", "", "nothing of note", True),
        ("quoted", "", f"kernel: {XID}", False),
    ],
)  # fmt: skip
def test_an_answer_is_held_against_its_label(
    tmp_path: Path, kind: str, label: str, text: str, right: bool
) -> None:
    """Each class by its own rule."""
    given = case(tmp_path, kind, label, f"text = {json.dumps(text)}")
    assert ask.answer(given, "").right is right


def test_an_incident_is_imported_and_judged(tmp_path: Path, postgres_url: str) -> None:
    """Accounting and a kernel log, through the import and the rules as they are."""
    sacct = "JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES\n7|FAILED|1:0|2026-03-10T08:00:00|2026-03-10T08:00:00|2026-03-10T09:00:00|n1|gres/gpu=8\n"
    given = (
        f"sacct = {json.dumps(sacct)}\n[input.kernel]\nn1 = {json.dumps(f'Mar 10 08:30:00 n1 kernel: {XID}')}"
    )
    made = ask.answer(
        case(tmp_path, "incident", 'job = "7"\nexpected = "gpu_lost"\nnode = "n1"\nmost = "likely"', given),
        postgres_url,
    )
    assert made.right
    assert not made.certain


@pytest.mark.parametrize(("expected", "right"), [("none", True), ("gpu_lost", False)])
def test_a_job_that_never_started_is_answered_none(
    tmp_path: Path, postgres_url: str, expected: str, right: bool
) -> None:
    """Cancelled while it was pending: there is no attempt to judge, and the cases after it still run."""
    sacct = "JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES\n8|CANCELLED by 7|0:0|2026-03-10T08:00:00|None|2026-03-10T09:00:00|None assigned|\n"
    made = ask.answer(
        case(tmp_path, "incident", f'job = "8"\nexpected = "{expected}"', f"sacct = {json.dumps(sacct)}"),
        postgres_url,
    )
    assert (made.right, made.answer) == (right, "none (never started)")


def test_a_job_that_the_accounting_does_not_have_is_an_error(tmp_path: Path, postgres_url: str) -> None:
    """A label with a wrong number must not be right for want of a verdict."""
    sacct = "JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES\n8|CANCELLED by 7|0:0|2026-03-10T08:00:00|None|2026-03-10T09:00:00|None assigned|\n"
    given = case(tmp_path, "incident", 'job = "88"\nexpected = "none"', f"sacct = {json.dumps(sacct)}")
    with pytest.raises(cases.BadCase, match="has no job 88"):
        ask.answer(given, postgres_url)


def test_a_text_that_is_not_here_is_not_scored(tmp_path: Path) -> None:
    """Its digest stands for it; another text of that name is an error."""
    text = f"kernel: {XID}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    given = case(tmp_path, "kernel", 'expected = "xid/79"', f'sha256 = "{digest}"')
    with pytest.raises(ask.TextMissing):
        ask.answer(given, "")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / digest).write_text(text)
    assert ask.answer(given, "").right
    (tmp_path / "texts" / digest).write_text("another")
    with pytest.raises(cases.BadCase, match="SHA-256"):
        given.text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('class = "rumour"\n', "class is 'rumour'"),
        ('class = "kernel"\n', r"\[source\] is missing"),
        (f'class = "kernel"\n{HEAD}[input]\ntext = "x"\n', "does not say expected"),
        (f'class = "kernel"\n{HEAD}expected = "xid"\n[input]\n', "input.text or input.sha256"),
        (f'class = "kernel"\n{HEAD}expectd = "xid"\n[input]\ntext = "x"\n', "does not know expectd"),
        (f'class = "incident"\n{HEAD}expected = "xid"\n[input]\n', "does not say job or expected"),
        (f'class = "healthy"\n{HEAD.replace("2026-11-22", chr(34) + "today" + chr(34))}[input]\ntext = "x"\n', "no date"),
        (f'class = "joblog"\n{HEAD}first = "x"\nalso = ["y"]\n[input]\ntext = "x"\n', "label.expected, which is missing"),
        ("class =", "case.toml"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_scored_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """With the file and what is wrong."""
    path = tmp_path / "case.toml"
    path.write_text(text)
    with pytest.raises(cases.BadCase, match=why):
        cases.read(path, committed=True)


def test_a_label_counts_only_as_committed(tmp_path: Path) -> None:
    """Who changes a label after a run has to commit it first; a directory without a repository has none committed."""
    case(tmp_path, "healthy", "", 'text = "x"')
    assert [c.committed for c in cases.read_all(tmp_path)] == [False]
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert [c.committed for c in cases.read_all(tmp_path)] == [False]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a case"], check=True)
    assert [c.committed for c in cases.read_all(tmp_path)] == [True]
    case(tmp_path, "healthy", "", 'text = "y"')
    assert [c.committed for c in cases.read_all(tmp_path)] == [False]


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(0, 0, 0, 1), (1, 15, 0.0119, 0.2982), (90, 100, 0.8256, 0.9448), (5, 5, 0.5655, 1)],
)
def test_bounds_are_wilsons(k: int, n: int, low: float, high: float) -> None:
    """Against published values."""
    assert score.wilson(k, n) == pytest.approx((low, high), abs=5e-4)


def test_the_page_shows_strangers_first(tmp_path: Path) -> None:
    """Before our own figures and beside them, and written again in its place."""
    own = "# How often\n\nwords\n\n## Real jobs\n\n| cause, of all | 9 / 10 | 90.00% | ≥ 60% |\n"
    found = [
        ask.Answer(name="kernel/a", kind="kernel", right=r, answer="", expected="") for r in (True, False)
    ]
    section = score.section(found, ["joblog/b"], score.own_figures(own), "abc")
    page = score.put(own, section)
    assert page.index("On cases by strangers") < page.index("## Real jobs")
    assert "| kernel | 1 / 2 | 50.0% | 9.5% to 90.5% | 95% |" in page
    assert "| joblog | 0 / 0 (1 without their text here) |" in page
    assert "| our own: real jobs | 9 / 10 | 90.00% |" in page
    assert score.put(page, section) == page
    assert score.kept(page) == section


def test_every_case_of_the_tree_can_be_read() -> None:
    """Whoever adds one learns here what it lacks."""
    assert all(c.kind in cases.CLASSES for c in cases.read_all(cases.HOME))


def test_the_readme_tells_every_class_and_key() -> None:
    """Who labels reads nothing else."""
    text = Path(cases.__file__).with_name("README.md").read_text()
    for word in (*cases.CLASSES, "sha256", "licence", "also", "most"):
        assert f"`{word}" in text or f"{word} =" in text, word


def test_check_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A labeller must not see an outcome."""
    case(tmp_path, "kernel", 'expected = "xid/79"', 'text = "x"')
    monkeypatch.setattr("sys.argv", ["blind", "--check", "--cases", str(tmp_path)])
    monkeypatch.setattr(command, "run", lambda _: pytest.fail("it ran"))
    assert command.main() == 0
    assert "are not committed" in capsys.readouterr().out
