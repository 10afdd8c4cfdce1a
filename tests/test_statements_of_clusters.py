"""Every SQL text that reads or writes rows of clusters says of which: a database may hold several, with equal nodes and job ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import two_clusters

ROOT = Path(__file__).parents[1]
ROOMS = tuple(
    p
    for p in sorted(ROOT.iterdir())
    if (p / "__init__.py").is_file() and p.name not in {"tests", "benchmarks"}
)
VIEWS = {
    "agent_health", "attempt_verdicts", "causes_daily", "check_now", "drains", "failures_24h", "high_events_24h",
    "incidents", "lemons", "node_now", "places", "requests", "runs",
}  # fmt: skip
OF_ALL: Mapping[str, tuple[str, str]] = {
    "attribution/history/sql/history_events.sql": ("e", "the history keeps the events of all clusters, each with its own"),
    "attribution/history/sql/n_events.sql": ("e", "a month of the history is of all clusters"),
    "attribution/history/sql/only_events_of_coverage.sql": ("verdict", "by the ids of events"),
    "attribution/history/sql/pg_events.sql": ("e", "the figures keep to their cluster (fleet.base), the history has all"),
    "attribution/passes/node_clocks.py _CLUSTERS": ("c", "it names the clusters"),
    "attribution/passes/sql/job_side_jobs.sql": ("e", "a twin sends an attempt to the judge, who asks for its own"),
    "attribution/passes/sql/open_attempts.sql": ("a", "one pass judges the attempts of all clusters, cluster by cluster"),
    "attribution/passes/sql/worked_since.sql": ("j", "the query around it compares it: a fence for the planner"),
    "attribution/reliability/sql/stale_attempts.sql": ("a", "one pass accounts the runs of all clusters, by cluster"),
    "attribution/reliability/sql/stalled_attempts.sql": ("verdict", "what it gives is looked up by the attempt's key"),
    "control_plane/service/sql/waiting.sql": ("w", "one pass takes the deliveries of all clusters"),
    "control_plane/service/tasks/database/export.py _oldest": ("job_attempt", "the history is of all clusters"),
    "db/deliver.sql": ("a a q", "by the caller's role, and by the requests already chosen"),
    "db/deliver.sql probing.deliver_heartbeats": ("h", "of the caller's cluster, which the statement around it compares"),
    "db/deliver.sql probing.deliver_allocations": ("a", "stores what the caller's cluster was written into"),
    "db/deliver.sql probing.deliver_checks": ("check_result n", "stores what the caller's cluster was written into"),
    "db/deliver_batch.sql": ("a a", "by the callers' roles"),
    "db/displaced_noted.sql probing.note_displaced": ("a", "the query around it compares it: a fence for the planner"),
    "db/ops.sql probing.back_from_repair": ("d e", "a repair's drain and the events of it, by their ids"),
    "db/ops.sql ops.agent_health": ("h", "a view of all clusters, with their column"),
    "db/ops.sql ops.check_now": ("c", "a view of all clusters, with their column"),
    "db/ops.sql ops.drains": ("d", "a view of all clusters, with their column"),
    "db/ops.sql ops.failures_24h": ("f", "a view of all clusters, with their column"),
    "db/ops.sql ops.high_events_24h": ("e", "a view of all clusters, with their column"),
    "db/ops.sql ops.places": ("p", "a view of all clusters, with their column"),
    "db/ops.sql ops.requests": ("q", "a view of all clusters, with their column"),
    "db/ops.sql ops.runs": ("r", "a view of all clusters, with their column"),
    "db/partitions.py _AGED": ("check_result job_allocation node_answer node_clock node_request", "by age alone"),
    "db/roles.py _LOGINS": ("a", "by login role"),
    "db/roles.py pgbouncer_users": ("agent_role", "by login role"),
    "db/roles.py remove": ("agent_role", "by login role"),
    "db/store/attempts.py _CLUSTERS": ("a job_attempt", "it names the clusters"),
    "db/store/verdicts.py _CURRENT": ("verdict", "what it gives is looked up by the attempt's key"),
    "db/store/verdicts.py _insert": ("verdict", "the columns of a record, its cluster among them"),
    "web/sql/marks.sql": ("a d d g h v", "a change elsewhere only has the Now page made anew"),
    "web/sql/round_results.sql": ("r", "by the round's id"),
    "web/sql/search_jobs.sql": ("a a a t t t", "a search finds in all clusters, and says where"),
    "web/sql/search_nodes.sql": ("a h h x", "a search finds in all clusters, and says where"),
    "web/sql/search_xids.sql": ("e", "a search finds in all clusters, and says where"),
}  # fmt: skip
"""Texts that are of the rows of all clusters on purpose: the tables by their names there, and why."""

_COMMENT = re.compile(r"--[^\n]*")
_WORD = r"(?!(?:where|on|using|set|join|left|cross|inner|order|group|limit|select|for|union|as|values|returning|offset|having|when|then|end)\b)(\w+)"
_TABLE = re.compile(
    rf"\b(from|join|update|into)\s+(?:only\s+)?(?:probing|ops)\.(\w+)\b(?!\s*\()(?:\s+(?:as\s+)?{_WORD})?",
    re.IGNORECASE,
)
_JOINED = re.compile(
    r"\s*(?:(?:left\s+)?join\s+[\w.]+(?:\s+(?!using\b)\w+)?\s+)?using\s*\(\s*cluster\b", re.IGNORECASE
)
"""Behind a table: it is joined by the cluster to what stands before or behind it."""
_INSERT = re.compile(
    r"\binsert\s+into\s+(?:probing|ops)\.(\w+)\b(?:\s+(?:as\s+)?\w+)?\s*\(([^)]*)\)", re.IGNORECASE
)


def texts() -> Iterator[tuple[str, str]]:
    """Where each SQL text is, and the text; a file of many statements gives each."""
    for room in ROOMS:
        for path in sorted(room.rglob("*.sql")):
            for part in re.split(r";\s*\n", _COMMENT.sub("", path.read_text(encoding="utf-8"))):
                yield f"{path.relative_to(ROOT)} {name_of(part)}".strip(), part
        for path in sorted(room.rglob("*.py")):
            if "versions" not in path.parts:
                for name, text in strings(ast.parse(path.read_text(encoding="utf-8"))):
                    yield f"{path.relative_to(ROOT)} {name}".strip(), text


def name_of(part: str) -> str:
    """The view or function that a statement makes; empty for another."""
    found = re.search(
        r"\b(?:view|function|procedure|trigger)\s+(?:if not exists\s+)?([\w.]+)", part, re.IGNORECASE
    )
    return found[1] if found else ""


def strings(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The strings of a module, each with the name that it is given or the function that it is in."""
    for top in ast.iter_child_nodes(tree):
        name = getattr(top, "name", "") or next(
            (t.id for t in getattr(top, "targets", ()) if isinstance(t, ast.Name)), ""
        )
        inside = set()
        for node in ast.walk(top):
            if isinstance(node, ast.JoinedStr):
                inside |= {id(v) for v in node.values}
                yield name, "".join(v.value if isinstance(v, ast.Constant) else "x" for v in node.values)
        for node in ast.walk(top):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield name, node.value


