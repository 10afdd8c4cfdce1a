"""The table of repair steps: a row per cause, only what the site switched on, and a site's own table."""

from __future__ import annotations

import uuid
from pathlib import Path

import fakes
import pytest

from probing_cluster.control_plane.repair import steps, workflow
from probing_cluster.core import errors, records, settings

PAGE = (Path(__file__).resolve().parents[3] / "docs/repair.md").read_text(encoding="utf-8")


def test_each_cause_gets_what_is_switched_on() -> None:
    gpu = steps.cause_of({"xid"}, steps.TABLE)
    assert steps.possible(gpu, settings.RepairSettings()) == ()
    on = settings.RepairSettings(reset_command="x", reboot=True)
    assert steps.possible(gpu, on) == ("reset", "reboot")
    assert steps.cause_of({"never heard of"}, steps.TABLE).name == "other"
    assert steps.possible(steps.cause_of({"mount"}, steps.TABLE), on) == ()


@pytest.mark.parametrize(
    ("check", "cause"),
    [
        ("ib_link", "outside"),
        ("mount_responsive", "outside"),
        ("gpu_xid", "gpu"),
        ("mce", "machine"),
        ("swap", "other"),
    ],
)
def test_what_a_check_found_has_the_cause_of_its_part(check: str, cause: str) -> None:
    """A pulled cable, found by the check of links before the kernel said anything, reboots no node."""
    event = records.HealthEvent(
        event_id=uuid.UUID(int=1), cluster="c", node="n1", at=fakes.NOW, observed_at=fakes.NOW, kind="check",
        code=check, severity=records.Severity.HIGH, device=None, job_id=None, source="check", message="",
    )  # fmt: skip
    assert steps.cause_of(steps.names_of([event]), steps.TABLE).name == cause


def test_the_steps_taken_are_named() -> None:
    on = settings.RepairSettings(reset_command="x", reboot=True)
    assert steps.taken_and_left("gpu", 1, on) == (["reset"], ["reboot"])
    assert steps.taken_and_left("gpu", 0, settings.RepairSettings()) == ([], [])


def test_a_sites_table_replaces_ours_and_a_wrong_one_says_why(tmp_path: Path) -> None:
    path = tmp_path / "steps.toml"
    path.write_text('[[cause]]\nname = "all"\nsteps = ["power"]\n')
    (row,) = steps.load(settings.RepairSettings(steps_file=str(path)))
    assert (row.name, row.kinds, row.steps) == ("all", frozenset(), ("power",))
    for text, words in (
        ('[[cause]]\nname = "a"\nsteps = ["pray"]\n', "no step 'pray'"),
        ("", "no \\[\\[cause\\]\\]"),
        ("[[cause]]\nsteps = []\n", "name"),
        ("[[cause", "steps.toml"),
        ('[[cause]]\nname = "a"\nsteps = "reset"\n', "lists"),
    ):
        path.write_text(text)
        with pytest.raises(errors.SettingsError, match=words):
            steps.load(settings.RepairSettings(steps_file=str(path)))


def test_the_manual_has_every_row_and_step() -> None:
    for cause in steps.TABLE:
        assert f"| `{cause.name}` |" in PAGE
        assert sorted(cause.kinds) == sorted(k for k in cause.kinds if k in PAGE)
    assert [s for s in steps.STEPS if f"| `{s}` |" not in PAGE] == []


@pytest.mark.parametrize(
    ("name", "nodes", "ours"),
    [
        ("probing-gpu-3-0a1b2c3d", ("gpu-2", "gpu-3"), True),
        ("probing-diagnose-0a1b2c3d", ("n1",), True),
        ("probing-n9-0a1b2c3d", ("n1",), False),
        ("probing-n1-training", ("n1",), False),
        ("train", ("n1",), False),
        (None, (), False),
    ],
)
def test_jobs_of_our_tests_are_known_by_their_names(
    name: str | None, nodes: tuple[str, ...], ours: bool
) -> None:
    """An import leaves them out; a job that only begins as they do is a user's."""
    assert workflow.is_of_a_test(name, nodes) is ours
