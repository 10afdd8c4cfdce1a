"""Which node each line of a kernel log is of: a central log holds many hosts, and a file may be given for the wrong node."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from probing_cluster.core import sanitize, vocabulary
from probing_cluster.evidence import prefixes

_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{6})? [A-Z]{2,5}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]{0,20})"
    r" (?P<host>[A-Za-z0-9_][\w.-]{0,253}) (?P<tag>[\w./@-]{1,64})(?:\[\d{1,18}\])?:",
    re.ASCII,
)
"""The forms most files have, `journalctl -o short-full` among them; parsing every line of a large file in full would take five times as long."""
_DMESG = re.compile(r"\s*(?:\[|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,)", re.ASCII)
"""`dmesg` in its time formats names no host."""
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_NUMBER = re.compile(r"\d+")
_NO_HOST = frozenset({"localhost", "localhost4", "localhost6", "none", "unknown", "-"})
"""What a machine is called before it has a name."""
_MOST_HOSTS = 6


def short(name: str) -> str:
    """A host's name without its domain, in lower case; an address as it is."""
    name = name.strip().lower()
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0]


def by_short(nodes: Iterable[str]) -> dict[str, str]:
    """Nodes by their names without a domain and in lower case."""
    return {short(node): node for node in sorted(nodes)}


def as_known(names: Iterable[str], nodes: Collection[str]) -> dict[str, str]:
    """Each of `names` as one of `nodes` that it is with a domain or in other case; itself where it is one, or none of them."""
    known = by_short(nodes)
    return {name: name if name in nodes else known.get(short(name), name) for name in names}


def stranger(name: str, nodes: Collection[str]) -> str:
    """A note about a node that no job of the accounting ran on, with the names that are like it; empty for one of `nodes`."""
    if not name or not nodes or name in nodes:
        return ""
    near = difflib.get_close_matches(short(name), [short(n) for n in nodes], n=3) or sorted(nodes)[:3]
    return f"{sanitize.clean(name, 64)} is no node of the accounting, so what its log says bears on none of these jobs; --kernel NODE= takes {', '.join(near)} …"


def _numbered_alike(a: str, b: str) -> bool:
    """Whether two short names differ in nothing but their numbers, as those of two nodes of one cluster do."""
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    return [int(n) for n in _NUMBER.findall(a)] != [int(n) for n in _NUMBER.findall(b)]


class LineHosts:
    """Sorts the lines of one file by node, as they come.

    With `node` the file is that node's, and lines of other hosts are left out; without one (empty) the file is of
    many hosts, and each line is of the node its host names. `nodes` are the names the import knows; in a file of
    many hosts None takes every host for a node.
    """

    def __init__(self, node: str, nodes: frozenset[str] | None) -> None:
        self._node = node
        self._own = short(node)
        self._known: Mapping[str, str] | None = None if nodes is None else by_short(nodes)
        self._alias: str | None = None
        """The one host of the file that may be the node under another name."""
        self._alias_lines = 0
        self._is_alias_open = True
        """Whether no second host has come, nor the node's own name."""
        self._last = ""
        self._uses_some = False
        self._named: dict[str, str] = {}
        self.names_hosts = False
        """Whether some line names a host."""
        self.left_out: Counter[str] = Counter()
        """Lines that are not used, by the host they name; of none under the empty name."""

    def key(self, text: str, reference: datetime) -> str | None:
        """The part of the file that the next line belongs to; None for a line that is left out."""
        host = self._host(text, reference)
        if not host and text[:1].isspace():
            host = self._last  # the rest of the message above it
        self._last = host
        self.names_hosts = self.names_hosts or bool(host)
        key = self._of_node(host) if self._node else self._of_many(host)
        self._uses_some = self._uses_some or key is not None
        return key

    def node(self, key: str) -> str:
        """The node of the part `key`."""
        return self._node or self._named[key]

    def parts(self) -> dict[str, str]:
        """The node of each part, once all lines were read."""
        if not self._node:
            return self._named
        if self._alias is None:
            return {"": self._node}
        if self._is_alias_open:
            return {"": self._node, self._alias: self._node}
        self.left_out[self._alias] += self._alias_lines
        self._alias_lines = 0
        return {"": self._node}

    def notes(self) -> list[str]:
        """What a person should know of the hosts; after `parts`."""
        made = []
        if self._alias is not None and self._is_alias_open:
            made.append(
                f"every line with a host names {sanitize.clean(self._alias, 80)}, which is no node of this import:"
                f" believed to be another name of {self._node}; if it is another machine, its lines do not belong to {self._node}"
            )
        hosts = [host for host, _ in self.left_out.most_common() if host]
        if hosts:
            n = sum(self.left_out[host] for host in hosts)
            names = ", ".join(sanitize.clean(host, 80) for host in hosts[:_MOST_HOSTS])
            more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
            whose = "other hosts" if self._node else "hosts that are no node of this import"
            none = "" if self._uses_some else "; nothing of the file was used"
            made.append(f"{vocabulary.plural(n, 'line')} of {whose} left out: {names}{more}{none}")
        if n := self.left_out[""]:
            made.append(f"{vocabulary.plural(n, 'line')} without a host left out")
        return made

    def _of_node(self, host: str) -> str | None:
        if not host:
            return ""
        if host == self._own:
            self._is_alias_open = False
            return ""
        # A node of the import, or of its numbers, is another machine whatever else the file holds.
        is_other = host in (self._known or {}) or _numbered_alike(host, self._own)
        if is_other or self._alias not in {None, host}:
            self._is_alias_open = False
        elif self._is_alias_open:
            self._alias = host
            self._alias_lines += 1
            return host
        self.left_out[host] += 1
        return None

    def _of_many(self, host: str) -> str | None:
        if host and host not in _NO_HOST:
            node = host if self._known is None else self._known.get(host)
            if node is not None:
                self._named[host] = node
                return host
        self.left_out[host] += 1
        return None

    def _host(self, text: str, reference: datetime) -> str:
        """The short name of the host that the line names; empty where it names none, or none that can be believed."""
        if _DMESG.match(text) or not text:
            return ""
        if found := _SYSLOG.match(text):
            host, tag = found["host"], found["tag"]
        else:
            line = prefixes.parse(text, reference)
            host, tag = line.host or "", line.tag or ""
        host = short(host)
        if tag in prefixes.KERNEL_TAGS or not tag:
            return "" if self._node and host in _NO_HOST else host
        # In front of another word and a colon may stand the first words of a kernel's message.
        is_host = host == self._own or host in (self._known or self._named) or host in self.left_out
        return host if is_host or host == self._alias else ""
