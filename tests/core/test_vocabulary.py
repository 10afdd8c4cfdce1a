"""One vocabulary: the sources and what follows from their properties, and SQL that repeats a part of it."""

import re
from pathlib import Path

import pytest

from probing_cluster.core import vocabulary

ROOT = Path(__file__).resolve().parents[2]
SQL = sorted(p for p in ROOT.rglob("*.sql") if not {".venv", "benchmarks"} & set(p.relative_to(ROOT).parts))
_LIST = re.compile(r"\bsource\s+(?:NOT\s+)?IN\s*\(([^()]*)\)", re.IGNORECASE)
_ONE = re.compile(r"\bsource\s*(?:=|<>|!=)\s*'(\w+)'", re.IGNORECASE)
REPEATED = {
    vocabulary.JOB_SIDE_SOURCES: "what a user's process can write",
    vocabulary.POLLED_SOURCES & vocabulary.ACTING_SOURCES: "what sees a condition begin and end",
    vocabulary.KERNEL_LOG_SOURCES: "the node's kernel log",
}


def lists(text: str) -> list[frozenset[str]]:
    """The lists of sources that a SQL text writes out."""
    return [frozenset(re.findall(r"'(\w+)'", found)) for found in _LIST.findall(text)]


def test_every_list_of_sources_in_sql_is_one_of_the_vocabularys():
    """SQL has to write the words out; a source that is added must be added there, too."""
    written = {(p.name, names) for p in SQL for names in lists(p.read_text())}
    assert written, "no SQL names sources any more: this test reads nothing"
    strange = {name: sorted(names) for name, names in written if names not in REPEATED}
    assert strange == {}
    assert {names for _, names in written} == set(REPEATED), "a list is no longer written out in SQL"


def test_sql_counts_missed_beats_as_everybody_does():
    text = next(p for p in SQL if p.name == "ops.sql").read_text("utf-8")
    assert re.findall(r"silent_s > (\d+) \* least\(h\.beat_s", text) == [str(vocabulary.MISSED_BEATS)]


def test_sql_calls_under_way_what_everybody_does():
    text = next(p for p in SQL if p.name == "ops.sql").read_text("utf-8")
    assert f"starts_with(d.why_state, '{vocabulary.BEGUN}')" in text
    assert f"interval '{vocabulary.UNDER_WAY_S:.0f} seconds' AS under_way" in text
    assert f"THEN '{vocabulary.UNDER_WAY}'" in text


def test_sql_compares_with_sources_that_exist():
    known = {s.name for s in vocabulary.SOURCES}
    assert {w for p in SQL for w in _ONE.findall(p.read_text())} <= known


@pytest.mark.parametrize(
    "text",
    ["source IN ('kernel')", "h.source not in ( 'joblog', 'probe' )", "e.source IN\n('nvml',\n'agent')"],
)
def test_a_list_that_disagrees_is_found(text):
    assert lists(text)
    assert lists(text)[0] not in REPEATED


def test_what_a_user_can_write_neither_acts_nor_latches():
    assert not vocabulary.JOB_SIDE_SOURCES & (
        vocabulary.ACTING_SOURCES | vocabulary.LATCHING_SOURCES | vocabulary.POLLED_SOURCES
    )
    assert vocabulary.JOB_SIDE_SOURCES


def test_what_latches_may_act_and_a_file_never_does():
    assert vocabulary.LATCHING_SOURCES <= vocabulary.ACTING_SOURCES
    assert "import" not in vocabulary.ACTING_SOURCES
    assert "agent" not in vocabulary.ACTING_SOURCES


def test_every_source_is_named_once():
    names = [s.name for s in vocabulary.SOURCES]
    assert sorted(names) == sorted(set(names))


def test_the_policy_page_names_the_sources_that_act():
    """An administrator reads there what can take a node away."""
    line = next(x for x in (ROOT / "docs/policy.md").read_text().splitlines() if "Its source is" in x)
    assert set(re.findall(r"`(\w+)`", line.split(". ", 2)[1])) == vocabulary.ACTING_SOURCES


def test_our_prefix_is_written_out_nowhere_else():
    """Two spellings of it would make one drain ours to the policy and another's to the act."""
    spelled = re.compile(r"""["']probing: ?["']|["']probing: (?:lemon)?["']""")
    rooms = {p.parent for p in ROOT.glob("*/__init__.py")} - {ROOT / "tests", ROOT / "benchmarks"}
    found = [
        str(p.relative_to(ROOT))
        for room in rooms
        for p in room.rglob("*.py")
        if spelled.search(p.read_text()) and p.name != "vocabulary.py"
    ]
    assert found == []
    assert vocabulary.LEMON_PREFIX.startswith(vocabulary.OWN_PREFIX)


def test_every_kind_that_is_read_or_judged_is_in_the_table():
    """A kernel family's kind or a signature's that nobody entered would be in no group: it would act, hold and count for nothing."""
    from probing_cluster.attribution.verdict import signatures
    from probing_cluster.evidence.kernel import reader

    names = [k.name for k in vocabulary.EVENT_KINDS]
    assert len(names) == len(set(names))
    assert {kind for kind, _ in reader.facts()} | set(signatures.kinds()) == set(names)


def test_groups_of_kinds_are_what_their_readers_need():
    """What acts at once, what waits and what a lemon is made of, each from one table."""
    assert vocabulary.PASSING_KINDS == ("ib_link", "eth_link", "mount", "nfs", "lustre", "gpfs", "beegfs")
    assert not set(vocabulary.PASSING_KINDS) & set(vocabulary.REBOOT_KINDS)
    assert {"xid", "gpu_lost", "ecc"} <= vocabulary.GPU_KINDS & set(vocabulary.LEMON_KINDS)
    assert all(k.meaning for k in vocabulary.EVENT_KINDS)
