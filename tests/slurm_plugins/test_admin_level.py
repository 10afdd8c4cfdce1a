"""Who Slurm calls operator or coordinator, asked once a minute for everybody."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import commands
from probing_cluster.slurm_plugins import admin_level
from probing_cluster.slurm_plugins import commands as slurm_commands

USERS = "alice|None\neve|Operator\nroot|Administrator\nnoadmin|\n|Operator\nbroken line\n"
ACCOUNTS = "root|\nnlp|alice,bob\nvision|bob\nempty|\n"


def test_levels_and_coordinators() -> None:
    """Operators and administrators are operators; a coordinator has the accounts that name them."""
    found = admin_level.parse(USERS, ACCOUNTS)
    assert found.operators == {"eve", "root"}
    assert found.coordinated == {"alice": frozenset({"nlp"}), "bob": frozenset({"nlp", "vision"})}


class Sacctmgr:
    """Answers from memory and counts."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.down = False

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        assert program == "sacctmgr"
        self.n_calls += 1
        if self.down:
            raise errors.SlurmUnavailable("slurmdbd is away")
        return (USERS if "user" in arguments else ACCOUNTS).encode()


class Clock:
    at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


def test_slurm_is_asked_once_a_minute_and_a_failure_gives_nobody_a_right() -> None:
    """However many ask; without an answer the last one does not stand in."""
    calls, the_clock = Sacctmgr(), Clock()
    known = admin_level.CachedPrivileges(calls, the_clock)  # type: ignore[arg-type]
    for _ in range(5):
        found = known.now()
        assert found is not None
        assert "eve" in found.operators
    assert calls.n_calls == 2
    calls.down = True
    the_clock.at_s = admin_level.KEPT_S
    assert known.now() is None
    calls.down = False
    assert known.now() is None
    the_clock.at_s *= 2
    assert known.now() is not None


@pytest.mark.cluster
def test_a_real_slurm_says_it(box: cluster.Sandbox, slurm: settings.SlurmSettings) -> None:
    """sacctmgr on a live slurmdbd: a coordinator of the parent is one of the child, root administers."""
    words = (
        ["add", "account", "team", "parent=research", "Description=x", "Organization=x"],
        ["add", "coordinator", "account=research", "names=daemon"],
    )
    try:
        for word in words:
            commands.run(["sacctmgr", "-i", *word], env=box.env)
        found = admin_level.ask(slurm_commands.SlurmCommands(settings=slurm))
    finally:
        for word in (
            ["delete", "coordinator", "account=research", "names=daemon"],
            ["delete", "account", "team"],
        ):
            commands.run(["sacctmgr", "-i", *word], env=box.env, check=False)
    assert "root" in found.operators
    assert "daemon" not in found.operators
    assert {"research", "team"} <= found.coordinated["daemon"]
