"""Few jobs' texts are asked for one by one: no listing of the whole cluster for one job."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.live import job_texts

ARRAY = "JobId=8 ArrayJobId=7 JobName=x \nJobId=7 ArrayJobId=7 ArrayTaskId=3 JobName=y \n"


class Controller:
    """Has jobs, and keeps what it is asked."""

    def __init__(self, texts: Mapping[str, str], ids: str = "") -> None:
        self.texts, self.ids = texts, ids
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, program: str, *arguments: str, environment: object = None) -> bytes:
        self.calls.append((program, *arguments))
        if program == "squeue":
            return self.ids.encode()
        name = arguments[-1]
        if name == "jobs":
            return "".join(self.texts.values()).encode()
        if name not in self.texts:
            raise errors.SlurmUnavailable(
                "scontrol ended with 1: slurm_load_jobs error: Invalid job id specified"
            )
        return self.texts[name].encode()


def test_one_job_is_one_question() -> None:
    """scontrol alone: its answer about one job needs no list of ids beside it."""
    slurm = Controller({"7": "JobId=7 JobName=x MailUser=a@b \n"})
    found = job_texts.of_jobs(slurm, {7})
    assert found.texts == {7: "JobId=7 JobName=x MailUser=a@b "}
    assert found.unclear == frozenset()
    assert [call[0] for call in slurm.calls] == ["scontrol"]
    assert slurm.calls[0][-2:] == ("job", "7")


def test_a_job_that_slurm_does_not_have_is_neither_there_nor_doubtful() -> None:
    """The controller forgets it some minutes after its end."""
    found = job_texts.of_jobs(Controller({}), {7})
    assert (found.texts, found.unclear) == ({}, frozenset())


def test_of_an_array_only_the_task_that_was_asked_for_is_given() -> None:
    """scontrol shows all of its tasks under the array's number."""
    found = job_texts.of_jobs(Controller({"7": ARRAY}, ids="7\n8\n"), {7})
    assert found.texts.keys() == {7}
    assert "ArrayTaskId=3" in found.texts[7]


def test_a_job_that_comes_or_goes_meanwhile_is_doubtful() -> None:
    """Its line may be another's: the list of ids beside the text does not have it."""
    found = job_texts.of_jobs(Controller({"7": ARRAY.replace("JobId=8", "JobId=7")}, ids="7\n"), {7})
    assert (found.texts, found.unclear) == ({}, frozenset({7}))


@pytest.mark.parametrize(
    ("n_jobs", "n_shown"), [(job_texts.MOST_NAMED, job_texts.MOST_NAMED), (job_texts.MOST_NAMED + 1, 1)]
)
def test_many_jobs_are_one_listing(n_jobs: int, n_shown: int) -> None:
    """Each question is a command."""
    wanted = set(range(100, 100 + n_jobs))
    texts = {str(n): f"JobId={n} JobName=x \n" for n in wanted}
    slurm = Controller(texts, ids="\n".join(texts))
    assert job_texts.of_jobs(slurm, wanted).texts.keys() == wanted
    assert sum(call[0] == "scontrol" for call in slurm.calls) == n_shown
