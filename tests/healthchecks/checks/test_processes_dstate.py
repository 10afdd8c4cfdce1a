"""Processes stuck in the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core.records import Outcome

NO_USER, ANY_USER = 2**31, 0
"""As `uid_min`: whoever runs the tests owns the processes."""
PS = """[<0>] proc_single_show+0x2a/0xb0
[<0>] seq_read_iter+0x12a/0x4a0
[<0>] vfs_read+0x2a1/0x3a0
"""
"""Of a `ps` beside a process inside an exec."""
NFS = """[<0>] rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]
[<0>] nfs4_do_call_sync+0x6d/0xa0 [nfsv4]
[<0>] proc_reg_read+0x2a/0xb0
"""


def after_five_minutes(node: Any, uid_min: int = NO_USER) -> Any:
    """The finding of the second look."""
    node.check("processes_dstate", uid_min=uid_min)
    node.later(300)
    return node.check("processes_dstate", uid_min=uid_min)


def test_a_moment_is_nothing_and_lasting_fails(node: Any) -> None:
    """D state fails only when the same process is seen so for five minutes."""
    node.process(10, "nfsidmap", "D")
    node.process(11, "sshd")
    finding = node.check("processes_dstate", uid_min=NO_USER)
    assert finding.outcome is Outcome.OK
    assert "1 in D state just now" in finding.message
    node.later(300)
    finding = node.check("processes_dstate", uid_min=NO_USER)
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.FAIL, "nfsidmap", 300)


@pytest.mark.parametrize(
    ("cgroup", "uid_min"),
    [
        ("0::/system.slice", ANY_USER),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", NO_USER),
        ("1:memory:/slurm/uid_1000/job_7/step_0", NO_USER),
        ("0::/user.slice/user-4294967294.slice/session-3.scope", NO_USER),
    ],
    ids=["a user's", "a setuid program of a job", "of a job, cgroup v1", "a setuid program of a login"],
)
def test_what_a_user_can_cause_drains_nothing(node: Any, cgroup: str, uid_min: int) -> None:
    """A parent after vfork stands in D state as long as its child is stopped, also as root by a setuid program."""
    for scope in ("system.slice/slurmstepd.scope", "memory/slurm"):
        (node.root / "sys/fs/cgroup" / scope).mkdir(parents=True)
    node.process(10, "python", "D", cgroup=cgroup)
    finding = after_five_minutes(node, uid_min)
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.WARN, "python", 300)
    assert "user" in finding.message


def test_a_real_parent_after_vfork(node: Any) -> None:
    """As the kernel shows it: this is what a user's program can do without end."""
    program = "import ctypes, os, signal, time; lib = ctypes.CDLL(None); lib.vfork() or os.kill(os.getpid(), signal.SIGSTOP)"
    parent = subprocess.Popen([sys.executable, "-c", program])
    status = Path(f"/proc/{parent.pid}/status")
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    try:
        # Without a child it waits for its modules to be read from the disk.
        while not ("State:\tD" in status.read_text() and children.read_text()):
            time.sleep(0.01)
        node.put(f"proc/{parent.pid}/status", status.read_text())
        node.put(f"proc/{parent.pid}/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0")
        (node.root / "sys/fs/cgroup/system.slice/slurmstepd.scope").mkdir(parents=True)
        assert after_five_minutes(node).outcome is Outcome.WARN
    finally:
        for pid in (*children.read_text().split(), parent.pid):
            os.kill(int(pid), signal.SIGKILL)
        parent.wait()


def opened(*functions: str) -> str:
    """A stack as the kernel shows it, the innermost function first."""
    return "".join(f"[<0>] {name}+0x2a/0x90\n" for name in functions)


@pytest.mark.parametrize(
    ("stack", "outcome"),
    [
        (PS, Outcome.WARN),
        (opened("mm_access", "proc_mem_open", "pid_maps_open", "do_dentry_open"), Outcome.WARN),
        (opened("mm_access", "proc_mem_open", "environ_open", "do_dentry_open"), Outcome.WARN),
        (opened("mm_access", "process_vm_rw_core.constprop.0", "process_vm_rw"), Outcome.WARN),
        (opened("mm_access", "proc_map_files_readdir", "iterate_dir"), Outcome.WARN),
        (
            opened("request_wait_answer", "__fuse_simple_request", "fuse_statfs", "statfs_by_dentry"),
            Outcome.WARN,
        ),
        (opened("folio_wait_bit", "fuse_wait_on_page_writeback", "fuse_flush"), Outcome.WARN),
        (opened("__refrigerator", "get_signal", "do_signal"), Outcome.WARN),
        (opened("blk_mq_get_tag", "confuse_reader"), Outcome.FAIL),
        (opened("__x64_sys_pidfd_getfd", "pidfd_getfd", "do_syscall_64"), Outcome.WARN),
        (opened("nfs_wait_bit_killable", "nfs4_proc_open", "nfs_file_open"), Outcome.FAIL),
        (opened("nvidia_open", "chrdev_open", "do_dentry_open"), Outcome.FAIL),
        (NFS, Outcome.FAIL),
        ("", Outcome.FAIL),
    ],
)
def test_a_process_of_the_system_is_asked_where_it_hangs(node: Any, stack: str, outcome: Outcome) -> None:
    """`ps` hangs on a user's process inside an exec, `df` on a user's FUSE mount; a file server, a driver's file in /proc, and an unknown place fail."""
    node.tool("cat", script='exec /bin/cat "$@"')
    node.process(10, "ps", "D")
    node.put("proc/10/stack", stack)
    assert after_five_minutes(node).outcome is outcome


def test_of_many_hanging_processes_so_many_are_asked(node: Any) -> None:
    """A user can have any number of `ps` hang; those that were not asked fail nothing."""
    node.tool("cat", script='exec /bin/cat "$@"')
    for pid in range(10, 40):
        node.process(pid, "ps", "D")
        node.put(f"proc/{pid}/stack", PS)
    assert after_five_minutes(node).outcome is Outcome.WARN


def test_another_process_with_the_same_id(node: Any) -> None:
    """A new process with the old id has its own time; so has one that came back from D state."""
    node.process(10, "python", "D")
    node.check("processes_dstate")
    node.later(300)
    node.process(10, "python", "D", switches=9)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_files_that_can_hang_are_not_read(node: Any) -> None:
    """The stat of a process inside an exec is read by nobody until the exec ends; here it is a pipe that nobody writes to."""
    node.process(10, "python", "D")
    os.mkfifo(node.root / "proc/10/stat")
    assert node.check("processes_dstate").message == "1 processes, none stuck, 1 in D state just now"


def test_a_busy_reader_is_not_stuck(node: Any) -> None:
    """A process seen in D state at two looks that has run between them is only doing I/O."""
    node.process(10, "dd", "D", switches=7)
    node.check("processes_dstate")
    node.later(600)
    node.process(10, "dd", "D", switches=9)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_kernel_threads_wait_by_trade(node: Any) -> None:
    """Kernel threads in D state are no fault."""
    node.process(50, "kworker/0:1+events", "D", parent=2)
    node.check("processes_dstate")
    node.later(3600)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_names_with_spaces_and_parentheses(node: Any) -> None:
    """A process named `a) D (b` does not fool the parser."""
    node.process(10, "a) D (b", "S")
    node.check("processes_dstate")
    node.later(600)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_no_proc(node: Any) -> None:
    """Without processes there is nothing to judge."""
    assert node.check("processes_dstate").outcome is Outcome.ABSENT
