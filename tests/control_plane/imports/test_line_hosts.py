"""Whose lines a kernel log holds: of the node it is given for, of another one, or of many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.control_plane.imports import kernel, line_hosts, load
from probing_cluster.core import errors

NOW = datetime(2026, 11, 27, tzinfo=UTC)
XID = "kernel: NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
USB = "kernel: usb 1-1: new device"


def lines(*hosts_and_texts: tuple[str, str]) -> list[bytes]:
    """Lines a second apart."""
    return [
        f"2026-11-24T10:59:{n:02d}+00:00 {host}{' ' if host else ''}{text}\n".encode()
        for n, (host, text) in enumerate(hosts_and_texts)
    ]


def read(
    node: str, given: Sequence[bytes], nodes: Sequence[str] | None = ("gpu01", "gpu02", "gpu07")
) -> kernel.Read:
    """What a file given for `node` holds."""
    known = None if nodes is None else frozenset(nodes)
    return kernel.read(
        given,
        kernel.FilePlace(file="f", node=node, cluster="c", read_at=NOW, reference=NOW, nodes=known),
    )


@pytest.mark.parametrize(
    ("node", "host", "is_used"),
    [
        ("gpu01", "gpu01", True),
        ("gpu01", "GPU01.site.org", True),
        ("gpu01.site.org", "gpu01", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("gpu01", "", True),
        ("gpu01", "localhost", True),
        ("gpu01", "dgx-a", True),
        ("gpu01", "gpu1", True),
        ("gpu01", "gpu07", False),
        ("gpu01", "gpu77", False),
        ("gpu01", "gpu02.site.org", False),
    ],
)
def test_a_line_of_another_host_is_not_the_nodes(node: str, host: str, is_used: bool) -> None:
    """Another node of the import, or one of its numbers, is another machine; a name unlike it may be an alias."""
    found = read(node, lines((host, XID)))
    assert [e.node for e in found.events] == ([node] if is_used else [])
    assert bool(found.covers) == is_used
    left_out = f"1 line of other hosts left out: {line_hosts.short(host)}; nothing of the file was used"
    assert (left_out in found.notes) == (not is_used)


def test_an_alias_is_believed_with_a_note_and_only_alone() -> None:
    """The only host of a file is the node under another name; beside a second host it is another machine."""
    alone = read("gpu01", lines(("dgx-a", XID), ("", USB)))
    assert len(alone.events) == 1
    assert "every line with a host names dgx-a" in alone.notes[0]
    for second in ("gpu01", "gpu02", "dgx-b"):
        both = read("gpu01", lines(("dgx-a", XID), (second, USB), ("dgx-a", XID)))
        assert both.events == []
        assert any("left out: dgx-a" in note for note in both.notes)


def test_of_a_file_of_many_hosts_a_node_has_its_own_lines() -> None:
    """A central log given for one node accuses no other; the rest is counted by host."""
    central = lines(("gpu01", USB), *[("gpu07", XID)] * 3, ("nas", USB), ("gpu01", XID))
    found = read("gpu01", central)
    assert [e.node for e in found.events] == ["gpu01"]
    assert found.n_lines == 6
    assert "4 lines of other hosts left out: gpu07, nas" in found.notes


def test_a_file_without_a_node_gives_each_line_to_the_node_its_host_names() -> None:
    """Once for all nodes, under the names the accounting has; hosts that are no node are counted."""
    central = lines(("gpu01.site.org", XID), ("GPU07", XID), ("nas", XID), ("", XID), ("localhost", XID))
    found = read("", central)
    assert sorted(e.node for e in found.events) == ["gpu01", "gpu07"]
    assert sorted(c.node for c in found.covers) == ["gpu01", "gpu07"]
    assert found.notes == [
        "2 lines of hosts that are no node of this import left out: nas, localhost",
        "1 line without a host left out",
    ]
    without_accounting = read("", central, None)
    assert sorted(e.node for e in without_accounting.events) == ["gpu01", "gpu07", "nas"]


def test_the_rest_of_a_message_is_of_the_host_above_it() -> None:
    """journalctl indents the further lines of a message and gives them no host."""
    text = [*lines(("gpu07", USB)), b"    NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"]
    assert "2 lines of other hosts left out: gpu07; nothing of the file was used" in read("gpu01", text).notes


def test_the_words_of_a_message_are_no_host() -> None:
    """In front of a word and a colon stands a host in syslog, and a message's own words in other forms."""
    text = [b"2026-11-24T10:59:00+00:00 Memory cgroup: out of memory\n", *lines(("", XID))]
    assert len(read("gpu01", text).events) == 1
    in_brackets = [
        b"[Tue Nov 24 10:59:00 2026] systemd[1]: hello\n",
        b"2026-11-24T10:59:00,5+00:00 usb x: y\n",
    ]
    assert not read("gpu01", in_brackets).names_hosts


