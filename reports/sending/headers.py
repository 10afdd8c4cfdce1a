"""A mail's headers of foreign text: one line each, and nothing in them that a reader of mail, or Python's own, would decode."""

from __future__ import annotations

import re

from probing_cluster.core import errors, sanitize

_ADDRESS = re.compile(
    r"[A-Za-z0-9_+%&'*/^`{|}~!#$=][A-Za-z0-9._+%&'*/^`{|}~!#$=-]{0,254}"
    r"(?:@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)?",
    re.ASCII,
)
"""No question mark: `=?…?=` is decoded, and what it hides would be a line of its own."""


def subject(text: str, limit: int) -> str:
    """Foreign text as a subject, at most `limit` characters.

    Python decodes an encoded word (`=?utf-8?q?a=0d=0aBcc:…?=`) that is put into a header, and writes its line breaks out.
    """
    return sanitize.clean(text, limit).replace("=?", "= ?")[:limit]


def address(text: object) -> str:
    """A recipient as a header and an SMTP server may be given it; raises UsageError for what is none, or may be more than one."""
    if not isinstance(text, str) or not 0 < len(text) <= 320:
        raise errors.UsageError("the mail has no recipient")
    if not _ADDRESS.fullmatch(text):
        raise errors.UsageError("the recipient is no plain address")
    return text
