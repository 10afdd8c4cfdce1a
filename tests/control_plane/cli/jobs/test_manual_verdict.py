"""What a person may say of an attempt."""

from __future__ import annotations

import fakes
import gang_rows
import pytest

from probing_cluster.control_plane.cli.jobs import manual_verdict
from probing_cluster.core import errors
from probing_cluster.db import store as db_store


def _given(device: str) -> manual_verdict.ManualVerdict:
    return manual_verdict.ManualVerdict(
        job="7", attempt=None, cause="gpu_lost", note="", node="n1", device=device, author="ada"
    )


@pytest.mark.parametrize(
    ("device", "cluster", "answers", "refused"),
    [
        ("gpu99", "c", True, True),
        ("gpu8", "c", True, True),
        ("gpu7", "c", True, False),
        ("gpu99", "elsewhere", True, False),
        ("gpu99", "c", False, False),
        ("mlx5_99", "c", True, False),
    ],
)
def test_a_gpu_that_the_node_cannot_have_is_refused(
    store: db_store.Store, device: str, cluster: str, *, answers: bool, refused: bool
) -> None:
    """With what it has, by Slurm; else the report would be certain of it. What cannot be known is believed."""
    store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", end=True)])
    slurm = fakes.FakeSlurm()
    slurm.down = not answers
    count = manual_verdict.gpu_count(slurm, cluster)
    if refused:
        with pytest.raises(
            errors.NotFound, match=f"n1 has no {device}: Slurm has it with 8 GPUs, gpu0 to gpu7"
        ):
            manual_verdict.set_verdict(store, _given(device), count)
        assert store.verdicts() == []
    else:
        manual_verdict.set_verdict(store, _given(device), count)
        assert [v.device for v in store.verdicts()] == [device]
