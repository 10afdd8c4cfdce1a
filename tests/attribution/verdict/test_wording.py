"""Sentences for people keep the names of things."""

import pytest

from probing_cluster.attribution.verdict import wording


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("n2 stopped answering Slurm", "n2 stopped answering Slurm."),
        ("gpu-a stopped answering", "gpu-a stopped answering."),
        ("the program ended with exit code 1.", "The program ended with exit code 1."),
    ],
)
def test_a_sentence_never_respells_a_node(text: str, sentence: str) -> None:
    """A node called n2 is n2 at the beginning of a sentence, too."""
    assert wording._sentence(text) == sentence
