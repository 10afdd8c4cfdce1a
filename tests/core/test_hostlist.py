"""Hostlist expressions as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors, hostlist


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]g[1-2]", ["r1g1", "r1g2", "r2g1", "r2g2"]),
        ("a1,b[2-3],c", ["a1", "b2", "b3", "c"]),
        ("ng[30103,30203,30706-30707]", ["ng30103", "ng30203", "ng30706", "ng30707"]),
        ("None assigned", []),
        ("", []),
    ],
)
def test_expand_what_slurm_writes(text: str, hosts: list[str]) -> None:
    """Ranges, padding, several brackets and Slurm's words for nothing all expand."""
    assert hostlist.expand(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n1]", "n[3-1]", "n[a-b]", "n[1-9999999]", "n[[1]]", "n[²]"])
def test_expand_refuses_nonsense(text: str) -> None:
    """A malformed or exploding expression is a named error, never a crash or a gigabyte."""
    with pytest.raises(errors.MalformedInput):
        hostlist.expand(text)


_NAMES = st.from_regex(r"[a-z]{1,4}(-[a-z]{1,3})?[0-9]{0,5}", fullmatch=True)


@given(st.lists(_NAMES, max_size=40))
def test_compress_loses_nobody(hosts: list[str]) -> None:
    """Compressing and expanding gives the same set of hosts."""
    assert set(hostlist.expand(hostlist.compress(hosts))) == set(hosts)


def test_compress_folds() -> None:
    """Consecutive numbers fold into the form an operator would type."""
    assert hostlist.compress(["n3", "n1", "n2", "n7"]) == "n[1-3,7]"
    assert hostlist.compress(["n01", "n02"]) == "n[01-02]"


@given(st.text(max_size=60))
def test_expand_never_breaks(text: str) -> None:
    """Any text gives hosts or MalformedInput."""
    try:
        hosts = hostlist.expand(text)
    except errors.MalformedInput:
        return
    assert all(isinstance(host, str) for host in hosts)
