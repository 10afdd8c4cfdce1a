"""Mail headers from untrusted text: one line each, without anything that a mail reader or Python would decode."""

from __future__ import annotations

import re

from probing_cluster.core import errors, sanitize

_ADDRESS = re.compile(
    r"[A-Za-z0-9_+%&'*/^`{|}~!#$=][A-Za-z0-9._+%&'*/^`{|}~!#$=-]{0,254}"
    r"(?:@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)?",
    re.ASCII,
)
"""No question mark: `=?…?=` is decoded, and could hide a line break."""


def subject(text: str, limit: int) -> str:
    """Untrusted text as a subject, at most `limit` characters.

    Python decodes an encoded word (`=?utf-8?q?a=0d=0aBcc:…?=`) in a header and writes its line breaks.
    """
    return sanitize.clean(text, limit).replace("=?", "= ?")[:limit]


def address(text: object) -> str:
    """A recipient that is safe in a header and for an SMTP server; raises UsageError for anything but one plain address."""
    if not isinstance(text, str) or not 0 < len(text) <= 320:
        raise errors.UsageError("the mail has no recipient")
    if not _ADDRESS.fullmatch(text):
        raise errors.UsageError("the recipient is not a plain mail address")
    return text
