"""The wheel ships exactly the code folders of the checkout, under one import name."""

import importlib
import tomllib
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent.parent
NOT_SHIPPED = {"tests", "benchmarks"}


def test_every_code_folder_is_in_the_wheel() -> None:
    """A new room that is not in `only-include` would be missing from an installed product."""
    folders = {p.parent.name for p in ROOT.glob("*/__init__.py")} - NOT_SHIPPED
    shipped = {f.distribution_path.split("/")[1] for f in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert shipped == folders


def test_data_files_travel_with_the_code() -> None:
    """SQL, C sources, templates and catalogues are read at run time, so they must be in the wheel."""
    shipped = {f.distribution_path for f in WheelBuilder(str(ROOT)).recurse_included_files()}
    suffixes = {".sql", ".c", ".html", ".toml", ".tsv", ".csv", ".json"}
    rooms = {p.parent.name for p in ROOT.glob("*/__init__.py")} - NOT_SHIPPED
    wanted = {
        f"probing_cluster/{path.relative_to(ROOT).as_posix()}"
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.suffix in suffixes and path.is_file()
    }
    assert wanted <= shipped


def test_checkout_link() -> None:
    """The one link that makes the flat folders importable points at the checkout."""
    assert (ROOT / ".src/probing_cluster").resolve() == ROOT


def test_every_command_of_the_wheel_can_be_called() -> None:
    """A command that names a module or function that is gone would fail only on a site."""
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {"probing-report", "probing-ctl", "probing-agent", "probing-check", "probing-node-helper"} <= set(
        commands
    )
    for name, target in commands.items():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), name
