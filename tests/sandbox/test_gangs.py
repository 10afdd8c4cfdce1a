"""What the gangs are said to show are words of the product, and their job knows every case."""

from __future__ import annotations

from probing_cluster.attribution.gang import finding
from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import records
from probing_cluster.sandbox import gangs


def test_every_case_is_to_be_told_in_known_words() -> None:
    """Kinds of the gang's judge, causes and domains of the taxonomy."""
    for kind, domain, function in (*gangs.HANGS.values(), *gangs.BROKEN.values()):
        assert kind in finding.KINDS
        assert records.Domain(domain)
        assert f"def {function}(" in gangs.JOB.read_text("utf-8")
    for cause, domain in gangs.ENDS.values():
        assert taxonomy.cause(cause).domain == domain


def test_the_job_knows_every_case() -> None:
    """Those it does not name go wrong from outside."""
    text = gangs.JOB.read_text("utf-8")
    for case in (*gangs.HANGS, *gangs.BROKEN, *gangs.ENDS, *gangs.HEALTHY, gangs.SLOW):
        assert f'"{case}"' in text or case == "node_lost"
    assert f"\nFAILS_AT = {gangs.FAILS_AT}\n" in text


def test_the_culprit_is_rank_five_alone_except_where_both_of_its_node_are() -> None:
    """On the third node of two ranks each."""
    cases = (*gangs.HANGS, *gangs.BROKEN, *gangs.ENDS)
    both = {case for case in cases if gangs.culprits(case) != [5]}
    assert both == {"deadlock", "node_killed", "link_down"}
    assert {tuple(gangs.culprits(case)) for case in both} == {(4, 5)}
