"""Libraries compiled once per process and content."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.sandbox.c_libraries import c_build

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def build(directory: Path, source: Path) -> Path:
    return c_build.shared_library(directory, "x", "libx.so", [source], ["-Wall"])


def test_the_same_content_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another directory gets the same bytes without a compiler; other content needs one."""
    source = tmp_path / "x.c"
    source.write_text("int answer(void) { return 42; }\n")
    first = build(tmp_path / "a", source)
    assert build(tmp_path / "a", source) == first
    monkeypatch.setenv("PATH", str(tmp_path))
    second = build(tmp_path / "b", source)
    assert second.is_relative_to(tmp_path / "b")
    assert second.read_bytes() == first.read_bytes()
    assert ctypes.CDLL(str(second)).answer() == 42
    source.write_text("int answer(void) { return 43; }\n")
    with pytest.raises((OSError, errors.ProbingError)):
        build(tmp_path / "b", source)
