"""docs/security.md promises no test that is not there, and its settings and commands are real."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.core.settings import manual as settings_manual

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_named_test_exists() -> None:
    """Each claim's test is a function of that file."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) >= 30
    for path, function in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        there = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in there, f"{path}::{function}"


def test_every_claim_has_its_test() -> None:
    """No row of the table without one."""
    rows = PAGE.split("## Each claim")[1].splitlines()
    claims = [line for line in rows if line.startswith("| ") and not line.startswith("| claim")]
    assert [line for line in claims if "`tests/" not in line] == []


def test_its_settings_are_settings() -> None:
    """The block that sets up the door parses as our configuration, and the keys in the text are keys."""
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
        settings.parse(block)
        assert tomllib.loads(block)["service"]["listen"] == ":7443"
    keys = {key for _, key, _, _ in settings_manual.describe()}
    assert {
        "address",
        "listen",
        "tls_ca",
        "tls_key",
        "munge_socket",
        "password_file",
        "webhook_secret_file",
    } <= keys


def test_sql_from_strings_is_refused_by_the_linter() -> None:
    """Rule S608 is on, nobody's folder is left out of it, and the exceptions are those the page names."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["extend-select"]
    assert not [rule for rule in lint["ignore"] if rule in {"S", "S6", "S608"}]
    code = [
        folder for folder in ROOT.glob("*/__init__.py") if folder.parent.name not in {"tests", "benchmarks"}
    ]
    left_out = [
        f"{path.relative_to(ROOT)}:{n}"
        for room in code
        for path in room.parent.rglob("*.py")
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "noqa" in line and "S608" in line
    ]
    files = sorted({place.partition(":")[0] for place in left_out})
    assert files == ["db/bulk.py", "db/store/verdicts.py", "live/session/postgres.py"]
    assert [name for name in files if f"`{name}`" not in PAGE] == []
