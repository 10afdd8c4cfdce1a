"""C functions inside Python's innermost frame: real processes that sleep, run, were stopped, die, or are not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deep_stack
import pytest

from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.stacks import native_child, sleeps

pytestmark = [deep_stack.compiler, deep_stack.looks, deep_stack.x86_64]
OTHER = 65534


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts Python on some code."""
    yield from deep_stack.processes_of_python()


def look(pid: int, before: int | None = None, uid: int | None = None) -> dict[str, Any]:
    """The child's answer about one process."""
    owner = os.getuid() if uid is None else uid
    calls = json.dumps({"ranks": [[pid, before]], "uid": owner, "gid": os.getgid() if uid is None else uid})
    argv = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.stacks.native_child"]
    done = subprocess.run(argv, input=calls, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout)[str(pid)])


def names(reply: dict[str, Any], library: Path) -> list[str]:
    """The functions of one library."""
    return [f["function"] for f in reply["native"] if f["file"] == library.name]


def scanned(reply: dict[str, Any]) -> list[str]:
    """The functions whose place had to be searched for."""
    return [f["function"] for f in reply["native"] if f.get("scanned")]


@pytest.mark.parametrize(
    ("options", "searched"),
    [((), ["calls"]), (("-fno-omit-frame-pointer",), ["grows"])],
    ids=["frames by the stack pointer", "frames by the frame pointer"],
)
def test_who_sleeps_in_c(start: Any, tmp_path: Path, options: tuple[str, ...], searched: list[str]) -> None:
    """Every caller, in order, from the system call to Python's frame: one search, from there on all is known."""
    library = deep_stack.compiled(tmp_path, *options)
    pid = start(f"ctypes.CDLL('{library}').enters(os.pipe()[0], 1000)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    reply = look(pid)
    assert names(reply, library) == deep_stack.CHAIN
    assert scanned(reply) == searched
    assert "libc" in reply["native"][0]["file"]
    assert "native_error" not in reply
    assert not any(f["function"].startswith("_PyEval_EvalFrame") for f in reply["native"])


def test_what_an_earlier_call_left_on_the_stack_is_not_told(start: Any, tmp_path: Path) -> None:
    """`leaves` has called `old`, which called `older`; their return addresses lie where `covers` has its own frame now."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"ctypes.CDLL('{library}').leaves(os.pipe()[0], 1000)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    reply = look(pid)
    assert names(reply, library) == ["blocks", "covers", "leaves"]
    assert scanned(reply) == ["leaves"]


def test_who_sleeps_in_a_signal_handler(start: Any, tmp_path: Path) -> None:
    """The frame that the kernel has put there is passed, and the function that was interrupted is exact again."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"ctypes.CDLL('{library}').raises(os.pipe()[0])")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    reply = look(pid)
    assert names(reply, library) == ["blocks", "handles", "raises"]
    assert scanned(reply) == []


def test_who_sleeps_in_python(start: Any) -> None:
    """What lies between the system call and the frame, and nothing above it."""
    pid = start("time.sleep(3600)")
    deep_stack.until(lambda: deep_stack.in_state(pid, "S"))
    reply = look(pid)
    assert "libc" in reply["native"][0]["file"]
    assert "native_error" not in reply
    assert len(reply["native"]) < 12


@deep_stack.samples
def test_who_burns_cpu_in_c(start: Any, tmp_path: Path) -> None:
    """Registers and stack are known from the kernel's samples; nothing is searched for."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"ctypes.PyDLL('{library}').enters_burning(3)")
    walks: list[dict[str, Any]] = []

    def burns() -> bool:
        walks.append(look(pid))
        return names(walks[-1], library) == ["burns", "enters_burning"] if "native" in walks[-1] else False

    deep_stack.until(burns)
    assert scanned(walks[-1]) == []
    assert "native_error" not in walks[-1]


@deep_stack.samples
def test_python_code_has_no_c_functions(start: Any) -> None:
    """In the interpreter's own loop there are none, and that is no failure."""
    pid = start("while True: pass")
    deep_stack.until(lambda: look(pid) == {"native": []})


def test_who_was_stopped(start: Any, tmp_path: Path) -> None:
    """Where it ran when SIGSTOP came."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"print('in', flush=True); ctypes.PyDLL('{library}').enters_burning(3)")
    reply: dict[str, Any] = {}

    def stopped() -> bool:
        os.kill(pid, signal.SIGSTOP)
        deep_stack.until(lambda: deep_stack.in_state(pid, "T"))
        reply.clear()
        reply.update(look(pid))
        if reply.get("native") and reply["native"][0]["function"] == "burns":
            return True
        os.kill(pid, signal.SIGCONT)  # not there yet
        return False

    deep_stack.until(stopped)
    assert names(reply, library) == ["burns", "enters_burning"]
    assert deep_stack.in_state(pid, "T")  # as it was


def test_who_gets_on_is_not_mixed_up(start: Any) -> None:
    """Its Python stack was taken at another moment."""
    pid = start("time.sleep(3600)")
    deep_stack.until(lambda: deep_stack.in_state(pid, "S"))
    slept = sleeps.read(pid)
    assert slept is not None
    assert look(pid, slept)["native"]
    assert "went on" in look(pid, slept - 1)["native_error"]


def test_who_dies_meanwhile(start: Any, tmp_path: Path) -> None:
    """Between two looks at it there is an answer all the same."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"ctypes.CDLL('{library}').enters(os.pipe()[0], 1000)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    taken = native_child.take(pid, os.getuid(), None)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    walk = native_child.followed(taken, native_child.MappedFiles())
    reply = native_child.to_reply({pid: walk})[str(pid)]
    assert reply.get("native_error") or names(reply, library) == deep_stack.CHAIN
    os.close(taken.memory)


def test_nobody_and_nobodys_process() -> None:
    """A process that is not there, and one of another user: why, and nothing else."""
    assert set(look(0x7FFFFFF0)) == {"native_error"}
    with pytest.raises(collect_child.Refused):
        native_child.take(os.getpid(), os.getuid() + 1, None)


def test_a_file_that_was_replaced_is_not_believed(start: Any, tmp_path: Path) -> None:
    """An upgrade under a running job: its addresses mean something else in the new file."""
    library = deep_stack.compiled(tmp_path)
    pid = start(f"ctypes.CDLL('{library}').enters(os.pipe()[0], 1000)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    deep_stack.compiled(tmp_path, "-O0").rename(library)
    reply = look(pid)
    assert names(reply, library) == []
    assert "cannot be read" in reply["native_error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_are_read_with_the_owners_rights(start: Any, tmp_path: Path) -> None:
    """A library that its user may not read (any more) is not read by us either."""
    library = deep_stack.compiled(tmp_path)
    library.chmod(0o600)
    code = f"""
library = ctypes.CDLL('{library}')
os.setresgid({OTHER}, {OTHER}, {OTHER})
os.setresuid({OTHER}, {OTHER}, {OTHER})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, or the process stays root's
library.enters(os.pipe()[0], 1000)"""
    pid = start(code)
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    reply = look(pid, uid=OTHER)
    assert names(reply, library) == []
    assert "cannot be read" in reply["native_error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_who_sees_another_root(start: Any, tmp_path: Path) -> None:
    """In an empty directory that is all it sees: its files are found where they are for us."""
    library = deep_stack.compiled(tmp_path)
    (tmp_path / "empty").mkdir()
    pid = start(f"l = ctypes.CDLL('{library}'); os.chroot('{tmp_path}/empty'); l.enters(os.pipe()[0], 1000)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    assert names(look(pid), library) == deep_stack.CHAIN


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_has_more_rights_than_its_user_is_left_alone(start: Any) -> None:
    """As a program with the setuid bit: its user may not look into it, nor may we in that user's name."""
    pid = start(f"os.setresgid(*[{OTHER}] * 3); os.setresuid(*[{OTHER}] * 3); os.read(os.pipe()[0], 1)")
    deep_stack.until(lambda: deep_stack.asleep_in(pid, deep_stack.READ))
    assert look(pid, uid=OTHER) == {"native_error": "not a process of the job's user"}