def lacking(text: str) -> list[str]:
    """The tables of clusters, by their names in the text, of which it does not say the cluster."""
    text = _COMMENT.sub("", text)
    known = two_clusters.tables_of_clusters() | VIEWS
    inserts = [(m[1], re.search(r"\bcluster\b", m[2])) for m in _INSERT.finditer(text)]
    inserted = {table for table, names_it in inserts if names_it}
    used: dict[str, list[str]] = {}
    for match in _TABLE.finditer(text):
        word, table, alias = match.groups(default="")
        if table not in known or (word.lower() == "into" and table in inserted):
            continue
        if not _JOINED.match(text, match.end()):
            used.setdefault(alias, []).append(alias or table)
    found = [table for table, names_it in inserts if table in known and not names_it]
    for alias, names in used.items():
        n_missing = max(0, len(names) - len(compared(alias, text)))
        found += names[len(names) - n_missing :]
    return sorted(found)


def compared(alias: str, text: str) -> list[str]:
    """Where the cluster of a table is held against something."""
    column = rf"\b{alias}\.cluster\b" if alias else r"(?<![.\w])cluster\b"
    return re.findall(
        rf"{column}\s*(?:=|<>|\bin\b)|=\s*{column}|\([^()]*{column}[^()]*\)\s*(?:=|in\b)|(?:=|\bin)\s*\([^()]*{column}|\|\|\s*{column}",
        text,
        re.IGNORECASE,
    )


def test_a_text_says_of_which_cluster_its_rows_are() -> None:
    """A new statement that forgets the cluster fails here; one that is of all clusters is named in OF_ALL, with the reason."""
    found: dict[str, list[str]] = {}
    for where, text in texts():
        found.setdefault(where, []).extend(lacking(text))
    wrong = {where: sorted(names) for where, names in found.items() if names}
    assert wrong == {where: sorted(names.split()) for where, (names, _) in OF_ALL.items()}


def test_only_db_builds_statements_by_its_tables() -> None:
    """What the store builds is proved read by read (tests/db/test_store_of_a_cluster.py); elsewhere a statement is a text."""
    names = re.compile(rf"\btables\.({'|'.join(sorted(two_clusters.tables_of_clusters()))})\b")
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        if room.name != "db"
        for path in room.rglob("*.py")
        if names.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_the_guard_sees_what_forgets_the_cluster() -> None:
    """By node or job alone; of two tables, one; in a part of a UNION; without a name."""
    for text in (
        "SELECT * FROM probing.health_event e WHERE e.node = :node",
        "SELECT * FROM probing.drain d JOIN probing.health_event e ON e.node = d.node WHERE d.cluster = :cluster",
        "SELECT 1 FROM probing.drain d WHERE d.cluster = :c UNION SELECT 1 FROM probing.drain d WHERE d.node = :n",
        "select cluster, node from ops.node_now where node = :node",
        "delete from probing.job_attempt where job_id = :job_id",
        "INSERT INTO probing.drain (drain_id, node) VALUES (1, 'n1')",
        "WITH x AS (SELECT * FROM a JOIN b USING (cluster)) SELECT 1 FROM x JOIN probing.drain d ON d.node = x.node",
    ):
        assert lacking(text), text
    for text in (
        "SELECT * FROM probing.drain d JOIN probing.verdict v USING (cluster, job_id) WHERE d.cluster = :cluster",
        "SELECT * FROM probing.drain d WHERE (d.cluster, d.node) = (:cluster, :node)",
        "SELECT value FROM probing.state WHERE key = :key",
    ):
        assert not lacking(text), text
