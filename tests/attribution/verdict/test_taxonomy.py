"""The taxonomy is whole, and its page in the manual is what it says."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from pathlib import Path

import pytest

from probing_cluster.attribution import causes_page
from probing_cluster.attribution.verdict import findings, phrases, signatures, taxonomy
from probing_cluster.core import errors, records

ROOT = Path(__file__).resolve().parents[3]


def test_the_manual_page_is_the_generated_one():
    """docs/causes.md cannot rot."""
    assert (ROOT / "docs" / "causes.md").read_text("utf-8") == causes_page.page()


def test_every_cause_word_is_stable_snake_case_and_complete():
    """Scripts key on these words."""
    for word, cause in taxonomy.load().causes.items():
        assert word.replace("_", "").isalnum()
        assert word == word.lower() == cause.word
        assert cause.meaning.endswith(".")
        assert cause.next_step.endswith(".")
        assert "  " not in phrases.next_step(cause.next_step) + phrases.next_step(
            cause.next_step, part="d", node="n"
        )


def test_table_one_of_the_paper_is_there():
    """All twelve symptoms with their domains."""
    named = {s.word: set(s.domains) for s in taxonomy.load().symptoms}
    u, s, h = records.Domain.USER_PROGRAM, records.Domain.SYSTEM_SOFTWARE, records.Domain.HARDWARE
    assert named["oom"] == {u}
    assert named["gpu_unavailable"] == {s, h}
    assert named["gpu_driver"] == named["filesystem_mounts"] == {s}
    assert named["nccl_timeout"] == {u, s, h}
    assert named["system_services"] == {u, s}
    for word in ("gpu_memory", "gpu_nvlink", "infiniband_link", "main_memory", "ethernet_link", "pcie"):
        assert named[word] == {h}


def test_every_cause_has_a_way_to_be_found():
    """No word that no rule, signature or finding can name."""
    rules = "".join(p.read_text("utf-8") for p in (ROOT / "attribution" / "verdict" / "rules").glob("*.py"))
    tables = "".join(
        path.read_text("utf-8")
        for path in (ROOT / "attribution").glob("**/*.toml")
        if path.name != "taxonomy.toml"
    )
    for word in taxonomy.load().causes:
        assert f'"{word}"' in rules + tables


def test_an_unknown_word_names_the_valid_ones():
    """`probing-ctl verdict --cause` can print them."""
    with pytest.raises(errors.NotFound, match="gpu_lost"):
        taxonomy.cause("gremlins")


def test_every_row_of_the_signature_tables_names_a_known_cause():
    """Loading checks both tables whole."""
    assert "xid" in signatures.kinds()
    assert "watchdog_timeout" in findings.kinds()


def test_every_kernel_code_the_grammar_knows_has_a_signature_of_its_kind():
    """A new kernel family cannot fall through to the default."""

    from probing_cluster.evidence import kernel

    for module in pkgutil.iter_modules(kernel.__path__):
        facts = getattr(importlib.import_module(f"{kernel.__name__}.{module.name}"), "FACTS", {})
        for kind, code in facts:
            assert kind in signatures.kinds(), (kind, code)


@pytest.mark.parametrize(
    ("kind", "code", "severity", "role"),
    [
        ("xid", "79", "info", "root"),
        ("xid", "94", "low", "root"),
        ("xid", "149", "info", "context"),
        ("xid", "149", "high", "root"),
        ("xid", "31", "high", "user"),
        ("xid", "45", "high", "consequence"),
        ("sxid", "20034", "high", "root"),
        ("sxid", "20009", "info", "context"),
        ("pcie_aer", "corrected", "high", "context"),
        ("pcie_aer", "fatal", "high", "root"),
        ("edac", "CE", "info", "context"),
        ("nfs", "not_responding", "info", "root"),
        ("mount", "missing", "low", "weak"),
        ("check", "gpu_ecc", "high", "root"),
        ("something_new", None, "high", "weak"),
        ("something_new", None, "info", "context"),
    ],
)
def test_what_events_may_do(kind, code, severity, role):
    """Severity bounds what a row allows, except where the row holds always."""
    assert signatures.find(kind, code, records.Severity(severity)).role == role


def test_a_recovery_is_never_a_fault(make):
    """Whatever its kind, an event that says the fault has gone convicts nothing."""
    gone = make.event(kind="gpu_lost", source="nvml", detail={"recovered": True})
    assert signatures.of(gone).recovery
    assert signatures.of(gone).role == "context"


def test_every_message_the_log_reader_knows_has_a_row():
    """A new family of job-log messages cannot go unheard."""
    from probing_cluster.evidence.joblog import families

    known = findings.kinds()
    assert not [k for family in families.FAMILIES for k in family.facts if k not in known]


def test_unknown_findings_are_read_by_their_role(make):
    """An unknown kind is read by the role and domains that its grammar gives."""
    root = make.finding("brand_new", detail={"role": "root", "domains": ["user_program"]})
    assert findings.find(root).role == "own"
    assert findings.find(make.finding("brand_new", detail={"role": "symptom"})).role == "proximal"
    assert findings.find(make.finding("brand_new")).role == "context"


def test_a_timeout_whose_ranks_disagree_is_a_mismatch(make):
    """The reader saw different sizes at one sequence number: the program's own."""
    timeout = make.finding("watchdog_timeout", detail={"domains": ["user_program"], "timeout_ms": 600000})
    assert findings.find(timeout).cause == "collective_mismatch"


def test_a_health_check_convicts_only_by_a_row_of_its_own():
    """A check without a row is kept and shown, whatever its severity; only a row lets it count."""
    from probing_cluster.healthchecks import checks

    table = tomllib.loads((ROOT / "attribution" / "verdict" / "signatures.toml").read_text("utf-8"))
    named = {c for row in table["signature"] if row["kind"] == "check" for c in row["codes"]}
    registered = {m.name for m in pkgutil.iter_modules(checks.__path__)}
    assert named - registered == {"*", "prolog_refused"}
    for name in {*(registered - named), "brand_new"}:
        found = signatures.find("check", name, records.Severity.HIGH)
        assert (found.role, found.recovery) == (signatures.Role.CONTEXT, False)
