"""Ansible's own programs, beside our Python or on the path; what needs them skips where they are not."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program(name: str) -> str:
    """The full path of one of Ansible's programs; skips without it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}") or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (the dependency group deploy has it)")
    return found


@pytest.fixture(scope="session")
def slurm_conf() -> ModuleType:
    """ansible/library/slurm_conf.py, which Ansible ships to the target as a file."""
    spec = importlib.util.spec_from_file_location("slurm_conf", ROOT / "ansible/library/slurm_conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
