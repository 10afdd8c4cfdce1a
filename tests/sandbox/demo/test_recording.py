"""Incidents as files, and their replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probing_cluster.core import errors, records
from probing_cluster.db import store as store_module
from probing_cluster.sandbox.demo import recording


@pytest.fixture(scope="module")
def incident() -> recording.Recording:
    """The recording that the demo replays."""
    return recording.load(recording.DEMO)


def test_the_demos_recording_is_a_real_gpu_fault(incident: recording.Recording) -> None:
    """It holds both attempts of one job, the kernel line of Xid 79 and the drain, and nothing judged."""
    assert [a.state for a in incident.attempts] == ["REQUEUED", "COMPLETED"]
    kernel = [e for e in incident.events if e.source == "kernel" and e.code == "79"]
    assert kernel
    assert kernel[0].message.startswith("NVRM: Xid (PCI:")
    assert {d.action for d in incident.drains} >= {"drain", "requeue"}
    assert "verdict" not in json.loads(recording.DEMO.read_text())


def test_a_recording_survives_its_file(incident: recording.Recording, tmp_path: Path) -> None:
    """Saved and loaded again, every record is equal."""
    path = tmp_path / "again.json"
    recording.save(incident, path)
    assert recording.load(path) == incident


def test_a_recording_comes_back_out_of_the_database(
    store: store_module.Store, incident: recording.Recording
) -> None:
    """Stored as agents and service would, twice, it is taken out again once and equal."""
    recording.put(incident, store)
    recording.put(incident, store)
    taken = recording.take(store, incident.job_id, incident.about)
    assert sorted(taken.events, key=_by_id) == sorted(incident.events, key=_by_id)
    assert taken.attempts == incident.attempts
    assert {d.drain_id for d in taken.drains} == {d.drain_id for d in incident.drains}


def _by_id(event: records.HealthEvent) -> str:
    return str(event.event_id)


def test_a_job_that_is_not_there_is_not_recorded(store: store_module.Store) -> None:
    """An unknown job is one clear error."""
    with pytest.raises(errors.NotFound, match="job 99"):
        recording.take(store, 99, "")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"about": ""}', '{"about": "", "cluster": "c", "attempts": [{}]}']
)
def test_a_file_that_is_no_recording_is_named(text: str, tmp_path: Path) -> None:
    """Broken JSON and missing fields are errors with the file's name, not tracebacks."""
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(errors.MalformedInput, match=r"broken\.json"):
        recording.load(path)
