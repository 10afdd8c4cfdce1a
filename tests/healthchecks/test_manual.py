"""docs/checks.md says what the register says."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.healthchecks import exit_codes, manual, registry, site

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checks.md"


def test_the_page_is_the_register() -> None:
    """The committed page equals the generated one: `python -m probing_cluster.healthchecks.manual > docs/checks.md`."""
    assert PAGE.read_text(encoding="utf-8") == manual.markdown()


def test_every_check_has_its_row_and_section() -> None:
    """Each check, limit and exit code is on the page."""
    page = manual.markdown()
    for check in registry.load().values():
        assert f"| [`{check.name}`](#{check.name}) |" in page
        assert f"\n## {check.name}\n" in page
        for limit in check.thresholds:
            assert f"| `{limit.key}` |" in page
    for code, meaning in exit_codes.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_the_example_on_the_page_is_valid() -> None:
    """The site file shown in the manual can be used as it stands."""
    lines = [line[4:] for line in manual.markdown().splitlines() if line.startswith("    ")]
    plan = site.parse("\n".join(lines)).plan("gpu013")
    assert not plan["gpu_count"].enabled
    assert plan["mount_present"].limits["paths"] == ["/scratch=lustre", "/home=nfs4"]


def test_explain_shows_what_is_in_force() -> None:
    """A changed limit is shown with its default, a changed severity with the check's own."""
    text = '[checks.disk_space]\nwarn_frac = 0.5\nseverity = "info"\nenabled = false'
    rows = manual.rows(site.parse(text).plan("n")["disk_space"])
    shown = " ".join(f"{label} {words}" for label, words in rows)
    assert "warn_frac = 0.5 frac (default 0.9)" in shown
    assert "info when it fails: kept as evidence, nothing is done; default low" in shown
    assert "switched off" in shown
