from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from probing_cluster.core import records
from probing_cluster.lemon import calibration

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = AT.replace(hour=0)


def label(n: int, confirmed: bool, probability: float = 0.95) -> calibration.Label:
    return calibration.Label(node=f"n{n}", at=AT, confirmed=confirmed, probability=probability)


def note(action: str, node: str = "n1", at: datetime = AT) -> records.OperatorNote:
    return records.OperatorNote(
        note_id=uuid.uuid4(), cluster="c", at=at, author="eve", subject=f"node:{node}", action=action
    )


def score(day: datetime, value: float, **signals: float) -> records.LemonScore:
    return records.LemonScore(
        cluster="c", node="n1", day=day, score=value, verdict="lemon", signals=signals, made_at=day
    )


@pytest.mark.parametrize(("yes", "no"), [(10, 9), (30, 4), (4, 30), (0, 0)])
def test_too_few_answers_change_nothing_and_say_so(yes: int, no: int) -> None:
    """Fewer than twenty, or all of one kind: the identity, with the counts in words."""
    found = calibration.fit([label(n, n < yes) for n in range(yes + no)])
    assert not found.fitted
    assert found.apply(np.array([0.2, 0.95])).tolist() == [0.2, 0.95]
    assert f"{yes} confirmed and {no} denied so far" in found.sentence()


def test_a_score_that_is_too_sure_is_taken_back() -> None:
    """Of nodes named at 0.95 only half were confirmed: 0.95 then means about half, and the order stays."""
    found = calibration.fit([label(n, n % 2 == 0) for n in range(200)])
    assert found.fitted
    mapped = found.apply(np.array([0.05, 0.5, 0.95]))
    assert mapped[2] == pytest.approx(0.5, abs=0.1)
    assert (np.diff(mapped) > 0).all()
    assert "Recalibrated on 100 confirmed and 100 denied since 2026-11-20" in found.sentence()


def test_a_score_that_is_right_stays() -> None:
    """Answers as the score says leave it nearly alone."""
    rng = np.random.default_rng(1)
    probabilities = rng.uniform(0.05, 0.95, 400)
    given = [label(n, bool(rng.random() < p), float(p)) for n, p in enumerate(probabilities)]
    mapped = calibration.fit(given).apply(np.array([0.1, 0.5, 0.9]))
    assert mapped == pytest.approx([0.1, 0.5, 0.9], abs=0.06)


def test_an_answer_is_about_the_last_score_before_it() -> None:
    """The model's own probability of that day, not the one people saw after an earlier map; the later answer counts."""
    before = [DAY - timedelta(days=n) for n in (2, 1)]
    scores = {"n1": [score(before[0], 0.3), score(before[1], 0.9, model=0.97), score(DAY, 0.1)]}
    notes = [
        note("deny"),
        note("confirm", at=AT + timedelta(hours=1)),
        note("ack"),
        note("confirm", node="n2"),
    ]
    assert calibration.labels(notes, scores) == [
        calibration.Label(node="n1", at=AT + timedelta(hours=1), confirmed=True, probability=0.97)
    ]


@pytest.mark.parametrize("action", ["confirm", "deny"])
def test_the_score_of_the_answers_own_day_is_none_it_answers(action: str) -> None:
    """It is made the night after, from data that hold the answer: the label would change under the fit."""
    at_ten = note(action, at=DAY + timedelta(hours=10))
    yesterday = score(DAY - timedelta(days=1), 0.9)
    assert calibration.labels([at_ten], {"n1": [score(DAY, 0.2)]}) == []
    for scores in ([yesterday], [yesterday, score(DAY, 0.2)]):
        (made,) = calibration.labels([at_ten], {"n1": scores})
        assert made.probability == 0.9


def test_a_score_covers_its_day_up_to_midnight() -> None:
    """An answer at midnight had seen the score of the day that ended."""
    yesterday = score(DAY - timedelta(days=1), 0.9)
    assert [one.probability for one in calibration.labels([note("deny", at=DAY)], {"n1": [yesterday]})] == [
        0.9
    ]
