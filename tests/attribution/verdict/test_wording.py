"""Sentences for people keep the names of things."""

import pytest

from probing_cluster.attribution.verdict import phrases


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
    assert phrases.sentence(text) == sentence


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "/var/spool/slurmd/job00012/slurm_script: line 2: 19564 Segmentation fault      python3 -c 'a.b()'",
            "Segmentation fault in `python3 -c 'a.b()'`",
        ),
        (
            "run.sh: line 7: 1 Illegal instruction     (core dumped) ./train " + "--x " * 90,
            "Illegal instruction (core dumped) in `./train " + "--x " * 12 + "--x…`",
        ),
        ("run.sh: line 4: 12092 Killed                  sleep 50", "Killed in `sleep 50`"),
        (
            f"cannot open /data/{'x' * 200}/a.tar: No such file or directory.",
            f"cannot open /data/{'x' * 72} … {'x' * 34}/a.tar: No such file or directory",
        ),
        (
            "E1129 04:10:41.071000 14568 torch/distributed/elastic/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 14571).",
            "failed (exitcode: -9) local_rank: 1 (pid: 14571)",
        ),
        ("run.sh: line 7: 19564 unexpected tokens there.", "run.sh: line 7: 19564 unexpected tokens there"),
    ],
)
def test_of_a_shells_line_what_happened_is_kept(line: str, words: str) -> None:
    """Neither the script's path nor the process's number says anything, and the command may be long."""
    assert phrases.clean(line) == words


@pytest.mark.parametrize("message", ["torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."])  # fmt: skip
def test_gpu_memory_that_another_library_lacked_is_not_cudas(make, message):
    """The sentence names no library, and the step has one for each."""
    v = make.judge(make.finding("cuda_oom", message=message, detail={"role": "root", "first_cause": True}))
    assert v.summary == "The program asked for more GPU memory than there is."
    assert "JAX and TensorFlow" in v.next_step
