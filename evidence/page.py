"""The generated tables of docs/evidence.md: every kind and code that can be found, from the families' own facts.

    python -m probing_cluster.evidence.page [--check]

rewrites the text between the page's markers; with --check it exits with 1 if that text is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from probing_cluster.evidence.joblog import families as joblog
from probing_cluster.evidence.kernel import reader as kernel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evidence.md"
_SECTION = "<!-- {name}:begin -->\n{body}\n<!-- {name}:end -->"


def kernel_table() -> str:
    """One row per (kind, code) of kernel messages."""
    rows = ["| kind | code | severity | domains | meaning | next step |", "|---|---|---|---|---|---|"]
    for (kind, code), fact in sorted(kernel.facts().items()):
        shown = "number or word of the message" if code == "*" else f"`{code}`"
        domains = ", ".join(fact.domains)
        rows.append(
            f"| `{kind}` | {shown} | {fact.severity} | {domains} | {fact.meaning} | {fact.next_step} |"
        )
    return "\n".join(rows)


def joblog_table() -> str:
    """One row per kind of job-log message."""
    rows = ["| kind | part | domains | meaning |", "|---|---|---|---|"]
    for kind, fact in sorted(joblog.facts().items()):
        part = fact.role.name.lower() + (", late" if fact.late else "")
        rows.append(f"| `{kind}` | {part} | {', '.join(fact.domains)} | {fact.meaning} |")
    return "\n".join(rows)


def render(text: str) -> str:
    """`text` with its generated sections brought up to date."""
    for name, body in (("kernel", kernel_table()), ("joblog", joblog_table())):
        head, _, rest = text.partition(f"<!-- {name}:begin -->")
        _, _, tail = rest.partition(f"<!-- {name}:end -->")
        text = head + _SECTION.format(name=name, body=body) + tail
    return text


def main(arguments: list[str]) -> int:
    """Rewrite the page; with --check only compare."""
    old = PAGE.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in arguments:
        return 0 if old == new else 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
