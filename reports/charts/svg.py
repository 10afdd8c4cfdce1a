"""A little SVG: elements as text, every value escaped, and words of others without what turns or hides text."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from probing_cluster.core import sanitize


def element(tag: str, *children: str, text: object = None, **attributes: object) -> str:
    """`<tag …>children</tag>`; `_` in attribute names is `-`, a trailing one is dropped; None is left out."""
    words = [
        f"{name.rstrip('_').replace('_', '-')}={quoteattr(number(value))}"
        for name, value in attributes.items()
        if value is not None
    ]
    inner = "".join(children) if text is None else escape(sanitize.clean(str(text)))
    head = " ".join([tag, *words])
    return f"<{head}>{inner}</{tag}>" if inner else f"<{head}/>"


def number(value: object) -> str:
    """Coordinates with at most two decimals, anything else as it is."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def titled(title: str, *children: str, **attributes: object) -> str:
    """A group that names itself to a pointer and a screen reader."""
    return element("g", element("title", text=title), *children, **attributes)


def polygon(points: Iterable[tuple[float, float]], **attributes: object) -> str:
    """A closed shape."""
    return element("polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), **attributes)
