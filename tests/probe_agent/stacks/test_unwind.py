"""Stacks that are followed: what a call looks like, and stacks and addresses that make no sense."""

from __future__ import annotations

import struct

import deep_stack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.probe_agent.stacks import cfi, elf, unwind

BASE = 0x7F0000000000
STACK = 0x7FFD00000000


def space(loops: list[tuple[int, int]] | None = None) -> unwind.AddressSpace:
    """A process in which nothing but the library is mapped, whole."""
    image = elf.in_memory(deep_stack.library())
    region = elf.Region(start=BASE, end=BASE + len(deep_stack.library()), offset=0, path="/lib/libdeep.so")
    return unwind.AddressSpace(
        regions=[region], opened=lambda _: image, loops=lambda _: loops, word=lambda _: 0
    )


def starts() -> dict[str, int]:
    """Where its functions begin, in that process."""
    return {name: BASE + at for name, at in deep_stack.functions().items()}


@pytest.mark.parametrize(
    ("code", "length"),
    [
        ("d0", 2),  # call *%rax
        ("10", 2),  # call *(%rax)
        ("15 00 00 00 00", 6),  # call *foo(%rip)
        ("14 24", 3),  # call *(%rsp)
        ("14 25 00 00 00 00", 7),  # call *0x0
        ("50 08", 3),  # call *8(%rax)
        ("54 24 08", 4),  # call *8(%rsp)
        ("90 00 01 00 00", 6),  # call *256(%rax)
        ("94 24 00 01 00 00", 7),  # call *256(%rsp)
        ("e0", None),  # jmp *%rax
        ("", None),
    ],
)
def test_how_long_a_call_through_a_pointer_is(code: str, length: int | None) -> None:
    """By its operand; what is another instruction is none."""
    assert unwind._call_length(bytes.fromhex(code)) == length


@deep_stack.compiler
@deep_stack.x86_64
def test_a_stack_that_leads_nowhere_is_told_as_far_as_it_leads() -> None:
    """The innermost function is certain; that its caller is not, is said."""
    pc = starts()["blocks"]
    begun = unwind.State(pc=pc, registers={unwind.SP: STACK}, called=False)
    lost = unwind.Unwinder(space=space(), base=STACK, stack=bytes(64)).walk(begun)
    assert ([f.extent[0] for f in lost.frames if f.extent], lost.reached) == ([pc - BASE], False)
    assert lost.why
    for stack in (b"", bytes(4), struct.pack("<Q", 0x1234)):
        walk = unwind.Unwinder(space=space(), base=STACK, stack=stack).walk(begun)
        assert (len(walk.frames), walk.reached) == (1, False)


@deep_stack.compiler
@deep_stack.x86_64
def test_what_was_taken_off_the_stack_again_is_in_its_register() -> None:
    """At the end of a function, where its tables still say where a register was saved: below the stack's end."""
    function = cfi.CodeFunction(
        start=0x1000, end=0x1100, is_signal=False, return_column=16, code_align=1, data_align=-8,
        encoding=0x1B, initial=bytes([0x0C, 7, 8, 0x90, 1]), program=bytes([0x83, 2]),
    )  # fmt: skip
    state = unwind.State(pc=0x1050, registers={unwind.SP: STACK, 3: 77}, called=False)
    region = elf.Region(start=0, end=0x2000, offset=0, path="/lib/libdeep.so")
    frame = unwind.MachineFrame(pc=0x1050, region=region, image=None, at=0x1050, extent=None)
    unwinder = unwind.Unwinder(space=space(), base=STACK, stack=struct.pack("<2Q", 0x1234, 5))
    caller = unwinder._caller(state, frame, function)
    assert (caller.pc, caller.registers) == (0x1234, {unwind.SP: STACK + 8, 3: 77})


@deep_stack.compiler
@deep_stack.x86_64
def test_no_guess_is_told_that_does_not_lead_to_the_interpreter() -> None:
    """A frame pointer that is not known: an old return address further up the stack is not taken for the caller."""
    where = starts()
    grows = cfi.find(elf.in_memory(deep_stack.library()), where["grows"] - BASE)
    assert grows is not None
    begun = unwind.State(pc=BASE + grows.end - 8, registers={unwind.SP: STACK}, called=False)
    stale = struct.pack("<8Q", 0, 0, 0, where["calls"] + 30, 0, 0, 0, 0)
    walk = unwind.Unwinder(space=space(), base=STACK, stack=stale).walk(begun)
    assert (len(walk.frames), walk.reached) == (1, False)
    assert "caller is not told" in walk.why


@deep_stack.compiler
@deep_stack.x86_64
@given(data=st.data())
def test_stacks_that_make_no_sense(data: st.DataObject) -> None:
    """Any address of the library, any words, most of them addresses of code: an answer within bounds."""
    near = (
        st.integers(BASE, BASE + len(deep_stack.library()))
        | st.integers(STACK, STACK + 1024)
        | st.integers(0, 2**64 - 1)
    )
    words = data.draw(st.lists(near, max_size=60))
    registers = dict(data.draw(st.lists(st.tuples(st.integers(0, 15), near), max_size=8)))
    begun = unwind.State(pc=data.draw(near), registers=registers | {unwind.SP: STACK}, called=False)
    loops = data.draw(st.sampled_from([None, [(0x1100, 0x1140)]]))
    stack = struct.pack(f"<{len(words)}Q", *words)
    walk = unwind.Unwinder(space=space(loops), base=STACK, stack=stack).walk(begun)
    assert len(walk.frames) <= unwind.MAX_FRAMES
    assert walk.reached or walk.why
