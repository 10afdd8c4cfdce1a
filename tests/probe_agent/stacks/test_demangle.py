"""Names of C++ functions as people write them, also those of hostile files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.probe_agent.stacks import demangle

NAMES = [
    ("read", "read"),
    ("gloo::UnboundBuffer::waitRecv(int*, std::chrono::duration<long>)", "gloo::UnboundBuffer::waitRecv"),
    ("(anonymous namespace)::work(int) const", "(anonymous namespace)::work"),
    ("f(int)::{lambda()#1}::operator()() const", "f(int)::{lambda()#1}::operator()"),
    ("copy(char const*) [clone .part.0]", "copy"),
    ("tokio::runtime::park::h0123456789abcdef", "tokio::runtime::park"),
    ("\x1b[2Jevil\n", "evil "),
]


@pytest.mark.parametrize(("whole", "shown"), NAMES, ids=[n for _, n in NAMES])
def test_names_without_their_parameters(whole: str, shown: str) -> None:
    """What is called counts, not with what."""
    assert demangle.readable(whole) == shown


def test_long_names_keep_their_end() -> None:
    """Without what their templates are of, and from the left where that is not enough."""
    deep = "pybind11::cpp_function::initialize<" + "std::vector<int>, " * 50 + ">::call"
    assert demangle.readable(deep) == "pybind11::cpp_function::initialize<…>::call"
    bound = (
        "void pybind11::initialize<a>((anonymous namespace)::b<" + "c, " * 90 + "d>)::{lambda(e<f>&)#1}::_FUN"
    )
    assert demangle.readable(bound) == "void pybind11::initialize<…>(…)::{lambda(…)#1}::_FUN"
    shown = demangle.readable("a::" * 200 + "end")
    assert len(shown) == demangle.MAX_NAME
    assert shown.endswith("a::end")


def test_cpp_names_are_spoken_where_the_library_is_there() -> None:
    """Or left as they are."""
    demangled = demangle.demangler()
    assert demangled("_ZN4gloo4waitEi") in {"gloo::wait(int)", "_ZN4gloo4waitEi"}
    assert demangled("read") == "read"
    assert demangled("_Z" + "x" * 5000) == "_Z" + "x" * 5000


@given(st.text(max_size=300))
def test_any_text_is_a_name(name: str) -> None:
    """Bounded and clean, whatever a file says."""
    shown = demangle.readable(demangle.demangler()(name.replace("\0", "")))
    assert len(shown) <= demangle.MAX_NAME
    assert "\n" not in shown
