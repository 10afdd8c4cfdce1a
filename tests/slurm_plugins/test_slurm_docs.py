"""docs/slurm.md keeps its promises: every hook, option and finding has its row."""

from __future__ import annotations

import re

from probing_cluster.slurm_plugins import doctor
from tests.slurm_plugins.conftest import HOOKS, REPOSITORY
from tests.slurm_plugins.test_doctor import GOOD

PAGE = (REPOSITORY / "docs" / "slurm.md").read_text()


def test_every_finding_of_the_doctor_is_documented() -> None:
    """Each name a finding can have stands in the table, and the table has no other."""
    power = "SuspendProgram = /x\nPrivateData = jobs\nPrologEpilogTimeout = 1\nSlurmdUser = slurm(64030)\n"
    kept = "\n".join(
        line
        for line in GOOD.splitlines()
        if not line.startswith(("Suspend", "Private", "PrologEpilog", "SlurmdUser"))
    )
    names = {finding.name for finding in doctor.findings(kept + "\n" + power)}
    table = PAGE.split("## What `probing-ctl doctor` checks")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == names


def test_every_hook_and_its_options_are_documented() -> None:
    """Each script Slurm can start and each word it takes stands on the page."""
    for path in HOOKS.glob("*.py"):
        if path.stem in {"__init__", "agent_call"}:
            continue
        assert f"`{path.name}`" in PAGE, path.name
    for source in HOOKS.glob("*.py"):
        for option in re.findall(r'"(--[a-z-]+)"', source.read_text()):
            assert option in PAGE, option


def test_every_spank_option_is_documented() -> None:
    """Options and plugstack arguments of the C source stand on the page."""
    source = (HOOKS.parent / "spank" / "probing_spank.c").read_text()
    for name in re.findall(r'^\t"(probing[a-z-]*)", "', source, re.MULTILINE):
        assert f"`--{name}=" in PAGE
    for argument in re.findall(r'strncmp\(av\[i\], "(\w+=)"', source):
        assert argument in PAGE
