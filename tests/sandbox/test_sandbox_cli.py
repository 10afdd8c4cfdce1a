"""The command line of the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.control_plane.doctor import site_rights
from probing_cluster.core import errors
from probing_cluster.sandbox import cli, cluster, services
from probing_cluster.sandbox.demo import cli_demo
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import requirements


def test_a_fault_from_the_command_line_reaches_the_node(
    node: registry.Target, capsys: pytest.CaptureFixture[str]
) -> None:
    """Positional and named options arrive with their types."""
    node.layout.save()
    where = ["fault", "--dir", str(node.layout.directory), "n1"]
    assert cli.main([*where, "xid", "31", "--gpu", "5", "--pid", "7"]) == 0
    log = (node.root / "dev/kmsg").read_text()
    assert f"(PCI:{node.gpu(5).pci[:-2]}): 31, pid=7, name=python3" in log
    printed = capsys.readouterr().out
    assert printed.startswith("n1: xid code=31 gpu=5")
    assert registry.FAULTS["xid"].meaning in printed
    for words in (["n1", "xid", "32", "--dir", where[2]], ["n1", "xid", "32", "--gpu", "5", *where[1:3]]):
        assert cli.main(["fault", *words]) == 0, "wherever --dir stands"
    assert cli.main([*where, "ib-down", "mlx5_9"]) == errors.NotFound.exit_code
    assert "there are mlx5_0" in capsys.readouterr().err


def test_without_a_sandbox_every_command_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """status, down, shell, gang and fault on an empty directory: one line and exit code 3."""
    for words in (["status"], ["down"], ["shell"], ["gang"], ["fault", "n1", "heal"]):
        assert cli.main([words[0], "--dir", str(tmp_path), *words[1:]]) == 3
        assert "probing-sandbox up" in capsys.readouterr().err


def test_status_lists_the_database(
    node: registry.Target, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres is no process of the sandbox's own roles, and runs beside them."""
    node.layout.save()
    monkeypatch.setattr(services, "database_runs", lambda lay: lay.postgres == node.layout.postgres)
    assert cli.main(["status", "--dir", str(node.layout.directory)]) == 0
    assert "running: postgres" in capsys.readouterr().out


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_kept_demo_says_how_an_ordinary_user_runs_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """A Python below root's home starts for root alone."""
    home = tmp_path / "root"
    (home / "bin").mkdir(parents=True)
    python = home / "bin/python3"
    python.touch(mode=0o755)
    tmp_path.chmod(0o755)
    home.chmod(0o700 if is_closed else 0o755)
    inside = site_rights.parts
    monkeypatch.setattr(
        site_rights, "parts", lambda path: [p for p in inside(path) if p.is_relative_to(tmp_path)]
    )
    words = " ".join(cli_demo.kept_words(Path("/w/probing-sandbox"), python).split())
    assert "/w/probing-sandbox shell" in words
    assert "runuser -u USER -- sbatch" in words
    assert ("runuser -u USER -- probing-report JOBID" in words) is not is_closed
    assert (f"other users cannot enter {home}," in words) is is_closed
    assert ("make PYTHON=/usr/bin/python3 demo" in words) is is_closed


class _Slurm:
    """Says how many nodes are idle and takes no job."""

    def __init__(self, n_idle: int) -> None:
        self.stdout = "idle\n" * n_idle + "drain\n"

    def run(self, _: list[str]) -> _Slurm:
        return self


@pytest.mark.parametrize(("n_idle", "n_nodes"), [(2, 0), (3, 3), (9, 4)])
def test_a_gang_takes_the_nodes_that_are_idle_and_says_what_to_ask(
    n_idle: int,
    n_nodes: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A drained node of the demo is in nobody's way; too few are a sentence."""
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(cli.cluster.Sandbox, "open", lambda _: _Slurm(n_idle))
    monkeypatch.setattr(cli.gangs, "submit", lambda *_, **options: calls.append(options) or 7)
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda _: True)
    assert cli.main(["gang", "--dir", str(tmp_path)]) == (0 if n_nodes else 2)
    printed = capsys.readouterr()
    if not n_nodes:
        assert "2 nodes are idle" in printed.err
        return
    assert (calls[0]["nodes"], calls[0]["ntasks"]) == (n_nodes, 2 * n_nodes)
    assert all(f"probing-ctl {command} 7" in printed.out for command in ("ranks", "stacks", "sql"))


def test_up_without_root_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason and exit code 5, no traceback."""
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    assert cli.main(["up", "--dir", str(tmp_path / "x")]) == 5
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.cluster
def test_status_and_shell_reach_a_running_cluster(
    bare: cluster.Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    """status names what runs and the nodes; shell gives a command the cluster, and its exit code."""
    where = ["--dir", str(bare.directory)]
    assert cli.main(["status", *where]) == 0
    printed = capfd.readouterr().out
    assert "running: mariadb munged slurmctld" in printed
    assert "gpu:h100:8" in printed
    assert cli.main(["shell", *where, "--", "sh", "-c", "sinfo -h -o %P; exit 3"]) == 3
    assert "gpu*" in capfd.readouterr().out
