"""A command is about one cluster of the database; which, is said or found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import cluster_choice, main
from probing_cluster.core import errors, settings
from probing_cluster.db import store as db_store
from tests import two_clusters

CONFIG = settings.Settings(cluster=settings.ClusterSettings(name="c"))
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(store: db_store.Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command on a database of two clusters, by the settings of cluster c or of another: code, output, errors."""
    two_clusters.fill(store)

    def command(*words: str, name: str = "c") -> tuple[int, str, str]:
        path = tmp_path / "probing.toml"
        path.write_text(
            f'[cluster]\nname = "{name}"\n[database]\nurl = "{store.connection_uri()}"\n'
            f'[slurm]\nbin_directory = "{tmp_path}/none"\n'
        )
        code = main.main([*words, "--config", str(path)])
        return code, *capsys.readouterr()

    return command


def test_the_cluster_is_found_where_it_is_not_said(store: db_store.Store) -> None:
    """That of the settings; else the only one of the database, as of an imported history."""
    elsewhere = dataclasses.replace(CONFIG, cluster=settings.ClusterSettings(name="cluster"))
    assert cluster_choice.chosen(store, elsewhere, None).cluster == "cluster"
    ours, theirs = (
        next(iter(two_clusters.records_of(c, two_clusters.midnight(two_clusters.now()))))
        for c in ("c", "zeta")
    )
    store.upsert_attempts([theirs])
    assert cluster_choice.chosen(store, elsewhere, None).cluster == "zeta"
    store.upsert_attempts([ours])
    assert cluster_choice.chosen(store, CONFIG, None).cluster == "c"
    assert cluster_choice.chosen(store, CONFIG, "zeta").cluster == "zeta"
    with pytest.raises(errors.UsageError, match=r"attempts of c, zeta.*--cluster"):
        cluster_choice.chosen(store, elsewhere, None)
    with pytest.raises(
        errors.NotFound, match="no attempt is of a cluster zetta; the database has attempts of c, zeta"
    ):
        cluster_choice.chosen(store, CONFIG, "zetta")


def test_the_fleets_figures_are_of_one_cluster(run: Run) -> None:
    """Its name is in the head and in the figures; all together only where that is asked for."""
    for options, clusters, n in (
        ((), "c", 1),
        (("--cluster", "zeta"), "zeta", 1),
        (("--all-clusters",), None, 2),
    ):
        code, out, _ = run("fleet", "state-breakdown", "--json", *options)
        figure = json.loads(out)
        assert (code, figure["cluster"], sum(s["n_attempts"] for s in figure["states"])) == (0, clusters, n)
    assert "cluster zeta" in run("fleet", "state-breakdown", "--cluster", "zeta")[1]
    assert "c, zeta" in run("fleet", "--all-clusters")[1]
    assert run("fleet", "--all-clusters", "--cluster", "c")[0] == 2


def test_a_verdict_by_hand_is_on_the_named_clusters_job(run: Run, store: db_store.Store) -> None:
    words = ("verdict", "7", "--cause", "user_error", "--note", "a slip")
    assert run(*words)[0] == 0
    assert run(*words, "--cluster", "zeta")[0] == 0
    assert run(*words, name="elsewhere")[0] == 2
    assert [(v.cluster, v.cause) for v in store.verdicts()] == [("c", "user_error"), ("zeta", "user_error")]


def test_attribute_judges_the_named_clusters_job(run: Run, store: db_store.Store) -> None:
    """A span's attempts are judged in every cluster; a job is one cluster's."""
    for options, cluster in (((), "c"), (("--cluster", "zeta"), "zeta")):
        code, out, err = run("attribute", "--job", "7", "--json", *options)
        assert (code, json.loads(out)["attempts"]) == (0, 1), err
        changed = {v.cluster for v in store.verdicts() if not v.summary.startswith("of ")}
        assert cluster in changed
        assert changed == ({"c"} if cluster == "c" else {"c", "zeta"})
    assert run("attribute", "--cluster", "zeta")[0] == 2
    assert json.loads(run("attribute", "--since", "2d", "--json")[1])["attempts"] == 2
