"""A fake cluster at the process edge: what Slurm says and is told, and a clock that stands still."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Twins of other rooms: the fleet with a lemon in it, and the SMTP server.
sys.path.extend(str(Path(__file__).parents[1] / room) for room in ("lemon", "reports"))

import fakes

from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli import main
from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from tests.set_clock import SetClock


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """As in a process of the command, it is made once: hundreds of tests run one here."""
    with mock.patch.object(main, "parser", functools.cache(main.parser)):
        yield


@pytest.fixture
def slurm() -> fakes.FakeSlurm:
    """Slurm with four idle nodes."""
    return fakes.FakeSlurm()


@pytest.fixture
def service(store: db_store.Store, slurm: fakes.FakeSlurm) -> context.Context:
    """A service on a real database, enforcing, with the fake Slurm and a clock at `fakes.NOW`."""
    policy = settings.PolicySettings(
        observe_only=False, budget_frac=1.0, budget_partition_frac=1.0, drained_frac=1.0
    )
    config = settings.Settings(cluster=settings.ClusterSettings(name="c"), policy=policy)
    return context.Context(
        config=config, store=store, run_slurm=fakes.Sacct(), slurm=slurm, clock=SetClock(fakes.NOW)
    )
