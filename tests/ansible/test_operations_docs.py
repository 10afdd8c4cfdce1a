"""The pages for those who install and operate: every alarm, cause, finding and variable has its words."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import yaml

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.control_plane.doctor import site_rights
from tests.ansible import conftest

DOCS = conftest.ROOT / "docs"
SHOWN_LEVELS = {"warning", "error", "critical", "exception"}


def message_words(room: str) -> Iterator[tuple[str, str]]:
    """(where, literal words) of every message of a room's daemons that is a warning or worse."""
    for path in sorted((conftest.ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id in {"LOG", "_log"}):
                continue
            arguments = node.args[1:] if node.func.attr == "log" else node.args
            if (
                node.func.attr not in SHOWN_LEVELS | {"log"}
                or not arguments
                or not isinstance(arguments[0], ast.Constant)
            ):
                continue
            for part in re.split(r"%[a-z]", str(arguments[0].value)):
                if words := part.strip(" :,;"):
                    yield f"{path.relative_to(conftest.ROOT)}:{node.lineno}", words


def test_every_alarm_has_its_paragraph() -> None:
    """What a daemon says as a warning or worse stands in docs/operate.md, in its own words."""
    page = " ".join((DOCS / "operate.md").read_text(encoding="utf-8").split())
    alarms = [
        pair for room in ("control_plane", "slurm_plugins", "probe_agent") for pair in message_words(room)
    ]
    assert len(alarms) > 20
    assert [pair for pair in alarms if pair[1] not in page] == []


def test_every_cause_has_its_runbook() -> None:
    """A verdict's word is a heading with something below it; no heading names a cause that is gone."""
    page = (
        (DOCS / "operate.md").read_text(encoding="utf-8").partition("## Causes")[2].partition("## Routine")[0]
    )
    sections = dict(re.findall(r"^### (\w+)\n\n(.+?)(?=\n\n###|\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(taxonomy.load().causes)
    assert all(text.strip() for text in sections.values())


def test_every_finding_of_the_doctor_is_listed() -> None:
    """Each name that `probing-ctl doctor` may print has its row."""
    pages = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("install.md", "slurm.md"))
    names: set[str] = set()
    looks = [
        *(conftest.ROOT / "control_plane" / "doctor").glob("site_*.py"),
        conftest.ROOT / "slurm_plugins" / "doctor.py",
    ]
    for path in looks:
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r'\bname="(\w+)"', text))
        names |= set(re.findall(r'\b(?:doctor\.)?(?:ok|note|warn|fail)\(\s*"(\w+)"', text))
    names |= {f"{key.lower()}_path" for key in (*site_rights.ROOTS_HOOKS, *site_rights.EVERYBODYS)}
    assert len(names) > 30
    assert sorted(name for name in names if f"| `{name}` |" not in pages) == []


def test_every_variable_of_the_roles_is_explained() -> None:
    """Each variable a site may set has its row, with the default that is in force."""
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    text = (conftest.ROOT / "ansible/roles/common/defaults/main.yml").read_text(encoding="utf-8")
    ours = yaml.safe_load(text.partition("# What the roles compute for themselves.")[0])
    assert sorted(name for name in ours if f"| `{name}` |" not in page) == []
    rows = set(re.findall(r"^\| `(probing_\w+)` \|", page, re.MULTILINE))
    assert sorted(rows - set(ours)) == []


def test_every_extra_is_explained() -> None:
    """Each part of the package that is installed by its name has its row: host, what it brings, size."""
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    project = tomllib.loads((conftest.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(e for e in project["optional-dependencies"] if f"| `{e}` |" not in page) == []


def test_the_pages_are_reachable() -> None:
    """The first screen links to installing, operating and the limits."""
    readme = (conftest.ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("install", "operate", "limits"):
        assert f"docs/{name}.md" in readme
