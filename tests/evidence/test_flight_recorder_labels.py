"""The injected ranks of every labelled set of dumps are named, whatever the order and format."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from probing_cluster.evidence.flight_recorder import digest, load, model, verdict

CASES = {
    "gloo_healthy": "healthy",
    "gloo_hang_missing": "missing_rank",
    "gloo_size_mismatch": "mismatch_shape",
    "nccl_nvrx_gpu_error_1st": "device_stuck",
    "nccl_nvrx_lock_gil_2nd": "missing_rank",
}


def dumps_of(directory: Path, suffix: str) -> list[model.RankDump]:
    """Every rank's dump in one format; files without a rank in their name are not dumps."""
    paths = [p for p in sorted(directory.iterdir()) if p.suffix == suffix and "log" not in p.name]
    return [model.parse(rank, p.read_bytes()) for p in paths if (rank := load.rank_of(p.name)) is not None]


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("suffix", ["", ".json"])
def test_the_injected_ranks_are_named(shared_samples: Path, case: str, suffix: str) -> None:
    """Kind and ranks are as injected, from pickles and from JSON."""
    directory = shared_samples / "flight_recorder" / case
    label = json.loads((directory / "LABEL.json").read_text())
    dumps = dumps_of(directory, suffix)
    if not dumps:
        pytest.skip("this case has no dumps in this format")
    found = verdict.judge(dumps, world_size=label["world_size"])
    assert (found.kind, list(found.ranks)) == (CASES[case], label["ground_truth_ranks"])


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_order_of_the_dumps_changes_nothing(shared_samples: Path, case: str) -> None:
    """Ten shuffles give the same verdict, field for field."""
    dumps = dumps_of(shared_samples / "flight_recorder" / case, "")
    first = verdict.judge(dumps)
    shuffler = random.Random(7)
    for _ in range(10):
        shuffler.shuffle(dumps)
        assert verdict.judge(dumps) == first


@pytest.mark.parametrize("case", sorted(CASES))
def test_digests_of_every_rank_say_what_their_dumps_say(shared_samples: Path, case: str) -> None:
    """A few kilobytes a rank, through JSON, and the same ranks are named."""
    dumps = dumps_of(shared_samples / "flight_recorder" / case, "")
    digests = [json.loads(json.dumps(digest.make(d))) for d in dumps]
    assert max(len(json.dumps(d)) for d in digests) < 8192
    again = [d for g in digests if (d := digest.parse(g)) is not None]
    full = verdict.judge(dumps)
    found = verdict.judge(again, world_size=digest.world_size(digests))
    assert (found.kind, found.ranks) == (full.kind, full.ranks)


def test_a_rank_without_a_dump_is_listed(shared_samples: Path) -> None:
    """The innocent rank that aborted and left no dump is listed as missing, not as the culprit."""
    dumps = dumps_of(shared_samples / "flight_recorder" / "gloo_size_mismatch", "")
    found = verdict.judge(dumps, world_size=4)
    assert (found.ranks, found.missing_dumps) == ((3,), (2,))
