"""Going on, by the shape of lines: what advances behind an error says that the error ended nothing."""

from __future__ import annotations

import random
import re

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import cause, grammar, progress, reader, unfold
from tests.every_case import every

SHAPES = {
    "mmdet": "2026-01-02 03:0{n}:05,678 - mmdet - INFO - Epoch [1][{n}/35] lr: 1e-3, eta: 1:02:03, loss: 0.{n}",
    "examples": "Train Epoch: 1 [{n}00/60000 ({n}%)]\tLoss: 2.{n}",
    "bare ratio": "[{n}50/1504] loss=1.{n}",
    "keras": "{n}7/100 [=====>....] - ETA: 10s - loss: 0.{n}",
    "json": '{{"loss": 1.{n}, "step": {n}}}',
    "hf dict": "{{'loss': 1.{n}, 'learning_rate': 1e-05, 'epoch': 0.{n}}}",
    "megatron": " iteration      {n}00/    5000 | consumed samples:  {n}1200 | lm loss: 1.{n}E+00 |",
    "deepspeed": "[2026-01-02 03:04:0{n},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}0, skipped=2, lr=[1e-05]",
    "fairseq": "epoch 001:    {n}0 / 5000 loss=7.{n}, ppl=120, wps=31000, num_updates={n}0",
    "detr": "Epoch: [12]  [ {n}0/1848]  eta: 0:12:01  lr: 0.000100  loss: 4.2 (4.5)",
    "gan": "26-01-02 02:31:11.512 : <epoch:  0, iter:     {n}00, lr:4.000e-04> G_loss: 7.5e-02",
    "lightning": "Epoch 0:   5%|5    | {n}0/1000 [01:00<20:00,  0.83it/s, loss=7.{n}, v_num=1]",
    "own words": "fold B | update {n} | reward 1.{n}",
    "table": "{n}0   2.{n}   0.91",
    "tensorflow": "INFO:tensorflow:loss = 1.{n}, step = {n}01, precision = 0.6",
    "nemo": "Training epoch 0, iteration {n}/99 | lr: 5e-06 | global_batch_size: 8 | global_step: {n} | reduced_train_loss: 2.1",
}
NO_WORK = (
    "frame #{n}: <unknown function> + 0xdf6b1{n} (0x7fab1d7d9b1{n} in /lib/libtorch.so)",
    "[rank0]: RuntimeError: attempt {n}/9 failed",
    "Retrying in 1s [Retry {n}/5].",
    "W0101 Sending process 4711{n} closing signal SIGTERM",
    "Loading checkpoint shards: {n}/9",
    "n3:17:20 [{n}] NCCL INFO Channel 0{n}/16 : 0[0] -> 1[1] via P2P",
    '  File "/w/train.py", line {n}1, in step{n}',
    "srun: error: n1: task {n}: Exited with exit code 1",
    "  rank      : {n} (local_rank: {n})",
    "/usr/lib/python3.1{n}/x/y.py:1{n}: note",
    "2026-01-02 03:04:0{n} still here",
    "heartbeat at 1{n}:00:00",
    "Killing subprocess 123{n}",
    "rank {n}/8 joined",
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TRACEBACK = ["Traceback (most recent call last):", '  File "t.py", line 3, in step', OOM]


def first(lines: list[str]) -> str | None:
    """The kind of the first cause."""
    whole = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert whole == [classify.joblog_json(f) for f in reader.read(lines)], "the sieve hides nothing"
    return next((f["kind"] for f in whole if f["first_cause"]), None)


def steps(shape: str, *numbers: int) -> list[str]:
    """Lines of one shape."""
    return [SHAPES[shape].format(n=n) for n in numbers]


@every("shape", sorted(SHAPES))
def test_a_caught_error_was_survived_when_training_advanced_behind_it(shape: str) -> None:
    """In every shape, healthy to the end or ended by the time limit."""
    log = [*steps(shape, 1, 2, 3), *TRACEBACK, "halving the batch", *steps(shape, 4, 5, 6, 7)]
    assert first(log) is None
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
    assert first([*log, limit]) == "slurm_timeout"


@every("shape", sorted(SHAPES))
def test_numbers_that_stand_still_are_no_progress(shape: str) -> None:
    """A bar drawn again when its program dies."""
    assert first([*steps(shape, 1, 2, 3), *TRACEBACK, *steps(shape, 3, 3, 3, 3)]) == "cuda_oom"


@every("shape", sorted(SHAPES))
def test_one_rank_that_goes_on_for_a_while_does_not_excuse_another(shape: str) -> None:
    """Few steps, then a bad end that nothing explains: the error was it."""
    log = [
        *steps(shape, 1, 2, 3),
        *TRACEBACK,
        *steps(shape, 4, 5, 6, 7),
        "srun: error: n1: task 3: Exited with exit code 1",
    ]
    assert first(log) == "cuda_oom"


@every("end", ["srun: error: n1: task 3: Aborted (core dumped)", "exiting process 3 with exit code: 1"])
def test_every_unexplained_end_brings_the_error_back(end: str) -> None:
    """An abort says that its reason stands before it, and so does a timeout that others outlived for a while."""
    timeout = "[E ProcessGroupNCCL.cpp:457] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800035 milliseconds before timing out."
    going = steps("deepspeed", 4, 5, 6, 7)
    assert first([*steps("deepspeed", 1, 2), *TRACEBACK, *going, end]) == "cuda_oom"
    assert first([*steps("deepspeed", 1, 2), timeout, *going, end]) == "watchdog_timeout"


@every("line", NO_WORK)
def test_what_also_counts_up_is_no_progress(line: str) -> None:
    """Frames, retries, process ids, channels, dates."""
    assert (
        first([*steps("own words", 1, 2), *TRACEBACK, *(line.format(n=n) for n in range(1, 9))]) == "cuda_oom"
    )


def test_what_a_buffer_held_back_is_from_before_the_error() -> None:
    """Standard output in blocks: the error cuts a line in two, and the rest comes behind it."""
    cut = "update 14 | rewTraceback (most recent call last):"
    log = [f"update {n} | reward 1.{n}" for n in range(10, 14)] + [cut, *TRACEBACK[1:], "ard 1.14"]
    assert first([*log, *(f"update {n} | reward 1.{n}" for n in range(15, 30))]) == "cuda_oom"
    unseen = [*TRACEBACK, *(f"update {n} | reward 1.{n}" for n in range(1, 30))]
    assert first(unseen) == "cuda_oom"
    assert first([*TRACEBACK, *(f"update {n} | reward 1.{n} {'.' * 400}" for n in range(1, 60))]) is None


def test_the_program_may_say_itself_that_it_goes_on() -> None:
    """A batch that is skipped, a download that is tried again."""
    log = [
        "| WARNING: CUDA error: out of memory",
        "Skipping batch",
        "update 1 | reward 1.1",
        "update 2 | reward 1.2",
    ]
    assert first(log) is None
    own = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in step',
        "AttributeError: 'NoneType' object",
    ]
    assert (
        first(["THCudaCheck FAIL file=/x.cu line=58 error=2 : out of memory", "| skipping batch", *own])
        == "python_exception"
    )


