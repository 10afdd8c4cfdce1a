"""The page: one file of 64-bit words that the process writes and the agent reads, even after death.

Every word is stored by a single aligned store, so no word is ever torn. Groups of words are made
consistent without locks: a group lives in two copies and its index word is written last, so it
always points at a whole copy, and each copy carries a check word. A ring entry's last word is
what its first ones make it (a step's number xor its time, a collective's time), and they are written
first and last, so an entry that is being rewritten, or whose writer died inside it, is no entry.

All times are CLOCK_MONOTONIC nanoseconds; the header holds one (realtime, monotonic) pair to convert.
This file is read on Python 3.8 (the job's) and on the agent's own.
"""

TYPE_CHECKING = False  # the typing module would cost the job's start-up
if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = 0x45474150424F5250  # b"PROBPAGE" read as little-endian
VERSION = 2
WORDS = 2048
SIZE_BYTES = WORDS * 8
MASK = 0xFFFFFFFFFFFFFFFF

# Header words.
H_MAGIC, H_VERSION, H_SIZE, H_PID, H_START_TICKS, H_REALTIME_NS, H_MONOTONIC_NS, H_FLAGS = range(8)
H_IDENTITY, H_PROGRESS, H_PID_NAMESPACE = 8, 9, 10
H_FIRST_STEP_NS, H_CHECKPOINT_NS, H_LOADER_ENDS = 12, 13, 14
"""When the first optimizer step ended; nanoseconds of training blocked by checkpoint writes so far; how often
a data loader has come to its end. H_PID is the process's number in the PID namespace H_PID_NAMESPACE (its inode; 0 where
that could not be read): in a container that has one of its own it is another than outside."""

FLAG_STEPS_UNSEEN = 1
"""This torch has no global optimizer hook (before 2.0): no step will ever be counted."""

# Identity: two copies, rewritten when the process group comes up.
IDENTITY_AT = (16, 80)
I_JOB, I_RESTART, I_STEP, I_RANK, I_WORLD, I_LOCAL_RANK, I_NODE_ID, I_PARENT, I_CHECK = range(9)
I_HOST, I_HOST_WORDS = 16, 8
I_TORCH, I_TORCH_WORDS = 24, 4
I_PYTHON, I_PYTHON_WORDS = 28, 2
I_BACKEND, I_BACKEND_WORDS = 30, 2
IDENTITY_WORDS = 32
NONE = MASK
"""A number that is not known."""

# Progress: two copies.
PROGRESS_AT = (144, 160)
P_PHASE, P_PHASE_SINCE, P_CKPT_BEGIN, P_CKPT_END, P_CKPTS, P_CHECK = range(6)
PROGRESS_WORDS = 6

PHASES = (
    "none",
    "importing",
    "loading",
    "init",
    "training",
    "checkpointing",
    "validating",
    "compiling",
    "ended",
)
NONE_PHASE, IMPORTING, LOADING, INIT, TRAINING, CHECKPOINTING, VALIDATING, COMPILING, ENDED = range(
    len(PHASES)
)

# Ring of the last optimizer steps.
STEPS_AT, STEPS = 192, 64
S_STEP, S_END_NS, S_INPUT_NS, S_COLLECTIVE_NS, S_BACKWARD_NS, S_CHECKPOINT_NS, S_CHECK = range(7)
STEP_WORDS = 8

# Ring of the last collectives called from Python.
COLLECTIVES_AT, COLLECTIVES = 704, 64
C_ENTER_NS, C_SEQ, C_NUMEL, C_META, C_GROUP, C_GROUP2, C_OP, C_OP2, C_CHECK, C_LEAVE_NS = range(10)
"""C_CHECK is C_ENTER_NS again. C_LEAVE_NS is written when the call returns; until then it is of the slot's last call,
and so before C_ENTER_NS: one store less at each call."""
COLLECTIVE_WORDS = 12
# C_META: dtype code in bits 0-15, group size in 16-39, bit 40 async, bit 41 point to point, bit 42 raised, what the group is for in 43-47.
META_ASYNC, META_P2P, META_RAISED = 1 << 40, 1 << 41, 1 << 42
META_ROLE_AT = 43
ROLES = ("", "tp", "pp", "dp", "cp", "ep", "sp", "mp", "shard", "replicate", "embedding")
"""Tensor, pipeline, data, context, expert, sequence and model parallelism; sharding and replicas of data parallelism."""

assert COLLECTIVES_AT + COLLECTIVES * COLLECTIVE_WORDS <= WORDS  # noqa: S101


def names_of(pid: int, namespace: int) -> "tuple[str, str]":
    """The names a page may have: the second where, of several containers of a job, another has a process of that number."""
    return "p%d.page" % pid, "p%d-%d.page" % (pid, namespace)


SPARES = 32
"""Pages that lie ready in a new job's directory, for its processes to write in where there is no room for others."""


def spare_names() -> "tuple[str, ...]":
    """The names of the pages that lie ready."""
    return tuple(".spare%d" % i for i in range(SPARES))


def bytes_of(text: str, count: int) -> bytes:
    """`text` as the bytes of `count` words of ASCII, cut to fit, padded with zero bytes."""
    return text.encode("ascii", "replace")[: count * 8].ljust(count * 8, b"\0")


def words_of(text: str, count: int) -> "list[int]":
    """`text` as `count` little-endian words of ASCII, cut to fit, padded with zero bytes."""
    raw = bytes_of(text, count)
    return [int.from_bytes(raw[i : i + 8], "little") for i in range(0, count * 8, 8)]


def text_of(words: "Iterable[int]") -> str:
    """The text of words written by `words_of`; bytes that are not printable ASCII become '?'."""
    raw = b"".join(int(w).to_bytes(8, "little") for w in words).split(b"\0", 1)[0]
    return "".join(chr(b) if 32 <= b < 127 else "?" for b in raw)


def check_of(values: "Iterable[int]") -> int:
    """The check word of a group: never zero, so an unwritten entry is never valid."""
    check = 0x9E3779B97F4A7C15
    for value in values:
        check ^= value
    return check or 1
