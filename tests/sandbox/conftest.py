"""Fixtures of the sandbox's tests: a simulated node, real pynvml on the stub, a running Slurm cluster."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.c_libraries import nvml_build
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import layout, requirements, scratch
from probing_cluster.sandbox.nodetree import build

ONE_NODE = {
    "nodes": 1,
    "gpus": 8,
    "bare": True,
    "slurmctld_port": 1,
    "slurmdbd_port": 2,
    "slurmd_ports": (3,),
}


@pytest.fixture
def node(tmp_path: Path) -> registry.Target:
    """One healthy simulated node without any process."""
    lay = layout.Layout(directory=tmp_path, **ONE_NODE)
    build.build(lay.node("n1"), "n1", number=1, gpus=8)
    return registry.Target(layout=lay, node="n1", env={})


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML stub, built once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    return nvml_build.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(node: registry.Target, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Real pynvml, initialised, on the stub with the state of `node`."""
    monkeypatch.setenv("PROBING_NVML_STATE", str(node.nvml))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


@pytest.fixture(scope="session")
def needs_slurm() -> None:
    """Skips where no real cluster can run."""
    if why := requirements.missing():
        pytest.skip(why)


@pytest.fixture(scope="session")
def box_directory(needs_slurm: None) -> Iterator[Path]:
    """A short directory that other accounts may enter; pytest's own is neither."""
    with scratch.directory("probing-box-") as directory:
        yield directory


@pytest.fixture(scope="session")
def bare(box_directory: Path) -> Iterator[cluster.Sandbox]:
    """A running Slurm cluster of three nodes, without our own processes."""
    with cluster.Sandbox.up(box_directory / "bare", nodes=3, gpus=8, bare=True) as box:
        yield box
