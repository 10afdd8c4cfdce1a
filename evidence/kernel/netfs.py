"""Network file systems as the client's kernel sees them: NFS, Lustre, GPFS, BeeGFS, Ceph, SMB."""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_SERVER = "See whether other nodes lost the same server at the same time; then it is the server or the network, not this node."
_CLIENT = "Check the client's mount and its network to the servers; remount if jobs still fail."
_DONE = "Nothing; jobs that waited for it go on."
_SW, _BOTH = "system_software", "system_software hardware"
FACTS = {
    ("nfs", "not_responding"): fact(
        INFO, _BOTH, "An NFS server does not answer; processes that use it wait.", _SERVER
    ),
    ("nfs", "recovered"): fact(INFO, _BOTH, "An NFS server answers again.", _DONE),
    ("nfs", "reclaim"): fact(
        INFO, _SW, "File locks could not be taken back after an NFS server came back.", _CLIENT
    ),
    ("nfs", "lease"): fact(INFO, _SW, "The NFS client lost its lease with the server.", _CLIENT),
    ("nfs", "error"): fact(INFO, _SW, "The NFS client reports an error.", _CLIENT),
    ("lustre", "connection_lost"): fact(
        INFO, _BOTH, "The connection to a Lustre server was lost; operations wait for recovery.", _SERVER
    ),
    ("lustre", "recovered"): fact(INFO, _BOTH, "The connection to a Lustre server is back.", _DONE),
    ("lustre", "evicted"): fact(
        LOW, _BOTH, "A Lustre server threw this client out; its open files fail.", _CLIENT
    ),
    ("lustre", "evicting"): fact(
        INFO, _BOTH, "This Lustre server throws a client out.", "Look at the client it names."
    ),
    ("lustre", "request_timeout"): fact(INFO, _BOTH, "A Lustre request was not answered in time.", _SERVER),
    ("lustre", "lbug"): fact(
        HIGH,
        _SW,
        "Lustre met a fatal error of its own and froze the thread.",
        "Drain the node and reboot it; report it to the Lustre vendor.",
    ),
    ("lustre", "network"): fact(INFO, _BOTH, "Lustre's network layer reports an error.", _SERVER),
    ("lustre", "error"): fact(INFO, _BOTH, "Lustre reports an error.", _CLIENT),
    ("lustre", "*"): fact(INFO, _BOTH, "Lustre reports an error under its own message number.", _CLIENT),
    ("gpfs", "error"): fact(LOW, _BOTH, "The GPFS daemon reports an error.", _CLIENT),
    ("gpfs", "expelled"): fact(HIGH, _BOTH, "This node lost its membership of the GPFS cluster.", _CLIENT),
    ("gpfs", "expelling"): fact(
        INFO, _BOTH, "GPFS throws another node out of the cluster.", "Look at the node it names."
    ),
    ("gpfs", "unmounted"): fact(HIGH, _BOTH, "GPFS unmounted a file system because of an error.", _CLIENT),
    ("gpfs", "connection_lost"): fact(INFO, _BOTH, "GPFS lost a connection to another node.", _SERVER),
    ("gpfs", "*"): fact(LOW, _BOTH, "GPFS logged an error record.", _CLIENT),
    ("beegfs", "connection_lost"): fact(INFO, _BOTH, "The BeeGFS client cannot reach a server.", _SERVER),
    ("beegfs", "error"): fact(INFO, _BOTH, "The BeeGFS client reports an error.", _CLIENT),
    ("filesystem", "not_responding"): fact(
        INFO, _BOTH, "A network file system's server does not answer.", _SERVER
    ),
    ("filesystem", "evicted"): fact(
        LOW, _BOTH, "A Ceph server refuses this client; its open files fail.", _CLIENT
    ),
    ("filesystem", "error"): fact(INFO, _BOTH, "A network file system reports an error.", _CLIENT),
}
_NFS = (
    (
        "not_responding",
        re.compile(
            r"(?:nfs|lockd|NFS|rpcbind): server (?:(?P<device>\S{1,253})|[\[{<(][^\]})>]{1,60}[\]})>]) (?:is )?not responding"
        ),
    ),
    ("recovered", re.compile(r"(?:nfs|lockd|NFS|rpcbind): server (?P<device>\S{1,253}) (?:is )?OK\b")),
    (
        "reclaim",
        re.compile(
            r"(?:(?:NFS|_{0,2}nfs4?\w*): ){0,2}(?:Lock reclaim failed|(?:\w{1,32} )?reclaim\w{0,20}:? .{0,200}failed)",
            re.IGNORECASE,
        ),
    ),
    (
        "lease",
        re.compile(
            r"NFS: state manager(?::| encountered) .*(?:failed|expired).*?(?:server (?P<device>\S{1,253}))?"
        ),
    ),
    ("lease", re.compile(r"NFS: .{0,200}lease.{0,200}(?:expired|lost)")),
    (
        "error",
        re.compile(
            r"NFS: server (?P<device>\S{1,253}) error|(?:NFS: )?nfs4?\w*:? .*unhandled error|NFS: Server (?P<other>\S{1,253}) reports our clientid is in use|NFSv4: state recovery failed|NFS: v4 server .* (?:returned|failed)|nfs: RPC call returned error|NFS: \w+ .*error[ =:]+-?\d+"
        ),
    ),
)
_LUSTRE = re.compile(
    r"(?P<who>Lustre|LustreError|LNet|LNetError):? (?:(?P<id>[0-9a-f]{1,4}-[0-9a-f]{1,2}): )?(?P<text>.*)",
    re.DOTALL,
)
_LUSTRE_CODES = (
    ("lbug", re.compile(r"^(?:\d+:\d+:\([^()]{1,80}(?:\(\))?\) )?(?:LBUG\b|ASSERTION\(.*failed)")),
    ("evicted", re.compile(r"client was evicted|evicted by|was evicted from service|^Evicted from ")),
    ("evicting", re.compile(r"evicting (?:client|it)|[Ee]vict\w{0,12} .{0,200}client")),
    ("*", re.compile(r"")),
    ("connection_lost", re.compile(r"Connection to .* was lost|Lost connection to|haven't heard from")),
    ("recovered", re.compile(r"Connection restored to|Recovery over after")),
    (
        "request_timeout",
        re.compile(r"Request .{0,400}timed out|has failed due to network error"),
    ),
)
_LUSTRE_HARMLESS = re.compile(
    r"^(?:Skipped \d|Mounted |Unmounted|Build Version|Added L|Removed L|Accept |Using |Server .* (?:version|shutdown)|dumping log|Client .* (?:mounted|umount)|.*: (?:Not available|Imperative Recovery|Will be in recovery|Client .* reconnect|new disk, init|disabling))"
)
_GPFS = re.compile(
    r"mmfs\w*(?:\[\d+\])?:? (?:\[(?P<level>[EXWNI])\] ?|Error=(?P<error>MMFS_\w{1,40}))(?P<text>.*)"
)
_GPFS_CODES = (
    (
        "expelled",
        re.compile(
            r"(?:[Tt]his|[Ll]ocal) node\b.{0,80}expel|[Ll]ost membership|[Qq]uorum (?:is )?lost|[Dd]aemon (?:is )?(?:being )?shut"
        ),
    ),
    ("expelling", re.compile(r"expel")),
    ("unmounted", re.compile(r"unmounted by the system|[Uu]nmounting.*error|panic", re.IGNORECASE)),
    (
        "connection_lost",
        re.compile(r"[Cc]lose connection|connection (?:was )?(?:broken|lost)|not responding|overdue"),
    ),
)
_BEEGFS = re.compile(r"[Bb]ee(?:GFS|gfs)\b")
_BEEGFS_LOST = re.compile(
    r"[Cc]onnect failed|[Uu]nable to connect|[Cc]ommunication (?:error|timeout)|[Cc]onnection (?:error|lost|refused)|[Rr]eceive(?:d)? (?:interrupted|timed out)|unreachable|offline"
)
_BEEGFS_ERROR = re.compile(r"[Ee]rror\b|failed\b|[Cc]ouldn't\b")
_CEPH = r"ceph: (?:\[[\w -]{1,80}\]: {1,2})?(?P<mds>mds\d+) "
_OTHER = (
    (
        "evicted",
        re.compile(rf"{_CEPH}(?:reconnect denied|rejected session|session blocklisted)"),
    ),
    (
        "not_responding",
        re.compile(
            rf"libceph(?: \([0-9a-f-]{{36}} e\d{{1,10}}\))?: (?P<device>(?:mon|osd|mds)\d+) (?:.*(?:session lost|socket (?:closed|error)|connect error|connection reset|session reset|bad crc|integrity error)|down\b)|libceph: connect \S{{1,80}} error -\d|{_CEPH}(?:hung|caps (?:went )?stale|closed our session)"
        ),
    ),
    (
        "not_responding",
        re.compile(
            r"CIFS:? VFS: (?:\\\\)?(?P<device>\S+) has not responded|CIFS:? VFS: [Ss]erver (?P<server>\S+) (?:of type .* )?has not responded"
        ),
    ),
    (
        "error",
        re.compile(
            r"CIFS:? VFS: .{0,400}(?:[Ee]rror|failed)|libceph(?: \([0-9a-f-]{36} e\d{1,10}\))?: (?P<device>(?:mon|osd|mds)\d{1,6}) .{0,120}(?:feature set mismatch|missing required protocol features)|fuse: [^'\"]{0,200}(?:abort|error)|weka\w{0,12}\b.{0,400}(?:[Ee]rror|failed|disconnect)"
        ),
    ),
)