def test_each_host_has_its_own_report_of_several_lines() -> None:
    """A second node's lines between those of a first change nothing of either."""
    first = lines(("gpu01", XID), ("gpu01", USB))
    second = lines(("gpu02", XID), ("gpu02", USB))
    mixed = read("", [line for pair in zip(first, second, strict=True) for line in pair])
    alone = [*read("gpu01", first).events, *read("gpu02", second).events]
    assert mixed.events == alone


def test_a_log_without_hosts_needs_its_node(tmp_path: Path) -> None:
    """Of a dmesg given without a node nobody knows whose it is."""
    (tmp_path / "d").write_text("[Tue Nov 24 10:59:00 2026] usb 1-1: new device\n")
    order = load.LoadOrder(kernel=[("", tmp_path / "d")], cluster="c", now=NOW)
    with pytest.raises(
        errors.MalformedInput, match="names a host; say whose kernel log it is: --kernel NODE="
    ):
        load.read(order)


@pytest.mark.parametrize(
    ("given", "node", "note"),
    [
        ("g1", "g1", ""),
        ("g1.cluster", "g1", ""),
        ("G1.cluster.site.org", "g1", ""),
        ("gpu1", "gpu1", "gpu1 is no node of the accounting"),
        ("g99", "g99", "--kernel NODE= takes g1"),
    ],
)
def test_a_node_is_called_as_the_accounting_calls_it(
    tmp_path: Path, given: str, node: str, note: str
) -> None:
    """With its domain it is the same; of a name that the accounting does not have, the summary says so."""
    sacct, log = tmp_path / "sacct", tmp_path / "log"
    sacct.write_text(
        "JobIDRaw|JobID|State|ExitCode|Submit|Start|End|NodeList\n1|1|FAILED|1:0|2026-11-24T10:00:00|2026-11-24T10:00:00|2026-11-24T11:00:00|g[1-2]\n"
    )
    log.write_bytes(b"[Tue Nov 24 10:59:30 2026] " + XID.removeprefix("kernel: ").encode() + b"\n")
    found = load.read(load.LoadOrder(sacct=[sacct], kernel=[(given, log)], timezone="UTC", now=NOW))
    assert [e.node for e in found.events[0].found.events] == [node]
    notes = [line for line in found.done.lines if "no node of the accounting" in line]
    assert (len(notes), note in "".join(notes)) == (bool(note), True)


def test_a_nodes_boot_is_given_by_its_name_with_or_without_its_domain(tmp_path: Path) -> None:
    """Seconds since boot have a time of day only by it."""
    sacct, log = tmp_path / "sacct", tmp_path / "log"
    sacct.write_text(
        "JobIDRaw|JobID|State|ExitCode|Submit|Start|End|NodeList\n1|1|FAILED|1:0|2026-11-24T10:00:00|2026-11-24T10:00:00|2026-11-24T11:00:00|g[1-2]\n"
    )
    log.write_bytes(b"[ 3570.000000] " + XID.removeprefix("kernel: ").encode() + b"\n")
    boots = {"g1.cluster": datetime(2026, 11, 24, 10, tzinfo=UTC)}
    order = load.LoadOrder(sacct=[sacct], kernel=[("G1", log)], boots=boots, timezone="UTC", now=NOW)
    (event,) = load.read(order).events[0].found.events
    assert event.at == datetime(2026, 11, 24, 10, 59, 30, tzinfo=UTC)


def test_a_node_keeps_its_own_name_where_another_is_like_it() -> None:
    """Two nodes of one short name are two nodes; each is called as it was given."""
    nodes = {"g1.a", "g1.b", "g2"}
    given = ("g1.a", "g1.b", "G2.a", "g3", "")
    assert line_hosts.as_known(given, nodes) == {
        "g1.a": "g1.a", "g1.b": "g1.b", "G2.a": "g2", "g3": "g3", "": "",
    }  # fmt: skip
