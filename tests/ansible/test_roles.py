"""The roles applied to this machine: to a directory that is a node's configuration, and to a real Slurm's.

What they put there comes out again to the byte, `--check` and the second run change nothing. The gate applies and
undoes the role that edits a file of the site's; the soak all of them, twice, and beside a real Slurm as well: test_on_slurm.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import scratch
from tests.ansible import conftest, playbooks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="the roles are root's"),
]
SLURM_CONF = """ClusterName=c
Prolog=/etc/site/prolog.sh  # ours since 2019
HealthCheckProgram=/usr/sbin/nhc
SchedulerParameters=defer
PartitionName=gpu Nodes=ALL"""


@pytest.fixture
def place() -> Iterator[Path]:
    with scratch.directory("probing-ansible-") as directory:
        yield directory


def variables(place: Path) -> dict[str, object]:
    """Every path of the roles below `place`; no package, no systemd."""
    return {
        "probing_prefix": str(conftest.ROOT / ".venv"),
        "probing_lib": f"{place}/lib",
        "probing_etc": f"{place}/etc",
        "probing_state_directory": f"{place}/state",
        "probing_run": f"{place}/run",
        "probing_units": f"{place}/units",
        "probing_bin": f"{place}/bin",
        "probing_slurm_etc": f"{place}/slurm",
        "probing_start": False,
        "probing_enable": False,
        "probing_manage_package": False,
        "probing_spank_manage_packages": False,
        "probing_slurm_reconfigure": False,
        "probing_user": "nobody",
        "probing_group": "nogroup",
        "probing_slurm_user": "root",
        "probing_database_url": "postgresql:///probing?host=/var/run/postgresql",
        "probing_agent_database_url": "postgresql:///probing?host=/var/run/postgresql",
    }


def test_the_sites_own_file_comes_back_to_the_byte(place: Path) -> None:
    """The role that edits what is the site's: ours before its own in slurm.conf; undone, all is as it was."""
    (place / "slurm").mkdir()
    (place / "slurm/slurm.conf").write_text(SLURM_CONF)
    before = playbooks.picture(place / "slurm")
    site = playbooks.Site(directory=place, groups=("probing_slurm_conf",), variables=variables(place))
    assert site.play("site") > 0
    assert f"Prolog={place}/lib/slurm/prolog.d/*" in (place / "slurm/slurm.conf").read_text()
    # The nodes of a configless cluster have no such file of their own: Slurm brings them this one.
    assert f"optional {place}/lib/probing.so " in (place / "slurm/plugstack.conf").read_text()
    site.play("uninstall", probing_purge=True)
    assert playbooks.picture(place / "slurm") == before


def test_nothing_is_taken_from_nodes_while_slurm_starts_it(place: Path) -> None:
    """Where another tool writes slurm.conf, or Slurm did not read it again: every node would be drained at its next job."""
    script, scontrol = place / "lib/slurm/prolog.d/05-probing", place / "programs/scontrol"
    for path, text in ((script, ""), (scontrol, f"echo 'Prolog[0] = {place}/lib/slurm/prolog.d/*'\n")):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    more = {"probing_slurm_bin": str(scontrol.parent), "probing_manage_slurm_conf": False}
    site = playbooks.Site(
        directory=place, groups=("probing_compute",), variables={**variables(place), **more}
    )
    with pytest.raises(AssertionError, match="Slurm still starts scripts in"):
        site.play("uninstall")
    assert script.exists()
    scontrol.write_text("#!/bin/sh\necho 'Prolog = (null)'\n")
    site.play("uninstall")
    assert not script.exists()


@pytest.mark.soak
def test_applied_and_undone(place: Path) -> None:
    """A compute and a login node that have Slurm's configuration: ours before the site's own; undone, the site's to the byte."""
    for name in ("slurm", "units", "bin"):
        (place / name).mkdir()
    (place / "slurm/slurm.conf").write_text(SLURM_CONF)
    before = playbooks.picture(*(place / n for n in ("slurm", "units", "bin")))
    site = playbooks.Site(
        directory=place,
        groups=("probing_slurm_conf", "probing_compute", "probing_login"),
        variables={**variables(place), "probing_inside_jobs": "taskprolog"},
    )
    assert site.play("site") > 0
    text = (place / "slurm/slurm.conf").read_text()
    assert f"Prolog={place}/lib/slurm/prolog.d/*" in text
    assert "/etc/site/prolog.sh" in (place / "lib/slurm/prolog.d/10-site").read_text()
    assert (place / "units/probing-agent.service").exists()
    site.play("uninstall", probing_purge=True)
    assert playbooks.picture(*(place / n for n in ("slurm", "units", "bin"))) == before
    assert not any((place / n).exists() for n in ("lib", "etc", "run"))


@pytest.mark.soak
def test_applied_twice_and_undone(place: Path) -> None:
    """Everything is there, once; then nothing is, and slurm.conf is the site's again; looking (--check) changes nothing."""
    for name in ("slurm", "units", "bin"):
        (place / name).mkdir()
    (place / "slurm/slurm.conf").write_text(SLURM_CONF)
    (place / "slurm/slurm.conf").chmod(0o640)
    before = playbooks.picture(*(place / n for n in ("slurm", "units", "bin")))
    site = playbooks.Site(
        directory=place,
        groups=("probing_slurm_conf", "probing_compute", "probing_login"),
        variables={**variables(place), "probing_inside_jobs": "spank" if shutil.which("gcc") else "none"},
    )
    assert site.play("site", "--check") > 0
    assert playbooks.picture(*(place / n for n in ("slurm", "units", "bin"))) == before
    assert site.play("site") > 0
    text = (place / "slurm/slurm.conf").read_text()
    assert f"Prolog={place}/lib/slurm/prolog.d/*" in text
    assert "SchedulerParameters=defer,nohold_on_prolog_fail" in text
    assert "/etc/site/prolog.sh" in (place / "lib/slurm/prolog.d/10-site").read_text()
    assert "wrapper.py health --site /usr/sbin/nhc" in (place / "lib/slurm/healthcheck").read_text()
    assert (place / "units/probing-agent.service").exists()
    installed = playbooks.picture(
        place / "slurm", place / "lib", place / "units", place / "etc", place / "bin"
    )
    assert site.play("site") == 0, site.last()
    assert site.play("site", "--check") == 0, site.last()
    assert site.play("uninstall", "--check") > 0
    assert playbooks.picture(*(place / n for n in ("slurm", "lib", "units", "etc", "bin"))) == installed
    site.play("uninstall", probing_purge=True)
    assert playbooks.picture(*(place / n for n in ("slurm", "units", "bin"))) == before
    assert not any((place / n).exists() for n in ("lib", "etc", "run"))
    assert site.play("uninstall", probing_purge=True) == 0, site.last()
