"""Finds py-spy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def program() -> str | None:
    """The path of py-spy beside our own interpreter, else on the system's path; None when it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy", path="/usr/local/bin:/usr/bin:/bin")
