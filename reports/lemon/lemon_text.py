"""A night as plain text: for the terminal, and beside the mail's HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from probing_cluster.core import sanitize
from probing_cluster.reports.lemon import lemon_view

WIDTH = 78


def render(view: lemon_view.LemonPage) -> str:
    """The whole report; for a night without a lemon the reason, and the likeliest nodes."""
    head = f"{view.cluster}, {view.day:%Y-%m-%d}: {view.headline}"
    lines = [*_wrapped(head), *([view.total_cost] if view.total_cost else [])]
    for title, cards in (
        ("NEW LEMONS", view.new),
        ("STILL LEMONS", view.still),
        ("NO LONGER LEMONS", view.gone),
    ):
        if cards:
            lines += ["", title]
            for card in cards:
                lines += ["", *_card(card)]
    if view.suspects:
        lines += ["", "SUSPECTS (no proof yet: keep large jobs away if you can)", ""]
        for card in view.suspects:
            lines += _wrapped(f"{card.node}  {card.chance}  {card.summary}", "  ")
        if view.n_more_suspects:
            lines.append(f"  and {view.n_more_suspects} more: probing-ctl lemon list")
    lines += unsuspected(view)
    if view.uneventful:
        return "\n".join(_clean(line) for line in lines) + "\n"
    lines += ["", *(line for remark in view.remarks for line in _wrapped(remark))]
    return "\n".join(_clean(line) for line in lines) + "\n"


def unsuspected(view: lemon_view.LemonPage) -> list[str]:
    """Why no node is a lemon, and the likeliest of those that nobody suspects."""
    if not view.none_because:
        return []
    lines = ["", *_wrapped(view.none_because)]
    for one in view.ranked:
        lines += _wrapped(f"{one.node}  {one.chance}  {one.why_not}", "  ", "    ")
    return lines


def card(given: lemon_view.LemonCard) -> str:
    """One node."""
    return "\n".join(_clean(line) for line in _card(given))


def _card(card: lemon_view.LemonCard) -> Iterator[str]:
    since = f", since {card.since:%Y-%m-%d}" if card.since and card.status == "still" else ""
    yield f"{card.node}  {card.chance}{since}"
    for reason in card.reasons:
        yield from _wrapped(reason, "  - ", "    ")
    if card.cost:
        yield from _wrapped(f"cost: {card.cost}", "  ")
    if card.drained:
        yield from _wrapped(card.drained, "  ")
    for failure in card.failures:
        yield f"  {failure.at:%m-%d %H:%M}Z  {failure.command:<22} {failure.what} ({failure.size})"
    if card.n_more:
        yield f"  and {card.n_more} earlier"
    for command in card.commands:
        yield f"  > {command.text}    # {command.meaning}"


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest)


def _clean(line: str) -> str:
    return sanitize.clean(line, 500)
