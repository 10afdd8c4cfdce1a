from __future__ import annotations

import dataclasses
import json
from datetime import timedelta

import conftest_story as example
import pytest

from probing_cluster.core import vocabulary
from probing_cluster.reports import job_ref, json_out, model, rows

NOW = example.at("15:00:00")

PROMISED = {"job_id", "run_key", "user", "name", "state", "attempts", "ettr"}
ATTEMPT = {"attempt", "state", "exit_code", "submit_at", "start_at", "end_at", "nodes", "n_gpus", "verdict"}
VERDICT = {
    "cause",
    "domain",
    "component",
    "node",
    "device",
    "confidence",
    "summary",
    "evidence",
    "ruled_out",
    "next_step",
    "less_likely",
}
EVIDENCE = {"event_id", "at", "node", "kind", "code", "device", "message"}
ETTR = {
    "measured", "expected", "wall_s", "queued_s", "productive_s", "lost_to_replay_s", "restart_s", "checkpoint_s",
    "suspended_s", "idle_s",
}  # fmt: skip


def document(story: rows.ReportRows) -> dict[str, object]:
    report = model.build(job_ref.parse("4242"), story, now=NOW)
    return json.loads(json_out.dumps(json_out.document(report)))  # type: ignore[no-any-return]


def test_the_promised_keys_are_there(story: rows.ReportRows) -> None:
    """The keys programs rely on, at every level; others may be added, none may go."""
    found = document(story)
    assert found.keys() >= PROMISED
    first, second = found["attempts"]  # type: ignore[misc]
    assert first.keys() >= ATTEMPT
    assert first["verdict"].keys() >= VERDICT
    assert first["verdict"]["evidence"][0].keys() >= EVIDENCE
    assert found["ettr"].keys() >= ETTR  # type: ignore[attr-defined]
    assert second["verdict"] is None


def test_values_are_the_rows_own(story: rows.ReportRows) -> None:
    """Times are ISO in UTC, words are the stable ones, seconds add up to the wall."""
    found = document(story)
    first = found["attempts"][0]  # type: ignore[index]
    assert (found["job_id"], found["state"], found["run_key"]) == (4242, "COMPLETED", "4242")
    assert (first["start_at"], first["nodes"], first["n_gpus"]) == ("2026-11-21T14:02:14Z", ["n1", "n2"], 16)
    assert (first["verdict"]["cause"], first["verdict"]["domain"]) == ("gpu_off_bus", "hardware")
    assert [e["code"] for e in first["verdict"]["evidence"]] == ["79", None]
    ettr = found["ettr"]
    parts = ETTR - {"measured", "expected", "wall_s"}
    assert sum(ettr[p] for p in parts) == pytest.approx(ettr["wall_s"])  # type: ignore[index]
    assert found["cost"]["gpu_h"] == pytest.approx((450 + 75 + 64) * 16 / 3600)  # type: ignore[index]


def test_what_is_not_known_is_null(story: rows.ReportRows) -> None:
    """A job without an account has every ETTR key, all null; never a zero that nobody measured."""
    bare = rows.ReportRows(attempts=(example.attempt(1, n_gpus=None, start_at=example.at("14:03:00")),))
    found = document(bare)
    assert set(found["ettr"].values()) == {None}  # type: ignore[attr-defined]
    assert found["attempts"][0]["n_gpus"] is None  # type: ignore[index]
    assert found["cost"] is None


def test_logs_are_in_the_attempt_whose_prolog_they_are_of(story: rows.ReportRows) -> None:
    """A later start's file is not the first's; what was read has no reason why not."""
    starts = sorted(a.start_at for a in story.attempts if a.start_at)
    logs = tuple(
        rows.JobLog(node="n1", at=at, path=f"/w/{n}", tail=("x",))
        for n, at in enumerate(starts)
        if at is not None
    )
    found = document(dataclasses.replace(story, logs=logs))["attempts"]
    assert [[log["path"] for log in a["logs"]] for a in found] == [["/w/0"], ["/w/1"]]  # type: ignore[attr-defined]
    assert found[0]["logs"][0] == {  # type: ignore[index]
        "node": "n1", "stream": "stdout", "path": "/w/0", "tail": ["x"], "error": None, "why_not_read": None, "note": None,
    }  # fmt: skip


@pytest.mark.parametrize(("count", "shown"), [(0, ["x"]), (None, ["x"]), (1, []), ("1", ["x"])])
def test_the_output_of_a_start_that_accounting_does_not_list_yet_is_not_the_one_before_its(
    story: rows.ReportRows, count: object, shown: list[str]
) -> None:
    """slurmctld was restarted: its word of the next start comes later than that start's Prolog."""
    first = dataclasses.replace(min(story.attempts, key=lambda a: a.attempt), restart_count=0)
    assert first.end_at is not None
    at = (first.end_at + timedelta(seconds=30)).isoformat()
    logs = rows.from_json({"logs": [{"node": "n1", "at": at, "restart_count": count, "logs": [{"path": "/w/o", "tail": ["x"]}]}]}).logs  # fmt: skip
    alone = dataclasses.replace(
        story, attempts=(first,), verdicts=tuple(v for v in story.verdicts if v.submit_at == first.submit_at), logs=logs,
    )  # fmt: skip
    (found,) = document(alone)["attempts"]  # type: ignore[misc]
    assert [line for log in found["logs"] for line in log["tail"]] == shown


