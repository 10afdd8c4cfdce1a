"""What tests of our HTML pages read from them."""

from __future__ import annotations

import html.parser
import re

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
LOADING_TAGS = {"script", "link", "img", "iframe", "object", "embed", "form", "base"}


class Reader(html.parser.HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def require_self_contained(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """The page's tags, none of which loads or sends anything."""
    tags = Reader(text).tags
    assert not {tag for tag, _ in tags} & LOADING_TAGS
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text
    return tags
