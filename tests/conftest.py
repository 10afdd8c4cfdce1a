"""Fixtures every room may use.

postgres_url     a fresh database with our schema, on a real embedded Postgres started once per test
                 session; costs a few hundredths of a second. Connects as the owner.
postgres_directory   the embedded server's directory, for tests that stop, start or kill the server.
store            db.store.Store on `postgres_url`.
make_munged      starts a real munged with a key and socket of its own; skips where MUNGE is not installed.
shared_samples   the directory of real-world samples beside the checkout; skips where it is absent.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from xdist.scheduler import LoadScopeScheduling

from probing_cluster.db import migrate
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded, server_files
from probing_cluster.sandbox.machine import daemons, layout, processes, scratch
from tests import initialised, kept_deliveries

_ROOT = Path(__file__).resolve().parents[1]
_EXAMPLES = _ROOT / ".hypothesis"

# A slow machine is no failure: no test asserts a time. Who may not write into the checkout keeps no failing examples.
_kept = {} if os.access(_EXAMPLES if _EXAMPLES.exists() else _ROOT, os.W_OK) else {"database": None}
hypothesis.settings.register_profile("ours", deadline=None, max_examples=15, **_kept)  # type: ignore[arg-type]
hypothesis.settings.register_profile("soak", deadline=None, max_examples=1000, **_kept)  # type: ignore[arg-type]
hypothesis.settings.load_profile("ours")

# Benchmarks are no package of the product, and the checkout is not on the path: tests of them import them from here.
_spec = importlib.util.spec_from_file_location(
    "benchmarks", Path(__file__).parents[1] / "benchmarks/__init__.py"
)
assert _spec is not None
assert _spec.loader is not None
sys.modules["benchmarks"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["benchmarks"])

gc.disable()
"""Until all is collected; see `pytest_collection_finish`."""

_LONG = ("tests/e2e", "tests/slurm_plugins", "tests/sandbox", "tests/ansible")
"""Folders whose files take longest and mostly wait, the longest first: begun first, so that no worker is left with one at the end."""
_NEXT = ("tests/probe_agent", "tests/web", "tests/test_")
"""Of the others, what has tests of many seconds: for the same reason."""
_TOGETHER = ("tests/healthchecks", "tests/slurm_plugins")
"""Folders that one worker runs: they share a cluster, or a last test that looks at all the others."""

_DELIVERING = ("tests/db", "tests/probe_agent", "tests/control_plane/node_door")
"""Folders whose tests are about deliveries: theirs open a connection each, as an agent's do."""

_TEMPLATE = "probing_template"
_BUFFERS_MIB = 128
_SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
_NAMES = itertools.cycle(f"probing_test_{n}" for n in range(6))
"""Of databases. The driver of Arrow reads all types of a database that it does not know, and knows the last eight by their URLs.
Not one name alone: what a test left running must not come upon the next one's database."""


def _rank(nodeid: str) -> int:
    """When a test's file is begun: a smaller number is earlier."""
    first = (*_LONG, *_NEXT)
    return next((n for n, start in enumerate(first) if nodeid.startswith(start)), len(first))


