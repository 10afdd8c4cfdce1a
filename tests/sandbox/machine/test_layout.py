"""Where a sandbox may lie and how large it may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.sandbox.machine import layout


@pytest.mark.parametrize(
    ("directory", "nodes", "gpus", "why"),
    [
        ("/x", 0, 8, "--nodes 0"),
        ("/x", 65, 8, "--nodes 65"),
        ("/x", 4, 17, "--gpus 17"),
        ("/" + "x" * 80, 4, 8, "too long for Unix sockets"),
        ("/a b", 4, 8, "cannot hold blanks"),
    ],
)
def test_impossible_sandboxes_are_refused_before_anything_is_made(
    directory: str, nodes: int, gpus: int, why: str
) -> None:
    """Sizes out of range and paths that Slurm or a socket cannot hold are named."""
    with pytest.raises(errors.UsageError, match=why):
        layout.check(Path(directory), nodes, gpus)


def of_two_nodes(directory: Path) -> layout.Layout:
    return layout.Layout(
        directory=directory,
        nodes=2,
        gpus=8,
        bare=False,
        slurmctld_port=1,
        slurmdbd_port=2,
        slurmd_ports=(3, 4),
    )


def test_a_layout_comes_back_from_its_file(tmp_path: Path) -> None:
    """Saving and loading give the same sandbox; a directory without one says how to make it."""
    lay = of_two_nodes(tmp_path)
    with pytest.raises(errors.NotFound, match="probing-sandbox up"):
        layout.Layout.load(tmp_path)
    lay.save()
    assert layout.Layout.load(tmp_path) == lay


def test_an_unknown_node_is_named_with_the_known_ones(tmp_path: Path) -> None:
    """Asking for a node that is not there says which are."""
    lay = of_two_nodes(tmp_path)
    with pytest.raises(errors.NotFound, match="n1 to n2"):
        lay.node("n3")


def test_a_working_directory_closed_to_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's own closed directory holds no sandbox: neither Postgres nor other users' jobs could enter it."""
    monkeypatch.setattr(layout.os, "geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.chdir(closed)
    chosen = layout.default_directory()
    assert chosen.parent == Path("/var/tmp")
    assert chosen == layout.default_directory()
    monkeypatch.setattr(layout.os, "geteuid", lambda: 1000)
    assert layout.default_directory() == closed / ".sandbox"


def test_a_directory_that_others_could_have_filled_is_refused(tmp_path: Path) -> None:
    """Root never runs what someone else may have put into a predictable place."""
    layout.require_own(tmp_path / "absent")
    tmp_path.chmod(0o777)
    with pytest.raises(errors.NotPermitted, match="others may write"):
        layout.require_own(tmp_path)
    with pytest.raises(errors.NotPermitted):
        layout.Layout.load(tmp_path)
    tmp_path.chmod(0o755)
    layout.require_own(tmp_path)
