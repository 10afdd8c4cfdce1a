"""A verdict says whether the job's output was read, ends with the program's last line where nothing names a reason, and follows a late reading."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from probing_cluster.attribution.passes import assign_rows, attribute
from probing_cluster.core import records
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from tests import unjudged
from tests.attribution.conftest import Maker
from tests.set_clock import SetClock

EXITED = "srun: error: n1: task 0: Exited with exit code 1"
LINE = "checkpoint version 3 is too new for this code (max 2)"
BY_CODE = "The program exited with code 1, with no fault beside it."


@pytest.fixture(params=[1, 1_000_000], ids=["by column", "one by one"])
def judge(
    request: pytest.FixtureRequest, store: db_store.Store, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """A pass over what is open, both ways; how many attempts it judged."""
    monkeypatch.setattr(attribute, "MANY", request.param)
    return lambda: attribute.attribute(store, at=SetClock(make.end + timedelta(minutes=2))).n_attempts


@pytest.fixture
def report(postgres_url: str, make: Maker) -> Callable[..., None]:
    """Delivers a start's row as a node's agent does: without `tails` of its Prolog, with them of its output files."""

    def send(tails: dict[str, list[str]] | None = None, node: str = "n1", **changes: Any) -> None:
        logs = [{"stream": s, "path": f"/w/{s}", "tail": lines} for s, lines in (tails or {}).items()]
        row = records.JobAllocation(
            **{
                "cluster": "c",
                "job_id": 4242,
                "node": node,
                "restart_count": 0,
                "at": make.start,
                "detail": {} if tails is None else {"logs": logs},
            }
            | changes
        )
        beat = records.AgentHeartbeat(
            cluster="c", node=node, at=make.end + timedelta(seconds=20), boot_id="b"
        )
        delivery.Delivery(postgres_url, "c", node).deliver(events=[], allocations=[row], heartbeat=beat)

    return send


def the_verdict(store: db_store.Store, job_id: int = 4242) -> records.Verdict:
    (found,) = store.verdicts(job_ids=[job_id])
    return found


def test_a_late_reading_reopens_that_attempt_alone_and_once(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Its neighbour of the same node and minute keeps its verdict; the same report again is no news."""
    for node in ("n1", "n2"):
        report(node=node)
    store.upsert_attempts([make.attempt(), make.attempt(job_id=4243, user="bob")])
    judge()
    before = the_verdict(store)
    assert (before.log_read, before.summary, before.confidence) == (False, BY_CODE, records.Confidence.LIKELY)
    assert the_verdict(store, 4243).log_read is None
    report({"stdout": ["epoch 3"]}, node="n2")
    assert judge() == 0
    report({"stdout": ["epoch 3", LINE]})
    report({"stdout": ["epoch 3", LINE]})
    assert judge() == 1
    after = the_verdict(store)
    assert (after.log_read, after.summary) == (True, f"{BY_CODE} Its last line: {LINE}")
    assert ("`grep`" in before.next_step, after.next_step) == (True, "Look at the program's own output.")
    unread = {"log_read": False, "summary": BY_CODE, "made_at": before.made_at}
    assert dataclasses.replace(after, **unread, next_step=before.next_step) == before
    report({"stdout": ["epoch 3", LINE]})
    assert judge() == 0


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("got USR1, writing a checkpoint", True),
        ("[rank0] Received signal 10: stopping after this step", True),
        ("SIGTERM received, saving", True),
        ("handler for SIGUSR1 registered", False),
        ("will save when SIGUSR1 is received", False),
        ("+ trap save USR1", False),
        ("worker got 12 batches, signal strength 10 dB", False),
        ("sent SIGTERM, received by the data server", False),
    ],
)
def test_a_program_that_reports_a_signal_may_have_been_warned_of_its_time_limit(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    line: str,
    named: bool,
) -> None:
    """`sbatch --signal` sends one minutes before: the time limit is not ruled out then."""
    report({"stdout": ["epoch 3", line, "saved"]})
    store.upsert_attempts([make.attempt(exit_code=85)])
    judge()
    verdict = the_verdict(store)
    assert any(s.startswith("time limit") for s in verdict.ruled_out) is not named
    assert (f"Its log reports a signal: {line}" in verdict.summary) is named
    assert ("--signal" in verdict.next_step) is named
    assert verdict.summary.endswith("Its last line: saved")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["1", "Terminated", "rc 143"], "Terminated"),
        (["training exited with status: 143", "cleaning up"], "training exited with status: 143"),
        (["run.sh: line 3: 77 Terminated              python train.py", "bye"], "Terminated in `python train.py`"),
        (["run.sh: line 3:     8 Terminated              python train.py", "bye"], "Terminated in `python train.py`"),
        (["Terminated", "epoch 1", "epoch 2", "epoch 3"], ""),
        (["Terminated early after 143 epochs", "bye"], ""),
        (["Terminated  normally at step 100"], ""),
        (["HTTP status: 143"], ""),
        (["Chain 3 returned 143"], ""),
        (["run.sh: line 3: 77 Terminated              sleep 600", "Assertion failed: the mesh is empty"], ""),
        (["rc 1"], ""),
    ],
)  # fmt: skip
def test_a_program_that_sigterm_ended_is_not_likely_at_fault(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    lines: list[str],
    line: str,
) -> None:
    """The script printed the code of its command and ended with 1: who sent the signal is the question, not `grep`."""
    report({"stdout": lines})
    report(node="n2")
    store.upsert_attempts([make.attempt(exit_code=1)])
    judge()
    verdict = the_verdict(store)
    assert verdict.summary.partition("Its log reports a signal: ")[2].partition(". Its last")[0] == line
    assert ("ind out who sent it" in verdict.next_step) is bool(line)
    assert "grep" not in verdict.next_step or not line
    assert verdict.confidence is (records.Confidence.POSSIBLE if line else records.Confidence.LIKELY)