def test_the_file_of_a_start_with_two_prologs_is_shown_once(story: rows.ReportRows) -> None:
    """Slurm gave the start up after its end and ran the Prolog anew. Another stream, or other lines, are another file."""
    first = min(a.start_at for a in story.attempts if a.start_at)
    one = rows.JobLog(node="n1", at=first, path="/w/o", tail=("x",), written_s=1.0)
    changes: list[dict[str, object]] = [{"at": first + timedelta(seconds=9), "written_s": 2.0}, {"tail": ("y",)}, {"stream": "stderr"}]  # fmt: skip
    logs = (one, *(dataclasses.replace(one, **changed) for changed in changes))  # type: ignore[arg-type]
    found = document(dataclasses.replace(story, logs=logs))["attempts"]
    assert [(log["stream"], log["tail"]) for log in found[0]["logs"]] == [("stdout", ["x"]), ("stdout", ["y"]), ("stderr", ["x"])]  # type: ignore[index]  # fmt: skip


@pytest.mark.parametrize(
    ("after_s", "refused", "shown"),
    [(None, False, ["x"]), (-1.0, False, ["x"]), (60.0, False, []), (None, True, None)],
)
def test_what_a_later_start_wrote_is_not_shown_as_the_earlier_ones(
    story: rows.ReportRows, after_s: float | None, refused: bool, shown: list[str] | None
) -> None:
    """A node reads a log late, when the job runs again on others; a start that was refused wrote nothing at all."""
    first, second = sorted(a.start_at for a in story.attempts if a.start_at)
    written_s = None if after_s is None else second.timestamp() + after_s
    stored = [{"node": "n1", "at": first.isoformat(), "logs": [{"path": "/w/o", "tail": ["x"], "written_s": written_s}]}]  # fmt: skip
    cause = {"cause": "node_refused"} if refused else {}
    verdicts = tuple(dataclasses.replace(v, **cause) for v in story.verdicts)  # type: ignore[arg-type]
    logs = rows.from_json({"logs": stored}).logs
    attempt = document(dataclasses.replace(story, verdicts=verdicts, logs=logs))["attempts"][0]  # type: ignore[index]
    assert [log["tail"] for log in attempt["logs"]] == ([] if shown is None else [shown])
    if shown == []:
        assert "a later start" in attempt["logs"][0]["why_not_read"]


@pytest.mark.parametrize(
    ("note", "path", "ends"),
    [
        ("its first 87 bytes were there before the job began", "/w/o", "`head -c 87 FILE | tail`"),
        ("", "/w/o", None),
        ("its first 87 bytes were there before the job began", "/w/other", None),
    ],
)
@pytest.mark.parametrize("by_agent", [True, False])
def test_where_the_lines_of_an_earlier_start_end_is_shown_by_the_later_ones_reading(
    story: rows.ReportRows, note: str, path: str, ends: str | None, by_agent: bool
) -> None:
    """`--open-mode=append` keeps them in the file; an agent that read it too late does not tell them from the later ones."""
    first, second = sorted(a.start_at for a in story.attempts if a.start_at)
    log = {"path": "/w/o", "why": vocabulary.LATER_START_WROTE} if by_agent else {"path": "/w/o", "tail": ["x"], "written_s": second.timestamp() + 60}  # fmt: skip
    stored = [
        {"node": "n1", "at": second.isoformat(), "logs": [{"path": path, "tail": ["y"], "note": note}]},
        {"node": "n1", "at": first.isoformat(), "logs": [log]},
    ]
    earlier, later = document(dataclasses.replace(story, logs=rows.from_json({"logs": stored}).logs))[
        "attempts"
    ]  # type: ignore[misc]
    why = earlier["logs"][0]["why_not_read"]
    assert why.startswith(vocabulary.LATER_START_WROTE)
    assert ("head -c" in why, ends is None or ends in why) == (ends is not None, True)
    assert [log["tail"] for log in later["logs"]] == [["y"]]


@pytest.mark.parametrize(
    "logs", [["x", None, 3], [{"tail": "no list"}], [{"path": 3, "tail": [None, {}]}], []]
)
def test_whatever_an_agent_stored_as_logs_is_a_row_or_left_out(logs: list[object]) -> None:
    """Every word of it is foreign: no shape ends a report."""
    found = rows.from_json({"logs": [{"node": "n1", "at": "2026-11-21T14:00:00+00:00", "logs": logs}]})
    assert all(isinstance(log, rows.JobLog) for log in found.logs)