def _named(kind: str, table: tuple[tuple[str, re.Pattern[str]], ...], message: str) -> KernelFinding | None:
    for code, pattern in table:
        if found := message_start.match(pattern, message):
            device = next((v for v in found.groupdict().values() if v), None)
            return make(FACTS, kind, code, message, device=device.strip(",:") if device else None)
    return None


def _lustre(message: str) -> KernelFinding | None:
    """Lustre's own number is the code, unless the text says that somebody was evicted."""
    if not (found := message_start.match(_LUSTRE, message)):
        return None
    text = found["text"].removeprefix("Lustre: ")
    if _LUSTRE_HARMLESS.match(text):
        return None
    for code, pattern in _LUSTRE_CODES:
        if code == "*":
            if found["id"]:
                return make(FACTS, "lustre", found["id"], message)
        elif pattern.search(text):
            return make(FACTS, "lustre", code, message)
    if found["who"] == "LNetError" or (
        found["who"] == "LNet" and re.search(r"[Tt]imed out|failed|error|was inactive for", text)
    ):
        return make(FACTS, "lustre", "network", message)
    return make(FACTS, "lustre", "error", message) if found["who"] == "LustreError" else None


def _gpfs(message: str) -> KernelFinding | None:
    if not (found := message_start.match(_GPFS, message)) or found["level"] in ("N", "I"):
        return None
    if found["error"]:
        return make(FACTS, "gpfs", found["error"].lower(), message)
    for code, pattern in _GPFS_CODES:
        if pattern.search(found["text"]):
            return make(FACTS, "gpfs", code, message)
    return make(FACTS, "gpfs", "error", message, severity=INFO if found["level"] == "W" else LOW)


def _beegfs(message: str) -> KernelFinding | None:
    if _BEEGFS_LOST.search(message):
        return make(FACTS, "beegfs", "connection_lost", message)
    return make(FACTS, "beegfs", "error", message) if _BEEGFS_ERROR.search(message) else None


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of a network file system's client."""
    if "+0x" in message and "/0x" in message:
        return None
    if "ustre" in message or "LNet" in message:
        return _lustre(message)
    if "mmfs" in message:
        return _gpfs(message)
    if message_start.match(_BEEGFS, message):
        return _beegfs(message)
    if any(word in message for word in ("nfs", "NFS", "lockd", "rpcbind")):
        return _named("nfs", _NFS, message)
    return _named("filesystem", _OTHER, message)


FAMILY = grammar.LineFamily(
    name="netfs",
    triggers=(
        "nfs",
        "NFS",
        "lockd",
        "rpcbind",
        "ustre",
        "LNet",
        "mmfs",
        *(f": [{level}] " for level in "EWX"),
        "eegfs",
        "eeGFS",
        "ceph",
        "CIFS",
        "fuse:",
        "weka",
    ),
    read=read,
    facts=FACTS,
)
