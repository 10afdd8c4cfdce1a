"""The administrators, operators and account coordinators of Slurm's accounting.

Two questions to sacctmgr answer for everybody, so the answer is kept for a while and shared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from probing_cluster.core import clock, errors, records
from probing_cluster.slurm_plugins import commands

KEPT_S = 60.0
"""How long an answer (and a failure to get one) stands, seconds."""
_OPERATORS = frozenset({"operator", "administrator"})


@records.record
class Privileges:
    """Users with rights over others' jobs; user and account names as Slurm writes them."""

    operators: frozenset[str] = records.doc("AdminLevel Operator or Administrator", default=frozenset())
    coordinated: dict[str, frozenset[str]] = records.doc(
        "coordinator -> accounts, those below included", default_factory=dict
    )


def parse(users: str, accounts: str) -> Privileges:
    """`sacctmgr -nP show user format=user,adminlevel` and `show account withcoord format=account,coordinators`."""
    operators = frozenset(name for name, level in _pairs(users) if level.lower() in _OPERATORS)
    coordinated: dict[str, set[str]] = {}
    for account, names in _pairs(accounts):
        for name in filter(None, names.split(",")):
            coordinated.setdefault(name, set()).add(account)
    return Privileges(operators=operators, coordinated={k: frozenset(v) for k, v in coordinated.items()})


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        left, bar, right = line.partition("|")
        if bar and left:
            yield left.strip(), right.strip()


def ask(run: commands.Runner) -> Privileges:
    """The privileges now; raises SlurmUnavailable."""
    users = run("sacctmgr", "-nP", "show", "user", "format=user,adminlevel")
    accounts = run("sacctmgr", "-nP", "show", "account", "withcoord", "format=account,coordinators")
    return parse(users.decode("utf-8", "replace"), accounts.decode("utf-8", "replace"))


class CachedPrivileges:
    """The privileges, asked for once a minute at most, whoever wants it."""

    def __init__(self, run: commands.Runner, the_clock: clock.Clock = clock.SYSTEM) -> None:
        self._run = run
        self._clock = the_clock
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._found: Privileges | None = None

    def now(self) -> Privileges | None:
        """The privileges; None when Slurm does not say, which gives nobody any right."""
        with self._lock:
            if self._clock.monotonic_s() >= self._until_s:
                try:
                    self._found = ask(self._run)
                except errors.SlurmUnavailable:
                    self._found = None
                self._until_s = self._clock.monotonic_s() + KEPT_S
            return self._found
