"""The all-reduce on real sockets: the sum is right, a wrong one, a dead peer and a stranger are noticed."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading

import pytest

from probing_cluster.core import records
from probing_cluster.diagnostics import allreduce, machine, registry
from probing_cluster.healthchecks import findings
from probing_cluster.sandbox.machine import ports

OPTIONS = machine.Options(bytes_moved=1 << 14, repeats=2, connect_s=1.5)


def together(
    n: int, connect_s: float = 60.0, repeats: int = 2, **kinds: type[machine.Machine]
) -> dict[str, findings.Finding]:
    """Every member's finding; `kinds` are members with hardware of another sort."""
    options = dataclasses.replace(OPTIONS, connect_s=connect_s, repeats=repeats)
    names = tuple(f"n{i}" for i in range(n))
    chosen = ports.choose(n)
    group = machine.Group(
        members=names,
        addresses={name: ("127.0.0.1", port) for name, port in zip(names, chosen, strict=True)},
        token=b"t" * 32,
    )
    found: dict[str, findings.Finding] = {}

    def one(name: str) -> None:
        node = kinds.get(name, machine.Machine)(node=name, options=options, group=group)
        found[name] = allreduce.test(node)[0]

    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("n", [2, 3, 5])
def test_all_members_agree_on_the_right_sum(n: int) -> None:
    found = together(n)
    assert {one.outcome for one in found.values()} == {records.Outcome.OK}
    assert all(one.measured and one.unit == "s" for one in found.values())


class Stopwatch(machine.Machine):
    """A clock by which the warm-up takes 9 s, and the all-reduces after it what a busy machine makes of them."""

    readings = iter(t for taken in (9.0, 40.0, 3.0, 2.0, 1.0, 50.0) for t in (0.0, taken))

    def wall_s(self) -> float:
        return next(self.readings)


def test_the_quicker_all_reduces_count_and_not_the_luckiest() -> None:
    found = together(2, repeats=5, n1=Stopwatch)
    assert found["n1"].measured == 2.0


class Flipping(machine.Machine):
    """Sends one bit wrong."""

    def send(self, peer: str, link: socket.socket, data: bytes | memoryview) -> None:
        wrong = bytearray(data)
        wrong[3] ^= 4
        super().send(peer, link, bytes(wrong))


class Dead(machine.Machine):
    """Its links are dead."""

    def answers(self) -> bool:
        return False


def test_a_flipped_bit_on_the_way_makes_the_sum_wrong() -> None:
    found = together(2, n1=Flipping)
    assert found["n0"].outcome is records.Outcome.FAIL
    assert "wrong" in found["n0"].message


def test_a_dead_peer_fails_the_pair_and_is_named() -> None:
    found = together(2, OPTIONS.connect_s, n1=Dead)
    assert found["n0"].outcome is records.Outcome.FAIL
    assert "n1" in found["n0"].message


def test_a_port_that_is_taken_is_nobodys_fault() -> None:
    """Our own trouble is 'cannot tell'."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        group = machine.Group(
            members=("a", "b"),
            addresses={"a": taken.getsockname()[:2], "b": ("127.0.0.1", 1)},
            token=b"t" * 32,
        )
        (found,) = allreduce.test(machine.Machine(node="a", options=OPTIONS, group=group))
    assert found.outcome is records.Outcome.ERROR
    assert registry.UNTESTED in found.detail


def test_a_member_of_another_round_is_let_in_nowhere() -> None:
    """The proof of the round is asked of whoever connects."""
    (a, b) = ports.choose(2)
    group = machine.Group(
        members=("a", "b"), addresses={"a": ("127.0.0.1", a), "b": ("127.0.0.1", b)}, token=b"t" * 32
    )
    other = dataclasses.replace(group, token=b"x" * 32)
    found: dict[str, findings.Finding] = {}

    def one(name: str, its: machine.Group) -> None:
        found[name] = allreduce.test(machine.Machine(node=name, options=OPTIONS, group=its))[0]

    threads = [threading.Thread(target=one, args=args) for args in (("a", group), ("b", other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found["a"].outcome is records.Outcome.FAIL
    assert found["b"].outcome is records.Outcome.FAIL


def test_strangers_on_the_port_neither_fail_a_pair_nor_delay_it() -> None:
    """Whoever can reach a node may connect and say nothing, something else, or half of it, also before the test begins."""
    chosen = ports.choose(2)
    addresses = {f"n{i}": ("127.0.0.1", port) for i, port in enumerate(chosen)}
    group = machine.Group(members=("n0", "n1"), addresses=addresses, token=b"t" * 32)
    options = dataclasses.replace(OPTIONS, connect_s=20.0)
    found: dict[str, findings.Finding] = {}
    over = threading.Event()

    def one(name: str) -> None:
        found[name] = allreduce.test(machine.Machine(node=name, options=options, group=group))[0]

    def stranger(words: bytes) -> None:
        held: list[socket.socket] = []
        while not over.is_set() and len(held) < 300:
            for address in addresses.values():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(address, timeout=1.0))
                    held[-1].sendall(words)
            over.wait(0.02)
        over.wait()
        for link in held:
            link.close()

    strangers = [threading.Thread(target=stranger, args=(words,)) for words in (b"", b"x" * 32, b"half")]
    members = [threading.Thread(target=one, args=(name,)) for name in group.members]
    for thread in (*strangers, *members):
        thread.start()
    for thread in members:
        thread.join(60)
    over.set()
    for thread in strangers:
        thread.join(60)
    assert [found[name].outcome for name in group.members] == [records.Outcome.OK] * 2