@every(
    "trouble",
    [
        "n4:4415:4610 [3] transport/net_ib.cc:98 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
        "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n3_1_0' has failed to send a keep-alive heartbeat to the rendezvous 'j' due to an error of type RendezvousConnectionError.",
        "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Killed.",
        "OSError: [Errno 5] Input/output error: '/data/a'",
        "CUDA error: uncorrectable ECC error encountered",
    ],
)
def test_every_trouble_can_be_survived(trouble: str) -> None:
    """A port that flaps, a heartbeat, a worker started again, a read that was tried again, a text that only speaks."""
    assert first([*steps("deepspeed", 1, 2, 3), trouble, *steps("deepspeed", 4, 5, 6, 7)]) is None


@pytest.mark.parametrize("why", ["RendezvousTimeoutError", "RendezvousConnectionError"])
@pytest.mark.parametrize("what", ["send a keep-alive heartbeat to", "shutdown"])
def test_a_node_that_ends_after_the_one_with_the_store_caused_nothing(what: str, why: str) -> None:
    """The launcher on the node with the store has ended; nothing else went wrong."""
    left = f"1: W0403 16:15:06.176000 538977 site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1331] The node 'n2_538977_0' has failed to {what} the rendezvous '1365' due to an error of type {why}."
    assert first([*steps("deepspeed", 1, 2, 3), left]) is None


def test_a_later_error_is_the_first_cause_once_the_earlier_was_survived() -> None:
    """Prompt, steps, KeyError."""
    own = ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "KeyError: 'labels'"]
    prompt = "CUDA error: uncorrectable ECC error encountered"
    for shape in SHAPES:
        assert first([prompt, *steps(shape, 1, 2, 3, 4, 5), *own]) == "python_exception"


