"""The job of real processes with pages on this machine that the tests of the live tables use."""

from __future__ import annotations

import runpy
from pathlib import Path

Job = runpy.run_path(str(Path(__file__).parents[1] / "live/conftest.py"))["Job"]
