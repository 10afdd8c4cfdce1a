"""Embedded servers of tests are initialised once for each worker and account: the next begin as copies, which cost a fraction of it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from probing_cluster.db.server import embedded, postgres_programs
from probing_cluster.sandbox.machine import scratch


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Meanwhile this process's new servers are copies of its first. What an interrupted start left is met by the product itself."""
    initialise = embedded._initialise

    with scratch.directory("probing-initialised-") as directory:

        def copied(home: Path, account: postgres_programs.OsAccount) -> None:
            first = directory / account.name
            if (home / "data.new").exists() or not first.exists():
                initialise(home, account)
                if not first.exists():
                    _copy(home / "data", first)
            else:
                _copy(first, home / "data.new")
                (home / "data.new").rename(home / "data")

        with mock.patch.object(embedded, "_initialise", copied):
            yield


def _copy(source: Path, target: Path) -> None:
    """With owners and modes."""
    subprocess.run(["cp", "--archive", str(source), str(target)], check=True)
