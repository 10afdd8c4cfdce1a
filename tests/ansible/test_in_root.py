"""All roles on one host that is a debootstrapped Debian: installed, used, upgraded by a second run, and gone again.

Not part of `make test`: it takes root, debootstrap, a mirror, a package index and some minutes.

    apt-get install debootstrap
    PROBING_ROOTS=/var/tmp/probing-roots pytest tests/ansible/test_in_root.py

PROBING_SUITE=trixie takes Debian 13. PROBING_WHEELHOUSE names a directory of wheels for the root's Python (3.11 in Debian 12,
3.13 in 13), where the root reaches no index: `pip download --only-binary=:all: --python-version 3.13 --dest DIRECTORY` of what
pyproject.toml names, with a `--platform` for each kind of manylinux. MIRROR names another mirror. What is tested must not change
meanwhile: a wheel of other code is an upgrade, and the second run would make one. Use a clone where others work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import ports
from tests.ansible import playbooks

ROOTS = os.environ.get("PROBING_ROOTS", "")
SUITE = os.environ.get("PROBING_SUITE", "bookworm")
MIRROR = os.environ.get("MIRROR", "http://deb.debian.org/debian")
# What a node of a site has before we come; apt needs python3-apt to be asked by Ansible.
BEFORE = "python3,python3-apt,systemd,dbus,ca-certificates,slurm-client,munge"
SLURM_CONF = "ClusterName=c\nSlurmctldHost=n1\nProlog=/etc/site/prolog\nTaskProlog=/etc/site/task\nNodeName=n1\nPartitionName=p Nodes=n1\n"

OF_PACKAGES = {
    "group", "group-", "gshadow", "gshadow-", "ld.so.cache", "mailcap", "passwd", "passwd-", "shadow", "shadow-", "subgid", "subuid",
}  # fmt: skip
"""Files of /etc that installing Debian's packages (Postgres, a compiler) changes; the packages stay."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not ROOTS, reason="takes minutes and a mirror: set PROBING_ROOTS to a directory for the roots"
    ),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """Below /tmp on both sides of the chroot."""
    directory = Path(tempfile.mkdtemp(prefix="probing-ansible-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def root(place: Path) -> Iterator[Path]:
    """A root as debootstrap made it, with the site's slurm.conf; what is written is thrown away."""
    lower = Path(ROOTS) / f"ansible-{SUITE}"
    if not (lower / "usr/bin/scontrol").exists():
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={BEFORE}", SUITE, str(lower), MIRROR], check=True
        )
    layers = Path(tempfile.mkdtemp(prefix="probing-layers-", dir=ROOTS))
    for name in ("up", "work", "root"):
        (layers / name).mkdir(mode=0o755)
    made = layers / "root"
    options = f"lowerdir={lower},upperdir={layers}/up,workdir={layers}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(made)], check=True)
    (made / place.relative_to("/")).mkdir(parents=True)
    binds = ("/proc", "/sys", "/dev", str(place))
    for path in binds:
        subprocess.run(["mount", "--bind", path, f"{made}{path}"], check=True)
    (made / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (made / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copy("/etc/resolv.conf", made / "etc/resolv.conf")
    (made / "etc/hosts").write_text("127.0.0.1 localhost n1\n")
    (made / "etc/slurm").mkdir(exist_ok=True)
    (made / "etc/slurm/slurm.conf").write_text(SLURM_CONF)
    subprocess.run(["chroot", str(made), "apt-get", "-qq", "update"], check=True)
    try:
        yield made
    finally:
        subprocess.run(
            [
                "chroot",
                str(made),
                "sh",
                "-c",
                "pg_lsclusters -h | while read v c x; do pg_ctlcluster --force $v $c stop; done",
            ],
            check=False,
        )
        for path in reversed(binds):
            subprocess.run(["umount", "-l", f"{made}{path}"], check=False)
        subprocess.run(["umount", "-l", str(made)], check=False)
        shutil.rmtree(layers, ignore_errors=True)


def test_a_whole_site_on_one_debian(place: Path, root: Path) -> None:
    """Installed from nothing, it works; again, and nothing changes; uninstalled, and the configuration is as before."""
    interpreter = place / "python-in-root"
    interpreter.write_text(f'#!/bin/sh\nexec chroot {root} /usr/bin/python3 "$@"\n')
    interpreter.chmod(0o755)
    configured = [root / name for name in ("etc", "usr/local")]
    before = playbooks.picture(*configured)
    site = playbooks.Site(
        directory=place,
        groups=(
            "probing_database",
            "probing_control",
            "probing_login",
            "probing_compute",
            "probing_slurm_conf",
        ),
        interpreter=str(interpreter),
        variables={
            "probing_start": False,
            "probing_slurm_reconfigure": False,
            "probing_cluster_name": "c",
            "probing_database_port": ports.choose(1)[0],
            "probing_wheelhouse": os.environ.get("PROBING_WHEELHOUSE", ""),
            "probing_inside_jobs": "spank",
            "probing_serial": 1,
        },
    )
    assert site.play("site") > 0

    def output(*argv: str) -> str:
        done = subprocess.run(["chroot", str(root), *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    bin_directory = "/opt/probing-cluster/bin"
    status = output(f"{bin_directory}/probing-agent", "--once", "--config", "/etc/probing-cluster/agent.toml")
    assert "ok" in status
    shown = json.loads(status)
    assert (shown["delivered_total"] > 0, shown["delivery_error"]) == (True, None), (
        "by TLS with its own certificate"
    )
    assert "up to date" in output(
        "runuser", "-u", "probing", "--", f"{bin_directory}/probing-ctl", "db", "status"
    )
    assert "probing.so" in (root / "etc/slurm/plugstack.conf").read_text()
    assert (root / "usr/lib/probing-cluster/probing.so").stat().st_size > 0
    output("systemd-analyze", "verify", "--man=no", "probing-agent.service", "probing-serve.service")
    assert (root / "etc/systemd/system/multi-user.target.wants/probing-agent.service").is_symlink()
    assert output("/usr/lib/probing-cluster/slurm/epilog.d/05-probing") == ""
    assert site.play("site") == 0, site.last()
    assert site.play("site", "--check") == 0, site.last()
    assert "observe_only = true" in output(
        "runuser", "-u", "probing", "--", "/usr/local/bin/probing-ctl", "policy", "show"
    )
    site.play("uninstall", probing_purge=True)
    after = playbooks.picture(*configured)
    changed = {
        path for path, was in before.items() if after.get(path) != was and not was.endswith("directory")
    }
    assert {Path(path).name for path in changed} <= OF_PACKAGES
    assert leftovers(root) == []
    assert site.play("uninstall", probing_purge=True) == 0, site.last()


def leftovers(root: Path) -> list[str]:
    """What below `root` still has our name, in a path or in a file of /etc.

    Logs may tell that we were there, and so do the copies that useradd and userdel leave of what they change (`passwd-`).
    """
    places = [
        root / name
        for name in ("etc", "home", "opt", "root", "run", "srv", "usr", "var/cache", "var/lib", "var/spool")
    ]
    named = [str(path) for place in places for path in place.rglob("*probing*")]
    copies = {name for name in OF_PACKAGES if name.endswith("-")}
    files = [
        path
        for path in (root / "etc").rglob("*")
        if path.is_file() and not path.is_symlink() and path.name not in copies
    ]
    return named + [str(path) for path in files if b"probing" in path.read_bytes().lower()]
