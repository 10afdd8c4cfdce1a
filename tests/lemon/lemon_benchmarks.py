"""benchmarks.lemon as a package; benchmarks are no package of the product, and not on the path of tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if "benchmarks" not in sys.modules:
    _spec = importlib.util.spec_from_file_location(
        "benchmarks", ROOT / "benchmarks/__init__.py", submodule_search_locations=[str(ROOT / "benchmarks")]
    )
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["benchmarks"] = _module
    _spec.loader.exec_module(_module)

evaluate = importlib.import_module("benchmarks.lemon.evaluate")
figures = importlib.import_module("benchmarks.lemon.figures")
fleet = importlib.import_module("benchmarks.lemon.fleet")
replay = importlib.import_module("benchmarks.lemon.replay")
titan = importlib.import_module("benchmarks.lemon.titan")
