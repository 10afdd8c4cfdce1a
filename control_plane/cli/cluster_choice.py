"""Which cluster of a database a command is about: two clusters in one may both have a job 4242."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from probing_cluster.core import errors, settings

if TYPE_CHECKING:  # the command line is there before the database's libraries are
    from probing_cluster.db import store as db_store


def add_option(made: argparse.ArgumentParser) -> None:
    """Adds `--cluster`."""
    made.add_argument(
        "--cluster",
        metavar="NAME",
        help="the cluster it is about, where the database holds several (default: that of the settings)",
    )


def chosen(store: db_store.Store, config: settings.Settings, name: str | None) -> db_store.Store:
    """The store of the cluster of that name, else of the settings' cluster, else of the only one that there is.

    Raises NotFound for a name that no attempt bears, and UsageError where the settings' cluster is none of several.
    """
    names = store.clusters()
    if name is not None:
        if name not in names:
            raise errors.NotFound(f"no attempt is of a cluster {name}; the database has {_listed(names)}")
        return store.of(name)
    if config.cluster.name in names or not names:
        return store.of(config.cluster.name)
    if len(names) == 1:
        return store.of(names[0])
    raise errors.UsageError(
        f"the database has {_listed(names)}, and [cluster] name is {config.cluster.name}: choose one with --cluster"
    )


def _listed(names: list[str]) -> str:
    return f"attempts of {', '.join(names)}" if names else "none at all"
