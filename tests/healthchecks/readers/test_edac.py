"""The one reader of EDAC's counts."""

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.healthchecks.readers import edac

MC = f"{edac.ROOT}/mc0"


def counts(ce, ue):
    return edac.Counts(corrected=ce, uncorrected=ue)


def test_a_controller_with_dimms_counts_only_what_no_dimm_is_blamed_for():
    """Its own totals would count each error twice."""
    files = {f"{MC}/ue_count": "3", f"{MC}/ue_noinfo_count": "1", f"{MC}/ce_noinfo_count": "0"}
    files |= {
        f"{MC}/dimm1/dimm_label": "B1\n",
        f"{MC}/dimm1/dimm_ue_count": "2",
        f"{MC}/dimm1/dimm_ce_count": "7",
    }
    assert edac.parse(files) == {"B1": counts(7, 2), "mc0": counts(0, 1)}


def test_a_controller_without_dimms_counts_for_itself():
    assert edac.parse({f"{MC}/ue_count": "3", f"{MC}/ce_count": "x"}) == {"mc0": counts(None, 3)}


def test_ranks_are_places_and_one_label_for_two_keeps_them_apart():
    """Older drivers list ranks; some boards label every DIMM alike."""
    files = {
        f"{MC}/rank{n}/dimm_{what}": v
        for n in (2, 10)
        for what, v in (("label", "DIMM"), ("ue_count", str(n)))
    }
    found = edac.parse(files)
    assert list(found) == ["DIMM", "mc0/rank10", "mc0"]
    assert (found["DIMM"].uncorrected, found["mc0/rank10"].uncorrected) == (2, 10)


def test_a_file_that_failed_is_a_count_that_could_not_be_read():
    assert edac.parse({f"{MC}/dimm0/dimm_ue_count": None})["mc0/dimm0"] == counts(None, None)


@given(
    st.dictionaries(
        st.sampled_from([f"{MC}/dimm0/dimm_label", f"{MC}/dimm0/dimm_ue_count", f"{MC}/ue_count"]), st.text()
    )
)
def test_any_text_is_survived(files):
    for part in edac.parse(files).values():
        assert part.uncorrected is None or part.uncorrected >= 0
