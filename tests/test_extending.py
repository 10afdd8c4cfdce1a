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
        for room in ROOMS:
            shutil.copytree(ROOT / room, self.package / room, ignore=shutil.ignore_patterns("__pycache__"))
        self.work.mkdir()
        self.bin.mkdir()
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        for name, target in scripts.items():
            module = target.partition(":")[0]
            path = self.bin / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            path.chmod(0o755)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PROBING")},
            "PYTHONPATH": str(home / "lib"),
            "PATH": f"{self.bin}:/usr/bin:/bin",
        }

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
        append, name = re.fullmatch(r"# (append to )?(\S+)", first).groups()  # type: ignore[union-attr]
        target = (self.package if name.partition("/")[0] in ROOMS else self.work) / name
        if append:
            assert target.exists(), name
            target.write_text(target.read_text() + "\n" + rest)
        else:
            assert not target.exists(), f"{name} is in the package already: the example adds nothing"
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
        said = done.stdout.split("\001")
        for (command, expected), printed in zip(steps, said, strict=False):
            # Where a line is broken is no part of what it says.
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
            seen = " ".join(printed.split())
            assert re.fullmatch(pattern, seen), f"{command}\n{printed}\n{done.stderr}"
        assert len(said) == len(steps) + 1, done.stderr


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
    assert {"python", "console"} <= {language for language, _ in blocks}
    for language, text in blocks:
        copy.follow(language, text)


def test_there_is_an_example_of_each() -> None:
    """A check, a source and a rule; none of them is in the product itself."""
    assert list(CHAPTERS) == ["A health check", "An event source of the agent", "A rule of attribution"]