class FolderScheduling(LoadScopeScheduling):
    """A worker takes a file at a time, or a whole folder of `_TOGETHER`.

    Every second worker begins with the long files, the others with the rest: long files wait while the rest computes, and processors that
    only had long files would be idle first and too few afterwards.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in _TOGETHER if file.startswith(folder)), file)

    def _assign_work_unit(self, node: Any) -> None:
        """The first file of the worker's own sort; of the other sort when none is left."""
        wants_long = int(node.gateway.id.removeprefix("gw")) % 2 == 0
        first = next((scope for scope in self.workqueue if scope.startswith(_LONG) == wants_long), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """Deals out anew what a lost worker had left, and not the files it was through with.

        xdist hands those out too (3.8): whoever is given one has nothing to run, tells of no result, and the run waits for ever.
        """
        work = self.assigned_work[node]
        self.assigned_work[node] = {scope: tests for scope, tests in work.items() if not all(tests.values())}
        return super().remove_node(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderScheduling:
    """xdist's hook: how tests are dealt out with --numprocesses."""
    return FolderScheduling(config, log)


def pytest_collection_finish() -> None:
    """What collecting made lives until the end: the collector of garbage need not walk it even once."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first; files of a sort keep their order. (`make test` has xdist deal them out so.) Without torch, its tests are skipped."""
    items.sort(key=lambda item: _rank(item.nodeid))
    if importlib.util.find_spec("torch") is None:
        # Looked for and not imported: that takes each worker seconds.
        missing = pytest.mark.skip(reason="needs torch (make setup installs it)")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(missing)


@pytest.fixture(scope="session", autouse=True)
def _initialised_once() -> Iterator[None]:
    """See `initialised`."""
    with initialised.once():
        yield


@pytest.fixture(scope="session")
def postgres_directory() -> Iterator[Path]:
    """A running embedded server of its own for this session."""
    # Not under pytest's own directory: its parents are closed to the account the server runs as. In memory a database,
    # made anew for each test, costs half the processor time and no wait for a disk.
    with scratch.directory("probing-pg-") as directory:
        with pytest.MonkeyPatch.context() as patch:
            # Postgres looks through all its buffers for each database that is made or dropped.
            patch.setattr(server_files, "shared_buffers_mib", lambda: _BUFFERS_MIB)
            embedded.ensure(directory)
        try:
            yield directory
        finally:
            embedded.stop(directory)


class Administrator:
    """Runs statements on the session's server, all by one connection: a new one costs as much as copying a database."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._connection: psycopg.Connection[Any] | None = None

    def execute(self, statement: str) -> None:
        """Runs it, on a new connection (and a started server) where a test took the old one away."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.OperationalError):
                self._connection.execute(statement)
                return
            self.close()
        self._connection = psycopg.connect(embedded.ensure(self._directory), autocommit=True)
        self._connection.execute(statement)

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest.fixture(scope="session")
def administrator(postgres_directory: Path) -> Iterator[Administrator]:
    """The session's server, for its owner."""
    with contextlib.closing(Administrator(postgres_directory)) as made:
        yield made


@pytest.fixture(scope="session")
def postgres_template(postgres_directory: Path) -> str:
    """The name of a database with our schema, to copy."""
    with psycopg.connect(embedded.url(postgres_directory), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_TEMPLATE}")
    migrate.upgrade(embedded.url(postgres_directory, database=_TEMPLATE))
    return _TEMPLATE


@pytest.fixture
def postgres_url(
    postgres_directory: Path,
    postgres_template: str,
    administrator: Administrator,
    request: pytest.FixtureRequest,
) -> Iterator[str]:
    """The URL of an empty database with our schema, as its owner; dropped afterwards."""
    name = next(_NAMES)
    administrator.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    administrator.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template} STRATEGY FILE_COPY")
    with contextlib.ExitStack() as stack:
        if not request.node.nodeid.startswith(_DELIVERING):
            stack.enter_context(kept_deliveries.kept())
        yield embedded.url(postgres_directory, database=name)
    with contextlib.suppress(psycopg.OperationalError):
        administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def store(postgres_url: str) -> Iterator[store_module.Store]:
    """The control plane's store on a fresh database."""
    with store_module.Store.open(postgres_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def make_munged() -> Iterator[Callable[[], layout.Layout]]:
    """Starts the sandbox's munged; its layout says socket and key. Called again: another one, with another key."""
    if shutil.which("munged", path=_SBIN) is None or shutil.which("munge") is None:
        pytest.skip("needs munge")
    with contextlib.ExitStack() as stack:

        def start() -> layout.Layout:
            home = stack.enter_context(scratch.directory("probing-munge-"))
            ports = {"slurmctld_port": 0, "slurmdbd_port": 0, "slurmd_ports": ()}
            lay = layout.Layout(directory=home, nodes=1, gpus=0, bare=True, **ports)  # type: ignore[arg-type]
            for directory in (lay.etc, lay.run, lay.log):
                directory.mkdir()
            stack.callback(processes.end_all, home)
            daemons.start_munge(lay, {**os.environ, "PATH": _SBIN, processes.MARK: str(home)})
            return lay

        yield start


@pytest.fixture(scope="session")
def munged(make_munged: Callable[[], layout.Layout]) -> layout.Layout:
    """The site's munged."""
    return make_munged()


@pytest.fixture(scope="session")
def shared_samples() -> Path:
    """Real-world samples kept outside the repository."""
    directory = Path(__file__).resolve().parents[2] / "shared" / "samples"
    if not directory.is_dir():
        pytest.skip("no ../shared/samples beside the checkout")
    return directory
