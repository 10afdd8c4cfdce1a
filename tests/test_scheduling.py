"""How the run deals its tests out to workers (tests/conftest.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FILES = {"tests/a.py": 3, "tests/b.py": 3, "tests/c.py": 3}
TESTS = [f"{file}::test_{n}" for file, n_tests in FILES.items() for n in range(n_tests)]


class Worker:
    """What the scheduler sees of one: tests given to it, by number."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert indices, "a worker that is given nothing tells of nothing, and the run waits for it"
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> Any:
    """The one of this run, with two workers at work."""
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    options: dict[str, Any] = {"tx": ["2*popen"], "loadscopereorder": False}
    config = SimpleNamespace(
        getvalue=options.get, getoption=options.get, option=SimpleNamespace(**options), rootpath=Path()
    )
    return conftest.FolderScheduling(config)


def test_a_lost_workers_finished_files_are_not_dealt_out_again(scheduler: Any) -> None:
    """The other worker is given what was left of the file that it died in, and then has nothing more to wait for."""
    lost, other = Worker("gw0"), Worker("gw1")
    for worker in (lost, other):
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    first = list(lost.given)
    for index in first:
        scheduler.mark_test_complete(lost, index)
    rest = lost.given[len(first) :]
    assert rest, "it died in its second file"
    assert scheduler.remove_node(lost) == TESTS[rest[0]]
    for index in other.given:  # which grows meanwhile
        scheduler.mark_test_complete(other, index)
    assert sorted(first + other.given) == list(range(len(TESTS)))
    assert not scheduler.has_pending


def test_half_of_the_workers_begin_with_what_waits(scheduler: Any) -> None:
    """Long files wait and the rest computes: both at once. Who has no more of its own sort takes of the other."""
    long, rest = ([f"tests/{folder}/test_{n}.py::test" for n in range(4)] for folder in ("e2e", "lemon"))
    even, odd = Worker("gw0"), Worker("gw1")
    for worker in (even, odd):
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, [*long, *rest])
    scheduler.schedule()
    assert (set(even.given), set(odd.given)) == ({0, 1}, {4, 5})
    for index in odd.given:  # which grows meanwhile: the other worker is still in its first file
        scheduler.mark_test_complete(odd, index)
    assert odd.given == [4, 5, 6, 7, 2, 3]


def test_what_has_the_longest_tests_is_begun_first(request: pytest.FixtureRequest) -> None:
    """A worker that began with a long file last would be alone at the end."""
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    names = [
        f"tests/{name}.py::t"
        for name in ("ansible/a", "attribution/a", "e2e/a", "lemon/a", "test_a", "web/a", "e2e/b")
    ]
    items = [SimpleNamespace(nodeid=name, get_closest_marker=lambda _: None) for name in names]
    conftest.pytest_collection_modifyitems(items)
    assert [item.nodeid[6:-6] for item in items] == [
        "e2e/a",
        "e2e/b",
        "ansible/a",
        "web/a",
        "test_a",
        "attribution/a",
        "lemon/a",
    ]
