"""The manual of the settings is the settings."""

from pathlib import Path

from probing_cluster.core.settings import manual as settings_manual


def test_the_manual_is_the_settings() -> None:
    """docs/configuration.md is generated; a new setting without its row there fails here."""
    manual = (Path(__file__).resolve().parents[3] / "docs/configuration.md").read_text()
    assert manual == settings_manual.manual()
