"""The NVML state file."""

from __future__ import annotations

import threading
from pathlib import Path

from probing_cluster.sandbox.c_libraries import nvml_state


def test_a_state_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Keys and values survive, values may hold `=`, and None means absent."""
    path = tmp_path / "nvml.state"
    nvml_state.write(path, {"a.b": "x=y", "c": 3, "gone": None})
    assert nvml_state.read(path) == {"a.b": "x=y", "c": "3"}
    nvml_state.update(path, {"c": None, "d": 1})
    assert nvml_state.read(path) == {"a.b": "x=y", "d": "1"}


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Counters raised and events added by many writers all arrive."""
    path = tmp_path / "nvml.state"
    nvml_state.write(path, {"gpu.pcie.replay": 5})

    def work() -> None:
        for _ in range(20):
            nvml_state.add(path, 0, "pcie.replay")
            nvml_state.add_event(path, 0, 79)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    state = nvml_state.read(path)
    assert state["gpu.0.pcie.replay"] == "85"
    assert state["event.count"] == "80"
    assert {state[f"event.{i}"] for i in range(1, 81)} == {"0 8 79"}
