"""ansible-playbook on this machine, or in a root directory on it, as a test runs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ansible import conftest

_COUNTS = re.compile(r"^\S+\s*: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Site:
    """Hosts that are all this machine, and what their variables are."""

    directory: Path
    """Where the inventory and Ansible's own files go; inside a root's /tmp, too."""
    groups: Iterable[str]
    variables: Mapping[str, Any]
    host: str = "n1"
    interpreter: str = "/usr/bin/python3"
    environment: Mapping[str, str] = field(default_factory=dict)

    def play(self, name: str, *arguments: str, **more: Any) -> int:
        """Run `site` or `uninstall`; how many tasks changed something. Raises AssertionError with the output when one failed."""
        inventory = self.directory / "inventory.json"
        variables = {"ansible_connection": "local", "ansible_python_interpreter": self.interpreter}
        hosts = {
            self.host: {
                **variables,
                "ansible_remote_tmp": str(self.directory / "remote"),
                **self.variables,
                **more,
            }
        }
        inventory.write_text(json.dumps({g: {"hosts": hosts} for g in self.groups}))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(conftest.ROOT / "ansible/ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(self.directory / "local"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
            "LC_ALL": "C.UTF-8",
            **self.environment,
        }
        done = subprocess.run(
            [conftest.program("ansible-playbook"), "-i", str(inventory), "--diff", *arguments, f"{name}.yml"],
            cwd=conftest.ROOT / "ansible",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        counts = _COUNTS.findall(done.stdout)
        assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
        assert counts, done.stdout
        self.directory.joinpath("last.log").write_text(done.stdout)
        return sum(int(changed) for _, changed, _, _ in counts)

    def last(self) -> str:
        """What the last play said."""
        return (self.directory / "last.log").read_text()


def picture(*places: Path) -> dict[str, str]:
    """Every file, link and directory below `places`, with owner, mode and a hash of its bytes."""
    found: dict[str, str] = {}
    for place in places:
        for path in [place, *place.rglob("*")]:
            status = path.lstat()
            if path.is_symlink():
                what = f"-> {path.readlink()}"
            elif path.is_file():
                what = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                what = "directory"
            found[str(path)] = f"{status.st_uid}:{status.st_gid} {status.st_mode:o} {what}"
    return found
