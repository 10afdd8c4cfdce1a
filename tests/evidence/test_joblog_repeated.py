"""What a log only repeats: a shell's trace and its output, another run's lines, lists, tables, chats. Nobody is convicted by it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence.joblog import reader
from tests.every_case import every
from tests.evidence.test_joblog_mention import HARDWARE

ERRORS = (
    *HARDWARE,
    "CUDA error: device-side assert triggered",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "Out of memory: Killed process 4711 (python) total-vm:1kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.",
    "srun: error: Node failure on n17",
)
"""What convicts where it is met."""
MENTIONED = {
    "a shell's trace": "+ echo '{}'",
    "a trace of a deeper shell": "+++ grep -c '{}' old.log",
    "a trace that does nothing": "+ : {}",
    "a trace and its output": "+ echo 'looking for: {0}'\nlooking for: {0}",
    "a trace of printf and its output": "+ printf '%s' 'seen: {0}'\nseen: {0}",
    "a patch": "+ {}\n+ return 3",
    "another job's tail": "[watch] tail of job 8812 on n44:\n[watch] | {}\n[watch] end of tail",
    "an earlier run's log": "[notify] the last run's log said:\n[notify] > {}",
    "a quotation in German": "Ticket 7: \"Absturz\" ... Zitat: {}",
    "a data set's row": "{{'log': '{}', 'cause': 'of the sample'}}",
    "a program that is judged": "Problem/12: candidate failed\n    | Traceback (most recent call last):\n    |   File \"<judge>\", line 3, in f\n    | {}",
    "a turn of a chat": "<|im_start|>user\nWhat does this mean?\n\n{}\n<|im_end|>",
    "titles in a numbered list": "   1. how to build\n   2. where is my file\n   3. {}\n   4. why so slow",
    "a digest of jobs": "  gpu out of memory          112   804.1  {}",
    "a marked file": "old/slurm-77.out:\n| {}",
    "a search's hit": "doc 2 score 0.88: {}",
    "a search's hit with a bracket": "passage #3 (score=0.4): {}",
    "a question": "Query: why does \"{}\" appear?",
    "a chat": "### Response:\n{}\n### End",
    "a chat's turn": "assistant: {}",
    "a row of a table": "| 12 | {} | 0.3 |",
    "a page": "<p>{}</p>",
    "a configuration that was found": "patterns.yaml:3: {}",
    "a test's name": "tests/test_a.py::test_raises[{}] PASSED",
    "a script that is shown": "echo {}",
    "a commit": "4be81aa0 do not swallow {}",
    "a commit in a graph": "| * 4be81aa (HEAD -> main, tag: v1.2) retry on {}",
    "a change": "fix(ckpt)!: {}",
    "a merged change": "explain {} (#1234)",
    "an issue": "Fixes #812: {}",
    "an issue's number": "#4812 {}",
    "an issue by its sort": "known issue: {}",
    "a line that a patch takes away": "-    raise {}",
    "a page's comment": "<!-- {} -->",
    "a comment": "# {}",
}  # fmt: skip
LISTED = {
    "a list": "known errors:\n- {}\n- others",
    "a starred list": "* {}",
    "a numbered list": "1. {}",
    "a column": "0.93 {}",
    "a translation": "Translation: {}",
    "a reference": "ref: {}",
    "a note of a run": "wandb: notes: {}",
    "an expectation": "expect={}",
}
"""So other errors may stand, too; what convicts a machine must look like a runtime's report."""


def first(text: str) -> list[str]:
    return [f.kind for f in reader.read(text.split("\n")) if f.first_cause]


@every("error, form", itertools.product(ERRORS, MENTIONED.values()))
def test_what_is_repeated_is_no_cause(form: str, error: str) -> None:
    """Alone, and with the same log's own progress behind it."""
    text = form.format(error)
    assert first(f"starting\n{text}\n") == []
    assert first(f"starting\n{text}\nstep 1 loss 2.0\nstep 2 loss 1.9\nfinished") == []


@every("error, form", itertools.product(HARDWARE, LISTED.values()))
def test_an_entry_of_a_list_convicts_no_machine(form: str, error: str) -> None:
    """Bullets, columns and labels of text."""
    assert not {"cuda_ecc", "cuda_nvlink", "cuda_device_lost"}.intersection(
        first(f"starting\n{form.format(error)}\n")
    )


@every("error", ERRORS)
def test_what_is_met_is_still_a_cause(error: str) -> None:
    """The same words in their own place; beside a trace that prints something else; behind a bar that nobody announced."""
    assert first(f"starting\n{error}")
    assert first(f"+ srun python train.py\n+ echo done\n{error}")
    assert first(f"training, see notes:\nstep 1\n{error}")


