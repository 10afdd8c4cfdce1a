from __future__ import annotations

import json

import lemon_nights as nights

from probing_cluster.reports.lemon import lemon_json


def test_the_whole_night_with_stable_keys() -> None:
    """What a ticket system needs: nodes, probabilities, reasons, prices, the jobs behind them."""
    document = json.loads(lemon_json.dumps(lemon_json.document(nights.busy())))
    assert (document["version"], document["cluster"], document["day"], document["quiet"]) == (
        1,
        "c",
        "2026-11-20",
        False,
    )
    assert {k: [s["node"] for s in document[k]] for k in ("new", "still", "gone", "suspects")} == {
        "new": ["n7"], "still": ["n8"], "gone": ["n9"], "suspects": ["n10"],
    }  # fmt: skip
    new = document["new"][0]
    assert (new["probability"], new["status"], new["cost"]["gpu_h"]) == (0.999, "new", 56.5)
    assert [f["job_id"] for f in new["failures"]] == [4240, 4241, 4242, 4243, 4244, 4245]
    assert set(new["signals"]) == {
        "excl_jobid_count", "xid_cnt", "tickets", "out_count", "multi_node_node_fails", "single_node_node_fails",
        "single_node_node_failure_rate",
    }  # fmt: skip