def test_progress_of_another_rank_does_not_count_at_once() -> None:
    """Rank 0 validates on for a while although rank 3 is dead."""
    lines = [f"[rank3]: {t}" for t in TRACEBACK] + [
        f"[rank0]: step {n}/99 loss 1.{n} 3.1it/s" for n in range(1, 9)
    ]
    assert first(lines) == "cuda_oom"


@every(
    ("error", "survived"),
    [
        ("RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. -> restarting loader from batch 9 (restart 1/5)", True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer; reconnecting to the data server (2/8)", True),
        ("OSError: [Errno 122] Disk quota exceeded: 'k.pt' -> trying again without k.pt", False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered, retrying", False),
        ("RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. ", False),
    ],
)  # fmt: skip
def test_progress_of_another_rank_counts_once_the_error_says_what_is_restarted(
    error: str, *, survived: bool
) -> None:
    """Its own line says so; two further steps of others may have been held back."""
    before, after = ([f"0: [step {n}] loss 3.{n}" for n in range(*of)] for of in ((10, 20), (20, 26)))
    for steps, expected in ((after, survived), (after[:2], False)):
        first = [f for f in reader.read([*before, f"2: {error}", *steps, "0: saved"]) if f.first_cause]
        assert (first == []) == expected


def test_a_server_that_answers_requests_lives_on() -> None:
    """vLLM: what one request met is told to who requests; that a probe of its health is answered says nothing."""
    raised = ["Traceback (most recent call last):", '  File "s.py", line 1, in f', "ValueError: too long"]
    requests = ['INFO: 10.0.0.3:36934 - "{} HTTP/1.1" {} OK'] * 4
    answered = [
        line.format("POST /v1/chat", code) for line, code in zip(requests, (400, 200, 400, 400), strict=True)
    ]
    watched = [line.format("GET /health", 200) for line in requests]
    refused = [line.format("POST /v1/chat", 500) for line in requests]
    assert not any(f.first_cause for f in reader.read(["start", *raised, *answered]))
    for behind in (watched, refused, []):
        assert any(f.first_cause for f in reader.read(["start", *raised, *behind]))


def test_a_request_that_was_the_clients_fault_ends_no_server() -> None:
    """The server answers it so; one that blames itself may have lost its engine."""
    post = 'INFO:     10.2.0.4:512 - "POST /v1/answer HTTP/1.1" '
    raised = [*TRACEBACK[:2], "ValueError: the prompt is too long"]
    ok = [f"{post}200 OK"]
    end = ["INFO:     Application shutdown complete.", "INFO:     Finished server process [7]"]
    assert first([*ok, *raised, f"{post}400 Bad Request", *ok, *end]) is None
    assert first([*ok, *raised, f"{post}500 Internal Server Error", *ok, *end]) is not None
    assert first([*ok, *raised, f"{post}400 Bad Request"]) is not None


def test_the_end_of_a_training_shows_that_it_recovered() -> None:
    """In fairseq's own words; the next batch may be too large, too."""
    recovers = ["| WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass"]
    warned = [
        f"2031-07-02 08:00:00 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: {OOM}"
    ]
    assert first([*warned, *recovers, "| INFO | fairseq_cli.train | done training in 88.2 seconds"]) is None
    assert first([*warned, *recovers, *TRACEBACK]) is not None


def test_places_are_read_from_any_text() -> None:
    """Nothing raises, and no line without a number is progress."""
    chance = random.Random(5)
    alphabet = "ab step/:|[]{}'\"0123456789.%, epoch\t=-é\x00"
    for _ in range(4000):
        text = "".join(chance.choices(alphabet, k=chance.randint(0, 60)))
        found = progress.read_counters(text)
        assert found is None or re.search(r"\d", text)


ANY_WORDS = {
    "German": "Schritt {n} von 100 Verlust 1.{n}",
    "Chinese": "第 {n} 步 损失 1.{n}",
    "Russian": "шаг {n} потери 1.{n}",
    "VASP": "DAV:   {n}    -0.{n}E+01   -0.1E-02",
    "OpenFOAM": "Time = 0.{n:02}\nsmoothSolver:  Solving for Ux, Initial residual = 0.{n}",
    "a code of its own": "t = 0.{n:02} dt = 0.01 E = -1.{n}",
    "a simulation": "cycle {n}: residual 1e-{n}",
}
LIVED_ON = (
    'Traceback (most recent call last):\n  File "a.py", line 3, in f\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB',
    "urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out.",
)


@pytest.mark.parametrize("error", LIVED_ON, ids=["with a traceback", "without one"])
@pytest.mark.parametrize("form", ANY_WORDS.values(), ids=ANY_WORDS)
def test_progress_is_recognised_in_any_language(form: str, error: str) -> None:
    """Numbers that grew before the error and grow on behind it; with none behind it, it ended the program."""
    before = "\n".join(form.format(n=n) for n in range(1, 5))
    after = "\n".join(form.format(n=n) for n in range(5, 12))
    assert not [f for f in reader.read(f"{before}\n{error}\n{after}\nfinished".split("\n")) if f.first_cause]
    assert [f for f in reader.read(f"{before}\n{error}".split("\n")) if f.first_cause]
    again = "\n".join(form.format(n=4) for _ in range(8))
    assert [f for f in reader.read(f"{before}\n{LIVED_ON[0]}\n{again}".split("\n")) if f.first_cause]


@every(
    "form",
    [
        "waiting for rank 3, {n} s",
        "[monitor] sample {n} of the host",
        "heartbeat {n}",
        "uptime {n} min",
        "gpu power {n}00 watt",
        "polling attempt {n}",
    ],
)
def test_what_counts_by_itself_is_no_progress(form: str) -> None:
    """A thread that watches lives on beside a program that died."""
    lines = [form.format(n=n) for n in range(1, 5)]
    lines += LIVED_ON[0].split("\n") + [form.format(n=n) for n in range(5, 12)]
    assert [f.kind for f in reader.read(lines) if f.first_cause] == ["cuda_oom"]


def test_lines_in_words_of_their_own_are_steps_once_their_number_grew_twice() -> None:
    """A number that repeats, falls or stands in other words is no step."""
    growing = progress.GrowingLines()
    lines = ["read 10 rows", "read 20 rows", "read 20 rows", "wrote 30 rows", "read 30 rows", "read 40 rows", "read 5 rows", "read 6 rows"]  # fmt: skip
    assert [growing.step(line) is not None for line in lines] == [False, False, False, False, True, True, False, False]  # fmt: skip


def test_the_work_for_a_survived_failure_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that leaves out what does not fit may do so all day; each is marked once and completed once."""
    calls = {"replace": 0, "enrich": 0}
    replace, enrich = cause.replace, grammar.enrich

    def counted_replace(*args: object, **fields: object) -> object:
        calls["replace"] += 1
        return replace(*args, **fields)

    def counted_enrich(best: grammar.JobFinding, other: grammar.JobFinding) -> grammar.JobFinding:
        calls["enrich"] += 1
        return enrich(best, other)

    monkeypatch.setattr(cause, "replace", counted_replace)
    monkeypatch.setattr(grammar, "enrich", counted_enrich)
    failures, lines = 60, []
    for n in range(failures):
        lines.append("RuntimeError: CUDA error: an illegal memory access was encountered")
        lines += [
            f"2024-01-02 10:10:01,100 a.py INFO step {4 * n + k}/999999 loss 2.1 tok/s 3" for k in range(4)
        ]
    found = list(reader.read(lines))
    assert [f.detail.get("survived") for f in found] == [True] * failures
    assert max(calls.values()) <= 3 * failures


def test_of_a_long_bar_the_first_and_the_last_parts_are_read() -> None:
    """Thousands of parts that differ in numbers alone say no more, and other words between them are all read."""
    bar = [f"step {n}/3000 loss: {n}.5" for n in range(3000)]
    bar[1500:1500] = ["RuntimeError: CUDA error: an illegal memory access was encountered"]
    parts = unfold.overwritten("\r".join(bar))
    assert parts[0] == bar[0]
    assert parts[-2:] == bar[-2:]
    assert bar[1500] in parts
    assert len(parts) < 100
    assert unfold.overwritten("\r".join(bar[:30])) == bar[:30]
    names = [f"reading {'ab'[n % 2] * n}" for n in range(300)]
    assert unfold.overwritten("\r".join(names)) == names


def test_a_long_bar_below_an_error_shows_that_the_program_went_on() -> None:
    """And one that ends with an error ends with it."""
    bar = "\r".join(f"step {n}/3000 loss: {n}.5" for n in range(3000))
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert [f.detail.get("survived") for f in reader.read([error, bar])] == [True]
    assert [f.first_cause for f in reader.read([f"{bar}\r{error}"])] == [True]
