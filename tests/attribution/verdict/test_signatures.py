"""The table of what events say, as it is searched for in a database."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from probing_cluster.attribution.passes import fetch, incidents
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import signatures, taxonomy
from probing_cluster.core import records
from probing_cluster.db import bulk

TABLE = """
[[signature]]
kind = "fabric"
codes = ["PortDown", "sm_*", "sm_lost_quietly"]
cause = "ib_link"
role = "root"
lethality = 0.9
scope = "link"

[[signature]]
kind = "fabric"
codes = ["SM_Trap*", "*"]
cause = "ib_link"
role = "context"
lethality = 0.1
scope = "link"

[[signature]]
kind = "Feed"
codes = ["*"]
cause = "thermal_power"
role = "root"
lethality = 0.9
scope = "node"

[[signature]]
kind = "Feed"
codes = ["Back"]
cause = "thermal_power"
role = "context"
lethality = 0.01
scope = "node"

[[signature]]
kind = "only_begun"
codes = ["Ab*"]
cause = "eth_link"
role = "root"
lethality = 0.9
scope = "link"

[default.high]
cause = "system_services"
role = "weak"
lethality = 0.6
scope = "node"

[default.low]
cause = "system_services"
role = "context"
lethality = 0.2
scope = "node"

[default.info]
cause = "system_services"
role = "context"
lethality = 0.05
scope = "node"
"""
CODES = (None, "", "portdown", "PORTDOWN", "PortDown", "sm_x", "SM_X", "sm_", "sm", "sm_trap_9", "SM_TRAP", "sm_lost_quietly", "AB", "abc", "BACK", "xab", "a%b", "*")  # fmt: skip
KINDS = ("fabric", "Feed", "feed", "only_begun", "elsewhere")


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Another table, with codes in mixed case and codes that only begin so."""
    caches = (signatures._load, signatures._find, signatures.roots_of, incidents.sorts)  # fmt: skip
    path = tmp_path / "signatures.toml"
    path.write_text(TABLE)
    with monkeypatch.context() as patch:
        patch.setattr(signatures, "_FILE", path)
        patch.setattr(taxonomy, "_RULES", tmp_path / "none")
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def test_every_root_is_found_in_a_database(store, make, table):
    """However a code is written and by whatever row it is read: none that argues by itself is overlooked."""
    sorts = itertools.product(KINDS, CODES)
    events = [make.event(kind=k, code=c, source="sysfs", node=f"n{i}") for i, (k, c) in enumerate(sorts)]
    bulk.load_events(store.url, events)
    found = fetch.Fetcher(store, cases.WindowPolicy()).incident_events("c", [(make.start, make.end)])
    roots = {e.event_id for e in events if incidents.counts(e)}
    assert len(roots) > 20
    assert {e.event_id for e in found if incidents.counts(e)} == roots
    # And what nobody asked for is left where it is.
    kinds = {(e.kind, e.code) for e in found}
    assert {k for k, _ in kinds} == {"fabric", "Feed", "only_begun"}
    assert ("fabric", "sm") not in kinds
    assert ("Feed", "BACK") not in kinds
    assert ("only_begun", "xab") not in kinds


def test_xids_of_a_shared_part_are_found_in_a_database(store, make):
    """They are asked for by code: a power feed that a rack lost is told by Xid 54 alone; spans may lie in two months."""
    roots = signatures.roots_of(incidents.WIDE)
    codes = {code for kind, code in roots if kind == "xid"}
    assert codes
    assert not any(c is None or c.endswith("*") for c in codes)
    later = make.start + timedelta(days=40)
    events = [
        make.event(kind="xid", code=code, source="kernel", node=f"n{i}", at=at)
        for i, code in enumerate([*sorted(codes), "31"])
        for at in (make.start, later, make.start + timedelta(days=20))
    ]
    bulk.load_events(store.url, events)
    margin = timedelta(minutes=5)
    spans = [(at - margin, at + margin) for at in (later, make.start)]
    found = fetch.Fetcher(store, cases.WindowPolicy()).incident_events("c", spans)
    wanted = {e.event_id for e in events if e.code in codes and e.at in (make.start, later)}
    assert {e.event_id for e in found} == wanted


def test_rows_for_codes_that_begin_so_count_as_rows(table):
    """Their kind is known."""
    assert {"fabric", "Feed", "only_begun"} == signatures.kinds()


def test_the_longest_beginning_wins(table):
    """Among a code of its own, a longer and a shorter beginning and any code."""

    def role(code):
        return signatures.find("fabric", code, records.Severity.HIGH).role.value

    roles = {c: role(c) for c in ("sm_lost_quietly", "SM_trap_9", "sm_x", "sm", "portDOWN")}
    assert roles == {
        "sm_lost_quietly": "root",
        "SM_trap_9": "context",
        "sm_x": "root",
        "sm": "context",
        "portDOWN": "root",
    }


@pytest.mark.parametrize(
    ("kind", "code", "severity", "lasts"),
    [
        ("xid", "79", "high", True),
        ("sxid", "20034", "high", True),
        ("sxid", "12028", "low", False),
        ("xid", "119", "high", False),
        ("ib_link", "port_down", "high", False),
    ],
)
def test_what_only_a_reset_ends(make, kind, code, severity, lasts):
    """A lost GPU, and a switch whose error is fatal: NVIDIA's manual has both reset before anything runs there again."""
    event = make.event(kind=kind, code=code, severity=records.Severity(severity))
    assert signatures.is_until_reset(event) is lasts
