"""The scripts that the roles put into prolog.d and epilog.d, started as slurmd starts them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from tests.ansible import conftest

ROLE = conftest.ROOT / "ansible/roles/compute_node"


def rendered(template: str, **more: Any) -> str:
    """A script as the role writes it."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.tests["search"] = lambda value, pattern: any(sign in value for sign in "*?[")
    return environment.from_string((ROLE / "templates" / template).read_text()).render(
        probing_managed="test", **more
    )


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(directory: Path) -> tuple[list[str], int]:
    """What slurmd does with `directory/*`: glob(3), pushed in front of a list, up to the first that fails."""
    printed: list[str] = []
    for path in sorted(directory.iterdir(), reverse=True):
        done = subprocess.run([path], capture_output=True, text=True, check=False, env={})
        printed += done.stdout.split()
        if done.returncode:
            return printed, done.returncode
    return printed, 0


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_the_sites_own_run_first_in_slurms_order(tmp_path: Path, hook: str) -> None:
    """Two lines of the site's, one a pattern: each in the order in which Slurm alone ran it, then ours."""
    for name in ("10-mount", "50-gpus", "a"):
        script(tmp_path / "site.d" / name, f"#!/bin/sh\necho {name} $#\n")
    script(tmp_path / "last", "#!/bin/sh\necho last $#\n")
    tasks = yaml.safe_load((ROLE / "tasks/present.yml").read_text())
    scripts = next(task["loop"] for task in tasks if task["name"] == "Scripts that Slurm starts")
    for item in scripts:
        where, _, name = item["name"].partition("/")
        if where != f"{hook}.d":
            continue
        text = "#!/bin/sh\necho ours\n"
        if item["template"] == "site_hooks.j2":
            patterns = [f"{tmp_path}/site.d/*", f"{tmp_path}/last", f"{tmp_path}/nothing.d/*"]
            text = rendered("site_hooks.j2", item=item, _site=patterns)
        script(tmp_path / "ours.d" / name, text)
    slurm_alone, _ = run(tmp_path / "site.d")
    assert slurm_alone == ["a", "0", "50-gpus", "0", "10-mount", "0"]
    assert run(tmp_path / "ours.d") == ([*slurm_alone, "last", "0", "ours"], 0)
    script(tmp_path / "site.d/50-gpus", "#!/bin/sh\nexit 3\n")
    assert run(tmp_path / "ours.d") == (["a", "0"], 3)
