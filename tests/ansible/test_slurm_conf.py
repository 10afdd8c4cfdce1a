"""A site's slurm.conf: what is put in comes out again, to the byte, whatever the file looks like."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

SITE = """# our cluster
ClusterName=c
Prolog=/etc/slurm/prolog.sh   # since 2019
SchedulerParameters=defer,\\
    bf_continue
healthcheckprogram = "/usr/sbin/nhc"
NodeName=n[1-4] CPUs=8 \\
  State=UNKNOWN
PartitionName=gpu Nodes=ALL
"""
WANTED: dict[str, Any] = {
    "set": {
        "Prolog": "/ours/prolog.d/*",
        "HealthCheckProgram": "/ours/healthcheck",
        "Epilog": "/ours/epilog.d/*",
    },
    "default": {"HealthCheckInterval": 300, "ClusterName": "never"},
    "words": {"SchedulerParameters": "nohold_on_prolog_fail", "PrologFlags": "Alloc"},
    "alternatives": {"PrologFlags": ["Contain", "X11"]},
    "lines": [],
}


def edited(module: ModuleType, text: str, **more: Any) -> str:
    """One file, edited as the roles edit it."""
    new, _ = module.edit({"main": text}, "main", {**WANTED, **more})
    return str(new["main"])


def test_ours_takes_the_place_of_the_sites(slurm_conf: ModuleType) -> None:
    """The last word on every key is ours, lists keep what they had, and the site's lines stay readable."""
    text = edited(slurm_conf, SITE)
    assert slurm_conf.values(text, "Prolog") == ["/ours/prolog.d/*"]
    assert slurm_conf.values(text, "HealthCheckProgram") == ["/ours/healthcheck"]
    assert slurm_conf.values(text, "Epilog") == ["/ours/epilog.d/*"]
    assert slurm_conf.values(text, "SchedulerParameters") == ["defer,bf_continue,nohold_on_prolog_fail"]
    assert slurm_conf.values(text, "PrologFlags") == ["Alloc"]
    assert slurm_conf.values(text, "HealthCheckInterval") == ["300"]
    assert slurm_conf.values(text, "ClusterName") == ["c"]
    assert "#probing-cluster# Prolog=/etc/slurm/prolog.sh   # since 2019\n" in text


def test_the_sites_own_values_are_told_before_and_after(slurm_conf: ModuleType) -> None:
    """Wrappers run the site's own: its path is known also when ours already stands in the file."""
    for text in (SITE, edited(slurm_conf, SITE)):
        _, site = slurm_conf.edit({"main": text}, "main", WANTED)
        assert site["Prolog"] == ["/etc/slurm/prolog.sh"]
        assert site["HealthCheckProgram"] == ["/usr/sbin/nhc"]
        assert site["Epilog"] == []


def test_a_second_run_changes_nothing(slurm_conf: ModuleType) -> None:
    """Editing what was edited gives the same bytes."""
    once = edited(slurm_conf, SITE)
    assert edited(slurm_conf, once) == once


@pytest.mark.parametrize(
    "text", [SITE, SITE.rstrip("\n"), SITE.replace("\n", "\r\n"), "", "\n", "A=1", "\n\n#x\n\n"]
)
def test_undone_to_the_byte(slurm_conf: ModuleType, text: str) -> None:
    """Also without a last newline, with none at all, and with Windows' line ends."""
    lines = ["optional /ours/probing.so a=b"]
    assert edited(slurm_conf, text, lines=lines) != text
    assert slurm_conf.site_text(edited(slurm_conf, text, lines=lines)) == text


@hypothesis.given(
    strategies.lists(
        strategies.sampled_from(
            [
                "",
                "Prolog=/a",
                "prolog = /b #x",
                "Prolog=/c \\",
                "  Epilog=/d",
                "#Prolog=/e",
                "X=1\\",
                "PrologFlags=X11",
                "é",
            ]
        )
    ),
    strategies.booleans(),
)
def test_any_file_comes_back(slurm_conf: ModuleType, lines: list[str], newline: bool) -> None:
    """Round trip on generated files: continuations, comments, repeated keys, odd cases."""
    text = "\n".join(lines) + ("\n" if newline else "")
    try:
        once = edited(slurm_conf, text)
    except slurm_conf.Unclear:
        hypothesis.reject()
    assert slurm_conf.site_text(once) == text
    assert edited(slurm_conf, once) == once
    assert slurm_conf.values(once, "Prolog") == ["/ours/prolog.d/*"]


def test_a_later_edit_of_the_sites_survives_undoing(slurm_conf: ModuleType) -> None:
    """Undoing takes our lines and nothing else: no old backup comes back."""
    later = edited(slurm_conf, SITE).replace("ClusterName=c", "ClusterName=new")
    assert slurm_conf.site_text(later) == SITE.replace("ClusterName=c", "ClusterName=new")


def test_a_word_that_does_as_well_is_enough(slurm_conf: ModuleType) -> None:
    """PrologFlags=Contain already runs the Prolog at allocation: nothing is added."""
    text = SITE + "PrologFlags=contain\n"
    assert slurm_conf.values(edited(slurm_conf, text), "PrologFlags") == ["contain"]


def test_a_key_in_an_included_file_is_changed_there(slurm_conf: ModuleType) -> None:
    """Two lines for one key would leave to Slurm which counts."""
    files = {"main": "ClusterName=c\nInclude hooks.conf\n", "hooks": "Prolog=/site\n"}
    new, site = slurm_conf.edit(files, "main", WANTED)
    assert slurm_conf.values(new["hooks"], "Prolog") == ["/ours/prolog.d/*"]
    assert slurm_conf.values(new["main"], "Prolog") == []
    assert site["Prolog"] == ["/site"]


def test_what_is_unclear_is_not_guessed(slurm_conf: ModuleType) -> None:
    """A key behind another on one line is refused with the line's number; in a node's line it is another thing."""
    with pytest.raises(slurm_conf.Unclear, match="line 2"):
        edited(slurm_conf, "A=1\nEpilog=/a Prolog=/b\n")
    with pytest.raises(slurm_conf.Unclear, match="line 1: MessageTimeout stands behind Prolog"):
        edited(slurm_conf, "Prolog=/a MessageTimeout=30\n")
    with pytest.raises(slurm_conf.Unclear, match="goes on"):
        edited(slurm_conf, "SchedulerParameters=defer,\\\n")
    edited(slurm_conf, "NodeName=n1 Prolog=never\n")


def test_a_hook_that_slurm_brings_to_the_nodes_is_refused(slurm_conf: ModuleType) -> None:
    """A relative path is a file beside the controller's slurm.conf: on a node ours would not find it, and every job's Prolog would fail."""
    with pytest.raises(slurm_conf.Unclear, match=r"Prolog=prolog\.sh is no full path"):
        edited(slurm_conf, "Prolog=prolog.sh\n")
    assert slurm_conf.values(edited(slurm_conf, "TaskProlog=task.sh\n"), "TaskProlog") == ["task.sh"]
