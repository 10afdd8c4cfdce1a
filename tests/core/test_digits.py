"""Text that passes for a number is one for `int` too; nobody asks `str.isdigit` instead."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import digits

ROOT = Path(__file__).resolve().parents[2]
BANNED = {"isdigit", "isdecimal", "isnumeric"}
ALONE = {
    "core/digits.py": "the helper",
    "slurm_plugins/hooks/agent_call.py": "bytes; runs on the system's Python without our package",
    "slurm_plugins/hooks/task_prolog.py": "bytes; runs on the system's Python without our package",
    "probe_agent/inject/site/_probing_probe/page.py": "with isascii; runs on the user's Python",
    "probe_agent/inject/site/_probing_probe/switches.py": "any digits make a job's folder; runs on the user's Python",
    "probe_agent/inject/site/_probing_probe/tables/rings.py": "with isascii; runs on the user's Python",
}


@given(st.text() | st.text(alphabet="0123456789²³٣१_- +", max_size=30) | st.binary())
def test_what_passes_is_a_number_for_int(text: str | bytes) -> None:
    """`int` takes it, it is its own canonical text but for leading zeros, and it fits any 64-bit field's text."""
    if digits.is_number(text):
        shown = text if isinstance(text, str) else text.decode("ascii")
        assert f"{int(text):0{len(text)}d}" == shown
        assert len(text) <= 20


@pytest.mark.parametrize("text", ["0", "007", str(2**64 - 1), b"12"])
def test_numbers_pass(text: str | bytes) -> None:
    """Also with leading zeros, up to the largest of 64 bits."""
    assert digits.is_number(text)


@pytest.mark.parametrize(
    "text", ["", "²", "1²", "٣", "-1", "+1", " 1", "1_0", "1.0", "9" * 21, "9" * 5000, b""]
)
def test_what_int_refuses_or_bends_does_not_pass(text: str | bytes) -> None:
    """Superscripts, other scripts, signs, blanks, and text too long for `int`."""
    assert not digits.is_number(text)


def test_nothing_else_asks_whether_text_is_digits() -> None:
    """Every Python file of the repository, tests included, but for the few in ALONE."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"]
    names = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.py")]
    assert len(names) > 400
    calls = {name for name in names if _calls(ROOT / name)}
    assert calls == set(ALONE)


def _calls(path: Path) -> bool:
    text = path.read_text()
    if not re.search("|".join(BANNED), text):
        return False
    return any(isinstance(node, ast.Attribute) and node.attr in BANNED for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("value", [None, True, "3", -1, -0.5, math.nan, math.inf, 10**400, [3]])
def test_what_is_no_number_is_none(value: object) -> None:
    """Also NaN, and an integer that no float holds: arithmetic on it would raise."""
    assert digits.number(value) is None


def test_numbers_and_indices() -> None:
    """An integer counts as a number; a float is no index."""
    assert (digits.number(3), digits.number(0.5)) == (3.0, 0.5)
    assert (digits.index(3), digits.index(3.0), digits.index(True), digits.index(2**63)) == (
        3,
        None,
        None,
        None,
    )
