"""What installed tools print, read and judged; nothing that they print makes a judge fail in another way."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import records
from probing_cluster.diagnostics.procedures import dcgmi, ib_write_bw, nccl_tests
from probing_cluster.healthchecks import findings

NCCL = """# nThread 1 nGpus 8 minBytes 8388608 maxBytes 268435456
     8388608       2097152     float     sum      -1    123.4   67.98  118.97      0    122.9   68.26  119.45      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 356.712
"""
IB = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1200000          392.10             391.53               0.746787
"""
DCGM = '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "GPU Memory", "results": [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": "3", "status": "Fail", "warnings": "row remap failure"}]}]}]}}'


def test_nccl_tests() -> None:
    found = nccl_tests.judge(0, NCCL)
    assert (found.outcome, found.measured) == (records.Outcome.OK, 356.712e9)
    assert nccl_tests.judge(0, NCCL.replace("values : 0", "values : 7")).outcome is records.Outcome.FAIL
    assert nccl_tests.judge(1, "NCCL WARN Cuda failure").outcome is records.Outcome.FAIL


def test_ib_write_bw() -> None:
    found = ib_write_bw.judge("mlx5_0", 0, IB)
    assert (found.outcome, found.device, found.measured) == (
        records.Outcome.OK,
        "mlx5_0",
        pytest.approx(391.53e9 / 8),
    )
    assert (
        ib_write_bw.judge("mlx5_0", 1, "Unable to init the socket connection").outcome is records.Outcome.FAIL
    )


def test_dcgmi_names_the_gpu_that_failed() -> None:
    (found,) = dcgmi.judge(226, DCGM)
    assert found.outcome is records.Outcome.FAIL
    assert "GPU Memory gpu3" in found.message
    (well,) = dcgmi.judge(0, DCGM.replace("Fail", "Pass"))
    assert well.outcome is records.Outcome.OK
    with pytest.raises(findings.Undetermined):
        dcgmi.judge(1, "Error: cannot connect to the host engine")


@given(st.text(max_size=300), st.integers(-2, 3))
def test_no_output_makes_a_judge_fail_otherwise(text: str, code: int) -> None:
    for output in (text, NCCL + text, "{" + text + "}", DCGM[:100] + text):
        nccl_tests.judge(code, output)
        ib_write_bw.judge("x", code, output)
        with contextlib.suppress(findings.Undetermined):
            dcgmi.judge(code, output)
