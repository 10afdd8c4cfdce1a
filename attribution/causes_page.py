"""docs/causes.md, generated from the taxonomy: `python -m probing_cluster.attribution.causes_page`."""

from __future__ import annotations

from probing_cluster.attribution.verdict import phrases, taxonomy

_HEAD = """\
# Causes

What a verdict may name. The words are stable: scripts and dashboards may key on them.
This page is generated: `python -m probing_cluster.attribution.causes_page`.

A cause is found by elimination: the symptom allows some causes, the evidence strikes most of them, and the rest
are ranked by strength of evidence, severity, specificity, nearness in time, share of nodes and independence of sources.
`unknown` is an honest verdict. The confidence words promise a rate: of "certain" at least 99 % are right,
of "likely" 90 %, of "possible" 60 %.
"""


def page() -> str:
    """The whole page as Markdown."""
    known = taxonomy.load()
    lines = [
        _HEAD,
        "## Causes",
        "",
        "| cause | domain | component | node | meaning | next step |",
        "|---|---|---|---|---|---|",
    ]
    for c in known.causes.values():
        step = phrases.next_step(c.next_step, noun=c.noun)
        lines.append(
            f"| `{c.word}` | {c.domain} | {c.component or '–'} | {c.severity} | {c.meaning} | {step} |"
        )
    lines += ["", "## Symptoms", "", "| symptom | domains | likely | causes allowed |", "|---|---|---|---|"]
    for s in known.symptoms:
        words = ", ".join(f"`{w}`" for w in s.causes)
        lines.append(f"| {s.name} | {', '.join(s.domains)} | {s.likely} | {words} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
