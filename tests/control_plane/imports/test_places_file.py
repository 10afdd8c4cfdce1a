"""The site's table of places: read whole, or refused with the line that is wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probing_cluster.control_plane.imports import places_file
from probing_cluster.core import errors


def test_a_table_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Comments and blank lines are left out, hostlists are expanded, an empty cell is no place."""
    file = tmp_path / "places.csv"
    file.write_text("# ours\n\nnode, rack ,pdu\nn[1-2], r1 ,p1\nn3,r2,\n")
    assert places_file.read(file) == (
        ("rack", "pdu"),
        [
            ("n1", "rack", "r1"),
            ("n2", "rack", "r1"),
            ("n1", "pdu", "p1"),
            ("n2", "pdu", "p1"),
            ("n3", "rack", "r2"),
        ],
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no header"),
        ("rack,node\n", "the first line must be `node`"),
        ("node\nn1\n", "the first line must be `node`"),
        ("node,Rack 1\n", "'Rack 1' is no name of a kind"),
        ("node,rack,rack\n", "a column stands twice"),
        ("node,rack\nn1,r1\nn2\n", "line 3: 1 columns where the first line has 2"),
        ("# x\nnode,rack\n\nn[1-,r1\n", "line 4"),
        ("node,rack\nn1,r\x1b[31m\n", "line 2: the rack is not a name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    """With its line."""
    file = tmp_path / "places.csv"
    file.write_text(text)
    with pytest.raises(errors.MalformedInput, match=r"places\.csv") as caught:
        places_file.read(file)
    assert words in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """A picture, a missing file, a directory."""
    picture = tmp_path / "x.png"
    picture.write_bytes(b"\x89PNG\xff\xfe")
    for path in (picture, tmp_path / "gone", tmp_path):
        with pytest.raises(errors.MalformedInput):
            places_file.read(path)


def test_a_file_without_an_end_is_refused() -> None:
    """A device tells no size."""
    with pytest.raises(errors.MalformedInput, match="larger than 64 MiB"):
        places_file.read(Path("/dev/zero"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    """Never anything else."""
    file = tmp_path / "fuzz.csv"
    file.write_text("node,rack\n" + text, "utf-8", errors="surrogatepass")
    with contextlib.suppress(errors.MalformedInput):
        places_file.read(file)
