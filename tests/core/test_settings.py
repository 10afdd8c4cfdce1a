"""One TOML file, and a clear no for everything else."""

from pathlib import Path

import pytest

from probing_cluster.core import errors, settings


def test_defaults_stand_without_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without the file runs on the documented defaults, observe-only."""
    monkeypatch.delenv("PROBING_CONFIG", raising=False)
    monkeypatch.setattr(settings, "DEFAULT_PATH", tmp_path / "none.toml")
    assert settings.load().policy.observe_only is True


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """Somebody who names a file does not want the defaults."""
    with pytest.raises(errors.SettingsError, match=r"missing\.toml does not exist"):
        settings.load(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[polcy]\n", "unknown section .polcy.; valid: .*policy"),
        ("[policy]\nobserve = true\n", "unknown key 'observe'; valid: .*observe_only"),
        ("[policy]\nbudget_nodes = true\n", "budget_nodes must be int"),
        ("[policy]\nfresh_s = 'soon'\n", "fresh_s must be float"),
        ("[mail]\nrecipients = 'a@b'\n", "recipients must be a list of strings"),
        ("policy = 1\n", "policy must be a section"),
        ("[policy\n", "settings"),
    ],
)
def test_mistakes_are_named(text: str, complaint: str) -> None:
    """The error names the section, the key and what would be right."""
    with pytest.raises(errors.SettingsError, match=complaint):
        settings.parse(text)


def test_values_arrive() -> None:
    """Written values override defaults; an integer is accepted where seconds are meant."""
    parsed = settings.parse("[policy]\nfresh_s = 7\n[mail]\nrecipients = ['a@b', 'c@d']\n")
    assert parsed.policy.fresh_s == 7.0
    assert parsed.mail.recipients == ("a@b", "c@d")


@pytest.mark.parametrize(
    "line", ["poll_s = -1", "beat_s = nan", "sweep_s = inf", "spool_max_bytes = -1", f"beat_s = {'9' * 400}"]
)
def test_a_number_that_can_be_meant_by_nobody_is_named(line: str) -> None:
    """`nan` compares as neither too small nor too large: an interval of it was waited for never or for ever."""
    key = line.partition(" ")[0]
    with pytest.raises(errors.SettingsError, match=rf"\[agent\] {key} (must not be below 0|is too large)"):
        settings.parse(f"[agent]\n{line}")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("drained_frac = 5", "a share from 0 to 1, not 5; 5 % is 0.05"),
        ("reboot_kinds = ['xid', 'ecx']", "no kind of event is 'ecx'; valid: .*agent_dropped"),
        ("hold_kinds = ['ib-link']", "no kind of event is 'ib-link'"),
    ],
)
def test_a_rule_of_the_policy_that_would_be_none_is_named(line: str, complaint: str) -> None:
    """A budget of 500 % lets every node be drained; a fault whose kind is misspelt would come back without its reboot."""
    with pytest.raises(errors.SettingsError, match=complaint):
        settings.parse(f"[policy]\n{line}\n")
    assert settings.parse("[policy]\ndrained_frac = 1\nhold_kinds = []\n").policy.drained_frac == 1.0


def test_a_device_that_never_ends_is_no_file_of_settings() -> None:
    """`--config /dev/zero` is a sentence, and memory stays."""
    with pytest.raises(errors.SettingsError, match="no file of settings"):
        settings.load(Path("/dev/zero"))
