"""Accuracy on the labelled job logs: kind, collective, number, rank, timeout and first cause."""

from __future__ import annotations

import json
from pathlib import Path

from probing_cluster.evidence.joblog import reader

NOT_IN_THE_TEXT = {
    ("10_count_mismatch_silent", "op_type"),
    ("10_count_mismatch_silent", "timeout_ms"),
    ("60_gloo_timeout_missing_rank", "op_type"),
    ("60_gloo_timeout_missing_rank", "seq_num"),
    ("62_gloo_peer_killed", "op_type"),
    ("62_gloo_peer_killed", "seq_num"),
    ("62_gloo_peer_killed", "timeout_ms"),
}
"""Labels whose value the log never prints (they come from how the sample was made)."""
FIELDS = {"op_type": "op", "seq_num": "seq", "rank": "rank", "timeout_ms": "timeout_ms"}


def test_every_labelled_log_names_its_first_cause(shared_samples: Path) -> None:
    """The one finding marked first_cause has the labelled kind and every labelled field that the log prints."""
    wrong = []
    for path in sorted((shared_samples / "joblogs").glob("*.log")):
        label = json.loads(path.with_suffix(".json").read_text())
        first = [f for f in reader.read(path.read_text(errors="replace").split("\n")) if f.first_cause]
        if label["kind"] == "running_or_unknown":
            if first:
                wrong.append((path.stem, first))
            continue
        if len(first) != 1 or first[0].kind != label["kind"]:
            wrong.append((path.stem, label["kind"], first))
            continue
        for labelled, ours in FIELDS.items():
            value = getattr(first[0], ours)
            if (
                label[labelled] is not None
                and value != label[labelled]
                and (path.stem, labelled) not in NOT_IN_THE_TEXT
            ):
                wrong.append((path.stem, labelled, label[labelled], value))
    assert wrong == []


def test_labelled_domains_are_never_excluded(shared_samples: Path) -> None:
    """The first cause of every labelled log allows the domain where the fault was."""
    wrong = []
    for path in sorted((shared_samples / "joblogs").glob("*.log")):
        label = json.loads(path.with_suffix(".json").read_text())
        first = [f for f in reader.read(path.read_text(errors="replace").split("\n")) if f.first_cause]
        if first and not set(label["likely_domains"]) <= set(first[0].domains):
            wrong.append((path.stem, label["likely_domains"], first[0].domains))
    assert wrong == []