def test_a_job_that_crashed_was_not_ended_by_what_a_helper_was_sent(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Its own code is a segmentation fault's; the script had stopped a helper before."""
    report({"stdout": ["Terminated", "rc 143"]})
    report(node="n2")
    store.upsert_attempts([make.attempt(exit_code=139)])
    judge()
    assert "Its log reports a signal" not in the_verdict(store).summary


def test_a_later_component_has_no_output_of_its_own(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """A heterogeneous job writes the first component's file: nothing more will be read of the others."""
    parts = [
        make.attempt(job_id=4242 + n, het_job_id=4242, het_offset=n, nodes=(f"n{n + 1}",)) for n in (0, 1)
    ]
    for part in parts:
        report(job_id=part.job_id, node=part.nodes[0])
    store.upsert_attempts(parts)
    judge()
    assert [the_verdict(store, part.job_id).log_read for part in parts] == [False, None]


@pytest.mark.parametrize(
    ("beat_s", "lag_s", "log_read"),
    [(-5, 0, False), (5, 0, None), (40, 90, False), (40, 20, None)],
    ids=["before", "after", "brings what waited", "delivered all"],
)
def test_an_agent_that_was_not_heard_since_the_end_may_still_report_the_output(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    postgres_url: str,
    beat_s: int,
    lag_s: float,
    log_read: bool | None,
) -> None:
    """The database was away when the job started and ended. An agent that was heard since, without a Prolog, will report none."""
    beat = records.AgentHeartbeat(
        cluster="c", node="n1", at=make.end + timedelta(seconds=beat_s), boot_id="b", lag_s=lag_s
    )
    delivery.Delivery(postgres_url, "c", "n1").deliver(events=[], allocations=[], heartbeat=beat)
    with store.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE probing.agent_heartbeat SET received_at = received_at - interval '2 min'")
        )
    store.upsert_attempts([make.attempt()])
    judge()
    assert the_verdict(store).log_read is log_read
    report({"stdout": ["epoch 3", LINE]})
    judge()
    assert the_verdict(store).log_read is True


def test_a_late_prolog_concerns_its_neighbours_too(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """It says which job held which GPU, whatever it says of output."""
    store.upsert_attempts([make.attempt(), make.attempt(job_id=4243, user="bob")])
    judge()
    report({"stdout": [LINE]})
    assert judge() == 2


def test_a_jobs_output_grows_no_incident(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """It is no news of its node."""
    report()
    store.upsert_attempts([make.attempt()])
    judge()
    arrived: list[Any] = []
    report({"stdout": [LINE]})
    assert store.reopen_for_arrivals(lambda found: arrived.extend(found) or []) == 1
    assert arrived == []


def test_the_output_of_a_job_that_completed_concerns_nothing(
    store: db_store.Store, make: Maker, report: Callable[..., None]
) -> None:
    """It gets no verdict, and most jobs complete: a row for each would be looked at for nothing."""
    report()
    store.upsert_attempts([make.attempt(state="COMPLETED", exit_code=0)])
    with store.engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE probing.arrival"))
    report({"stdout": [LINE]})
    with store.engine.begin() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM probing.arrival")).scalar_one() == 0


def test_output_that_was_read_in_time_is_judged_once(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Accounting mostly comes later than the output: nothing is judged twice."""
    for node in ("n1", "n2"):
        report(node=node)
    report({"stdout": [LINE]})
    store.upsert_attempts([make.attempt()])
    assert judge() == 1
    assert the_verdict(store).log_read
    assert judge() == 0
    assert len(store.verdict_histories([4242])) == 1


def test_output_that_is_read_while_its_attempt_is_judged_is_in_the_next_verdict(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass has looked for it before, and stores its verdict after it."""
    for node in ("n1", "n2"):
        report(node=node)
    store.upsert_attempts([make.attempt()])
    save = type(store).save_verdicts

    def save_after_the_reading(self: db_store.Store, made: Any, read: Any) -> Any:
        report({"stdout": [LINE]})
        return save(self, made, read)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "save_verdicts", save_after_the_reading)
        judge()
    assert the_verdict(store).log_read is False
    assert judge() == 1
    assert the_verdict(store).summary.endswith(LINE)


def test_a_job_that_ends_in_its_first_second_has_its_output(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Slurm cuts its times to whole seconds, so the Prolog's time is behind the end."""
    report({"stdout": [LINE]}, at=make.end + timedelta(milliseconds=370))
    store.upsert_attempts([make.attempt(start_at=make.end)])
    judge()
    found = the_verdict(store)
    assert found.log_read is True
    assert LINE in found.summary


def test_the_late_prolog_of_a_jobs_first_second_reopens_it(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Its time is behind the end, too."""
    store.upsert_attempts([make.attempt(start_at=make.end)])
    judge()
    report({"stdout": [LINE]}, at=make.end + timedelta(milliseconds=370))
    assert judge() == 1
    assert LINE in the_verdict(store).summary


@pytest.mark.parametrize(("offset", "n_judged"), [(None, 1), (0, 1), (1, 0)])
def test_the_output_of_a_later_component_reopens_nothing(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None], offset: int | None, n_judged: int
) -> None:  # fmt: skip
    """A heterogeneous job writes into the first one's file; no verdict on a later one says whether that was read."""
    for node in ("n1", "n2"):
        report(node=node)
    store.upsert_attempts([make.attempt(het_job_id=4242 if offset is not None else None, het_offset=offset)])
    judge()
    report({"stdout": [LINE]})
    assert judge() == n_judged
    assert the_verdict(store).log_read is (True if n_judged else None)


@pytest.mark.parametrize("lasted_s", [0, 3600])
def test_the_database_and_attribution_agree_on_a_starts_prolog(
    store: db_store.Store, make: Maker, lasted_s: int
) -> None:
    """From a minute before the start until the second of the end is over."""
    begin, end = make.start, make.start + timedelta(seconds=lasted_s)
    short = timedelta(microseconds=1)
    bounds = (begin - timedelta(minutes=1), end + timedelta(seconds=1))
    instants = [at + by for at in (*bounds, begin, end) for by in (-short, timedelta(), short)]
    query = sa.text("SELECT probing.is_prolog_of(:at, :begin, :end)")
    with store.engine.connect() as connection:
        by_database = [
            connection.execute(query, {"at": at, "begin": begin, "end": end}).scalar() for at in instants
        ]
    assert by_database == [assign_rows.is_prolog_of(at, begin, end) for at in instants]
    assert by_database[:6] == [False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("state", "beats", "n_judged"),
    [("NODE_FAIL", False, 1), ("BOOT_FAIL", False, 1), ("FAILED", False, 0), ("NODE_FAIL", True, 0)],
)
def test_a_lost_nodes_restart_reopens_its_attempt(
    store: db_store.Store, postgres_url: str, make: Maker, judge: Callable[[], int],
    report: Callable[..., None], state: str, beats: bool, n_judged: int,
) -> None:  # fmt: skip
    """A node without an agent that Slurm gave up may restart within an hour; otherwise nothing is looked for then."""
    door = delivery.Delivery(postgres_url, "c", "n1")

    def log(after_end: timedelta, **changes: Any) -> None:
        line = {"node": "n1", "source": "import", "severity": records.Severity.INFO} | changes
        door.deliver(events=[make.event(at=make.end + after_end, **line)], allocations=[])

    if beats:
        report()
    for minutes in (-1, 50):
        log(timedelta(minutes=minutes))
    store.upsert_attempts([make.attempt(state=state)])
    judge()
    log(timedelta(minutes=59), kind="node_boot")
    assert judge() == n_judged


def test_a_reading_concerns_only_its_own_start(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Of a requeued job the other starts keep their verdicts, and the line of one is not the other's."""
    report()
    report(node="n2")
    later = make.end + timedelta(minutes=1)
    report(at=later, restart_count=1)
    second = make.attempt(
        attempt=2, submit_at=later, start_at=later, end_at=later + timedelta(seconds=30), restart_count=1
    )
    store.upsert_attempts([make.attempt(), second])
    assert judge() == 2
    report({"stdout": [LINE]}, at=later, restart_count=1)
    assert judge() == 1
    found = {v.attempt: (v.log_read, v.summary.endswith(LINE)) for v in store.verdicts(job_ids=[4242])}
    assert found == {1: (False, False), 2: (True, True)}
    report({"stdout": ["epoch 1"]})
    assert judge() == 1


@pytest.mark.parametrize(
    ("tails", "over", "finding", "quoted"),
    [
        ({"stdout": ["epoch 3", LINE, ""]}, {}, None, LINE),
        ({"stdout": ["item 4: checksum mismatch", EXITED]}, {}, None, "item 4: checksum mismatch"),
        ({"stdout": ["epoch 3"], "stderr": ["worker: lost connection"]}, {}, None, "worker: lost connection"),
        ({"stdout": ["epoch 3"], "stderr": [EXITED, "-----"]}, {}, None, "epoch 3"),
        ({"stdout": ["epoch 3", EXITED]}, {}, "task_exit", "epoch 3"),
        ({"stdout": ["a\u202e\x1b[31mb" + "c" * 500]}, {}, None, "ab" + "c" * 238),
        ({"stdout": ["export WANDB_API_KEY=0123456789abcdef"]}, {}, None, "export WANDB_API_KEY=***"),
        (
            {"stdout": ["part 4: no table a.tbl: No such file or directory", "part 5 done"]},
            {},
            None,
            "part 5 done; above it: part 4: no table a.tbl: No such file or directory",
        ),
        ({"stdout": ["part 4: Permission denied", LINE]}, {}, None, LINE),
        ({"stdout": ["part 4: Permission denied", *["part 5 done"] * 10]}, {}, None, "part 5 done"),
        ({"stdout": ["Is a directory a file? No: it is not", "part 5 done"]}, {}, None, "part 5 done"),
        ({"stdout": [EXITED, ""]}, {}, None, ""),
        ({"stdout": ["epoch 3"]}, {"state": "TIMEOUT", "exit_code": 0}, None, ""),
        ({"stdout": ["epoch 3", "KeyError: 'lr'"]}, {}, "python_exception", ""),
    ],
)
def test_of_a_program_that_failed_for_no_known_reason_the_last_line_is_quoted(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    postgres_url: str,
    tails: dict[str, list[str]],
    over: dict[str, Any],
    finding: str | None,
    quoted: str,
) -> None:
    """Codes say why in words of their own. Slurm's lines are none of the program's, and no line is quoted beside a named cause."""
    detail = {"first_cause": True} if finding == "python_exception" else {"role": "exit", "exit_code": 1}
    found = [make.finding(finding, message="KeyError: 'lr'", detail=detail)] if finding else []
    delivery.Delivery(postgres_url, "c", "n1").deliver(events=found)
    for node in ("n1", "n2"):
        report(tails if node == "n1" else None, node=node)
    store.upsert_attempts([make.attempt(**over)])
    judge()
    verdict = the_verdict(store)
    assert verdict.log_read
    assert verdict.summary.partition(" Its last line: ")[2] == quoted


@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (4, ["epoch 3"], "exited with code 4,"),
        (6, ["epoch 3", "Aborted (core dumped)"], "exited with code 6 (or 134, SIGABRT),"),
        (6, [""], "exited with code 6 (or 134, SIGABRT),"),
        (15, ["epoch 3"], "exited with code 15 (or 143, SIGTERM),"),
        (2, ["epoch 3"], "exited with code 2 (of many tools: a wrong argument),"),
    ],
)
def test_a_signal_that_the_end_of_the_output_does_not_name_is_no_meaning_of_a_code(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None],
    code: int, lines: list[str], words: str,
) -> None:  # fmt: skip
    """Of SIGTERM the shell prints nothing, and an empty output shows nothing."""
    report({"stdout": lines})
    report(node="n2")
    store.upsert_attempts([make.attempt(exit_code=code)])
    judge()
    assert words in the_verdict(store).summary


@pytest.mark.parametrize(
    ("line", "is_statement"),
    [
        (LINE, True),
        ("Mesh quality is too low, refusing to go on", True),
        ("step 40 loss 0.31 lr 0.001", False),
        ("+ grep -q converged out.txt", False),
        ("training finished after 3 epochs", False),
        ("loading the weights of llama-70b ...", False),
        ("stopped on user's request after 30 steps", True),
        ("all done", False),
    ],
)
def test_the_programs_own_statement_stands_before_guesses(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    line: str,
    is_statement: bool,
) -> None:
    """Behind a row of progress the script's last command may have failed; a statement may be the reason itself, also of a signal."""
    report(node="n2")
    report({"stdout": [line]})
    report({"stdout": [line]}, job_id=4243)
    report(job_id=4243, node="n2")
    store.upsert_attempts([make.attempt(exit_code=1), make.attempt(job_id=4243, exit_code=130)])
    judge()
    by_code, by_signal = the_verdict(store), the_verdict(store, 4243)
    assert ("`grep`" in by_code.next_step) is not is_statement
    assert by_signal.cause == "rank_killed"
    assert by_signal.summary.endswith(f" Its last line: {line}")
    assert by_signal.next_step.startswith("Look at the program's own output first") is is_statement
    assert "ind out who interrupted it" in by_signal.next_step


def test_rows_of_an_agent_that_are_no_logs_spoil_no_verdict(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Its row may hold anything."""
    report(node="n2")
    report(detail={"logs": ["x", None, {"tail": "no list"}, {"tail": [None, {"a": 1}], "stream": 7}]})
    store.upsert_attempts([make.attempt()])
    judge()
    assert the_verdict(store).log_read


@pytest.mark.parametrize(
    ("logs", "over", "is_read"),
    [
        ([{"stream": "stdout", "path": "/w/o", "why": "its reader did not answer"}], {}, None),
        ([{"stream": "stdout", "path": "/dev/null", "why": "the job sends it to /dev/null"}], {}, None),
        ([{"stream": "stdout", "path": "s-%A_%a.out", "why": "not known", "unnamed": True}], {}, False),
        ([{"path": "/w/o", "why": "x", "unnamed": True}, {"path": "/w/e", "tail": ["a"]}], {}, False),
        ([{"path": "s-%N.out", "why": "not known", "unnamed": True}], {"ids_known": True}, None),
        ([{"path": "/w/o", "why": "x"}, {"path": "/w/e", "tail": []}], {}, True),
    ],
)
def test_what_no_agent_could_read_is_not_called_read(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    logs: list[Any],
    over: dict[str, Any],
    *,
    is_read: bool | None,
) -> None:
    """Null where nothing will be read; false where the files are asked for again once an array's numbers are known."""
    for node in ("n1", "n2"):
        report(node=node)
    report(detail={"logs": logs} | over)
    store.upsert_attempts([make.attempt()])
    judge()
    assert the_verdict(store).log_read is is_read
    report(detail={"logs": [{"stream": "stdout", "path": "/w/o", "tail": [LINE]}], "ids_known": True})
    assert judge() == 1
    assert the_verdict(store).log_read


def test_output_of_a_databases_first_days_reopens_its_attempt(
    store: db_store.Store, make: Maker, judge: Callable[[], int], report: Callable[..., None]
) -> None:
    """Its oldest month of events began less than the window before the end; no evidence of the verdict was dropped."""
    with store.engine.begin() as connection:
        connection.execute(sa.text("SELECT probing.make_month(:day)"), {"day": make.end.date()})
    for node in ("n1", "n2"):
        report(node=node)
    store.upsert_attempts([make.attempt()])
    judge()
    report({"stdout": [LINE]})
    assert judge() == 1
    assert the_verdict(store).log_read


def test_no_figure_counts_a_verdict_less_for_output_that_was_not_read(
    store: db_store.Store,
    make: Maker,
    judge: Callable[[], int],
    report: Callable[..., None],
    postgres_url: str,
) -> None:
    """Cause, domain, confidence, incident and time of the stall, which figures are made of, are the same before and after."""
    delivery.Delivery(postgres_url, "c", "n2").deliver(events=[make.xid(79)])
    for node in ("n1", "n2"):
        report(node=node)
    store.upsert_attempts([make.attempt()])
    judge()
    before = the_verdict(store)
    report({"stdout": ["epoch 3"]})
    judge()
    after = the_verdict(store)
    assert (before.log_read, after.log_read) == (False, True)
    assert dataclasses.replace(after, log_read=False, made_at=before.made_at) == before
    shown = sa.text("SELECT confidence, log_read FROM ops.attempt_verdicts WHERE cluster = 'c'")
    with store.engine.connect() as connection:
        assert connection.execute(shown).fetchall() == [("certain", True)]
    assert unjudged.attempts(store) == []
