"""Every outcome that a check declares has been brought about in it by a test of its own.

`error` and the time-out are the same for all and are proved for all in test_every_check.py; `absent` is proved
for all there too, on a node where nothing is. Run with the folder `checks/`: alone there is nothing to compare.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import registry

NAMES = sorted(registry.load())


def declared(check: registry.Check) -> set[Outcome]:
    """What its documentation says it can say."""
    found = {Outcome.OK}
    if not check.fails.startswith("never"):
        found.add(Outcome.FAIL)
    if not check.warns.startswith("never"):
        found.add(Outcome.WARN)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_a_check_declares_it_can_say_it_has_said(name: str, shown: dict[str, set[Outcome]]) -> None:
    """A declared failure that no test has seen is a promise nobody has checked; an undeclared one is a lie."""
    if not set(NAMES) <= set(shown):
        pytest.skip("needs the tests of tests/healthchecks/checks in the same run")
    check = registry.get(name)
    judged = shown[name] - {Outcome.ABSENT, Outcome.ERROR}
    assert judged == declared(check)


def test_each_check_has_its_tests() -> None:
    """One file per check, on both sides."""
    here = Path(__file__).parent / "checks"
    assert {p.stem.removeprefix("test_") for p in here.glob("test_*.py")} == set(NAMES)