@every("word", ["Hint", "Tip", "TODO", "FAQ", "Subject"])
def test_advice_and_notes_are_no_reports(word: str) -> None:
    """They say what an error would mean, or what is to be done about it."""
    assert first(f"starting\n{word}: RuntimeError: CUDA error: device-side assert triggered\n") == []


@every("before", ["", "7f9c2d1b04aa ", "test: ", "build: ", "#0 ", "[4be81aa0] ", "deadbeef: "])
def test_what_only_looks_like_a_title_is_still_a_cause(before: str) -> None:
    """A container's number, a service called test, a frame, a word that is no number of a commit."""
    assert first(f"starting\n{before}RuntimeError: CUDA error: device-side assert triggered")


def test_a_marked_block_of_the_own_run_stays_a_report() -> None:
    """A launcher that marks what its own worker wrote speaks of no other run."""
    lines = "[launcher] worker 3 wrote:\n[launcher] | RuntimeError: CUDA error: device-side assert triggered"
    assert first(lines) == ["cuda_device_assert"]


@given(st.sampled_from(ERRORS), st.text(st.characters(blacklist_categories=("Cs",)), max_size=60))
def test_any_trace_of_a_shell_is_silent(error: str, words: str) -> None:
    """Whatever stands around the error in a traced command, neither the command nor its output convicts."""
    words = " ".join(words.split())
    line = f"{words} {error}".strip()
    assert first(f"+ echo '{line}'\n{line}") == []


@every(
    "error, opens",
    itertools.product(ERRORS, ["cat > a.err <<'EOF'", "  cat <<-EOF >> log", 'tee "$d/x" << "EOF"']),
)
def test_what_a_printed_script_writes_into_a_file_is_no_report(opens: str, error: str) -> None:
    """A here-document ends with its word; behind it, and where none was opened, lines count again."""
    assert first(f"#!/bin/bash\n{opens}\n{error}\nEOF\necho done") == []
    assert first(f"#!/bin/bash\n{opens}\nwords\nEOF\n{error}")
    assert first(f"{opens.replace('<<', '>>')}\n{error}")


@every(("above", "behind", "n"), [("#70", "#71", 0), ("7.", "8.", 0), ("#70", "#90", 1), ("", "#71", 1)])
def test_an_error_inside_a_numbered_list_is_no_last_word(above: str, behind: str, n: int) -> None:
    """The next entry follows: a catalogue of messages, or a program that went on."""
    text = f"starting\n{above} \tThe file of sources\n\nError occurred in the source routine\n{behind} \tThe camera works only with flag 5"
    assert len(first(text)) == n


@pytest.mark.parametrize(
    "chat",
    [
        "<|im_start|>user\nwhy is that?<|im_end|>",
        "<|im_start|>user\nwhy is that?\n<|im_end|>",
        "<|start_header_id|>user<|end_header_id|> why is that?<|eot_id|>",
    ],
    ids=["mark at the end", "mark alone", "one line"],
)
def test_an_error_below_a_turn_of_a_chat_is_the_programs(chat):
    """The turn's end mark closes it."""
    text = (
        chat
        + "\nTraceback (most recent call last):\n  File \"t.py\", line 3, in f\n    g()\nKeyError: 'loss'"
    )
    assert [f.kind for f in reader.read(text.split("\n")) if f.first_cause] == ["python_exception"]


@every(("second", "kinds"), [("2. Cut it", []), ("  2. Cut it", ["disk_full"])])
def test_entries_of_one_list_have_one_margin(second, kinds):
    """Numbers at other margins are no list, and an error below them is the program's."""
    text = f"1. Open the mesh\n{second}\n3. OSError: [Errno 122] Disk quota exceeded"
    assert [f.kind for f in reader.read(text.split("\n"))] == kinds


@every("prefix", ["", "(Runner pid=812) "])
def test_a_sample_of_a_rollout_ends_where_the_jobs_own_output_begins(prefix: str) -> None:
    """Trainers print a question, the model's answer and the score. Only the job's traceback has frames."""
    question = ["[prompt] What is this?", "Traceback (most recent call last):"]
    sample = [prefix + line for line in [*question, "RuntimeError: CUDA error: device-side assert triggered"]]
    answer = [prefix + "[response] A bad label.", prefix + "[score] 0.5"]
    own = ["Traceback (most recent call last):", '  File "fit.py", line 3, in <module>', "KeyError: 'w'"]
    assert not [f for f in reader.read(["step 1 loss 2.0", *sample, *answer]) if f.first_cause]
    for lines in ([*sample, *answer, *own], ["[prompt] Hello", *own]):
        assert [f.message for f in reader.read(lines) if f.first_cause] == ["KeyError: 'w'"]
