"""Complaints of script commands that each end with a code of their own: the last one printed gave the script its exit code.

A batch script goes on after a command that failed. Its exit code is its last command's, so an earlier complaint of another command
ended nothing: 126 and 127 are the shell's, 255 is ssh's, rsync and curl print their codes. The log does not show the job's own code.
"""

from __future__ import annotations

import re

from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import progress
from probing_cluster.evidence.joblog.grammar import JobFinding

_COMPLAINTS = (
    (
        "shell",
        r"\S{1,300}: (?:line )?\d{1,6}: (?:\S{1,300}: (?:cannot execute\b.{0,60}|.{0,60}Exec format error)|\./\S{1,300}: Permission denied)$",
    ),
    ("rsync", r"rsync(?: error)?: \S"),
    ("curl", r"curl: \(\d{1,3}\) "),
    ("scp", r"scp: \S"),
    (
        "ssh",
        r"(?:ssh|kex_exchange_identification): \S|Host key verification failed|(?:\S{1,100}: ){0,2}Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)",
    ),
)
_TOOLS = tuple((tool, re.compile(rf"\s{{0,8}}(?:{form})")) for tool, form in _COMPLAINTS)
_SUM = re.compile(r"\s{0,8}rsync error: ")
"""rsync's last line; a later complaint is another run's."""
_OF_SHELL = re.compile(r"\s{0,8}(?:\S{1,300}: line|\S{0,300}sh:|\S{0,300}slurm_script:) \d{1,6}: \S")
_CLEAN_UP = frozenset({"rsync", "curl", "scp"})
"""Tools that copy the results and notify people. A script often runs them last and ends with the code that it kept from its program."""
_LOST = re.compile(
    r".{0,40}(?:connection unexpectedly closed|unexplained error \(code 255\)|protocol data stream \(code 12\)|Connection closed|Broken pipe)"
)
"""How rsync and scp report that their ssh ended."""


def tool_of(message: str) -> str:
    """The command that ends with a code of its own after this complaint; empty for every other line."""
    return next((tool for tool, form in _TOOLS if form.match(message)), "")


def sums_up(message: str) -> bool:
    """Whether it is the last line of its command: what the same command prints after it belongs to another run."""
    return _SUM.match(message) is not None


def decides(message: str, held: JobFinding, *, over: bool) -> bool:
    """Whether the command that printed `message` gave the script its exit code, and not the one that printed `held` before it.

    `over`: the command of `held` has ended. An error of the program itself stays: what later commands lack follows from it.
    So does a command that the shell could not start, and one that reached no host, if only a tool of `_CLEAN_UP` follows.
    """
    if _HALTS.match(held.message):
        return True  # it names only the job that failed; that one's own complaint follows
    tool, before = tool_of(message), tool_of(held.message)
    if not tool or (tool == before and not over):
        return False
    if progress.is_of_script(held.message) or before == "rsync":
        return True
    started = bool(before) or _OF_SHELL.match(held.message) is not None or held.kind == "command_not_found"
    return started and tool not in _CLEAN_UP


_NOT_RUN = re.compile(
    r": (?:bad interpreter: |error while loading shared libraries: |command not found\b|cannot execute\b)"
)
_ITS_CODE = re.compile(
    r".{0,60}\b(?:rc|code|status|exit\w{0,3}|ret\w{0,5})\b.{0,20}\b12[67]\W*$", re.IGNORECASE
)
_HALTS = re.compile(r"parallel: (?:This job failed:|Starting no more jobs\b|Killing )")
"""GNU parallel ends its work for a job that failed. The other jobs print on."""


def not_run(message: str) -> bool:
    """Whether a shell could not run a program: its code is 126 or 127."""
    return _NOT_RUN.search(locales.english(message)) is not None


def is_decided(text: str, *, not_run: bool) -> bool:
    """Whether the line `text` shows that the complaint above gave its script or its runner a bad end; `not_run`: of a program that could not be run."""
    return _HALTS.match(text) is not None or (not_run and _ITS_CODE.match(text) is not None)


def was_started_by(message: str, held: JobFinding) -> bool:
    """Whether the tool that printed `message` had started the ssh that printed `held`."""
    return (
        tool_of(held.message) == "ssh" and tool_of(message) in _CLEAN_UP and _LOST.match(message) is not None
    )


_UNREACHED = re.compile(
    r"(?:ssh|rsh|kex_exchange_identification): |Host key verification failed|.{0,100}Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)|Connection closed by |(?:ba|c|tc)?sh: .{0,20}orted: "
)
"""ssh's messages when a launcher could not start its part on another node."""
_NODE = r"(?=[a-z-]{0,40}\d)[\w-]{2,63}"
_NO_NODE = re.compile(
    rf"(?P<label>{_NODE}): (?:ssh: .{{1,200}}|Host key verification failed|Permission denied \((?:publickey|password|keyboard|gssapi|hostbased))|(?:ssh: )(?:connect to host|Could not resolve hostname) {_NODE}\b(?!\.\w+\.(?:com|org|net|io))"
    rf"|pdsh@[\w.-]{{1,253}}: {_NODE}: (?:ssh exited with exit code 255|connect: |mcmd: )"
)
"""The same with the node's name."""


def reached_no_node(message: str) -> bool:
    """Whether ssh or pdsh could not reach another node, which the line names."""
    return _NO_NODE.match(message) is not None


def reached_no_host(message: str) -> bool:
    """Whether ssh could not reach another node."""
    return _UNREACHED.match(message) is not None
