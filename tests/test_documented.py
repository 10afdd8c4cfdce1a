"""Every command that is installed, and every option of it, stands in the manual; so does every page in its index."""

from __future__ import annotations

import argparse
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
MANUAL = "\n".join([(ROOT / "README.md").read_text(encoding="utf-8"), *PAGES.values()])
OTHER_TREES = {".venv", ".src", ".git"}
MADE_BY_READERS = {"passenger_wsgi.py", "jupyterhub_config.py", "train.py"}
"""Files of a site or of a user that a page names."""
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


class Caught(BaseException):
    """The parser a command was about to use."""


def parser_of(script: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """What the command's `main` builds, whatever it calls it."""
    module, _, function = SCRIPTS[script].partition(":")

    def parse_args(self: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise Caught(self)

    for method in ("parse_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, method, parse_args)
    monkeypatch.setattr("sys.argv", [script])
    with pytest.raises(Caught) as caught:
        getattr(importlib.import_module(module), function)()
    made = caught.value.args[0]
    assert isinstance(made, argparse.ArgumentParser)
    return made


def leaves(parser: argparse.ArgumentParser, above: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command without commands of its own, by its whole name."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield above, parser
    for group in groups:
        for name, inner in group.choices.items():
            yield from leaves(inner, f"{above} {name}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_command_and_option_is_in_the_manual(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command by its name (probing-ctl's in the table of its page), an option by its word."""
    missing = []
    for name, parser in leaves(parser_of(script, monkeypatch), script):
        words = name.removeprefix(f"{script} ")
        last = re.escape(words.rpartition(" ")[2])
        if name not in MANUAL and not re.search(rf"`(?:[^`\n]* )?(?:{re.escape(words)}|{last})\b", MANUAL):
            missing.append(name)
        options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
        missing += [f"{name} {o}" for o in sorted(options - {"--help"}) if o not in MANUAL]
    assert not missing, missing


def test_every_page_can_be_found() -> None:
    """The README names each page of the manual, and no link between pages is dead."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(PAGES) if f"docs/{name}" not in readme] == []
    dead = []
    for name, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!http)([\w./-]*)(#[\w-]+)?\)", text):
            page = target or name
            if not (ROOT / "docs" / page).exists():
                dead.append(f"{name}: {page}")
            elif anchor and page in PAGES:
                heads = {
                    re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-")
                    for h in re.findall(r"^#+ (.+)$", PAGES[page], re.MULTILINE)
                }
                dead += [] if anchor[1:] in heads else [f"{name}: {page}{anchor}"]
    assert dead == []


def test_every_file_that_a_page_names_exists() -> None:
    """A reader who looks for a module or a test that a page names finds it; only docs/extending.md names files to be made."""
    paths = {p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py") if not OTHER_TREES & set(p.parts)}
    missing = [
        f"{page}: {name}"
        for page, text in PAGES.items()
        if page != "extending.md"
        for name in re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)", text)
        if name not in MADE_BY_READERS
        and not any(path == name or path.endswith(f"/{name}") for path in paths)
    ]
    assert missing == []
