"""What is installed on compute and login nodes is enough for the commands that belong there."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.ansible import conftest

PROJECT = tomllib.loads((conftest.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_MODULES = {"pillow": "PIL", "nvidia-ml-py": "pynvml", "adbc-driver-postgresql": "adbc_driver_postgresql"}


def left_out(extra: str) -> list[str]:
    """Import names of what other extras bring and this one does not."""
    own = {*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]}
    others = {text for texts in PROJECT["optional-dependencies"].values() for text in texts}
    names = {_name(text) for text in others - own} - {"probing-cluster", "py-spy"}
    return sorted(_MODULES.get(name, name.replace("-", "_")) for name in names)


def _name(requirement: str) -> str:
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement


# As it is on a host of one role: these modules are not there.
PROGRAM = """
import sys
for name in {left_out!r}:
    sys.modules[name] = None
from {module} import main
raise SystemExit(main({words!r}))
"""
ROLES = {
    "compute_node": "agent",
    "login_node": "reports",
    "control_plane": "service",
    "database": "service",
}
WRITTEN = {
    "control_plane": "probing_extra: \"{{ 'web' if probing_web else 'service' }}\"",
    "login_node": "probing_extra: \"{{ 'reports,live' if probing_live else 'reports' }}\"",
}
CTL, REPORT = "probing_cluster.control_plane.cli.main", "probing_cluster.reports.cli"


def run(extra: str, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(left_out=left_out(extra), module=module, words=list(words))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("extra", "module", "words"),
    [
        ("agent", CTL, ("doctor", "--node")),
        ("agent", CTL, ("ranks", "7")),
        ("agent", CTL, ("completion", "bash")),
        ("agent", REPORT, ("7",)),
        ("agent", "probing_cluster.healthchecks.cli", ("list",)),
        ("agent", "probing_cluster.probe_agent.cli", ("--help",)),
        ("reports", CTL, ("ranks", "7")),
        ("reports", CTL, ("stacks", "7")),
        ("reports", CTL, ("watch", "7", "--count", "1")),
        ("reports", REPORT, ("7", "--html", "-")),
    ],
)
def test_a_nodes_commands_need_no_more(
    extra: str, module: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """Each gets as far as it gets on a host without Slurm and service, and none stumbles over a missing library."""
    config = tmp_path / "probing.toml"
    config.write_text(
        f'[cluster]\nname = "c"\n[service]\nsocket = "{tmp_path}/none"\naddress = "localhost:1"\n'
        f'munge_socket = "{tmp_path}/none"\n[agent]\nsocket = "{tmp_path}/none"\n[slurm]\nbin_directory = "{tmp_path}"\n'
        f'[database]\ndirectory = "{tmp_path}/none"\n'
    )
    done = run(extra, module, *words, "--config", str(config))
    assert "Traceback" not in done.stderr, done.stderr
    assert "is not installed on this host" not in done.stderr, done.stderr
    if words == ("doctor", "--node"):
        assert (done.returncode, "fail  agent_socket" in done.stdout) == (1, True)


def test_what_belongs_elsewhere_says_so() -> None:
    """A command that needs the engine names the host to run it on."""
    done = run("agent", CTL, "nodes")
    assert done.returncode == 2
    assert "sqlalchemy is not installed on this host" in done.stderr
    assert "service's host, or: pip install 'probing-cluster[service]'" in done.stderr


def test_every_role_installs_its_extra() -> None:
    """By a name that pyproject.toml knows; no list of packages is kept beside it."""
    for role, extra in ROLES.items():
        tasks = (conftest.ROOT / f"ansible/roles/{role}/tasks/present.yml").read_text(encoding="utf-8")
        assert [line.strip() for line in tasks.splitlines() if "probing_extra:" in line] == [
            WRITTEN.get(role, f"probing_extra: {extra}")
        ]
        assert extra in PROJECT["optional-dependencies"]


def task(name: str, prefix: Path, digest: str = "") -> list[str] | str:
    """A task of the role `package`: its words, or its script."""
    tasks = yaml.safe_load((conftest.ROOT / "ansible/roles/package/tasks/present.yml").read_text())
    found = next(t for t in tasks if t["name"] == name)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["quote"] = shlex.quote
    values = {
        "probing_prefix": str(prefix),
        "probing_system": {"python": sys.executable},
        "probing_pip_arguments": [],
        "probing_extra": "agent",
        "_index": [],
        "_wheel": "ours.whl",
        "_digest": digest,
        "_mark": str(prefix / f".agent-{digest}"),
    }
    command = found.get("ansible.builtin.shell", found.get("ansible.builtin.command"))
    if "cmd" in command:
        return environment.from_string(command["cmd"]).render(values)
    return [environment.from_string(word).render(values) for word in command["argv"]]


def test_another_python_of_the_system_gets_an_environment_anew(tmp_path: Path) -> None:
    """After an upgrade of the system the same command as for ours mends the host; what lies beside in a directory of the site's stays."""
    prefix = tmp_path / "prefix"
    works = task("Whether its Python finds what is installed there", prefix)
    make = task("The virtual environment", prefix)
    assert isinstance(works, list)
    prefix.mkdir()
    (prefix / "kept").touch()
    subprocess.run(["sh", "-euc", make], check=True)
    assert subprocess.run(works, check=False).returncode == 0
    assert (prefix / "kept").exists(), "no environment was there: nothing is cleared"
    (library,) = (prefix / "lib").glob("python3*")
    library.rename(library.with_name("python3.0"))
    (prefix / ".agent-1").touch()
    assert subprocess.run(works, check=False, capture_output=True).returncode != 0
    subprocess.run(["sh", "-euc", make], check=True)
    assert subprocess.run(works, check=False).returncode == 0
    assert not (prefix / ".agent-1").exists(), "what was installed is gone, and so is its mark"


def test_a_wheel_that_was_installed_before_is_installed_again(tmp_path: Path) -> None:
    """Back to the version before: its mark of the first time would say that it is there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/bin/true")
    for digest in ("old", "new", "old"):
        mark = tmp_path / f".agent-{digest}"
        assert not mark.exists(), "Ansible would not install it"
        (tmp_path / f".service-{digest}").touch()  # of another role on this host, with the same wheel
        subprocess.run(["sh", "-c", task("The installed package", tmp_path, digest)], check=True)
        assert {p.name for p in tmp_path.glob(".*-*")} == {mark.name, f".service-{digest}"}
