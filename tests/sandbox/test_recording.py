"""Incidents as files, and their replay."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probing_cluster.core import errors, records, settings
from probing_cluster.db import embedded
from probing_cluster.db import store as store_module
from probing_cluster.sandbox import configs, layout, recording, replay, scratch


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


def test_a_replay_judges_and_reports(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without any cluster the recorded incident ends in the same verdict, on the terminal and as HTML; nothing keeps running."""
    with scratch.directory("probing-replay-") as directory:
        said: list[str] = []
        job = replay.run(directory, recording.DEMO, say=said.append)
        printed = capfd.readouterr().out
        assert f"$ probing-report {job}" in printed
        assert "Xid 79" in printed
        assert "hardware, certain" in printed
        html = directory / f"report-{job}.html"
        assert said[-1] == f"HTML report: {html}"
        assert "Xid 79" in html.read_text()
        assert not embedded.running(directory / "postgres")


def test_configurations_are_what_settings_accept(tmp_path: Path) -> None:
    """Every TOML file that the sandbox writes parses without an unknown key."""
    lay = layout.Layout(
        directory=tmp_path,
        nodes=4,
        gpus=8,
        bare=False,
        slurmctld_port=1,
        slurmdbd_port=2,
        slurmd_ports=(3, 4, 5, 6),
    )
    service = settings.parse(configs.service_toml(lay))
    assert not service.policy.observe_only
    assert service.policy.budget_nodes == 2
    agent = settings.parse(configs.agent_toml(lay, "n3", Path("/x/libnvidia-ml.so.1")))
    assert agent.agent.node == "n3"
    assert agent.agent.kernel_log == f"file:{tmp_path}/nodes/n3/root/dev/kmsg"
    assert settings.parse(configs.replay_toml("c", tmp_path)).database.directory == str(tmp_path)


def test_the_training_script_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    """Killed between checkpoints and started again, it goes on from the last one; it runs without PyTorch too."""
    script = Path(replay.__file__).with_name("demo_job.py")
    checkpoint = tmp_path / "checkpoint"
    argv = [sys.executable, "-S", str(script), str(checkpoint), "2", "1"]
    first = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert first[0] == "starting at step 0"
    assert first[-1] == "done after 2 steps"
    argv[-2] = "3"
    second = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert second[0] == "resuming at step 2"
