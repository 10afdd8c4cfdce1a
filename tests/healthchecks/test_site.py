"""The site file: order, patterns, refusals, reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core import errors, records
from probing_cluster.healthchecks import registry, site

LAYERS = """
sku = "h100"
[checks.disk_space]
warn_frac = 0.85
severity = "info"
[[nodes]]
match = "gpu[001-003]"
[nodes.checks.disk_space]
warn_frac = 0.7
[[nodes]]
match = ["gpu002", "login*"]
[nodes.checks.disk_space]
enabled = false
warn_frac = 0.6
[nodes.checks.gpu_count]
expected = 4
"""


def plan(text: str, node: str, check: str = "disk_space") -> site.CheckPlan:
    return site.parse(text).plan(node)[check]


def test_later_sections_override_earlier_ones() -> None:
    """Default, then the top, then every matching section in the order of the file, key by key."""
    assert plan("", "n").limits["warn_frac"] == 0.9
    assert plan(LAYERS, "other").limits["warn_frac"] == 0.85
    assert plan(LAYERS, "gpu001").limits["warn_frac"] == 0.7
    both = plan(LAYERS, "gpu002")
    assert (both.limits["warn_frac"], both.enabled, both.severity) == (0.6, False, records.Severity.INFO)
    assert both.limits["fail_frac"] == 0.97


def test_presets_come_before_the_sections_own_words() -> None:
    """An SKU gives defaults that the same section may override."""
    assert plan(LAYERS, "gpu001", "gpu_count").limits["expected"] == 8
    assert plan(LAYERS, "gpu002", "gpu_count").limits["expected"] == 4


def test_a_preset_for_some_nodes() -> None:
    """One cluster may have several SKUs."""
    text = '[[nodes]]\nmatch = "a*"\nsku = "a100"\n[[nodes]]\nmatch = "h*"\nsku = "h100"'
    assert plan(text, "a1", "ib_link").limits["rate_gbps"] == 200
    assert plan(text, "h1", "ib_link").limits["rate_gbps"] == 400
    assert plan(text, "x1", "ib_link").limits["rate_gbps"] is None


@pytest.mark.parametrize(
    ("pattern", "node", "matches"),
    [
        ("gpu[001-016]", "gpu016", True),
        ("gpu[001-016]", "gpu17", False),
        ("gpu[1-2],login1", "login1", True),
        ("gpu*", "gpu7", True),
        ("gpu?", "gpu77", False),
        ("rack[1-2]-*", "rack2-gpu9", True),
        ("rack[1-2]-*", "rack3-gpu9", False),
        ("n1", "n10", False),
    ],
)
def test_patterns(pattern: str, node: str, matches: bool) -> None:
    """Hostlists, globs, and both together."""
    text = f'[[nodes]]\nmatch = "{pattern}"\n[nodes.checks.uptime]\nenabled = false'
    assert plan(text, node, "uptime").enabled is not matches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[checks.gpu_cuont]", ["unknown check 'gpu_cuont'", "gpu_count"]),
        (
            "[checks.disk_space]\nwarn = 1",
            ["unknown key 'warn'", "fail_frac, ignore, network, period_s, severity, warn_frac"],
        ),
        ("[check.disk_space]", ["unknown key 'check'", "checks, nodes, sku"]),
        ("[[nodes]]\nmatsch = 'x'", ["unknown key 'matsch'", "number 1"]),
        ("[[nodes]]\n[nodes.checks.load]", ["match must be"]),
        ("[[nodes]]\nmatch = 'n[1-'", ["match", "hostlist"]),
        ("[nodes]\nmatch = 'x'", ["[[nodes]]"]),
        ("[checks.disk_space]\nwarn_frac = '90 %'", ["warn_frac must be a number"]),
        ("[checks.disk_space]\nenabled = 1", ["enabled must be true or false"]),
        ("[checks.gpu_count]\nexpected = true", ["expected must be a whole number"]),
        ("[checks.mount_present]\npaths = [1]", ["list of strings"]),
        ("[checks.load]\nseverity = 'fatal'", ["severity must be info, low, high"]),
        ("[checks.load]\ndeadline_s = 500", ["deadline_s must be"]),
        ("checks = 3", ["[checks.<name>]"]),
        ("[checks]\nload = 3", ["[checks.load]"]),
        ("sku = 'h1000'", ["unknown sku 'h1000'", "a100, b200, h100, h200"]),
        ("[checks.load", ["site file"]),
    ],
)
def test_mistakes_are_refused_with_the_way_out(text: str, words: list[str]) -> None:
    """Every mistake names its place and what would be right."""
    with pytest.raises(errors.SettingsError) as refused:
        site.parse(text)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("sku", site.preset_names())
def test_presets_are_valid_and_sourced(sku: str) -> None:
    """Every preset parses, sets GPUs and links, and says in its text where each value comes from."""
    values = site.preset(sku)
    assert values["gpu_count"]["expected"] == 8
    assert values["gpu_nvlink"]["links"] in (12, 18)
    lines = (site.PRESETS / f"{sku}.toml").read_text().splitlines()
    assigned = [line for line in lines if " = " in line and not line.startswith("#")]
    assert assigned
    for line in assigned:
        assert "# " in line, f"{sku}: no source: {line}"


def test_reload(tmp_path: Path) -> None:
    """A changed file is in force at the next look; a broken one is not, and says so; a repaired one is."""
    path = tmp_path / "site.toml"
    path.write_text("[checks.load]\nper_cpu_warn = 1.0")
    file = site.SiteFile(path)
    assert file.current().plan("n")["load"].limits["per_cpu_warn"] == 1.0
    path.write_text("[checks.load]\nper_cpu_warn = 22.0")
    assert file.current().plan("n")["load"].limits["per_cpu_warn"] == 22.0
    path.write_text("[checks.laod]\nper_cpu_warn = 333.0")
    assert file.current().plan("n")["load"].limits["per_cpu_warn"] == 22.0
    assert "last good version is in force" in str(file.problem)
    assert "unknown check 'laod'" in str(file.problem)
    path.write_text("[checks.load]\nper_cpu_warn = 4444.0")
    assert file.current().plan("n")["load"].limits["per_cpu_warn"] == 4444.0
    assert file.problem is None


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    """A vanished file keeps its last version and is a problem; one that never was is none."""
    path = tmp_path / "site.toml"
    file = site.SiteFile(path)
    assert file.current() == site.CheckSite()
    assert file.problem is None
    path.write_text("[checks.load]\nenabled = false")
    assert not file.current().plan("n")["load"].enabled
    path.unlink()
    assert not file.current().plan("n")["load"].enabled
    assert "in force" in str(file.problem)


def test_broken_from_the_start(tmp_path: Path) -> None:
    """A file that never was good leaves the defaults, and says that."""
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xff\xfe")
    file = site.SiteFile(path)
    assert file.current() == site.CheckSite()
    assert "the defaults are in force" in str(file.problem)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """An unreadable file (here: a directory) is a problem, not an exception."""
    file = site.SiteFile(tmp_path)
    assert file.current() == site.CheckSite()
    assert "cannot be read" in str(file.problem)


def test_every_threshold_may_be_set() -> None:
    """Each documented default is itself a valid value of the site file."""
    for check in registry.load().values():
        for limit in check.thresholds:
            if limit.default is not None:
                assert site._value(check, limit.key, limit.default, "x") == limit.default
