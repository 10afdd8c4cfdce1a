"""docs/extending.md, followed literally: its blocks become files of a copy of the package, its commands are run."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
CHAPTERS = {
    title: re.findall(r"^```(\w+)\n(.*?)^```$", body, re.DOTALL | re.MULTILINE)
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "only-include"
]


class Copy:
    """A copy of the package that may be changed, a directory to work in, and its commands on the PATH."""

    def __init__(self, home: Path) -> None:
        self.package, self.work, self.bin = home / "lib/probing_cluster", home / "work", home / "bin"
        self.add(*ROOMS)
        self.work.mkdir()
        self.bin.mkdir()
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        for name, target in scripts.items():
            module, _, function = target.partition(":")
            path = self.bin / name
            begin = f"import sys; from {module} import {function}; sys.exit({function}())"
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{begin}" "$@"\n')
            path.chmod(0o755)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PROBING")},
            "PYTHONPATH": str(home / "lib"),
            "PATH": f"{self.bin}:/usr/bin:/bin",
        }

    def add(self, *folders: str) -> None:
        """Folders of the checkout, with what is compiled already: times are copied, too, so each command finds it as new as its source."""
        for folder in folders:
            shutil.copytree(ROOT / folder, self.package / folder)

    def follow(self, language: str, text: str) -> None:
        """Do what one block says."""
        if language == "diff":
            self._change(text)
        elif language == "console":
            self._run(text)
        else:
            self._write(text)

    def _write(self, text: str) -> None:
        first, _, rest = text.partition("\n")
        append, name = re.fullmatch(r"(?:#|--) (append to )?(\S+)", first).groups()  # type: ignore[union-attr]
        target = (self.package if name.partition("/")[0] in (*ROOMS, "tests") else self.work) / name
        if append:
            assert target.exists(), name
            target.write_text(target.read_text() + "\n" + rest)
        else:
            assert not target.exists(), f"{name} is in the package already: the example adds nothing"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rest)

    def _change(self, text: str) -> None:
        first, _, rest = text.partition("\n")
        target = self.package / first.removeprefix("--- ")
        source = target.read_text()
        for hunk in rest.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] != "+")
            new = "".join(line[1:] for line in lines if line[0] != "-")
            assert source.count(old) == 1, f"{target.name} no longer has {old!r}"
            source = source.replace(old, new)
        target.write_text(source)

    def _run(self, text: str) -> None:
        """One shell runs every `$ ` line of the block; what follows each must be what it prints, `...` standing for anything."""
        steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
        script = "\n".join(f"{command}\nprintf '\\001'" for command, _ in steps)
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=250, check=False
        )  # fmt: skip
        outputs = done.stdout.split("\001")
        for (command, expected), printed in zip(steps, outputs, strict=False):
            # Where a line is broken is no part of what it says.
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
            output = " ".join(printed.split())
            assert re.fullmatch(pattern, output), f"{command}\n{printed}\n{done.stderr}"
        assert len(outputs) == len(steps) + 1, done.stderr

    def passes(self, *tests: str) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy, as the checkout's are run."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        return subprocess.run(
            command, cwd=self.package, env=self.environment, capture_output=True, text=True, timeout=250, check=False
        )  # fmt: skip


@pytest.fixture
def copy() -> Iterator[Copy]:
    """Short and open to the account of an embedded server."""
    with tempfile.TemporaryDirectory(prefix="probing-ext-", ignore_cleanup_errors=True) as text:
        home = Path(text)
        home.chmod(home.stat().st_mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        made = Copy(home)
        yield made
        stop = [
            str(made.bin / "probing-ctl"),
            "db",
            "stop",
            "--config",
            str(made.work / "history/probing.toml"),
        ]
        if (made.work / "history").exists():
            subprocess.run(stop, env=made.environment, check=False, capture_output=True, timeout=100)


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_page_followed_literally_works(copy: Copy, chapter: str) -> None:
    """Every file written, every change made, every command run, and each says what the page says it says."""
    blocks = CHAPTERS[chapter]
    assert {"console"} < {language for language, _ in blocks}
    for language, text in blocks:
        copy.follow(language, text)


GENERATED = re.findall(r"python -m probing_cluster\.(\S+)(?: > (docs/\w+\.md))?`", PAGE)
QUESTION: dict[str, tuple[str, ...]] = {
    "A health check": ("tests/healthchecks/test_manual.py", "tests/attribution/verdict/test_taxonomy.py"),
    "An event source of the agent": (
        "tests/probe_agent/test_docs.py",
        "tests/attribution/verdict/test_taxonomy.py",
    ),
    "A rule of attribution": (
        "tests/attribution/verdict/test_taxonomy.py",
        "tests/attribution/verdict/test_signatures.py",
        "tests/attribution/verdict/test_rules.py::test_every_cause_has_a_case",
        "tests/attribution/verdict/test_rules.py::test_each_cause_has_a_smallest_case",
        "tests/attribution/verdict/test_rules.py::test_every_rule_says_something_and_something_only_about_its_business",
    ),
    "A test of nodes": ("tests/diagnostics/procedures/test_cores.py", "tests/diagnostics/test_evidence.py"),
}
"""The tests that ask something of every check, source, rule and test of nodes."""


@pytest.mark.soak
@pytest.mark.parametrize("chapter", QUESTION)
def test_the_page_names_every_place(copy: Copy, chapter: str) -> None:
    """File, registration, generated page and test as the page has them, and the tests that ask of every one are content."""
    copy.add("tests", "benchmarks", "docs")
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, copy.package / file)
    for language, text in CHAPTERS[chapter]:
        if language in {"python", "diff"} or (language == "toml" and text.startswith("# attribution")):
            copy.follow(language, text)
    for module, target in GENERATED:
        done = subprocess.run(
            [sys.executable, "-m", f"probing_cluster.{module}"], env=copy.environment, capture_output=True, text=True, check=True
        )  # fmt: skip
        if target:
            (copy.package / target).write_text(done.stdout)
    if chapter == "A rule of attribution":
        cases = copy.package / "tests/attribution/verdict/test_rules.py"
        without = copy.passes(*QUESTION[chapter])
        assert re.findall(r"^FAILED \S+::(\w+)", without.stdout, re.MULTILINE) == [
            "test_every_cause_has_a_case",
            "test_every_rule_says_something_and_something_only_about_its_business",
        ], without.stdout[-2000:]
        (line,) = re.findall(r"`(\"memory_pressure\": \(.*?),`", PAGE)
        unknown = '        "unknown": (['
        source = cases.read_text()
        assert source.count(unknown) == 1
        cases.write_text(source.replace(unknown, f"        {line},\n{unknown}"))
    done = copy.passes(*QUESTION[chapter])
    assert done.returncode == 0, done.stdout[-3000:]


def test_there_is_an_example_of_each() -> None:
    """A check, a source, a rule, a view, a test of nodes and a live table; none of them is in the product itself."""
    assert list(CHAPTERS) == [
        *list(QUESTION)[:3],
        "A view of the ops schema",
        "A test of nodes",
        "A live table",
    ]
