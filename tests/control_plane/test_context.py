"""What the service keeps for its tasks between their passes."""

from __future__ import annotations

import dataclasses

from probing_cluster.control_plane import context


class Nodes(set[str]):
    """What one task remembers."""


class OtherNodes(set[str]):
    """What another one does."""


def test_each_task_has_its_own_memory_and_each_service_another(service: context.Context) -> None:
    service.memory(Nodes).add("n1")
    assert service.memory(Nodes) == {"n1"}
    assert service.memory(OtherNodes) == set()
    assert service.seldom("name", 60.0, lambda: 1) == 1
    begun_anew = dataclasses.replace(service)
    assert begun_anew.memory(Nodes) == set()
    assert begun_anew.seldom("name", 60.0, lambda: 2) == 2
    assert service.seldom("name", 60.0, lambda: 3) == 1
    with (
        service.try_lock("work") as ours,
        begun_anew.try_lock("work") as theirs,
        service.try_lock("work") as again,
    ):
        assert (ours, theirs, again) == (True, True, False)
